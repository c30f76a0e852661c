"""DescribeLogDirs (35): what a node keeps in its data directory, and how much room its disk has.

Each node answers for itself: a tool that wants all asks all. The disk is looked at anew, beside the loop; questions that come
meanwhile wait for the same look. A disk that tells nothing is one that is gone: its directory is answered KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.driver import Room
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.apis.answers import Answers, Reply, kafka_error, once
from raftlake.replica.partition.partition import Partition
from raftlake.replica.services import Services


class LogDirs:
    """`answer` is the handler."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, Reply]] = []

    def answer(self, node: Services, request: Any, reply: Reply) -> None:
        self._waiting.append((request, reply))
        if len(self._waiting) > 1:
            return

        def looked(room: Room | None) -> None:
            node.engine.begin_input()
            waiting, self._waiting = self._waiting, []
            for asked, answer in waiting:
                answer(_described(node, asked, room))

        node.engine.logs.look_for_room(looked)


def partitions_described(node: Services, request: Any) -> int:
    """How many partitions the answer lists, at most: what it costs follows from that."""
    if request.topics is None:
        return node.kv.state.partition_count
    return sum(len(topic.partitions) for topic in request.topics)


def _described(node: Services, request: Any, room: Room | None) -> object:
    answers = Answers(request)
    topics = [] if room is None else [_topic(node, answers, name, groups) for name, groups in _groups(node, request).items()]
    result = answers.make(
        "DescribeLogDirsResult",
        error_code=kafka_error(ErrorCode.NONE if room is not None else ErrorCode.KAFKA_STORAGE_ERROR),
        log_dir=node.engine.config.log_dir,
        topics=tuple(topic for topic in topics if topic.partitions),
        total_bytes=-1 if room is None else room.total_bytes,
        usable_bytes=-1 if room is None else room.free_bytes,
    )
    return answers.make("DescribeLogDirsResponse", error_code=kafka_error(ErrorCode.NONE), results=(result,))


def _groups(node: Services, request: Any) -> dict[str, list[GroupId]]:
    """By topic; all of them but the quorum's own log, which is described where it is asked for."""
    if request.topics is None:
        return {topic.name: topic.groups() for topic in node.names.all()}
    found: dict[str, list[GroupId]] = {}
    for topic in request.topics:
        groups = found.setdefault(topic.topic, [])
        groups += (node.names.resolve_group(topic.topic, index) for index in topic.partitions)
    return {name: once(groups, lambda group: group.partition) for name, groups in found.items()}


def _topic(node: Services, answers: Answers, name: str, groups: list[GroupId]) -> Any:
    hosted = (node.engine.partitions.get(group) for group in groups)
    partitions = (_partition(node, answers, partition) for partition in hosted if partition is not None)
    return answers.make("DescribeLogDirsTopic", name=name, partitions=tuple(each for each in partitions if each is not None))


def _partition(node: Services, answers: Answers, partition: Partition) -> Any:
    """None for a log that is damaged, and about to be repaired."""
    segments = node.findings.guarded(partition.group, partition.log.segments)
    if segments is None:
        return None
    return answers.make(
        "DescribeLogDirsPartition",
        partition_index=partition.group.partition,
        partition_size=sum(segment.size for segment in segments),
        offset_lag=partition.lag,
        is_future_key=False,
    )
