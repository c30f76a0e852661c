"""The services that open and close groups, each alone on an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, ORDERS, Ground, Noted
from raftlake.errors import ErrorCode, StorageError
from raftlake.kv.commands import Delete, Txn, encode, put
from raftlake.kv.keys import topic_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.queue import DELETED_AT_ONCE, LATE_MS_MAX, OPENED_AT_ONCE, PAUSE_MS, PAUSE_MS_MAX, HostingQueue
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.reserved import Topic


class Hosted:
    """`Hosting` on an engine. The key space is that of the test."""

    def __init__(self, **settings: Any) -> None:
        self.ground = Ground(**settings)
        engine = self.ground.engine
        self.names, self.quorum = Names(engine.config), Quorum(engine)
        self.reports, self.snapshots = Noted(), Noted()
        self.state = KvState()
        self.kv: Any = SimpleNamespace(
            machine=self.state.machine, state=self.state, listeners=[], restore=lambda snapshot_id: None
        )
        self.hosting = Hosting(
            engine,
            names=self.names,
            quorum=self.quorum,
            reports=self.reports,  # type: ignore[arg-type]
            producers=ProducerCare(engine),
            disk=Noted(),  # type: ignore[arg-type]
            damage=DamageControl(engine, self.names, self.quorum),
            kv=self.kv,
            snapshots=self.snapshots,  # type: ignore[arg-type]
        )

    def commit(self, txn: Txn) -> None:
        """The command is applied, as far as the core of the metadata group knows."""
        machine, partition = self.state.machine, self.ground.engine.partitions[METADATA_GROUP]
        offset = partition.log.end_offset
        self.ground.append(partition, encode(txn))
        machine.apply(offset, encode(txn))
        machine.advance_to(partition.core.log_end)
        for listener in self.kv.listeners:
            listener(machine.applied_offset)


def test_what_lies_on_the_disk_is_opened_at_start_and_a_closed_group_leaves_its_directory() -> None:
    hosted = Hosted()
    ground, engine = hosted.ground, hosted.ground.engine
    ground.append(ground.lead(ORDERS), b"record")
    del engine.partitions[ORDERS]
    hosted.hosting.open_all()
    assert list(engine.partitions) == [METADATA_GROUP, ORDERS]
    assert hosted.names.resolve_group("orders", 0) == ORDERS
    closed: list[Any] = []
    engine.closed.append(closed.append)
    partition = engine.partitions[ORDERS]
    assert hosted.hosting.close([ORDERS, GroupId("none", 0, b"n" * 16)]) == [ORDERS]
    assert closed == [partition] and partition.deleted and list(engine.partitions) == [METADATA_GROUP]
    for _ in range(2):
        # A topic that was created and deleted again before its group was gone names it twice.
        hosted.hosting.delete([ORDERS, ORDERS])
    assert ORDERS not in ground.disk.logs and not hosted.names.has_directory(ORDERS)


def test_one_directory_holds_one_incarnation() -> None:
    hosted, again = Hosted(), GroupId("orders", 0, b"x" * 16)
    assert hosted.hosting.open(ORDERS)
    assert not hosted.hosting.open(again)
    hosted.hosting.delete(hosted.hosting.close([ORDERS]))
    assert hosted.hosting.open(again)
    assert list(hosted.ground.engine.partitions) == [again]


def test_a_quorum_of_another_programs_log_has_no_other_groups() -> None:
    hosted = Hosted(quorum_group=GroupId("theirs", 0, b"t" * 16))
    hosted.ground.lead(ORDERS)
    with pytest.raises(StorageError, match="directory of its own"):
        hosted.hosting.open_all()


# --- some at a time ---


def names_of(ground: Ground) -> Names:
    return Names(ground.engine.config)


def queue_of(ground: Ground, open_group: Callable[[GroupId], None]) -> HostingQueue:
    hosting: Any = SimpleNamespace(delete=lambda groups: None, has=lambda group: False)
    disk: Any = Noted()
    names = names_of(ground)
    return HostingQueue(ground.engine, disk, hosting, names=names, is_wanted=lambda group: True, open_group=open_group)


def test_groups_are_opened_and_deleted_some_at_a_time() -> None:
    ground = Ground()
    opened: list[GroupId] = []
    deleted: list[list[GroupId]] = []
    hosting: Any = SimpleNamespace(delete=lambda groups: deleted.append(list(groups)), has=lambda group: False)
    queue = HostingQueue(
        ground.engine,
        Noted(),  # type: ignore[arg-type]
        hosting,
        names=names_of(ground),
        is_wanted=lambda group: group.partition != 3,
        open_group=opened.append,
    )
    groups = [GroupId("wide", index, b"w" * 16) for index in range(2 * OPENED_AT_ONCE + 1)]
    queue.open(groups)
    assert len(opened) == OPENED_AT_ONCE
    queue.delete(groups[: DELETED_AT_ONCE + 1])
    assert deleted == [], "its turn comes"
    ground.run(PAUSE_MS)
    assert deleted == [groups[:DELETED_AT_ONCE]] and len(opened) == OPENED_AT_ONCE, "deletions go first"
    ground.run(PAUSE_MS)
    ground.run(2 * PAUSE_MS)
    assert [len(part) for part in deleted] == [DELETED_AT_ONCE, 1]
    assert opened == [group for group in groups if group.partition != 3]


@pytest.mark.parametrize(("took_ms", "pause_ms"), [(0, PAUSE_MS), (PAUSE_MS, PAUSE_MS), (40, 40), (9_000, PAUSE_MS_MAX)])
def test_a_pause_is_as_long_as_the_slice_before_it(took_ms: int, pause_ms: int) -> None:
    ground = Ground()
    opened_at: list[int] = []

    def prepare(groups: Sequence[GroupId]) -> None:
        ground.time.ms += took_ms

    ground.disk.prepare = prepare  # type: ignore[method-assign]
    queue = queue_of(ground, open_group=lambda group: opened_at.append(ground.time.ms))
    queue.open([GroupId("wide", index, b"w" * 16) for index in range(OPENED_AT_ONCE)])
    queue.open([GroupId("other", index, b"o" * 16) for index in range(OPENED_AT_ONCE)])
    ground.run(took_ms + 2 * PAUSE_MS_MAX)
    first, second = sorted(set(opened_at))
    assert (first, second) == (took_ms, took_ms + pause_ms + took_ms)


@pytest.mark.parametrize(("late_ms", "pause_ms"), [(0, PAUSE_MS), (30, 30), (9_000, LATE_MS_MAX)])
def test_a_node_that_is_behind_with_its_timers_opens_groups_more_slowly(late_ms: int, pause_ms: int) -> None:
    ground = Ground()
    opened_at: list[int] = []
    queue = queue_of(ground, open_group=lambda group: opened_at.append(ground.time.ms))
    queue.open([GroupId("wide", index, b"w" * 16) for index in range(3 * OPENED_AT_ONCE)])
    ground.time.ms += PAUSE_MS + late_ms - 1
    ground.run(1 + PAUSE_MS_MAX)
    assert sorted(set(opened_at))[:3] == [0, PAUSE_MS + late_ms, PAUSE_MS + late_ms + pause_ms]


def test_a_slice_that_is_alone_is_done_at_once_and_so_is_the_next_one_later() -> None:
    """A topic that is created now and then waits for nothing."""
    ground = Ground()
    opened: list[GroupId] = []
    queue = queue_of(ground, open_group=opened.append)
    for count in range(1, 4):
        queue.open([GroupId("narrow", count, b"n" * 16)])
        assert len(opened) == count
        ground.run(PAUSE_MS)


# --- the keys of topics ---


def test_groups_follow_the_keys_of_topics() -> None:
    hosted = Hosted()
    hosted.ground.lead()
    topics = TopicRegistry(
        hosted.ground.engine,
        names=hosted.names,
        quorum=hosted.quorum,
        disk=Noted(),  # type: ignore[arg-type]
        kv=hosted.kv,
        hosting=hosted.hosting,
    )
    topic = Topic("orders", ORDERS.topic_id, 2)
    assert not topics.is_current
    hosted.commit(put(topic_key("orders"), topic.encode(), 0))
    assert topics.is_current and not topics.may_miss_some
    assert hosted.names.all() == [topic]
    assert list(hosted.ground.engine.partitions) == [METADATA_GROUP, *topic.groups()]
    hosted.commit(Txn(compares=(), ops=(Delete(topic_key("orders")),)))
    assert hosted.names.all() == [] and list(hosted.ground.engine.partitions) == [METADATA_GROUP]
    hosted.ground.run(PAUSE_MS)
    assert not hosted.names.has_directory(ORDERS)


def test_a_topic_that_cannot_be_is_refused_before_anything_is_proposed() -> None:
    hosted = Hosted(partitions_max=3)
    hosted.kv.read = hosted.kv.propose_anywhere = lambda *given: pytest.fail("it was proposed")
    topics = TopicRegistry(
        hosted.ground.engine,
        names=hosted.names,
        quorum=hosted.quorum,
        disk=Noted(),  # type: ignore[arg-type]
        kv=hosted.kv,
        hosting=hosted.hosting,
    )
    told: list[ErrorCode] = []
    for name, partitions in (("no/name", 1), ("none", 0), ("many", 3)):
        topics.create(name, partitions, {}, lambda topic, error, message: told.append(error))
    topics.delete(hosted.names.own, lambda topic, error, message: told.append(error))
    wrong = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert told == [wrong, ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_PARTITIONS, wrong]
    assert hosted.ground.engine.config.node_id == ME
