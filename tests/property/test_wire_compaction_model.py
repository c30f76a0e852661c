"""Two replicas of one log, compacted at any time and in any part, against what was appended.

The follower reads whole batches from where its own log ends, while the leader compacts. The model knows each committed record,
and what the newest value of each key is.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from compactkit import NOW_MS, RETENTION_MS, Asked, LogInTheMaking, Passed, compact, header_of, records_in, require_whole
from raftlake.wire.batches import Record
from raftlake.wire.compaction import cut_empty

KEYS = (None, b"", b"a", b"b", b"c", b"long" * 20, b"long" * 20 + b"!")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS = (7, 8)
#: Enough that the records of a batch are read together.
REPEATS = 30

a_record = st.builds(
    Record,
    key=st.sampled_from(KEYS),
    value=st.sampled_from((None, b"", b"1", b"2")),
    timestamp_ms=st.integers(NOW_MS - 500, NOW_MS + 500),
    headers=st.sampled_from(((), (("h", b"x"), ("n", None)))),
)
State = dict[bytes, tuple[int, bytes]]


def newest_values(records: list[Record]) -> State:
    """What a reader that applies the records one after another knows of each key: offset and value."""
    state: State = {}
    for record in records:
        if record.key is not None and record.value is not None:
            state[record.key] = (record.offset, record.value)
        elif record.key is not None:
            state.pop(record.key, None)
    return state


class Replica:
    """The batches that one replica holds, and how far it believes it has compacted them."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.compacted_until = 0
        #: Aborted transactions whose markers are below it are not in the index any more.
        self.aborted_from = 0

    @property
    def end(self) -> int:
        return header_of(self.batches[-1]).end_offset if self.batches else 0

    def read(self, start: int) -> list[bytes]:
        """The batches from `start` on: the first may be a cut one."""
        found = [batch for batch in self.batches if header_of(batch).end_offset > start]
        if found and header_of(found[0]).base_offset < start:
            found[0] = cut_empty(found[0], start)
        return found


class TwoReplicas(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.log = LogInTheMaking()
        self.leader, self.follower = Replica(), Replica()
        self.now_ms = NOW_MS
        self.open: dict[int, int] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.last_batches: dict[int, int] = {}
        self.boundaries = {0}

    def _appended(self) -> None:
        self.leader.batches.append(self.log.batches[-1])
        self.boundaries.add(self.log.end)

    @rule(
        records=st.lists(a_record, min_size=1, max_size=5),
        times=st.sampled_from((1, 1, REPEATS)),
        codec=st.sampled_from(CODECS),
        producer=st.sampled_from((-1, *PRODUCERS)),
        transactional=st.booleans(),
        append_time=st.booleans(),
    )
    def append(
        self, records: list[Record], times: int, codec: str, producer: int, transactional: bool, append_time: bool
    ) -> None:
        fields: dict[str, object] = {"compression": codec, "log_append_time": append_time}
        if producer in self.open:
            transactional = True
        if producer >= 0:
            fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
            fields["transactional"] = transactional
            self.sequences[producer] += len(records) * times
        base = self.log.data(*records * times, **fields)
        if producer >= 0:
            self.last_batches[producer] = self.log.end - 1
            if transactional:
                self.open.setdefault(producer, base)
        self._appended()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open)))
        del self.open[producer]
        self.log.marker(producer, commit=commit)
        self._appended()

    @rule()
    def elect(self) -> None:
        self.log.leader_change(self.log.epoch + 1)
        self._appended()

    @rule(ms=st.sampled_from((1, RETENTION_MS // 2, RETENTION_MS, 10 * RETENTION_MS)))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.follower.end < self.leader.end)
    @rule(count=st.integers(1, 6))
    def fetch(self, count: int) -> None:
        self.follower.batches += self.leader.read(self.follower.end)[:count]

    @rule(data=st.data(), of_leader=st.booleans(), keys_max=st.sampled_from((1, 3, 1000)), stale=st.booleans())
    def compact(self, data: st.DataObject, of_leader: bool, keys_max: int, stale: bool) -> None:
        replica = self.leader if of_leader else self.follower
        bounds = [header_of(batch).end_offset for batch in replica.batches]
        stable = min(self.open.values(), default=self.log.end)
        candidates = [bound for bound in bounds if replica.compacted_until <= bound <= stable]
        if not candidates:
            return
        until = data.draw(st.sampled_from(candidates))
        dirty_from = data.draw(st.integers(0, replica.compacted_until)) if stale else replica.compacted_until
        asked = Asked(
            dirty_from=dirty_from,
            until=until,
            now_ms=self.now_ms,
            tombstones_below=self.follower.end,
            aborted=tuple(
                each for each in self.log.aborted if each.first_offset < until and each.last_offset >= replica.aborted_from
            ),
            last_batches=frozenset(self.last_batches.values()),
            keys_max=keys_max,
        )
        groups = data.draw(st.sets(st.sampled_from(bounds)))
        before, passed = replica.batches, compact(replica.batches, asked, segment_ends=groups)
        require_whole(before, passed.batches)
        self._check_pass(before, asked, passed)
        #: A crash may come between any two groups.
        crash_at = data.draw(st.sampled_from((None, *sorted(groups)))) if groups else None
        if crash_at is None:
            replica.batches = passed.batches
            replica.compacted_until = max(replica.compacted_until, passed.clean_until)
            replica.aborted_from = max(replica.aborted_from, passed.clean_until)
            return
        new = [batch for batch in passed.batches if header_of(batch).end_offset <= crash_at]
        replica.batches = new + [batch for batch in before if header_of(batch).base_offset >= crash_at]
        require_whole(before, replica.batches)

    def _check_pass(self, before: list[bytes], asked: Asked, passed: Passed) -> None:
        committed = self._committed(before)
        known: dict[bytes, int] = {}
        for record in committed:
            is_dirty = record.offset < passed.clean_until and self._end_of(before, record.offset) > asked.dirty_from
            if record.key is not None and is_dirty:
                known[record.key] = record.offset
        # A horizon in the dirty part is of another replica, or of a pass that a crash ended.
        horizons = {
            record.offset: header.delete_horizon_ms
            for batch, header in ((batch, header_of(batch)) for batch in before)
            if not header.is_control
            and not (asked.dirty_from <= header.base_offset and header.end_offset <= passed.clean_until)
            for record in records_in([batch])
        }
        expected = []
        for record in committed:
            horizon = horizons.get(record.offset)
            is_due = horizon is not None and horizon <= asked.now_ms and record.offset < asked.tombstones_below
            is_gone = record.key is None or known.get(record.key, -1) > record.offset or (record.value is None and is_due)
            if record.offset >= passed.clean_until or not is_gone:
                expected.append(record)
        # At and above the end of the map records of aborted transactions are still there.
        found = records_in(passed.batches)
        assert [each for each in found if not self._is_aborted(each.offset)] == expected
        assert not [each for each in found if self._is_aborted(each.offset) and each.offset < passed.clean_until]
        removed = len(records_in(before, include_control=True)) - len(records_in(passed.batches, include_control=True))
        assert passed.records_removed == removed

    @staticmethod
    def _end_of(batches: list[bytes], offset: int) -> int:
        return next(header_of(batch).end_offset for batch in batches if header_of(batch).end_offset > offset)

    def _is_aborted(self, offset: int) -> bool:
        batch = next(each for each in self.log.batches if header_of(each).end_offset > offset)
        header = header_of(batch)
        return header.is_transactional and any(
            each.producer_id == header.producer_id and each.first_offset <= offset <= each.last_offset
            for each in self.log.aborted
        )

    def _committed(self, batches: list[bytes]) -> list[Record]:
        return [record for record in records_in(batches) if not self._is_aborted(record.offset)]

    @invariant()
    def every_replica_tells_the_newest_values(self) -> None:
        for replica in (self.leader, self.follower):
            appended = [each for each in self._committed(self.log.batches) if each.offset < replica.end]
            if replica is self.leader:
                assert newest_values(self._committed(replica.batches)) == newest_values(appended)
        caught_up = self.follower.batches + self.leader.read(self.follower.end)
        require_whole(self.log.batches, caught_up)
        assert newest_values(self._committed(caught_up)) == newest_values(self._committed(self.log.batches))

    @invariant()
    def transactions_keep_their_ends(self) -> None:
        """Each batch that still tells of a transaction is followed by the marker of that transaction."""
        for replica in (self.leader, self.follower):
            unended = set()
            for header in map(header_of, replica.batches + self.leader.read(replica.end)):
                if header.is_control:
                    unended.discard(header.producer_id)
                elif header.is_transactional:
                    unended.add(header.producer_id)
            assert unended <= set(self.open)

    @invariant()
    def what_the_index_of_aborted_transactions_names_is_there(self) -> None:
        for replica in (self.leader, self.follower):
            for each in self.log.aborted:
                if replica.aborted_from <= each.last_offset < replica.end:
                    batch = next(batch for batch in replica.batches if header_of(batch).end_offset > each.last_offset)
                    assert header_of(batch).is_control

    @invariant()
    def no_aborted_record_is_left_without_its_entry(self) -> None:
        for replica in (self.leader, self.follower):
            for record in records_in(replica.batches):
                ends = [each.last_offset for each in self.log.aborted if each.first_offset <= record.offset <= each.last_offset]
                assert not self._is_aborted(record.offset) or max(ends) >= replica.aborted_from

    @invariant()
    def producers_keep_their_newest_batches(self) -> None:
        if not hasattr(self, "leader"):
            return
        for producer, last_offset in self.last_batches.items():
            batch = next(each for each in self.leader.batches if header_of(each).end_offset > last_offset)
            header = header_of(batch)
            last_sequence = header.base_sequence + header.last_offset_delta
            assert (header.producer_id, header.last_offset) == (producer, last_offset)
            assert last_sequence == self.sequences[producer] - 1

    @invariant()
    def a_reader_may_begin_at_every_boundary(self) -> None:
        for boundary in self.boundaries:
            read = self.leader.read(boundary)
            assert not read or header_of(read[0]).base_offset == boundary


TwoReplicas.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestTwoReplicas = TwoReplicas.TestCase
