"""The voters by offset against a model that keeps every control record of the log and searches it from the end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from raftkit.replica import voter_set
from raftlake.raft.types import Offset, VoterSet
from raftlake.raft.voters import VoterHistory

INITIAL = voter_set((1, 2, 3))
SETS = [voter_set(range(1, size + 1)) for size in range(1, 8)]


class VoterHistoryModel(RuleBasedStateMachine):
    """`log[i]` is the set that the record at `start + i` brings, None for any other record; `before` came with the start."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 0
        self.before: VoterSet | None = None
        self.log: list[VoterSet | None] = []
        self.history = VoterHistory(INITIAL)

    def expected(self, offset: int) -> VoterSet | None:
        for voters in reversed(self.log[: offset - self.start]):
            if voters is not None:
                return voters
        return self.before

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    @rule(others=st.integers(0, 3), voters=st.sampled_from(SETS))
    def append(self, others: int, voters: VoterSet) -> None:
        self.log += [None] * others
        self.history.record(Offset(self.end), voters)
        self.log.append(voters)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.start, self.end))
        before = self.expected(self.end)
        cut = self.log[end - self.start :]
        del self.log[end - self.start :]
        assert self.history.truncate_to(Offset(end)) == any(voters is not None for voters in cut)
        assert self.expected(self.end) == before or any(cut)

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end))
        self.before = self.expected(start)
        self.log = self.log[start - self.start :]
        self.start = start
        self.history.forget_before(Offset(start))

    @rule(ahead=st.integers(0, 5), voters=st.one_of(st.none(), st.sampled_from(SETS)))
    def reset(self, ahead: int, voters: VoterSet | None) -> None:
        self.start, self.before, self.log = self.end + ahead, voters, []
        self.history.reset(Offset(self.start), voters)

    @invariant()
    def agrees_at_every_offset(self) -> None:
        for offset in range(self.start, self.end + 2):
            assert self.history.at(Offset(offset)) == self.expected(offset)
        latest = self.expected(self.end)
        assert self.history.latest == (INITIAL if latest is None else latest)
        assert self.history.kraft_version == (latest is not None)


VoterHistoryModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestVoterHistoryModel = VoterHistoryModel.TestCase
