"""The key-value space, over the nodes' HTTP front.

Owns the addresses of the fronts (asked for over the Kafka protocol), the redirects to the leader, and the retries. Invariant: a
write is sent again only after a 307, after a 503 or 507 of a node with Retry-After, or after a refused connection. These prove
that no node proposed the write. Nor is a write sent again in less time than that answer took. A write that may have happened
ends as UnknownOutcome: there was no answer, or an answer that is no refusal of a node (500, 502, 429 of a proxy, ...).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar, assert_never
from urllib.parse import quote

import httpx

from raftlake.client.admin import Admin
from raftlake.client.cluster import Cluster
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import NoReachableNode
from raftlake.client.kv_answers import (
    RANGE_TOO_LARGE,
    REFUSALS,
    WatchPosition,
    change_of,
    conflict_of,
    deleted_of,
    error_text,
    front_of,
    has_offset,
    may_have_happened,
    may_have_room_soon,
    offset_of,
    page_of,
    refusal_of,
    too_large_of,
    unknown_write,
    version_of,
)
from raftlake.client.sse import ServerSentEvents
from raftlake.client.types import EndTxn, KvDeleted, KvEntry, KvEvent, KvPage
from raftlake.errors import ErrorCode, InvalidInput, RaftlakeError, RequestRejected, WireError
from raftlake.kv.commands import ABSENT, ANY, Delete, DeletePrefix, Put

T = TypeVar("T")

_JSON = {"content-type": "application/json"}
#: A node sends at least a comment in this time while a watch is open.
_WATCH_SILENCE_MS_MAX = 30_000
#: A try with a large body, of the request or of the answer, has as much more time as the body takes at this rate.
BYTES_PER_S_MIN = 1 << 17


class AsyncKv:
    def __init__(self, cluster: Cluster, admin: Admin) -> None:
        self._cluster = cluster
        self._admin = admin
        # The environment's proxies are for the internet, not for the nodes of a quorum.
        self._http = httpx.AsyncClient(
            trust_env=False, follow_redirects=False, limits=httpx.Limits(max_connections=None, max_keepalive_connections=64)
        )
        self._fronts: list[str] = []
        #: The front that took the last write: writes go there first.
        self._leader: str | None = None
        self._turn = 0

    # --- operations --------------------------------------------------------------------------------------------------

    async def get(self, key: str, *, linearizable: bool = True, timeout_ms: float | None = None) -> KvEntry | None:
        """The entry, or None where the key does not exist. Without `linearizable` the entry may be old: some node has applied
        it."""
        answer = await self._read(_path(key), _consistency(linearizable), timeout_ms)
        if answer.status_code == 404:
            return None
        return KvEntry(key=key, version=version_of(answer), size=len(answer.content), value=answer.content)

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        if_version: int | None = None,
        create: bool = False,
        timeout_ms: float | None = None,
    ) -> int:
        """Set a key and return its new version. `create` (or `if_version` 0): only if it does not exist; another `if_version`:
        only if it has that version (-1: any). Raises KvConflict when the condition does not hold."""
        condition = ABSENT if create else if_version
        return await self._write("PUT", _path(key), timeout_ms, headers=_condition(condition), content=value)

    async def delete(self, key: str, *, if_version: int | None = None, timeout_ms: float | None = None) -> int:
        """Delete a key, with a condition as in `put`; returns the version of the change."""
        return await self._write("DELETE", _path(key), timeout_ms, headers=_condition(if_version))

    async def list(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int = 1000,
        values: bool = False,
        linearizable: bool = True,
        delimiter: str | None = None,
        timeout_ms: float | None = None,
    ) -> KvPage:
        """One page of the keys below `prefix` in key order, beginning behind `after`. With a `delimiter` (one character): only
        the keys without it behind the prefix, and as `prefixes` of the page what the others begin with, up to the delimiter.
        `after` is the `last` of the page before."""
        params = {**_consistency(linearizable), "prefix": require_text("prefix", prefix), "limit": str(limit)}
        if after is not None:
            params["after"] = require_text("key", after)
        if values:
            params["values"] = "true"
        if delimiter is not None:
            params["delimiter"] = require_text("delimiter", delimiter)
        answer = await self._read("/v1/kv", params, timeout_ms)
        if answer.status_code != 200:
            raise refusal_of(answer)
        return page_of(answer)

    async def txn(
        self,
        compare: Mapping[str, int],
        ops: Sequence[Put | Delete | DeletePrefix | EndTxn],
        *,
        newest: Mapping[str, int] | None = None,
        timeout_ms: float | None = None,
    ) -> int:
        """All of `ops` at one version, which is returned, if every key of `compare` has its version (0: must not exist, -1:
        must exist), no key that begins with a prefix of `newest` has a version above that of the prefix (0: there is no such
        key), and every transaction of a producer (`EndTxn`) can end so; else KvConflict and no change. A producer whose
        transaction ended so needs a new epoch. Raises RangeTooLarge, and changes nothing, where more than 10,000 keys would be
        deleted by their prefixes, or compared."""
        return await self._txn(compare, ops, newest or {}, timeout_ms, version_of)

    async def delete_prefix(self, prefix: str, *, if_newest: int | None = None, timeout_ms: float | None = None) -> KvDeleted:
        """Delete every key that begins with `prefix`, all at one version. With `if_newest`: only if none of them has a version
        above it, else KvConflict. Raises RangeTooLarge, and deletes none, where there are more than 10,000 of them."""
        newest = {} if if_newest is None else {prefix: if_newest}
        return await self._txn({}, [DeletePrefix(require_text("prefix", prefix))], newest, timeout_ms, deleted_of)

    async def _txn(
        self,
        compare: Mapping[str, int],
        ops: Sequence[Put | Delete | DeletePrefix | EndTxn],
        newest: Mapping[str, int],
        timeout_ms: float | None,
        read: Callable[[httpx.Response], T],
    ) -> T:
        body = {
            "compare": [
                *({"key": key, "version": version} for key, version in compare.items()),
                *({"prefix": prefix, "newest": version} for prefix, version in newest.items()),
            ],
            "ops": [_operation(operation) for operation in ops],
        }
        content = json.dumps(body).encode()
        return await self._written(read, "POST", "/v1/txn", timeout_ms, headers=_JSON, content=content)

    async def watch(self, prefix: str = "", *, from_version: int | None = None) -> AsyncIterator[KvEvent]:
        """The changes below `prefix` with a version above `from_version` (None: from now on), each once, without a gap, over
        reconnects, for ever. After a `list`, watch from the page's version.

        Raises RequestRejected(OFFSET_OUT_OF_RANGE) when the nodes no longer keep the changes that come next: list again.
        """
        config = self._cluster.config
        position = WatchPosition(from_version)
        require_text("prefix", prefix)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_ms_max)
        timeout = httpx.Timeout(config.connect_timeout_ms / 1000, read=_WATCH_SILENCE_MS_MAX / 1000)
        while True:
            front = await self._next_front()
            params = {"prefix": prefix, **position.params()}
            try:
                async with self._http.stream("GET", f"{front}/v1/watch", params=params, timeout=timeout) as answer:
                    if not has_offset(answer):
                        self._forget(front)
                    elif answer.status_code in REFUSALS:
                        async with asyncio.timeout(config.attempt_timeout_ms / 1000):
                            await answer.aread()
                        raise refusal_of(answer)
                    elif answer.status_code == 200:
                        position.start_at(offset_of(answer) - 1)
                        events = ServerSentEvents()
                        async for chunk in answer.aiter_bytes():
                            backoff.reset()
                            for event in events.feed(chunk):
                                change = change_of(event)
                                if change is not None and position.is_new(change):
                                    yield change
                            position.advance_to(events.last_id)
            except (httpx.TransportError, TimeoutError):
                self._forget(front)
            await backoff.pause()

    async def close(self) -> None:
        await self._http.aclose()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _read(self, path: str, params: Mapping[str, str], timeout_ms: float | None) -> httpx.Response:
        return await self._request("GET", path, timeout_ms, is_write=False, params=params)

    async def _write(self, method: str, path: str, timeout_ms: float | None, **arguments: Any) -> int:
        """The version of the change."""
        return await self._written(version_of, method, path, timeout_ms, **arguments)

    async def _written(
        self, read: Callable[[httpx.Response], T], method: str, path: str, timeout_ms: float | None, **arguments: Any
    ) -> T:
        """What `read` finds in the answer to a write that happened."""
        answer = await self._request(method, path, timeout_ms, is_write=True, **arguments)
        try:
            if answer.status_code == 412:
                raise conflict_of(answer)
            if answer.status_code == RANGE_TOO_LARGE:
                raise too_large_of(answer)
            return read(answer)
        except WireError as error:
            raise unknown_write(method, path, str(error)) from error

    async def _request(
        self, method: str, path: str, timeout_ms: float | None, *, is_write: bool, **arguments: Any
    ) -> httpx.Response:
        """The first answer that decides; see the module's invariant for what is sent again."""
        deadline = Deadline(self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms)
        backoff = Backoff(self._cluster.config.retry_backoff_ms, self._cluster.config.retry_backoff_ms_max)
        errors: dict[str, str] = {}
        #: The refusal of the last retriable answer, where that answer reported no room.
        no_room: RaftlakeError | None = None
        #: How long the last answer was waited for, which decided nothing.
        took_ms = 0.0
        was_redirected = False
        while True:
            front = await self._choose_front(is_write, deadline)
            began_ms = deadline.elapsed_ms()
            goes_on_at_once = False
            try:
                answer = await self._ask(method, front + path, deadline, **arguments)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                errors[front] = str(error) or type(error).__name__
                self._forget(front)
            except (httpx.RequestError, TimeoutError) as error:
                self._forget(front)
                reason = str(error) or type(error).__name__
                if is_write:
                    raise unknown_write(method, path, f"sent to {front}, it had no answer ({reason})") from error
                errors[front] = reason
            else:
                took_ms = deadline.elapsed_ms() - began_ms
                if not is_write and not has_offset(answer):
                    # Whoever took the port of a node that is down knows nothing of keys.
                    self._forget(front)
                    errors[front] = f"{answer.status_code}, and not from a node: it has no x-raftlake-offset"
                elif answer.status_code == 307:
                    try:
                        self._leader = front_of(answer)
                    except WireError as error:
                        if is_write:
                            raise unknown_write(method, path, str(error)) from error
                        raise
                    # The leader is known now. Nodes that send one to each other are asked with pauses.
                    goes_on_at_once, was_redirected = not was_redirected, True
                elif answer.status_code in ((200, 412, RANGE_TOO_LARGE) if is_write else (200, 404)):
                    if is_write:
                        self._leader = front
                    return answer
                elif is_write and may_have_happened(answer):
                    self._leader = None
                    raise unknown_write(method, path, f"{front} answered {answer.status_code}: {error_text(answer)}")
                elif answer.status_code in (500, 502, 503, 504) or may_have_room_soon(answer):
                    no_room = refusal_of(answer) if may_have_room_soon(answer) else None
                    errors[front] = f"{answer.status_code}: {error_text(answer)}"
                    self._leader = None
                    await _wait_as_told(answer, deadline)
                else:
                    raise refusal_of(answer)
            if not goes_on_at_once:
                await backoff.pause(deadline)
            # A write that no node has taken has a known outcome. One more try without an answer in time would take that away.
            if deadline.is_over() or (is_write and deadline.remaining_ms() < took_ms):
                raise no_room or self._timed_out(method, path, errors)

    def _timed_out(self, method: str, path: str, errors: Mapping[str, str]) -> RaftlakeError:
        """Nothing was proposed: every try was refused."""
        told = "; ".join(f"{front}: {error}" for front, error in errors.items())
        return RequestRejected(
            ErrorCode.REQUEST_TIMED_OUT, f"{method} {path} was not accepted in time ({told or 'redirected only'})"
        )

    async def _ask(self, method: str, url: str, deadline: Deadline, **arguments: Any) -> httpx.Response:
        """One try. TimeoutError proves nothing, as httpx.ReadTimeout."""
        config = self._cluster.config
        left_s = max(0.001, deadline.remaining_ms() / 1000)
        attempt_s = min(config.attempt_timeout_ms / 1000, left_s)
        connect_s = min(config.connect_timeout_ms / 1000, attempt_s)
        sending_s = min(len(arguments.get("content") or b"") / BYTES_PER_S_MIN, left_s)
        # A body is written in one piece. What is written is in the system's buffers, and not at the node yet.
        timeout = httpx.Timeout(sending_s + attempt_s, connect=connect_s)
        body = bytearray()
        # The limits of httpx begin anew with each piece. The connection is there when its own one is over.
        async with asyncio.timeout(connect_s + sending_s + attempt_s) as limit:
            first_at = limit.when() or 0.0
            async with self._http.stream(method, url, timeout=timeout, **arguments) as answer:
                async for piece in answer.aiter_raw():
                    body += piece
                    limit.reschedule(min(first_at + len(body) / BYTES_PER_S_MIN, max(first_at, deadline.at)))
        return httpx.Response(answer.status_code, headers=answer.headers, content=bytes(body), request=answer.request)

    # --- fronts ------------------------------------------------------------------------------------------------------

    async def _choose_front(self, is_write: bool, deadline: Deadline) -> str:
        if is_write and self._leader is not None:
            return self._leader
        return await self._next_front(deadline)

    async def _next_front(self, deadline: Deadline | None = None) -> str:
        """The fronts in turn; asked for anew once all of them have failed."""
        backoff = Backoff(self._cluster.config.retry_backoff_ms, self._cluster.config.retry_backoff_ms_max)
        deadline = deadline or Deadline(self._cluster.config.request_timeout_ms)
        while not self._fronts:
            self._fronts = [*await self._find_fronts(deadline)]
            if not self._fronts:
                if deadline.is_over():
                    raise NoReachableNode(
                        [str(address) for address in self._cluster.config.bootstrap],
                        {"http": "no node names its http.listener"},
                    )
                await backoff.pause(deadline)
        self._turn += 1
        return self._fronts[self._turn % len(self._fronts)]

    async def _find_fronts(self, deadline: Deadline) -> Sequence[str]:
        nodes = (await self._admin.describe_cluster(deadline.remaining_ms())).nodes
        found = await asyncio.gather(*(self._find_front(node_id, deadline) for node_id in nodes))
        return [front for front in found if front is not None]

    async def _find_front(self, node_id: int, deadline: Deadline) -> str | None:
        try:
            listener = await self._admin.node_address(node_id, "http.listener", deadline.remaining_ms())
        except RequestRejected:
            return None
        return None if not listener else f"http://{listener.removeprefix('http://')}"

    def _forget(self, front: str) -> None:
        if self._leader == front:
            self._leader = None
        if front in self._fronts:
            self._fronts.remove(front)


def require_text(what: str, text: str) -> str:
    """`text`, or an error that names it where it cannot be sent."""
    if not isinstance(text, str):
        raise TypeError(f"{what} {text!r} is not a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} {text!r} is not valid Unicode text") from error
    return text


def _path(key: str) -> str:
    require_text("key", key)
    # Dots too: a key of dots must not look like a relative path to anything on the way.
    return "/v1/kv/" + quote(key, safe="").replace(".", "%2E")


def _consistency(linearizable: bool) -> dict[str, str]:
    return {"consistency": "linearizable" if linearizable else "stale"}


def _condition(if_version: int | None) -> dict[str, str]:
    if if_version is None:
        return {}
    if if_version == ABSENT:
        return {"If-None-Match": "*"}
    return {"If-Match": "*" if if_version == ANY else f'"{if_version}"'}


def _operation(operation: Put | Delete | DeletePrefix | EndTxn) -> dict[str, dict[str, str | int]]:
    match operation:
        case Put(key=key, value=value):
            return {"put": {"key": key, "value": base64.b64encode(value).decode("ascii")}}
        case Delete(key=key):
            return {"delete": {"key": key}}
        case DeletePrefix(prefix=prefix):
            return {"delete": {"prefix": prefix}}
        case EndTxn():
            fields: dict[str, str | int] = {
                "producer_id": operation.producer_id,
                "epoch": operation.epoch,
                "commit": operation.commit,
            }
            return {"end_txn": fields}
        case _:
            assert_never(operation)


async def _wait_as_told(answer: httpx.Response, deadline: Deadline) -> None:
    """Wait for the seconds of Retry-After, within the deadline. Retry-After cannot be below 1 s, so 1 means soon and the
    caller's own backoff is used: an election takes a fraction of a second."""
    told = answer.headers.get("retry-after", "")
    if told.isdecimal() and int(told) > 1:
        await asyncio.sleep(min(int(told), deadline.remaining_ms() / 1000))
