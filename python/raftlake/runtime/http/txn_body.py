"""The JSON of POST /v1/txn: what it may be made of, and the transaction that it means.

Owns the bound on the parts of a body. They are counted before an object is built: a body of 12 MiB has room for millions of
empty objects, and the largest transaction needs some thousands. All of it goes in pieces.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Generator
from typing import TypeVar

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import (
    COMPARES_MAX,
    OPERATIONS_MAX,
    Compare,
    ComparePrefix,
    Delete,
    DeletePrefix,
    EndTxn,
    Put,
    Txn,
    require_prefix,
)
from raftlake.kv.keys import is_reserved, touches_reserved
from raftlake.runtime.http.base import NUMBER_DIGITS_MAX, HttpError

T = TypeVar("T")

#: Strings and signs of structure: an operation has 12, a compare 8. Twice as many operations as are allowed are still counted.
PARTS_MAX = 24 * OPERATIONS_MAX + 16 * COMPARES_MAX
_SIGNS = (b"{", b"[", b",", b":")
#: A look ends at a quote, or after so many bytes; and looks between two pieces of work.
_LOOK_BYTES = 64 * 1024
_LOOKS_AT_ONCE = 256


def parse_txn(body: bytes) -> Generator[None, None, Txn]:
    """400 names the part that is wrong."""
    yield from require_few_parts(body)
    try:
        # UTF-8 as RFC 8259 wants it: in any other encoding the parts would be other bytes than those that were counted.
        fields = json.loads(str(body, "utf-8-sig"), object_pairs_hook=_members, parse_int=_number)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    yield
    if not isinstance(fields, dict) or not fields.keys() <= {"compare", "ops"} or "ops" not in fields:
        raise HttpError(
            400,
            'the body must be {"compare":[{"key","version"},{"prefix","newest"}],"ops":[{"put":{"key","value"}},'
            '{"delete":{"key"}},{"delete":{"prefix"}},{"end_txn":{"producer_id","epoch","commit"}}]}',
        )
    compares = [_parse_compare(entry, index) for index, entry in enumerate(_rows(fields, "compare"))]
    ops = [_parse_op(entry, index) for index, entry in enumerate(_rows(fields, "ops"))]
    return rejected_as_400(lambda: Txn(tuple(compares), tuple(ops)))


def require_few_parts(body: bytes) -> Generator[None, None, None]:
    """400 for a body of more parts than any transaction has. What is no JSON may pass."""
    parts = position = looks = 0
    is_in_string = False
    #: Of the string so far, at its end.
    backslashes = 0
    while position < len(body):
        end = min(position + _LOOK_BYTES, len(body))
        quote = body.find(b'"', position, end)
        looked = body[position : end if quote < 0 else quote]
        if is_in_string:
            trailing = len(looked) - len(looked.rstrip(b"\\"))
            backslashes = trailing + (backslashes if trailing == len(looked) else 0)
            # An odd number of them escapes the quote.
            is_in_string = quote < 0 or backslashes % 2 == 1
        else:
            parts += sum(map(looked.count, _SIGNS)) + (quote >= 0)
            is_in_string = quote >= 0
        if parts > PARTS_MAX:
            allowed = f"allowed are {COMPARES_MAX} compares and {OPERATIONS_MAX} operations"
            raise HttpError(400, f"the body is not JSON of a transaction: more parts than any has; {allowed}")
        if quote >= 0:
            backslashes = 0
        position = end if quote < 0 else quote + 1
        looks += 1
        if looks % _LOOKS_AT_ONCE == 0:
            yield


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; 400 for a name that stands in it twice: the last value would win unseen."""
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise HttpError(400, f"{twice!r} stands twice in one object of the body")
    return members


def _number(text: str) -> int:
    """A whole number of JSON; 400 for more digits than any version or producer id has. Python refuses thousands of digits in
    words that are for programmers."""
    digits = len(text.removeprefix("-"))
    if digits > NUMBER_DIGITS_MAX:
        raise HttpError(400, f"the body has a number of {digits} digits; a number has at most {NUMBER_DIGITS_MAX}")
    return int(text)


def _rows(fields: dict[str, object], name: str) -> list[object]:
    rows = fields.get(name, [])
    if not isinstance(rows, list):
        raise HttpError(400, f"{name} must be a list")
    return rows


def _parse_compare(entry: object, index: int) -> Compare | ComparePrefix:
    where = f"compare[{index}]"
    if isinstance(entry, dict) and entry.keys() == {"prefix", "newest"}:
        return _parse_compare_prefix(entry["prefix"], entry["newest"], where)
    if not isinstance(entry, dict) or entry.keys() != {"key", "version"}:
        raise HttpError(
            400,
            f'{where} must be {{"key": ..., "version": ...}}; version 0: it must not exist, -1: it must exist; or '
            '{"prefix": ..., "newest": ...}: no key that begins with the prefix has a version above it',
        )
    key, version = entry["key"], entry["version"]
    if not isinstance(key, str) or not isinstance(version, int) or isinstance(version, bool):
        raise HttpError(400, f"{where}: key must be a string and version a whole number")
    return rejected_as_400(lambda: Compare(key, version), where)


def _parse_compare_prefix(prefix: object, newest: object, where: str) -> ComparePrefix:
    if not isinstance(prefix, str) or type(newest) is not int:
        raise HttpError(400, f"{where}: prefix must be a string and newest a whole number")
    return rejected_as_400(lambda: ComparePrefix(prefix, newest), where)


def _parse_op(entry: object, index: int) -> Put | Delete | DeletePrefix | EndTxn:
    where = f"ops[{index}]"
    if not isinstance(entry, dict) or len(entry) != 1 or not entry.keys() <= {"put", "delete", "end_txn"}:
        raise HttpError(400, f'{where} must be {{"put": {{...}}}}, {{"delete": {{...}}}} or {{"end_txn": {{...}}}}')
    ((kind, fields),) = entry.items()
    if kind == "end_txn":
        return _parse_end(fields, where)
    if kind == "delete" and isinstance(fields, dict) and "prefix" in fields:
        return _parse_delete_prefix(fields, where)
    if not isinstance(fields, dict) or not isinstance(key := fields.get("key"), str):
        needed = "a key, a string" if kind == "put" else "a key or a prefix, a string"
        raise HttpError(400, f"{where}: {kind} needs {needed}")
    if is_reserved(key):
        raise HttpError(403, f"keys under /raftlake/ are written by the quorum alone: {key!r}")
    if kind == "delete":
        if fields.keys() != {"key"}:
            raise HttpError(400, f"{where}: delete takes a key or a prefix, and nothing else")
        return rejected_as_400(lambda: Delete(key), where)
    value = _parse_value(fields, where)
    return rejected_as_400(lambda: Put(key, value), where)


def _parse_delete_prefix(fields: dict[str, object], where: str) -> DeletePrefix:
    prefix = fields["prefix"]
    if fields.keys() != {"prefix"} or not isinstance(prefix, str):
        raise HttpError(400, f"{where}: delete takes a key or a prefix, a string, and nothing else")
    rejected_as_400(lambda: require_prefix(prefix), where)
    if touches_reserved(prefix):
        raise HttpError(403, f"keys under /raftlake/ are written by the quorum alone, and some begin with {prefix!r}")
    return rejected_as_400(lambda: DeletePrefix(prefix), where)


def _parse_end(fields: object, where: str) -> EndTxn:
    if not isinstance(fields, dict) or fields.keys() != {"producer_id", "epoch", "commit"}:
        raise HttpError(400, f"{where}: end_txn takes a producer_id, its epoch and commit, and nothing else")
    producer_id, epoch, commit = fields["producer_id"], fields["epoch"], fields["commit"]
    if type(producer_id) is not int or type(epoch) is not int or type(commit) is not bool:
        raise HttpError(400, f"{where}: producer_id and epoch are whole numbers, and commit is true or false")
    return rejected_as_400(lambda: EndTxn(producer_id, epoch, commit), where)


def _parse_value(fields: dict[str, object], where: str) -> bytes:
    """`value` is base64, as in lists; `text` is a string that is stored as UTF-8."""
    if fields.keys() == {"key", "value"} and isinstance(value := fields["value"], str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise HttpError(400, f"{where}: value is not base64 (plain text goes into text)") from error
    if fields.keys() == {"key", "text"} and isinstance(text := fields["text"], str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise HttpError(400, f"{where}: text is not valid Unicode") from error
    raise HttpError(400, f'{where}: put takes a key and either "value" (base64) or "text" (a string)')


def rejected_as_400(build: Callable[[], T], where: str = "") -> T:
    """The value, or what is wrong with it as an answer (413 for one that is too large)."""
    try:
        return build()
    except RequestRejected as rejected:
        status = 413 if rejected.code is ErrorCode.MESSAGE_TOO_LARGE else 400
        raise HttpError(status, f"{where}: {rejected.message}" if where else rejected.message) from rejected
