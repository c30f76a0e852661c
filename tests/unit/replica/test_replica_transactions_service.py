"""Who coordinates, and what goes on under the next coordinator: over keys by hand, and in clusters whose coordinator goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from enginekit import Ground
from keyskit import Keys
from producerkit import TxnProducer, committed_values, marker_count
from raftlake.errors import ErrorCode, code_of
from raftlake.kv.commands import Put
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.names import Names
from raftlake.replica.node import ReplicaNode
from raftlake.replica.quorum import Quorum
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.replica.transactions import service as module
from raftlake.replica.transactions.coordinator import Coordinator
from raftlake.replica.transactions.deadlines import Deadlines
from raftlake.replica.transactions.delivery import MarkerDelivery
from raftlake.replica.transactions.service import LOOK_AGAIN_MS, Transactions
from raftlake.wire.control import EndMarker
from replica_cluster import Cluster
from txnkit import lead

E, S = ErrorCode, TransactionState
PARTITION = (bytes(range(1, 17)), 0)
ONGOING = Transaction(
    transactional_id="a", producer_id=10, epoch=0, timeout_ms=1_000, state=S.ONGOING, partitions=frozenset({PARTITION})
)


# --- keys by hand ---


class World:
    """There is no topic, so every partition counts as deleted: what is decided is complete at once."""

    def __init__(self, *standing: Transaction) -> None:
        self.ground = Ground()
        self.keys = Keys(self.ground)
        for first in range(0, len(standing), 1_000):
            self.keys.put(*standing[first : first + 1_000])
        engine = self.ground.engine
        self.coordinator = Coordinator(engine, kv=self.keys, quorum=Quorum(engine), take_id=lambda done: done(None))  # type: ignore[arg-type]
        self.delivery = MarkerDelivery(
            engine, state=self.keys.state, names=Names(engine.config), markers=self, on_marked=self.coordinator.on_marked
        )
        self.deadlines = Deadlines(engine, kv=self.keys, coordinator=self.coordinator)  # type: ignore[arg-type]
        self.service = Transactions(
            engine,
            kv=self.keys,  # type: ignore[arg-type]
            coordinator=self.coordinator,
            delivery=self.delivery,
            deadlines=self.deadlines,
        )

    def write(self, group: GroupId, marker: EndMarker, decided_at: int, done: Callable[[ErrorCode], None]) -> None:
        raise AssertionError("no partition stands")

    def commit_all(self) -> None:
        while self.keys.proposed:
            self.keys.commit()

    def states(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.keys.state.transactions.by_key.values():
            found[each.state.value] = found.get(each.state.value, 0) + 1
        return found


def many(count: int, transaction: Transaction) -> list[Transaction]:
    return [
        replace(
            transaction,
            transactional_id=f"{transaction.state.value}-{number}",
            producer_id=number + 1_000 * len(transaction.state),
        )
        for number in range(count)
    ]


def test_what_stands_where_a_leadership_begins_goes_on() -> None:
    world = World(ONGOING, *many(3, ONGOING.decided(True)), *many(2, ONGOING.decided(False)))
    world.service.tick()
    world.commit_all()
    assert world.states() == {"Ongoing": 1, "CompleteCommit": 3, "CompleteAbort": 2}
    world.ground.time.ms += 1_000
    world.ground.engine.begin_input()
    world.service.tick()
    world.commit_all()
    assert world.states() == {"CompleteCommit": 3, "CompleteAbort": 3}


def test_what_changes_is_looked_at_as_it_is_applied() -> None:
    world = World()
    world.service.tick()
    world.keys.put(ONGOING)
    assert len(world.deadlines) == 1
    world.keys.put(ONGOING.decided(True))
    assert (len(world.deadlines), len(world.keys.proposed)) == (0, 1)
    world.commit_all()
    assert (world.states(), len(world.delivery)) == ({"CompleteCommit": 1}, 0)


def test_who_does_not_coordinate_looks_at_nothing() -> None:
    world = World(*many(3, ONGOING.decided(True)))
    partition = world.ground.engine.partitions.pop(METADATA_GROUP)
    world.service.tick()
    world.keys.put(ONGOING)
    assert (world.keys.proposed, len(world.deadlines), len(world.delivery)) == ([], 0, 0)
    world.ground.engine.partitions[METADATA_GROUP] = partition
    world.service.tick()
    assert (len(world.keys.proposed), len(world.deadlines)) == (3, 1)
    del world.ground.engine.partitions[METADATA_GROUP]
    world.service.tick()
    assert (len(world.deadlines), len(world.delivery)) == (0, 0)


def test_ten_thousand_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_AT_ONCE", 100)
    decided = ONGOING.decided(True)
    world = World(*(replace(decided, transactional_id=f"id-{number}", producer_id=number) for number in range(10_000)))
    world.service.tick()
    assert len(world.keys.proposed) == 100
    world.ground.run(1)
    assert len(world.keys.proposed) == 200
    world.ground.run(98)
    assert len(world.keys.proposed) == 10_000


def test_a_completion_that_was_lost_is_found_again() -> None:
    from raftlake.replica.kv.outcomes import ProposeStatus

    world = World(ONGOING.decided(True))
    world.service.tick()
    world.keys.fail(ProposeStatus.UNKNOWN)
    for _ in range(2):
        world.ground.time.ms += LOOK_AGAIN_MS
        world.ground.engine.begin_input()
        world.service.tick()
    world.commit_all()
    assert world.states() == {"CompleteCommit": 1}


def test_what_came_by_a_snapshot_is_looked_at_too() -> None:
    """The changes are not kept then."""
    world = World()
    world.service.tick()
    other = Keys(Ground())
    other.put(*many(2, ONGOING.decided(True)), ONGOING)
    other.apply(Put("k", b""))
    world.keys.machine.restore(other.machine.snapshot())
    for listener in world.keys.listeners:
        listener(world.keys.machine.applied_offset)
    assert (len(world.keys.proposed), len(world.deadlines)) == (2, 1)


# --- the coordinator goes ---


def apart(cluster: Cluster) -> tuple[list[GroupId], ReplicaNode]:
    """Two partitions, led by the nodes that do not coordinate, and the coordinator."""
    groups = cluster.create_topic("t", 2)
    coordinator = cluster.leader()
    others = [node for node in cluster.nodes.values() if node is not coordinator]
    for node, group in zip(others, groups, strict=True):
        lead(cluster, node, group)
    return groups, coordinator


def opened(cluster: Cluster, groups: list[GroupId]) -> TxnProducer:
    producer = TxnProducer(cluster, timeout_ms=10_000)
    assert producer.init() is E.NONE
    assert producer.add(*groups) is E.NONE
    for group in groups:
        assert producer.produce(group, b"v") is E.NONE
    return producer


def after_decision(coordinator: ReplicaNode, groups: list[GroupId]) -> None:
    """It decides, and no marker leaves it."""
    coordinator.transactions.delivery.pump = lambda: None  # type: ignore[method-assign]


def between_markers(coordinator: ReplicaNode, groups: list[GroupId]) -> None:
    """One marker leaves it."""
    delivery = coordinator.transactions.delivery
    send = delivery._send
    delivery._send = lambda unit: send(unit) if unit[1][1] == 0 else None  # type: ignore[method-assign]


def after_markers(coordinator: ReplicaNode, groups: list[GroupId]) -> None:
    """All markers leave it, and nothing follows."""
    coordinator.transactions.delivery._on_marked = lambda key, version: None


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("stop", "written"), [(after_decision, [0, 0]), (between_markers, [1, 0]), (after_markers, [1, 1])])
def test_the_next_coordinator_goes_on_where_the_last_one_was(
    stop: Callable[[ReplicaNode, list[GroupId]], None], written: list[int], commit: bool
) -> None:
    cluster = Cluster()
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    stop(coordinator, groups)
    assert producer.end(commit) is E.NONE
    cluster.run(1_000)
    assert [marker_count(cluster, group) for group in groups] == written
    assert producer.state(coordinator) == ("PrepareCommit" if commit else "PrepareAbort")
    cluster.stop(coordinator.config.node_id)
    assert cluster.leader() is not coordinator
    producer.settle("CompleteCommit" if commit else "CompleteAbort")
    for group in groups:
        assert committed_values(cluster, group) == ([b"v"] if commit else [])
        assert marker_count(cluster, group) == 1
    # What was answered stays, and the producer goes on.
    assert producer.end(commit) is E.NONE
    producer.transact(groups, b"next")
    producer.settle("CompleteCommit")
    assert [committed_values(cluster, group)[-1] for group in groups] == [b"next", b"next"]


def test_a_transaction_goes_on_under_the_next_coordinator() -> None:
    cluster = Cluster()
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    cluster.stop(coordinator.config.node_id)
    assert producer.produce(groups[0], b"more") is E.NONE
    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert [committed_values(cluster, group) for group in groups] == [[b"v", b"more"], [b"v"]]


def test_the_next_coordinator_ends_what_takes_too_long() -> None:
    cluster = Cluster()
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    cluster.run(8_000)
    cluster.stop(coordinator.config.node_id)
    cluster.leader()
    cluster.run(8_000)
    assert producer.state() == "Ongoing"
    producer.settle("CompleteAbort")
    assert [committed_values(cluster, group) for group in groups] == [[], []]
    assert [producer.produce(group, b"late") for group in groups] == [E.INVALID_PRODUCER_EPOCH] * 2
    assert (producer.add(groups[0]), producer.end()) == (E.PRODUCER_FENCED, E.PRODUCER_FENCED)


def test_an_end_and_the_end_of_its_time_come_to_one_outcome() -> None:
    """Whichever is first, the other one does not take it back."""
    outcomes = set()
    for early_ms in (-300, *range(-10, 260, 9), 300):
        cluster = Cluster()
        (group,) = cluster.create_topic("t")
        producer = TxnProducer(cluster, timeout_ms=3_000)
        assert producer.init() is E.NONE
        assert producer.add(group) is E.NONE
        assert producer.produce(group, b"v") is E.NONE
        coordinator = cluster.leader()
        # Times that are over are seen at the next tick.
        due_ms = coordinator.transactions.deadlines._open[transaction_key("tx")].due_ms
        cluster.run(due_ms - coordinator.engine.clock.now_ms() + early_ms)
        answer = producer.end()
        cluster.run(5_000)
        outcomes.add(answer)
        assert (answer, producer.state(), committed_values(cluster, group)) in [
            (E.NONE, "CompleteCommit", [b"v"]),
            (E.PRODUCER_FENCED, "CompleteAbort", []),
        ]
    assert outcomes == {E.NONE, E.PRODUCER_FENCED}


def test_a_deposed_coordinator_answers_nothing_from_old_keys() -> None:
    cluster = Cluster()
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    cluster.cut(coordinator.config.node_id)
    cluster.run(300)
    late = producer.ask_add(groups[0], node=coordinator)
    others = [node for node in cluster.nodes.values() if node is not coordinator]
    cluster.run(10_000, until=lambda: any(node.transactions.coordinator.epoch is not None for node in others))
    (successor,) = (node for node in others if node.transactions.coordinator.epoch is not None)
    assert producer.end(False, node=successor) is E.NONE
    cluster.run(15_000, until=lambda: bool(late))
    from producerkit import added

    assert set(added(late[0]).values()) <= {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE}
    cluster.heal()
    producer.settle("CompleteAbort")


def test_an_answer_that_was_lost_is_given_by_the_next_coordinator() -> None:
    cluster = Cluster()
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    answers = producer.ask_end(True)
    others = [node for node in cluster.nodes.values() if node is not coordinator]
    cluster.run(1_000, until=lambda: any(producer.state(node) == "PrepareCommit" for node in (*others, coordinator)))
    cluster.stop(coordinator.config.node_id)
    assert len(answers) <= 1
    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert [committed_values(cluster, group) for group in groups] == [[b"v"], [b"v"]]


@pytest.mark.parametrize("is_decided", [True, False])
def test_transactions_come_back_from_a_snapshot_of_the_keys(is_decided: bool) -> None:
    cluster = Cluster(snapshot_bytes_between=1)
    groups, coordinator = apart(cluster)
    producer = opened(cluster, groups)
    if is_decided:
        after_decision(coordinator, groups)
        assert producer.end() is E.NONE
    cluster.run(3_000)
    for node in cluster.nodes.values():
        snapshot_id = node.partitions[METADATA_GROUP].core.snapshot_id
        entry = node.kv.machine.get(transaction_key("tx"))
        assert snapshot_id is not None
        assert entry is not None
        assert snapshot_id.offset > entry.version
    for node_id in list(cluster.nodes):
        cluster.stop(node_id)
    for node_id in (1, 2, 3):
        cluster.start(NodeId(node_id))
    cluster.leader()
    for group in groups:
        cluster.leader(group)
    if not is_decided:
        assert producer.produce(groups[0], b"more") is E.NONE
        assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert [committed_values(cluster, group)[0] for group in groups] == [b"v", b"v"]
    assert [marker_count(cluster, group) for group in groups] == [1, 1]


def test_a_deleted_topic_keeps_no_transaction_open() -> None:
    cluster = Cluster()
    groups, _ = apart(cluster)
    (kept,) = cluster.create_topic("kept")
    producer = opened(cluster, [*groups, kept])
    done: list[object] = []
    topic = cluster.leader().names.topic("t")
    assert topic is not None
    cluster.leader().topics.delete(topic, lambda *result: done.append(result))
    cluster.run(5_000, until=lambda: bool(done))
    assert producer.end() is E.NONE
    producer.settle("CompleteCommit")
    assert committed_values(cluster, kept) == [b"v"]


def test_ids_that_nobody_uses_are_forgotten_on_all_nodes() -> None:
    cluster = Cluster(transactional_id_expiration_ms=60_000)
    (group,) = cluster.create_topic("t")
    idle, busy = TxnProducer(cluster, "idle"), TxnProducer(cluster, "busy", timeout_ms=600_000)
    for producer in (idle, busy):
        assert producer.init() is E.NONE
    assert busy.add(group) is E.NONE
    cluster.run(90_000)
    for node in cluster.nodes.values():
        assert {found.transactional_id for found in node.kv.state.transactions.by_key.values()} == {"busy"}
    assert idle.add(group) is E.INVALID_PRODUCER_ID_MAPPING
    answers = idle.ask_init(expected=(idle.producer_id, 0))
    cluster.run(5_000, until=lambda: bool(answers))
    assert (code_of(answers[0].error_code), answers[0].producer_epoch) == (E.NONE, 0)
    assert answers[0].producer_id not in (idle.producer_id, busy.producer_id)
