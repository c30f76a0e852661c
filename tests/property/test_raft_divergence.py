"""How logs find their common point, against a twin that compares them record by record.

Logs are grown as Raft grows them: each epoch begins at the end of some log that existed, and a replica has a prefix of what
some leader had. For such pairs the fetches of a follower must end at exactly the longest common prefix, in at most one round
for each epoch that the follower has beyond it; and an offset with an epoch is a position of a log when the record before it
has that epoch.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftkit.replica import Replica
from raftlake.raft.handlers.fetch import reconcile
from raftlake.raft.messages import FetchRequest
from raftlake.raft.types import Epoch

Log = list[int]


@st.composite
def grown_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """A new leader's log and a follower's, each as the epochs of its records."""
    histories: list[Log] = [[]]
    for epoch in range(1, draw(st.integers(1, 7)) + 1):
        parent = draw(st.sampled_from(histories))
        kept = draw(st.integers(0, len(parent)))
        histories.append(parent[:kept] + [epoch] * draw(st.integers(1, 4)))
    leader, follower = draw(st.sampled_from(histories)), draw(st.sampled_from(histories))
    return leader, follower[: draw(st.integers(0, len(follower)))]


def as_epochs(log: Log) -> tuple[list[tuple[int, int]], int]:
    starts = [(epoch, offset) for offset, epoch in enumerate(log) if offset == 0 or log[offset - 1] != epoch]
    return starts, len(log)


def common_prefix(one: Log, other: Log) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@given(grown_logs())
@settings(max_examples=300, deadline=None)
@example(([1, 1, 1, 4, 4, 5, 5, 6, 6, 6], [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]))
@example(([1, 4, 4, 6], [1, 3, 3, 5, 5, 7]))
def test_a_follower_keeps_exactly_what_it_shares_with_its_leader(logs: tuple[Log, Log]) -> None:
    leader_log, follower_log = logs
    epoch = 9
    leader = Replica.leader(epoch=epoch, log=as_epochs(leader_log))
    follower = Replica.follower(local=2, leader=1, epoch=epoch, log=as_epochs(follower_log))
    shared = common_prefix(leader_log, follower_log)
    rounds = 0
    while True:
        (request,) = follower.sent(FetchRequest).values()
        answer = leader.fetch(2, request.fetch_offset, request.last_fetched_epoch)
        if answer is None or answer.diverging is None:
            break
        rounds += 1
        follower.answer_fetch(diverging=answer.diverging)
        assert follower.core.log_end >= shared, "cut what it shares"
    assert follower.core.log_end == shared
    assert rounds <= len(set(follower_log[shared:]))


@given(grown_logs(), st.integers(0, 30), st.integers(0, 8))
@settings(max_examples=300, deadline=None)
def test_a_position_is_what_the_record_before_it_says(logs: tuple[Log, Log], offset: int, epoch: int) -> None:
    log, _ = logs
    leader = Replica.leader(epoch=9, log=as_epochs(log))
    diverging, snapshot_id = reconcile(leader.core, offset, Epoch(epoch))
    whole = [*log, 9]
    assert snapshot_id is None, "there is no snapshot"
    # An empty log has no record before its end, so whatever epoch it claims, it is a prefix.
    before = epoch if offset == 0 else whole[offset - 1] if offset <= len(whole) else None
    assert (diverging is None) == (before == epoch)
    if diverging is not None:
        # What the leader names is a position of its own log, and of no later epoch than was asked for.
        assert diverging.epoch <= epoch or epoch == 0
        assert diverging.offset == 0 or whole[diverging.offset - 1] == diverging.epoch
