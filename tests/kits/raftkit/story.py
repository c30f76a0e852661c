"""The commands of golden traces, one method each, over the in-memory cluster.

Everything that replicas report, send, cut and commit becomes a line, in the order in which it happens. A message is told
when it arrives; one that is lost is told as such when it would have. Records are named by their values.
"""

from __future__ import annotations

from collections.abc import Callable

from raftkit.cluster import Cluster, Timing
from raftkit.node import Node
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.messages import FetchedBatch, Request, Response
from raftlake.raft.trace import describe, describe_message
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey

#: Told by themselves. Messages are told on arrival, appends of a leader are commands.
TOLD = (
    do.ReportRole,
    do.SaveElectionState,
    do.AppendLeaderChange,
    do.AppendVoters,
    do.AppendFetched,
    do.TruncateTo,
    do.ResetLog,
    do.AdvanceHighWatermark,
    do.AdoptLogStart,
    do.AnswerRead,
    do.AnswerVoterChange,
)


class ToldCluster(Cluster):
    """Hands each line to `tell`."""

    tell: Callable[[str], None]

    def __init__(self, tell: Callable[[str], None], **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.tell = tell
        self.roles: dict[NodeId, str] = {}

    def on_step(self, node: Node, event: on.Event, actions: list[do.Action]) -> None:
        for action in actions:
            if isinstance(action, do.ReportRole):
                before = self.roles.get(node.id)
                arrow = f"{before} -> " if before and before != action.role else ""
                self.tell(f"{node.id} {arrow}{describe(action)}")
                self.roles[node.id] = action.role
            elif isinstance(action, TOLD):
                self.tell(f"{node.id} {describe(action)}")

    def on_delivery(self, source: Node, destination: Node, message: Request | Response) -> None:
        self.tell(f"{source.id}->{destination.id} {describe_message(message)}")

    def on_loss(self, source: NodeId, destination: NodeId) -> None:
        self.tell(f"{source}->{destination} lost")


class Story:
    """State between the commands of one trace."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cluster = ToldCluster(self.lines.append, timing=Timing(sessions=True))

    def perform(self, command: str) -> list[str]:
        """Run one command line; the lines that it made, none where it ends in "quietly"."""
        self.lines.clear()
        name, *words = command.split()
        is_quiet = words[-1:] == ["quietly"]
        if is_quiet:
            words.pop()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        getattr(self, f"do_{name}")(plain, options)
        return [] if is_quiet else list(self.lines)

    # --- commands

    def do_cluster(self, words: list[str], options: dict[str, str]) -> None:
        """cluster voters=1,2,3 [observers=4] [seed=7] [directories=yes]: a new one, nobody started. Idle rounds are not told.
        With directories, leaders put the voters into the log."""
        voters = numbers(options.get("voters", "1,2,3"))
        self.cluster = ToldCluster(
            self.lines.append,
            ids=voters + numbers(options.get("observers", "")),
            voters=len(voters),
            seed=int(options.get("seed", "1")),
            timing=Timing(sessions=True),
            directories=options.get("directories") == "yes",
        )

    def do_disk(self, words: list[str], options: dict[str, str]) -> None:
        """disk 2 log=1,1,3 epoch=3 [leader=1] [voted=1] [start=5@2]: one record per epoch listed, before the node starts."""
        disk = self.node(words[0]).disk
        start, _, before = options.get("start", "0@0").partition("@")
        disk.start = OffsetAndEpoch(Offset(int(start)), Epoch(int(before)))
        disk.batches = []
        for index, epoch in enumerate(numbers(options.get("log", ""))):
            base = int(start) + index
            payload = f"{epoch}.{base}"
            disk.batches.append(
                FetchedBatch(base_offset=Offset(base), end_offset=Offset(base + 1), epoch=Epoch(epoch), payload=payload)
            )
        if "epoch" in options:
            leader, voted = options.get("leader"), options.get("voted")
            disk.election = ElectionState(
                epoch=Epoch(int(options["epoch"])),
                leader_id=None if leader is None else NodeId(int(leader)),
                voted_key=None if voted is None else ReplicaKey(NodeId(int(voted))),
            )

    def do_start(self, words: list[str], options: dict[str, str]) -> None:
        """start 1 2 3"""
        self.cluster.start(*map(int, words))

    def do_crash(self, words: list[str], options: dict[str, str]) -> None:
        """crash 1 [silently]: what is not synced is lost; silently = its peers' connections stay open."""
        node_id = int(words[0])
        self.cluster.roles.pop(NodeId(node_id), None)
        self.cluster.crash(node_id, noticed="silently" not in words)

    def do_wipe(self, words: list[str], options: dict[str, str]) -> None:
        """wipe 1: a node that is down loses its disk."""
        self.cluster.wipe(int(words[0]))

    def do_add(self, words: list[str], options: dict[str, str]) -> None:
        """add 4 at=1: node 1 is asked to make node 4 a voter."""
        self.cluster.add_voter(int(options["at"]), int(words[0]))

    def do_remove(self, words: list[str], options: dict[str, str]) -> None:
        """remove 3 at=1: node 1 is asked to make node 3, with the disk that it knows, no voter."""
        self.cluster.remove_voter(int(options["at"]), int(words[0]))

    def do_run(self, words: list[str], options: dict[str, str]) -> None:
        """run ms=9 | run until=elected | run until=leader (that serves) | run until=quiet (nobody said anything for 600 ms)"""
        match options.get("until"):
            case None:
                self.cluster.run(int(options["ms"]))
            case "elected":
                nodes = self.cluster.nodes.values()
                self.cluster.run_until(lambda: any(node.core is not None and node.core.is_leader for node in nodes))
            case "leader":
                self.cluster.await_leader()
            case "quiet":
                told = -1
                while told != len(self.lines):
                    told = len(self.lines)
                    self.cluster.run(600)
            case other:
                raise ValueError(f"run until={other}?")

    def do_partition(self, words: list[str], options: dict[str, str]) -> None:
        """partition 1,2 3: nobody reaches the other side."""
        self.cluster.partition(*map(numbers, words))

    def do_cut(self, words: list[str], options: dict[str, str]) -> None:
        """cut 1 2: messages of node 1 do not reach node 2; the other way they do."""
        self.cluster.cut = self.cluster.cut | {(int(words[0]), int(words[1]))}

    def do_hold(self, words: list[str], options: dict[str, str]) -> None:
        """hold 2: syncs of node 2 that begin from here on do not end."""
        self.node(words[0]).held_syncs = []

    def do_release(self, words: list[str], options: dict[str, str]) -> None:
        """release 2: they end, and later ones do as usual."""
        node = self.node(words[0])
        held, node.held_syncs = node.held_syncs or [], None
        for finish in held:
            finish()

    def do_heal(self, words: list[str], options: dict[str, str]) -> None:
        """heal"""
        self.cluster.heal()

    def do_unreachable(self, words: list[str], options: dict[str, str]) -> None:
        """unreachable 3 1: node 3 sees its connection to node 1 close."""
        self.node(words[0]).step(on.PeerUnreachable(peer=NodeId(int(words[1]))))

    def do_append(self, words: list[str], options: dict[str, str]) -> None:
        """append 1 a b: one record per value at leader 1."""
        end = self.cluster.append(int(words[0]), *words[1:])
        self.lines.insert(0, f"{words[0]} appended up to {end}")

    def do_read(self, words: list[str], options: dict[str, str]) -> None:
        """read 1: a linearizable read at node 1."""
        self.cluster.read(int(words[0]))

    def do_resign(self, words: list[str], options: dict[str, str]) -> None:
        """resign 1: a graceful stop begins."""
        self.node(words[0]).step(on.ResignRequested())

    def do_campaign(self, words: list[str], options: dict[str, str]) -> None:
        """campaign 1"""
        self.node(words[0]).step(on.CampaignRequested())

    def do_retain(self, words: list[str], options: dict[str, str]) -> None:
        """retain 1 from=5: retention deletes what comes before."""
        node = self.node(words[0])
        start = Offset(int(options["from"]))
        node.take_snapshot(start)
        kept = [batch for batch in node.batches if batch.base_offset >= start]
        node.start = OffsetAndEpoch(start, node.alive.history.epoch_before(start))
        node.batches = kept
        node.step(on.LogStartAdvanced(log_start_offset=start))

    def do_status(self, words: list[str], options: dict[str, str]) -> None:
        """status: a line for each node that runs."""
        for node in self.cluster.nodes.values():
            if node.core is None:
                self.lines.append(f"{node.id} down")
                continue
            core = node.core
            leader = "-" if core.leader_id < 0 else str(core.leader_id)
            position = f"log={core.log_start}..{core.log_end}@{core.history.last_epoch} hw={core.high_watermark}"
            self.lines.append(f"{node.id} {core.role_name} epoch={core.epoch} leader={leader} {position}")

    def do_logs(self, words: list[str], options: dict[str, str]) -> None:
        """logs: the epochs of each node's records, in order; in brackets where not committed."""
        for node in self.cluster.nodes.values():
            committed = node.core.high_watermark if node.core is not None else 0
            epochs = [f"{batch.epoch}" if batch.end_offset <= committed else f"({batch.epoch})" for batch in node.batches]
            self.lines.append(f"{node.id} {' '.join(epochs)}".rstrip())

    def node(self, word: str) -> Node:
        return self.cluster.nodes[NodeId(int(word))]


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]
