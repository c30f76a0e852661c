"""The synchronous driver of one node: feeds events to the Raft cores of all groups and performs their actions in order.

A *turn*: inputs (RPCs, timers, finished syncs, client requests) step the cores, whose actions gather per group. `run_turn` then
performs them together: election states first, in one batched save; then each group's actions in order, so that everything
appended in the turn is one write per log; then what the turn says leaves the node (fetch answers, requests, replies); last,
one sync of all logs written is started. So followers write and sync in parallel with the leader.

Never waits (but see `LogSyncer.start`), and reads no clock but the one it is given. `sim` runs exactly this class."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import DamagedData, DiskFull, InvariantViolation, RaftlakeError, StorageError
from raftlake.ports.driver import Aside, Clock, ElectionStore, LogDirectory, Network, PeerConnection
from raftlake.ports.peer_rpcs import GroupId, PeerMessage, PeerReply, PeerRpc
from raftlake.raft import actions as do
from raftlake.raft.events import AppendRequested, Event, PeerUnreachable
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.types import NO_LEADER, NodeId, Offset, Rng
from raftlake.replica.apis import Apis
from raftlake.replica.apis.describe import describe_quorum
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.aside.record_checks import RecordChecks
from raftlake.replica.aside.time_searches import TimeSearches
from raftlake.replica.config import METADATA_GROUP, ClientContext, NodeConfig
from raftlake.replica.deadlines import GroupDeadlines
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.disk.syncer import LogSyncer
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.handover import Handover
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.peer_requests import answer_peer
from raftlake.replica.quorum import Quorum
from raftlake.replica.replication.control import ControlPlane
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import PeerFetcher, fetch_from
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.reports import Reports
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.replica.snapshots.transfer import SnapshotTransfer
from raftlake.replica.timers import TimerQueue
from raftlake.replica.turn.housekeeping import Housekeeping
from raftlake.replica.voters.changes import VoterChanges
from raftlake.replica.voters.membership import Membership
from raftlake.replica.voters.own_vote import OwnVote
from raftlake.wire.api import RequestHeader
from raftlake.wire.quorum import QuorumDescription

#: Turns that breed turns without end are a bug, not load.
PASSES_MAX = 10_000


class ReplicaNode:
    """One node's replicas. Every method is called from one thread; see `ports` for what the node needs from the world."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        network: Network,
        logs: LogDirectory,
        elections: ElectionStore,
        rng: Rng,
        request_turn: Callable[[], None],
        aside: Aside | None = None,
    ) -> None:
        self.config = config
        self.cluster_id = config.cluster_id
        self.clock = clock
        self.network = network
        self.logs = logs
        self.elections = elections
        self.rng = rng
        self._ask_for_turn = request_turn
        #: A turn is asked for or under way; whoever asks meanwhile is served by it.
        self._turn_is_coming = False
        self.now_ms = clock.now_ms()
        self.fatal: RaftlakeError | None = None
        self.partitions: dict[GroupId, Partition] = {}
        self.timers = TimerQueue(self.request_turn)
        self.reports = Reports(self)
        self._dirty: dict[GroupId, Partition] = {}
        self._to_append: dict[GroupId, Partition] = {}
        self._fetchers: dict[NodeId, PeerFetcher] = {}
        self._fetchers_to_send: dict[PeerFetcher, None] = {}
        self._syncer = LogSyncer(self)
        self._deadlines = GroupDeadlines(self)
        self.is_resigning = False
        self.quorum = Quorum(self)
        self.disk = DiskWatch(self)
        self.hosting = Hosting(self)
        self.damage = DamageControl(self)
        self.fetch_server = FetchServer(self)
        self.control = ControlPlane(self)
        self.reads = ReadService(self)
        self.kv = KvService(self)
        self.snapshots = Snapshots(self)
        self.snapshot_transfer = SnapshotTransfer(self)
        self.topics = TopicRegistry(self)
        self.membership = Membership(self)
        self.voter_changes = VoterChanges(self)
        self.own_vote = OwnVote(self)
        self._allowance = Allowance()
        self.record_checks = RecordChecks(self, self._allowance, aside)
        self.time_searches = TimeSearches(self, self._allowance)
        self._apis = Apis(self)
        self.handover = Handover(self)
        self._housekeeping = Housekeeping(self)

    # --- life ---

    def start(self) -> None:
        """Open the metadata log and every group found on disk, and begin."""
        self.begin_input()
        self.hosting.open_all()
        self._housekeeping.run()

    def resign(self) -> None:
        """Graceful stop, first half: hand over what is led here and stop campaigning."""
        self.begin_input()
        self.request_turn()
        self.handover.begin()

    def fail(self, error: RaftlakeError) -> None:
        """Stop for good: the disk failed or an invariant broke. The shell sees `fatal` and ends the process."""
        if self.fatal is None:
            self.fatal = error
            self.request_turn()

    # --- inputs ---

    def request_turn(self) -> None:
        """There is something for a turn to do (or a deadline that the shell has to see after it)."""
        if not self._turn_is_coming:
            self._turn_is_coming = True
            self._ask_for_turn()

    def begin_input(self) -> None:
        """Every input begins here: read the clock once. Whatever the input brings about asks for the turn by itself."""
        self.now_ms = self.clock.now_ms()

    def receive(self, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None:
        """An RPC of a peer (or a ReadOffset of a client). `reply` is called exactly once, now or later."""
        self.begin_input()
        answer_peer(self, connection, rpc, reply)

    def handle(self, header: RequestHeader, message: object, client: ClientContext, reply: Callable[[object], None]) -> None:
        """A client's request; `reply` is called once with the answer, or with None where there is none to send (acks=0)."""
        self.begin_input()
        self._apis.handle(header, message, client, reply)

    def peer_unreachable(self, peer: NodeId) -> None:
        """An established connection to `peer` was closed by it, or a new one refused. Its followers and leaders mind."""
        self.begin_input()
        for partition in list(self.partitions.values()):
            if partition.core.is_leader or partition.core.leader_id == peer:
                self.step(partition, PeerUnreachable(peer=peer))

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_ms()

    def on_deadline(self) -> None:
        self.begin_input()
        try:
            self.timers.run_due(self.now_ms)
        except (StorageError, InvariantViolation) as error:
            self.fail(error)

    def forget(self, partition: Partition) -> None:
        """The group is no longer hosted: nothing of it is performed any more."""
        partition.outbox.clear()
        self._dirty.pop(partition.group, None)
        self._to_append.pop(partition.group, None)
        self.reads.drop(partition.group)
        self.voter_changes.drop(partition)
        self.control.refuse_all(partition.group)
        for fetcher in self._fetchers.values():
            fetcher.forget(partition.group)

    # --- stepping cores ---

    def step(self, partition: Partition, event: Event) -> None:
        """Report an event to a group's core; its actions are performed at the end of the turn."""
        core = partition.core
        actions = core.step(event, self.now_ms)
        if actions:
            partition.outbox.extend(actions)
            self.mark_dirty(partition)
        self._deadlines.arm(partition)

    def confirm_peers(self, partition: Partition) -> None:
        """Tell a group what the Fetch rounds have shown of its leader, or of its replicas, since it last heard of them."""
        core = partition.core
        if core.is_leader:
            self.fetch_server.confirm(partition.group)
        elif core.leader_id in self._fetchers:
            self._fetchers[core.leader_id].confirm(partition.group)

    def mark_dirty(self, partition: Partition) -> None:
        """The partition has actions to perform."""
        self._dirty[partition.group] = partition
        self.request_turn()

    def mark_appending(self, partition: Partition) -> None:
        """The partition has records to append at the end of this turn."""
        self._to_append[partition.group] = partition
        self.request_turn()

    def mark_fetcher(self, fetcher: PeerFetcher) -> None:
        """The fetcher may be able to send its next round."""
        self._fetchers_to_send[fetcher] = None
        self.request_turn()

    # --- the turn ---

    def run_turn(self) -> None:
        """Perform everything that the inputs since the last turn asked for."""
        if self.fatal is not None:
            return
        self.now_ms = self.clock.now_ms()
        self._turn_is_coming = True
        self._allowance.renew()
        try:
            self.damage.repair_found()
            is_synced = True
            while is_synced:
                self._perform_all()
                self.fetch_server.send_answers()
                self.control.send_all()
                fetchers, self._fetchers_to_send = self._fetchers_to_send, {}
                for fetcher in fetchers:
                    fetcher.send_round()
                is_synced = self._syncer.start() and self.fatal is None
        except (StorageError, InvariantViolation) as error:
            self.fail(error)
        finally:
            self._turn_is_coming = False
        if self._dirty or self._to_append or self._fetchers_to_send or self.fetch_server.has_answers or self.damage.has_found:
            self.request_turn()

    def _perform_all(self) -> None:
        for _ in range(PASSES_MAX):
            if self._to_append:
                self._step_appends()
            if not self._dirty:
                return
            self._perform_dirty()
        raise InvariantViolation(f"a turn did not end after {PASSES_MAX} passes")

    def _step_appends(self) -> None:
        self.kv.batch_collected()
        to_append, self._to_append = self._to_append, {}
        for partition in to_append.values():
            if self.handover.holds(partition):
                continue
            if not partition.core.is_leader:
                partition.refuse_appends()
                continue
            admitted = partition.admit(self.reads.prove, self.disk.refusal(partition))
            if admitted:
                counts = tuple(header.last_offset_delta + 1 for pending in admitted for header in pending.headers)
                self.step(partition, AppendRequested(record_counts=counts, payload=admitted))

    def _perform_dirty(self) -> None:
        dirty, self._dirty = self._dirty, {}
        states = {
            partition.group: action.state
            for partition in dirty.values()
            for action in partition.outbox
            if isinstance(action, do.SaveElectionState)
        }
        if states:
            dirty = self.disk.save(dirty, states)
        for partition in dirty.values():
            actions, partition.outbox = partition.outbox, []
            try:
                for action in actions:
                    if not partition.deleted:
                        self.perform(partition, action)
            except DamagedData as damage:
                self.damage.found(partition.group, damage)
            except DiskFull as full:
                self.disk.on_full(full)
                self.damage.restart_without_room(partition)
            if partition.needs_flush:
                self._syncer.mark(partition)

    def perform(self, partition: Partition, action: do.Action) -> None:
        group = partition.group
        match action:
            case do.AppendRecords():
                partition.append_records(action)
                self.fetch_server.appended(group, action)
            case do.AnswerFetch():
                self.fetch_server.answer(group, action)
            case do.AdvanceHighWatermark():
                self.advance(partition, action.high_watermark)
            case do.AppendFetched():
                partition.append_fetched(action)
            case do.SendRequest():
                self._send(partition, action)
            case do.Respond():
                self.control.respond(action)
            case do.AnswerRead():
                self.reads.answered(action)
            case do.AnswerVoterChange():
                self.voter_changes.answered(action)
            case do.ReleaseFetchRounds():
                self.fetch_server.release()
            case do.SaveElectionState():
                pass  # Saved already, before any action of this pass.
            case do.AppendLeaderChange() | do.AppendVoters():
                partition.append_control(action)
            case do.TruncateTo():
                partition.truncate(action.end_offset)
            case do.ResetLog():
                self.hosting.reset(partition, action.start)
            case do.MendReplica():
                self.damage.mended(group)
            case do.ReportRole():
                self.reports.role(partition, action)
            case do.ReportRefusedEpoch():
                self.reports.refused_epoch(group, action)
            case _:
                self.snapshot_transfer.perform(partition, action)

    def advance(self, partition: Partition, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is committed; of the metadata log, clients see what is applied."""
        shown = self.kv.apply_to(partition, high_watermark) if partition.group == METADATA_GROUP else high_watermark
        if shown >= max(partition.shown_before, 1):
            partition.on_high_watermark(shown)

    def _send(self, partition: Partition, action: do.SendRequest) -> None:
        if isinstance(action.request, FetchRequest):
            fetch_from(self, self._fetchers, action.destination, partition.group, action.request)
        elif isinstance(action.request, FetchSnapshotRequest):
            self.snapshot_transfer.send(partition.group, action.destination, action.request)
        else:
            self.control.send(PeerMessage(partition.group, action.request), action)

    def tell_fetchers(self, group: GroupId, leader_id: NodeId) -> None:
        """Who leads a group now is to be fetched from, and nobody else."""
        for fetcher in self._fetchers.values():
            fetcher.on_role(group, leader_id)

    # --- questions ---

    def resolve_topic(self, topic_id: bytes) -> str | None:
        """The name of a topic that this node knows by its id (16 bytes), be it only from a directory on disk."""
        return self.hosting.resolve_topic(topic_id)

    def resolve_group(self, topic: str, partition: int) -> GroupId:
        """The group that a name stands for today; with a zero id where the topic is unknown."""
        return self.hosting.resolve_group(topic, partition)

    @property
    def metadata_leader_id(self) -> NodeId:
        """The leader of the quorum's log (Kafka's "controller"), NO_LEADER when none is known."""
        partition = self.partitions.get(self.config.quorum_group)
        return NO_LEADER if partition is None else partition.core.leader_id

    def is_ready(self) -> bool:
        """The leader of the quorum's log is there and this node has applied up to its high watermark at least once."""
        partition = self.partitions.get(self.config.quorum_group)
        return partition is not None and partition.core.hears_leader and partition.high_watermark > 0

    def describe(self, topic: str | None = None, partition: int = 0) -> QuorumDescription | None:
        """A group (default: the quorum's log) as this node can describe it; None where it is not hosted."""
        hosted = self.partitions.get(self.config.quorum_group if topic is None else self.resolve_group(topic, partition))
        return None if hosted is None else describe_quorum(self, hosted)
