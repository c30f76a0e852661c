"""What a client can run into beside the families of `raftlake.errors`.

`RequestRejected` and `UnknownOutcome` keep their meaning here: a rejection is definite, an unknown outcome may still appear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected

#: The records or their topic are gone for good. Other errors of a read tell nothing about what the log holds.
GONE = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class NoReachableNode(RaftlakeError):
    """None of the nodes could be reached: not one of the bootstrap servers, nor any node learned from them."""

    def __init__(self, bootstrap_servers: Sequence[str], last_errors: Mapping[str, str]) -> None:
        tried = "; ".join(f"{address}: {error}" for address, error in last_errors.items()) or "nothing was tried"
        super().__init__(f"no reachable node among {','.join(bootstrap_servers)} ({tried})")
        self.bootstrap_servers = tuple(bootstrap_servers)
        self.last_errors = dict(last_errors)

    def __reduce__(self) -> tuple[type[NoReachableNode], tuple[object, ...]]:
        return NoReachableNode, (self.bootstrap_servers, self.last_errors)


class OffsetOutOfRange(RequestRejected):
    """The leader does not hold the asked offset: retention removed it, or it is not written yet."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int, high_watermark: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} has no offset {offset}, it holds {log_start_offset} up to {high_watermark} (exclusive)",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark

    def __reduce__(self) -> tuple[type[OffsetOutOfRange], tuple[object, ...]]:
        return OffsetOutOfRange, (self.topic, self.partition, self.offset, self.log_start_offset, self.high_watermark)


class QueryMissing(RaftlakeError):
    """No streaming query has written down a position under that id, name or topic."""


class KvConflict(RaftlakeError):
    """A condition of a key-value write did not hold; nothing was changed.

    `current` maps each key whose condition failed to the version it has now (0: it does not exist). `refused` maps each
    producer whose transaction cannot end as it was asked to the reason. `newest` maps each prefix whose keys are newer than was
    asked to the highest version found there.
    """

    def __init__(
        self,
        current: Mapping[str, int],
        refused: Mapping[int, str] | None = None,
        newest: Mapping[str, int] | None = None,
    ) -> None:
        found = [f"{key!r} is at version {version}" for key, version in current.items()]
        found += [f"a key below {prefix!r} is at version {version}" for prefix, version in (newest or {}).items()]
        found += (refused or {}).values()
        super().__init__(f"condition failed: {', '.join(found) or 'the key has another version'}")
        self.current = dict(current)
        self.refused = dict(refused or {})
        self.newest = dict(newest or {})

    @property
    def current_version(self) -> int:
        """The version of the first key whose condition failed."""
        return next(iter(self.current.values()), 0)

    def __reduce__(self) -> tuple[type[KvConflict], tuple[object, ...]]:
        return KvConflict, (self.current, self.refused, self.newest)


class RangeTooLarge(RequestRejected):
    """More keys begin with the prefixes of a `txn` than one transaction may delete or compare; nothing was changed. `prefixes`
    maps those prefixes to the number of keys that there may be."""

    def __init__(self, message: str, prefixes: Mapping[str, int]) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)
        self.prefixes = dict(prefixes)

    def __reduce__(self) -> tuple[type[RangeTooLarge], tuple[object, ...]]:
        return RangeTooLarge, (self.message, self.prefixes)


class NoRoom(RequestRejected):
    """A write of `client.kv` was refused for want of room, and nothing was changed: the key space is at its quota, or disks are
    nearly full. The message names the setting and says what to do. An append is refused with NOT_ENOUGH_REPLICAS instead."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, message)

    def __reduce__(self) -> tuple[type[NoRoom], tuple[object, ...]]:
        return NoRoom, (self.message,)


class Disconnected(RaftlakeError):
    """A connection could not be opened, or ended before the answer came. `sent`: the request may have been received."""

    def __init__(self, address: str, reason: str, *, sent: bool) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.sent = sent


def closed_error() -> RequestRejected:
    """Of an append that was not sent before its client or its producer was closed."""
    return RequestRejected(ErrorCode.NETWORK_EXCEPTION, "this client is closed")
