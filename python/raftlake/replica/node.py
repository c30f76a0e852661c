"""The synchronous driver of one node: builds the services and wires them together.

`Front` takes what comes in, `Turn` performs what the inputs brought about. Nothing here waits (but see `LogSyncer.start`), and
no clock is read but the one that is given. `sim` runs exactly this class."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import RaftlakeError
from raftlake.ports.driver import Aside, Clock, ElectionStore, LogDirectory, Network, PeerConnection
from raftlake.ports.peer_rpcs import PeerReply, PeerRpc
from raftlake.ports.tier import RemoteTier
from raftlake.raft.types import NodeId, Offset, Rng
from raftlake.replica.apis import Apis
from raftlake.replica.aside.allowance import Allowance
from raftlake.replica.aside.later_turns import LaterTurns
from raftlake.replica.aside.record_checks import RecordChecks
from raftlake.replica.aside.time_searches import TimeSearches
from raftlake.replica.compaction.compactor import Compactor
from raftlake.replica.config import ClientContext, NodeConfig
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.scrub import Scrub
from raftlake.replica.disk.syncer import LogSyncer
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.front import Front
from raftlake.replica.handover import Handover
from raftlake.replica.hosting.auto_creation import AutoCreation
from raftlake.replica.hosting.first_leaders import FirstLeaders
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.proposals import ProposalGate
from raftlake.replica.kv.refused_keys import RefusedKeys
from raftlake.replica.kv.room import KvRoom
from raftlake.replica.kv.service import KvService
from raftlake.replica.kv.state import KvState
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.record_deletion import RecordDeletion
from raftlake.replica.refused_for_good import RefusedForGood
from raftlake.replica.replication.control import ControlPlane
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.replica.replication.in_sync import InSync
from raftlake.replica.replication.proofs import AwaitedProofs
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.reports import Reports
from raftlake.replica.services import Services
from raftlake.replica.snapshots.check import SnapshotCheck
from raftlake.replica.snapshots.held import HeldSnapshots
from raftlake.replica.snapshots.snapshots import Snapshots
from raftlake.replica.snapshots.transfer import SnapshotTransfer
from raftlake.replica.tiering.read_tally import ReadTally
from raftlake.replica.tiering.remote_aborted import RemoteAborted
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remote_log_aux import RemoteLogAux
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.replica.tiering.remote_searches import RemoteSearches
from raftlake.replica.tiering.tiering import Tiering
from raftlake.replica.transactions.additions import Additions
from raftlake.replica.transactions.coordinator import Coordinator
from raftlake.replica.transactions.deadlines import Deadlines
from raftlake.replica.transactions.delivery import MarkerDelivery
from raftlake.replica.transactions.desk import MarkerDesk
from raftlake.replica.transactions.markers import Markers
from raftlake.replica.transactions.producer_ids import ProducerIds
from raftlake.replica.transactions.service import Transactions
from raftlake.replica.transactions.verification import Verification
from raftlake.replica.turn.actions import Actions
from raftlake.replica.turn.housekeeping import Housekeeping
from raftlake.replica.turn.restart import Restarts
from raftlake.replica.turn.segment_ages import SegmentAges
from raftlake.replica.turn.turn import Turn
from raftlake.replica.voters.changes import VoterChanges
from raftlake.replica.voters.cluster_identity import ClusterIdentity
from raftlake.replica.voters.describe import Describer
from raftlake.replica.voters.membership import Membership
from raftlake.replica.voters.own_vote import OwnVote
from raftlake.wire.api import RequestHeader
from raftlake.wire.quorum import QuorumDescription


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
        tier: RemoteTier | None = None,
    ) -> None:
        self.engine = engine = Engine(
            config, clock=clock, network=network, logs=logs, elections=elections, rng=rng, request_turn=request_turn
        )
        self.config = config
        self.partitions = engine.partitions
        self.timers = engine.timers
        self._build_ground()
        self._build_replication()
        self._build_state()
        self._build_groups()
        self.remote_log = RemoteLog(engine, self.kv, is_on=tier is not None)
        self.remote_log_aux = RemoteLogAux(
            engine,
            producers=self.producers,
            disk=self.disk,
            snapshots=self.snapshots,
            remote_log=self.remote_log,
            tier=tier,
        )
        self.tiering = Tiering(
            engine,
            kv=self.kv,
            quorum=self.quorum,
            disk=self.disk,
            findings=self.findings,
            remote_log=self.remote_log,
            tier=tier,
        )
        self.record_deletion = RecordDeletion(
            engine,
            names=self.names,
            quorum=self.quorum,
            kv=self.kv,
            disk=self.disk,
            findings=self.findings,
            snapshots=self.snapshots,
            table=self.tiering.table,
        )
        self._build_clients(aside or LaterTurns(engine), tier)
        self._build_turn()

    def _build_ground(self) -> None:
        engine = self.engine
        self.quorum = Quorum(engine)
        self.names = Names(self.config)
        self.reports = Reports(engine)
        self.producers = ProducerCare(engine)
        self.handover = Handover(engine, self.quorum, self.reports)
        self.disk = DiskWatch(engine, self.quorum)
        self.findings = Findings(engine, self.disk.on_full)
        self.damage = DamageControl(engine, self.names, self.quorum)
        self.cluster_identity = ClusterIdentity(engine, self.quorum, self.disk)

    def _build_replication(self) -> None:
        engine, proofs = self.engine, AwaitedProofs()
        self.fetch_server = FetchServer(engine, self.names, self.disk, self.findings, proofs)
        self.fetchers = Fetchers(engine, self.disk)
        self.control = ControlPlane(engine, self.fetch_server)
        self.reads = ReadService(engine, self.names, self.fetch_server, proofs)
        engine.confirm_peers = self._confirm_peers

    def _build_state(self) -> None:
        engine, state = self.engine, KvState()
        self.kv = KvService(
            engine,
            state,
            quorum=self.quorum,
            disk=self.disk,
            findings=self.findings,
            reads=self.reads,
            gate=ProposalGate(engine, state, self.names),
            refused_keys=RefusedKeys(engine, state),
            room=KvRoom(engine, state),
        )
        held = HeldSnapshots(engine)
        self.snapshots = Snapshots(engine, self.producers, self.disk, self.kv, held)
        check = SnapshotCheck(engine, self.snapshots)
        self.snapshot_transfer = SnapshotTransfer(engine, self.names, self.disk, check, held)

    def _build_groups(self) -> None:
        engine = self.engine
        self.hosting = Hosting(
            engine,
            names=self.names,
            quorum=self.quorum,
            reports=self.reports,
            producers=self.producers,
            disk=self.disk,
            damage=self.damage,
            kv=self.kv,
            snapshots=self.snapshots,
        )
        # In this order those who listen for changes of the key space hear of them.
        self.topics = TopicRegistry(
            engine, names=self.names, quorum=self.quorum, disk=self.disk, kv=self.kv, hosting=self.hosting
        )
        self.membership = Membership(engine, self.quorum, self.kv, self.fetch_server, self.cluster_identity)
        self.voter_changes = VoterChanges(engine, self.quorum, self.fetch_server, self.reads)
        self.describer = Describer(engine, self.names, self.quorum, self.fetch_server)
        # In this order those who hold something for a group let go of it when the group is closed.
        self.in_sync = InSync(
            engine,
            quorum=self.quorum,
            fetch_server=self.fetch_server,
            fetchers=self.fetchers,
            nodes=self.membership.nodes,
        )
        self.first_leaders = FirstLeaders(engine, self.kv, self.in_sync.present)
        self.reports.role_listeners += [self.in_sync.on_role, self.first_leaders.on_role]
        engine.closed += [
            lambda partition: self.reads.drop(partition.group),
            self.voter_changes.drop,
            lambda partition: self.control.refuse_all(partition.group),
            lambda partition: self.fetchers.forget(partition.group),
        ]

    def _build_transactions(self) -> None:
        engine = self.engine
        self.producer_ids = ProducerIds(self.kv)
        coordinator = Coordinator(engine, kv=self.kv, quorum=self.quorum, take_id=self.producer_ids.take)
        self.verification = Verification(engine, self.kv, Additions(engine, kv=self.kv, coordinator=coordinator))
        self.markers = Markers(engine, keys=self.kv, verification=self.verification, prove=self.reads.prove)
        delivery = MarkerDelivery(
            engine, state=self.kv.state, names=self.names, markers=self.markers, on_marked=coordinator.on_marked
        )
        deadlines = Deadlines(engine, kv=self.kv, coordinator=coordinator)
        self.transactions = Transactions(engine, kv=self.kv, coordinator=coordinator, delivery=delivery, deadlines=deadlines)

    def _build_clients(self, aside: Aside, tier: RemoteTier | None) -> None:
        engine = self.engine
        self._allowance = Allowance()
        self.refused_for_good = RefusedForGood(engine)
        self.record_checks = RecordChecks(engine, self._allowance, aside, is_tiered=self.remote_log.is_on)
        self.time_searches = TimeSearches(engine, self.findings, self._allowance, aside, self.remote_log.deleted_below)
        self.read_tally = ReadTally(engine)
        self._build_transactions()
        self.remote_reads = RemoteReads(engine, self.remote_log, tier, self.read_tally, aside)
        self.services = Services(
            engine=engine,
            names=self.names,
            quorum=self.quorum,
            findings=self.findings,
            refused_for_good=self.refused_for_good,
            handover=self.handover,
            kv=self.kv,
            topics=self.topics,
            auto_creation=AutoCreation(engine, self.topics, self.refused_for_good),
            first_leaders=self.first_leaders,
            membership=self.membership,
            producers=self.producers,
            markers=self.markers,
            producer_ids=self.producer_ids,
            transactions=self.transactions,
            voter_changes=self.voter_changes,
            describer=self.describer,
            in_sync=self.in_sync,
            record_checks=self.record_checks,
            remote_log=self.remote_log,
            remote_reads=self.remote_reads,
            remote_aborted=RemoteAborted(self.remote_reads),
            time_searches=RemoteSearches(engine, self.remote_log, self.time_searches, tier, self.read_tally),
        )
        apis = Apis(self.services)
        self.own_vote = OwnVote(engine, self.quorum, apis.change_for_peer)
        self.front = Front(
            engine,
            apis=apis,
            control=self.control,
            fetch_server=self.fetch_server,
            fetchers=self.fetchers,
            identity=self.cluster_identity,
            kv=self.kv,
            marker_desk=MarkerDesk(engine, self.markers),
            reads=self.reads,
            snapshot_transfer=self.snapshot_transfer,
        )

    def _build_turn(self) -> None:
        engine = self.engine
        self.actions = Actions(
            control=self.control,
            damage=self.damage,
            fetch_server=self.fetch_server,
            fetchers=self.fetchers,
            handover=self.handover,
            hosting=self.hosting,
            kv=self.kv,
            reads=self.reads,
            remote_log_aux=self.remote_log_aux,
            reports=self.reports,
            snapshot_transfer=self.snapshot_transfer,
            voter_changes=self.voter_changes,
        )
        restarts = Restarts(
            engine,
            findings=self.findings,
            damage=self.damage,
            fetch_server=self.fetch_server,
            hosting=self.hosting,
            actions=self.actions,
        )
        self.turn = Turn(
            engine,
            actions=self.actions,
            allowance=self._allowance,
            control=self.control,
            disk=self.disk,
            fetch_server=self.fetch_server,
            fetchers=self.fetchers,
            findings=self.findings,
            gate=self.verification,
            handover=self.handover,
            kv=self.kv,
            reads=self.reads,
            restarts=restarts,
            syncer=LogSyncer(engine),
            voter_changes=self.voter_changes,
        )
        self.scrub = Scrub(engine, self.findings)
        self.compactor = Compactor(
            engine,
            disk=self.disk,
            findings=self.findings,
            producers=self.producers,
            about_to_compact=self.fetch_server.about_to_compact,
            registered=self.membership.nodes,
        )
        ticking = (
            self.producers.tick,
            self.cluster_identity.tick,
            self.membership.tick,
            self.in_sync.tick,
            self.first_leaders.tick,
            self.voter_changes.tick,
            self.own_vote.tick,
            self.snapshots.tick,
            self.kv.room.tick,
            self.disk.tick,
            self.tiering.tick,
            self.remote_log_aux.tick,
            self.record_deletion.tick,
            self.transactions.tick,
            SegmentAges(engine, self.disk, self.findings).tick,
            self.compactor.tick,
        )
        self._housekeeping = Housekeeping(
            engine,
            disk=self.disk,
            findings=self.findings,
            producers=self.producers,
            scrub=self.scrub,
            snapshots=self.snapshots,
            ticking=ticking,
            table=self.tiering.table,
            adopted_start=self.remote_log.adopted_start,
        )

    def _confirm_peers(self, partition: Partition) -> None:
        if partition.core.is_leader:
            self.fetch_server.confirm(partition.group)
        else:
            self.fetchers.confirm(partition)

    # --- life ---

    def start(self) -> None:
        """Open the metadata log and every group found on disk, and begin."""
        self.engine.begin_input()
        self.hosting.open_all()
        self._housekeeping.run()

    def resign(self) -> None:
        """Graceful stop, first half: hand over what is led here and stop campaigning."""
        self.engine.begin_input()
        self.engine.request_turn()
        self.handover.begin()

    @property
    def fatal(self) -> RaftlakeError | None:
        """Why the node has stopped for good: the shell ends the process."""
        return self.engine.fatal

    # --- inputs and turns ---

    def receive(self, connection: PeerConnection, rpc: PeerRpc, reply: Callable[[PeerReply], None]) -> None:
        """An RPC of a peer (or a ReadOffset of a client). `reply` is called exactly once, now or later."""
        self.front.receive(connection, rpc, reply)

    def handle(self, header: RequestHeader, message: object, client: ClientContext, reply: Callable[[object], None]) -> None:
        """A client's request; `reply` is called once with the answer, or with None where there is none to send (acks=0)."""
        self.front.handle(header, message, client, reply)

    def peer_unreachable(self, peer: NodeId) -> None:
        """An established connection to `peer` was closed by it, or a new one refused."""
        self.front.peer_unreachable(peer)

    def next_deadline_ms(self) -> int | None:
        return self.timers.next_ms()

    def on_deadline(self) -> None:
        self.front.on_deadline()

    def run_turn(self) -> None:
        """Perform everything that the inputs since the last turn asked for."""
        self.turn.run()

    # --- questions ---

    @property
    def cluster_id(self) -> str | None:
        return self.engine.cluster_id

    @property
    def metadata_leader_id(self) -> NodeId:
        """See `Quorum.leader_id`."""
        return self.quorum.leader_id

    def finalized_kraft_version(self) -> tuple[int, Offset]:
        """See `Quorum.finalized_kraft_version`."""
        return self.quorum.finalized_kraft_version()

    def finalized_transaction_version(self) -> int:
        """See `Membership.transaction_version`."""
        return self.membership.transaction_version

    def is_ready(self) -> bool:
        """The quorum serves this node (`Quorum.is_ready`), and this node can tell clients where its leader is reached."""
        return self.quorum.is_ready() and self.membership.endpoint(self.quorum.leader_id) is not None

    def describe(self, topic: str | None = None, partition: int = 0) -> QuorumDescription | None:
        """A group (default: the quorum's log) as this node can describe it; None where it is not hosted."""
        return self.describer.describe(topic, partition)
