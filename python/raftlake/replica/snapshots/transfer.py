"""FetchSnapshot between nodes (KIP-630): pieces of snapshot files out, pieces in, a whole snapshot checked before it counts.

Out: the core has checked epoch and leadership, here it is whether the snapshot and the position exist; a piece is read from the
file when it is asked for, never the whole. In: pieces go to an unfinished file and, batch by batch, past a scanner; what does
not arrive intact is thrown away. Knows no Raft state beyond what the core says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from raftlake.errors import CorruptBatch, DiskFull, ErrorCode, StorageError, TooManyFiles
from raftlake.ports.driver import SnapshotWriter
from raftlake.ports.peer_rpcs import FetchSnapshotReply, FetchSnapshotRpc, GroupId, PeerMessage, PeerReply
from raftlake.raft.actions import AbandonSnapshot, AnswerFetchSnapshot, FinishSnapshot, WriteSnapshot
from raftlake.raft.events import FailureReason, RequestFailed, RequestReceived, ResponseReceived, SnapshotReceived
from raftlake.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, OffsetAndEpoch, VoterSet
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.snapshot_files import describe
from raftlake.replica.partition.voter_log import read_batch_voters
from raftlake.replica.snapshots.check import SnapshotCheck
from raftlake.replica.snapshots.held import HeldSnapshots
from raftlake.wire.snapshots import SnapshotAssembler

logger = logging.getLogger("raftlake.snapshots")

SnapshotAction = AnswerFetchSnapshot | WriteSnapshot | FinishSnapshot | AbandonSnapshot


@dataclass(slots=True)
class _Asked:
    """An incoming RPC; answered when every part is."""

    reply: Callable[[PeerReply], None]
    bytes_left: int
    missing: int
    parts: dict[int, PeerMessage] = field(default_factory=dict)


class _Download:
    """A snapshot that arrives."""

    def __init__(self, writer: SnapshotWriter, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.writer = writer
        self.assembler = SnapshotAssembler(snapshot_id.epoch, snapshot_id.offset)
        self.voters: VoterSet | None = None
        self.damage: CorruptBatch | None = None

    def add(self, data: bytes | bytearray | memoryview) -> None:
        self.writer.append(bytes(data))
        if self.damage is not None:
            return
        try:
            for index, batch in self.assembler.feed(data):
                if index == 0:
                    self.voters = read_batch_voters(batch.data)
        except CorruptBatch as error:
            self.damage = error


class SnapshotTransfer:
    def __init__(self, engine: Engine, names: Names, disk: DiskWatch, check: SnapshotCheck, held: HeldSnapshots) -> None:
        self._engine = engine
        self._names = names
        self._disk = disk
        self._check = check
        self._held = held
        self._request_counter = 0
        #: Parts that a core has not answered yet: whose, and where in the reply they belong.
        self._unanswered: dict[int, tuple[_Asked, int, PeerMessage]] = {}
        self._downloads: dict[GroupId, _Download] = {}
        engine.closed.append(self._on_closed)

    def perform(self, partition: Partition, action: SnapshotAction) -> None:
        match action:
            case AnswerFetchSnapshot():
                self._serve(action)
            case WriteSnapshot():
                self._write(partition.group, action)
            case FinishSnapshot():
                self._finish(partition, action.snapshot_id)
            case AbandonSnapshot():
                self.abandon(partition.group)
            case _:
                assert_never(action)

    # --- out ---

    def receive(self, rpc: FetchSnapshotRpc, reply: Callable[[PeerReply], None]) -> None:
        """A replica asks; the top-level check (cluster id) is done."""
        asked = _Asked(reply, max(min(rpc.size_max, self._engine.config.snapshot_fetch_bytes_max), 1), len(rpc.messages))
        if not rpc.messages:
            reply(FetchSnapshotReply(error=ErrorCode.NONE))
        for index, message in enumerate(rpc.messages):
            request = message.body
            assert isinstance(request, FetchSnapshotRequest)
            partition = self._engine.partitions.get(message.group)
            if partition is None:
                error = self._names.why_unknown(message.group)
                self._put(asked, index, message.group, refusal(request, error, NO_LEADER, Epoch(-1)))
                continue
            self._request_counter += 1
            self._unanswered[self._request_counter] = (asked, index, message)
            self._engine.step(partition, RequestReceived(request_id=self._request_counter, request=request))

    def _serve(self, action: AnswerFetchSnapshot) -> None:
        asked, index, message = self._unanswered.pop(action.request_id)
        self._put(asked, index, message.group, self._response(asked, message.group, action))

    def _response(self, asked: _Asked, group: GroupId, action: AnswerFetchSnapshot) -> FetchSnapshotResponse:
        request, leader_id, leader_epoch = action.request, action.leader_id, action.leader_epoch
        if action.error is not ErrorCode.NONE:
            return refusal(request, action.error, leader_id, leader_epoch)
        store = self._engine.logs.snapshots
        size = store.size(group, request.snapshot_id)
        if size is None:
            return refusal(request, ErrorCode.SNAPSHOT_NOT_FOUND, leader_id, leader_epoch)
        if request.position == 0:
            self._check.on_begun(group, request.snapshot_id, request.replica.id)
        if not 0 <= request.position < size:
            return refusal(request, ErrorCode.POSITION_OUT_OF_RANGE, leader_id, leader_epoch)
        try:
            data = store.read(group, request.snapshot_id, request.position, max(asked.bytes_left, 1))
        except TooManyFiles as error:
            # Nothing is wrong with the log of this leader: the replica asks again.
            self._disk.on_full(error)
            return refusal(request, ErrorCode.KAFKA_STORAGE_ERROR, leader_id, leader_epoch)
        asked.bytes_left -= len(data)
        self._held.note(group, request.snapshot_id)
        return FetchSnapshotResponse(
            error=ErrorCode.NONE,
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            snapshot_id=request.snapshot_id,
            size=size,
            position=request.position,
            data=data,
        )

    def _put(self, asked: _Asked, index: int, group: GroupId, response: FetchSnapshotResponse) -> None:
        asked.parts[index] = PeerMessage(group, response)
        if len(asked.parts) == asked.missing:
            parts = tuple(asked.parts[position] for position in range(asked.missing))
            asked.reply(FetchSnapshotReply(error=ErrorCode.NONE, messages=parts))

    def _on_closed(self, partition: Partition) -> None:
        """What arrives for the group is of no use, and its core answers nothing any more."""
        self.abandon(partition.group)
        left = [number for number, (_, _, message) in self._unanswered.items() if message.group == partition.group]
        for number in left:
            asked, index, message = self._unanswered.pop(number)
            request = message.body
            assert isinstance(request, FetchSnapshotRequest)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._put(asked, index, message.group, refusal(request, error, NO_LEADER, Epoch(-1)))

    # --- in ---

    def send(self, group: GroupId, peer: NodeId, request: FetchSnapshotRequest) -> None:
        """Ask for the next piece."""
        engine = self._engine
        rpc = FetchSnapshotRpc(
            cluster_id=engine.cluster_id,
            replica_id=engine.config.node_id,
            size_max=engine.config.snapshot_fetch_bytes_max,
            messages=(PeerMessage(group, request),),
        )

        def on_reply(reply: PeerReply | FailureReason) -> None:
            engine.begin_input()
            partition = engine.partitions.get(group)
            if partition is None:
                return
            answers = [part.body for part in reply.messages] if isinstance(reply, FetchSnapshotReply) else []
            if len(answers) == 1 and isinstance(answers[0], FetchSnapshotResponse):
                engine.step(partition, ResponseReceived(source=peer, request=request, response=answers[0]))
                return
            reason = reply if isinstance(reply, FailureReason) else FailureReason.DISCONNECTED
            engine.step(partition, RequestFailed(peer=peer, request=request, reason=reason))

        engine.network.send(peer, rpc, on_reply)

    def _write(self, group: GroupId, action: WriteSnapshot) -> None:
        if action.position == 0:
            self.abandon(group)
            writer = self._engine.logs.snapshots.create(group, action.snapshot_id)
            self._downloads[group] = _Download(writer, action.snapshot_id)
        assert isinstance(action.data, bytes | bytearray | memoryview)
        self._downloads[group].add(action.data)

    def _finish(self, partition: Partition, snapshot_id: OffsetAndEpoch) -> None:
        download = self._downloads[partition.group]
        if download.damage is not None or not download.assembler.is_complete:
            reason = download.damage or "it is cut short"
            logger.error("%s: the leader's snapshot %s arrived damaged: %s", partition.group, describe(snapshot_id), reason)
            self.abandon(partition.group)
            self._engine.step(partition, SnapshotReceived(snapshot_id=snapshot_id, is_intact=False))
            return

        def on_durable(error: StorageError | None) -> None:
            engine = self._engine
            engine.begin_input()
            if isinstance(error, DiskFull):
                self._begin_again_later(partition, download, error)
                return
            if error is not None:
                engine.fail(error)
                return
            if self._downloads.get(partition.group) is download:
                del self._downloads[partition.group]
            if not partition.deleted:
                engine.step(partition, SnapshotReceived(snapshot_id=snapshot_id, is_intact=True, voters=download.voters))

        download.writer.freeze(on_durable)

    def _begin_again_later(self, partition: Partition, download: _Download, error: DiskFull) -> None:
        """There was no room for it. A full node fetches nothing, and is told of the snapshot again when it does."""
        engine = self._engine
        self._disk.on_full(error)
        if self._downloads.get(partition.group) is download:
            self.abandon(partition.group)
        if not partition.deleted:
            engine.step(partition, SnapshotReceived(snapshot_id=download.snapshot_id, is_intact=False))

    def abandon(self, group: GroupId) -> None:
        """Throw away what has arrived of a snapshot of `group`, if anything."""
        download = self._downloads.pop(group, None)
        if download is not None:
            download.writer.abandon()


def refusal(request: FetchSnapshotRequest, error: ErrorCode, leader_id: NodeId, leader_epoch: Epoch) -> FetchSnapshotResponse:
    """An answer without data."""
    return FetchSnapshotResponse(
        error=error, leader_id=leader_id, leader_epoch=leader_epoch, snapshot_id=request.snapshot_id, position=request.position
    )
