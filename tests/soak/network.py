"""The links between the nodes of a soak, and how to cut them, each direction by itself.

`Namespaces`: every node has a network namespace of its own, joined by a bridge; what is sent over a cut link goes to a
hardware address that nobody has, so it is lost without a word, as on a bad cable. Needs a user that may make namespaces.
`Proxies`: where that is not allowed, a small TCP proxy before each node holds back what a node sends over a cut link until
it is healed. Both keep the clients' own way to every node open.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.peers.codec import parse_peer_client_id

KAFKA_PORT = 9092
HTTP_PORT = 8092
NOBODY = "02:00:00:00:00:99"
#: Set in the process that runs inside its own namespaces.
INSIDE = "RAFTLAKE_SOAK_INSIDE"


class Links(Protocol):
    #: Where clients (and peers) reach each node: host, Kafka port, HTTP port.
    addresses: dict[int, tuple[str, int, int]]

    def listeners(self, node_id: int) -> dict[str, str]:
        """The settings that make the node listen behind its address."""

    def command(self, node_id: int, command: list[str]) -> list[str]:
        """The command, run where the node lives. It becomes the process that is started, not a child of it."""

    def cut(self, source: int, target: int) -> None:
        """From now on nothing that `source` sends arrives at `target`."""

    def heal(self) -> None:
        """Every link works again."""

    def close(self) -> None: ...


def can_unshare() -> bool:
    """Whether this machine lets us have namespaces with a bridge."""
    script = "ip link add name soak type bridge && ip link add name one type veth peer name other"
    try:
        done = subprocess.run(["unshare", "-rn", "sh", "-c", script], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def enter_namespaces(arguments: list[str]) -> None:
    """Become the same program inside namespaces of its own; does not return."""
    environ = {**os.environ, INSIDE: "1"}
    os.execvpe("unshare", ["unshare", "-rn", sys.executable, *arguments], environ)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Namespaces:
    """To be used in a network namespace that is the soak's own (`enter_namespaces`)."""

    def __init__(self, count: int) -> None:
        self.addresses = {node_id: (f"10.77.0.{node_id}", KAFKA_PORT, HTTP_PORT) for node_id in range(1, count + 1)}
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._cut: set[tuple[int, int]] = set()
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "name", "soak", "type", "bridge")
        _run("ip", "address", "add", "10.77.0.254/24", "dev", "soak")
        _run("ip", "link", "set", "soak", "up")
        for node_id in self.addresses:
            self._add(node_id)

    def _add(self, node_id: int) -> None:
        # Holds the namespace while its node is down; ends when its standard input, which we hold, is closed. A session of its
        # own: Ctrl-C is for us.
        holder = self._holders[node_id] = subprocess.Popen(
            ["unshare", "-n", "cat"], stdin=subprocess.PIPE, start_new_session=True
        )
        ours = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
            if time.monotonic() > deadline:
                raise RuntimeError("unshare -n made no namespace")
            time.sleep(0.005)
        _run("ip", "link", "add", "name", f"node{node_id}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", f"node{node_id}", "master", "soak", "up")
        inside = self.command(node_id, ["ip"])
        _run(*inside, "address", "add", f"10.77.0.{node_id}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "link", "set", "lo", "up")

    def listeners(self, node_id: int) -> dict[str, str]:
        host, port, http_port = self.addresses[node_id]
        return {"listeners": f"PLAINTEXT://{host}:{port}", "http.listener": f"{host}:{http_port}"}

    def command(self, node_id: int, command: list[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[node_id].pid}/ns/net", *command]

    def cut(self, source: int, target: int) -> None:
        self._cut.add((source, target))
        neighbour = ["neigh", "replace", f"10.77.0.{target}", "lladdr", NOBODY, "nud", "permanent", "dev", "eth0"]
        _run(*self.command(source, ["ip"]), *neighbour)

    def heal(self) -> None:
        for source, target in sorted(self._cut):
            _run(*self.command(source, ["ip"]), "neigh", "del", f"10.77.0.{target}", "dev", "eth0")
        self._cut.clear()

    def close(self) -> None:
        for holder in self._holders.values():
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait(10)


class Proxies:
    """One proxy before each node, in a thread of its own. A peer is known by the client id of its first request."""

    def __init__(self, count: int) -> None:
        ports = free_ports("127.0.0.1", 2 * count)
        self._behind = {node_id: ports[node_id - 1] for node_id in range(1, count + 1)}
        self._fronts = {node_id: socket.create_server(("127.0.0.1", 0)) for node_id in self._behind}
        self.addresses = {
            node_id: ("127.0.0.1", self._fronts[node_id].getsockname()[1], ports[count + node_id - 1])
            for node_id in self._behind
        }
        self._loop = asyncio.new_event_loop()
        self._open = {
            (source, target): asyncio.Event() for source in self._behind for target in self._behind if source != target
        }
        for link in self._open.values():
            link.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def listeners(self, node_id: int) -> dict[str, str]:
        host, port, http_port = self.addresses[node_id]
        return {
            "listeners": f"PLAINTEXT://{host}:{self._behind[node_id]}",
            "advertised.listeners": f"PLAINTEXT://{host}:{port}",
            "http.listener": f"{host}:{http_port}",
        }

    def command(self, node_id: int, command: list[str]) -> list[str]:
        return command

    def cut(self, source: int, target: int) -> None:
        self._loop.call_soon_threadsafe(self._open[source, target].clear)

    def heal(self) -> None:
        for link in self._open.values():
            self._loop.call_soon_threadsafe(link.set)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        for front in self._fronts.values():
            front.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for node_id, front in self._fronts.items():
            self._loop.run_until_complete(self._serve(node_id, front))
        self._loop.run_forever()

    async def _serve(self, node_id: int, front: socket.socket) -> None:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._relay(node_id, reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                # Either end went away: so does the other.
                writer.close()

        await asyncio.start_server(accepted, sock=front)

    async def _relay(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(14)
        (length,) = struct.unpack_from(">h", head, 12)
        client_id = await reader.readexactly(max(length, 0))
        source = parse_peer_client_id(client_id.decode("utf-8", "replace"))
        there = back = None
        if source is not None and source != target:
            there, back = self._open[source, target], self._open[target, source]
            await there.wait()
        behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind[target])
        behind_writer.write(head + client_id)
        await asyncio.gather(_pump(reader, behind_writer, there), _pump(behind_reader, writer, back))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: asyncio.Event | None) -> None:
    try:
        while data := await reader.read(1 << 16):
            if link is not None:
                await link.wait()
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def make_links(kind: str, count: int) -> Links:
    return Namespaces(count) if kind == "namespaces" else Proxies(count)


def write_properties(path: Path, node_id: int, links: Links, settings: dict[str, str]) -> None:
    """A node.properties for a node on these links."""
    values = {
        "node.id": str(node_id),
        "quorum.voters": ",".join(f"{voter}@{host}:{port}" for voter, (host, port, _) in links.addresses.items()),
        "log.dirs": str(path.parent),
        **links.listeners(node_id),
        **settings,
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8")
