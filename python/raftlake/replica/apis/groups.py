"""FindCoordinator (10), and the requests to the coordinator of a consumer group, which there are not.

A client asks for a coordinator as soon as it has a group id, also one that assigns partitions and will never need it, and
librdkafka reports an error of that answer to the application. So each node names itself as the coordinator of every group, and
refuses what a member of one would ask for: joining, and keeping offsets. The coordinator of all transactions is the node that
leads the metadata log.
"""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.config import ClientContext
from raftlake.replica.refused_for_good import COMMIT, COMMITTED, JOIN, MEMBER, SHARE, TRANSACTIONS, Kind
from raftlake.replica.services import Services

GROUP, TRANSACTION = 0, 1
#: No client goes on asking after these.
NO_GROUPS = ErrorCode.INVALID_REQUEST
NO_TRANSACTIONS = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
WHY = "raftlake has no consumer groups: assign partitions and keep offsets in your checkpoint"
WHY_NO_TRANSACTIONS = "the log of another program has no transactions"


def find_coordinator(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers = Answers(request)
    kind = getattr(request, "key_type", GROUP)
    place: dict[str, object] = {"node_id": -1, "host": "", "port": -1}
    error, why = ErrorCode.NONE, None
    if kind == GROUP:
        listener = node.engine.config.listener
        place = {"node_id": node.engine.config.node_id, "host": listener.host, "port": listener.port}
    elif kind == TRANSACTION and not node.engine.config.is_opaque:
        leader_id = node.quorum.leader_id
        endpoint = node.membership.nodes().get(leader_id)
        if endpoint is None:
            error, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no node leads the metadata log, or its address is not known yet"
        else:
            place = {"node_id": leader_id, "host": endpoint.host, "port": endpoint.port}
    else:
        is_transaction = kind == TRANSACTION
        error, why = (NO_TRANSACTIONS, WHY_NO_TRANSACTIONS) if is_transaction else (ErrorCode.INVALID_REQUEST, WHY)
        keys = request.coordinator_keys if type(request).__version__ >= 4 else (request.key,)
        for key in keys:
            node.refused_for_good.note(TRANSACTIONS if is_transaction else SHARE, key, why, client)
    found = {"error_code": kafka_error(error), "error_message": why, **place}
    if type(request).__version__ >= 4:
        keys = dict.fromkeys(request.coordinator_keys)
        coordinators = tuple(answers.make("Coordinator", key=key, **found) for key in keys)
        reply(answers.make("FindCoordinatorResponse", coordinators=coordinators))
    else:
        reply(answers.make("FindCoordinatorResponse", **found))


def _note(node: Services, kind: Kind, request: Any, client: ClientContext) -> None:
    """The answers have no room for a reason."""
    node.refused_for_good.note(kind, request.group_id, WHY, client)


def join_group(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, JOIN, request, client)
    reply(
        Answers(request).make(
            "JoinGroupResponse",
            error_code=kafka_error(NO_GROUPS),
            protocol_name="",
            leader="",
            member_id="",
            members=(),
        )
    )


def sync_group(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, MEMBER, request, client)
    reply(Answers(request).make("SyncGroupResponse", error_code=kafka_error(NO_GROUPS), assignment=b""))


def heartbeat(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, MEMBER, request, client)
    reply(Answers(request).make("HeartbeatResponse", error_code=kafka_error(NO_GROUPS)))


def leave_group(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, MEMBER, request, client)
    reply(Answers(request).make("LeaveGroupResponse", error_code=kafka_error(NO_GROUPS), members=()))


def offset_commit(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, COMMIT, request, client)
    answers = Answers(request)
    topics = tuple(
        answers.make(
            "OffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                answers.make(
                    "OffsetCommitResponsePartition",
                    partition_index=partition.partition_index,
                    error_code=kafka_error(NO_GROUPS),
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    reply(answers.make("OffsetCommitResponse", topics=topics))


def offset_fetch(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _note(node, COMMITTED, request, client)
    answers = Answers(request)
    refused = {"error_code": kafka_error(NO_GROUPS)}
    topics = tuple(
        answers.make(
            "OffsetFetchResponseTopic",
            name=topic.name,
            partitions=tuple(
                answers.make("OffsetFetchResponsePartition", partition_index=index, committed_offset=-1, metadata="", **refused)
                for index in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    )
    reply(answers.make("OffsetFetchResponse", topics=topics, **refused))
