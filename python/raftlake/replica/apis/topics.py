"""CreateTopics (19) and DeleteTopics (20).

Any node takes them: the change is a transaction that goes to the leader of the metadata log, and the answer waits until this
node has applied it. A creation also waits until this node can name a leader of each partition, as long as the request allows:
some clients ask for them once, right after, and never again.
"""

from __future__ import annotations

import datetime
from collections import Counter
from functools import partial
from typing import Any, TypeVar

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.apis.configs import surroundings, topic_configs
from raftlake.replica.config import ClientContext
from raftlake.replica.configs.changes import replaced
from raftlake.replica.hosting.topics import NO_LEADER_YET, NOTHING_CHANGED, require_name
from raftlake.replica.refused_for_good import CREATE, DELETE_TOPIC
from raftlake.replica.reserved import Topic
from raftlake.replica.services import Services
from raftlake.wire.ids import id_from_kio, id_to_kio, id_to_text

T = TypeVar("T")
#: Kafka's "use the broker's default".
DEFAULT = -1
#: However long a request would wait for leaders.
LEADERS_WAIT_MS_MAX = 600_000
#: The answer tells the configs of the first so many new topics: those of thousands take a while to write.
CONFIGS_TOLD_MAX = 100
WITHOUT_LEADERS = "topic {!r} exists; not every partition had a leader within {} ms. Wait for the leaders in its metadata"
TWICE = "the topic stands in the request more than once"


def create_topics(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers = Answers(request)
    asked_for = {asked.name: asked for asked in request.topics}
    times = Counter(asked.name for asked in request.topics)
    names = _to_answer([asked.name for asked in request.topics])
    results: list[Any] = [None] * len(names)
    missing = len(names)
    timeout_ms = request.timeout // datetime.timedelta(milliseconds=1)
    deadline_ms = node.engine.now_ms + min(timeout_ms, LEADERS_WAIT_MS_MAX)

    def created(index: int, topic: Topic | None, error: ErrorCode, message: str) -> None:
        if topic is None:
            put(index, None, error, message)
            return

        def waited(has_leaders: bool) -> None:
            if has_leaders:
                put(index, topic, ErrorCode.NONE, "")
            else:
                put(index, None, ErrorCode.REQUEST_TIMED_OUT, WITHOUT_LEADERS.format(topic.name, timeout_ms))

        node.first_leaders.wait(topic, deadline_ms, waited)

    def put(index: int, topic: Topic | None, error: ErrorCode, message: str) -> None:
        nonlocal missing
        asked = asked_for[names[index]]
        node.refused_for_good.note_error(CREATE, asked.name, error, message, client)
        results[index] = answers.make(
            "CreatableTopicResult",
            name=asked.name,
            topic_id=None if topic is None else id_to_kio(topic.topic_id),
            error_code=kafka_error(error),
            error_message=message or None,
            num_partitions=-1 if topic is None else topic.partitions,
            replication_factor=-1 if topic is None else len(node.quorum.latest),
            configs=() if topic is None or index >= CONFIGS_TOLD_MAX else _created_configs(node, answers, topic),
        )
        missing -= 1
        if missing == 0:
            reply(answers.make("CreateTopicsResponse", topics=tuple(results)))

    if not request.topics:
        reply(answers.make("CreateTopicsResponse", topics=()))
    for index, asked in enumerate(asked_for[name] for name in names):
        try:
            if times[asked.name] > 1:
                raise RequestRejected(ErrorCode.INVALID_REQUEST, f"topic {asked.name!r} stands in the request more than once")
            partitions, configs = _checked(node, asked)
        except RequestRejected as rejected:
            put(index, None, rejected.code, rejected.message)
            continue
        if request.validate_only:
            put(index, None, *_validated(node, asked.name, partitions))
        else:
            node.topics.create(asked.name, partitions, configs, partial(created, index), client)


def _created_configs(node: Services, answers: Answers, topic: Topic) -> tuple[Any, ...]:
    """What the new topic has (KIP-525); versions below 5 have no room for it."""
    if not answers.has("CreatableTopicConfigs"):
        return ()
    return tuple(
        answers.make(
            "CreatableTopicConfigs",
            name=config.name,
            value=config.value,
            read_only=False,
            config_source=config.source,
            is_sensitive=False,
        )
        for config in topic_configs(node, topic)
    )


def _to_answer(asked: list[T]) -> list[T]:
    """One answer for each name, as Kafka does: librdkafka takes a second one to be a broken message. But it puts answers where
    it asked, and a hole among them crashes programs that use it: there a broken message is the lesser evil."""
    distinct = list(dict.fromkeys(asked))
    return distinct if asked[: len(distinct)] == distinct else asked


def _checked(node: Services, asked: Any) -> tuple[int, dict[str, str]]:
    """The number of partitions and the configs that a creation asks for; RequestRejected where it cannot be had."""
    require_name(asked.name)
    voters = len(node.quorum.latest)
    if asked.assignments:
        raise RequestRejected(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "replicas cannot be assigned, since every partition lives on all voters: leave them out",
        )
    if asked.replication_factor not in (DEFAULT, voters) and not 1 <= asked.replication_factor <= voters:
        raise RequestRejected(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}: every partition lives on all {voters} voters of this quorum",
        )
    partitions = 1 if asked.num_partitions == DEFAULT else asked.num_partitions
    if partitions < 1:
        raise RequestRejected(ErrorCode.INVALID_PARTITIONS, f"partitions must be at least 1, got {partitions}")
    try:
        return partitions, replaced([(config.name, config.value) for config in asked.configs], surroundings(node))
    except RequestRejected as rejected:
        # Of a creation Kafka calls also a doubled name, and one without a value, a bad config.
        raise RequestRejected(ErrorCode.INVALID_CONFIG, rejected.message) from rejected


def _validated(node: Services, name: str, partitions: int) -> tuple[ErrorCode, str]:
    if node.names.topic(name) is not None or node.topics.is_spoilt(name):
        return node.topics.why_taken(name)
    try:
        node.topics.require_room(partitions)
    except RequestRejected as rejected:
        return rejected.code, rejected.message
    return ErrorCode.NONE, ""


def delete_topics(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers = Answers(request)
    mentioned = _asked_for_deletion(request)
    times = Counter(_name_or_id(*mention) for mention in mentioned)
    asked = _to_answer(mentioned)
    under_way: set[str] = set()
    results: list[Any] = [None] * len(asked)
    missing = len(asked)

    def put(index: int, _topic: Topic | None, error: ErrorCode, message: str) -> None:
        nonlocal missing
        name, topic_id = asked[index]
        node.refused_for_good.note_error(DELETE_TOPIC, name or id_to_text(topic_id), error, message, client)
        results[index] = answers.make(
            "DeletableTopicResult",
            name=name,
            topic_id=id_to_kio(topic_id),
            error_code=kafka_error(error),
            error_message=message or None,
        )
        missing -= 1
        if missing == 0:
            reply(answers.make("DeleteTopicsResponse", responses=tuple(results)))

    def delete(index: int) -> bool:
        """Whether there is what was asked for, as far as this node knows."""
        name, topic_id = asked[index]
        if name is not None and not any(topic_id) and node.topics.is_spoilt(name):
            node.topics.delete_spoilt(name, partial(put, index))
            return True
        topic = node.names.by_id(topic_id) if any(topic_id) else node.names.topic(name or "")
        if topic is None:
            return False
        asked[index] = (topic.name, topic.topic_id)
        if topic.name in under_way:
            put(index, None, ErrorCode.INVALID_REQUEST, TWICE)
        else:
            under_way.add(topic.name)
            node.topics.delete(topic, partial(put, index), client)
        return True

    def look_again(result: ReadOffsetResult) -> None:
        for index in unknown:
            name, topic_id = asked[index]
            if result.error is not ErrorCode.NONE:
                put(index, None, ErrorCode.NOT_CONTROLLER, NOTHING_CHANGED)
            elif not delete(index):
                error = ErrorCode.UNKNOWN_TOPIC_ID if any(topic_id) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                put(index, None, error, f"topic {name!r} does not exist")

    if not asked:
        reply(answers.make("DeleteTopicsResponse", responses=()))
    unknown: list[int] = []
    for index, (name, topic_id) in enumerate(asked):
        if times[_name_or_id(name, topic_id)] > 1:
            put(index, None, ErrorCode.INVALID_REQUEST, TWICE)
        elif not delete(index):
            unknown.append(index)
    if node.topics.may_miss_some:
        for index in unknown:
            put(index, None, ErrorCode.NOT_CONTROLLER, f"{NO_LEADER_YET}; nothing was changed")
    elif unknown:
        # This node may not have applied the creation yet. Who asks once more takes "unknown" for its own work.
        node.kv.read(True, look_again)


def _name_or_id(name: str | None, topic_id: bytes) -> str | bytes:
    return topic_id if any(topic_id) else name or ""


def _asked_for_deletion(request: Any) -> list[tuple[str | None, bytes]]:
    """(name, id) of each topic; up to version 5 there are only names."""
    if hasattr(request, "topics"):
        return [(topic.name, id_from_kio(topic.topic_id)) for topic in request.topics]
    return [(name, bytes(16)) for name in request.topic_names]
