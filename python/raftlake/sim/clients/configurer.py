"""A client that changes the configs of topics through all of the faults, and looks whether nodes do what topics ask for.

Of the clients' topic it changes how large and how old segments get, and in some runs what is kept. A topic of its own keeps all
records whatever the nodes' settings are, takes small batches only, and has the time of the leader in each batch. So a node that
appends or deletes before it has read what the topic asks for is found.

Promises: what was answered is what every node knows in the end, unless a change without an answer came later; every replica
does what its topic asks for; the topic's own promises hold in each answer, and in each log in the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raftlake.errors import DamagedData, ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.config import SEGMENT_BYTES
from raftlake.replica.configs.in_force import in_force
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.intact import headers_from
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, KEPT, Client, Shared, Target, wall_ms
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.clients.messages import alteration_error, ask_alter_configs, ask_produce, created_topic_id
from raftlake.sim.clients.topics import create_topic
from raftlake.sim.invariants.base import Violation
from raftlake.wire.batches import Record, build_batch

#: Of the topic that keeps all.
BATCH_BYTES_MAX = 150
KEPT_CONFIGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.message.bytes": str(BATCH_BYTES_MAX),
    "message.timestamp.type": "LogAppendTime",
}
#: Each with the values that it may get; None deletes it. Sizes of segments are those of a real node (`sim.disk`).
SEGMENTS: dict[str, tuple[str | None, ...]] = {
    "segment.bytes": (str(SEGMENT_BYTES // 4), str(SEGMENT_BYTES), str(2 * SEGMENT_BYTES), None),
    "segment.ms": ("1500", "6000", None),
    "max.message.bytes": ("100000", None),
}
RETENTION: dict[str, tuple[str | None, ...]] = {
    "retention.bytes": ("600", "3000", "-1", None),
    "retention.ms": ("1000", "4000", "-1", None),
}
ANSWERED = "a change of configs that was answered is known everywhere"
OBEYED = "every replica does what its topic asks for"


class Configurer(Client):
    def __init__(self, shared: Shared, name: str, target: Target | None = None) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        self._kept_id: bytes | None = None
        self._changes = SEGMENTS | (RETENTION if shared.settings.changes_retention else {})
        #: By config: what was answered last, and what may come about at any time.
        self._answered: dict[str, str | None] = {}
        self._unknown: dict[str, set[str | None]] = {}

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
        elif self._kept_id is None:
            create_topic(self, KEPT, 1, self._on_created, KEPT_CONFIGS)
        elif self.rng.randrange(2):
            self._append()
        else:
            self._alter()

    # --- a topic of its own ---

    def _on_created(self, answer: Any) -> None:
        topic_id = None if isinstance(answer, CallFailure) else created_topic_id(answer)
        if topic_id is not None:
            self._found(topic_id)
            return

        def look(node: ReplicaNode, reply: Any) -> None:
            topic = node.names.topic(KEPT)
            reply(None if topic is None else topic.topic_id)

        # It may exist all the same: an earlier attempt was unknown.
        found = lambda told: self._found(told) if isinstance(told, bytes) else self.give_up()  # noqa: E731
        self.shared.calls.call(self.any_node(), look, found, CALL_TIMEOUT_MS)

    def _found(self, topic_id: bytes) -> None:
        self._kept_id = topic_id
        self.succeed()

    def _append(self) -> None:
        is_large = self.rng.randrange(3) == 0
        value = f"{self.name}-{self.completed}".encode().ljust(BATCH_BYTES_MAX if is_large else 1)
        batch = build_batch([Record(value=value)], timestamp_ms=wall_ms(self.shared) - 1_000_000)
        asked = ask_produce(KEPT, 0, batch, CALL_TIMEOUT_MS)
        self.shared.calls.call(self.any_node(), asked, lambda answer: self._on_append(is_large, answer), CALL_TIMEOUT_MS)

    def _on_append(self, is_large: bool, answer: Any) -> None:
        if isinstance(answer, CallFailure):
            self.give_up()
            return
        result = answer.topics[0].partitions[0]
        if result.error is ErrorCode.NONE and is_large:
            raise Violation(OBEYED, f"{KEPT} took a batch above {BATCH_BYTES_MAX} bytes at {result.base_offset}")
        if result.error is ErrorCode.NONE and result.log_append_time_ms < 0:
            raise Violation(OBEYED, f"{KEPT} has no time of its leader at {result.base_offset}")
        if result.error is ErrorCode.NONE or (is_large and result.error is ErrorCode.MESSAGE_TOO_LARGE):
            self.shared.operations.coverage.note("configs obeyed")
            self.succeed()
        else:
            self.give_up()

    # --- changes ---

    def _alter(self) -> None:
        names = sorted(self._changes)
        name = names[self.rng.randrange(len(names))]
        values = self._changes[name]
        value = values[self.rng.randrange(len(values))]
        # It may be carried out whatever becomes of the answer.
        self._unknown.setdefault(name, set()).add(value)
        asked = ask_alter_configs(self._target.topic, {name: value})
        self.shared.calls.call(self.any_node(), asked, lambda answer: self._on_altered(name, value, answer), CALL_TIMEOUT_MS)

    def _on_altered(self, name: str, value: str | None, answer: Any) -> None:
        error = None if isinstance(answer, CallFailure) else alteration_error(answer)
        if error is ErrorCode.INVALID_CONFIG:
            raise Violation(ANSWERED, f"{name}={value} was refused")
        if error is not ErrorCode.NONE:
            self.give_up()
            return
        self._answered[name] = value
        self.shared.operations.coverage.note("configs changed")
        self.say(f"{self._target.topic} has {name}={value}")
        self.succeed()

    # --- in the end ---

    def check(self, nodes: Iterable[ReplicaNode]) -> None:
        """All nodes have applied all that is committed."""
        for node in nodes:
            self._check_known(node)
            for partition in node.partitions.values():
                topic = node.names.by_id(partition.group.topic_id)
                if topic is not None and partition.in_force != in_force(topic.configs, node.config):
                    raise Violation(
                        OBEYED, f"node {node.config.node_id}: {partition.group} does not follow {dict(topic.configs)}"
                    )
            if self._kept_id is not None:
                self._check_kept(node, GroupId(KEPT, 0, self._kept_id))

    def _check_known(self, node: ReplicaNode) -> None:
        topic = node.names.topic(self._target.topic)
        if topic is None:
            return
        for name, answered in self._answered.items():
            known = topic.configs.get(name)
            if known != answered and known not in self._unknown[name]:
                raise Violation(ANSWERED, f"node {node.config.node_id}: {name}={known}, and {answered} was answered")

    def _check_kept(self, node: ReplicaNode, group: GroupId) -> None:
        partition = node.partitions.get(group)
        if partition is None:
            return
        log, where = partition.log, f"node {node.config.node_id}: {group}"
        if log.start_offset > 0 and not self.shared.settings.tier_lag_ms:
            raise Violation(OBEYED, f"{where} begins at {log.start_offset}, and keeps all")
        position = log.start_offset
        try:
            while data := log.read(position, log.end_offset, 1 << 16):
                for header in headers_from(where, data, position):
                    if not header.is_control and (not header.is_log_append_time or header.size > BATCH_BYTES_MAX):
                        raise Violation(OBEYED, f"{where} holds {header}")
                    position = Offset(header.end_offset)
        except DamagedData:
            # What is damaged is repaired when somebody reads it.
            return
