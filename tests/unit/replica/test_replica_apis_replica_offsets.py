"""Where a log begins and where an epoch ends, as a leader tells it to a replica that recovers from the remote tier."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from copierkit import Keys
from enginekit import ORDERS, Ground
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import start_key, tier_key
from raftlake.ports.peer_rpcs import EpochEndRpc, GroupId, LocalStartRpc, OffsetReply, OffsetRpc, PeerReply
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.apis.replica_offsets import offset_for_peer
from raftlake.replica.names import Names
from raftlake.replica.reserved import RecordStart
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.tier.entries import Tiered, encode_tiered
from raftlake.wire.ids import id_to_text

LATEST, EARLIEST, LATEST_TIERED, EARLIEST_LOCAL = -1, -2, -5, -4


class World:
    """A leader of epoch 7 whose local log begins at 6: epoch 5 up to 8, epoch 7 up to 9. `before` is the epoch of 5."""

    def __init__(self, *, before: int = 4, local: tuple[tuple[int, int], ...] = ((5, 6), (7, 8)), size: int = 1) -> None:
        self.ground, self.keys = Ground(size), Keys()
        self.partition = self.ground.host(ORDERS) if size > 1 else self.ground.lead(ORDERS)
        core = self.partition.core
        core.epoch = Epoch(7)
        history = core.history
        history.reset(OffsetAndEpoch(Offset(6), Epoch(before)))
        for epoch, offset in local:
            history.assign(Epoch(epoch), Offset(offset))
        core.log_end = Offset(9 if local else 6)
        log: Any = SimpleNamespace(start_offset=Offset(6), epochs=history.entries())
        self.partition.log = log
        keys: Any = self.keys
        names = Names(self.ground.engine.config)
        remote_log = RemoteLog(self.ground.engine, keys, is_on=True)
        self.node: Any = SimpleNamespace(engine=self.ground.engine, names=names, remote_log=remote_log, kv=keys)

    def copied(self, start: int, end: int, *epochs: tuple[int, int]) -> None:
        entries = tuple((Epoch(epoch), Offset(offset)) for epoch, offset in epochs)
        value = encode_tiered(Tiered(start_offset=Offset(start), end_offset=Offset(end), epochs=entries))
        self.keys.apply(Txn((), (Put(tier_key(id_to_text(ORDERS.topic_id), 0), value),)))

    def ask(self, rpc: OffsetRpc) -> OffsetReply:
        replies: list[PeerReply] = []
        offset_for_peer(self.node, rpc, replies.append)
        (reply,) = replies
        assert isinstance(reply, OffsetReply)
        return reply

    def start(self, timestamp: int) -> tuple[int, int]:
        reply = self.ask(LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(7), timestamp=timestamp))
        assert reply.error is ErrorCode.NONE
        return reply.position.offset, reply.position.epoch

    def end(self, epoch: int) -> tuple[int, int]:
        asked = EpochEndRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(7), epoch=Epoch(epoch))
        reply = self.ask(asked)
        assert reply.error is ErrorCode.NONE
        return reply.position.offset, reply.position.epoch


def test_a_log_begins_here_and_perhaps_elsewhere() -> None:
    world = World()
    assert world.start(EARLIEST_LOCAL) == (6, 5) and world.start(EARLIEST) == (6, 5)
    world.copied(2, 7, (3, 2), (5, 6))
    assert world.start(EARLIEST_LOCAL) == (6, 5) and world.start(EARLIEST) == (2, 3)


@pytest.mark.parametrize("deleted", [3, 6, 8])
def test_deleted_records_do_not_hide_the_table(deleted: int) -> None:
    """Simulator, seeds 830001290 and 830001291: DeleteRecords had gone beyond the leader's local start. The table still had the
    state of the record before it, and the replicas that had lost their logs were told of no table. So they never began."""
    world = World()
    world.copied(2, 7, (3, 2), (5, 6))
    begins = start_key(id_to_text(ORDERS.topic_id), 0)
    world.keys.apply(Txn((), (Put(begins, RecordStart(Offset(deleted)).encode()),)))
    assert world.node.remote_log.start_offset(world.partition) == deleted
    assert world.start(EARLIEST_LOCAL) == (6, 5) and world.start(EARLIEST) == (2, 3)


def test_an_empty_local_log_begins_with_the_last_epoch_until_there_is_another() -> None:
    assert World(before=5, local=()).start(EARLIEST_LOCAL) == (6, 5)


@pytest.mark.parametrize("timestamp", [LATEST, LATEST_TIERED, -3, 0, 1_700_000_000_000])
def test_a_replica_asks_for_nothing_else(timestamp: int) -> None:
    asked = LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(7), timestamp=timestamp)
    assert World().ask(asked).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("before", "epoch", "end"),
    [
        # Without the keys of the quorum the epoch of the record before the local log is known all the same.
        (4, 4, (6, 4)),
        (3, 4, (6, 3)),
        (4, 3, (-1, -1)),
        # The local log goes on with it.
        (5, 4, (-1, -1)),
        (5, 5, (8, 5)),
        (5, 6, (8, 5)),
        (4, 7, (9, 7)),
    ],
)
def test_an_epoch_ends_where_the_local_log_begins(before: int, epoch: int, end: tuple[int, int]) -> None:
    assert World(before=before).end(epoch) == end


@pytest.mark.parametrize(("epoch", "end"), [(1, (-1, -1)), (2, (4, 2)), (3, (4, 2)), (4, (6, 4)), (5, (8, 5))])
def test_earlier_epochs_are_told_by_the_table(epoch: int, end: tuple[int, int]) -> None:
    world = World()
    world.copied(1, 7, (2, 1), (4, 4), (5, 6))
    assert world.end(epoch) == end


@pytest.mark.parametrize(
    ("epoch", "error"), [(6, ErrorCode.FENCED_LEADER_EPOCH), (8, ErrorCode.UNKNOWN_LEADER_EPOCH), (7, ErrorCode.NONE)]
)
def test_only_the_epoch_that_is_led_is_answered(epoch: int, error: ErrorCode) -> None:
    world = World()
    for rpc in (
        LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(epoch), timestamp=EARLIEST),
        EpochEndRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(epoch), epoch=Epoch(5)),
    ):
        assert world.ask(rpc).error is error


def test_who_does_not_lead_or_does_not_know_the_group_says_so() -> None:
    world = World(size=3)
    asked = LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(7), timestamp=EARLIEST)
    assert world.ask(asked).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = GroupId("orders", 0, b"p" * 16)
    unknown = LocalStartRpc(group=other, replica_id=NodeId(2), leader_epoch=Epoch(7), timestamp=EARLIEST)
    assert world.ask(unknown).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_answers_before_its_own_epoch_has_committed_anything() -> None:
    """Perhaps nothing can be committed without the replica that asks."""
    world = World()
    world.partition.high_watermark = Offset(0)
    assert not world.partition.is_serving
    assert world.start(EARLIEST_LOCAL) == (6, 5) and world.end(5) == (8, 5)


@pytest.mark.parametrize("leads", [True, False])
def test_who_is_asked_in_no_epoch_tells_its_own_start_once_it_knows_what_the_quorum_forbids(*, leads: bool) -> None:
    """Else it could answer, and then delete what it was not told to keep."""
    world = World(size=1 if leads else 3)
    world.keys.is_current = False
    replies: list[PeerReply] = []
    rpc = LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(-1), timestamp=EARLIEST_LOCAL)
    offset_for_peer(world.node, rpc, replies.append)
    assert replies == []
    world.partition.log = SimpleNamespace(start_offset=Offset(8), epochs=world.partition.core.history.entries())  # type: ignore[assignment]
    world.keys.answer_reads()
    (reply,) = replies
    assert isinstance(reply, OffsetReply) and (reply.error, reply.position.offset) == (ErrorCode.NONE, 8)


def test_who_cannot_learn_what_the_quorum_forbids_tells_no_start() -> None:
    world = World(size=3)
    world.keys.is_current = False
    replies: list[PeerReply] = []
    rpc = LocalStartRpc(group=ORDERS, replica_id=NodeId(2), leader_epoch=Epoch(-1), timestamp=EARLIEST_LOCAL)
    offset_for_peer(world.node, rpc, replies.append)
    world.keys.answer_reads(ErrorCode.REQUEST_TIMED_OUT)
    assert replies == [OffsetReply(error=ErrorCode.REQUEST_TIMED_OUT)]
    offset_for_peer(world.node, rpc, replies.append)
    del world.ground.engine.partitions[ORDERS]
    world.keys.answer_reads()
    assert isinstance(replies[1], OffsetReply) and replies[1].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
