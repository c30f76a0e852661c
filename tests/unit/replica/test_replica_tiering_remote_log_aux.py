"""Attempts to begin behind what the remote tier holds: what is asked, what is written, what the core hears."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from copierkit import Keys
from enginekit import METADATA_GROUP, ORDERS, TWO, Ground, Noted
from raftkit.replica import position, voter_set
from raftlake.errors import DiskFull, ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import INCARNATION_KEY, tier_key
from raftlake.ports.peer_rpcs import EpochEndRpc, GroupId, LocalStartRpc, OffsetReply, PeerReply, ReadOffsetReply
from raftlake.ports.tier import Lineage, LineageFacts, RemoteSegment, RemoteState, TierError, TierFailure
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import BeginQuorumEpochRequest
from raftlake.raft.types import Epoch, NodeId, Offset, VoterEndpoint, VoterSet
from raftlake.replica.partition import snapshot_files
from raftlake.replica.partition.auxiliary import Auxiliary
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.producer_state import ProducerStates
from raftlake.replica.partition.start_points import RECORD_BYTES, KnownProducers
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remote_log_aux import BUILDS_MAX, TELL_INTERVAL_MS, RemoteLogAux
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire import producer_snapshot
from raftlake.wire.ids import id_to_text

#: Copied in this incarnation, says the key.
INCARNATION = 3
VOTERS = VoterSet(voter_set([1, 2, 3]).voters, {NodeId(each): (VoterEndpoint("P", "h", 9000 + each),) for each in (1, 2, 3)})
UNREACHABLE = TierError(TierFailure.UNKNOWN, "no answer in 3000 ms")


def producers(count: int = 2) -> KnownProducers:
    states = ProducerStates()
    for number in range(count):
        states.record(4_000 + number, 0, 0, 1, Offset(number), 1_000)
    return KnownProducers(producer_snapshot.encode_packed(states.packed(Offset(1 << 30))), has_forgotten=True)


STATE = Auxiliary(producers(), VOTERS)


def copy(*epochs: tuple[int, int], end: int, state: Auxiliary | bytes = STATE) -> RemoteState:
    entries = tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs)
    segment = RemoteSegment(
        segment_id="uuid-2",
        base_offset=entries[0][1],
        end_offset=Offset(end),
        leader_epoch=Epoch(5),
        epochs=entries,
        timestamp_ms_max=77,
        log_bytes=10,
        size=100,
        crc=5,
        file="partition=0/uuid-2.parquet",
    )
    return RemoteState(segment, state if isinstance(state, bytes) else state.encode(Offset(end)))


class Tier:
    """Notes what is asked. The test answers."""

    def __init__(self) -> None:
        self.finds: list[tuple[Lineage, int, Callable[[RemoteState | TierError], None]]] = []
        self.asked_facts: list[tuple[object, Callable[[LineageFacts | TierError], None]]] = []

    def find(self, lineage: Lineage, offset: Offset, done: Callable[[RemoteState | TierError], None]) -> None:
        self.finds.append((lineage, offset, done))

    def facts(self, lineage: object, done: Callable[[LineageFacts | TierError], None]) -> None:
        self.asked_facts.append((lineage, done))


class World:
    """Node 1 of three. `heard` are the events that the service reports."""

    def __init__(self, *, has_key: bool = True, with_tier: bool = True) -> None:
        self.ground, self.keys, self.tier, self.disk = Ground(3), Keys(), Tier(), Noted()
        engine = self.ground.engine
        self.partition = self.ground.host(ORDERS)
        begin = BeginQuorumEpochRequest(leader_id=TWO, leader_epoch=Epoch(6))
        engine.step(self.partition, on.RequestReceived(request_id=1, request=begin))
        self.ground.perform(self.partition)
        assert self.partition.core.leader_id == TWO
        keys: Any = self.keys
        tier: Any = self.tier
        disk: Any = self.disk
        snapshots: Any = SimpleNamespace(start_listeners=[])
        self.start_listeners: list[Callable[[Partition], None]] = snapshots.start_listeners
        self.service = RemoteLogAux(
            engine,
            producers=ProducerCare(engine),
            disk=disk,
            snapshots=snapshots,
            remote_log=RemoteLog(engine, keys, is_on=with_tier),
            tier=tier if with_tier else None,
        )
        self.heard: list[tuple[GroupId, on.Event]] = []
        step = engine.step

        def heard(partition: Partition, event: on.Event) -> None:
            self.heard.append((partition.group, event))
            step(partition, event)

        engine.step = heard  # type: ignore[method-assign]
        if has_key:
            self.shown(0, 40)

    def shown(self, start: int, end: int, group: GroupId = ORDERS, recovery: str = "") -> None:
        tiered = Tiered(incarnation=INCARNATION, recovery=recovery, start_offset=Offset(start), end_offset=Offset(end))
        self.keys.apply(Txn((), (Put(tier_key(id_to_text(group.topic_id), group.partition), encode_tiered(tiered)),)))

    def build(self, partition: Partition | None = None, epoch: int = 6) -> None:
        action = do.BuildRemoteLogAux(leader_id=TWO, leader_epoch=Epoch(epoch))
        self.service.perform(partition or self.partition, action)

    def abandon(self) -> None:
        self.service.perform(self.partition, do.AbandonRemoteLogAux())

    @property
    def asked(self) -> list[object]:
        """Of the leader, not answered yet."""
        assert all(peer == TWO for peer, _, _ in self.ground.wires.sent)
        return [rpc for _, rpc, _ in self.ground.wires.sent]

    def answer(self, offset: int, epoch: int) -> None:
        self.reply(OffsetReply(error=ErrorCode.NONE, position=position(offset, epoch)))

    def reply(self, reply: PeerReply | on.FailureReason) -> None:
        _, _, done = self.ground.wires.sent.pop(0)
        done(reply)

    def leader_says(self, local: tuple[int, int] = (9, 4), start: int = 0, before: tuple[int, int] = (9, 3)) -> None:
        """Its log begins with a record at 9 of epoch 4; before that stands epoch 3."""
        self.answer(*local)
        self.answer(start, 1)
        self.answer(*before)

    def found(self, found: RemoteState | TierError) -> None:
        _, _, done = self.tier.finds.pop(0)
        done(found)

    @property
    def ends(self) -> list[on.Event]:
        """Of attempts."""
        return [event for _, event in self.heard if isinstance(event, on.RemoteLogAuxBuilt | on.RemoteLogAuxFailed)]

    @property
    def snapshots(self) -> list[tuple[int, int]]:
        return [(each.offset, each.epoch) for each in self.ground.disk.snapshots.ids(ORDERS)]


def failure(*, is_refused: bool = False) -> list[on.Event]:
    return [on.RemoteLogAuxFailed(leader_epoch=Epoch(6), is_refused=is_refused)]


def test_the_state_of_the_copy_that_ends_where_the_leader_begins_becomes_a_snapshot() -> None:
    world = World()
    world.build()
    assert world.asked == [LocalStartRpc(group=ORDERS, replica_id=NodeId(1), leader_epoch=Epoch(6), timestamp=-4)]
    world.answer(9, 4)
    assert world.asked == [LocalStartRpc(group=ORDERS, replica_id=NodeId(1), leader_epoch=Epoch(6), timestamp=-2)]
    world.answer(0, 1)
    assert world.asked == [EpochEndRpc(group=ORDERS, replica_id=NodeId(1), leader_epoch=Epoch(6), epoch=Epoch(3))]
    world.answer(9, 3)
    ((lineage, offset, _),) = world.tier.finds
    assert (lineage, offset) == (Lineage(ORDERS, INCARNATION), 8)
    world.found(copy((2, 5), (3, 7), end=9))
    assert world.asked == [] and world.ends == [] and world.snapshots == [], "not durable yet"
    world.ground.run(1)
    built = on.RemoteLogAuxBuilt(leader_epoch=Epoch(6), snapshot_id=position(9, 3), voters=VOTERS)
    assert world.ends == [built]
    told = snapshot_files.check(world.ground.disk.snapshots, ORDERS, position(9, 3))
    assert (told.voters, told.producers) == (VOTERS, STATE.producers)
    assert (world.service.counts.built, world.service.counts.failures) == (1, 0)


def test_a_copy_that_goes_on_behind_the_leaders_start_is_taken_whole() -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), (4, 9), (5, 11), end=13))
    assert world.asked == [EpochEndRpc(group=ORDERS, replica_id=NodeId(1), leader_epoch=Epoch(6), epoch=Epoch(5))]
    world.answer(13, 5)
    world.ground.run(1)
    assert world.ends == [on.RemoteLogAuxBuilt(leader_epoch=Epoch(6), snapshot_id=position(13, 5), voters=VOTERS)]


@pytest.mark.parametrize(("end", "fits"), [((14, 5), True), ((12, 5), False), ((13, 4), False), ((-1, -1), False)])
def test_a_copy_counts_only_where_the_leader_has_all_of_it(end: tuple[int, int], *, fits: bool) -> None:
    """`raftlake recover --unclean`: the table shows what is lost until the leader takes it over. A replica that began behind
    such a copy was asked to truncate what it took for committed, at each start."""
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), (5, 9), end=13))
    world.answer(*end)
    world.ground.run(1)
    assert world.snapshots == ([(13, 5)] if fits else []) and world.asked == []
    assert fits or world.ends == [on.RemoteLogAuxFailed(leader_epoch=Epoch(6), is_unusable=True)], "its snapshot is fetched"


def test_a_leader_that_is_replaced_before_it_tells_the_rest_ends_the_attempt() -> None:
    world = World()
    for reply, is_refused in ((OffsetReply(error=ErrorCode.FENCED_LEADER_EPOCH), True), (on.FailureReason.TIMED_OUT, False)):
        world.build()
        world.leader_says()
        world.found(copy((3, 7), (5, 9), end=13))
        world.reply(reply)
        assert world.ends[-1:] == failure(is_refused=is_refused) and world.snapshots == []


@pytest.mark.parametrize(
    ("local", "end", "epochs", "fits"),
    [
        # The epoch before that of the leader's first record ends there: epochs may have gaps.
        ((9, 4), (9, 3), [(3, 7)], True),
        ((9, 4), (9, 1), [(1, 7)], True),
        ((9, 4), (9, 1), [(3, 7)], False),
        ((9, 4), (9, 3), [(3, 7), (4, 8)], False),
        ((9, 4), (9, 3), [(2, 7), (3, 8)], True),
        # It ended earlier: the record before has the epoch of the first one.
        ((9, 4), (8, 3), [(3, 7), (4, 8)], True),
        ((9, 4), (8, 3), [(3, 7)], False),
        ((9, 4), (7, 3), [(4, 7)], True),
        # The leader does not know.
        ((9, 4), (-1, -1), [(4, 7)], True),
        ((9, 4), (-1, -1), [(3, 7)], False),
    ],
)
def test_a_copy_counts_only_with_the_epoch_that_the_leader_had_there(
    local: tuple[int, int], end: tuple[int, int], epochs: list[tuple[int, int]], *, fits: bool
) -> None:
    world = World()
    world.build()
    world.leader_says(local, 0, end)
    world.found(copy(*epochs, end=9))
    world.ground.run(1)
    assert bool(world.snapshots) is fits
    assert [type(event) for event in world.ends] == [on.RemoteLogAuxBuilt if fits else on.RemoteLogAuxFailed]


def test_a_copy_of_a_later_leader_has_to_wait_until_that_leader_is_known() -> None:
    """Its records would be of an epoch that this replica has not heard of, and the next start would find them."""
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), (7, 9), end=12))
    world.ground.run(1)
    assert world.ends == failure() and world.snapshots == []
    world.build()
    world.leader_says()
    world.found(copy((3, 7), (6, 9), end=12))
    world.answer(12, 6)
    world.ground.run(1)
    assert world.snapshots == [(12, 6)]


def test_no_epoch_comes_before_the_first_one() -> None:
    world = World()
    world.build()
    world.answer(9, 0)
    world.answer(0, 0)
    assert world.asked == []
    world.found(copy((0, 5), end=9))
    world.ground.run(1)
    assert world.snapshots == [(9, 0)]


def test_a_copy_that_ends_before_that_record_is_of_no_use() -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 2), end=8))
    assert world.ends == failure()


@pytest.mark.parametrize(
    ("epochs", "fits"), [([(1, 0), (3, 5)], True), ([(1, 0), (2, 8)], False), ([(3, 9)], False), ([], False)]
)
def test_a_later_copy_stands_in_for_one_that_an_unclean_election_cut(epochs: list[tuple[int, int]], *, fits: bool) -> None:
    """Which epoch the record before the leader's log has is told by the table then."""
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 9), (5, 11), end=14))
    ((asked, done),) = world.tier.asked_facts
    assert asked == Lineage(ORDERS, INCARNATION)
    done(facts(INCARNATION, *epochs))
    if fits:
        world.answer(14, 5)
    world.ground.run(1)
    assert world.snapshots == ([(14, 5)] if fits else []) and (fits or world.ends == failure())


def test_a_table_that_does_not_tell_its_epochs_ends_the_attempt() -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 9), end=14))
    ((_, done),) = world.tier.asked_facts
    done(UNREACHABLE)
    assert world.ends == failure()


def test_a_node_that_has_not_applied_the_key_asks_the_table() -> None:
    world = World(has_key=False)
    world.build()
    world.leader_says()
    ((asked, done),) = world.tier.asked_facts
    assert asked == ORDERS and world.tier.finds == []
    done(facts(incarnation=2))
    assert [lineage for lineage, _, _ in world.tier.finds] == [Lineage(ORDERS, 2)]


def test_a_table_that_does_not_answer_ends_the_attempt() -> None:
    world = World(has_key=False)
    world.build()
    world.leader_says()
    ((_, done),) = world.tier.asked_facts
    done(UNREACHABLE)
    assert world.ends == failure()


def facts(incarnation: int, *epochs: tuple[int, int]) -> LineageFacts:
    return LineageFacts(
        lineage=Lineage(ORDERS, incarnation),
        leader_epoch=Epoch(5),
        start_offset=Offset(0),
        end_offset=Offset(9),
        segments=1,
        size=1,
        log_bytes=1,
        epochs=tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs),
        newest=(),
    )


@pytest.mark.parametrize("answered", [0, 1, 2])
@pytest.mark.parametrize(
    ("reply", "is_refused"),
    [
        (OffsetReply(error=ErrorCode.FENCED_LEADER_EPOCH), True),
        (OffsetReply(error=ErrorCode.UNKNOWN_LEADER_EPOCH), True),
        (OffsetReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (OffsetReply(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), False),
        (on.FailureReason.TIMED_OUT, False),
        (on.FailureReason.UNSUPPORTED_VERSION, False),
        (ReadOffsetReply(error=ErrorCode.NONE), False),
    ],
    ids=str,
)
def test_a_leader_that_does_not_answer_ends_the_attempt(
    answered: int, reply: PeerReply | on.FailureReason, *, is_refused: bool
) -> None:
    world = World()
    world.build()
    for offset in (9, 0)[:answered]:
        world.answer(offset, 4)
    world.reply(reply)
    assert world.ends == failure(is_refused=is_refused)
    assert world.asked == [] and world.tier.finds == [] and world.snapshots == []
    assert world.service.counts.failures == 1


@pytest.mark.parametrize(("local", "start"), [(9, 9), (9, 12), (0, 0), (9, -1)])
def test_a_leader_without_records_before_its_log_needs_no_tier(local: int, start: int) -> None:
    """The table's rows are gone meanwhile, or a client's answer came: the next Fetch tells where to begin."""
    world = World()
    world.build()
    world.answer(local, 4)
    world.answer(start, 1)
    assert world.ends == failure() and world.asked == []


@pytest.mark.parametrize(
    "found",
    [
        UNREACHABLE,
        TierError(TierFailure.ABSENT, "no such offset"),
        copy((3, 7), end=9, state=b""),
        copy((3, 7), end=9, state=b"x" * 90),
    ],
    ids=["unreachable", "absent", "empty", "damaged"],
)
def test_a_tier_that_has_no_use_ends_the_attempt_and_leaves_nothing(found: RemoteState | TierError) -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(found)
    world.ground.run(5)
    assert world.ends == failure() and world.snapshots == []
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9))
    world.ground.run(5)
    assert world.snapshots == [(9, 3)], "the next attempt is another one"


@pytest.mark.parametrize("steps", range(4))
def test_an_attempt_that_is_abandoned_asks_nothing_more_and_ends_unheard(steps: int) -> None:
    world = World()
    world.build()
    answers = [lambda: world.answer(9, 4), lambda: world.answer(0, 1), lambda: world.answer(9, 3), lambda: None]
    for answer in answers[:steps]:
        answer()
    world.abandon()
    if steps < 3:
        answers[steps]()
    else:
        world.found(copy((3, 7), end=9))
    world.ground.run(5)
    assert world.ends == [] and world.asked == [] and world.tier.finds == [] and world.snapshots == []


def test_a_snapshot_that_is_being_synced_when_it_is_abandoned_is_told_all_the_same() -> None:
    """As a fetched one: it lies on the disk, and the next start would begin behind it."""
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9))
    world.abandon()
    world.ground.run(1)
    assert world.snapshots == [(9, 3)]
    assert world.ends == [on.RemoteLogAuxBuilt(leader_epoch=Epoch(6), snapshot_id=position(9, 3), voters=VOTERS)]


def test_a_group_that_is_closed_meanwhile_gets_no_snapshot() -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9))
    world.partition.deleted = True
    for closed in world.ground.engine.closed:
        closed(world.partition)
    world.ground.run(5)
    assert world.snapshots == [] and world.ends == []


def test_a_later_attempt_takes_the_place_of_the_one_before() -> None:
    world = World()
    world.build()
    (_, _, late), *_ = world.ground.wires.sent
    world.build(epoch=7)
    assert [rpc.leader_epoch for rpc in world.asked if isinstance(rpc, LocalStartRpc)] == [6, 7]
    late(OffsetReply(error=ErrorCode.FENCED_LEADER_EPOCH))
    assert world.ends == []
    world.ground.wires.sent.pop(0)
    world.reply(on.FailureReason.TIMED_OUT)
    assert world.ends == [on.RemoteLogAuxFailed(leader_epoch=Epoch(7))]


def test_many_producers_are_written_a_slice_at_a_time() -> None:
    rows_max = RECORD_BYTES // producer_snapshot.ENTRY.size
    many = Auxiliary(producers(2 * rows_max + 1), VOTERS)
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9, state=many))
    world.ground.run(5)
    assert world.ends == []
    world.ground.run(30)
    assert snapshot_files.check(world.ground.disk.snapshots, ORDERS, position(9, 3)).producers == many.producers


def test_slices_end_with_the_attempt() -> None:
    rows_max = RECORD_BYTES // producer_snapshot.ENTRY.size
    world = World()
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9, state=Auxiliary(producers(2 * rows_max + 1), VOTERS)))
    world.abandon()
    world.ground.run(60)
    assert world.snapshots == [] and world.ends == []


def test_a_full_disk_ends_the_attempt_and_is_reported() -> None:
    world = World()
    world.ground.disk.space.fill(0)
    world.build()
    world.leader_says()
    world.found(copy((3, 7), end=9))
    world.ground.run(1)
    assert world.ends == failure() and world.disk.names == ["on_full"] and world.snapshots == []
    ((_, (told,)),) = world.disk.calls
    assert isinstance(told, DiskFull)


def test_a_few_attempts_are_under_way_at_a_time_and_the_others_follow_in_their_order() -> None:
    world = World()
    groups = [GroupId("orders", index, ORDERS.topic_id) for index in range(1, BUILDS_MAX + 3)]
    for group in groups:
        world.build(world.ground.host(group))

    def about() -> list[GroupId]:
        return [rpc.group for rpc in world.asked if isinstance(rpc, LocalStartRpc)]

    assert about() == groups[:BUILDS_MAX]
    world.reply(on.FailureReason.TIMED_OUT)
    assert about() == groups[1 : BUILDS_MAX + 1]
    for closed in world.ground.engine.closed:
        closed(world.ground.engine.partitions[groups[1]])
    assert about() == groups[1 : BUILDS_MAX + 2], "one that is closed makes room too"


def test_a_node_without_a_tier_says_so() -> None:
    world = World(with_tier=False)
    world.build()
    assert world.ends == [on.RemoteLogAuxFailed(leader_epoch=Epoch(6), is_unusable=True)] and world.asked == []


@pytest.mark.parametrize("failure", list(TierFailure))
def test_a_tier_that_no_retry_mends_is_told_as_such(failure: TierFailure) -> None:
    world = World()
    world.build()
    world.leader_says()
    world.found(TierError(failure, "why"))
    is_unusable = failure is TierFailure.UNUSABLE
    assert world.ends == [on.RemoteLogAuxFailed(leader_epoch=Epoch(6), is_unusable=is_unusable)]


# --- what the cores are told of the tier ---


def told(world: World) -> list[tuple[GroupId, int, int]]:
    found = [
        (group, event.start_offset, event.end_offset) for group, event in world.heard if isinstance(event, on.HistoryTiered)
    ]
    world.heard.clear()
    return found


def tick(world: World, later_ms: int = TELL_INTERVAL_MS) -> None:
    world.ground.time.ms += later_ms
    world.ground.engine.begin_input()
    world.service.tick()


def test_the_cores_are_told_what_the_tier_shows_and_only_news() -> None:
    world = World(has_key=False)
    world.ground.host(METADATA_GROUP)
    tick(world)
    assert told(world) == []
    world.shown(0, 7)
    tick(world, TELL_INTERVAL_MS - 1)
    assert told(world) == []
    tick(world, 1)
    assert told(world) == [(ORDERS, 0, 7)]
    tick(world)
    assert told(world) == []
    world.shown(4, 7)
    tick(world)
    assert told(world) == [(ORDERS, 4, 7)]
    assert (world.partition.core.tiered_start, world.partition.core.tiered_end) == (4, 7)


def test_a_core_is_told_before_its_log_begins_later() -> None:
    world = World()
    for listener in world.start_listeners:
        listener(world.partition)
    assert told(world) == [(ORDERS, 0, 40)]


def test_a_key_that_is_gone_is_told_too() -> None:
    world = World()
    tick(world)
    world.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), b"spoilt"),)))
    tick(world)
    assert told(world) == [(ORDERS, 0, 40), (ORDERS, -1, -1)]


def test_a_table_is_told_again_once_it_is_taken_over() -> None:
    """After an unclean election the key is about rows that the log may not share."""
    world = World()
    tick(world)
    recovered = json.dumps({"directoryId": id_to_text(b"r" * 16), "nodeId": 2, "epoch": 6}).encode()
    world.keys.apply(Txn((), (Put(INCARNATION_KEY, recovered),)))
    tick(world)
    world.shown(0, 50)
    tick(world)
    world.shown(0, 12, recovery=id_to_text(b"r" * 16))
    tick(world)
    assert told(world) == [(ORDERS, 0, 40), (ORDERS, -1, -1), (ORDERS, 0, 12)]


def test_without_a_tier_the_cores_are_told_nothing() -> None:
    world = World(with_tier=False)
    tick(world)
    world.service.tell(world.partition)
    assert told(world) == []
