"""`raftlake serve`: one node in the foreground, from its settings to its exit code.

Owns the order of things. Start: settings, data directory and its lock, ports, logs, node, listeners. Graceful stop (a
signal, the parent's end): hand leadership over, wait until another node leads or two seconds have passed, answer what is
under way, close. Fatal errors (a failed disk, a broken invariant) are logged with the file they name and end the process with
exit code 1; a node never restarts itself.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
from collections.abc import Callable, Mapping
from functools import partial

from raftlake.errors import ConfigError, MachineError, RaftlakeError, StorageError
from raftlake.ports.driver import ListenerUse
from raftlake.raft.types import NodeId
from raftlake.replica.apis.cluster import partitions_told
from raftlake.replica.config import Endpoint
from raftlake.replica.node import ReplicaNode
from raftlake.runtime import loop as loops
from raftlake.runtime.aside import ThreadAside
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.descriptor_shares import shares_of
from raftlake.runtime.driver import Driver
from raftlake.runtime.http_fronts import HttpFronts
from raftlake.runtime.listener.frame_room import FrameRoom
from raftlake.runtime.listener.listener import Listener
from raftlake.runtime.listener.router import ConnectionLimits
from raftlake.runtime.log import configure_logging, event
from raftlake.runtime.loop_watch import LoopWatch
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.node_log import NodeLog
from raftlake.runtime.peers.address import PeerAddresses
from raftlake.runtime.peers.codec import PeerCodec
from raftlake.runtime.peers.known import KnownPeers
from raftlake.runtime.peers.moved_voters import MovedVoters
from raftlake.runtime.peers.network import TcpNetwork
from raftlake.runtime.pid_file import remove_pid, write_pid
from raftlake.runtime.preload import load_all
from raftlake.runtime.recovery.recover import require_not_pending
from raftlake.runtime.settings.settings import Settings
from raftlake.runtime.settings.tier import TierLocation
from raftlake.runtime.sockets import bind
from raftlake.runtime.stop_signals import stop_signals
from raftlake.runtime.tier_process import TierProcess, Worker
from raftlake.runtime.work_line import WorkLine
from raftlake.storage.descriptors import limit, raise_limit
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import MetaProperties, require_meta, write_meta
from raftlake.tier.calls import TierSettings

logger = logging.getLogger("raftlake.node")

PARENT_FD = "RAFTLAKE_PARENT_FD"
DRAIN_SECONDS = 2.0
LINGER_SECONDS = 0.5
SAMPLE_SECONDS = 1.0


def serve(settings: Settings, environ: Mapping[str, str] | None = None, *, reader: Worker | None = None) -> int:
    """Run one node until it is told to stop; the exit code of the process. Errors at the start are one line. `reader`: see
    `early_reader`."""
    configure_logging()
    raise_limit()
    try:
        parent_fd = parse_parent_fd(os.environ if environ is None else environ)
        return loops.run(_serve(settings, parent_fd, reader))
    except (ConfigError, MachineError, StorageError) as error:
        event(logger, logging.ERROR, f"cannot start: {error}", node=settings.node_id)
        return 1


def parse_parent_fd(environ: Mapping[str, str]) -> int | None:
    """The read end of a pipe whose other end the parent holds; None without a parent to watch."""
    text = environ.get(PARENT_FD)
    if text is None:
        return None
    try:
        descriptor = int(text)
        os.fstat(descriptor)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{PARENT_FD}={text}: accepted is the number of an open file descriptor") from error
    return descriptor


async def _serve(settings: Settings, parent_fd: int | None, reader: Worker | None) -> int:
    server = NodeServer(settings, asyncio.get_running_loop(), reader)
    try:
        await server.start()
    except BaseException:
        server.close()
        raise
    server.watch_signals(parent_fd)
    exit_code = await server.run()
    try:
        server.close()
    except StorageError as error:
        event(logger, logging.ERROR, f"not closed cleanly: {error}", node=settings.node_id)
        return 1
    return exit_code


class NodeServer:
    """All parts of one running node. `start`, then `run` until it returns the exit code, then `close`."""

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop, reader: Worker | None = None) -> None:
        """`reader`: see `early_reader`."""
        self._shares = shares_of(settings, limit())
        self._settings = settings = self._shares.held_to(settings)
        self._loop = loop
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self._fatal: RaftlakeError | None = None
        self._logs: FileLogDirectory | None = None
        self._elections: FileElectionStore | None = None
        self._network: TcpNetwork | None = None
        self._node: ReplicaNode | None = None
        self._room = FrameRoom(settings.queued_request_bytes_max)
        self._aside = ThreadAside(self._post)
        self._listeners: dict[str, Listener] = {}
        self._http: HttpFronts | None = None
        self._metrics: NodeMetrics | None = None
        self._moved: MovedVoters | None = None
        self._sampler: asyncio.TimerHandle | None = None
        self._watch: LoopWatch | None = None
        self._clock = SystemClock()
        self._line = WorkLine(loop, self._clock.now_us)
        #: The node's own long work, which no client's delays.
        self._house = WorkLine(loop, self._clock.now_us)
        self._tier = self._new_tier(settings.tier, reader)
        self._is_draining = False
        self._driver = Driver(loop, self._clock, self._on_fatal)
        self._driver.after_turn = self._after_turn
        self._codec = PeerCodec(node_id=settings.node_id, peers=settings.peers, quorum_group=settings.quorum_group)

    def _new_tier(self, location: TierLocation | None, reader: Worker | None) -> TierProcess | None:
        if location is None:
            return None

        seconds = location.request_timeout_ms / 1000

        def settings() -> TierSettings:
            # A node that leads a partition knows its cluster.
            return TierSettings(uri=location.uri, cluster_id=str(self.node.cluster_id), request_seconds=seconds)

        return TierProcess(settings, timeout_seconds=seconds, post=self._post, reader=reader)

    @property
    def node(self) -> ReplicaNode:
        assert self._node is not None
        return self._node

    # --- start ---

    async def start(self) -> None:
        """Raises ConfigError, MachineError or StorageError, after which `close` still has to be called."""
        settings = self._settings
        meta = require_meta(settings.data_dir, node_id=settings.node_id)
        require_not_pending(settings.data_dir)
        self._logs = FileLogDirectory(
            settings.data_dir,
            segment_bytes=settings.segment_bytes,
            post=self._post,
            files_max=self._shares.files,
            min_free_bytes=settings.min_free_bytes,
        )
        write_pid(settings.data_dir)
        bound = {name: bind(endpoint, setting) for name, (endpoint, setting) in _listening(settings).items()}
        self._build_node(meta)
        node, metrics = self.node, self._metrics
        assert metrics is not None
        node.start()
        if node.fatal is not None:
            raise node.fatal
        for_http, for_ops = bound.pop("http"), bound.pop("ops", None)
        for name, listening in bound.items():
            self._listeners[name] = self._new_listener(_use_of(name, settings))
            await self._listeners[name].start(listening)
        self._http = HttpFronts(settings, node, metrics, self._house, self._line, self._clock.now_us, self._driver.fail)
        await self._http.start(for_http, for_ops)
        self._sample()
        self._watch = LoopWatch(self._loop, metrics.note_lag)
        self._watch.start()
        _tune_gc()
        self._house.run(load_all(), lambda _: gc.freeze())
        event(
            logger, logging.INFO, "started", node=settings.node_id, cluster=meta.cluster_id, listener=settings.listener,
            http=settings.http_listener, data=settings.data_dir, pid=os.getpid(), code=_kind_of_code(),
        )  # fmt: skip

    def _build_node(self, meta: MetaProperties) -> None:
        settings = self._settings
        assert self._logs is not None
        config = settings.node_config(cluster_id=meta.cluster_id, directory_id=meta.directory_id)
        voters, quorum_topic = tuple(settings.voters), settings.quorum_group.topic
        room = self._logs.room
        self._elections = FileElectionStore(settings.data_dir, voters=voters, filed=quorum_topic, room=room)
        if self._elections.repaired is not None:
            event(logger, logging.WARNING, f"{self._elections.repaired}; repaired from the other one", node=settings.node_id)
        self._network = TcpNetwork(
            loop=self._loop,
            node_id=settings.node_id,
            peers=settings.peers,
            timing=settings.raft,
            codec=self._codec,
            on_unreachable=self._on_unreachable,
            on_foreign=self._on_foreign,
            response_bytes_max=settings.request_bytes_max,
            allowed=PeerAddresses(settings.peer_networks),
        )
        self._node = node = ReplicaNode(
            config,
            clock=self._clock,
            network=self._network,
            logs=self._logs,
            elections=self._elections,
            rng=random.SystemRandom(),
            request_turn=self._driver.request_turn,
            aside=self._aside,
            tier=self._tier,
        )
        self._codec.attach(node.names, self._network.addresses)
        self._driver.attach(node)
        log = NodeLog(settings.node_id, settings.quorum_group)
        log.listen_to(node)
        self._moved = MovedVoters(node, self._network.connected_peers, log.moved)
        node.cluster_identity.writers.append(lambda cluster_id: self._on_cluster_id(meta, cluster_id))
        self._metrics = NodeMetrics(
            node, self._clock, self._connection_counts, lambda: self._room.held, settings.connections_max
        )

    def _new_listener(self, use: ListenerUse) -> Listener:
        assert self._network is not None and self._metrics is not None
        return Listener(
            self.node,
            self._codec,
            limits=ConnectionLimits(
                request_bytes_max=self._settings.request_bytes_max, idle_seconds=self._settings.connections_idle_ms / 1000
            ),
            connections_max=self._settings.connections_max,
            others_max=self._shares.peers,
            addresses=self._settings.new_address_limit(),
            peers=KnownPeers(self.node, self._network),
            use=use,
            room=self._room,
            line=self._line,
            partitions_told=partial(partitions_told, self.node.services),
            on_fatal=self._driver.fail,
            notice_alive=self._network.notice_alive,
            metrics=self._metrics,
        )

    def watch_signals(self, parent_fd: int | None) -> None:
        """Stop on SIGTERM, on SIGINT, on SIGHUP unless it is ignored (nohup), and, with `parent_fd`, when the parent's end of
        that pipe closes."""
        for signum in stop_signals():
            self._loop.add_signal_handler(signum, self._on_signal, signum)
        if parent_fd is not None:
            self._loop.add_reader(parent_fd, self._on_parent, parent_fd)

    # --- run ---

    async def run(self) -> int:
        """Serve until told to stop. 0 after a graceful stop, 1 after a fatal error."""
        await self._stopping.wait()
        if self._fatal is None:
            await self._drain()
        return 0 if self._fatal is None else 1

    def stop(self) -> None:
        """Begin a graceful stop."""
        self._stopping.set()

    async def _drain(self) -> None:
        """Hand leadership over and answer what is under way."""
        started_ms = self._clock.now_ms()
        is_leader = any(partition.core.is_leader for partition in self.node.partitions.values())
        self._is_draining = True
        self.node.resign()
        if is_leader:
            try:
                await asyncio.wait_for(self._drained.wait(), DRAIN_SECONDS)
            except TimeoutError:
                event(logger, logging.WARNING, "stopping without a successor", node=self._settings.node_id)
        fronts: list[Listener | HttpFronts] = [*self._listeners.values(), *([] if self._http is None else [self._http])]
        for front in fronts:
            front.close()
        try:
            await asyncio.wait_for(asyncio.gather(*(front.wait_closed() for front in fronts)), LINGER_SECONDS)
        except TimeoutError:
            event(logger, logging.INFO, "closing connections that are still busy", node=self._settings.node_id)
            if self._http is not None:
                await self._http.abandon()
        if self._fatal is None:
            try:
                self.node.hosting.save_start_points()
            except StorageError as error:
                self._driver.fail(error)
        took_ms = self._clock.now_ms() - started_ms
        event(logger, logging.INFO, "stopped", node=self._settings.node_id, ms=took_ms)

    def _after_turn(self) -> None:
        for listener in self._listeners.values():
            listener.send_answers()
        if self._is_draining:
            self._check_drained()

    def _check_drained(self) -> None:
        assert self._network is not None
        # No node is left to hand over to without peers, or when those in touch are handing over too.
        since_ms = self._clock.now_ms() - int(1000 * DRAIN_SECONDS)
        leaving = self.node.control.resigned_since(since_ms)
        if self.node.handover.is_drained() or all(peer in leaving for peer in self._network.peers_in_touch()):
            self._drained.set()

    # --- close ---

    def close(self) -> None:
        """Release everything, whatever `start` got to. Logs are synced unless the disk or the node itself has failed."""
        self._driver.stop()
        if self._sampler is not None:
            self._sampler.cancel()
        if self._watch is not None:
            self._watch.stop()
        if self._http is not None:
            self._http.close()
        for listener in self._listeners.values():
            listener.close()
        if self._network is not None:
            self._network.close()
        self._aside.close()
        if self._tier is not None:
            self._tier.close()
        if self._elections is not None:
            self._elections.close()
        if self._logs is not None and self._fatal is None:
            remove_pid(self._settings.data_dir)
            self._logs.close()

    # --- what happens ---

    def _post(self, callback: Callable[[], None]) -> None:
        """Called by the flush thread. After a disk or the node has failed, a sync may outlive the loop; nothing waits for
        it."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _on_signal(self, signum: int) -> None:
        if self._stopping.is_set():
            # Asked twice: the operator does not want to wait. A crash at any point is survived, so this is too.
            os._exit(128 + signum)
        event(logger, logging.INFO, "stopping", node=self._settings.node_id, signal=signal.Signals(signum).name)
        self.stop()

    def _on_parent(self, descriptor: int) -> None:
        if os.read(descriptor, 4096):
            return
        self._loop.remove_reader(descriptor)
        event(logger, logging.INFO, "stopping", node=self._settings.node_id, reason="parent ended")
        self.stop()

    def _on_fatal(self, error: RaftlakeError) -> None:
        self._fatal = error
        event(logger, logging.CRITICAL, f"node stops: {error}", node=self._settings.node_id, kind=type(error).__name__)
        self._stopping.set()
        self._drained.set()

    def _on_unreachable(self, peer: NodeId) -> None:
        self.node.peer_unreachable(peer)

    def _on_foreign(self, peer: NodeId, address: Endpoint) -> None:
        self.node.cluster_identity.refused_by(peer, address)

    def _on_cluster_id(self, meta: MetaProperties, cluster_id: str) -> None:
        """The directory was formatted without an id, and the quorum has one: it is this directory's from now on."""
        if meta.cluster_id is None:
            assert self._logs is not None
            known = MetaProperties(node_id=meta.node_id, directory_id=meta.directory_id, cluster_id=cluster_id)
            self._logs.room.retrying(lambda: write_meta(self._settings.data_dir, known))
            event(logger, logging.INFO, "cluster id", node=self._settings.node_id, cluster=cluster_id)

    def _connection_counts(self) -> Mapping[str, int]:
        counts = {name: listener.connection_count for name, listener in self._listeners.items()}
        return counts | ({} if self._http is None else self._http.connection_counts())

    def _sample(self) -> None:
        assert self._metrics is not None and self._moved is not None
        self._moved.sample(self._clock.now_ms())
        self._house.run(self._metrics.sample(), self._on_sampled)

    def _on_sampled(self, _: None) -> None:
        self._sampler = self._loop.call_later(SAMPLE_SECONDS, self._sample)


def _listening(settings: Settings) -> dict[str, tuple[Endpoint, str]]:
    found = {"client": (settings.listener, "listeners"), "http": (settings.http_listener, "http.listener")}
    if settings.controller_listener is not None:
        found["controller"] = (settings.controller_listener, "controller.listener")
    if settings.http_ops_listener is not None:
        found["ops"] = (settings.http_ops_listener, "http.ops.listener")
    return found


def _use_of(name: str, settings: Settings) -> ListenerUse:
    """For whom a Kafka listener is."""
    if name == "controller":
        return ListenerUse.PEERS
    return ListenerUse.SHARED if settings.controller_listener is None else ListenerUse.CLIENTS


def _kind_of_code() -> str:
    """`python`, or `machine` where this node is the machine code of a wheel (CONTRIBUTING.md)."""
    return "python" if str(loops.__file__).endswith(".py") else "machine"


def _tune_gc() -> None:
    """What exists now lives as long as the process: keep the collector from walking it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 50)
