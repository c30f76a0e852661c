"""What can be asked of the key-value space, and how it is written into a log record.

Every command on the log is a `Txn`: compares that must all hold, then operations that happen together at one offset. A
single put is a Txn with one operation, a conditional put adds one compare. Whether the compares hold is decided when the
record is applied, so every node decides alike.

Encoding (all integers big endian): format byte 1; u16 number of compares, each {u16 key length, key, i64 version}; u16
number of operations, each {u8 kind 1 put | 2 delete, u16 key length, key, for a put u32 value length, value} or {u8 kind 3 end
of a transaction, i64 producer id, i16 epoch, u8 sum of 1 commit and 2 retires the epoch}. Nothing may follow. `decode`
raises WireError on anything else, and its result obeys the same limits as a Txn built here.

A command with ranges of keys has format byte 2, and no other command has. Before each of its compares stands u8 kind 1 key | 2
prefix. Kind 4 of its operations is the deletion of a prefix: {u8 4, u16 prefix length, prefix}. A node of a release before
ranges can read no such command. As leader it lets none into the log; as it applies one it changes nothing, unlike newer nodes.
Therefore all nodes are upgraded before a client uses ranges, as with kind 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.kv.keys import TRANSACTIONS_PREFIX, touches_reserved

#: Bytes of the UTF-8 form of a key; at least one.
KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1 << 20
COMPARES_MAX = 1024
OPERATIONS_MAX = 1024
#: Bytes of one encoded transaction: a record batch of it still fits into any frame that a node accepts.
TXN_BYTES_MAX = 8 << 20

#: Keys that all deletions of prefixes in one command may delete together; more, and the command does not succeed.
DELETE_RANGE_KEYS_MAX = 10_000
#: Keys that all compares of prefixes in one command may look at together.
COMPARE_RANGE_KEYS_MAX = 10_000

#: Compare version: the key must not exist. (No command ever stands at offset 0: the log begins with a control record.)
ABSENT = 0
#: Compare version: the key must exist, at whatever version.
ANY = -1

_FORMAT = 1
#: The first byte of commands with ranges. What it costs to apply one does not follow from its length.
FORMAT_RANGES = 2
_KIND_PUT = 1
_KIND_DELETE = 2
_KIND_END_TXN = 3
_KIND_DELETE_PREFIX = 4
_COMPARES_KEY = 1
_COMPARES_PREFIX = 2
_COMMIT = 1
_RETIRES_EPOCH = 2
_U16 = struct.Struct(">H")
_HEAD = struct.Struct(">BH")
_KIND_AND_LENGTH = struct.Struct(">BH")
_END_TXN = struct.Struct(">BqhB")
_VERSION = struct.Struct(">q")
_U32 = struct.Struct(">I")


def require_key(key: str) -> bytes:
    """The UTF-8 form of a key; RequestRejected(INVALID_REQUEST) when it is empty, too long or not encodable."""
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"key is not valid Unicode text: {error.reason}") from error
    if not 1 <= len(encoded) <= KEY_BYTES_MAX:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"key has {len(encoded)} bytes, allowed are 1 to {KEY_BYTES_MAX}")
    return encoded


def require_prefix(prefix: str) -> None:
    """RequestRejected(INVALID_REQUEST) for a prefix that no key can have, and for the empty one, which all keys have."""
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError as error:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"prefix is not valid Unicode text: {error.reason}") from error
    if not 1 <= size <= KEY_BYTES_MAX:
        raise RequestRejected(ErrorCode.INVALID_REQUEST, f"prefix has {size} bytes, allowed are 1 to {KEY_BYTES_MAX}")


def _require_value(key: str, value: bytes) -> None:
    if len(value) > VALUE_BYTES_MAX:
        raise RequestRejected(
            ErrorCode.MESSAGE_TOO_LARGE, f"value of key {key!r} has {len(value)} bytes, at most {VALUE_BYTES_MAX} are allowed"
        )


@dataclass(frozen=True, slots=True)
class Put:
    """Set `key` to `value` (at most VALUE_BYTES_MAX bytes)."""

    key: str
    value: bytes

    def __post_init__(self) -> None:
        require_key(self.key)
        _require_value(self.key, self.value)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove `key`; no change when it does not exist."""

    key: str

    def __post_init__(self) -> None:
        require_key(self.key)


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Remove every key that begins with `prefix`; no change when there is none. Reserved keys are no part of any range. The
    command does not succeed where it would delete more than DELETE_RANGE_KEYS_MAX keys so."""

    prefix: str

    def __post_init__(self) -> None:
        require_prefix(self.prefix)
        if touches_reserved(self.prefix):
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"prefix {self.prefix!r} has reserved keys below it")


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Decide that the ongoing transaction of a producer commits or aborts. Whether the producer has one at that epoch is judged
    as the command is applied. If not, nothing of the command happens. A decision that stands already is no other decision.

    `retires_epoch`: the producer begins nothing more with this epoch. So a command that comes once more ends no other
    transaction. Kafka's own EndTxn (KIP-98) leaves the epoch as it is.
    """

    producer_id: int
    epoch: int
    commit: bool
    retires_epoch: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.producer_id < 1 << 63 or not 0 <= self.epoch < 1 << 15:
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST, f"no producer has the id {self.producer_id} and the epoch {self.epoch}"
            )


@dataclass(frozen=True, slots=True)
class Compare:
    """`key` must stand at `version`; ABSENT (0): must not exist; ANY (-1): must exist."""

    key: str
    version: int

    def __post_init__(self) -> None:
        require_key(self.key)
        if not ANY <= self.version < 1 << 63:
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"version {self.version} of key {self.key!r} is not a log offset")


@dataclass(frozen=True, slots=True)
class ComparePrefix:
    """No key that begins with `prefix` stands at a version above `newest`; 0: no key begins with it. Deleted keys do not
    count. The command does not succeed where its compares of prefixes have more than COMPARE_RANGE_KEYS_MAX keys to look at."""

    prefix: str
    newest: int

    def __post_init__(self) -> None:
        require_prefix(self.prefix)
        if not 0 <= self.newest < 1 << 63:
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST, f"newest {self.newest} of {self.prefix!r} is not a log offset or 0"
            )


@dataclass(frozen=True, slots=True)
class Txn:
    """All or nothing: when every compare holds and every transaction can end so, every operation happens, at one version.

    A key may stand in at most one operation (two changes could not be told apart by version), and a producer in at most one
    end. Beside an end no key of a transaction is changed otherwise. A deleted prefix covers no key and no prefix of another
    operation.
    """

    compares: tuple[Compare | ComparePrefix, ...]
    ops: tuple[Put | Delete | DeletePrefix | EndTxn, ...]

    def __post_init__(self) -> None:
        if len(self.compares) > COMPARES_MAX or len(self.ops) > OPERATIONS_MAX:
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST,
                f"transaction has {len(self.compares)} compares and {len(self.ops)} operations, "
                f"allowed are {COMPARES_MAX} and {OPERATIONS_MAX}",
            )
        if len(self.ops) > 1:
            self._require_single_changes()

    def _require_single_changes(self) -> None:
        keys, producers = {change.key for change in self.changes}, {ending.producer_id for ending in self.endings}
        prefixes = self.deleted_prefixes
        if prefixes:
            _require_apart(prefixes, keys)
        if len(keys) + len(producers) + len(prefixes) != len(self.ops):
            what = "changes a key twice" if len(keys) < len(self.changes) else "ends the transaction of a producer twice"
            raise RequestRejected(ErrorCode.INVALID_REQUEST, f"transaction {what}")
        if producers and any(key.startswith(TRANSACTIONS_PREFIX) for key in keys):
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST, f"transaction changes a key of {TRANSACTIONS_PREFIX} beside an end"
            )

    @property
    def changes(self) -> tuple[Put | Delete, ...]:
        """The operations that name the key that they change."""
        if len(self.ops) == 1 and isinstance(self.ops[0], Put):
            # The commonest command by far. Each put asks three times.
            return (self.ops[0],)
        return tuple(operation for operation in self.ops if isinstance(operation, _CHANGES))

    @property
    def endings(self) -> tuple[EndTxn, ...]:
        """The ends of transactions: which key one changes is known when it is applied."""
        return tuple(operation for operation in self.ops if isinstance(operation, EndTxn))

    @property
    def deleted_prefixes(self) -> tuple[str, ...]:
        """The prefixes whose keys are deleted: which these are is known when the command is applied."""
        return tuple(operation.prefix for operation in self.ops if isinstance(operation, DeletePrefix))

    @property
    def key_compares(self) -> tuple[Compare, ...]:
        """The compares of one key each."""
        return tuple(compare for compare in self.compares if isinstance(compare, Compare))

    @property
    def prefix_compares(self) -> tuple[ComparePrefix, ...]:
        """The compares of ranges."""
        return tuple(compare for compare in self.compares if isinstance(compare, ComparePrefix))

    @property
    def has_ranges(self) -> bool:
        """Whether the command says something of all keys with a prefix."""
        kinds = (ComparePrefix, DeletePrefix)
        return any(isinstance(part, kinds) for parts in (self.compares, self.ops) for part in parts)


#: As a tuple, which `isinstance` takes faster than a union.
_CHANGES = (Put, Delete)


def _require_apart(prefixes: Iterable[str], keys: Iterable[str]) -> None:
    """RequestRejected(INVALID_REQUEST) where a prefix begins a key, or another prefix. What begins with a prefix follows it
    without a gap in the order of names, so neighbours are all that has to be looked at."""
    # A prefix stands before a key of the same name.
    names = sorted([*((prefix, False) for prefix in prefixes), *((key, True) for key in keys)])
    for (name, is_key), (following, _) in pairwise(names):
        if not is_key and following.startswith(name):
            raise RequestRejected(
                ErrorCode.INVALID_REQUEST,
                f"transaction deletes all below {name!r}, and another of its operations is about {following!r}",
            )


def put(key: str, value: bytes, if_version: int | None = None) -> Txn:
    """A put, with the condition that the key stands at `if_version` (ABSENT, ANY or a version) unless that is None."""
    return Txn(_condition(key, if_version), (Put(key, value),))


def delete(key: str, if_version: int | None = None) -> Txn:
    """A delete, with a condition as in `put`."""
    return Txn(_condition(key, if_version), (Delete(key),))


def _condition(key: str, if_version: int | None) -> tuple[Compare, ...]:
    return () if if_version is None else (Compare(key, if_version),)


def encode(txn: Txn) -> bytes:
    """The bytes of the log record's value. RequestRejected(MESSAGE_TOO_LARGE) above TXN_BYTES_MAX."""
    has_ranges = txn.has_ranges
    parts = [_HEAD.pack(FORMAT_RANGES if has_ranges else _FORMAT, len(txn.compares))]
    for compare in txn.compares:
        if isinstance(compare, Compare):
            key, version, kind = compare.key.encode(), compare.version, _COMPARES_KEY
        else:
            key, version, kind = compare.prefix.encode(), compare.newest, _COMPARES_PREFIX
        head = _KIND_AND_LENGTH.pack(kind, len(key)) if has_ranges else _U16.pack(len(key))
        parts += (head, key, _VERSION.pack(version))
    parts.append(_U16.pack(len(txn.ops)))
    for operation in txn.ops:
        match operation:
            case Put(value=value):
                key = operation.key.encode()
                parts += (_KIND_AND_LENGTH.pack(_KIND_PUT, len(key)), key, _U32.pack(len(value)), value)
            case Delete():
                key = operation.key.encode()
                parts += (_KIND_AND_LENGTH.pack(_KIND_DELETE, len(key)), key)
            case DeletePrefix(prefix=prefix):
                key = prefix.encode()
                parts += (_KIND_AND_LENGTH.pack(_KIND_DELETE_PREFIX, len(key)), key)
            case EndTxn():
                flags = (_COMMIT if operation.commit else 0) | (_RETIRES_EPOCH if operation.retires_epoch else 0)
                parts.append(_END_TXN.pack(_KIND_END_TXN, operation.producer_id, operation.epoch, flags))
            case _:
                assert_never(operation)
    encoded = b"".join(parts)
    if len(encoded) > TXN_BYTES_MAX:
        raise RequestRejected(
            ErrorCode.MESSAGE_TOO_LARGE, f"transaction has {len(encoded)} bytes, at most {TXN_BYTES_MAX} are allowed"
        )
    return encoded


def decode(encoded: bytes | bytearray | memoryview) -> Txn:
    """The Txn that `encode` wrote; WireError on any other bytes."""
    if len(encoded) > TXN_BYTES_MAX:
        raise WireError(f"command of {len(encoded)} bytes is longer than {TXN_BYTES_MAX}")
    try:
        txn, end = _decode_txn(bytes(encoded))
    except (struct.error, UnicodeDecodeError, RequestRejected) as error:
        raise WireError(f"undecodable command: {error}") from error
    if end != len(encoded):
        raise WireError(f"undecodable command: {len(encoded) - end} bytes follow it")
    return txn


def _decode_txn(encoded: bytes) -> tuple[Txn, int]:
    format_, compare_count = _HEAD.unpack_from(encoded, 0)
    if format_ not in (_FORMAT, FORMAT_RANGES):
        raise WireError(f"undecodable command: format {format_}, known are {_FORMAT} and {FORMAT_RANGES}")
    has_ranges = format_ == FORMAT_RANGES
    position = _HEAD.size
    compares: list[Compare | ComparePrefix] = []
    for _ in range(compare_count):
        if has_ranges:
            compare, position = _decode_compare(encoded, position)
            compares.append(compare)
            continue
        (length,) = _U16.unpack_from(encoded, position)
        key, position = _take(encoded, position + 2, length)
        (version,) = _VERSION.unpack_from(encoded, position)
        position += _VERSION.size
        compares.append(Compare(key.decode(), version))
    (operation_count,) = _U16.unpack_from(encoded, position)
    position += _U16.size
    operations: list[Put | Delete | DeletePrefix | EndTxn] = []
    for _ in range(operation_count):
        if encoded[position : position + 1] == bytes((_KIND_END_TXN,)):
            operations.append(_decode_end(encoded, position))
            position += _END_TXN.size
            continue
        kind, length = _KIND_AND_LENGTH.unpack_from(encoded, position)
        key, position = _take(encoded, position + _KIND_AND_LENGTH.size, length)
        if kind == _KIND_PUT:
            (length,) = _U32.unpack_from(encoded, position)
            value, position = _take(encoded, position + _U32.size, length)
            operations.append(Put(key.decode(), value))
        elif kind == _KIND_DELETE:
            operations.append(Delete(key.decode()))
        elif kind == _KIND_DELETE_PREFIX and has_ranges:
            operations.append(DeletePrefix(key.decode()))
        else:
            raise WireError(f"undecodable command: operation kind {kind}")
    txn = Txn(tuple(compares), tuple(operations))
    if has_ranges and not txn.has_ranges:
        raise WireError(f"undecodable command: format {FORMAT_RANGES} without a range")
    return txn, position


def _decode_compare(encoded: bytes, position: int) -> tuple[Compare | ComparePrefix, int]:
    """Of a command with ranges."""
    kind, length = _KIND_AND_LENGTH.unpack_from(encoded, position)
    name, position = _take(encoded, position + _KIND_AND_LENGTH.size, length)
    (version,) = _VERSION.unpack_from(encoded, position)
    position += _VERSION.size
    if kind == _COMPARES_KEY:
        return Compare(name.decode(), version), position
    if kind == _COMPARES_PREFIX:
        return ComparePrefix(name.decode(), version), position
    raise WireError(f"undecodable command: compare kind {kind}")


def _decode_end(encoded: bytes, position: int) -> EndTxn:
    _, producer_id, epoch, flags = _END_TXN.unpack_from(encoded, position)
    if flags > _COMMIT + _RETIRES_EPOCH:
        raise WireError(f"undecodable command: a transaction ends by 0 to 3, not {flags}")
    return EndTxn(producer_id, epoch, bool(flags & _COMMIT), retires_epoch=bool(flags & _RETIRES_EPOCH))


def _take(encoded: bytes, start: int, length: int) -> tuple[bytes, int]:
    end = start + length
    if end > len(encoded):
        raise WireError(f"undecodable command: {length} bytes expected at {start}, {len(encoded) - start} left")
    return encoded[start:end], end
