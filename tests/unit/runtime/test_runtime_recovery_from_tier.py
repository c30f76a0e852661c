"""A data directory made from Delta tables: where its logs begin, what its keys say, and what is never touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from raftlake.errors import StorageError, WrongState
from raftlake.kv import snapshot as chunks
from raftlake.kv.commands import put
from raftlake.kv.keys import INCARNATION_KEY, PRODUCERS_NEXT_KEY, tier_key, tier_segment_key, topic_key
from raftlake.kv.keyspace import Entry, unpack
from raftlake.kv.strict_json import Refused
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment
from raftlake.raft.types import EPOCH_MAX, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.snapshot_files import check, choose_at_start, scan
from raftlake.replica.partition.start_points import KnownProducers
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, decode, decode_producers_next, first_free_producer_id
from raftlake.runtime.recovery import from_tier
from raftlake.runtime.recovery.from_tier import (
    METADATA_START,
    STEP,
    RestoredPartition,
    RestoredTopic,
    TierPlan,
    metadata_start,
    restore,
    start_of,
)
from raftlake.runtime.recovery.key_space import key_space
from raftlake.runtime.recovery.lost_majority import latest_voters
from raftlake.runtime.recovery.recover import EPOCHS_AHEAD, PENDING_NAME, Recovery, require_not_pending
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.files import TEMPORARY_SUFFIX
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import require_meta
from raftlake.tier.entries import Tiered
from raftlake.wire import producer_snapshot
from raftlake.wire.batches import decode_records
from raftlake.wire.ids import id_to_text
from recoverkit import command

NODE = NodeId(3)
PLACE = Endpoint("h", 9093)
CLUSTER = "AAECAwQFBgcICQoLDA0ODw"
ORDERS_ID, CLICKS_ID = b"orders-orders-or", b"clicks-clicks-cl"
#: Of the restorations below, by the clock of `seconds`.
NOW_S = 1_900_000_000
START = metadata_start(Epoch(12), NOW_S)


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of a restoration, which the test may change."""
    now = [NOW_S]
    monkeypatch.setattr(from_tier, "time", SimpleNamespace(time=lambda: now[0] + 0.5))
    return now


def segment(base: int, end: int, epochs: tuple[tuple[int, int], ...]) -> RemoteSegment:
    return RemoteSegment(
        segment_id=f"s{base}",
        base_offset=Offset(base),
        end_offset=Offset(end),
        leader_epoch=Epoch(7),
        epochs=tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs),
        timestamp_ms_max=5,
        log_bytes=100,
        size=40,
        crc=3,
        file=f"partition=0/s{base}.parquet",
    )


def partition(
    topic: str, topic_id: bytes, index: int, start: int, end: int, epoch: int, leader_epoch: int
) -> RestoredPartition:
    lineage = Lineage(GroupId(topic, index, topic_id), 2)
    epochs = ((Epoch(epoch), Offset(start)),) if end > start else ()
    newest = (segment(start, end, ((epoch, start),)),) if end > start else ()
    facts = LineageFacts(
        lineage=lineage,
        leader_epoch=Epoch(leader_epoch),
        start_offset=Offset(start),
        end_offset=Offset(end),
        segments=len(newest),
        size=40 * len(newest),
        log_bytes=100 * len(newest),
        epochs=epochs,
        newest=newest,
    )
    return RestoredPartition(facts, auxiliary(end) if end else None)


def auxiliary(end: int) -> bytes:
    """Producer 9 has appended up to `end`."""
    producers = ProducerStates()
    producers.record(9, 1, 4, 2, end - 2, 1)
    known = KnownProducers(producer_snapshot.encode_packed(producers.packed(Offset(end))), has_forgotten=False)
    return Auxiliary(known, None).encode(Offset(end))


@pytest.fixture
def plan() -> TierPlan:
    orders = {
        0: partition("orders", ORDERS_ID, 0, 10, 50, 6, 8),
        1: partition("orders", ORDERS_ID, 1, 0, 0, 0, 0),
        2: partition("orders", ORDERS_ID, 2, 0, 7, 4, 4),
    }
    clicks = {0: partition("clicks", CLICKS_ID, 0, 3, 90, 11, 12)}
    topics = [
        RestoredTopic(name="orders", topic_id=ORDERS_ID, table="t/orders", partitions=orders),
        RestoredTopic(name="clicks", topic_id=CLICKS_ID, table="t/clicks", partitions=clicks),
    ]
    return TierPlan(cluster_id=CLUSTER, tier_uri="s3://history", topics=topics)


class Killed(BaseException):
    pass


def kill(*told: object) -> None:
    raise Killed


def key_space_of(logs: FileLogDirectory) -> dict[str, Entry]:
    """What a node begins with: the newest snapshot, and no command behind it."""
    (snapshot_id,) = logs.snapshots.ids(METADATA_GROUP)
    values = [
        record.value or b""
        for batch in scan(logs.snapshots, METADATA_GROUP, snapshot_id)
        if not batch.header.is_control
        for record in decode_records(batch.data)
    ]
    applied, count = chunks.decode_header(values[0])
    rows = {key: unpack(row) for value in values[1:-1] for key, row in chunks.decode_rows(value)}
    assert values[-1] == chunks.FOOTER and (applied, count) == (snapshot_id.offset, len(rows))
    return rows


def test_each_log_begins_where_its_table_ends(plan: TierPlan, tmp_path: Path) -> None:
    directory_id = restore(plan, tmp_path / "data", NODE, PLACE)
    assert require_meta(tmp_path / "data", node_id=NODE).directory_id == directory_id
    require_not_pending(tmp_path / "data")
    logs = FileLogDirectory(tmp_path / "data", post=None)
    begun = {}
    for group in logs.groups():
        log = logs.open(group)
        choose_at_start(logs.snapshots, group, log)
        voters = latest_voters(logs, group)
        assert voters is not None and voters.ids == (NODE,)
        begun[(group.topic, group.partition)] = (log.start_offset, log.epochs[-1])
    ahead = EPOCHS_AHEAD
    assert begun == {
        ("orders", 0): (50, (8 + ahead, 50)),
        ("orders", 1): (0, (ahead, 0)),
        ("orders", 2): (7, (4 + ahead, 7)),
        ("clicks", 0): (90, (12 + ahead, 90)),
        (METADATA_GROUP.topic, 0): (START, (12 + ahead, START)),
    }
    elections = FileElectionStore(tmp_path / "data", voters=(NODE,), filed=METADATA_GROUP.topic)
    election = elections.load(GroupId("clicks", 0, CLICKS_ID))
    assert election is not None and election.epoch == 12 + ahead, "behind every epoch that wrote to the table"
    elections.close()
    logs.close()


def test_the_keys_tell_of_topics_copies_and_producer_ids_that_were_never_given_out(plan: TierPlan, tmp_path: Path) -> None:
    restore(plan, tmp_path / "data", NODE, PLACE)
    logs = FileLogDirectory(tmp_path / "data", post=None)
    rows = key_space_of(logs)
    logs.close()
    told = {key: decode(key, entry.value, entry.version, 1000) for key, entry in rows.items()}
    assert not [key for key, found in told.items() if isinstance(found, Refused)], told
    assert {entry.version for entry in rows.values()} == {START}, "no version of before comes again"
    topic = told[topic_key("orders")]
    assert (topic.topic_id, topic.partitions) == (ORDERS_ID, 3)  # type: ignore[union-attr]
    facts = plan.topics[0].partitions[0].facts
    tiered = told[tier_key(id_to_text(ORDERS_ID), 0)]
    assert tiered == Tiered(
        incarnation=2,
        topic="orders",
        start_offset=Offset(10),
        end_offset=Offset(50),
        segments=1,
        size=40,
        log_bytes=100,
        epochs=facts.epochs,
    )
    assert told[tier_segment_key(id_to_text(ORDERS_ID), 0, 10)] == facts.newest[0]
    assert tier_key(id_to_text(CLICKS_ID), 0) in told and INCARNATION_KEY not in told
    next_id = told[PRODUCERS_NEXT_KEY]
    assert next_id == PRODUCER_IDS_BLOCK * (START - STEP // 2), "as many are left for recoveries of a survivor"


def test_producers_are_known_where_their_state_is(plan: TierPlan, tmp_path: Path) -> None:
    damaged = replace(plan.topics[0].partitions[2], auxiliary=b"damaged")
    topic = replace(plan.topics[0], partitions={**plan.topics[0].partitions, 2: damaged})
    restore(replace(plan, topics=[topic, plan.topics[1]]), tmp_path / "data", NODE, PLACE)
    logs = FileLogDirectory(tmp_path / "data", post=None)
    kept = check(logs.snapshots, GroupId("orders", 0, ORDERS_ID), OffsetAndEpoch(Offset(50), Epoch(6)))
    assert kept.producers is not None
    producers = ProducerStates()
    producers.restore(kept.producers.packed)
    assert producers.find(9, 1, 4, 2) is not None, "a retry from before is a duplicate"
    lost = check(logs.snapshots, GroupId("orders", 2, ORDERS_ID), OffsetAndEpoch(Offset(7), Epoch(4)))
    assert lost.producers is None
    logs.close()


@pytest.mark.parametrize("name", ["meta.properties", "orders-0", "x"])
def test_a_directory_that_holds_something_is_never_touched(plan: TierPlan, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(WrongState, match=f"is not empty \\({name}\\): --from-tier is for the loss of all disks"):
        restore(plan, tmp_path, NODE, PLACE)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_restored_directory_is_not_restored_again(plan: TierPlan, tmp_path: Path) -> None:
    restore(plan, tmp_path, NODE, PLACE)
    with pytest.raises(WrongState, match="is not empty"):
        restore(plan, tmp_path, NODE, PLACE)


@pytest.mark.parametrize("at", ["_make_survivor", "Recovery.examine", "Recovery.perform"])
def test_an_interrupted_run_is_refused_by_serve_and_begun_anew(
    plan: TierPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"raftlake.runtime.recovery.from_tier.{at}", kill)
        with pytest.raises(Killed):
            restore(plan, tmp_path, NODE, PLACE)
    with pytest.raises(StorageError, match="interrupted"):
        require_not_pending(tmp_path)
    with pytest.raises(WrongState, match=r"--from-tier.* was interrupted. Run it again"):
        Recovery(tmp_path, NODE, PLACE, METADATA_GROUP)
    (tmp_path / "left-over").mkdir()
    restore(plan, tmp_path, NODE, PLACE)
    assert not (tmp_path / "left-over").exists() and not (tmp_path / PENDING_NAME).exists()


@pytest.mark.parametrize("done", [0, 1, 4])
def test_a_run_that_was_interrupted_behind_its_plan_is_begun_anew(
    plan: TierPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """The plan takes the place of the marker in one step, and says the same. `done` logs have their new epoch."""
    real, begun = Recovery._begin_epoch, []

    def stop(self: Recovery, *told: object) -> None:
        begun.append(told)
        if len(begun) > done:
            raise Killed
        real(self, *told)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_begin_epoch", stop)
        with pytest.raises(Killed):
            restore(plan, tmp_path, NODE, PLACE)
    assert "groups" in json.loads((tmp_path / PENDING_NAME).read_bytes())
    with pytest.raises(StorageError, match="interrupted"):
        require_not_pending(tmp_path)
    with pytest.raises(WrongState, match=r"--from-tier.* was interrupted. Run it again"):
        Recovery(tmp_path, NODE, PLACE, METADATA_GROUP)
    restore(plan, tmp_path, NODE, PLACE)
    require_not_pending(tmp_path)


def test_a_partition_of_which_retention_removed_all_goes_on_at_its_end(tmp_path: Path) -> None:
    """The epoch of the last record is not known; that of the last leader is."""
    group = GroupId("orders", 0, ORDERS_ID)
    ended = replace(partition("orders", ORDERS_ID, 0, 12, 12, 0, 8), lacking="no record")
    topic = RestoredTopic(name="orders", topic_id=ORDERS_ID, table="t/orders", partitions={0: ended})
    restore(TierPlan(cluster_id=CLUSTER, tier_uri="s3://history", topics=[topic]), tmp_path, NODE, PLACE)
    logs = FileLogDirectory(tmp_path, post=None)
    log = logs.open(group)
    choose_at_start(logs.snapshots, group, log)
    assert (log.start_offset, log.epochs[-1]) == (12, (8 + EPOCHS_AHEAD, 12))
    told = {key: decode(key, entry.value, entry.version, 1000) for key, entry in key_space_of(logs).items()}
    tiered = told[tier_key(id_to_text(ORDERS_ID), 0)]
    assert isinstance(tiered, Tiered) and (tiered.start_offset, tiered.end_offset) == (12, 12)
    logs.close()


# --- what is never given out again


@pytest.mark.parametrize("year", [1970, 2000, 2030, 2040, 2200])
@pytest.mark.parametrize("newest", [0, 1, 999, EPOCH_MAX - 1_000, EPOCH_MAX])
def test_each_restoration_begins_behind_all_that_the_one_before_can_have_given_out(newest: int, year: int) -> None:
    now_s = int((year - 1970) * 365.25 * 86_400)
    start = metadata_start(Epoch(newest), now_s)
    assert start >= METADATA_START
    # A day later; or at once, where a table was taken over and tells the new epochs, and the clock was put back.
    laters = [metadata_start(Epoch(newest), now_s + 86_400)] if newest < now_s else []
    laters += [metadata_start(Epoch(newest + EPOCHS_AHEAD), 0)] if newest >= now_s else []
    for later in laters:
        assert later - start > 10**9, "so many commands fit in between"
        assert PRODUCER_IDS_BLOCK * later < 1 << 63 and later < 1 << 53
    assert decode_producers_next(b"%d" % (PRODUCER_IDS_BLOCK * start), start) == PRODUCER_IDS_BLOCK * start


def next_id(place: Path) -> int:
    logs = FileLogDirectory(place, post=None)
    found = first_free_producer_id(key_space(logs).get(PRODUCERS_NEXT_KEY))
    logs.close()
    return found


def test_a_producer_id_is_not_given_out_again_by_the_second_restoration(tmp_path: Path, seconds: list[int]) -> None:
    first = TierPlan(cluster_id=CLUSTER, tier_uri="s3://history", topics=[orders_by(9, 8)])
    restore(first, tmp_path / "first", NODE, PLACE)
    given = next_id(tmp_path / "first")
    # Its first record is copied by the new leader, and then all disks are lost once more.
    seconds[0] += 3_600
    topic = orders_by(given, 8 + EPOCHS_AHEAD)
    restore(replace(first, topics=[topic]), tmp_path / "second", NODE, PLACE)
    kept = start_of(topic.partitions[0])[1]
    assert kept is not None
    states = ProducerStates()
    states.restore(kept.packed)
    assert next_id(tmp_path / "second") >= given + 3_600 * 10**6 * PRODUCER_IDS_BLOCK
    assert states.check(next_id(tmp_path / "second"), 0, 0, 1, history_trimmed=True) is None


def test_nor_where_the_newest_table_was_not_taken_over_in_between(tmp_path: Path, seconds: list[int]) -> None:
    """The store refused it: another program had changed it. So the newest epoch was that of the first restoration."""
    clicks = RestoredTopic(
        name="clicks",
        topic_id=CLICKS_ID,
        table="t/clicks",
        partitions={0: partition("clicks", CLICKS_ID, 0, 10, 90, 12, 5_000)},
    )
    first = TierPlan(cluster_id=CLUSTER, tier_uri="s3://history", topics=[orders_by(9, 8), clicks])
    restore(first, tmp_path / "first", NODE, PLACE)
    given = next_id(tmp_path / "first")
    seconds[0] += 60
    orders = orders_by(given, 8 + EPOCHS_AHEAD)
    restore(replace(first, topics=[orders, clicks]), tmp_path / "second", NODE, PLACE)
    assert next_id(tmp_path / "second") >= given + 60 * 10**6 * PRODUCER_IDS_BLOCK


def test_a_survivor_of_the_restored_quorum_leaves_out_what_the_others_gave_out(tmp_path: Path) -> None:
    place = tmp_path / "data"
    restore(TierPlan(cluster_id=CLUSTER, tier_uri="s3://history", topics=()), place, NODE, PLACE)
    command(place, *[put(f"/raftlake/nodes/{number}", b"{}") for number in range(12)])
    given = next_id(place) + 100_000 * PRODUCER_IDS_BLOCK
    recovery = Recovery(place, NODE, PLACE, METADATA_GROUP)
    recovery.perform(recovery.examine(), CLUSTER)
    recovery.close()
    assert next_id(place) >= given


def orders_by(producer: int, leader_epoch: int) -> RestoredTopic:
    """One partition, whose last record is the first one of a producer."""
    states = ProducerStates()
    states.record(producer, 0, 0, 1, 49, 1)
    known = KnownProducers(producer_snapshot.encode_packed(states.packed(Offset(50))), has_forgotten=False)
    found = partition("orders", ORDERS_ID, 0, 10, 50, 6, leader_epoch)
    found = replace(found, auxiliary=Auxiliary(known, None).encode(Offset(50)))
    return RestoredTopic(name="orders", topic_id=ORDERS_ID, table="t/orders", partitions={0: found})


# --- the directory


def test_the_marker_may_be_half_written(plan: TierPlan, tmp_path: Path) -> None:
    (tmp_path / f"{PENDING_NAME}{TEMPORARY_SUFFIX}").write_bytes(b"")
    restore(plan, tmp_path, NODE, PLACE)
    assert not (tmp_path / f"{PENDING_NAME}{TEMPORARY_SUFFIX}").exists()


def test_what_is_not_of_a_node_stays_in_the_directory(plan: TierPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "node.properties").write_text("node.id=3")
    with monkeypatch.context() as patch:
        patch.setattr("raftlake.runtime.recovery.from_tier.Recovery.perform", kill)
        with pytest.raises(Killed):
            restore(plan, tmp_path, NODE, PLACE)
    restore(plan, tmp_path, NODE, PLACE)
    assert (tmp_path / "lost+found").is_dir()
    assert (tmp_path / "node.properties").read_text() == "node.id=3"


def test_the_directory_of_a_run_that_goes_on_is_not_emptied(plan: TierPlan, tmp_path: Path) -> None:
    (tmp_path / PENDING_NAME).write_bytes(json.dumps({"fromTier": "s3://history"}).encode())
    (tmp_path / "orders-0").mkdir()
    running = DirectoryLock(tmp_path)
    with pytest.raises(StorageError, match=f"in use by process {os.getpid()}"):
        restore(plan, tmp_path, NODE, PLACE)
    assert (tmp_path / "orders-0").exists()
    running.release()
    restore(plan, tmp_path, NODE, PLACE)


@pytest.mark.parametrize("at", ["write_meta", "_make_survivor", "Recovery", "Recovery.perform"])
def test_two_runs_at_once_are_refused_between_any_two_steps(
    plan: TierPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The logs are closed and opened again on the way, and nobody holds their lock then."""
    name = f"raftlake.runtime.recovery.from_tier.{at}"
    owner = from_tier.Recovery if at.startswith("Recovery.") else from_tier
    real: Callable[..., object] = getattr(owner, at.rpartition(".")[2])
    refused = []

    def meanwhile(*told: object, **more: object) -> object:
        monkeypatch.setattr(name, real)
        with pytest.raises(StorageError, match="is in use"):
            restore(plan, tmp_path, NODE, PLACE)
        refused.append(at)
        return real(*told, **more)

    monkeypatch.setattr(name, meanwhile)
    restore(plan, tmp_path, NODE, PLACE)
    assert refused == [at]
    require_not_pending(tmp_path)


def test_a_run_that_comes_when_another_has_ended_touches_nothing(
    plan: TierPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = from_tier.DirectoryLock

    def late(path: Path) -> DirectoryLock:
        monkeypatch.setattr(from_tier, "DirectoryLock", real)
        (tmp_path / "orders-0").mkdir()
        return real(path)

    monkeypatch.setattr(from_tier, "DirectoryLock", late)
    with pytest.raises(WrongState, match="is not empty"):
        restore(plan, tmp_path, NODE, PLACE)
    assert (tmp_path / "orders-0").exists() and not (tmp_path / PENDING_NAME).exists()
