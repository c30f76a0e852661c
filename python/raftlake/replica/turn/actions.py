"""Which service performs which action of a core.

Owns nothing but the way from an action to its service. The order of the actions, and what happens when one fails, belong to
`turn` and to `restart`.
"""

from __future__ import annotations

from raftlake.ports.peer_rpcs import PeerMessage
from raftlake.raft import actions as do
from raftlake.raft.messages import FetchRequest, FetchSnapshotRequest
from raftlake.raft.types import Offset
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.handover import Handover
from raftlake.replica.hosting.hosting import Hosting
from raftlake.replica.kv.service import KvService
from raftlake.replica.partition.partition import Partition
from raftlake.replica.replication.control import ControlPlane
from raftlake.replica.replication.fetch_server import FetchServer
from raftlake.replica.replication.fetcher import Fetchers
from raftlake.replica.replication.reads import ReadService
from raftlake.replica.reports import Reports
from raftlake.replica.snapshots.transfer import SnapshotTransfer
from raftlake.replica.tiering.remote_log_aux import RemoteLogAux
from raftlake.replica.voters.changes import VoterChanges


class Actions:
    def __init__(
        self,
        *,
        control: ControlPlane,
        damage: DamageControl,
        fetch_server: FetchServer,
        fetchers: Fetchers,
        handover: Handover,
        hosting: Hosting,
        kv: KvService,
        reads: ReadService,
        remote_log_aux: RemoteLogAux,
        reports: Reports,
        snapshot_transfer: SnapshotTransfer,
        voter_changes: VoterChanges,
    ) -> None:
        self._control = control
        self._damage = damage
        self._fetch_server = fetch_server
        self._fetchers = fetchers
        self._handover = handover
        self._hosting = hosting
        self._kv = kv
        self._reads = reads
        self._remote_log_aux = remote_log_aux
        self._reports = reports
        self._snapshot_transfer = snapshot_transfer
        self._voter_changes = voter_changes

    def perform(self, partition: Partition, action: do.Action) -> None:
        group = partition.group
        match action:
            case do.AppendRecords():
                partition.append_records(action)
                self._fetch_server.appended(group, action)
            case do.AnswerFetch():
                self._fetch_server.answer(group, action)
            case do.AdvanceHighWatermark():
                self._advance(partition, action.high_watermark)
            case do.AdoptLogStart():
                partition.log.note_start(action.log_start)
            case do.AppendFetched():
                partition.append_fetched(action)
            case do.SendRequest():
                self._send(partition, action)
            case do.Respond():
                self._control.respond(action)
            case do.AnswerRead():
                self._reads.answered(action)
            case do.AnswerVoterChange():
                self._voter_changes.answered(action)
            case do.ReleaseFetchRounds():
                self._fetch_server.release()
            case do.SaveElectionState():
                pass  # Saved already, before any action of this pass.
            case do.AppendLeaderChange() | do.AppendVoters():
                partition.append_control(action)
            case do.TruncateTo():
                partition.truncate(action.end_offset)
            case do.ResetLog():
                self._hosting.reset(partition, action.start)
            case do.MendReplica():
                partition.wholeness.mended()
                self._damage.mended(group)
            case do.ReportRole():
                self._on_role(partition, action)
            case do.BuildRemoteLogAux() | do.AbandonRemoteLogAux():
                self._remote_log_aux.perform(partition, action)
            case do.ReportRefusedEpoch():
                self._reports.refused_epoch(group, action)
            case _:
                self._snapshot_transfer.perform(partition, action)

    def _advance(self, partition: Partition, high_watermark: Offset) -> None:
        """Everything below `high_watermark` is committed; of the metadata log, clients see what is applied."""
        partition.wholeness.committed(high_watermark)
        if partition.group == METADATA_GROUP:
            self._kv.advance(partition, high_watermark)
        else:
            partition.show(high_watermark)

    def _send(self, partition: Partition, action: do.SendRequest) -> None:
        if isinstance(action.request, FetchRequest):
            self._fetchers.fetch(action.destination, partition.group, action.request)
        elif isinstance(action.request, FetchSnapshotRequest):
            self._snapshot_transfer.send(partition.group, action.destination, action.request)
        else:
            self._control.send(PeerMessage(partition.group, action.request), action)

    def _on_role(self, partition: Partition, report: do.ReportRole) -> None:
        if not partition.core.is_leader:
            partition.on_leadership_lost(keep_new=self._handover.holds(partition))
        else:
            self._remote_log_aux.tell(partition)
        self._fetchers.on_role(partition.group, report.leader_id)
        self._reports.role(partition.group, report)
