"""GET /v1/watch: the changes of the key space as server-sent events, without a gap, resumable by version.

There is no queue per watcher: each one is a cursor into the state machine's own bounded history (`watch_cursor`), so a slow
reader costs little but its connection. Its next piece is made when its socket has taken the last one, and counts among the
answers on their way. All cursors are moved on by one piece of work after another, in a line of their own. A reader that falls
behind the history is told so and closed, never skipped ahead; one that takes no bytes for `STALL_SECONDS` is closed.

Events: `put` and `delete` with JSON data; the changes of one transaction follow one another and only the last one carries
the id, so that a reader that resumes from the last id it saw never misses the rest of a transaction. A stream begins with the
id of where it stands, and each heartbeat carries it: an id without data moves a reader's resume point, and is no event to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from raftlake.kv.history import Compacted
from raftlake.kv.machine import StateMachine
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.http.base import ByteBudget, Hold, HttpError, Request, json_bytes, parse_count
from raftlake.runtime.http.exchange import Exchange
from raftlake.runtime.http.watch_cursor import PIECE_BYTES_MAX, Cursor, Encodings
from raftlake.runtime.work_line import WorkLine

HEARTBEAT_SECONDS = 10.0
STALL_SECONDS = 30.0
#: Between two looks for room among the answers on their way.
ROOM_SECONDS = 0.1


class _Watcher:
    """One watch. `piece` is what comes next, with what it takes of the budget; `failure` is why nothing more comes."""

    __slots__ = ("cursor", "failure", "hold", "piece", "wake")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.wake = asyncio.Event()
        self.piece = b""
        self.hold: Hold | None = None
        self.failure: Exception | None = None

    def release(self) -> None:
        self.piece = b""
        if self.hold is not None:
            self.hold.release()
            self.hold = None


class Watchers:
    """All watches of one node: finds the next piece of each when something was applied, ends them when the node stops. `line`
    is for this work alone; `answers` are those on their way to clients."""

    def __init__(
        self,
        node: ReplicaNode,
        line: WorkLine,
        answers: ByteBudget,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._machine = node.kv.machine
        self._line = line
        self._answers = answers
        self._encodings = Encodings()
        self._all: dict[_Watcher, None] = {}
        #: Those whose readers take more: to be looked at, at the end of what there is, and without room for a piece.
        self._pending: dict[_Watcher, None] = {}
        self._at_end: dict[_Watcher, None] = {}
        self._without_room: dict[_Watcher, None] = {}
        self._is_looking = False
        self._is_closed = False
        self._heartbeat_seconds = heartbeat_seconds
        self._stall_seconds = stall_seconds
        node.kv.listeners.append(self._on_applied)

    def close(self) -> None:
        """End every stream; its reader resumes at another node."""
        self._is_closed = True
        for watcher in self._all:
            watcher.wake.set()

    # --- one watch ---

    async def serve(self, request: Request, exchange: Exchange) -> None:
        """One watch, from the first header to its end. Raises HttpError before anything was sent, TimeoutError when the reader
        takes nothing."""
        watcher = _Watcher(Cursor(self._machine, *parse_watch(request, self._machine)))
        self._all[watcher] = None
        exchange.on_gone = watcher.wake.set
        try:
            headers = [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-raftlake-offset", b"%d" % self._machine.applied_offset),
            ]
            exchange.begin_stream(headers)
            await self._send_piece(exchange, watcher.cursor.mark(b"watch"))
            await self._stream(watcher, exchange)
            exchange.end_stream()
        finally:
            for those in (self._all, self._pending, self._at_end, self._without_room):
                those.pop(watcher, None)
            watcher.release()

    async def _stream(self, watcher: _Watcher, exchange: Exchange) -> None:
        while not exchange.is_gone and not self._is_closed:
            self._pending[watcher] = None
            self._look_on()
            piece = await self._wait(watcher)
            if isinstance(watcher.failure, Compacted):
                await self._send_piece(exchange, compacted_event(watcher.failure))
                return
            if watcher.failure is not None:
                raise watcher.failure
            if piece:
                await self._send_piece(exchange, piece)
            watcher.release()

    async def _wait(self, watcher: _Watcher) -> bytes:
        """The next piece, b"" when woken for another reason, or a heartbeat that moves the reader's resume point on."""
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await watcher.wake.wait()
            except TimeoutError:
                # Amid an event nothing else may be said, and before the end of what there is the resume point stands still.
                if watcher not in self._at_end:
                    continue
                # While the heartbeat is on its way no piece is made, which would take its place.
                del self._at_end[watcher]
                return watcher.cursor.mark(b"heartbeat")
            watcher.wake.clear()
            return watcher.piece

    async def _send_piece(self, exchange: Exchange, piece: bytes) -> None:
        """Waits until the connection has taken it; a reader that takes nothing for too long loses the stream."""
        # Not by wait_for: it forgets a cancellation that comes as the piece has been taken.
        async with asyncio.timeout(self._stall_seconds):
            await exchange.write_piece(piece)

    # --- all of them ---

    def _on_applied(self, applied_offset: int) -> None:
        self._pending |= self._at_end
        self._at_end.clear()
        self._look_on()

    def _look_on(self) -> None:
        if self._pending and not self._is_looking:
            self._is_looking = True
            self._line.run(self._look(), self._on_looked)

    def _on_looked(self, _: None) -> None:
        self._is_looking = False
        self._look_on()

    def _look(self) -> Generator[None, None, None]:
        """Move each cursor that waits for it on; those that are not done by that go behind the others."""
        while self._pending:
            watcher = next(iter(self._pending))
            del self._pending[watcher]
            self._move_on(watcher)
            yield

    def _move_on(self, watcher: _Watcher) -> None:
        try:
            hold = self._answers.take(PIECE_BYTES_MAX)
        except HttpError:
            self._wait_for_room(watcher)
            return
        try:
            piece = watcher.cursor.take(self._encodings)
        except Exception as failure:  # noqa: BLE001
            # Its own task tells the reader, or the log.
            hold.release()
            watcher.failure = failure
            watcher.wake.set()
            return
        hold.settle(len(piece or b""))
        if piece:
            watcher.piece, watcher.hold = piece, hold
            watcher.wake.set()
        else:
            (self._pending if piece is None else self._at_end)[watcher] = None

    def _wait_for_room(self, watcher: _Watcher) -> None:
        if not self._without_room:
            asyncio.get_running_loop().call_later(ROOM_SECONDS, self._look_for_room)
        self._without_room[watcher] = None

    def _look_for_room(self) -> None:
        self._pending |= self._without_room
        self._without_room.clear()
        self._look_on()


def parse_watch(request: Request, machine: StateMachine) -> tuple[str, int]:
    """(prefix, version after which to begin): Last-Event-ID, else `from`, else now. A browser's EventSource reconnects with the
    `from` of its first request and the id of the last event that it saw."""
    query = request.query("prefix", "from")
    last_id = request.header(b"last-event-id")
    positions, name = ({"Last-Event-ID": last_id}, "Last-Event-ID") if last_id else (query, "from")
    version = parse_count(positions, name, default=machine.applied_offset - 1, low=0, high=2**63 - 1)
    assert version is not None
    try:
        machine.history.after(version)
    except Compacted as compacted:
        raise HttpError(410, compacted.message, facts={"from": version, "oldest": compacted.floor}) from compacted
    return query.get("prefix", ""), version


def compacted_event(compacted: Compacted) -> bytes:
    """The last event of a reader that fell behind: it has to list again."""
    data = {"error": compacted.message, "from": compacted.version, "oldest": compacted.floor}
    return b"event: compacted\ndata: %s\n\n" % json_bytes(data)
