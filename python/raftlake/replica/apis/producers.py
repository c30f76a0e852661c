"""InitProducerId (22): ids for idempotent producers. Ids come in blocks from one key, so that each is given out once.

The next epoch of an id (KIP-360) is for the producer that holds the current one: else anybody could fence anybody. What is
current this node knows from the logs that it hosts and from what it gave out itself. Who names an older epoch was replaced; who
names one that this node has not seen gets a new id, with which a producer that lost count goes on just as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import Compare, Put, Txn
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.replica.apis.groups import NO_TRANSACTIONS
from raftlake.replica.kv_service import ProposeOutcome, ProposeStatus
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, first_free_producer_id

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

PRODUCER_EPOCH_MAX = 32_767
#: Epochs that a node remembers having given out; it matters until something is written in them.
GIVEN_MAX = 10_000
#: Before this version clients do not know PRODUCER_FENCED.
FENCED_VERSION = 4


class ProducerIds:
    """This node's block of producer ids. A block that is lost with the node is never given out again."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._next = 0
        self._end = 0
        self._waiting: list[Callable[[int | None], None]] = []

    def take(self, done: Callable[[int | None], None]) -> None:
        """Call `done` with a producer id, or None when no block could be had."""
        if self._next < self._end:
            self._next += 1
            done(self._next - 1)
            return
        self._waiting.append(done)
        if len(self._waiting) == 1:
            self._ask_for_block()

    def _ask_for_block(self) -> None:
        entry = self._node.kv.machine.get(PRODUCERS_NEXT_KEY)
        start = first_free_producer_id(entry)
        end = start + PRODUCER_IDS_BLOCK
        txn = Txn(
            compares=(Compare(PRODUCERS_NEXT_KEY, 0 if entry is None else entry.version),),
            ops=(Put(PRODUCERS_NEXT_KEY, b"%d" % end),),
        )
        self._node.kv.propose_anywhere(txn, lambda outcome: self._on_outcome(outcome, start, end))

    def _on_outcome(self, outcome: ProposeOutcome, start: int, end: int) -> None:
        if outcome.status is ProposeStatus.DONE and outcome.result is not None:
            if not outcome.result.succeeded:
                # Another node took this block; its change has been applied here, so the next look sees it.
                self._ask_for_block()
                return
            self._next, self._end = start, end
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if self._next < self._end:
                self._next += 1
                done(self._next - 1)
            else:
                done(None)


class ProducerEpochs:
    """Which epoch each producer holds, as far as this node knows."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._given: OrderedDict[int, int] = OrderedDict()

    def next(self, producer_id: int, named: int) -> int | None:
        """The epoch for who names `named` as its own; None where it has to take a new id. Raises RequestRejected for an epoch
        that is over."""
        written = max((partition.producers.epoch_of(producer_id) for partition in self._node.partitions.values()), default=-1)
        given = self._given.get(producer_id, -1)
        if written <= named == given - 1:
            # The answer to the same question was lost: nothing was written in the epoch that it gave.
            return given
        if named < max(written, given):
            raise RequestRejected(ErrorCode.PRODUCER_FENCED, f"producer {producer_id} is in epoch {max(written, given)}")
        if named > max(written, given) or named >= PRODUCER_EPOCH_MAX:
            return None
        self._given[producer_id] = named + 1
        self._given.move_to_end(producer_id)
        if len(self._given) > GIVEN_MAX:
            self._given.popitem(last=False)
        return named + 1


def init_producer_id(
    node: ReplicaNode, ids: ProducerIds, epochs: ProducerEpochs, request: Any, reply: Callable[[object], None]
) -> None:
    answers = Answers(request)

    def answer(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> None:
        reply(
            answers.make("InitProducerIdResponse", error_code=kafka_error(error), producer_id=producer_id, producer_epoch=epoch)
        )

    if request.transactional_id is not None:
        # Transactions have no coordinator here (FindCoordinator says so too).
        answer(NO_TRANSACTIONS)
        return
    if node.config.is_opaque:
        # The one error that every client takes for final; ids are handed out from a key, and there are none.
        answer(ErrorCode.UNSUPPORTED_VERSION)
        return
    known_id = getattr(request, "producer_id", -1)
    known_epoch = getattr(request, "producer_epoch", -1)
    if known_id >= 0 and known_epoch >= 0:
        try:
            following = epochs.next(known_id, known_epoch)
        except RequestRejected as rejected:
            knows_fencing = int(type(request).__version__) >= FENCED_VERSION
            answer(rejected.code if knows_fencing else ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if following is not None:
            # KIP-360: a producer that lost count goes on with its id in the next epoch, at sequence 0.
            answer(ErrorCode.NONE, known_id, following)
            return
    ids.take(
        lambda producer_id: (
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else answer(ErrorCode.NONE, producer_id, 0)
        )
    )
