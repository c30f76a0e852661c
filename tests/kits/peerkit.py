"""A scripted peer on loopback, and the network of a node that speaks to it."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import ControlRpc, FetchRpc, PeerMessage
from raftlake.raft.config import RaftConfig
from raftlake.raft.events import FailureReason
from raftlake.raft.messages import BeginQuorumEpochRequest
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.peers.network import TcpNetwork
from raftlake.runtime.sockets import bind
from raftlake.wire import fetch, produce, read_offset
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, encode_response, response_type
from runtime_fakes import LOOPBACK, FakeNode, address_of, run, until

FAST = RaftConfig(request_timeout_ms=60, retry_backoff_ms=5, retry_backoff_ms_max=40)
PATIENT = RaftConfig(request_timeout_ms=5000, retry_backoff_ms=5, retry_backoff_ms_max=40)


@dataclass
class Peer:
    """A scripted node: keeps the requests of each connection; answers when told, or at once with `auto`."""

    auto: bool = True
    requests: list[tuple[RequestHeader, Any, asyncio.StreamWriter]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    server: asyncio.Server | None = None
    address: Endpoint = LOOPBACK

    async def start(self) -> None:
        listening = bind(self.address, "listeners")
        self.address = address_of(listening)
        self.server = await asyncio.start_server(self._serve, sock=listening)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header, message = decode_request(bytearray(await reader.readexactly(size)))
                self.requests.append((header, message, writer))
                if self.auto:
                    self.answer(len(self.requests) - 1)
        writer.close()

    def answer(self, index: int) -> None:
        header, message, writer = self.requests[index]
        writer.writelines(encode_response(header, answer_to(header, message)))

    def stop(self) -> None:
        assert self.server is not None
        self.server.close()

    def drop(self) -> None:
        """Like a killed process: reset every connection and take no new one."""
        self.stop()
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


def answer_to(header: RequestHeader, message: Any) -> object:
    if header.api_key == ApiKey.FETCH:
        return fetch.FetchResponse([], session_id=message.session_id + 1)
    if header.api_key == ApiKey.PRODUCE:
        result = produce.ProducePartitionResult(0, ErrorCode.NONE, 42)
        return produce.ProduceResponse([produce.ProduceTopicResult("__cluster_metadata", None, [result])])
    if header.api_key == ApiKey.READ_OFFSET:
        return read_offset.ReadOffsetResponse(None, ErrorCode.NONE, [])
    return response_type(ApiKey(header.api_key), header.api_version)(error_code=ErrorCode.NONE, topics=())  # type: ignore[call-arg]


@dataclass
class Net:
    network: TcpNetwork
    unreachable: list[int]


@contextlib.asynccontextmanager
async def network(peers: dict[int, Endpoint], timing: RaftConfig = PATIENT) -> AsyncIterator[Net]:
    unreachable: list[int] = []
    codec = PeerCodec(node_id=1, peers=peers)  # type: ignore[arg-type]
    codec.attach(FakeNode())
    tcp = TcpNetwork(
        loop=asyncio.get_running_loop(),
        node_id=1,  # type: ignore[arg-type]
        peers=peers,  # type: ignore[arg-type]
        timing=timing,
        codec=codec,
        on_unreachable=unreachable.append,
        response_bytes_max=1 << 20,
    )
    try:
        yield Net(tcp, unreachable)
    finally:
        tcp.close()


def begin() -> ControlRpc:
    body = BeginQuorumEpochRequest(leader_id=1, leader_epoch=1)  # type: ignore[arg-type]
    return ControlRpc(cluster_id=None, messages=(PeerMessage(METADATA_GROUP, body),))


def fetch_round(wait_ms: int = 0) -> FetchRpc:
    return FetchRpc(
        cluster_id=None,
        replica_id=1,
        session_id=0,
        session_epoch=0,
        wait_ms_max=wait_ms,
        size_max=1000,
        messages=(),  # type: ignore[arg-type]
    )


def ask(net: Net, rpc: Any, to: int = 2) -> list[Any]:
    """Send; the list gets what `done` was called with."""
    got: list[Any] = []
    net.network.send(to, rpc, got.append)  # type: ignore[arg-type]
    assert got == [], "done was called from within send"
    return got


async def answered(net: Net, rpc: Any) -> Any:
    """The answer of a peer that answers. On a busy machine one may come too late; then the request is sent again."""
    while True:
        got = ask(net, rpc)
        await until(lambda: bool(got))  # noqa: B023
        if not isinstance(got[0], FailureReason):
            return got[0]


def scripted(test: Callable[[Peer, Net], Any], timing: RaftConfig = PATIENT, *, auto: bool = True) -> None:
    async def main() -> None:
        peer = Peer(auto=auto)
        await peer.start()
        try:
            async with network({1: Endpoint("127.0.0.1", 1), 2: peer.address}, timing) as net:
                await test(peer, net)
        finally:
            # A loop with an open server does not close: a failure would hang.
            peer.drop()

    run(main())
