"""InitProducerId (22): ids for idempotent producers. Ids come in blocks from one key, so that each is given out once.

Whatever id and epoch a producer names as its own (KIP-360), it gets a new id. Kafka's TransactionCoordinator does the same
where there is no transactional id: Java and franz-go count the epoch of such a producer on by themselves, and librdkafka takes
what it is given. So no client moves the epoch of another producer's id by asking, and an answer costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, Put, Txn
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.replica.apis.answers import Answers, kafka_error
from raftlake.replica.apis.groups import NO_TRANSACTIONS, WHY
from raftlake.replica.config import ClientContext
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.refused_for_good import TRANSACTIONS
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, first_free_producer_id
from raftlake.replica.services import Services


class ProducerIds:
    """This node's block of producer ids. A block that is lost with the node is never given out again."""

    def __init__(self, node: Services) -> None:
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


def init_producer_id(
    node: Services, ids: ProducerIds, request: Any, client: ClientContext, reply: Callable[[object], None]
) -> None:
    answers = Answers(request)

    def answer(error: ErrorCode, producer_id: int = -1, epoch: int = -1) -> None:
        reply(
            answers.make("InitProducerIdResponse", error_code=kafka_error(error), producer_id=producer_id, producer_epoch=epoch)
        )

    if request.transactional_id is not None:
        # Transactions have no coordinator here (FindCoordinator says so too).
        node.refused_for_good.note(TRANSACTIONS, request.transactional_id, WHY, client)
        answer(NO_TRANSACTIONS)
        return
    if node.engine.config.is_opaque:
        # The one error that every client takes for final; ids are handed out from a key, and there are none.
        answer(ErrorCode.UNSUPPORTED_VERSION)
        return
    ids.take(
        lambda producer_id: (
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if producer_id is None else answer(ErrorCode.NONE, producer_id, 0)
        )
    )
