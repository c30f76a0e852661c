"""Where in a partition a time begins, over its table and its local log: first in the table, then in the log, as Kafka does.

The table is asked only where it holds what the local log does not. Nothing waits meanwhile but the question itself: local
questions have their own line (`TimeSearches`), which a slow store does not hold up. CALLS_MAX searches are under way at a time.
The requests take turns, one question each. Questions that have waited too long are answered OFFSET_NOT_AVAILABLE, like those of
a node that has not heard yet what the table holds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from functools import partial

from raftlake.errors import ErrorCode
from raftlake.ports.tier import FoundRecord, Lineage, RemoteTier, SearchRequest, TierError
from raftlake.raft.types import Offset
from raftlake.replica.aside.time_searches import (
    MAX_TIMESTAMP,
    NOT_NOW,
    PATIENCE_MS,
    QUESTIONS_MAX,
    AskedTogether,
    FoundOffset,
    Question,
    TimeSearches,
)
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.read_tally import ReadTally
from raftlake.replica.tiering.remote_log import RemoteLog

CALLS_MAX = 2


@dataclass(frozen=True, slots=True)
class _Search:
    """A question that the table has to answer first."""

    request: AskedTogether
    question: Question


class RemoteSearches:
    def __init__(
        self, engine: Engine, remote_log: RemoteLog, local: TimeSearches, tier: RemoteTier | None, tally: ReadTally
    ) -> None:
        self._engine = engine
        self._remote_log = remote_log
        self._local = local
        self._tier = tier
        self._tally = tally
        #: What waits for its turn, by request; the requests in the order of their turns.
        self._line: OrderedDict[AskedTogether, deque[Question]] = OrderedDict()
        self._count = 0
        self._under_way = 0

    def begin(self) -> AskedTogether:
        """For the questions of another request."""
        return self._local.begin()

    def ask(self, request: AskedTogether, question: Question) -> None:
        """Its `done` is called once, now or later."""
        partition = question.serving()
        if not isinstance(partition, Partition):
            question.done(FoundOffset(partition))
        elif not self._remote_log.knows_start(partition):
            question.done(NOT_NOW)
        elif self._remote_log.start_offset(partition) >= partition.log.start_offset:
            self._local.ask(request, question)
        elif self._count >= QUESTIONS_MAX:
            question.done(NOT_NOW)
        else:
            self._line.setdefault(request, deque()).append(question)
            self._count += 1
            self._go_on()

    def _go_on(self) -> None:
        while self._line and self._under_way < CALLS_MAX:
            request, questions = self._line.popitem(last=False)
            question = questions.popleft()
            self._count -= 1
            if questions:
                self._line[request] = questions
            self._begin(_Search(request, question))

    def _begin(self, search: _Search) -> None:
        question = search.question
        partition = question.serving()
        if not isinstance(partition, Partition):
            question.done(FoundOffset(partition))
            return
        tiered = self._remote_log.tiered(partition)
        if self._tier is None or tiered is None or self._engine.now_ms >= search.request.asked_at_ms + PATIENCE_MS:
            question.done(NOT_NOW)
            return
        self._under_way += 1
        asked = SearchRequest(
            lineage=Lineage(partition.group, tiered.incarnation),
            timestamp_ms=None if question.timestamp == MAX_TIMESTAMP else question.timestamp,
            start_offset=max(tiered.start_offset, self._remote_log.deleted_below(partition)),
            end_offset=min(tiered.end_offset, partition.high_watermark),
        )
        self._tier.search(asked, partial(self._on_answer, search, asked.end_offset))

    def _on_answer(self, search: _Search, end: Offset, answer: FoundRecord | TierError | None) -> None:
        """What comes of it is an input of its own: the local log is read next, and its disk may fail."""
        self._engine.begin_input()
        self._under_way -= 1
        self._engine.timers.schedule(self._engine.now_ms, partial(self._on_found, search, end, answer))
        self._go_on()

    def _on_found(self, search: _Search, end: Offset, found: FoundRecord | TierError | None) -> None:
        question = search.question
        partition = question.serving()
        if not isinstance(partition, Partition):
            question.done(FoundOffset(partition))
        elif isinstance(found, TierError):
            self._tally.fail(partition.group, "a time cannot be looked for in the tier", found)
            question.done(FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR))
        elif partition.log.start_offset > end or (found and found.offset < self._remote_log.start_offset(partition)):
            # The local log begins behind what was searched, or what was found is deleted meanwhile.
            self.ask(search.request, question)
        else:
            self._tally.searches += 1
            self._tally.unreadable.searched(partition.group)
            self._go_on_here(search, found)

    def _go_on_here(self, search: _Search, found: FoundRecord | None) -> None:
        question = search.question
        if found is None:
            self._local.ask(search.request, question)
            return
        answer = FoundOffset(ErrorCode.NONE, found.timestamp_ms, found.offset, found.epoch)
        if question.timestamp != MAX_TIMESTAMP:
            question.done(answer)
            return

        def compare(local: FoundOffset) -> None:
            is_later = local.error is not ErrorCode.NONE or local.timestamp_ms > answer.timestamp_ms
            question.done(local if is_later else answer)

        self._local.ask(search.request, replace(question, done=compare))
