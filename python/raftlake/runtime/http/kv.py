"""The key-value space over HTTP: /v1/kv/{key}, /v1/kv?prefix=..., /v1/txn.

The promises of each status: 200 it happened, at the version in the ETag; 412 it did not, the body names the version that
stood in the way; 307 ask the leader, which this node hears of; 503 refused before it was proposed, so nothing changed; 507 the
same, for want of room; 504 proposed, and whether it happened or still will is unknown. Reads are linearizable at any node
unless asked to be stale.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import ABSENT, ANY, TXN_BYTES_MAX, VALUE_BYTES_MAX, Compare, Delete, Put, Txn
from raftlake.kv.keys import is_reserved
from raftlake.kv.machine import TxnResult
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.raft.types import NO_LEADER, NodeId
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.base import (
    BINARY,
    ByteBudget,
    HttpError,
    Request,
    Response,
    decode_percent,
    json_bytes,
    parse_choice,
    parse_count,
    unavailable,
)
from raftlake.runtime.http.exchange import Waiter
from raftlake.runtime.http.hosts import require_json
from raftlake.runtime.metrics import NodeMetrics

T = TypeVar("T")

LIST_LIMIT_DEFAULT = 1000
LIST_LIMIT_MAX = 10_000
#: A page with values ends early rather than hold more than this.
LIST_BYTES_MAX = 8 * 1024 * 1024
#: Base64 and JSON around the largest transaction.
TXN_BODY_BYTES_MAX = TXN_BYTES_MAX * 3 // 2
#: What a 412 says, so that it cannot be taken for the answer to a write that happened.
CONDITION_FAILED = "condition failed"
#: Bodies of all requests under way together.
BODY_BYTES_MAX = 64 * 1024 * 1024
_CONSISTENCY = ("linearizable", "stale")
#: An entity-tag (RFC 9110 §8.8.3), and one that a node gave: tags are compared byte by byte.
_ENTITY_TAG = re.compile(r'"[\x21\x23-\x7e]*"')
_VERSION = re.compile(r'"([1-9][0-9]{0,18})"')


class KvHandlers:
    """Handlers for the key-value routes; each returns a response or raises HttpError."""

    def __init__(self, node: ReplicaNode, metrics: NodeMetrics) -> None:
        self._node = node
        self._metrics = metrics
        self._budget = ByteBudget(BODY_BYTES_MAX)

    # --- reads ---

    async def get(self, request: Request, raw_key: bytes) -> Response:
        key = parse_key(raw_key)
        query = request.query("consistency")
        offset = await self._read(parse_choice(query, "consistency", _CONSISTENCY))
        entry = self._node.kv.machine.get(key)
        if entry is None:
            return Response(404, json_bytes({"error": "no such key", "key": key}), offset=offset)
        return Response(200, entry.value, BINARY, (etag(entry.version),), offset)

    async def list(self, request: Request) -> Response:
        query = request.query("prefix", "after", "limit", "values", "consistency")
        limit = parse_count(query, "limit", default=LIST_LIMIT_DEFAULT, low=1, high=LIST_LIMIT_MAX)
        assert limit is not None
        with_values = parse_choice(query, "values", ("false", "true")) == "true"
        offset = await self._read(parse_choice(query, "consistency", _CONSISTENCY))
        entries, more = self._node.kv.machine.list(
            query.get("prefix", ""), query.get("after"), limit, LIST_BYTES_MAX if with_values else None
        )
        rows: list[dict[str, object]] = []
        for key, entry in entries:
            row: dict[str, object] = {"key": key, "version": entry.version, "size": len(entry.value)}
            if with_values:
                row["value"] = base64.b64encode(entry.value).decode("ascii")
            rows.append(row)
        return Response(200, json_bytes({"entries": rows, "more": more}), offset=offset)

    async def _read(self, consistency: str) -> int:
        """Wait until the local state machine may be read; the applied offset that the answer reflects."""
        if consistency == "stale":
            return self._node.kv.machine.applied_offset
        waiter: Waiter[ReadOffsetResult] = Waiter()
        self._node.kv.read(True, waiter.set)
        result = await waiter
        if result.error is not ErrorCode.NONE:
            raise unavailable(
                f"no leader proved itself in time ({result.error.name}); ?consistency=stale reads this node as it is"
            )
        return self._node.kv.machine.applied_offset

    # --- writes ---

    async def put(self, request: Request, raw_key: bytes) -> Response:
        key = parse_writable_key(raw_key)
        condition = parse_condition(request, key)
        request.query()
        with self._budget.hold(request.body_bytes(VALUE_BYTES_MAX)):
            value = await request.body(VALUE_BYTES_MAX)
            result = await self._propose(request, rejected_as_400(lambda: Txn(condition, (Put(key, value),))))
        return self._written(key, result)

    async def delete(self, request: Request, raw_key: bytes) -> Response:
        key = parse_writable_key(raw_key)
        condition = parse_condition(request, key)
        request.query()
        return self._written(key, await self._propose(request, Txn(condition, (Delete(key),))))

    async def txn(self, request: Request) -> Response:
        request.query()
        require_json(request)
        with self._budget.hold(request.body_bytes(TXN_BODY_BYTES_MAX)):
            txn = parse_txn(await request.body(TXN_BODY_BYTES_MAX))
            result = await self._propose(request, txn)
        if result.succeeded:
            body = json_bytes({"succeeded": True, "version": result.offset})
            return Response(200, body, headers=(etag(result.offset),), offset=result.offset + 1)
        failed = [{"key": key, "version": version} for key, version in result.current]
        body = json_bytes({"error": CONDITION_FAILED, "succeeded": False, "failed": failed})
        return Response(412, body, offset=result.offset + 1)

    def _written(self, key: str, result: TxnResult) -> Response:
        if result.succeeded:
            body = json_bytes({"key": key, "version": result.offset})
            return Response(200, body, headers=(etag(result.offset),), offset=result.offset + 1)
        ((key, version),) = result.current
        return Response(412, json_bytes({"error": CONDITION_FAILED, "key": key, "version": version}), offset=result.offset + 1)

    async def _propose(self, request: Request, txn: Txn) -> TxnResult:
        started_us = self._metrics.start_commit()
        waiter: Waiter[ProposeOutcome] = Waiter()
        rejected_as_400(lambda: self._node.kv.propose(txn, waiter.set))
        outcome = await waiter
        if outcome.status is ProposeStatus.DONE and outcome.result is not None:
            self._metrics.note_commit(started_us)
            return outcome.result
        if outcome.status is ProposeStatus.UNKNOWN:
            raise HttpError(504, "the write was proposed and its outcome is unknown: it may have happened, or may still happen")
        if outcome.status is ProposeStatus.NOT_LEADER:
            raise self._elsewhere(request, outcome.leader_id)
        if outcome.reason:
            raise HttpError(507, outcome.reason, headers=((b"retry-after", b"1"),) if outcome.is_passing else ())
        raise unavailable("the write was refused before it was proposed; nothing changed")

    def _elsewhere(self, request: Request, leader_id: NodeId) -> HttpError:
        """307 to the leader's HTTP address."""
        # This node's own id: it is handing over, and the next leader is not known.
        is_elsewhere = leader_id not in (NO_LEADER, self._node.config.node_id)
        leader = self._node.membership.http_endpoint(leader_id) if is_elsewhere else None
        if leader is None:
            return unavailable("this node hears of no leader of the quorum; nothing changed")
        address = f"[{leader.host}]:{leader.port}" if ":" in leader.host else str(leader)
        location = b"http://" + address.encode() + request.target
        return HttpError(
            307, f"node {leader_id} leads", headers=((b"location", location),), facts={"leaderId": leader_id, "leader": address}
        )


def etag(version: int) -> tuple[bytes, bytes]:
    return (b"etag", b'"%d"' % version)


def parse_key(raw: bytes) -> str:
    """The key of a path; 400 for one that cannot exist."""
    key = decode_percent(raw, "the key")
    rejected_as_400(lambda: Delete(key))
    return key


def parse_writable_key(raw: bytes) -> str:
    key = parse_key(raw)
    if is_reserved(key):
        raise HttpError(403, f"keys under /raftlake/ are written by the quorum alone: {key!r}")
    return key


def parse_condition(request: Request, key: str) -> tuple[Compare, ...]:
    """If-None-Match and If-Match as compares of a transaction, none without a condition. At most one compare can fail."""
    none_match, match = request.header(b"if-none-match"), request.header(b"if-match")
    if none_match is not None and match is not None:
        raise HttpError(400, "If-None-Match and If-Match contradict one another; send one of them")
    if none_match is not None:
        if none_match != "*":
            raise HttpError(400, f"If-None-Match: {none_match}: accepted is *")
        return (Compare(key, ABSENT),)
    if match is None:
        return ()
    if match == "*":
        return (Compare(key, ANY),)
    if _ENTITY_TAG.fullmatch(match) is None:
        raise HttpError(400, f'If-Match: {match}: accepted is one version in quotes, as in "17", or *')
    version = _VERSION.fullmatch(match)
    if version is None or int(version[1]) >= 1 << 63:
        # No entry has this tag, and If-Match never matches what is absent (RFC 9110 §13.1.1): these two never hold together.
        return Compare(key, ABSENT), Compare(key, ANY)
    return (Compare(key, int(version[1])),)


def parse_txn(body: bytes) -> Txn:
    """The JSON of POST /v1/txn; 400 names the part that is wrong."""
    try:
        fields = json.loads(body, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict) or not fields.keys() <= {"compare", "ops"} or "ops" not in fields:
        raise HttpError(
            400, 'the body must be {"compare":[{"key","version"}],"ops":[{"put":{"key","value"}},{"delete":{"key"}}]}'
        )
    compares = [_parse_compare(entry, index) for index, entry in enumerate(_rows(fields, "compare"))]
    ops = [_parse_op(entry, index) for index, entry in enumerate(_rows(fields, "ops"))]
    return rejected_as_400(lambda: Txn(tuple(compares), tuple(ops)))


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; 400 for a name that stands in it twice: the last value would win unseen."""
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise HttpError(400, f"{twice!r} stands twice in one object of the body")
    return members


def _rows(fields: dict[str, object], name: str) -> list[object]:
    rows = fields.get(name, [])
    if not isinstance(rows, list):
        raise HttpError(400, f"{name} must be a list")
    return rows


def _parse_compare(entry: object, index: int) -> Compare:
    where = f"compare[{index}]"
    if not isinstance(entry, dict) or entry.keys() != {"key", "version"}:
        raise HttpError(400, f'{where} must be {{"key": ..., "version": ...}}; version 0: it must not exist, -1: it must exist')
    key, version = entry["key"], entry["version"]
    if not isinstance(key, str) or not isinstance(version, int) or isinstance(version, bool):
        raise HttpError(400, f"{where}: key must be a string and version a whole number")
    return rejected_as_400(lambda: Compare(key, version), where)


def _parse_op(entry: object, index: int) -> Put | Delete:
    where = f"ops[{index}]"
    if not isinstance(entry, dict) or len(entry) != 1 or not entry.keys() <= {"put", "delete"}:
        raise HttpError(400, f'{where} must be {{"put": {{...}}}} or {{"delete": {{...}}}}')
    ((kind, fields),) = entry.items()
    if not isinstance(fields, dict) or not isinstance(key := fields.get("key"), str):
        raise HttpError(400, f"{where}: {kind} needs a key, a string")
    if is_reserved(key):
        raise HttpError(403, f"keys under /raftlake/ are written by the quorum alone: {key!r}")
    if kind == "delete":
        if fields.keys() != {"key"}:
            raise HttpError(400, f"{where}: delete takes a key and nothing else")
        return rejected_as_400(lambda: Delete(key), where)
    value = _parse_value(fields, where)
    return rejected_as_400(lambda: Put(key, value), where)


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
