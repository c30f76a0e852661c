"""What the answers of the nodes' HTTP fronts mean: entries, versions, refusals, conflicts, the events of a watch. Pure.

The distinction that matters: after which answers a write certainly did not happen, and after which it may have.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx

from raftlake.client.errors import KvConflict, NoRoom, RangeTooLarge
from raftlake.client.sse import ServerSentEvent
from raftlake.client.types import KvDeleted, KvEntry, KvEvent, KvPage
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WireError, unknown_outcome

#: A write was decided, and did not happen, since it is about too many keys.
RANGE_TOO_LARGE = 409
#: A node had no room for a write, and did not propose it.
INSUFFICIENT_STORAGE = 507
REFUSALS = {
    400: ErrorCode.INVALID_REQUEST,
    403: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    410: ErrorCode.OFFSET_OUT_OF_RANGE,
    413: ErrorCode.MESSAGE_TOO_LARGE,
    # A node that is asked under a name it does not serve (http.allowed.hosts): trying again does not help.
    421: ErrorCode.INVALID_REQUEST,
}
#: What a node answers to a write that it did not propose; 503 counts with Retry-After only.
_NOT_PROPOSED = frozenset({400, 403, 404, 405, 408, 413, 415, 421, 503, INSUFFICIENT_STORAGE})


def version_of(answer: httpx.Response) -> int:
    try:
        return int(answer.headers["etag"].strip('"'))
    except (KeyError, ValueError) as error:
        raise WireError(f"{answer.request.url} answered {answer.status_code} without a version") from error


def offset_of(answer: httpx.Response) -> int:
    try:
        return int(answer.headers["x-raftlake-offset"])
    except (KeyError, ValueError) as error:
        raise WireError(f"{answer.request.url} answered without its offset") from error


def has_offset(answer: httpx.Response) -> bool:
    """Whether a node may have given the answer: each of its answers carries the offset."""
    return "x-raftlake-offset" in answer.headers


def page_of(answer: httpx.Response) -> KvPage:
    """A list of keys."""
    body = json_of(answer)
    try:
        entries = tuple(_entry_of(row) for row in body["entries"])
        prefixes = tuple(map(_text, body.get("prefixes", ())))
        return KvPage(entries=entries, more=bool(body["more"]), version=offset_of(answer) - 1, prefixes=prefixes)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WireError(f"{answer.request.url} answered with no list of keys: {error!r}") from error


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no name")
    return found


def _entry_of(row: Mapping[str, Any]) -> KvEntry:
    value = row.get("value")
    return KvEntry(
        key=row["key"],
        version=row["version"],
        size=row["size"],
        value=None if value is None else base64.b64decode(value),
    )


def json_of(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except (ValueError, RecursionError) as error:
        raise WireError(f"{answer.request.url} answered {answer.status_code} without JSON") from error
    if not isinstance(body, dict):
        raise WireError(f"{answer.request.url} answered {answer.status_code} with other JSON than an object")
    return body


def error_text(answer: httpx.Response) -> str:
    try:
        return str(json_of(answer).get("error", answer.reason_phrase))
    except WireError:
        return answer.reason_phrase


def refusal_of(answer: httpx.Response) -> RequestRejected:
    if answer.status_code == INSUFFICIENT_STORAGE:
        return NoRoom(f"{answer.status_code}: {error_text(answer)}")
    code = REFUSALS.get(answer.status_code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return RequestRejected(code, f"{answer.status_code}: {error_text(answer)}")


def conflict_of(answer: httpx.Response) -> KvConflict:
    """Of one key (`key`, `version`), of the compares of a transaction (`failed`) and of its ends (`refused`)."""
    body = json_of(answer)
    failed = body.get("failed", [body])
    try:
        newest = {row["prefix"]: row["newest"] for row in failed if "prefix" in row}
        current = {row["key"]: row["version"] for row in failed if "prefix" not in row}
        refused = {row["producer_id"]: row["reason"] for row in body.get("refused", ())}
    except (KeyError, TypeError):
        current, refused, newest = {}, {}, {}
    is_sound = (
        _are_versions(current)
        and _are_versions(newest)
        and all(type(producer_id) is int and type(reason) is str for producer_id, reason in refused.items())
    )
    if not (current or refused or newest) or not is_sound:
        raise WireError(f"{answer.request.url} answered 412 without the versions in the way")
    return KvConflict(current, refused, newest)


def _are_versions(found: Mapping[Any, Any]) -> bool:
    return all(type(name) is str and type(version) is int for name, version in found.items())


def too_large_of(answer: httpx.Response) -> RangeTooLarge:
    """Why a transaction with ranges did not happen. Raises WireError where a node does not say so."""
    try:
        prefixes = {row["prefix"]: row["keys_max"] for row in json_of(answer)["too_large"]}
    except (KeyError, TypeError):
        prefixes = {}
    if not prefixes or not _are_versions(prefixes):
        raise WireError(f"{answer.request.url} answered {RANGE_TOO_LARGE} without the ranges that are too large")
    return RangeTooLarge(f"{answer.status_code}: {error_text(answer)}", prefixes)


def deleted_of(answer: httpx.Response) -> KvDeleted:
    """How many keys a transaction deleted by their prefix."""
    count = json_of(answer).get("deleted")
    if type(count) is not int:
        raise WireError(f"{answer.request.url} answered {answer.status_code} without the number of keys that are deleted")
    return KvDeleted(version=version_of(answer), count=count)


def unknown_write(method: str, path: str, told: str) -> UnknownOutcome:
    """The error of a write that no answer of a node decides."""
    return unknown_outcome(f"{method} {path}: {told}", f"read the key{'s' if path == '/v1/txn' else ''}, then decide")


def may_have_happened(answer: httpx.Response) -> bool:
    """Whether the write may have been proposed and no answer of a node says what became of it. What stands between client and
    node answers as it likes, so a refusal counts only where a node gives it."""
    if answer.status_code not in _NOT_PROPOSED or not _is_of_a_node(answer):
        return True
    return answer.status_code == 503 and "retry-after" not in answer.headers


def _is_of_a_node(answer: httpx.Response) -> bool:
    """Whether the answer looks like a node's error: JSON with `error`, and the offset that every answer of a node carries."""
    try:
        return "x-raftlake-offset" in answer.headers and isinstance(json_of(answer).get("error"), str)
    except WireError:
        return False


def may_have_room_soon(answer: httpx.Response) -> bool:
    """A write was refused because disks are nearly full, which may end by itself. A key space at its quota is no reason to
    wait."""
    return answer.status_code == INSUFFICIENT_STORAGE and "retry-after" in answer.headers


def front_of(redirect: httpx.Response) -> str:
    """The front of the leader that a 307 names."""
    try:
        url = httpx.URL(redirect.headers["location"])
    except (KeyError, httpx.InvalidURL):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise WireError(f"{redirect.request.url} answered 307 without the leader's address")
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def change_of(event: ServerSentEvent) -> KvEvent | None:
    """The change in one event of a watch; RequestRejected when the watch fell behind what the node keeps."""
    try:
        row = json.loads(event.data)
        if event.name == "compacted":
            raise RequestRejected(ErrorCode.OFFSET_OUT_OF_RANGE, row["error"])
        if event.name not in ("put", "delete"):
            return None
        value = base64.b64decode(row["value"]) if event.name == "put" else None
        return KvEvent(key=row["key"], version=int(row["version"]), value=value)
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"undecodable event of a watch: {error}") from error


class WatchPosition:
    """Where a watch resumes. An id stands only with the last change of a transaction, so a stream that breaks in the middle of
    one resumes before it; what was already handed out is then left out."""

    def __init__(self, version: int | None) -> None:
        self._version = version
        self._handed_out: dict[tuple[int, str], None] = {}

    def params(self) -> dict[str, str]:
        return {} if self._version is None else {"from": str(self._version)}

    def start_at(self, version: int) -> None:
        """The node's own position, for a watch that begins now."""
        if self._version is None:
            self._version = version

    def is_new(self, change: KvEvent) -> bool:
        identity = (change.version, change.key)
        if identity in self._handed_out:
            return False
        self._handed_out[identity] = None
        return True

    def advance_to(self, last_id: str | None) -> None:
        if last_id is not None and last_id.isascii() and last_id.isdecimal():
            version = max(int(last_id), self._version or 0)
            self._version = version
            self._handed_out = {identity: None for identity in self._handed_out if identity[0] > version}
