"""The one state machine on this node: proposing commands to the metadata log, applying what is committed, reading.

A command's fate is decided when it is applied, so its proposer learns the result from this node's own apply.
What was proposed and then lost from sight (leadership moved, time ran out) is *unknown*, never "failed".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlake.errors import ErrorCode, TooManyFiles, WireError, for_clients
from raftlake.kv.commands import FORMAT_RANGES, Txn, encode
from raftlake.kv.machine import TxnResult
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import PeerReply, ProposeReply, ProposeRpc, ReadOffsetResult
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.kv.forwarding import Forwarding
from raftlake.replica.kv.outcomes import ProposeDone, ProposeOutcome, ProposeStatus, refused
from raftlake.replica.kv.proposals import ProposalGate, command_of
from raftlake.replica.kv.recent_results import RecentResults
from raftlake.replica.kv.refused_keys import RefusedKeys
from raftlake.replica.kv.restore import KvRestore, release
from raftlake.replica.kv.room import Admission, KvRoom, NoRoom
from raftlake.replica.kv.state import KvState
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.quorum import Quorum
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.timers import Timer
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers

#: Applied at once, or one batch that is larger: some milliseconds' work. What is more follows in later turns.
APPLY_SLICE_BYTES = 128 * 1024
APPLY_INTERVAL_MS = 1
#: As many keys of ranges of commands are as much work: what a range costs does not follow from the length of its command.
APPLY_SLICE_RANGE_KEYS = 10_000
#: What a command with ranges begins with.
_RANGES = bytes((FORMAT_RANGES,))
#: Commands that are proposed together become batches of about so many bytes, since a batch is applied as a whole.
PROPOSED_BATCH_BYTES = 128 * 1024
#: Results kept, at least, for proposals that were forwarded: their reply may arrive after this node has applied them.
RESULTS_KEPT_MIN = 32_768


class KvService:
    def __init__(
        self,
        engine: Engine,
        state: KvState,
        *,
        quorum: Quorum,
        disk: DiskWatch,
        findings: Findings,
        reads: ReadService,
        gate: ProposalGate,
        refused_keys: RefusedKeys,
        room: KvRoom,
    ) -> None:
        self._engine = engine
        self._quorum = quorum
        self._disk = disk
        self._findings = findings
        self._reads = reads
        self.state = state
        self.machine = state.machine
        self.gate = gate
        self.refused_keys = refused_keys
        self.room = room
        #: Called after each apply that changed something, with the applied offset.
        self.listeners: list[Callable[[int], None]] = [self.refused_keys.on_applied]
        self._collected: list[tuple[bytes, ProposeDone]] = []
        self._results = RecentResults(RESULTS_KEPT_MIN)
        self._awaiting: dict[int, tuple[ProposeDone, Timer]] = {}
        self._restoring: KvRestore | None = None
        #: Committed and not applied yet: the partition as it was opened then, and up to where.
        self._behind: tuple[Partition, int] | None = None
        self._is_going_on = False
        #: Everything that was known to be committed has been applied once.
        self._has_caught_up = False
        #: A restored state that nothing has been applied to yet: the next high watermark is news even so.
        self._is_untold = False
        #: Applied since the last snapshot was begun, in bytes of log.
        self.bytes_since_snapshot = 0
        #: The largest timestamp of a batch that was applied, -1 for none.
        self.applied_timestamp_ms = -1
        engine.closed.append(self._on_closed)

    # --- reads ---

    def read(self, linearizable: bool, done: Callable[[ReadOffsetResult], None]) -> None:
        """Call `done` when `machine` may be read: at once for a stale read, else once it holds all that was acknowledged."""
        if linearizable:
            self._engine.begin_input()
            self._reads.read(self._engine.config.quorum_group, done)
            return
        partition = self._quorum.partition
        done(
            ReadOffsetResult(
                group=self._engine.config.quorum_group,
                error=ErrorCode.NONE,
                applied_offset=Offset(self.machine.applied_offset),
                leader_id=NO_LEADER if partition is None else partition.core.leader_id,
                leader_epoch=Epoch(-1) if partition is None else partition.core.epoch,
            )
        )

    # --- proposals ---

    def propose(self, txn: Txn, done: ProposeDone, origin: Origin = Origin.CLIENT) -> None:
        """Propose at this node. Everything proposed in one turn is one batch: one append, one sync."""
        self._engine.begin_input()
        partition = self._quorum.partition
        if self._engine.config.is_opaque or self.gate.refusal(txn, origin, self._engine.config.node_id) is not None:
            done(ProposeOutcome(ProposeStatus.REFUSED))
            return
        if partition is None or not partition.core.is_leader:
            done(ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=self._leader_heard_of()))
            return
        encoded = encode(txn)
        no_room = self._disk.refusal_of(partition, txn)
        if no_room:
            done(ProposeOutcome(ProposeStatus.REFUSED, reason=no_room, is_passing=True))
            return
        admission = self.room.reserve(txn)
        if isinstance(admission, NoRoom):
            done(refused(admission.error, admission.reason))
            return
        self._collected.append((encoded, partial(self._settled, admission, done)))
        self._engine.mark_appending(partition)

    def _settled(self, admission: Admission, done: ProposeDone, outcome: ProposeOutcome) -> None:
        self.room.settle(admission, is_unknown=outcome.status is ProposeStatus.UNKNOWN)
        done(outcome)

    def _leader_heard_of(self) -> NodeId:
        """Whom to send a client to: not to a leader that may be dead, though its successor is not known yet."""
        partition = self._quorum.partition
        return partition.core.leader_id if partition is not None and partition.core.hears_leader else NO_LEADER

    def propose_anywhere(self, txn: Txn, done: ProposeDone) -> None:
        """Propose what this node itself wants, here or at the leader; where none leads, again until the propose timeout."""
        self._engine.begin_input()
        Forwarding(self._engine, self._quorum, txn, done, propose=self.propose, await_result=self.await_result).attempt()

    def batch_collected(self) -> None:
        """Start of a turn's appends: make batches of what was collected."""
        collected, self._collected = self._collected, []
        first = size = 0
        for index, (value, _) in enumerate(collected, start=1):
            # Applied as a whole, a batch has one command with ranges at most.
            size += PROPOSED_BATCH_BYTES if value.startswith(_RANGES) else len(value)
            if size >= PROPOSED_BATCH_BYTES or index == len(collected):
                self._append_batch(collected[first:index])
                first, size = index, 0

    def _append_batch(self, collected: list[tuple[bytes, ProposeDone]]) -> None:
        now_ms = self._engine.clock.wall_ms()
        records = [
            Record(offset=index, timestamp_ms=now_ms, key=None, value=value) for index, (value, _) in enumerate(collected)
        ]
        batch = build_batch(records, base_offset=0, leader_epoch=0, timestamp_ms=now_ms)

        def on_committed(error: ErrorCode, base_offset: int) -> None:
            for index, (_, done) in enumerate(collected):
                if error is ErrorCode.NONE:
                    done(self._outcome_at(base_offset + index))
                elif error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    done(ProposeOutcome(ProposeStatus.NOT_LEADER, leader_id=self._leader_heard_of()))
                elif error is ErrorCode.REQUEST_TIMED_OUT:
                    done(ProposeOutcome(ProposeStatus.UNKNOWN))
                else:
                    done(ProposeOutcome(ProposeStatus.REFUSED))

        partition = self._quorum.partition
        if partition is None:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        else:
            self._append(partition, batch, on_committed)

    def _on_closed(self, partition: Partition) -> None:
        """The metadata log is started anew. No turn appends what was collected for it as it was. Whether a snapshot is to be
        restored is found out anew, for the one that was may be gone."""
        if partition.group == self._engine.config.quorum_group:
            if self._restoring is not None:
                self._restoring.cancel()
                self._restoring = None
            collected, self._collected = self._collected, []
            for _, done in collected:
                done(ProposeOutcome(ProposeStatus.NOT_LEADER))

    def receive(self, rpc: ProposeRpc, origin: Origin, reply: Callable[[PeerReply], None]) -> None:
        """A command that another node forwards. It is decoded, and judged by who sends it, before it may enter the log."""
        partition = self._quorum.partition
        if self._engine.config.is_opaque or partition is None or not partition.core.is_leader:
            reply(ProposeReply(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        try:
            txn = command_of(rpc)
        except WireError:
            reply(ProposeReply(error=ErrorCode.INVALID_RECORD))
            return
        refusal = self.gate.refusal(txn, origin, rpc.source)
        if refusal is not None:
            reply(ProposeReply(error=ErrorCode.POLICY_VIOLATION, message=for_clients(refusal)))
            return
        if self._disk.refusal_of(partition, txn):
            reply(ProposeReply(error=ErrorCode.NOT_ENOUGH_REPLICAS))
            return
        admission = self.room.reserve(txn)
        if isinstance(admission, NoRoom):
            reply(ProposeReply(error=admission.error))
            return

        def on_committed(error: ErrorCode, base: int) -> None:
            self.room.settle(admission, is_unknown=error is ErrorCode.REQUEST_TIMED_OUT)
            reply(ProposeReply(error=error, base_offset=Offset(base)))

        self._append(partition, bytearray(rpc.batch), on_committed)

    def _append(self, partition: Partition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        deadline_ms = self._engine.now_ms + self._engine.config.propose_timeout_ms
        headers = tuple(iterate_headers(batch))
        partition.appending.append(PendingAppend(batch, headers, deadline_ms, done, idempotent=False))
        self._engine.mark_appending(partition)

    # --- applying ---

    def advance(self, partition: Partition, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is committed in the metadata log; clients see what is applied.

        Raises DamagedData. What no file can be opened for is applied later."""
        try:
            partition.show(self._apply_to(partition, high_watermark))
        except TooManyFiles as error:
            self._findings.on_too_many(error)
            self._behind = (partition, high_watermark)
            self._go_on_later()

    def _apply_to(self, partition: Partition, high_watermark: int) -> int:
        """Apply what is committed below `high_watermark`, in order: a slice of it, and the rest in later turns, when `advance`
        is called again. Returns the high watermark that this node may show; 0 for none, while the state is being restored from
        a snapshot and until a node that starts has caught up."""
        if self._restoring is not None:
            self._restoring.high_watermark = max(self._restoring.high_watermark, high_watermark)
            return 0
        before = self.machine.applied_offset
        self._apply_slice(partition, high_watermark)
        applied = self.machine.applied_offset
        if applied > before or self._is_untold:
            self._tell()
        if before < applied < high_watermark:
            self._behind = (partition, high_watermark)
            self._go_on_later()
            return applied if self._has_caught_up else 0
        self._behind = None
        self._has_caught_up = True
        return high_watermark

    def _apply_slice(self, partition: Partition, high_watermark: int) -> None:
        """At least one batch, if there is any."""
        offset, size, machine = self.machine.applied_offset, 0, self.machine
        range_keys_max = machine.range_keys + APPLY_SLICE_RANGE_KEYS
        while offset < high_watermark and size < APPLY_SLICE_BYTES and machine.range_keys < range_keys_max:
            chunk = partition.read_intact(Offset(offset), Offset(high_watermark), APPLY_SLICE_BYTES - size)
            if not chunk:
                break
            end = high_watermark
            for record in decode_records(chunk):
                if offset <= record.offset < end:
                    result = machine.apply(record.offset, record.value or b"")
                    self._applied(result)
                    if result.ranges is not None and machine.range_keys >= range_keys_max:
                        end = min(end, _end_of_batch(chunk, record.offset))
            for header in iterate_headers(chunk):
                if header.base_offset >= end:
                    break
                offset = header.base_offset + header.last_offset_delta + 1
                self.applied_timestamp_ms = max(self.applied_timestamp_ms, header.timestamp_ms_max)
                size += header.size
            machine.advance_to(offset)
        self.bytes_since_snapshot += size

    def _go_on_later(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self._engine.timers.schedule(self._engine.now_ms + APPLY_INTERVAL_MS, self._go_on)

    def _go_on(self) -> None:
        self._is_going_on = False
        if self._behind is None:
            return
        partition, high_watermark = self._behind
        if self._engine.partitions.get(partition.group) is partition:
            self._go_on_with(partition, high_watermark)

    def _go_on_with(self, partition: Partition, high_watermark: int) -> None:
        """Outside of a turn. Those who waited for what is applied now are told in one."""
        self._findings.guarded(partition.group, lambda: self.advance(partition, Offset(high_watermark)))
        self._engine.request_turn()

    def _tell(self) -> None:
        self._is_untold = False
        for listener in list(self.listeners):
            listener(self.machine.applied_offset)

    @property
    def is_restoring(self) -> bool:
        """The state is on its way from a snapshot; until then the old one is read and nothing is applied."""
        return self._restoring is not None

    def restore(self, snapshot_id: OffsetAndEpoch) -> None:
        """Become what a snapshot says, in slices of the coming turns, and go on from there. What this node has shown it keeps:
        the log may begin anew before what has been applied."""
        if self.machine.applied_offset >= snapshot_id.offset:
            return
        if self._restoring is not None:
            self._restoring.cancel()
        self._restoring = KvRestore(self._engine, self.machine, snapshot_id, self._on_restored)

    def _on_restored(self, restored: KvRestore) -> None:
        self._restoring = None
        release(self._engine, self.machine.adopt(restored.restoration))
        self.bytes_since_snapshot = 0
        for offset in [offset for offset in self._awaiting if offset < self.machine.applied_offset]:
            # Its result is in the snapshot somewhere, but no longer to be told.
            done, timer = self._awaiting.pop(offset)
            timer.cancel()
            done(ProposeOutcome(ProposeStatus.UNKNOWN))
        self._tell()
        self._is_untold = True
        partition = self._quorum.partition
        if restored.high_watermark > 0 and partition is not None:
            self._go_on_with(partition, restored.high_watermark)

    def _applied(self, result: TxnResult) -> None:
        self._results.note(result)
        for key, reason in result.ignored:
            self.refused_keys.on_ignored(key, reason, result.offset)
        awaiting = self._awaiting.pop(result.offset, None)
        if awaiting is not None:
            done, timer = awaiting
            timer.cancel()
            done(ProposeOutcome(ProposeStatus.DONE, result))

    def await_result(self, offset: int, done: ProposeDone) -> None:
        """Call `done` with the result of the command that was committed at `offset`, now or when it is applied here; as unknown
        when that takes longer than a proposal may."""
        if offset < self.machine.applied_offset:
            done(self._outcome_at(offset))
        else:
            at_ms = self._engine.now_ms + self._engine.config.propose_timeout_ms
            self._awaiting[offset] = (done, self._engine.timers.schedule(at_ms, lambda: self._give_up(offset)))

    def _outcome_at(self, offset: int) -> ProposeOutcome:
        """Of the command at `offset`, which has been applied, or was in a snapshot."""
        result = self._results.get(offset)
        return ProposeOutcome(ProposeStatus.UNKNOWN if result is None else ProposeStatus.DONE, result)

    def _give_up(self, offset: int) -> None:
        done, _ = self._awaiting.pop(offset)
        done(ProposeOutcome(ProposeStatus.UNKNOWN))


def _end_of_batch(batches: bytes | bytearray | memoryview, offset: int) -> int:
    """Behind the last record of the batch that holds `offset`."""
    ends = (header.base_offset + header.last_offset_delta + 1 for header in iterate_headers(batches))
    return next(end for end in ends if end > offset)
