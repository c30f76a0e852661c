"""The ground of a node: its groups and how they are stepped, its clock and timers, and what the coming turn has to do.

All services of a node stand on one `Engine`; the engine knows none of them. An *input* (an RPC, a timer, a finished sync, a
client's request) begins with `Engine.begin_input`, which reads the clock once, and steps cores with `Engine.step`. The actions
of a core gather in its partition, which is marked; `turn` performs them. Whatever a turn is to do asks for the turn by itself.

Owns the deadlines of the groups too. A group has one timer at most. A deadline that moves away leaves its timer where it is;
that timer then finds nothing due and is armed anew. Before a deadline strikes, the group hears what the Fetch rounds have shown
meanwhile (`confirm_peers`), because idle groups are not in the rounds that keep them alive.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import RaftlakeError
from raftlake.ports.driver import Clock, ElectionStore, LogDirectory, Network
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.events import DeadlineReached, Event
from raftlake.raft.types import Rng
from raftlake.replica.config import NodeConfig
from raftlake.replica.partition.partition import Partition
from raftlake.replica.timers import TimerQueue

Marked = dict[GroupId, Partition]


class Engine:
    """`closed` are told of each group that is no longer hosted, in their order. `request_turn` (of the shell) is called once
    for each turn."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        network: Network,
        logs: LogDirectory,
        elections: ElectionStore,
        rng: Rng,
        request_turn: Callable[[], None],
    ) -> None:
        self.config = config
        self.cluster_id = config.cluster_id
        self.clock = clock
        self.network = network
        self.logs = logs
        self.elections = elections
        self.rng = rng
        self._ask_for_turn = request_turn
        #: A turn is asked for or under way; it serves those who ask meanwhile, too.
        self._turn_is_coming = False
        self.now_ms = clock.now_ms()
        self.fatal: RaftlakeError | None = None
        self.partitions: dict[GroupId, Partition] = {}
        self.timers = TimerQueue(self.request_turn)
        #: The node stops in good order: it hands over what it leads, and campaigns no more.
        self.is_resigning = False
        self.closed: list[Callable[[Partition], None]] = []
        #: Tells a group what the Fetch rounds have shown of its leader, or of its replicas, since it last heard of them.
        self.confirm_peers: Callable[[Partition], None] = _nothing
        #: The groups with actions to perform, and those with records to append. Turns look here several times each.
        self.dirty: Marked = {}
        self.to_append: Marked = {}

    # --- inputs and turns ---

    def begin_input(self) -> None:
        """Every input begins here: read the clock once. Whatever the input brings about asks for the turn by itself."""
        self.now_ms = self.clock.now_ms()

    def request_turn(self) -> None:
        """There is something for a turn to do (or a deadline that the shell has to see after it)."""
        if not self._turn_is_coming:
            self._turn_is_coming = True
            self._ask_for_turn()

    def begin_turn(self) -> None:
        """From here to `end_turn` nothing has to ask for a turn."""
        self.begin_input()
        self._turn_is_coming = True

    def end_turn(self) -> None:
        self._turn_is_coming = False

    def fail(self, error: RaftlakeError) -> None:
        """Stop for good: the disk failed or an invariant broke. The shell sees `fatal` and ends the process."""
        if self.fatal is None:
            self.fatal = error
            self.request_turn()

    # --- stepping cores ---

    def step(self, partition: Partition, event: Event) -> None:
        """Report an event to a group's core; its actions are performed at the end of the turn."""
        core = partition.core
        actions = core.step(event, self.now_ms)
        if actions:
            partition.outbox.extend(actions)
            self.mark_dirty(partition)
        self._arm(partition)

    def mark_dirty(self, partition: Partition) -> None:
        """The partition has actions to perform."""
        self.dirty[partition.group] = partition
        self.request_turn()

    def mark_appending(self, partition: Partition) -> None:
        """The partition has records to append at the end of this turn."""
        self.to_append[partition.group] = partition
        self.request_turn()

    @property
    def has_marked(self) -> bool:
        """A group has actions to perform or records to append."""
        return bool(self.dirty or self.to_append)

    def take_dirty(self) -> Marked:
        """The groups with actions to perform, which are marked no longer."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def take_appending(self) -> Marked:
        """The groups with records to append, which are marked no longer."""
        to_append, self.to_append = self.to_append, {}
        return to_append

    def forget(self, partition: Partition) -> None:
        """The group is no longer hosted: nothing of it is performed any more."""
        partition.outbox.clear()
        self.dirty.pop(partition.group, None)
        self.to_append.pop(partition.group, None)
        for listener in self.closed:
            listener(partition)

    # --- deadlines ---

    def _arm(self, partition: Partition) -> None:
        """The group's core has been stepped: its next deadline may have come closer."""
        deadline_ms = partition.core.next_deadline_ms()
        if deadline_ms is None:
            return
        armed_ms = partition.armed_deadline_ms
        if armed_ms is None or deadline_ms < armed_ms:
            partition.armed_deadline_ms = deadline_ms
            self.timers.schedule(deadline_ms, lambda: self._strike(partition, deadline_ms))

    def _strike(self, partition: Partition, armed_ms: int) -> None:
        if partition.deleted or partition.armed_deadline_ms != armed_ms:
            return
        partition.armed_deadline_ms = None
        is_due = self._is_due(partition)
        if is_due:
            self.confirm_peers(partition)
            is_due = self._is_due(partition)
        if is_due:
            self.step(partition, DeadlineReached())
        else:
            self._arm(partition)

    def _is_due(self, partition: Partition) -> bool:
        deadline_ms = partition.core.next_deadline_ms()
        return deadline_ms is not None and deadline_ms <= self.now_ms


def _nothing(_partition: Partition) -> None:
    """No Fetch rounds tell of any peer."""
