"""Idempotent producers: several batches under way, sent again in their order until they are acknowledged.

What happens to real clients happens to them. They give up what has no answer and go on in the next epoch of their id, or under
a new id; they begin near the largest sequence, and wrap. Now and then they repeat a batch that was acknowledged long ago,
or send one that breaks the rules: no node may take it, whatever becomes of its answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.raft.types import NodeId
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.producer_state import SEQUENCE_MODULUS
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared, Target, wall_ms
from raftlake.sim.clients.calls import Ask, CallFailure
from raftlake.sim.clients.messages import Produced, ask_produce, ask_producer_id, granted_producer, produced
from raftlake.sim.oracle import SEQUENCE_ERRORS, Append
from raftlake.wire.batches import build_batch

#: In so many steps without anything under way there is one that repeats a batch, breaks a rule, or takes a new epoch or id.
REPEATS_ONE_IN = 8
MISFITS_ONE_IN = 10
EPOCHS_ONE_IN = 16
IDS_ONE_IN = 24
#: After so many rounds a producer rests until its batches are old, perhaps trimmed, and then repeats one of them.
RESTS_ONE_IN = 20
REST_MS = 4_000
#: In so many steps with something under way there is one that gives it up.
GIVES_UP_ONE_IN = 10
VALUES_MAX = 4
#: No producer of a run gets so far: a batch that comes late must not become the next one.
FAR = 100_000
#: Producers that do not begin at 0 begin so close below the largest sequence.
WRAPS_WITHIN = 12


@dataclass(slots=True)
class Batch:
    """One batch, as it goes over the wire each time."""

    append: Append
    epoch: int
    first_sequence: int
    #: What the last attempt was answered, None for nothing.
    error: ErrorCode | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.append.base_offset is not None


class IdempotentProducer(Client):
    """Appends to one partition. A step is a round: all that is under way is sent, and every answer awaited."""

    def __init__(self, shared: Shared, name: str, partition: int, target: Target | None = None) -> None:
        super().__init__(shared, name)
        self._target: Target = shared if target is None else target
        self._partition = partition
        self._values_made = 0
        self._ids_taken = 0
        self._leader: NodeId | None = None
        self._unanswered = 0
        self._has_rested = False
        self._begin_anew(-1)

    def _begin_anew(self, producer_id: int) -> None:
        """Under another id nothing of before counts. Most producers begin at 0, and so must every later epoch."""
        self._producer_id = producer_id
        self._epoch = 0
        self._records = 0
        self._next_sequence = SEQUENCE_MODULUS - 1 - self.rng.randrange(WRAPS_WITHIN) if self.rng.randrange(2) else 0
        #: A batch was acknowledged, so that each later leader knows the id.
        self._is_known = False
        #: From the oldest one that is not acknowledged on.
        self._under_way: deque[Batch] = deque()
        #: The last batches of this epoch, as many as every node remembers.
        self._acknowledged: deque[Batch] = deque(maxlen=self._target.batches_known)
        #: The last one that was acknowledged in an older epoch.
        self._fenced: Batch | None = None

    def step(self) -> None:
        if self._target.topic_id is None:
            self.give_up()
        elif self._producer_id < 0:
            self._ask_id()
        elif self._under_way:
            if self._one_in(GIVES_UP_ONE_IN):
                self._begin_epoch()
            else:
                self._send_all()
        elif self._acknowledged and (self._has_rested or self._one_in(REPEATS_ONE_IN)):
            self._repeat()
        elif self._acknowledged and self._one_in(MISFITS_ONE_IN):
            self._break_a_rule()
        elif self._one_in(EPOCHS_ONE_IN):
            self._begin_epoch()
        elif self._one_in(IDS_ONE_IN):
            self._ask_id()
        else:
            self._send_all()

    def _one_in(self, steps: int) -> bool:
        return self.rng.randrange(steps) == 0

    # --- ids and epochs ---

    def _ask_id(self) -> None:
        self.shared.calls.call(self.any_node(), ask_producer_id(), self._on_id, CALL_TIMEOUT_MS)

    def _on_id(self, answer: Any) -> None:
        granted = None if isinstance(answer, CallFailure) else granted_producer(answer)
        if granted is None:
            self.give_up()
            return
        self._ids_taken += 1
        self._begin_anew(granted[0])
        self._send_all()

    def _begin_epoch(self) -> None:
        """Go on in the next epoch of the id, as Java's producer does by itself. What is under way is given up: it may be in the
        log, may still come there, or may never."""
        self._epoch, self._next_sequence = self._epoch + 1, 0
        self.say(f"epoch {self._epoch} of producer {self._producer_id}, given up: {len(self._under_way)}")
        self._under_way.clear()
        if self._acknowledged:
            self._fenced = self._acknowledged[-1]
        self._acknowledged.clear()
        self._send_all()

    # --- rounds ---

    def _send_all(self) -> None:
        """Add new batches to what is under way, and send all of it over one connection, the oldest first."""
        window = min(self.shared.settings.producer_window, self._target.batches_known)
        if not self._is_known and self._target.trims:
            # A trimmed log takes any first batch of an id that it does not know, be it one whose predecessor was refused.
            window = 1
        room = window - len(self._under_way)
        added = self.rng.randrange(room + 1) if self._under_way else 1 + self.rng.randrange(room)
        for _ in range(added):
            self._under_way.append(self._new_batch())
        node_id = self._choose_node()
        connection = self.shared.calls.connect(node_id)
        asked = [batch for batch in self._under_way if not batch.is_acknowledged]
        self._unanswered = len(asked)
        for batch in asked:
            connection.call(self._ask(batch), partial(self._on_answer, batch, node_id), CALL_TIMEOUT_MS)

    def _new_values(self, count: int) -> tuple[bytes, ...]:
        made, self._values_made = self._values_made, self._values_made + count
        return tuple(f"{self.name}-{made + index}".encode() for index in range(count))

    def _new_batch(self) -> Batch:
        count = self.rng.randrange(1, VALUES_MAX)
        if not self._is_known and self._next_sequence + count == SEQUENCE_MODULUS:
            # The batch behind it would begin at 0: a log that does not know the id takes that for the very first one, also
            # where the oldest was refused a moment ago, as Kafka's does.
            count += 1
        values = self._new_values(count)
        append = self._target.oracle.append_sent(
            self._partition, f"{self.name}.{self._ids_taken}", self._records, values, epoch=self._epoch
        )
        batch = Batch(append, self._epoch, self._next_sequence)
        self._records += len(values)
        self._next_sequence = (self._next_sequence + len(values)) % SEQUENCE_MODULUS
        return batch

    def _choose_node(self) -> NodeId:
        return self.any_node() if self._leader is None else self._leader

    def _ask(self, batch: Batch) -> Ask:
        data = build_batch(
            [self._target.record(value) for value in batch.append.values],
            timestamp_ms=wall_ms(self.shared),
            compression=self._target.compression(batch.append.values[0]),
            producer_id=self._producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.first_sequence,
        )
        produce = ask_produce(self._target.topic, self._partition, data, CALL_TIMEOUT_MS)
        group = self._target.group(self._partition)
        newest_epoch = self.shared.leader_epoch(group)

        def ask(node: ReplicaNode, reply: Callable[[Any], None]) -> None:
            def on_answer(answer: Any) -> None:
                partition = node.partitions.get(group)
                reply((answer, partition is not None and partition.core.epoch >= newest_epoch))

            produce(node, on_answer)

        return ask

    def _heard(self, node_id: NodeId, answer: Any) -> Produced | None:
        """What an answer says, None for nothing. A leader that was replaced before the batch was sent may not know its
        producer. Of gaps it must not speak."""
        self._leader = None
        if isinstance(answer, CallFailure):
            return None
        response, is_of_newest_epoch = answer
        result = produced(response, node_id)
        if result.error is ErrorCode.LEADER_NOT_AVAILABLE and not is_of_newest_epoch:
            return None
        self._leader = result.leader_id
        return result

    def _on_answer(self, batch: Batch, node_id: NodeId, answer: Any) -> None:
        result = self._heard(node_id, answer)
        batch.error = None
        if result is not None:
            batch.error = result.error
            if result.error is ErrorCode.NONE:
                values = batch.append.values
                where = f"{self._partition}:{result.base_offset} sequence={batch.first_sequence} epoch={batch.epoch}"
                self.say(f"append {values[0].decode()} x{len(values)} at {where}")
                self._target.oracle.append_acknowledged(batch.append, result.base_offset)
        self._unanswered -= 1
        if not self._unanswered:
            self._end_round()

    def _end_round(self) -> None:
        """A batch may be out of order only if one before it came to nothing."""
        oldest = next((batch for batch in self._under_way if not batch.is_acknowledged), None)
        if oldest is not None and oldest.error is not None:
            self._target.oracle.next_refused(oldest.append, oldest.error, is_known=self._is_known)
        self._is_known = self._is_known or any(batch.is_acknowledged for batch in self._under_way)
        while self._under_way and self._under_way[0].is_acknowledged:
            self._acknowledged.append(self._under_way.popleft())
        if oldest is not None and oldest.error is ErrorCode.LEADER_NOT_AVAILABLE:
            self.retry_soon()
        elif self._under_way:
            self.give_up()
        else:
            self._has_rested = self._one_in(RESTS_ONE_IN)
            self.succeed(REST_MS if self._has_rested else 0)

    # --- what comes again, and what must not come at all ---

    def _ask_alone(self, batch: Batch, done: Callable[[ErrorCode, int], None]) -> None:
        """Send one batch while nothing is under way. `done` gets the error and the base offset, if there is an answer."""
        node_id = self._choose_node()

        def on_answer(answer: Any) -> None:
            result = self._heard(node_id, answer)
            if result is None:
                self.give_up()
            else:
                done(result.error, result.base_offset)

        self.shared.calls.call(node_id, self._ask(batch), on_answer, CALL_TIMEOUT_MS)

    def _repeat(self) -> None:
        """As if the answer had been lost: one of the last batches comes once more, however long ago that was."""
        batch = self._acknowledged[self.rng.randrange(len(self._acknowledged))]

        def on_answer(error: ErrorCode, base_offset: int) -> None:
            if error is ErrorCode.NONE or error in SEQUENCE_ERRORS:
                self._has_rested = False
                self._target.oracle.append_repeated(batch.append, base_offset, error.name)
                self.succeed()
            else:
                self.give_up()

        self._ask_alone(batch, on_answer)

    def _break_a_rule(self) -> None:
        """A batch of new records where they cannot be: no log takes it, not even when it comes late."""
        epoch, sequence, count, expected = self._draw_misfit()
        append = self._target.oracle.misfit_sent(self._partition, self.name, self._new_values(count))

        def on_answer(error: ErrorCode, base_offset: int) -> None:
            del base_offset
            self.say(f"misfit epoch={epoch} sequence={sequence} x{count}: {error.name}")
            self._target.oracle.misfit_answered(append, error, expected)
            self.give_up()

        self._ask_alone(Batch(append, epoch, sequence), on_answer)

    def _draw_misfit(self) -> tuple[int, int, int, ErrorCode]:
        """(epoch, first sequence, number of records, how Kafka refuses them)."""
        out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        count = self.rng.randrange(1, VALUES_MAX)
        match self.rng.randrange(5):
            case 0:
                return self._epoch, (self._next_sequence + FAR) % SEQUENCE_MODULUS, count, out_of_order
            case 1:
                return self._epoch + 1, FAR, count, out_of_order
            case 2 if self._fenced is not None:
                following = self._fenced.first_sequence + len(self._fenced.append.values)
                return self._fenced.epoch, following % SEQUENCE_MODULUS, count, ErrorCode.INVALID_PRODUCER_EPOCH
        known = self._acknowledged[self.rng.randrange(len(self._acknowledged))]
        other_count = count if count != len(known.append.values) else VALUES_MAX
        return self._epoch, known.first_sequence, other_count, out_of_order
