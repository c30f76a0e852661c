"""What a node answers to clients, one module for each subject. `Apis.handle` finds the handler of a request by its API key.

Reading order:

- `answers`: Kafka answers in the version of the request.
- `produce`: Produce; the checked batches go into the log as they came.
- `fetch`: Fetch for consumers, at the leader and at followers. `shown_records`: what it gives of one partition.
- `offsets`: ListOffsets and OffsetForLeaderEpoch.
- `replica_offsets`: the same for replicas that ask their leader.
- `cluster`: Metadata, DescribeCluster and DescribeQuorum.
- `configs`: DescribeConfigs. `alter_configs`: AlterConfigs and IncrementalAlterConfigs, of topics.
- `delete_records`: DeleteRecords, as keys that say where partitions begin.
- `log_dirs`: DescribeLogDirs, of this node's data directory.
- `create_partitions`: CreatePartitions, which lets topics grow.
- `topics`: CreateTopics and DeleteTopics, as transactions on keys.
- `producers`: InitProducerId, with ids from blocks that one key gives out.
- `transactions`: what transactional producers and tools ask the coordinator of transactions.
- `describe_producers`: DescribeProducers, who writes to a partition.
- `write_txn_markers`: WriteTxnMarkers, which ends a transaction that hangs.
- `groups`: FindCoordinator, and the refusal of what members of a consumer group ask for.
- `voters`: AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter (KIP-853).
- `find_quorum`: FindQuorum (KIP-595).

Callers: `node` builds `Apis`. `Front` calls `Apis.handle`, and for requests of nodes `Apis.describe_for_peer`,
`Apis.change_for_peer` and `Apis.offset_for_peer`. The handlers call the services in `Services`; they never see the node.

Invariants:

- A handler gets the decoded request and calls `reply` once, now or in a later turn.
- A handler never raises for what a client sent.
- No consumer gets a record above the high watermark that this node has applied, nor a control record of Raft.
- No consumer that reads what is committed gets a record at or above the last stable offset.
- acks=1 waits for the majority like acks=all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.errors import InvariantViolation
from raftlake.ports.peer_rpcs import DescribeRpc, OffsetRpc, PeerReply, VoterRpc
from raftlake.replica.apis import (
    alter_configs,
    cluster,
    configs,
    create_partitions,
    delete_records,
    describe_producers,
    groups,
    offsets,
    replica_offsets,
    topics,
    transactions,
    voters,
    write_txn_markers,
)
from raftlake.replica.apis.answers import Reply
from raftlake.replica.apis.fetch import ParkedFetches, fetch
from raftlake.replica.apis.find_quorum import find_quorum
from raftlake.replica.apis.log_dirs import LogDirs
from raftlake.replica.apis.produce import produce
from raftlake.replica.apis.producers import init_producer_id
from raftlake.replica.config import ClientContext
from raftlake.replica.services import Services
from raftlake.wire.api import ApiKey, RequestHeader
from raftlake.wire.produce import ProduceRequest

Handler = Callable[[Services, Any, Reply], None]
#: One that tells the node's log who asked.
ClientHandler = Callable[[Services, Any, ClientContext, Reply], None]


class Apis:
    def __init__(self, node: Services) -> None:
        self._node = node
        parked = ParkedFetches()
        self._handlers: dict[int, Handler] = {
            ApiKey.DESCRIBE_LOG_DIRS: LogDirs().answer,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
            ApiKey.DESCRIBE_QUORUM: cluster.describe_quorum_api,
            ApiKey.DESCRIBE_PRODUCERS: describe_producers.describe_producers,
            ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
            ApiKey.FIND_QUORUM: find_quorum,
        }
        self._client_handlers: dict[int, ClientHandler] = {
            ApiKey.FETCH: lambda of, request, client, reply: fetch(of, parked, request, client, reply),
            ApiKey.OFFSET_COMMIT: groups.offset_commit,
            ApiKey.OFFSET_FETCH: groups.offset_fetch,
            ApiKey.FIND_COORDINATOR: groups.find_coordinator,
            ApiKey.JOIN_GROUP: groups.join_group,
            ApiKey.HEARTBEAT: groups.heartbeat,
            ApiKey.LEAVE_GROUP: groups.leave_group,
            ApiKey.SYNC_GROUP: groups.sync_group,
            ApiKey.CREATE_TOPICS: topics.create_topics,
            ApiKey.DELETE_TOPICS: topics.delete_topics,
            ApiKey.DELETE_RECORDS: delete_records.delete_records,
            ApiKey.WRITE_TXN_MARKERS: write_txn_markers.write_txn_markers,
            ApiKey.INIT_PRODUCER_ID: init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
            ApiKey.END_TXN: transactions.end_txn,
            ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
            ApiKey.ALTER_CONFIGS: alter_configs.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs.incremental_alter_configs,
            ApiKey.LIST_OFFSETS: offsets.list_offsets,
            ApiKey.METADATA: cluster.metadata,
            ApiKey.CREATE_PARTITIONS: create_partitions.create_partitions,
            ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
            ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
            ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
            ApiKey.ADD_RAFT_VOTER: voters.add_raft_voter,
            ApiKey.REMOVE_RAFT_VOTER: voters.remove_raft_voter,
            ApiKey.UPDATE_RAFT_VOTER: voters.update_raft_voter,
        }

    def handle(self, header: RequestHeader, message: object, client: ClientContext, reply: Reply) -> None:
        """Answer a client's request; the shell sends only keys that the API table lists for a node."""
        if isinstance(message, ProduceRequest):
            produce(self._node, message, header.api_version, client, reply)
            return
        client_handler = self._client_handlers.get(header.api_key)
        if client_handler is not None:
            client_handler(self._node, message, client, reply)
            return
        handler = self._handlers.get(header.api_key)
        if handler is None:
            raise InvariantViolation(f"no handler for API key {header.api_key} of {client.host}")
        handler(self._node, message, reply)

    def describe_for_peer(self, rpc: DescribeRpc, reply: Callable[[PeerReply], None]) -> None:
        """The question of another node's client: answered from here, never passed on again."""
        cluster.describe_for_peer(self._node, rpc, reply)

    def offset_for_peer(self, rpc: OffsetRpc, reply: Callable[[PeerReply], None]) -> None:
        """A replica asks the leader of its group."""
        replica_offsets.offset_for_peer(self._node, rpc, reply)

    def change_for_peer(self, rpc: VoterRpc, reply: Callable[[PeerReply], None]) -> None:
        """A node asks about its own vote."""
        voters.change_for_peer(self._node, rpc, reply)
