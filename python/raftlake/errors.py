"""Kafka error codes and the exception families of raftlake.

Every other package may import this module; it imports nothing of ours. The families follow one rule: whose fault is it?

- `WireError`: the peer's bytes are bad. Close that connection, keep serving.
- `RequestRejected`: a request cannot be served; it is an answer (an error code), not a crash.
- `StorageError`: the disk failed or holds damage. The node stops and names the file and the offset.
- `PathOutside`: a StorageError of a name that leads out of the data directory. Nothing was touched; the group is left alone.
- `DiskFull`: a StorageError for want of room alone; nothing was written that counts, and the same may succeed later.
- `TooManyFiles`: the same for want of a file descriptor.
- `DamagedData`: a StorageError of one log from an offset on; with other voters the replica is repaired instead.
- `ConfigError`: a setting, an option or an address is wrong. The command refuses to start and names the key.
- `WrongState`: the state of things stands against what was asked: a directory of another node, no leader, nothing to recover.
- `MachineError`: this machine lacks what is needed: a free port, a program, a package, a readable standard input.
- `InvalidInput`: what is to be written or looked up cannot be: a key that is no text, a line without its separator.
- `InvariantViolation`: we are wrong. Stop the node, keep the disk.
- `UnknownOutcome`: a write was proposed and its fate is not known. It is never called "failed".
"""

from __future__ import annotations

import re
from enum import IntEnum


class ErrorCode(IntEnum):
    """The Kafka error codes that raftlake sends or understands (names and numbers as in Kafka 4.3.1 `Errors`)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    REBOOTSTRAP_REQUIRED = 129


def code_of(code: int) -> ErrorCode:
    """Our name of an error code; one that we do not know is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(int(code))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class RaftlakeError(Exception):
    """The root of every exception that raftlake raises on purpose."""


class WireError(RaftlakeError):
    """The other side sent bytes that break the protocol; the connection they came on is closed."""


class CorruptBatch(WireError):
    """A record batch is damaged: bad CRC, bad length, undecodable payload. Answered with CORRUPT_MESSAGE."""


class RequestRejected(RaftlakeError):
    """A request was refused with a Kafka error code before it changed anything."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message


class UnknownOutcome(RaftlakeError):
    """A write was sent, and whether it took effect is unknown: it may still appear. `unknown_outcome` words the message."""


class StorageError(RaftlakeError):
    """The disk failed or holds damage that may not be cut away. Names the file and, where known, the offset or position."""


class PathOutside(StorageError):
    """A path that was to be made or deleted is not one of the data directory. Nothing was touched."""


class DiskFull(StorageError):
    """There was no room for a write. What was there before is as it was, so the write may be tried again."""

    #: What there is no room for, in the node's log.
    what = "the disk is full"
    #: What a client is told of it: no path of this machine.
    for_clients = "the disk of this node is full"


class TooManyFiles(DiskFull):
    """A file could not be opened, since this process or its machine has too many open. The disk itself is well."""

    what = "too many files are open"
    for_clients = "this node has too many files open"


class DamagedData(StorageError):
    """Records that were durable cannot be read any more, from `offset` on. Other replicas may still have them."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        #: The first offset that may be missing.
        self.offset = offset


class UnfitBeginning(DamagedData):
    """A damaged log was cut, and the records that other replicas have do not complete its beginning: compaction has removed
    some of them. All of the log has to be fetched again."""


class ConfigError(RaftlakeError):
    """A setting is unknown, malformed or contradicts another one. The message names the key and says what is accepted."""


class WrongState(RaftlakeError):
    """What was asked does not fit the state of things: a directory, a node or a quorum. The message says what to do."""


class MachineError(RaftlakeError):
    """This machine lacks what is needed, such as a free port or an installed program. The message names it."""


class InvalidInput(RaftlakeError):
    """Data that was given cannot be used: it is not of the form that its place has. The message shows it."""


class InvariantViolation(RaftlakeError):
    """Something that can never happen did: our own bug. The node stops and keeps its disk as evidence."""


def require(condition: bool, message: str) -> None:
    """Raise `InvariantViolation(message)` unless `condition` holds. Unlike `assert`, `python -O` does not remove it."""
    if not condition:
        raise InvariantViolation(message)


#: Characters of an error text that a client is told.
CLIENT_TEXT_MAX = 500
#: Files and directories of this machine. Paths of our own HTTP front and keys of our own are no secrets.
_PATH = re.compile(r"(?<![\w'\"`/.:])/(?!raftlake/|v1/|health/)(?:[^\s/'\",;:]+/)+(?P<last>[^\s/'\",;:]*)")


def for_clients(text: str, root: str = "") -> str:
    """An error text as a client may see it: of bounded length, since it may repeat what the client sent, and with the names of
    files instead of their paths. `root` is a directory whose name is left out too, blanks in it or not."""
    if root := root.rstrip("/"):
        text = text.replace(root + "/", "").replace(root, ".")
    text = _PATH.sub(lambda path: path["last"] or "a directory", text[: 10 * CLIENT_TEXT_MAX])
    return text if len(text) <= CLIENT_TEXT_MAX else text[: CLIENT_TEXT_MAX - 1] + "…"


#: A password in a URL with the user before it, and what comes behind the path, which may be a signature.
_PASSWORD = re.compile(r"(?<=://)[^\s/@]*:[^\s/@]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#][^\s'\")]*")


def without_secrets(text: str) -> str:
    """A text as logs and terminals may have it: URLs in it have no password, no query and no fragment."""
    return _QUERY.sub(r"\1", _PASSWORD.sub("", text))


def unknown_outcome(what: str, then: str) -> UnknownOutcome:
    """The error of a change that no answer decides. `what` tells what came instead, `then` what the caller can do now."""
    return UnknownOutcome(f"{what}; its outcome is not known: it may have been carried out, or may still be; {then}")


def printable(text: str) -> str:
    """What somebody else wrote, as a line of ours may have it: as it is, or as Python writes it where a line cannot have it."""
    return text if text.isprintable() else repr(text)


def one_line(error: RaftlakeError) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
