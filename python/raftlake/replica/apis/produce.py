"""Produce (key 0): batches are checked, then passed into the log as they came.

A batch that no reader can read would stop every reader of the partition for good, so each is checked by its header, its CRC and
the frames of its records (`replica.record_checks`); compressed payloads are decompressed for that once and thrown away. Keys
and values are not looked at. acks=1 waits for the majority like acks=all: this log has no weaker acknowledgement to give.

Transactional batches need the transactional id of their request. Whether they may begin a transaction in their partition is
judged where they get their offsets (`Partition.admit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from raftlake.errors import ErrorCode, RequestRejected, for_clients
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_LEADER, Offset
from raftlake.replica.aside.check_line import Asker, Checked
from raftlake.replica.aside.record_checks import RequestBudget, first_of_idempotent
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.configs.in_force import InForce
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.partition.producer_state import NO_PRODUCER
from raftlake.replica.refused_for_good import APPEND
from raftlake.replica.services import Services
from raftlake.wire.batches import BatchHeader, parse_header
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.produce import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
)

TIMEOUT_MS_MAX = 600_000
#: Says that nothing was appended. Of the codes that might say more it is the one after which librdkafka, Java and franz-go try
#: again, go on with an idempotent producer, and do not look for another leader.
NO_ROOM = ErrorCode.NOT_ENOUGH_REPLICAS
#: Refused so before they are taken into the log's sequence, batches come again: the checks had no room, or came too late.
COMES_AGAIN = (NO_ROOM, ErrorCode.REQUEST_TIMED_OUT)
NOT_KNOWN_YET = "this node has started, and has not read yet what the topic asks for; nothing was appended"
#: Of a batch that keeps the times of its producer.
NO_TIME = -1
TWICE = "partition {} stands in the request more than once"


class _Collector:
    """The parts of one request, answered together once each has been decided."""

    __slots__ = ("_client", "_is_silent", "_missing", "_node", "_reply", "_results")

    def __init__(self, node: Services, request: ProduceRequest, client: ClientContext, reply: Callable[[object], None]) -> None:
        self._node = node
        self._client = client
        self._reply = reply
        self._is_silent = request.acks == 0
        self._results = [
            ProduceTopicResult(
                topic.name, topic.topic_id, [ProducePartitionResult(part.index, ErrorCode.NONE) for part in topic.partitions]
            )
            for topic in request.topics
        ]
        self._missing = sum(len(topic.partitions) for topic in request.topics)
        if self._missing == 0:
            self._end()

    def put(
        self,
        topic: int,
        part: int,
        partition: Partition | None,
        error: ErrorCode,
        base_offset: int,
        message: str | None = None,
        time_ms: int = NO_TIME,
    ) -> None:
        result = self._results[topic].partitions[part]
        result.error = error
        result.base_offset = base_offset
        result.error_message = message
        result.log_append_time_ms = time_ms
        _decide(self._node, self._results[topic].name, self._client, result, partition)
        self._missing -= 1
        if self._missing == 0:
            self._end()

    def _end(self) -> None:
        """With acks=0 nothing is sent, but the request counts as one under way until it stands in the log (or never will)."""
        if self._is_silent:
            self._reply(None)
        else:
            self._reply(_with_endpoints(self._node, self._results))


def produce(
    node: Services, request: ProduceRequest, version: int, client: ClientContext, reply: Callable[[object], None]
) -> None:
    """`version` is that of the request: what a transactional producer is told depends on it."""
    deadline_ms = node.engine.now_ms + min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
    asker = Asker(client.connection, deadline_ms, request.acks != 0, client)
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1 and request.acks != 0:
        # The commonest request by far: its answer needs no gathering.
        (topic,) = request.topics
        (part,) = topic.partitions
        budget = RequestBudget(len(part.records or b""))
        answer_one = partial(_answer_one, node, client, topic, part.index, reply)
        _produce_one(node, request, version, topic, part, budget, asker, answer_one)
        return
    times = Counter((topic.name, topic.topic_id, part.index) for topic in request.topics for part in topic.partitions)
    budget = RequestBudget(sum(len(part.records or b"") for topic in request.topics for part in topic.partitions))
    collector = _Collector(node, request, client, reply)
    for topic_index, topic in enumerate(request.topics):
        for part_index, part in enumerate(topic.partitions):
            answer = partial(collector.put, topic_index, part_index)
            if times[topic.name, topic.topic_id, part.index] > 1:
                answer(None, ErrorCode.INVALID_REQUEST, -1, TWICE.format(part.index))
            else:
                _produce_one(node, request, version, topic, part, budget, asker, answer)


def _answer_one(
    node: Services,
    client: ClientContext,
    topic: ProduceTopic,
    index: int,
    reply: Callable[[object], None],
    partition: Partition | None,
    error: ErrorCode,
    base_offset: int,
    message: str | None = None,
    time_ms: int = NO_TIME,
) -> None:
    """The answer to a request for one partition."""
    result = ProducePartitionResult(index, error, base_offset, time_ms, error_message=message)
    _decide(node, topic.name, client, result, partition)
    results = [ProduceTopicResult(topic.name, topic.topic_id, [result])]
    reply(ProduceResponse(results) if result.current_leader is None else _with_endpoints(node, results))


def _decide(
    node: Services, name: str | None, client: ClientContext, result: ProducePartitionResult, partition: Partition | None
) -> None:
    """Fill in what an answer says of the partition besides the outcome, and tell the node's log of a refusal. With acks=0 the
    log is all that tells of it."""
    if result.error_message:
        topic = name or "" if partition is None else partition.group.topic
        node.refused_for_good.note_error(APPEND, topic, result.error, result.error_message, client)
        result.error_message = for_clients(result.error_message)
    if partition is not None:
        result.log_start_offset = node.remote_log.start_offset(partition)
        if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.core.leader_id != NO_LEADER:
            result.current_leader = LeaderAndEpoch(partition.core.leader_id, partition.core.epoch)


def _with_endpoints(node: Services, results: list[ProduceTopicResult]) -> ProduceResponse:
    """The answer; where it names leaders it says how they are reached."""
    endpoints: list[NodeEndpoint] = []
    if any(part.current_leader is not None for topic in results for part in topic.partitions):
        nodes = node.membership.nodes()
        endpoints = [NodeEndpoint(node_id, endpoint.host, endpoint.port) for node_id, endpoint in nodes.items()]
    return ProduceResponse(results, node_endpoints=endpoints)


#: Called with the partition (None: unknown here), the error, the base offset, for a refusal why, and the time that the leader
#: wrote into the batch.
Answer = Callable[..., None]


def _produce_one(
    node: Services,
    request: ProduceRequest,
    version: int,
    topic: ProduceTopic,
    part: ProducePartition,
    budget: RequestBudget,
    asker: Asker,
    answer: Answer,
) -> None:
    group = node.names.group_of(topic.name, topic.topic_id, part.index)
    partition = node.engine.partitions.get(group)
    done = partial(answer, partition)
    if partition is None:
        error = node.names.why_unknown(group) if topic.topic_id is None else ErrorCode.UNKNOWN_TOPIC_ID
        done(error, -1, node.names.told_unknown(group))
        return
    try:
        records = _records(node, request, group, part)
    except RequestRejected as rejected:
        done(rejected.code, -1, rejected.message)
        return
    if _is_elsewhere(node, partition):
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        return
    append = partial(_append, node, partition, records, request.transactional_id, version, asker, done)
    node.record_checks.check(partition, asker, budget, records, append)


def _is_elsewhere(node: Services, partition: Partition) -> bool:
    return not partition.core.is_leader and not node.handover.holds(partition)


def _append(
    node: Services,
    partition: Partition,
    records: bytearray | memoryview,
    transactional_id: str | None,
    version: int,
    asker: Asker,
    done: Answer,
    checked: Checked,
) -> None:
    """The records were looked at; that may have taken a while."""
    is_elsewhere = partition.deleted or _is_elsewhere(node, partition)
    if isinstance(checked, RequestRejected):
        if checked.code in COMES_AGAIN and not is_elsewhere:
            _send_back(partition, first_of_idempotent(records))
        done(checked.code, -1, checked.message)
    elif is_elsewhere:
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    elif checked[0].is_transactional and transactional_id is None:
        # As Kafka, which takes it for a producer that may not use the id that it does not name.
        done(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, "transactional records without their id")
    elif partition.in_force is None:
        _send_back(partition, checked[0])
        done(NO_ROOM, -1, NOT_KNOWN_YET)
    elif (too_large := _fault_of_size(partition, partition.in_force, checked)) is not None:
        done(too_large.code, -1, too_large.message)
    else:
        idempotent = checked[0].producer_id != NO_PRODUCER
        refuse = partial(done, NO_ROOM, -1)
        pending = PendingAppend(records, checked, asker.deadline_ms, done, idempotent, waits=asker.waits, refuse=refuse)
        if transactional_id is not None:
            pending.transactional_id, pending.version = transactional_id, version
        if partition.in_force.stamps_time:
            pending.stamps_time = True
            pending.done = partial(_done_at, node, partition, pending, done)
        partition.appending.append(pending)
        node.engine.mark_appending(partition)


def _send_back(partition: Partition, first: BatchHeader | None) -> None:
    """What is refused comes again, and before what is behind it."""
    if first is not None and first.producer_id != NO_PRODUCER:
        partition.producers.send_back(first.producer_id, first.producer_epoch, first.base_sequence)


def _fault_of_size(partition: Partition, asked: InForce, headers: Sequence[BatchHeader]) -> RequestRejected | None:
    """Why the topic takes no batch so large. One that comes again is in the log already, and is answered so."""
    largest = headers[0].size if len(headers) == 1 else max(header.size for header in headers)
    if largest <= asked.message_bytes_max or _is_repeated(partition, headers[0]):
        return None
    return RequestRejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {largest} bytes exceeds max.message.bytes={asked.message_bytes_max} of topic {partition.group.topic!r}",
    )


def _is_repeated(partition: Partition, first: BatchHeader) -> bool:
    if first.producer_id == NO_PRODUCER:
        return False
    known = partition.producers.find(first.producer_id, first.producer_epoch, first.base_sequence, first.record_count)
    return known is not None


def _done_at(
    node: Services,
    partition: Partition,
    pending: PendingAppend,
    done: Answer,
    error: ErrorCode,
    base_offset: int,
    message: str | None = None,
) -> None:
    """The answer with the time that the leader wrote. A batch that came again has the time that stands in the log."""
    time_ms = pending.append_time_ms
    if error is ErrorCode.NONE and time_ms == NO_TIME:
        time_ms = node.findings.guarded(partition.group, partial(_time_in_log, partition, base_offset)) or NO_TIME
    done(error, base_offset, message, time_ms if error is ErrorCode.NONE else NO_TIME)


def _time_in_log(partition: Partition, offset: int) -> int:
    """The time of the batch at `offset`; -1 where its producer gave it, or retention has removed it."""
    if partition.deleted or not partition.log.start_offset <= offset < partition.log.end_offset:
        return NO_TIME
    header = parse_header(partition.log.read(Offset(offset), partition.log.end_offset, 1))
    return header.timestamp_ms_max if header.is_log_append_time else NO_TIME


def _records(node: Services, request: ProduceRequest, group: GroupId, part: ProducePartition) -> bytearray | memoryview:
    """What is to be appended, not looked at yet; RequestRejected names what is wrong with the request."""
    if request.acks not in (-1, 0, 1):
        raise RequestRejected(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, got {request.acks}")
    if group.topic == METADATA_TOPIC:
        raise RequestRejected(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{METADATA_TOPIC} takes commands of nodes only")
    if request.transactional_id is not None and node.engine.config.is_opaque:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, "another program's log has no transactions")
    if not part.records:
        raise RequestRejected(ErrorCode.INVALID_RECORD, "the request holds no records")
    if len(part.records) > node.engine.config.message_bytes_max:
        raise RequestRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(part.records)} bytes for one partition exceed message.max.bytes={node.engine.config.message_bytes_max}",
        )
    assert isinstance(part.records, (bytearray, memoryview))
    return part.records
