"""The key-value space over HTTP: /v1/kv/{key}, /v1/kv?prefix=..., /v1/txn.

The promises of each status: 200 it happened, at the version in the ETag; 412 it did not, the body names the version that
stood in the way; 409 it did not, since a range of keys is larger than a command may deal with; 307 ask the leader, which this
node hears of; 503 refused before it was proposed, so nothing changed; 507 the same, for want of room; 504 proposed, and whether
it happened or still will is unknown. Reads are linearizable at any node unless asked to be stale.
"""

from __future__ import annotations

import re

from raftlake.errors import ErrorCode
from raftlake.kv.commands import (
    ABSENT,
    ANY,
    COMPARE_RANGE_KEYS_MAX,
    DELETE_RANGE_KEYS_MAX,
    TXN_BYTES_MAX,
    VALUE_BYTES_MAX,
    Compare,
    Delete,
    Put,
    Txn,
)
from raftlake.kv.keys import is_reserved
from raftlake.kv.machine import TxnResult
from raftlake.kv.ranges import RangeResult
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
from raftlake.runtime.http.exchange import PIECE_BYTES, Waiter
from raftlake.runtime.http.hosts import require_json
from raftlake.runtime.http.in_line import in_line
from raftlake.runtime.http.pages import Page
from raftlake.runtime.http.txn_body import parse_txn, rejected_as_400
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.work_line import WorkLine

LIST_LIMIT_DEFAULT = 1000
LIST_LIMIT_MAX = 10_000
#: Base64 and JSON around the largest transaction.
TXN_BODY_BYTES_MAX = TXN_BYTES_MAX * 3 // 2
#: A body that is parsed without waiting in line: 0.3 ms.
BODY_BYTES_AT_ONCE = 4 * 1024
#: What a 412 says, so that it cannot be taken for the answer to a write that happened.
CONDITION_FAILED = "condition failed"
END_REFUSED = "a transaction cannot end so; nothing changed"
#: Bodies of all requests under way together.
BODY_BYTES_MAX = 64 * 1024 * 1024
_CONSISTENCY = ("linearizable", "stale")
#: An entity-tag (RFC 9110 §8.8.3), and one that a node gave: tags are compared byte by byte.
_ENTITY_TAG = re.compile(r'"[\x21\x23-\x7e]*"')
_VERSION = re.compile(r'"([1-9][0-9]{0,18})"')


class KvHandlers:
    """Handlers for the key-value routes; each returns a response or raises HttpError."""

    def __init__(self, node: ReplicaNode, metrics: NodeMetrics, answers: ByteBudget, line: WorkLine) -> None:
        self._node = node
        self._metrics = metrics
        #: What is on its way to clients.
        self._answers = answers
        self._line = line
        self._budget = ByteBudget(BODY_BYTES_MAX)

    # --- reads ---

    async def get(self, request: Request, raw_key: bytes) -> Response:
        key = parse_key(raw_key)
        query = request.query("consistency")
        offset = await self._read(parse_choice(query, "consistency", _CONSISTENCY))
        machine = self._node.kv.machine
        # Before the value is copied.
        hold = self._answers.take(size) if (size := machine.size_of(key)) > PIECE_BYTES else None
        entry = machine.get(key)
        if entry is None:
            return Response(404, json_bytes({"error": "no such key", "key": key}), offset=offset)
        return Response(200, entry.value, BINARY, (etag(entry.version),), offset, hold)

    async def list(self, request: Request) -> Response:
        query = request.query("prefix", "after", "limit", "values", "consistency", "delimiter")
        limit = parse_count(query, "limit", default=LIST_LIMIT_DEFAULT, low=1, high=LIST_LIMIT_MAX)
        assert limit is not None
        with_values = parse_choice(query, "values", ("false", "true")) == "true"
        delimiter = query.get("delimiter")
        if delimiter is not None and len(delimiter) != 1:
            raise HttpError(400, f"delimiter={delimiter!r}: accepted is one character")
        await self._read(parse_choice(query, "consistency", _CONSISTENCY))
        page = Page(
            self._node.kv.machine,
            self._answers,
            lambda: not request.source.is_gone,
            prefix=query.get("prefix", ""),
            after=query.get("after"),
            limit=limit,
            with_values=with_values,
            delimiter=delimiter,
        )
        small = page.small()
        if small is not None:
            return small
        try:
            return await in_line(self._line, page.pieces())
        except BaseException:
            page.drop()
            raise

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
            body = await request.body(TXN_BODY_BYTES_MAX)
            txn = await in_line(self._line, parse_txn(body), is_short=len(body) <= BODY_BYTES_AT_ONCE)
            result = await self._propose(request, txn)
        if result.succeeded:
            told: dict[str, object] = {"succeeded": True, "version": result.offset}
            if txn.deleted_prefixes and result.ranges is not None:
                told["deleted"] = result.ranges.deleted
            return Response(200, json_bytes(told), headers=(etag(result.offset),), offset=result.offset + 1)
        return _not_succeeded(result)

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
        raise failed(self._node, request, outcome)


def _not_succeeded(result: TxnResult) -> Response:
    """412 where a condition failed or a transaction cannot end so; 409 where nothing but the size of a range is in the way."""
    ranges = result.ranges or RangeResult()
    failed: list[dict[str, object]] = [{"key": key, "version": version} for key, version in result.current]
    failed += [{"prefix": prefix, "newest": newest} for prefix, newest in ranges.newest]
    refused = [{"producer_id": producer_id, "reason": reason} for producer_id, reason in result.refused]
    too_large = [
        {"prefix": prefix, "of": of, "keys_max": keys_max}
        for of, keys_max, prefixes in (
            ("compare", COMPARE_RANGE_KEYS_MAX, ranges.compares_too_large),
            ("delete", DELETE_RANGE_KEYS_MAX, ranges.deletes_too_large),
        )
        for prefix in prefixes
    ]
    is_conflict = bool(failed or refused or not too_large)
    error = CONDITION_FAILED if failed else END_REFUSED if is_conflict else _why_too_large(ranges)
    told: dict[str, object] = {"error": error, "succeeded": False, "failed": failed}
    if refused:
        told["refused"] = refused
    if too_large:
        told["too_large"] = too_large
    return Response(412 if is_conflict else 409, json_bytes(told), offset=result.offset + 1)


def _why_too_large(ranges: RangeResult) -> str:
    if ranges.deletes_too_large:
        return (
            f"more than {DELETE_RANGE_KEYS_MAX} keys begin with the prefixes to delete, and one transaction deletes so many at "
            "most; nothing changed. Delete them by longer prefixes"
        )
    return (
        f"more than {COMPARE_RANGE_KEYS_MAX} keys begin with the prefixes to compare, and one transaction looks at so many at "
        "most; nothing changed. Compare longer prefixes, or a key that each change puts"
    )


def failed(node: ReplicaNode, request: Request, outcome: ProposeOutcome) -> HttpError:
    """What a client is told of a proposal that was not applied."""
    if outcome.status is ProposeStatus.UNKNOWN:
        return HttpError(504, "the write was proposed and its outcome is unknown: it may have happened, or may still happen")
    if outcome.status is ProposeStatus.NOT_LEADER:
        return elsewhere(node, request, outcome.leader_id)
    if outcome.reason:
        return HttpError(507, outcome.reason, headers=((b"retry-after", b"1"),) if outcome.is_passing else ())
    return unavailable("the write was refused before it was proposed; nothing changed")


def elsewhere(node: ReplicaNode, request: Request, leader_id: NodeId) -> HttpError:
    """307 to the leader's HTTP address; 503 where there is none."""
    # This node's own id: it is handing over, and the next leader is not known.
    is_elsewhere = leader_id not in (NO_LEADER, node.config.node_id)
    leader = node.membership.http_endpoint(leader_id) if is_elsewhere else None
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
