"""Requests of clients that cannot succeed, however often they are sent: which errors end them, and what the node's log says.

Many of Kafka's answers have no room for a reason, and many programs do not show one. So the log tells each kind of refusal once
for each group, topic or producer that it is about. What was told is forgotten after an hour, and one hour has at most TOLD_MAX
lines: a client that asks under ever new names fills no disk. Owns what was told; knows no log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raftlake.errors import ErrorCode
from raftlake.replica.config import ClientContext
from raftlake.replica.engine import Engine

#: Neither Kafka's Java clients nor librdkafka send a request again after these.
FINAL_ERRORS = frozenset(
    {
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.VOTER_NOT_FOUND,
    }
)
FORGET_MS = 3_600_000
TOLD_MAX = 100
SUBJECT_CHARACTERS_MAX = 200
MORE = "more requests are refused for good than are told here: no further one is logged for up to an hour"


@dataclass(frozen=True, slots=True)
class Kind:
    """What was refused, as in "refused to ...", and what its subject is."""

    what: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    kind: Kind
    subject: str
    why: str
    client: ClientContext | None


JOIN = Kind("let a consumer join a group", "group")
MEMBER = Kind("serve a member of a group", "group")
COMMIT = Kind("keep the offsets of a group", "group")
COMMITTED = Kind("tell the offsets of a group", "group")
SHARE = Kind("coordinate a share group", "group")
TRANSACTIONS = Kind("serve a transactional producer", "transactional_id")
APPEND = Kind("append records", "topic")
CREATE = Kind("create a topic", "topic")
ALTER = Kind("change the configs of a topic", "topic")
ALTER_NODE = Kind("change the settings of a node", "broker")
ALTER_OTHER = Kind("change configs of what has none", "resource")
GROW = Kind("give a topic more partitions", "topic")
DELETE = Kind("delete records", "topic")
DELETE_TOPIC = Kind("delete a topic", "topic")
DESCRIBE = Kind("describe configs", "resource")
DESCRIBE_TRANSACTION = Kind("describe a transaction", "transactional_id")
DESCRIBE_NODES = Kind("describe the cluster", "client")
LOOK_UP = Kind("look for a topic", "topic")
OFFSETS = Kind("tell an offset", "topic")
PRODUCER = Kind("give out a producer id", "client")
VOTERS = Kind("change the voters", "voter")
FETCH = Kind("serve a fetch", "client")
MARKER = Kind("end a transaction that does not hang", "partition")


class RefusedForGood:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.listeners: list[Callable[[Refusal], None]] = []
        #: Told with a text when there are too many.
        self.overflow_listeners: list[Callable[[str], None]] = []
        self._told: set[tuple[Kind, str, str]] = set()
        self._since_ms = engine.now_ms

    def note(self, kind: Kind, subject: str, why: str, client: ClientContext | None, *, code: str = "") -> None:
        """A request was refused. Refusals of one kind and subject with another `code` are told apart."""
        if self._engine.now_ms - self._since_ms >= FORGET_MS:
            self._told.clear()
            self._since_ms = self._engine.now_ms
        subject = subject[:SUBJECT_CHARACTERS_MAX]
        told = (kind, subject, code)
        if told in self._told or len(self._told) > TOLD_MAX:
            return
        self._told.add(told)
        if len(self._told) > TOLD_MAX:
            for overflow in self.overflow_listeners:
                overflow(MORE)
            return
        for listener in self.listeners:
            listener(Refusal(kind=kind, subject=subject, why=why, client=client))

    def note_error(self, kind: Kind, subject: str, error: ErrorCode, why: str, client: ClientContext | None) -> None:
        """A request was answered with `error`: a refusal if clients give up after it."""
        if error in FINAL_ERRORS:
            self.note(kind, subject, f"{error.name}: {why}", client, code=error.name)
