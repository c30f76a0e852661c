"""The requests of transactional producers to their coordinator: AddPartitionsToTxn (24) and EndTxn (26), and InitProducerId
(22) where it names a transactional id. And what the tools ask: DescribeTransactions (65) and ListTransactions (66) (KIP-664).

The node that leads the metadata log is the coordinator; any other one says NOT_COORDINATOR. AddOffsetsToTxn (25) and
TxnOffsetCommit (28) are refused for good, as there are no consumer groups (`groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.replica.apis.answers import Answers, Reply, kafka_error, once
from raftlake.replica.apis.groups import NO_GROUPS, WHY
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.partition.start_points import Slices
from raftlake.replica.refused_for_good import COMMIT, DESCRIBE_TRANSACTION, TRANSACTIONS
from raftlake.replica.reserved import OWN_LOG
from raftlake.replica.services import Services
from raftlake.replica.transaction_entry import Transaction, TransactionState, fault_of_id
from raftlake.replica.transactions.raising import EndAndRaise
from raftlake.replica.transactions.requests import AddPartitions, Answer, End, InitProducer, Request
from raftlake.wire.durations import milliseconds, moment

#: The first versions whose clients know PRODUCER_FENCED.
INIT_FENCED_FROM, OTHERS_FENCED_FROM = 4, 2
#: The version of EndTxn that raises the epoch, and the transaction.version that it belongs to (KIP-890 part 2).
END_RAISES_FROM, RAISES = 5, 2
#: Transactions that one answer lists, and that are looked at together.
LISTED_MAX = 10_000
LOOKS_AT_ONCE = 1_000
#: Ids that one request may describe: each may tell 2,000 partitions.
DESCRIBED_MAX = 100
TOO_MANY_IDS = f"one request describes {DESCRIBED_MAX} transactional ids: ask for the others in another one"
_STATES = frozenset(state.value for state in TransactionState)

Done = Callable[[Answer], None]


def _submit(node: Services, request: Request, client: ClientContext, fenced_from: int, version: int, done: Done) -> None:
    """The coordinator's answer, in the words of the request's version. The node's log says why something is refused."""

    def told(answer: Answer) -> None:
        _tell(node, request.transactional_id, client, answer)
        if answer.error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
            answer = Answer(ErrorCode.INVALID_PRODUCER_EPOCH)
        done(answer)

    error = fault_of_id(request.transactional_id)
    if error is None:
        node.transactions.coordinator.submit(request, told)
    else:
        told(Answer(ErrorCode.INVALID_REQUEST, why=error))


def _tell(node: Services, transactional_id: str, client: ClientContext, answer: Answer) -> None:
    """None of these answers has room for a reason."""
    if answer.why:
        error = answer.error.name
        node.refused_for_good.note(TRANSACTIONS, transactional_id, f"{error}: {answer.why}", client, code=error)


# --- producers ---


def init_producer(node: Services, request: Any, client: ClientContext, done: Done) -> None:
    """InitProducerId of a transactional producer."""
    expected = (getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    timeout_ms = round(request.transaction_timeout.total_seconds() * 1000)
    longest_ms = node.engine.config.transaction_timeout_ms_max
    refusal: Answer | None = None
    if (expected[0] < 0) != (expected[1] < 0):
        refusal = Answer(ErrorCode.INVALID_REQUEST, why=f"producer {expected[0]} with epoch {expected[1]}: name both, or none")
    elif not 1 <= timeout_ms <= longest_ms:
        why = (
            f"transaction.timeout.ms={timeout_ms}: accepted are 1 to {longest_ms}, which is transaction.max.timeout.ms of "
            "node.properties; change the one or the other"
        )
        refusal = Answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT, why=why)
    if refusal is not None:
        _tell(node, request.transactional_id, client, refusal)
        done(refusal)
    else:
        wanted = InitProducer(
            transactional_id=request.transactional_id,
            timeout_ms=timeout_ms,
            expected=None if expected[0] < 0 else expected,
        )
        _submit(node, wanted, client, INIT_FENCED_FROM, type(request).__version__, done)


def add_partitions_to_txn(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    asked = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    why_not = node.transactions.coordinator.why_not
    unknown = {} if why_not is not ErrorCode.NONE else _unknown(node, asked)
    if unknown:
        if ErrorCode.INVALID_TOPIC_EXCEPTION in unknown.values():
            _tell(node, request.v3_and_below_transactional_id, client, Answer(ErrorCode.INVALID_TOPIC_EXCEPTION, why=OWN_LOG))
        reply(_added(request, lambda part: unknown.get(part, ErrorCode.OPERATION_NOT_ATTEMPTED)))
        return
    groups = (node.names.resolve_group(*part) for part in asked)
    wanted = AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        epoch=request.v3_and_below_producer_epoch,
        partitions=frozenset((group.topic_id, group.partition) for group in groups),
    )

    def done(answer: Answer) -> None:
        reply(_added(request, lambda _: answer.error))

    _submit(node, wanted, client, OTHERS_FENCED_FROM, type(request).__version__, done)


def _unknown(node: Services, asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
    """Those of the partitions that there are not."""
    found: dict[tuple[str, int], ErrorCode] = {}
    for name, index in asked:
        topic = node.names.topic(name)
        if name == METADATA_TOPIC:
            found[name, index] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif topic is None or not 0 <= index < topic.partitions:
            found[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _added(request: Any, error_of: Callable[[tuple[str, int]], ErrorCode]) -> object:
    make = Answers(request).make
    topics = tuple(
        make(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                make(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=index,
                    partition_error_code=kafka_error(error_of((topic.name, index))),
                )
                for index in topic.partitions
            ),
        )
        for topic in request.v3_and_below_topics
    )
    return make("AddPartitionsToTxnResponse", results_by_topic_v3_and_below=topics)


def end_txn(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    version = type(request).__version__
    raises = version >= END_RAISES_FROM
    wanted = (EndAndRaise if raises else End)(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        epoch=request.producer_epoch,
        commit=request.committed,
    )

    def done(answer: Answer) -> None:
        identity = {"producer_id": answer.producer_id, "producer_epoch": answer.epoch} if raises else {}
        reply(Answers(request).make("EndTxnResponse", error_code=kafka_error(answer.error), **identity))

    if raises and node.transactions.coordinator.why_not is ErrorCode.NONE and node.membership.transaction_version < RAISES:
        # A node of an older release would ignore the change. The producer asks again until all nodes know of it.
        done(Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return
    _submit(node, wanted, client, OTHERS_FENCED_FROM, version, done)


def add_offsets_to_txn(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    node.refused_for_good.note(COMMIT, request.group_id, WHY, client)
    reply(Answers(request).make("AddOffsetsToTxnResponse", error_code=kafka_error(NO_GROUPS)))


def txn_offset_commit(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    node.refused_for_good.note(COMMIT, request.group_id, WHY, client)
    make = Answers(request).make
    topics = tuple(
        make(
            "TxnOffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                make(
                    "TxnOffsetCommitResponsePartition",
                    partition_index=partition.partition_index,
                    error_code=kafka_error(NO_GROUPS),
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    reply(make("TxnOffsetCommitResponse", topics=topics))


# --- tools ---


def describe_transactions(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    answers, why_not = Answers(request), node.transactions.coordinator.why_not
    ids = once(request.transactional_ids, lambda transactional_id: transactional_id)
    states = []
    for place, transactional_id in enumerate(ids):
        found = node.transactions.of(transactional_id)
        error = why_not
        fault = TOO_MANY_IDS if place >= DESCRIBED_MAX else fault_of_id(transactional_id)
        if error is ErrorCode.NONE and fault is not None:
            error = ErrorCode.INVALID_REQUEST
            node.refused_for_good.note_error(DESCRIBE_TRANSACTION, transactional_id, error, fault, client)
        elif error is ErrorCode.NONE and found is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        states.append(_described(node, answers, transactional_id, found if error is ErrorCode.NONE else None, error))
    reply(answers.make("DescribeTransactionsResponse", transaction_states=tuple(states)))


def _described(node: Services, answers: Answers, transactional_id: str, found: Transaction | None, error: ErrorCode) -> object:
    topics: dict[str, list[int]] = {}
    for topic_id, index in sorted(node.transactions.unmarked(found) if found is not None else ()):
        name = node.names.resolve_topic(topic_id)
        if name is not None:
            topics.setdefault(name, []).append(index)
    started_ms = -1 if found is None or found.is_idle else found.started_ms
    return answers.make(
        "TransactionState",
        error_code=kafka_error(error),
        transactional_id=transactional_id,
        transaction_state="" if found is None else found.state.value,
        transaction_timeout=milliseconds(0 if found is None else found.timeout_ms),
        transaction_start_time=moment(started_ms),
        producer_id=-1 if found is None else found.producer_id,
        producer_epoch=-1 if found is None else found.epoch,
        topics=tuple(answers.make("TopicData", topic=name, partitions=tuple(indexes)) for name, indexes in topics.items()),
    )


def list_transactions(node: Services, request: Any, reply: Reply) -> None:
    """Tools ask every node, and put the answers together: who is not the coordinator knows none. Where there are more than
    LISTED_MAX, those come first that are decided, and then the ongoing ones."""
    node.producers.in_slices(_listing(node, request, reply))


def _listing(node: Services, request: Any, reply: Reply) -> Slices:
    answers, why_not = Answers(request), node.transactions.coordinator.why_not
    begun_before_ms = node.engine.clock.wall_ms() - getattr(request, "duration_filter", -1)
    rows: list[object] = []
    keys: Sequence[str] = node.transactions.all() if why_not is ErrorCode.NONE else ()
    for first in range(0, len(keys), LOOKS_AT_ONCE):
        for key in keys[first : first + LOOKS_AT_ONCE]:
            found = node.kv.state.transactions.by_key.get(key)
            if found is not None and len(rows) < LISTED_MAX and _is_wanted(request, found, begun_before_ms):
                rows.append(
                    answers.make(
                        "TransactionState",
                        transactional_id=found.transactional_id,
                        producer_id=found.producer_id,
                        transaction_state=found.state.value,
                    )
                )
        yield
    error = ErrorCode.NONE if why_not is ErrorCode.NOT_COORDINATOR else why_not
    unknown = tuple(name for name in request.state_filters if name not in _STATES)
    reply(
        answers.make(
            "ListTransactionsResponse",
            error_code=kafka_error(error),
            unknown_state_filters=unknown,
            transaction_states=tuple(rows),
        )
    )


def _is_wanted(request: Any, found: Transaction, begun_before_ms: int) -> bool:
    if request.state_filters and found.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and found.producer_id not in request.producer_id_filters:
        return False
    # Only what is under way has a duration.
    return getattr(request, "duration_filter", -1) < 0 or (not found.is_idle and found.started_ms < begun_before_ms)
