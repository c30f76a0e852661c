"""What a start knows of producers and voters without reading the whole log: points, damaged ones, what nodes do with them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from contract.file_faults import without_sync
from factkit import HeadersRead
from raftlake.errors import CorruptBatch, ErrorCode
from raftlake.ports.driver import BatchSpan, LogStore
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.replica.partition.producer_state import BATCHES_KEPT, SEQUENCE_MODULUS, ProducerStates
from raftlake.replica.partition.start_points import KnownProducers, LogFacts, Notes
from raftlake.replica.partition.voter_log import entries_of
from raftlake.replica.turn.housekeeping import EXPIRATION_INTERVAL_MS
from raftlake.storage.directory import FileLogDirectory
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import (
    BatchHeader,
    Record,
    assemble_batch,
    build_batch,
    iterate_headers,
    parse_header,
    stamp,
    voters_batch,
)
from raftlake.wire.producer_snapshot import ProducerRow
from replica_cluster import Cluster, batch

GROUP = GroupId("orders", 0, bytes(range(16)))
INITIAL = VoterSet({NodeId(9): ReplicaKey(NodeId(9))})
SEGMENT_BYTES = 2_000
START = Offset(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power."""
    without_sync(monkeypatch)


def voter_set(number: int) -> VoterSet:
    me = NodeId(number)
    return VoterSet({me: ReplicaKey(me, DirectoryId(bytes([number] * 16)))}, {me: ()})


class World:
    """One log on files with its facts; `open` is a start that reads what it has to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.sequence = 0
        self.open()

    def open(self) -> None:
        self.directory = FileLogDirectory(self.place, segment_bytes=SEGMENT_BYTES, post=None)
        self.log: LogStore = self.directory.open(GROUP)
        self.history = VoterHistory(INITIAL)
        self.facts = LogFacts(GROUP, self.log, self.history, self.log.start_offset)
        self.headers_read = HeadersRead(self.facts)
        self.facts.restore(5_000, with_voters=True)

    def kill(self) -> None:
        self.directory.close()
        self.open()

    def append(self, data: bytes, *, now_ms: int = 1_000) -> None:
        (header,) = iterate_headers(data)
        if header.is_control:
            self.history.record(Offset(header.base_offset), voter_set(header.base_offset % 250 + 1))
        span = BatchSpan(header.base_offset, header.end_offset, header.leader_epoch, header.timestamp_ms_max, header.size)
        begun = self.log.append([data], [span])
        self.facts.remember(header, now_ms)
        self.facts.appended(begun)

    def write(self, producer_id: int, sequence: int, *, epoch: int = 0) -> None:
        records = [Record(value=bytes(150))] * 2
        data = build_batch(
            records,
            base_offset=self.log.end_offset,
            leader_epoch=1,
            timestamp_ms=7,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        self.append(bytes(data))

    def vote(self) -> None:
        end = self.log.end_offset
        self.append(bytes(voters_batch(end, 1, -1, entries_of(voter_set(end % 250 + 1)), kraft_version=1)))

    def fill(self, batches: int, producer_id: int = 7) -> None:
        for _ in range(batches):
            self.write(producer_id, self.sequence)
            self.sequence += 2

    def read_whole(self) -> tuple[set[tuple[int, ...]], list[tuple[Offset, VoterSet]]]:
        """What reading the whole log says: the truth that points only shorten the way to."""
        states, sets = ProducerStates(), VoterHistory(INITIAL)
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            for header in iterate_headers(self.log.read(offset, self.log.end_offset, 1 << 20)):
                offset = Offset(header.end_offset)
                if header.is_control:
                    sets.record(Offset(header.base_offset), voter_set(header.base_offset % 250 + 1))
                else:
                    states.record(header.producer_id, header.producer_epoch, header.base_sequence, 2, header.base_offset, 0)
        return _facts(states, offset), sets.entries

    def agrees(self) -> bool:
        producers, voters = self.read_whole()
        return (_facts(self.facts.producers, self.log.end_offset), self.history.entries) == (producers, voters)

    @property
    def points(self) -> list[int]:
        return list(self.log.start_points.offsets)


def _facts(states: ProducerStates, end: int) -> set[tuple[int, ...]]:
    return {row[:5] for row in states.at(end)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for producer in (7, 8, 9):
        world.sequence = 0
        world.fill(9, producer)
        world.vote()
    return world


def test_a_point_is_saved_where_each_segment_begins_and_a_start_reads_only_what_follows(world: World) -> None:
    bases = list(world.log.segment_bases)
    assert len(bases) > 4 and world.points == bases[1:]
    world.kill()
    assert world.agrees() and world.points == bases[1:]
    assert 0 < world.headers_read.count < 6


def test_after_a_clean_stop_a_start_reads_nothing_and_old_ends_are_dropped(world: World) -> None:
    for _ in range(4):
        world.facts.save_at_stop()
        world.facts.save_at_stop()
        assert world.points == [*list(world.log.segment_bases)[1:], world.log.end_offset]
        world.kill()
        assert world.headers_read.count == 0 and world.agrees()
        world.write(9, world.sequence)
        world.sequence += 2
    bases = list(world.log.segment_bases)
    while len(world.log.segment_bases) == len(bases):
        world.fill(1, 9)
    assert world.points == list(world.log.segment_bases)[1:]
    assert world.agrees()


def test_a_point_tells_what_was_below_it_and_not_what_the_turn_has_noted_already(world: World) -> None:
    """The leader notes sequences before it writes, so the state is ahead of the log when a segment begins."""
    end = world.log.end_offset
    before = _facts(world.facts.producers, end)
    for number in range(BATCHES_KEPT + 1):
        world.facts.producers.record(9, 1, 2 * number, 2, end + 2 * number, 0)
    world.facts.producers.record(77, 0, 0, 2, end + 20, 0)
    assert _facts(world.facts.producers, end) == before
    assert {row.producer_id for row in world.facts.producers.at(end + 22)} == {7, 8, 9, 77}


@pytest.mark.parametrize("suffix", [".snapshot", ".voters"])
@pytest.mark.parametrize("how", ["flip", "empty", "gone", "longer", "version"])
def test_a_damaged_point_is_deleted_and_the_one_before_it_takes_over(
    world: World, suffix: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = world.points[-1]
    file = world.place / str(GROUP) / f"{newest:020d}{suffix}"
    data = bytearray(file.read_bytes())
    match how:
        case "flip":
            data[-1] ^= 1
        case "empty":
            data.clear()
        case "longer":
            data += bytes(8)
        case "version":
            data[1] ^= 2
    file.write_bytes(data)
    if how == "gone":
        file.unlink()
    with caplog.at_level(logging.WARNING):
        world.kill()
    assert world.agrees()
    assert 5 < world.headers_read.count < 20
    assert how == "gone" or str(newest) in caplog.text
    # The reading has passed the place again.
    world.kill()
    assert world.points[-1] == newest and world.headers_read.count < 6


def test_without_any_point_the_whole_log_is_read_once(world: World) -> None:
    """A log that an older version wrote."""
    points = world.points
    world.log.start_points.delete(points)
    world.kill()
    assert world.agrees() and world.headers_read.count == 30 and world.points == points


def test_a_cut_takes_the_points_above_it_and_what_they_said(world: World) -> None:
    world.facts.save_at_stop()
    cut = next(header.base_offset for header in iterate_headers(world.log.read(Offset(20), Offset(60), 1)))
    world.log.truncate_to(Offset(cut))
    world.history.truncate_to(Offset(cut))
    world.facts.restore(5_000, with_voters=False)
    assert world.agrees() and all(point <= cut for point in world.points)
    world.sequence = 100
    world.fill(12, 11)
    assert world.agrees()
    world.kill()
    assert world.agrees()


def test_a_point_above_the_end_of_the_log_is_of_records_that_a_crash_took(world: World) -> None:
    producers, notes = world.log.start_points.load(Offset(world.points[-1]))
    above = Offset(world.log.end_offset + 2)
    world.log.start_points.save(above, producers, notes)
    world.kill()
    assert above not in world.points and world.agrees()


def test_a_reset_forgets_everything(world: World) -> None:
    world.log.reset(OffsetAndEpoch(Offset(500), Epoch(3)))
    world.history.reset(Offset(500), voter_set(4))
    world.facts.reset(None)
    assert world.points == [] and len(world.facts.producers) == 0
    world.kill()
    assert world.points == [] and len(world.facts.producers) == 0


@pytest.mark.parametrize("how", ["reset", "start", "cut"])
def test_a_log_whose_beginning_nobody_tells_of_has_forgotten_producers(world: World, how: str) -> None:
    """Simulator seed 812000852: there was no room for the point where retention made the log begin. After a start, the next
    snapshot told what the rest of the log says as if it were all."""
    assert world.facts.producers.has_forgotten is False, "of a whole log all is known"
    world.log.reset(OffsetAndEpoch(Offset(500), Epoch(1)))
    world.history.reset(Offset(500), voter_set(4))
    world.facts.reset(None)
    world.write(9, 0)
    if how == "start":
        world.kill()
    elif how == "cut":
        world.facts.restore(0, with_voters=False)
    assert world.facts.producers.has_forgotten
    world.facts.save(world.log.end_offset)
    saved = world.facts.producers_at(world.log.end_offset)
    assert saved is not None and saved.has_forgotten
    world.kill()
    assert world.facts.producers.has_forgotten, "the point says so"


def test_a_reset_behind_a_snapshot_that_tells_the_producers_forgets_none(world: World) -> None:
    known = world.facts.producers_at(Offset(world.points[-1]))
    assert known is not None and [known] == [KnownProducers.decode(record) for record in known.records()]
    world.log.reset(OffsetAndEpoch(Offset(500), Epoch(1)))
    world.history.reset(Offset(500), voter_set(4))
    world.facts.reset(known)
    assert not world.facts.producers.has_forgotten
    expected = world.facts.producers.at(Offset(500))
    assert expected == producer_snapshot.decode(known.encoded) != []
    # A cut reads the log anew, and so does a start.
    world.write(9, 0)
    world.log.truncate_to(Offset(500))
    world.facts.restore(0, with_voters=False)
    assert world.facts.producers.at(Offset(500)) == expected
    again = LogFacts(GROUP, world.log, VoterHistory(INITIAL), Offset(500), known)
    again.restore(0, with_voters=True)
    assert again.producers.at(Offset(500)) == expected
    # Once the log begins elsewhere, the snapshot at its old start tells nothing of it.
    world.log.reset(OffsetAndEpoch(Offset(900), Epoch(1)))
    again.restore(0, with_voters=False)
    assert again.producers.at(Offset(900)) == [] and again.producers.has_forgotten


def test_what_a_point_cannot_tell_is_not_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.facts.producers_at(Offset(world.points[-1] + 1)) is None
    offset = Offset(world.points[-1])
    world.log.start_points.save(offset, b"nonsense", b"")
    assert world.facts.producers_at(offset) is None and "is of no use" in caplog.text


def test_what_is_noted_behind_a_record_that_is_written_now_stays_above_the_end(world: World) -> None:
    """A new leader has taken a batch before its own first record is written."""
    end = world.log.end_offset
    before = _facts(world.facts.producers, end)
    world.facts.producers.record(77, 0, 0, 2, end + 2, 0)
    world.vote()
    assert world.log.end_offset == end + 2
    assert _facts(world.facts.producers, end + 2) == before
    world.facts.save_at_stop()
    world.kill()
    assert _facts(world.facts.producers, end + 2) == before


def test_sequence_numbers_of_removed_records_count(world: World) -> None:
    """A batch that compaction has left with fewer records, or none, is as long as its producer made it."""
    data = build_batch([Record(key=b"k", value=b"v")] * 4, timestamp_ms=7, producer_id=5, producer_epoch=0, base_sequence=10)
    batch = bytearray(data)
    stamp(batch, 0, world.log.end_offset, 1)
    emptied = bytes(emptied_batch(parse_header(batch)))
    world.append(emptied)
    found = world.facts.producers.find(5, 0, 10, 4)
    assert found is not None and found.end_offset == world.log.end_offset
    world.kill()
    assert world.facts.producers.find(5, 0, 10, 4) is not None


def emptied_batch(header: BatchHeader) -> bytearray:
    """What compaction leaves of a producer's newest batch."""
    return assemble_batch(
        b"",
        attributes=0,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        base_timestamp_ms=-1,
        timestamp_ms_max=-1,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
        last_offset_delta=header.last_offset_delta,
    )


def test_producers_in_a_snapshot_are_known_by_their_mark_and_their_crc() -> None:
    row = ProducerRow(4000, 2, 19, 119, 9, 5)
    (value,) = KnownProducers(producer_snapshot.encode([row]), has_forgotten=True).records()
    decoded = KnownProducers.decode(value)
    assert decoded is not None and decoded.has_forgotten and producer_snapshot.decode(decoded.encoded) == [row]
    assert KnownProducers.decode(b"") is None and KnownProducers.decode(b"producers-1:") is None
    assert KnownProducers.decode(b"another record") is None
    with pytest.raises(CorruptBatch):
        KnownProducers.decode(value[:-1])


def test_voters_are_read_from_the_snapshot_on_where_the_point_says_less(world: World) -> None:
    """A point that was saved when a later snapshot stood for the beginning: should that be damaged, an older one is used."""
    all_voters = world.history.entries
    middle = Offset(all_voters[1][0])
    late = LogFacts(GROUP, world.log, world.history, middle)
    late.restore(0, with_voters=False)
    late.save_at_stop()
    assert [offset for offset, _ in Notes.decode(world.log.start_points.load(world.log.end_offset)[1]).voters] == [
        offset for offset, _ in all_voters[1:]
    ]
    world.kill()
    assert world.history.entries == all_voters
    history = VoterHistory(INITIAL)
    LogFacts(GROUP, world.log, history, middle).restore(0, with_voters=True)
    assert history.entries == all_voters[1:]


def test_kafkas_layout() -> None:
    row = ProducerRow(4000, 2, 19, 119, 9, 1_700_000_000_000)
    data = producer_snapshot.encode([row])
    assert data.hex() == (
        "0001" + data[2:6].hex() + "00000001" + "0000000000000fa0" + "0002" + "00000013" + "0000000000000077"
        "00000009" + "0000018bcfe56800" + "ffffffff" + "ffffffffffffffff"
    )
    assert producer_snapshot.decode(data) == [row]
    assert producer_snapshot.decode(producer_snapshot.encode([])) == []


def test_sequences_that_wrapped_come_back() -> None:
    states = ProducerStates()
    states.record(7, 3, SEQUENCE_MODULUS - 2, 4, 50, 9)
    again = ProducerStates()
    again.restore(producer_snapshot.packed_rows(producer_snapshot.encode(states.at(54))))
    assert again.at(54) == states.at(54)
    duplicate = again.check(7, 3, SEQUENCE_MODULUS - 2, 4, history_trimmed=False)
    assert duplicate is not None and (duplicate.base_offset, duplicate.end_offset) == (50, 54)


@pytest.mark.parametrize("length", [0, 9, 10, 40])
def test_half_a_file_is_refused(length: int) -> None:
    data = producer_snapshot.encode([ProducerRow(4000, 2, 19, 119, 9, 1)])
    with pytest.raises(CorruptBatch):
        producer_snapshot.decode(data[:length])


# --- nodes ---


def _restart_all(cluster: Cluster) -> None:
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in cluster.voters:
        cluster.start(node_id)
    cluster.await_topics()


def test_retention_does_not_forget_a_producer_whose_last_batch_was_trimmed() -> None:
    """A retry after that and a restart of all nodes would be appended a second time."""
    cluster = Cluster(retention_bytes=3000, retention_check_interval_ms=1000, segment_bytes=2000)
    (group,) = cluster.create_topic("events")
    once = batch(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
    first = cluster.produce(group, bytearray(once))
    for _ in range(40):
        cluster.produce(group, batch(bytes(400)))
    cluster.run(10_000, until=lambda: all(node.partitions[group].log.start_offset > 10 for node in cluster.nodes.values()))
    _restart_all(cluster)
    end = cluster.leader(group).partitions[group].log.end_offset
    again = cluster.produce(group, bytearray(once))
    assert (again.error, again.base_offset) == (ErrorCode.NONE, first.base_offset)
    assert cluster.leader(group).partitions[group].log.end_offset == end


def test_producers_that_are_idle_for_long_are_forgotten_and_may_go_on() -> None:
    cluster = Cluster(1, producer_id_expiration_ms=3_600_000)
    (group,) = cluster.create_topic("events")

    def write(producer_id: int, sequence: int) -> ErrorCode:
        made = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        return cluster.produce(group, made).error

    assert write(7, 0) is ErrorCode.NONE
    cluster.run(3_000_000)
    assert write(8, 0) is ErrorCode.NONE and len(cluster.leader().partitions[group].producers) == 2
    assert write(9, 5) is ErrorCode.LEADER_NOT_AVAILABLE
    cluster.run(600_000 + EXPIRATION_INTERVAL_MS)
    assert len(cluster.leader().partitions[group].producers) == 1
    assert write(7, 1) is ErrorCode.NONE
    cluster.nodes[NodeId(1)].hosting.save_start_points()
    _restart_all(cluster)
    cluster.leader(group)
    assert write(9, 5) is ErrorCode.NONE, "it may be one that was forgotten, before the restart as after it"


def test_a_clean_stop_leaves_a_point_for_every_log() -> None:
    cluster = Cluster()
    (group,) = cluster.create_topic("events")
    cluster.produce(group, batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0))
    node = cluster.leader(group)
    node.hosting.save_start_points()
    for partition in node.partitions.values():
        assert list(partition.log.start_points.offsets) == [partition.log.end_offset]
