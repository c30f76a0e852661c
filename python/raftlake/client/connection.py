"""One connection to one node: requests go out in order, answers come back in that order.

Owns the socket, the correlation of answers with requests and the time limits of the requests in flight. Refuses to know
what the messages mean, and never retries. The invariant: each `done` is called exactly once, in the order of the sends,
with the decoded answer or with `Disconnected`; a request that overstays its limit ends the connection, because every
answer behind it on this connection is stuck too.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse

from raftlake.client.deadline import Alarm
from raftlake.client.errors import Disconnected
from raftlake.client.types import Address, ClientConfig
from raftlake.errors import ErrorCode, RequestRejected, WireError
from raftlake.wire.api import ApiKey, decode_response, encode_request
from raftlake.wire.framing import FrameDecoder, spoken
from raftlake.wire.primitives import I32

#: What a request ends with: the decoded answer, or why there is none.
Done = Callable[[Any], None]

_API_VERSIONS_VERSION = 3
#: What is wrong where an HTTP front answers.
_HTTP_ANSWERED = (
    "it speaks HTTP, and not Kafka's protocol: bootstrap servers are the addresses that `listeners` of the nodes names, "
    "and not `http.listener`"
)


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    api_key: ApiKey
    version: int
    #: Seconds on the loop's clock.
    deadline: float
    done: Done


class Connection(asyncio.BufferedProtocol):
    """Made by `open_connection`; used from the loop's thread only."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(config.frame_bytes_max)
        #: Where the last bytes came.
        self._read_into = memoryview(b"")
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._outgoing: list[bytes | bytearray | memoryview] = []
        self._correlation_id = 0
        #: Rings when a request that is under way may have overstayed its limit.
        self._alarm = Alarm(self._check_deadlines)
        self._failure: Disconnected | None = None
        #: (lowest, highest) version of each API that the node offers.
        self.versions: Mapping[int, tuple[int, int]] = {}

    # --- requests ----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._failure is None

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def require_version(self, api_key: ApiKey, version: int) -> None:
        """RequestRejected(UNSUPPORTED_VERSION) unless the node offers this version (private APIs are not listed)."""
        if api_key in (ApiKey.READ_OFFSET, ApiKey.FIND_QUORUM, ApiKey.WRITE_MARKERS):
            return
        lowest, highest = self.versions.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            told = f"{self.address} does not speak {api_key.name} version {version}"
            if api_key not in self.versions and ApiKey.BEGIN_QUORUM_EPOCH in self.versions:
                told += ": it is a listener for peers; clients connect to the address that `listeners` names"
            raise RequestRejected(ErrorCode.UNSUPPORTED_VERSION, told)

    def send(self, api_key: ApiKey, version: int, message: object, timeout_ms: float, done: Done) -> None:
        """Send, at the end of this loop turn together with what else is sent in it. `done` is never called from within."""
        if self._failure is not None:
            failure = Disconnected(str(self.address), self._failure.reason, sent=False)
            self._loop.call_soon(done, failure)
            return
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(api_key, version, correlation_id, self._config.client_id, message)
        if not self._outgoing:
            self._loop.call_soon(self._write_out)
        self._outgoing += parts
        deadline = self._loop.time() + timeout_ms / 1000
        self._pending.append(_Pending(correlation_id, api_key, version, deadline, done))
        self._alarm.set(deadline)

    async def request(self, api_key: ApiKey, version: int, message: object, timeout_ms: float) -> Any:
        """Send and wait for the answer; raises Disconnected."""
        self.require_version(api_key, version)
        return await self._request(api_key, version, message, timeout_ms)

    async def _request(self, api_key: ApiKey, version: int, message: object, timeout_ms: float) -> Any:
        answered: asyncio.Future[Any] = self._loop.create_future()

        def done(answer: Any) -> None:
            if answered.done():  # The waiting task was cancelled.
                return
            if isinstance(answer, Disconnected):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)

        self.send(api_key, version, message, timeout_ms, done)
        return await answered

    async def negotiate(self, timeout_ms: float) -> None:
        """Learn what the node speaks; the first request on every connection."""
        answer = await self._request(
            ApiKey.API_VERSIONS,
            _API_VERSIONS_VERSION,
            ApiVersionsRequest(client_software_name="raftlake", client_software_version="0"),
            timeout_ms,
        )
        if not isinstance(answer, ApiVersionsResponse) or answer.error_code != 0:
            raise Disconnected(str(self.address), "the node refused ApiVersions", sent=True)
        self.versions = {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}

    def close(self, reason: str = "closed by this client") -> None:
        self._end(reason)

    # --- the transport's side ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        self._read_into = self._decoder.get_buffer(sizehint)
        return self._read_into

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._decoder.buffer_updated(nbytes):
                self._on_frame(frame)
            if self._decoder.failure is not None:
                raise self._decoder.failure
        except WireError as error:
            is_http = not self.versions and nbytes >= 4 and spoken(I32.unpack_from(self._read_into)[0]) == ["HTTP"]
            self._end(_HTTP_ANSWERED if is_http else f"bad bytes from the node: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(f"connection lost: {exc}" if exc else "connection closed by the node")

    def _on_frame(self, frame: bytearray) -> None:
        if not self._pending:
            raise WireError("an answer came that nothing asked for")
        pending = self._pending[0]
        correlation_id, answer = decode_response(pending.api_key, pending.version, frame)
        if correlation_id != pending.correlation_id:
            raise WireError(f"answer {correlation_id} came instead of {pending.correlation_id}")
        self._pending.popleft()
        pending.done(answer)

    def _write_out(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None and self._failure is None:
            self._transport.writelines(outgoing)

    def _check_deadlines(self) -> None:
        if not self._pending:
            return
        earliest = min(pending.deadline for pending in self._pending)
        if earliest <= self._loop.time():
            self._end("the node did not answer in time")
        else:
            self._alarm.set(earliest)

    def _end(self, reason: str) -> None:
        if self._failure is not None:
            return
        self._failure = Disconnected(str(self.address), reason, sent=True)
        self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._pending:
            # Not from within the caller of `close` or `send`, but still in order.
            self._loop.call_soon(self._pending.popleft().done, self._failure)


async def open_connection(address: Address, config: ClientConfig) -> Connection:
    """Connect and negotiate versions; raises Disconnected (`sent` False: nothing was asked yet)."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(address, config), address.host, address.port)
    except TimeoutError as error:
        raise Disconnected(str(address), "connect timed out", sent=False) from error
    except OSError as error:
        # asyncio puts its own words into `strerror`; the system's are what users know.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Disconnected(str(address), reason, sent=False) from error
    except (UnicodeError, OverflowError) as error:
        # What a node says of another node's address may be anything.
        raise Disconnected(str(address), f"no address to connect to: {error}", sent=False) from error
    try:
        await connection.negotiate(config.connect_timeout_ms)
    except Disconnected as error:
        # A refusal alone leaves it open.
        connection.close(error.reason)
        raise Disconnected(error.address, error.reason, sent=False) from error
    except asyncio.CancelledError:
        connection.close("connect was cancelled")
        raise
    return connection
