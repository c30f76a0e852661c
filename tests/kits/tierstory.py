"""The commands of golden traces of the remote tier: whole nodes, one partition, and one table that they share.

Nodes 1 to 3 vote. Others only follow, and are started when the story says so. What a watched node says and is told of the
partition becomes a line, and so does what the remote tier answers. `tables` shows the columns of KIP-405's scenarios.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.kv.keys import tier_key
from raftlake.ports.peer_rpcs import EpochEndRpc, FetchReply, FetchRpc, LocalStartRpc, OffsetReply, PeerReply, PeerRpc
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.actions import AbandonRemoteLogAux, BuildRemoteLogAux, ResetLog, TruncateTo
from raftlake.raft.events import FailureReason
from raftlake.raft.trace import describe, describe_message
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition
from raftlake.runtime.recovery.recover import EPOCHS_AHEAD
from raftlake.tier.entries import Tiered, decode_segment, decode_tiered
from raftlake.wire.batches import decode_records, iterate_headers
from raftlake.wire.control import parse_control_record
from raftlake.wire.ids import id_to_text
from replica_cluster import Cluster, batch

#: LE-0 of the scenarios is the first epoch of a partition here.
EPOCH_SHIFT = 1
TOLD = (BuildRemoteLogAux, AbandonRemoteLogAux, ResetLog, TruncateTo)
#: For what has to happen; nothing depends on its size.
PATIENCE_MS = 20_000


class TierStory:
    """State between the commands of one trace."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.watched = NodeId(-1)
        self._names: dict[str, str] = {}

    def perform(self, command: str) -> list[str]:
        """Run one command line; the lines that it made, none where it ends in "quietly"."""
        self.lines.clear()
        name, *words = command.split()
        is_quiet = words[-1:] == ["quietly"]
        if is_quiet:
            words.pop()
        getattr(self, f"do_{name}")(*words)
        told, self.lines = self.lines, []
        return [] if is_quiet else told

    # --- commands

    def do_cluster(self, watched: str) -> None:
        """cluster 4: three voters and the partition orders-0. Node 4, when it is started, is the one that is watched."""
        self.watched = NodeId(int(watched))
        self.cluster = Cluster(3, tier_lines=self, tier_target_lag_ms=10**9)
        (self.group,) = self.cluster.create_topic("orders")
        self.cluster.wipe(self.watched)
        self._listen()

    def do_start(self, node: str) -> None:
        """start 4"""
        started = self.cluster.start(int(node))
        if started.config.node_id == self.watched:
            perform = started.actions.perform

            def told(partition: Partition, action: Any) -> None:
                if partition.group == self.group and isinstance(action, TOLD):
                    self.lines.append(f"{node} {describe(action)}")
                perform(partition, action)

            started.actions.perform = told  # type: ignore[method-assign]

    def do_stop(self, node: str) -> None:
        """stop 4: the node is killed."""
        self.cluster.stop(int(node))

    def do_append(self, *values: str) -> None:
        """append msg-1 msg-2: one record each, committed at the leader."""
        for value in values:
            result = self.cluster.produce(self.group, batch(value.encode()))
            self.lines.append(f"{value} is offset {result.base_offset}")

    def do_elect(self) -> None:
        """elect: the leader is killed; when another one leads, the killed one is started again."""
        old = self.cluster.leader(self.group).config.node_id
        self.cluster.stop(old)
        leader = self.cluster.leader(self.group)
        self.do_start(str(old))
        epoch = leader.partitions[self.group].core.epoch
        self.lines.append(f"{leader.config.node_id} leads in {le(epoch)}")
        self._settle()

    def do_close(self) -> None:
        """close: the active segment, everywhere. The leader copies it within a second or two."""
        self._settle()
        for node in self._voters():
            node.partitions[self.group].roll()

    def do_trim(self, offset: str) -> None:
        """trim 3: local retention deletes what comes before from the voters."""
        for node in self._voters():
            node.snapshots.trim(node.partitions[self.group], Offset(int(offset)))
        starts = [lambda each=node: each.partitions[self.group].core.log_start for node in self._voters()]
        self._wait(lambda: all(start() == int(offset) for start in starts), "a shorter log")
        self.cluster.run(2_000)

    def do_await(self, what: str, offset: str, node: str = "") -> None:
        """await end 8: until the watched node's log, or that of another one, ends there, synced. await copied 3: until the
        table does, and all know."""
        end, node_id = int(offset), NodeId(int(node)) if node else self.watched
        if what == "copied":
            self._wait(lambda: all(self._tiered_end(node) == end for node in self._voters()), f"copies up to {end}")
        else:
            self._wait(lambda: self._end_of(node_id) == end, f"the log to end at {end}")

    def do_epoch_end(self, epoch: str) -> None:
        """epoch_end LE-1: the leader is asked by a replica where that epoch ends."""
        leader, replies = self.cluster.leader(self.group), list[PeerReply]()
        current = leader.partitions[self.group].core.epoch
        asked = Epoch(int(epoch.removeprefix("LE-")) + EPOCH_SHIFT)
        rpc = EpochEndRpc(group=self.group, replica_id=self.watched, leader_epoch=current, epoch=asked)
        leader.front.receive(None, rpc, replies.append)  # type: ignore[arg-type]
        (reply,) = replies
        assert isinstance(reply, OffsetReply)
        self.lines.append(f"{le(reply.position.epoch)} ends at {reply.position.offset}")

    def do_tables(self) -> None:
        """tables: what the leader, the watched node, the remote storage and its metadata hold."""
        leader = self.cluster.leader(self.group)
        self._tell_node("leader", leader)
        if self.watched in self.cluster.nodes:
            self._tell_node("follower", self.cluster.nodes[self.watched])
        elif self.group in self.cluster.disks[self.watched].logs:
            log = self.cluster.disks[self.watched].logs[self.group]
            self.lines.append(f"follower: node {self.watched}, stopped")
            self.lines += records_of(log.read(log.start_offset, log.end_offset, 1 << 20))
            self.lines.append(f"  leader_epochs: {epochs_of(log.epochs)}")
        store = self.cluster.store
        assert store is not None
        for lineage, shown in store.lineages.items():
            if lineage.group == self.group:
                for segment, data in zip(shown.segments, shown.batches, strict=True):
                    self.lines.append(f"remote storage: {self._name(segment)}")
                    self.lines += records_of(data)
        self._tell_keys(leader)

    # --- tables

    def _tell_node(self, title: str, node: ReplicaNode) -> None:
        partition = node.partitions[self.group]
        log = partition.log
        self.lines.append(f"{title}: node {node.config.node_id}")
        data = log.read(log.start_offset, log.end_offset, 1 << 20) if log.end_offset > log.start_offset else b""
        self.lines += records_of(data, committed=partition.core.high_watermark)
        self.lines.append(f"  leader_epochs: {epochs_of(node.remote_log.epochs(partition))}")

    def _tell_keys(self, node: ReplicaNode) -> None:
        key = tier_key(id_to_text(self.group.topic_id), self.group.partition)
        entry = node.kv.machine.get(key)
        if entry is None:
            return
        tiered = decode_tiered(entry.value)
        assert isinstance(tiered, Tiered)
        self.lines.append(f"RL metadata: {tiered.start_offset}..{tiered.end_offset - 1} {epochs_of(tiered.epochs)}")
        for _, found in node.kv.machine.list(f"{key}/", None, 16)[0]:
            segment = decode_segment(found.value)
            assert isinstance(segment, RemoteSegment)
            self.lines.append(f"  {self._name(segment)}: {epochs_of(segment.epochs)}")

    def _name(self, segment: RemoteSegment) -> str:
        uuid = self._names.setdefault(segment.segment_id, f"uuid-{len(self._names) + 1}")
        return f"seg-{segment.base_offset}-{segment.end_offset - 1}, {uuid}"

    # --- lines

    def _listen(self) -> None:
        """Of what the watched node asks, and what it is answered."""
        send = self.cluster.network.send

        def heard(source: NodeId, incarnation: int, destination: NodeId, rpc: PeerRpc, done: Any) -> None:
            if source != self.watched:
                send(source, incarnation, destination, rpc, done)
                return
            told = self._describe_rpc(rpc)
            if told:
                self.lines.append(f"{source}->{destination} {told}")

            def on_answer(answer: PeerReply | FailureReason) -> None:
                for line in self._describe_answer(answer):
                    self.lines.append(f"{destination}->{source} {line}")
                done(answer)

            send(source, incarnation, destination, rpc, on_answer)

        self.cluster.network.send = heard  # type: ignore[method-assign]

    def _describe_rpc(self, rpc: PeerRpc) -> str:
        match rpc:
            case FetchRpc(messages=messages):
                return " ".join(describe_message(each.body) for each in messages if each.group == self.group)
            case LocalStartRpc(timestamp=timestamp, leader_epoch=epoch):
                return f"ListOffsets {'EARLIEST_LOCAL' if timestamp == -4 else 'EARLIEST'} epoch={epoch}"
            case EpochEndRpc(epoch=asked, leader_epoch=epoch):
                return f"OffsetForLeaderEpoch {le(asked)} epoch={epoch}"
        return ""

    def _describe_answer(self, answer: PeerReply | FailureReason) -> list[str]:
        match answer:
            case FetchReply(messages=messages):
                return [answered(each.body) for each in messages if each.group == self.group]
            case OffsetReply(position=position):
                return [f"{position.offset}, {le(position.epoch)}"]
        return []

    def write(self, text: str) -> None:
        """Of the tier: what it answers to whom."""
        _, _, what = text.split(maxsplit=2)
        self.lines.append(f"tier: {what.rstrip()}")

    # --- waiting

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        self.cluster.run(PATIENCE_MS, until=until)
        assert until(), what

    def _settle(self) -> None:
        """All voters have everything, and know it to be committed."""
        end = self._leading().log.end_offset
        self._wait(
            lambda: all(node.partitions[self.group].high_watermark == end for node in self._voters()), f"{end} to be everywhere"
        )

    def _leading(self) -> Partition:
        return self.cluster.leader(self.group).partitions[self.group]

    def _voters(self) -> list[ReplicaNode]:
        return [node for node_id, node in self.cluster.nodes.items() if node_id != self.watched]

    def _end_of(self, node_id: NodeId) -> int:
        node = self.cluster.nodes[node_id]
        return node.partitions[self.group].core.flushed_end if self.group in node.partitions else -1

    def _tiered_end(self, node: ReplicaNode) -> int:
        tiered = node.remote_log.tiered(node.partitions[self.group])
        return -1 if tiered is None else tiered.end_offset


def le(epoch: int) -> str:
    """Recovery n begins LE-n; the election that follows at once is LE-n.1."""
    if epoch < EPOCHS_AHEAD:
        return f"LE-{epoch - EPOCH_SHIFT}"
    number, elections = divmod(epoch, EPOCHS_AHEAD + 1)
    return f"LE-{number}.{elections}" if elections else f"LE-{number}"


def epoch_of(name: str) -> Epoch:
    """The counterpart of `le`, for stories with recoveries."""
    number, _, elections = name.removeprefix("LE-").partition(".")
    return Epoch(int(number) * (EPOCHS_AHEAD + 1) + int(elections or 0)) if int(number) else Epoch(EPOCH_SHIFT)


def epochs_of(epochs: Any) -> str:
    return " ".join(f"{le(epoch)},{offset}" for epoch, offset in epochs)


def answered(body: Any) -> str:
    """A Fetch response as it came over the wire: its records are one piece, whose offsets its headers tell."""
    if not body.batches:
        return describe_message(body)
    headers = [header for part in body.batches for header in iterate_headers(bytes(part.payload))]
    text = describe_message(body)
    shown = f" records={body.batches[0].base_offset}..{body.batches[-1].end_offset}"
    return text.replace(shown, f" records={headers[0].base_offset}..{headers[-1].end_offset}")


def records_of(data: bytes, committed: int | None = None) -> list[str]:
    """A line for each record: offset, what it is, its epoch, and where the high watermark stands."""
    lines = []
    for header in iterate_headers(data):
        batch = data[header.position : header.end_position]
        found = decode_records(batch, include_control=True)
        if header.is_control:
            values = [type(parse_control_record(record.key, record.value)).__name__ for record in found]
        else:
            values = [(record.value or b"").decode() for record in found]
        for offset, what in enumerate(values, header.base_offset):
            lines.append(f"  {offset}: {what} {le(header.leader_epoch)}{' (HW)' if committed == offset + 1 else ''}")
    return lines
