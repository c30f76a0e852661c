"""GET /v1/watch: the changes of the key space as server-sent events, without a gap, resumable by version.

There is no queue per watcher: each one is a cursor (a version) into the state machine's own bounded history, so a slow reader
costs nothing but its connection. One that falls behind the history is told so and closed, never skipped ahead; one that
takes no bytes for `STALL_SECONDS` is closed.

Events: `put` and `delete` with JSON data; the changes of one transaction follow one another and only the last one carries
the id, so that a reader that resumes from the last id it saw never misses the rest of a transaction. A stream begins with the
id of where it stands, and each heartbeat carries it: an id without data moves a reader's resume point, and is no event to it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence

from raftlake.kv.history import Change, Compacted
from raftlake.kv.machine import StateMachine
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.base import HttpError, Request, json_bytes, parse_count
from raftlake.runtime.http.exchange import Exchange

HEARTBEAT_SECONDS = 10.0
STALL_SECONDS = 30.0
#: Changes taken from the history at once, and bytes of values beyond which a piece is sent (between transactions).
CHANGES_MAX = 256
PIECE_BYTES = 256 * 1024


class Watchers:
    """All watches of one node: wakes them when something was applied, ends them when the node stops."""

    def __init__(
        self, node: ReplicaNode, *, heartbeat_seconds: float = HEARTBEAT_SECONDS, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._machine = node.kv.machine
        self._wakes: dict[asyncio.Event, None] = {}
        self._is_closed = False
        self._heartbeat_seconds = heartbeat_seconds
        self._stall_seconds = stall_seconds
        node.kv.listeners.append(self._on_applied)

    def close(self) -> None:
        """End every stream; its reader resumes at another node."""
        self._is_closed = True
        self._wake_all()

    def _on_applied(self, applied_offset: int) -> None:
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake.set()

    async def serve(self, request: Request, exchange: Exchange) -> None:
        """One watch, from the first header to its end. Raises HttpError before anything was sent, TimeoutError when the reader
        takes nothing."""
        cursor = _Cursor(self._machine, *parse_watch(request, self._machine))
        first = cursor.mark(b"watch") + cursor.take()
        wake = asyncio.Event()
        self._wakes[wake] = None
        exchange.on_gone = wake.set
        try:
            headers = [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-raftlake-offset", b"%d" % self._machine.applied_offset),
            ]
            exchange.begin_stream(headers)
            await self._stream(cursor, first, wake, exchange)
            exchange.end_stream()
        finally:
            del self._wakes[wake]

    async def _stream(self, cursor: _Cursor, piece: bytes, wake: asyncio.Event, exchange: Exchange) -> None:
        while True:
            # Cleared before anything is looked at, so that what happens from here on is not slept through.
            wake.clear()
            if exchange.is_gone or self._is_closed:
                break
            if piece:
                await self._send_piece(exchange, piece)
            try:
                piece = cursor.take()
                if not piece:
                    piece = await self._wait(cursor, wake)
            except Compacted as compacted:
                await self._send_piece(exchange, compacted_event(compacted))
                return

    async def _wait(self, cursor: _Cursor, wake: asyncio.Event) -> bytes:
        """The next changes, b"" when woken for another reason, or a heartbeat that moves the reader's resume point on."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                await wake.wait()
        except TimeoutError:
            return cursor.mark(b"heartbeat")
        return cursor.take()

    async def _send_piece(self, exchange: Exchange, piece: bytes) -> None:
        """Waits while the connection's buffer is full; a reader that takes nothing for too long loses the stream."""
        # Not by wait_for: it forgets a cancellation that comes as the piece has been taken.
        async with asyncio.timeout(self._stall_seconds):
            await exchange.write_piece(piece)


class _Cursor:
    """Where one watcher stands: it has everything up to `version`."""

    def __init__(self, machine: StateMachine, prefix: str, version: int) -> None:
        self._machine = machine
        self._prefix = prefix
        self.version = version

    def mark(self, comment: bytes) -> bytes:
        """Where the watcher stands, for its reader to resume from."""
        return b": %s\nid: %d\n\n" % (comment, max(self.version, 0))

    def take(self) -> bytes:
        """The next changes as events, b"" when there are none yet. Raises Compacted."""
        # Before the history is asked, so that nothing applied later is skipped over.
        latest = self._machine.applied_offset - 1
        changes = self._machine.changes_since(self._prefix, self.version, CHANGES_MAX)
        if not changes:
            self.version = max(self.version, latest)
            return b""
        taken = _first_piece(changes)
        # All of fewer than the limit: the history holds no more, so the cursor stands at its end.
        is_all = len(taken) == len(changes) < CHANGES_MAX
        self.version = max(self.version, latest) if is_all else taken[-1].version
        changes = taken
        last_of = {change.version: index for index, change in enumerate(changes)}
        return b"".join(encode_change(change, is_last=last_of[change.version] == index) for index, change in enumerate(changes))


def _first_piece(changes: Sequence[Change]) -> Sequence[Change]:
    """As many whole transactions as fit into one piece, at least one."""
    size = 0
    for index, change in enumerate(changes):
        if size > PIECE_BYTES and change.version != changes[index - 1].version:
            return changes[:index]
        size += len(change.value or b"")
    return changes


def parse_watch(request: Request, machine: StateMachine) -> tuple[str, int]:
    """(prefix, version after which to begin): Last-Event-ID, else `from`, else now. A browser's EventSource reconnects with the
    `from` of its first request and the id of the last event that it saw."""
    query = request.query("prefix", "from")
    last_id = request.header(b"last-event-id")
    positions, name = ({"Last-Event-ID": last_id}, "Last-Event-ID") if last_id else (query, "from")
    version = parse_count(positions, name, default=machine.applied_offset - 1, low=0, high=2**63 - 1)
    assert version is not None
    try:
        machine.changes_since(query.get("prefix", ""), version, 1)
    except Compacted as compacted:
        raise HttpError(410, compacted.message, facts={"from": version, "oldest": compacted.floor}) from compacted
    return query.get("prefix", ""), version


def encode_change(change: Change, *, is_last: bool) -> bytes:
    """One event; `value` is base64, as in lists."""
    data: dict[str, object] = {"key": change.key, "version": change.version}
    if change.value is not None:
        data["value"] = base64.b64encode(change.value).decode("ascii")
    kind = b"delete" if change.value is None else b"put"
    event_id = b"id: %d\n" % change.version if is_last else b""
    return b"event: %s\n%sdata: %s\n\n" % (kind, event_id, json_bytes(data))


def compacted_event(compacted: Compacted) -> bytes:
    """The last event of a reader that fell behind: it has to list again."""
    data = {"error": compacted.message, "from": compacted.version, "oldest": compacted.floor}
    return b"event: compacted\ndata: %s\n\n" % json_bytes(data)
