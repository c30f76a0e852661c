"""DeleteRecords (21): the records of a partition below an offset are deleted, for good and on all nodes.

The leader of the partition takes it, since it knows the high watermark. The decision is a key of the quorum, and no record of
the partition's own log. Each node applies the keys anyway, and snapshots and new nodes have them. The log stays one that the
tools of Kafka understand. The answer leaves once the key is committed and applied here. Deleting what is deleted already
changes nothing, so clients may repeat it. What retention has deleted on the leader's disk may stand on others still, so that is
no deletion already. The answer tells where the leader's records begin.

A topic whose cleanup.policy is compact alone keeps its records: of each key the newest one, for good. Kafka refuses too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import Put, Txn
from raftlake.kv.keys import start_key
from raftlake.ports.peer_rpcs import GroupId, ReadOffsetResult
from raftlake.raft.types import Offset
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.partition.partition import Partition
from raftlake.replica.refused_for_good import DELETE
from raftlake.replica.reserved import OWN_LOG, RecordStart, recovery_of
from raftlake.replica.services import Services
from raftlake.wire.ids import id_to_text

#: In the place of an offset: up to the high watermark.
HIGH_WATERMARK = -1
NO_OFFSET = -1
#: Keys that one transaction writes.
KEYS_PER_TXN = 500
COMPACT_ONLY = "topic {!r} has cleanup.policy=compact; set it to compact,delete or delete first"

#: An answer: the error, and where the partition begins then.
Low = tuple[ErrorCode, int]


def delete_records(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _Deletion(node, request, client, reply).begin()


class _Deletion:
    """One request. Each of its partitions is answered once; the request when all are, or when its time is over."""

    def __init__(self, node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
        self._node = node
        self._request = request
        self._client = client
        self._reply = reply
        self._results: dict[tuple[int, int], Low] = {}
        self._missing = sum(len(topic.partitions) for topic in request.topics)
        self._is_over = False

    def begin(self) -> None:
        node = self._node
        timeout_ms = max(0, int(self._request.timeout.total_seconds() * 1000))
        wanted: dict[tuple[int, int], tuple[Partition, Offset]] = {}
        times = Counter((topic.name, part.partition_index) for topic in self._request.topics for part in topic.partitions)
        for place, topic_name, asked in self._asked():
            repeated = times[topic_name, asked.partition_index] > 1
            try:
                if repeated:
                    told = f"partition {asked.partition_index} stands in the request more than once"
                    raise RequestRejected(ErrorCode.INVALID_REQUEST, told)
                wanted[place] = _checked(node, topic_name, asked)
            except RequestRejected as rejected:
                # The answer has no room for a reason.
                node.refused_for_good.note_error(DELETE, topic_name, rejected.code, rejected.message, self._client)
                self._put(place, rejected.code)
        if wanted:
            node.engine.timers.schedule(node.engine.now_ms + timeout_ms, self._end)
            # Which recovery was the last one, and where the partitions begin: as of now.
            node.kv.read(True, partial(self._on_proven, wanted))
        else:
            self._end()

    def _asked(self) -> list[tuple[tuple[int, int], str, Any]]:
        return [
            ((row, column), topic.name, asked)
            for row, topic in enumerate(self._request.topics)
            for column, asked in enumerate(topic.partitions)
        ]

    def _on_proven(self, wanted: dict[tuple[int, int], tuple[Partition, Offset]], result: ReadOffsetResult) -> None:
        puts: list[tuple[tuple[int, int], Put]] = []
        recovery = recovery_of(self._node.kv.machine)
        for place, (partition, offset) in wanted.items():
            if result.error is not ErrorCode.NONE:
                self._put(place, ErrorCode.REQUEST_TIMED_OUT)
            elif offset <= self._node.kv.state.records_from(partition.group):
                self._put_low(place, partition)
            else:
                group = partition.group
                puts.append((place, Put(_key_of(group), RecordStart(offset, recovery).encode())))
        for first in range(0, len(puts), KEYS_PER_TXN):
            chosen = dict(puts[first : first + KEYS_PER_TXN])
            done = partial(self._on_outcome, {place: wanted[place][0] for place in chosen})
            self._node.kv.propose_anywhere(Txn((), tuple(chosen.values())), done)

    def _on_outcome(self, partitions: dict[tuple[int, int], Partition], outcome: ProposeOutcome) -> None:
        for place, partition in partitions.items():
            if outcome.status is ProposeStatus.DONE:
                # A later start that stood there already is what holds.
                self._put_low(place, partition)
            else:
                self._put(place, outcome.error if outcome.reason else ErrorCode.REQUEST_TIMED_OUT)

    def _put_low(self, place: tuple[int, int], partition: Partition) -> None:
        if partition.deleted:
            self._put(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            self._put(place, ErrorCode.NONE, self._node.remote_log.start_offset(partition))

    def _put(self, place: tuple[int, int], error: ErrorCode, low: int = NO_OFFSET) -> None:
        self._results[place] = error, low
        self._missing -= 1
        if self._missing == 0:
            self._end()

    def _end(self) -> None:
        """What is not decided yet may be done all the same."""
        if self._is_over:
            return
        self._is_over = True
        answers = Answers(self._request)
        make: Callable[..., Any] = answers.make
        topics = []
        for row, topic in enumerate(self._request.topics):
            partitions = []
            for column, asked in enumerate(topic.partitions):
                error, low = self._results.get((row, column), (ErrorCode.REQUEST_TIMED_OUT, NO_OFFSET))
                partitions.append(
                    make(
                        "DeleteRecordsPartitionResult",
                        partition_index=asked.partition_index,
                        low_watermark=low,
                        error_code=kafka_error(error),
                    )
                )
            topics.append(make("DeleteRecordsTopicResult", name=topic.name, partitions=tuple(partitions)))
        self._reply(make("DeleteRecordsResponse", topics=tuple(topics)))


def _checked(node: Services, topic: str, asked: Any) -> tuple[Partition, Offset]:
    """The partition and the offset that it shall begin at. Raises RequestRejected."""
    group = node.names.resolve_group(topic, asked.partition_index)
    partition = node.engine.partitions.get(group)
    if topic == METADATA_TOPIC or group == node.engine.config.quorum_group:
        raise RequestRejected(ErrorCode.INVALID_TOPIC_EXCEPTION, OWN_LOG)
    if partition is None:
        raise RequestRejected(node.names.why_unknown(group))
    if not partition.core.is_leader:
        raise RequestRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if not partition.is_serving:
        raise RequestRejected(ErrorCode.LEADER_NOT_AVAILABLE)
    if partition.in_force is not None and partition.in_force.compaction is not None and not partition.in_force.deletes:
        raise RequestRejected(ErrorCode.POLICY_VIOLATION, COMPACT_ONLY.format(topic))
    offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else Offset(asked.offset)
    if not 0 <= offset <= partition.high_watermark:
        told = f"offset {offset} of {group}: accepted are 0 to {partition.high_watermark}, the high watermark, or -1 for that"
        raise RequestRejected(ErrorCode.OFFSET_OUT_OF_RANGE, told)
    return partition, offset


def _key_of(group: GroupId) -> str:
    return start_key(id_to_text(group.topic_id), group.partition)
