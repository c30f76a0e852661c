"""One accepted connection of the Kafka listener: frames in, answers out in request order.

Owns the order of answers: requests of one connection may complete in any order, and their answers leave in the order of the
requests. Owns the back-pressure too. A request is started only while the connection is below its limits. The requests behind it
wait, and nothing more is read until those have been started. So one connection holds at most `requests_max` started requests
and one consumer's Fetch, whatever the client sends.
Of a large frame only the beginning is read until the room that all connections share suffices for the frame (`frame_room`). A
client's dear (costly) request waits for its turn in the line of all connections (`work_line`) before it is decoded. Requests
behind it on the same connection wait too. Does not know what requests mean: a `Router` does.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from dataclasses import replace
from typing import cast

from raftlake.errors import InvariantViolation, WireError
from raftlake.ports.driver import PeerConnection
from raftlake.raft.types import NodeId
from raftlake.replica.config import ClientContext
from raftlake.runtime.listener.apis import listed
from raftlake.runtime.listener.request import DearFrame, Request, is_dear
from raftlake.runtime.listener.router import Router
from raftlake.runtime.listener.turn import LateAnswer, Turn
from raftlake.runtime.peers.codec import is_from_replica, parse_peer_client_id
from raftlake.wire.api import (
    ApiKey,
    UnsupportedRequest,
    decode_request,
    encode_response,
    encode_unsupported_version,
    peek_client_id,
)
from raftlake.wire.framing import FrameDecoder, spoken
from raftlake.wire.primitives import I32, BytesLike

#: For HTTP that came to the wrong port. It counts as a node's answer, so no client waits or takes a write for possibly done.
_NOT_HTTP = (
    b'{"error":"this port speaks Kafka\'s protocol (the setting listeners). HTTP is served at http.listener, whose addresses '
    b'raftlake.http.servers lists in Spark"}'
)
HTTP_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nx-raftlake-offset: 0\r\n"
    b"connection: close\r\n\r\n%s"
) % (len(_NOT_HTTP), _NOT_HTTP)
#: Bytes of answers of one turn that are gathered before they are written.
WRITE_BYTES = 128 * 1024
#: The least rate of a large frame, after `stall_seconds` while others wait for room, else after the time of an idle client.
FRAME_BYTES_PER_SECOND_MIN = 1024 * 1024


class Connection(asyncio.BufferedProtocol):
    """`peer` is what the driver remembers of this connection when a replica is on the other side."""

    def __init__(self, router: Router[Connection]) -> None:
        self._router = router
        self._limits = router.limits
        self._decoder = FrameDecoder(router.limits.request_bytes_max)
        #: Where the last bytes came. The first bytes of all tell another protocol.
        self._read_into = memoryview(b"")
        self._started: deque[Request] = deque()
        self._waiting: deque[Request | DearFrame] = deque()
        #: The request that the router is handing to the node at this moment.
        self._serving: Request | None = None
        self._started_bytes = 0
        self._fetches = 0
        self._unsent: list[BytesLike] = []
        self._unsent_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._is_reading = True
        self._is_writable = True
        self._is_starting = False
        self._is_lost = False
        self._client = ClientContext(None, "", router.use)
        self.peer = PeerConnection(listener=router.use)
        self.requests = 0
        #: Whether the connection has one of the places of nodes (`admission`), and whether it has asked for a place.
        self.is_peer = False
        self._has_claimed = False
        self._now = asyncio.get_running_loop().time
        self._turn = Turn(router.line, self._now, self)
        #: When the last bytes came. While the other side is behind: when it last took bytes, and how many it still has to take.
        self._heard_at = self._taken_at = self._now()
        self._unsent_held = self._untaken = 0
        #: What a large frame takes of the shared room while it is received or waits for its start, and since when.
        self._room = 0
        self._room_since = 0.0
        #: How many whole requests had arrived when the first bytes of the present request came, and when those bytes came.
        self._amid_request, self._amid_since = -1, 0.0
        #: The transport after `close`, for as long as the other side has not taken all answers.
        self._closing: asyncio.Transport | None = None

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._client.connection.on_check_done = self._start_what_waits
        self._turn.socket = self._transport.get_extra_info("socket")
        name = self._transport.get_extra_info("peername")
        self._client = replace(self._client, host=name[0] if isinstance(name, tuple) else "")
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes_max)
        if not self._router.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._closing = None
        self._is_lost = self._client.connection.is_gone = True
        self._drop_waiting()
        self._decoder.close()
        self._router.room.forget(self)
        self._leave_room()
        # The node still serves the started requests. Answers to these requests are dropped.
        self._router.release(self._started_bytes)
        self._hold_unsent(0)
        self._router.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._read_into = self._decoder.get_buffer(sizehint)
        return self._read_into

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        self._heard_at = self._now()
        try:
            for frame in self._decoder.buffer_updated(nbytes):
                self._take(frame)
            self._start()
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except WireError as error:
            if self.requests == 0 and nbytes >= 4 and spoken(I32.unpack_from(self._read_into)[0]) == ["HTTP"]:
                self._unsent.append(HTTP_REFUSAL)
            self.fail(error)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._taken_at = self._now()
        self._untaken = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._hold_unsent(self._untaken)

    def resume_writing(self) -> None:
        self._is_writable = True
        self._hold_unsent(0)
        self.start_waiting()

    def _hold_unsent(self, size: int) -> None:
        self._router.hold_unsent(size - self._unsent_held)
        self._unsent_held = size

    def fault_of(self, now: float) -> str | None:
        """Why the connection should be ended at this time; None where there is no reason."""
        if self._transport is None:
            is_left = self._closing is not None and now - self._heard_at > self._limits.stall_seconds
            return "takes no last answer" if is_left else None
        if self._turn.is_overdue(now, self._limits.turn_seconds):
            return "its turn did not come in time"
        if self._room and self._router.room.is_short:
            allowed = self._limits.stall_seconds + self._room / FRAME_BYTES_PER_SECOND_MIN
            if self._decoder.is_amid_frame and now - self._room_since > allowed:
                return "too slow with a large request while others wait for room"
        if not self._is_reading or not self._decoder.is_amid_frame or self.requests != self._amid_request:
            self._amid_request, self._amid_since = self.requests, now
        if not self._is_writable:
            untaken = self._transport.get_write_buffer_size()
            if untaken < self._untaken:
                self._taken_at, self._untaken = now, untaken
            return "takes no answers" if now - self._taken_at > self._limits.stall_seconds else None
        if self._decoder.is_amid_frame:
            if self._is_reading and now - self._heard_at > self._limits.stall_seconds:
                return "stopped amid a request"
            # A client that sends single bytes would otherwise hold the connection for ever.
            allowed = self._limits.idle_seconds + self._limits.stall_seconds
            is_slow = now - self._amid_since > allowed + self._decoder.large_bytes / FRAME_BYTES_PER_SECOND_MIN
            return "too slow with a request" if is_slow else None
        is_idle = not (self.is_peer or self._started or self._waiting) and now - self._heard_at > self._limits.idle_seconds
        return "idle" if is_idle else None

    # --- requests in ---

    def client(self, client_id: str | None) -> ClientContext:
        """The context of a request. The client id seldom changes on one connection, so the context is kept."""
        if client_id != self._client.client_id:
            self._client = replace(self._client, client_id=client_id)
        return self._client

    @property
    def client_id(self) -> str | None:
        """The client id of the last request that was served."""
        return self._client.client_id

    @property
    def host(self) -> str:
        return self._client.host

    @property
    def heard_at(self) -> float:
        return self._heard_at

    def fail(self, error: WireError) -> None:
        """The other side broke the protocol: log the error once, and close."""
        self._router.note_fault(self, error)
        self.close()

    def fail_by_bug(self, doing: str, error: Exception) -> None:
        self._router.note_bug(doing, error)
        self.abort()

    def send_answers(self) -> None:
        """Write the gathered answers."""
        unsent, self._unsent = self._unsent, []
        self._unsent_bytes = 0
        if unsent and self._transport is not None:
            self._transport.writelines(unsent)

    def close(self) -> None:
        """Send the gathered answers, then close."""
        self.send_answers()
        if self._transport is not None:
            self._transport.close()
            self._closing, self._transport = self._transport, None
            self._heard_at = self._now()
            self._drop_waiting()

    def abort(self) -> None:
        """Close at once, without the answers that are not sent."""
        transport = self._transport or self._closing
        if transport is not None:
            transport.abort()
            self._transport = self._closing = None
            self._drop_waiting()

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._turn.leave()

    def _take(self, frame: bytearray) -> None:
        """Queue a request that has arrived."""
        self.requests += 1
        if is_dear(frame, len(self._waiting)):
            if self.requests == 1:
                self.claim(parse_peer_client_id(peek_client_id(frame)))
            if not self.is_peer:
                self._waiting.append(DearFrame(frame, self._has_fetch))
                return
        self._waiting.append(self._decode(frame, is_behind_fetch=None))

    def _decode(self, frame: bytearray, is_behind_fetch: bool | None) -> Request:
        """`is_behind_fetch` is None for a frame that has just arrived; a dear frame remembers it from its arrival."""
        try:
            header, message = decode_request(frame)
        except UnsupportedRequest as unsupported:
            if unsupported.header.api_key != ApiKey.API_VERSIONS:
                raise
            # A newer client asks in its newest version first and goes on from this answer (KIP-511).
            answer = encode_unsupported_version(unsupported.header, listed(self._router.use))
            return Request(unsupported.header, None, len(frame), answer)
        request = Request(header, message, len(frame))
        if request.is_fetch and is_from_replica(message):
            self.claim(NodeId(message.replica_id))
            if self._has_fetch() if is_behind_fetch is None else is_behind_fetch:
                # Then the answer counter would no longer show which answer the sender has seen (ports.PeerConnection).
                raise WireError("a replica sent a Fetch before it had the answer to its last one")
        elif self.requests == 1:
            self.claim(parse_peer_client_id(header.client_id))
        request.is_dear = is_behind_fetch is not None or self._router.is_dear(header, message)
        return request

    def claim(self, node_id: NodeId | None) -> None:
        """The other side says that it is this node. Only the first claim counts: one that was refused is not repeated."""
        if node_id is not None and not self._has_claimed:
            self._has_claimed = True
            self._router.claim(self, node_id)

    def _has_fetch(self) -> bool:
        return self._fetches > 0 or any(waiting.is_fetch for waiting in self._waiting)

    def start_waiting(self) -> None:
        """Start the waiting requests that the limits allow now."""
        try:
            self._start()
        except WireError as error:
            self.fail(error)

    def _start_what_waits(self) -> None:
        if self._waiting:
            self.start_waiting()

    def _start(self) -> None:
        """Start what the limits allow, and read on only when no request waits. A call by an immediate answer ends here."""
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._waiting and self._may_start(self._waiting[0]):
                waiting = self._waiting[0]
                if waiting.is_dear and not (self.is_peer or self._turn.has_come):
                    self._turn.wait()
                    break
                if not self._router.reserve(self, waiting.size, waiting.is_fetch):
                    break
                self._waiting.popleft()
                self._started_bytes += waiting.size
                if waiting.is_dear:
                    self._turn.has_come = False
                request = waiting if isinstance(waiting, Request) else self._decode(waiting.frame, waiting.is_behind_fetch)
                self._started.append(request)
                self._fetches += request.is_fetch
                if request.size == self._room:
                    self._leave_room()
                if request.parts is not None:
                    self._send_answered()
                    continue
                # The message is as large as its frame, so the request does not keep it while the node serves it.
                message, request.message = request.message, None
                self._serving = request
                self._router.route(self, request.header, message, functools.partial(self._answer, request))
        finally:
            self._is_starting, self._serving = False, None
        reading = not self._waiting and self._is_writable
        if reading and not self._room and self._decoder.large_bytes:
            reading = self._take_room()
        self._set_reading(reading)

    def _take_room(self) -> bool:
        """Take room only when nothing else holds up the connection, so that a connection with room can use it."""
        size = self._decoder.large_bytes
        if self.requests == 0:
            self.claim(parse_peer_client_id(peek_client_id(self._decoder.beginning)))
        if not self._router.room.take(self, size, is_peer=self.is_peer):
            return False
        self._room = size
        self._room_since = self._heard_at = self._now()
        return True

    def _leave_room(self) -> None:
        if self._room:
            size, self._room = self._room, 0
            self._router.room.leave(size)

    def _may_start(self, request: Request | DearFrame) -> bool:
        if not self._started:
            return self._is_writable
        return (
            self._is_writable
            and len(self._started) < self._limits.requests_max
            and self._client.connection.checks_aside < self._limits.checks_aside_max
            and self._started_bytes + request.size <= self._limits.unanswered_bytes_max
            # An answer to a Fetch is large, so a connection gets one at a time.
            and not (self._fetches and request.is_fetch)
        )

    def _set_reading(self, reading: bool) -> None:
        if self._transport is None or self._transport.is_closing() or reading == self._is_reading:
            return
        self._is_reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- answers out ---

    def _answer(self, request: Request, message: object) -> None:
        """The answer to a request: its handler calls this exactly once. None sends nothing (Produce with acks=0)."""
        if request.is_answered:
            raise InvariantViolation(f"request {request.header.correlation_id} of {self.host} was answered twice")
        request.is_answered = True
        if request.is_dear and request is not self._serving and not (self.is_peer or self._is_lost):
            self._router.line.enter(LateAnswer(functools.partial(self._encode, request, message)))
        else:
            self._encode(request, message)

    def _encode(self, request: Request, message: object) -> None:
        request.parts = []
        if message is not None and self._transport is not None:
            try:
                request.parts = encode_response(request.header, message)
            except Exception as error:  # noqa: BLE001
                # The node has served the request and goes on. Only this answer cannot be encoded.
                self.fail_by_bug(f"failed to encode the answer to api key {request.header.api_key}", error)
        self._send_answered()

    def _send_answered(self) -> None:
        """Send the answers whose turn has come: an answer waits for the answers to all earlier requests."""
        if self._is_lost:
            return
        parts: list[BytesLike] = []
        is_urgent = False
        started = self._started
        while started and started[0].parts is not None:
            first = started.popleft()
            assert first.parts is not None
            parts += first.parts
            self._started_bytes -= first.size
            self._router.release(first.size)
            if first.is_fetch:
                self._fetches -= 1
                is_urgent = True
        if parts and self._transport is not None:
            self._unsent += parts
            self._unsent_bytes += sum(map(len, parts))
            if is_urgent or self._unsent_bytes >= WRITE_BYTES:
                # A follower may sync while the node makes the next answer. Large answers let the transport say when it is full.
                self.send_answers()
            elif len(self._unsent) == len(parts):
                # All other answers of one turn are one write: uvloop would make a system call for each answer.
                self._router.send_later(self)
        self._start_what_waits()
