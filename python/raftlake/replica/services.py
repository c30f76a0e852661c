"""The services of a node that the client APIs call, by name. The wiring (`node`) builds it; `apis` reads it."""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.replica.aside.record_checks import RecordChecks
from raftlake.replica.disk.findings import Findings
from raftlake.replica.engine import Engine
from raftlake.replica.handover import Handover
from raftlake.replica.hosting.auto_creation import AutoCreation
from raftlake.replica.hosting.first_leaders import FirstLeaders
from raftlake.replica.hosting.topics import TopicRegistry
from raftlake.replica.kv.service import KvService
from raftlake.replica.names import Names
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.quorum import Quorum
from raftlake.replica.refused_for_good import RefusedForGood
from raftlake.replica.replication.in_sync import InSync
from raftlake.replica.tiering.remote_aborted import RemoteAborted
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.replica.tiering.remote_searches import RemoteSearches
from raftlake.replica.transactions.markers import Markers
from raftlake.replica.transactions.producer_ids import ProducerIds
from raftlake.replica.transactions.service import Transactions
from raftlake.replica.voters.changes import VoterChanges
from raftlake.replica.voters.describe import Describer
from raftlake.replica.voters.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    engine: Engine
    names: Names
    quorum: Quorum
    findings: Findings
    refused_for_good: RefusedForGood
    handover: Handover
    kv: KvService
    topics: TopicRegistry
    auto_creation: AutoCreation
    first_leaders: FirstLeaders
    membership: Membership
    producers: ProducerCare
    markers: Markers
    producer_ids: ProducerIds
    transactions: Transactions
    voter_changes: VoterChanges
    describer: Describer
    in_sync: InSync
    record_checks: RecordChecks
    remote_log: RemoteLog
    remote_reads: RemoteReads
    remote_aborted: RemoteAborted
    time_searches: RemoteSearches
