"""The judge of compaction lets what the rules allow pass, and finds whatever else was removed, kept or changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from compactkit import Asked, LogInTheMaking, compact, header_of
from raftlake.ports.driver import Compacted, Compaction
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, Offset
from raftlake.sim.disk.disk import MemoryLog, SimulatedDisk
from raftlake.sim.disk.log_image import StoredBatch, span_of, stored
from raftlake.sim.disk.observer import Installed
from raftlake.sim.invariants.base import ClusterView, Violation
from raftlake.sim.invariants.committed_data import CommittedData
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.compaction_rules import CompactionRules
from raftlake.sim.invariants.log_matching import LogMatching
from raftlake.wire.batches import HEADER_BYTES, Record, build_batch, decode_batch, decode_records, parse_header
from raftlake.wire.compaction import empty_batch

GROUP = GroupId("accounts", 0, bytes(range(16)))
ONE, TWO = NodeId(1), NodeId(2)
NOW_MS = 1_700_000_000_000
RETENTION_MS = 10_000
Change = Callable[[list[bytes]], list[bytes]]


class Machine:
    def port_call(self, name: str) -> None:
        """Never crashes."""

    def flush_later(self, complete: Callable[[], None], fail: Callable[[], None]) -> None:
        complete()


class Ground:
    """Two nodes with one log; node 1 compacts it. A pass is what `compactkit` makes, or what a test makes of that."""

    def __init__(self, made: LogInTheMaking) -> None:
        self.made = made
        self.disks = {node_id: SimulatedDisk(Machine()) for node_id in (ONE, TWO)}
        self.view = ClusterView((ONE, TWO), lambda node_id, group: self.disks[node_id].logs.get(group), lambda *_: None)
        self.committed = CommittedLogs()
        self.rules = CompactionRules(self.view, self.committed)
        self.fill(ONE)
        self.fill(TWO)
        assert self.committed.of(GROUP).extend(self.log, made.end, 1)

    @property
    def log(self) -> MemoryLog:
        return self.disks[ONE].open(GROUP)

    def fill(self, node_id: NodeId, end: int = 1 << 62) -> None:
        log = self.disks[node_id].open(GROUP)
        for batch in map(stored, self.made.batches):
            if log.end_offset <= batch.base < end:
                log.append([batch.data], [span_of(batch)])

    def request(self, **changes: object) -> Compaction:
        asked = Compaction(
            dirty_from=Offset(0),
            until=Offset(self.made.end),
            now_ms=NOW_MS,
            delete_retention_ms=RETENTION_MS,
            tombstones_below=Offset(1 << 62),
            aborted=tuple(self.made.aborted),
            last_batches=frozenset(),
            keys_max=1_000,
            segment_bytes=1 << 20,
        )
        return replace(asked, **changes)  # type: ignore[arg-type]

    def install(self, change: Change = lambda batches: batches, *, ends: bool = True, **changes: object) -> None:
        """A pass over the whole log as one group."""
        request = self.request(**changes)
        asked = {name: getattr(request, name) for name in Asked.__slots__}
        passed = compact([batch.data for batch in self.log.batches], Asked(**asked))
        before, after = list(self.log.batches), [stored(data) for data in change(passed.batches)]
        image = self.log.image
        image.batches[:], image.ends[:] = after, [batch.end for batch in after]
        self.rules.on_compacted(ONE, GROUP, Installed(request=request, before=before, after=after))
        if ends:
            done = Compacted(
                clean_until=Offset(passed.clean_until),
                bytes_before=0,
                bytes_after=0,
                records_removed=passed.records_removed,
                next_horizon_ms=passed.next_horizon_ms,
            )
            self.rules.on_pass_ended(ONE, GROUP, request, done)


def ordinary() -> LogInTheMaking:
    """Leader changes, a superseded key, a tombstone, a producer, an aborted and a committed transaction."""
    made = LogInTheMaking()
    made.leader_change(1)
    made.data(("a", "1"), ("b", "1"), ("c", "1"))
    made.data(("a", "2"), ("b", None), ("d", "1"), compression="gzip")
    made.data(("c", "2"), producer_id=5, producer_epoch=0, base_sequence=0)
    made.leader_change(2)
    made.data(("a", "lost"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    made.marker(7, commit=False)
    made.data(("e", "1"), producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    made.marker(7, commit=True)
    made.data((None, "no key"))
    return made


@pytest.fixture
def ground() -> Ground:
    return Ground(ordinary())


def test_passes_that_keep_the_rules_go_through_one_after_the_other(ground: Ground) -> None:
    whole = len(ground.log.batches)
    ground.install()
    assert len(ground.log.batches) <= whole
    ground.install(dirty_from=Offset(ground.made.end))
    ground.install(dirty_from=Offset(ground.made.end), now_ms=NOW_MS + RETENTION_MS)
    ground.install(dirty_from=Offset(ground.made.end), now_ms=NOW_MS + 3 * RETENTION_MS)
    tombstones = [record for batch in ground.log.batches for record in decode_batch(batch.data, parse_header(batch.data))]
    assert [record.key for record in tombstones if record.value is None] == []


def at(batches: Sequence[bytes], offset: int) -> int:
    return next(place for place, batch in enumerate(batches) if header_of(batch).end_offset > offset)


def emptied(offset: int) -> Change:
    """Without all records of the batch that holds the offset."""

    def change(batches: list[bytes]) -> list[bytes]:
        place = at(batches, offset)
        header = header_of(batches[place])
        batches[place] = empty_batch(header.base_offset, header.end_offset, header.leader_epoch)
        return batches

    return change


def remade(offset: int, *, keep: Callable[[Record], Record | None] = lambda record: record, **fields: object) -> Change:
    """The batch that holds the offset with other records, or another header."""

    def change(batches: list[bytes]) -> list[bytes]:
        place = at(batches, offset)
        header = header_of(batches[place])
        records = [keep(record) for record in decode_batch(batches[place], header)]
        more = {
            "base_offset": header.base_offset,
            "leader_epoch": header.leader_epoch,
            "timestamp_ms": header.base_timestamp_ms,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
        made = build_batch([record for record in records if record is not None], **{**more, **fields})  # type: ignore[arg-type]
        batches[place] = bytes(made)
        return batches

    return change


def without(offset: int) -> Change:
    def change(batches: list[bytes]) -> list[bytes]:
        del batches[at(batches, offset)]
        return batches

    return change


def joined(first: int, last: int) -> Change:
    """One empty batch of the batches from one offset to another."""

    def change(batches: list[bytes]) -> list[bytes]:
        low, high = at(batches, first), at(batches, last)
        headers = header_of(batches[low]), header_of(batches[high])
        batches[low : high + 1] = [empty_batch(headers[0].base_offset, headers[1].end_offset, headers[0].leader_epoch)]
        return batches

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (emptied(4), "newest of its key"),
        (emptied(11), "newest batch of producer 7"),
        (emptied(0), "the control batch at 0 changed"),
        (emptied(8), "the control batch at 8 changed"),
        (without(0), "does not begin and end|nothing stands"),
        (joined(7, 9), "epoch|control"),
        (remade(7, keep=lambda record: record._replace(value=b"other")), "in the place of"),
        (remade(7, keep=lambda record: record._replace(headers=(("h", b""),))), "in the place of"),
        (remade(7, keep=lambda record: record._replace(timestamp_ms=5)), "in the place of"),
        (remade(7, leader_epoch=2), "was of epoch 1, and is of 2"),
        (remade(7, producer_id=6), "became"),
        (remade(7, base_sequence=3), "became"),
        (remade(11, transactional=False), "became"),
        (lambda batches: batches[:-1], "nothing stands in the place"),
    ],
    ids=[
        "newest value gone", "committed value gone", "leader change gone", "second leader change gone", "batch gone",
        "epochs joined", "other value", "other headers", "other time", "other epoch", "other producer", "other sequence",
        "no transaction any more", "end gone",
    ],
)  # fmt: skip
def test_what_must_not_go_or_change_is_told(ground: Ground, change: Change, why: str) -> None:
    with pytest.raises(Violation, match=why):
        ground.install(change)


def test_the_newest_batch_of_a_producer_must_stay() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0)
    made.data(("a", "2"))
    Ground(made).install(last_batches=frozenset({Offset(0)}))
    with pytest.raises(Violation, match="newest batch of producer 5"):
        Ground(made).install()
    fenced = LogInTheMaking()
    fenced.data(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    fenced.marker(5, commit=True, producer_epoch=1)
    fenced.data(("a", "2"))
    ground = Ground(fenced)
    ground.install(last_markers=frozenset({(5, 1)}))
    ground.install(last_markers=frozenset({(5, 1)}), dirty_from=Offset(3), now_ms=NOW_MS + 2 * RETENTION_MS)
    later = {"dirty_from": Offset(3), "last_markers": frozenset(), "aborted": ()}
    ground.install(**later, now_ms=NOW_MS + 3 * RETENTION_MS)
    with pytest.raises(Violation, match="newest batch of producer 5"):
        ground.install(**later, now_ms=NOW_MS + 5 * RETENTION_MS)


def test_a_tombstone_waits_for_its_horizon_and_for_the_voters() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", None))
    with pytest.raises(Violation, match="had no delete horizon"):
        Ground(made).install(emptied(1))
    ground = Ground(made)
    ground.install()
    with pytest.raises(Violation, match="before its time"):
        ground.install(emptied(1), dirty_from=Offset(2), now_ms=NOW_MS + RETENTION_MS - 1)
    behind = Ground(made)
    behind.disks[TWO] = SimulatedDisk(Machine())
    behind.fill(TWO, 1)
    behind.install()
    with pytest.raises(Violation, match="voter 2 has the key at 0"):
        behind.install(dirty_from=Offset(2), now_ms=NOW_MS + RETENTION_MS)
    early = Ground(made)
    early.install()
    with pytest.raises(Violation, match="before its time"):
        early.install(emptied(1), dirty_from=Offset(2), now_ms=NOW_MS + RETENTION_MS, tombstones_below=Offset(1))


class Anew:
    """A key with a value and a tombstone, and a transaction. Node 2 lost its log.

    Node 2 has `held` batches again when tombstone and marker go from node 1."""

    def __init__(self, held: int = 0) -> None:
        self.made = made = LogInTheMaking()
        made.data(("a", "1"))
        made.data(("t", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
        made.data(("a", None))
        made.marker(5, commit=True)
        made.data(("t", "2"), producer_id=5, producer_epoch=0, base_sequence=1)
        self.ground = ground = Ground(made)
        self.take_away(TWO)
        ground.install()
        self.give(*made.batches[:held])
        for number in (1, 2):
            ground.install(dirty_from=Offset(made.end), now_ms=NOW_MS + number * RETENTION_MS)
        assert not {2, 3} & {
            record.offset for batch in ground.log.batches for record in decode_records(batch.data, include_control=True)
        }

    def take_away(self, node_id: NodeId, *, is_reset: bool = False) -> None:
        self.ground.disks[node_id].open(GROUP).truncate_to(Offset(0))
        if is_reset:
            self.ground.rules.on_log_start(node_id, GROUP, 0, is_reset=True)
        else:
            self.ground.rules.on_log_cut(node_id, GROUP, 0)

    def give(self, *batches: bytes) -> None:
        log = self.ground.disks[TWO].open(GROUP)
        for batch in map(stored, batches):
            log.append([batch.data], [span_of(batch)])
            self.ground.rules.on_append(TWO, GROUP, batch, 1)

    def compacted(self, begin: int, end: int) -> bytes:
        return empty_batch(begin, end, 1)


def test_a_voter_that_lost_its_log_may_be_told_of_both_or_of_neither() -> None:
    both = Anew()
    both.give(*both.made.batches)
    neither = Anew()
    neither.give(neither.compacted(0, 4), neither.made.batches[4])


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("places", [[(1, 4)], [(1, 2), (2, 3)], [(1, 3)]])
def test_a_voter_that_lost_its_log_is_told_of_the_tombstone_of_what_it_has(held: int, places: list[tuple[int, int]]) -> None:
    anew = Anew(held)
    anew.give(*anew.made.batches[held:1])
    with pytest.raises(Violation, match=r"brings nothing back: node 2 .* has the key b'a' at 0 and is not told .* at 2"):
        anew.give(*(anew.compacted(*place) for place in places))
    assert anew.ground.disks[TWO].open(GROUP).end_offset > 2


def test_a_voter_that_lost_its_log_is_told_how_the_transaction_ended_that_it_has() -> None:
    anew = Anew()
    anew.give(*anew.made.batches[:3])
    with pytest.raises(Violation, match="has a batch at 1 of a transaction, and is not told of its marker at 3"):
        anew.give(anew.compacted(3, 4))


def test_a_log_that_begins_anew_behind_its_leader_is_fetched_anew_too() -> None:
    anew = Anew()
    anew.give(*anew.made.batches)
    anew.take_away(TWO, is_reset=True)
    anew.give(*anew.made.batches[:2])
    with pytest.raises(Violation, match="is not told of its tombstone at 2"):
        anew.give(anew.compacted(2, 4))


def test_who_begins_with_nothing_is_told_of_both_or_of_neither_too() -> None:
    """A new observer. Node 2 stands for it: its disk was replaced, and it does not count as one that lost its log."""
    anew = Anew()
    anew.give(*anew.made.batches)
    anew.ground.disks[TWO].wipe()
    anew.give(*anew.made.batches[:2])
    with pytest.raises(Violation, match="is not told of its tombstone at 2"):
        anew.give(anew.compacted(2, 4))


def test_a_newer_value_that_is_committed_ends_the_older_one_too() -> None:
    anew = Anew()
    anew.made.data(("a", "again"))
    anew.ground.fill(ONE)
    assert anew.ground.committed.of(GROUP).extend(anew.ground.log, anew.made.end, 1)
    anew.give(anew.made.batches[0], anew.compacted(1, 4))


def test_a_voter_that_has_all_again_is_one_that_a_pass_waits_for() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", None))
    ground = Ground(made)
    ground.rules.on_log_cut(TWO, GROUP, 1)
    for end in (1, 2):
        ground.rules.on_append(TWO, GROUP, stored(made.batches[end - 1]), 1)
    behind = ground.disks[TWO] = SimulatedDisk(Machine())
    assert behind.open(GROUP).end_offset == 0
    ground.fill(TWO, 1)
    ground.install()
    with pytest.raises(Violation, match="voter 2 has the key at 0"):
        ground.install(dirty_from=Offset(2), now_ms=NOW_MS + RETENTION_MS)


def test_a_horizon_is_set_where_older_values_were_removed_and_then_stays() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", None), ("b", "1"))
    passed = compact(made.batches, Asked(until=made.end)).batches
    with pytest.raises(Violation, match="got a delete horizon"):
        Ground(made).install(lambda batches: [batches[0], passed[1]], dirty_from=Offset(3), ends=False)
    with pytest.raises(Violation, match="is not"):
        Ground(made).install(lambda batches: compact(made.batches, Asked(until=made.end, now_ms=NOW_MS + 1)).batches)
    ground = Ground(made)
    ground.install()
    with pytest.raises(Violation, match="changed"):
        ground.install(lambda batches: [batches[0], made.batches[1]], dirty_from=Offset(3))


def test_a_tombstone_that_was_fetched_with_its_horizon_waits_anew() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", None))
    horizon_ms = NOW_MS - 1 + RETENTION_MS
    of_leader = compact(made.batches, Asked(until=made.end, now_ms=NOW_MS - 1)).batches
    later_ms = NOW_MS + RETENTION_MS

    def fetched() -> Ground:
        made.batches[1] = of_leader[1]
        return Ground(made)

    with pytest.raises(Violation, match="together with the older values"):
        fetched().install(emptied(1), now_ms=later_ms)
    with pytest.raises(Violation, match=f"may go at {horizon_ms}"):
        fetched().install(lambda batches: [batches[0], of_leader[1]], now_ms=later_ms)
    ground = fetched()
    ground.install(now_ms=later_ms)
    with pytest.raises(Violation, match="before its time"):
        ground.install(emptied(1), dirty_from=Offset(2), now_ms=later_ms + RETENTION_MS - 1)
    due = fetched()
    due.install(now_ms=later_ms)
    due.install(dirty_from=Offset(2), now_ms=later_ms + RETENTION_MS)


def test_a_marker_stays_as_long_as_a_batch_of_its_transaction() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    made.marker(5, commit=True)
    made.data(("b", "1"), producer_id=5, producer_epoch=0, base_sequence=1)
    with pytest.raises(Violation, match="had no delete horizon"):
        Ground(made).install(emptied(1))
    ended = compact([empty_batch(0, 1, 1), *made.batches[1:]], Asked(until=made.end, dirty_from=made.end)).batches
    assert parse_header(ended[1]).attributes & 0x40
    ground = Ground(made)
    clean = Offset(made.end)
    ground.install(lambda batches: [batches[0], ended[1], batches[2]], dirty_from=clean, ends=False)
    with pytest.raises(Violation, match="before its batch"):
        ground.install(emptied(1), dirty_from=clean, now_ms=NOW_MS + RETENTION_MS, ends=False)


def test_only_what_is_committed_and_decided_is_compacted() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", "2"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(Violation, match="not decided"):
        Ground(made).install()
    plain = LogInTheMaking()
    plain.data(("a", "1"))
    ground = Ground(plain)
    plain.data(("a", "2"))
    ground.fill(ONE)
    with pytest.raises(Violation, match="1 is committed"):
        ground.install()


def test_an_aborted_record_is_no_reason_to_remove_another_one() -> None:
    made = LogInTheMaking()
    made.data(("a", "1"))
    made.data(("a", "lost"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    made.marker(5, commit=False)
    with pytest.raises(Violation, match="newest of its key"):
        Ground(made).install(aborted=())


def test_what_a_pass_leaves_that_has_to_go_is_told(ground: Ground) -> None:
    with pytest.raises(Violation, match="is left below"):
        ground.install(lambda batches: [batch.data for batch in ground.log.batches])


def test_a_full_map_ends_a_pass_early_but_not_before_its_first_batch(ground: Ground) -> None:
    ground.install(keys_max=1)
    request = ground.request(dirty_from=Offset(4))
    nothing = Compacted(clean_until=Offset(4), bytes_before=0, bytes_after=0, records_removed=0, next_horizon_ms=None)
    with pytest.raises(Violation, match="told to be clean"):
        ground.rules.on_pass_ended(ONE, GROUP, request, nothing)


def test_a_tombstone_whose_time_is_ahead_is_told_of() -> None:
    made = LogInTheMaking()
    made.data(("a", None))
    ground = Ground(made)
    ground.install()
    forgotten = Compacted(clean_until=Offset(1), bytes_before=0, bytes_after=0, records_removed=0, next_horizon_ms=None)
    with pytest.raises(Violation, match="of the horizons"):
        ground.rules.on_pass_ended(ONE, GROUP, ground.request(), forgotten)


def test_what_passed_is_accepted_wherever_it_stands(ground: Ground) -> None:
    ground.install()
    versions = list(ground.log.batches)
    fetched = LogMatching(ground.view, ground.committed)
    for batch in map(stored, ground.made.batches):
        fetched.on_append(ONE, GROUP, batch, -1)
    for batch in versions:
        fetched.on_append(TWO, GROUP, batch, -1)
    assert ground.committed.of(GROUP).first_difference(ground.log, 0, ground.made.end) is None
    assert ground.committed.of(GROUP).first_difference(ground.disks[TWO].open(GROUP), 0, ground.made.end) is None
    CommittedData(ground.view, ground.committed)
    other = replace(versions[2], data=versions[2].data[:HEADER_BYTES] + b"x" + versions[2].data[HEADER_BYTES + 1 :])
    with pytest.raises(Violation):
        fetched.on_append(TWO, GROUP, other, -1)


def test_the_end_of_an_empty_batch_is_accepted_and_a_longer_one_is_not() -> None:
    made = LogInTheMaking()
    for number in range(4):
        made.data(("a", str(number)))
    ground = Ground(made)
    ground.install()
    versions = ground.committed.of(GROUP).versions
    whole = stored(empty_batch(0, 3, 1))
    assert whole in versions and stored(empty_batch(2, 3, 1)) in versions
    for wrong in (empty_batch(0, 4, 1), empty_batch(1, 3, 2), empty_batch(3, 4, 1)):
        assert stored(wrong) not in versions
    first: StoredBatch = ground.committed.of(GROUP).batches[0]
    assert versions.stand_for(whole, first) and not versions.stand_for(stored(empty_batch(2, 3, 1)), first)
