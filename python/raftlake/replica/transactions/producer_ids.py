"""Producer ids, each given out once: a node takes blocks of them from one key (`PRODUCERS_NEXT_KEY`) by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.kv.commands import Compare, Put, Txn
from raftlake.kv.keys import PRODUCERS_NEXT_KEY
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, first_free_producer_id


class ProducerIds:
    """This node's block of producer ids. A block that is lost with the node is never given out again."""

    def __init__(self, kv: KvService) -> None:
        self._kv = kv
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
        entry = self._kv.machine.get(PRODUCERS_NEXT_KEY)
        start = first_free_producer_id(entry)
        end = start + PRODUCER_IDS_BLOCK
        txn = Txn(
            compares=(Compare(PRODUCERS_NEXT_KEY, 0 if entry is None else entry.version),),
            ops=(Put(PRODUCERS_NEXT_KEY, b"%d" % end),),
        )
        self._kv.propose_anywhere(txn, lambda outcome: self._on_outcome(outcome, start, end))

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
