"""The coordinator of all transactions: what producers ask for becomes changes of keys of the quorum.

The leader of the metadata log is the coordinator, so all nodes name it at once. Its state is keys, which are changed by
compare-and-set alone. Two nodes that both take themselves for the coordinator therefore do no harm, and the next leader goes on
where the last one was. What is in memory only are requests that wait, which clients send again.

Owns the lanes: the requests about one transactional id. Invariants: a lane has one command under way. No answer rests on keys
that may be old: it follows a command of the lane that took effect, or a linearizable read that began after the request came.
A request is answered once, at the latest after `HOLD_MS` while it waits for the last transaction of its id.

Why a request waits: clients pause long after CONCURRENT_TRANSACTIONS, and markers take some milliseconds. When all markers of a
transaction are written, the next transaction that waits takes the place of Complete*: that is one commit for both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.raft.types import Offset
from raftlake.replica.engine import Engine
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.kv.service import KvService
from raftlake.replica.quorum import Quorum
from raftlake.replica.timers import Timer
from raftlake.replica.transaction_entry import Transaction, encode, transaction_key
from raftlake.replica.transactions.raising import EndAndRaise
from raftlake.replica.transactions.requests import Answer, Decide, InitProducer, Request, TakeId, Wait, Write
from raftlake.replica.transactions.words import explained

#: How long a request waits for the end of the transaction before. Clients wait 30 s for an answer, and more at once is no use.
HOLD_MS = 5_000
#: Requests of one id that wait, and of all.
HELD_PER_ID = 16
HELD_MAX = 20_000

logger = logging.getLogger("raftlake.transactions")

Done = Callable[[Answer], None]
TakeProducerId = Callable[[Callable[[int | None], None]], None]


@dataclass(slots=True, eq=False)
class _Held:
    """A request that is not answered."""

    request: Request
    done: Done
    #: Something was asked for it: a producer id, or a read.
    is_asking: bool = False
    #: The keys here are not older than the request.
    is_proven: bool = False
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class _Lane:
    """One transactional id."""

    key: str
    held: list[_Held] = field(default_factory=list)
    #: A command on the key is under way.
    is_busy: bool = False
    #: All markers of the decision at this version are written. 0 for none.
    marked_version: int = 0


class Coordinator:
    def __init__(self, engine: Engine, *, kv: KvService, quorum: Quorum, take_id: TakeProducerId) -> None:
        self._engine = engine
        self._kv = kv
        self._quorum = quorum
        self._take_id = take_id
        self._lanes: dict[str, _Lane] = {}
        self._held_count = 0

    # --- who coordinates ---

    @property
    def epoch(self) -> int | None:
        """The epoch in which this node coordinates; None where it does not, or has not applied all that is decided."""
        partition = self._quorum.partition
        if partition is None or self._engine.config.is_opaque or not partition.core.is_leader:
            return None
        return partition.core.epoch if partition.core.has_caught_up(Offset(self._kv.machine.applied_offset)) else None

    @property
    def why_not(self) -> ErrorCode:
        """What a client is told that asks a node which does not coordinate; NONE where it does."""
        if self.epoch is not None:
            return ErrorCode.NONE
        partition = self._quorum.partition
        leads = partition is not None and partition.core.is_leader
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if leads else ErrorCode.NOT_COORDINATOR

    # --- requests ---

    def submit(self, request: Request, done: Done) -> None:
        """`done` is told the answer, now or later."""
        why_not = self.why_not
        if why_not is not ErrorCode.NONE:
            done(Answer(why_not))
            return
        lane = self._lane(transaction_key(request.transactional_id))
        if len(lane.held) >= HELD_PER_ID or self._held_count >= HELD_MAX:
            done(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        lane.held.append(_Held(request, done))
        self._held_count += 1
        self._run(lane)

    def _run(self, lane: _Lane) -> None:
        """Do what can be done for the requests of an id, in their order, until a command is under way."""
        for held in tuple(lane.held):
            while not lane.is_busy and not held.is_asking and held in lane.held:
                if not self._advance(lane, held):
                    break
        if not lane.is_busy and lane.marked_version:
            self._complete(lane)
        if not (lane.is_busy or lane.held or lane.marked_version) and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def _lane(self, key: str) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _advance(self, lane: _Lane, held: _Held) -> bool:
        """One step of a request. False where it has to wait."""
        version, standing = self._view(lane)
        match held.request.judge(standing, self._engine.clock.wall_ms()):
            case Answer() as answer:
                if held.is_proven:
                    self._answer(lane, held, explained(answer, held.request, standing))
                else:
                    held.is_asking = True
                    self._kv.read(True, partial(self._on_proven, lane, held))
            case Write() if lane.marked_version and isinstance(held.request, EndAndRaise):
                # It ends nothing but an empty transaction, which must not hide how the one before has ended.
                return self._wait(lane, held)
            case Write(transaction=transaction, answer=told):
                full = self._refusal_of_id(standing)
                if full is not None:
                    self._answer(lane, held, full)
                    return True
                txn = Txn((Compare(lane.key, version),), (Put(lane.key, encode(transaction)),))
                self._propose(lane, txn, partial(self._on_written, lane, held, told))
            case Decide(ending=ending, answer=told):
                self._propose(lane, Txn((), (ending,)), partial(self._on_written, lane, held, told))
            case TakeId():
                held.is_asking = True
                self._take_id(partial(self._on_id, lane, held))
            case Wait():
                return self._wait(lane, held)
        return True

    def _wait(self, lane: _Lane, held: _Held) -> bool:
        if held.timer is None:
            at_ms = self._engine.now_ms + HOLD_MS
            held.timer = self._engine.timers.schedule(at_ms, partial(self._give_up, lane, held))
        return False

    def _view(self, lane: _Lane) -> tuple[int, Transaction | None]:
        """The key's version and its transaction, which counts as complete once all markers are written."""
        entry = self._kv.machine.get(lane.key)
        if entry is None:
            lane.marked_version = 0
            return ABSENT, None
        standing = self._kv.state.transactions.by_key.get(lane.key)
        if entry.version == lane.marked_version and standing is not None:
            return entry.version, standing.completed()
        lane.marked_version = 0
        return entry.version, standing

    def _refusal_of_id(self, standing: Transaction | None) -> Answer | None:
        ids_max = self._engine.config.transactional_ids_max
        if standing is not None or len(self._kv.state.transactions.by_key) < ids_max:
            return None
        why = f"there are {ids_max} transactional ids, and no more may be (transactional.ids.max)"
        return Answer(ErrorCode.POLICY_VIOLATION, why=why)

    # --- what is asked for a request ---

    def _on_proven(self, lane: _Lane, held: _Held, result: ReadOffsetResult) -> None:
        held.is_asking = False
        if result.error is not ErrorCode.NONE:
            self._answer(lane, held, Answer(self._why_unavailable))
        held.is_proven = True
        self._run(lane)

    def _on_id(self, lane: _Lane, held: _Held, producer_id: int | None) -> None:
        held.is_asking = False
        assert isinstance(held.request, InitProducer | EndAndRaise)
        if producer_id is None:
            self._answer(lane, held, Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        held.request.new_id = producer_id
        self._run(lane)

    @property
    def _why_unavailable(self) -> ErrorCode:
        """Whoever gets it finds the coordinator anew, and asks again."""
        why_not = self.why_not
        return why_not if why_not is not ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE

    # --- commands ---

    def _propose(self, lane: _Lane, txn: Txn, done: Callable[[ProposeOutcome], None]) -> None:
        lane.is_busy = True
        try:
            self._kv.propose(txn, done, Origin.SELF)
        except RequestRejected as error:
            # The key or the value of an id is as long as a command allows, and no longer: this is not expected.
            done(ProposeOutcome(ProposeStatus.REFUSED, reason=error.message))

    def _on_written(self, lane: _Lane, held: _Held, told: Answer | None, outcome: ProposeOutcome) -> None:
        lane.is_busy = False
        result = outcome.result
        held.is_proven = held.is_proven or outcome.status is ProposeStatus.DONE
        if outcome.status is not ProposeStatus.DONE or result is None:
            self._answer(lane, held, self._unwritten(outcome))
        elif result.ignored:
            logger.error("a change of %s took no effect: %s", ascii(lane.key), result.ignored)
            self._answer(lane, held, Answer(ErrorCode.UNKNOWN_SERVER_ERROR, why="the change takes no effect"))
        elif result.succeeded and told is not None:
            self._answer(lane, held, told)
        # Where another change came first, or more is to do, the request is judged anew.
        self._run(lane)

    def _unwritten(self, outcome: ProposeOutcome) -> Answer:
        if outcome.status is ProposeStatus.REFUSED and outcome.reason and not outcome.is_passing:
            return Answer(outcome.error, why=outcome.reason)
        return Answer(self._why_unavailable)

    # --- the end of a transaction ---

    def on_marked(self, key: str, version: int) -> None:
        """Every partition of the transaction that was decided at `version` has its marker."""
        lane = self._lane(key)
        lane.marked_version = version
        self._run(lane)

    def _complete(self, lane: _Lane) -> None:
        version, complete = self._view(lane)
        if not lane.marked_version or complete is None:
            return
        self._propose(
            lane, Txn((Compare(lane.key, version),), (Put(lane.key, encode(complete)),)), partial(self._on_complete, lane)
        )

    def _on_complete(self, lane: _Lane, outcome: ProposeOutcome) -> None:
        """Where it did not take effect the markers are found to be written again, by this node or by the next one."""
        lane.is_busy = False
        lane.marked_version = 0
        self._run(lane)

    def on_changed(self, key: str) -> None:
        """The key of a transaction was changed, by whomever."""
        lane = self._lanes.get(key)
        if lane is not None:
            self._run(lane)

    # --- ids that nobody uses ---

    def forget(self, key: str, version: int) -> None:
        """Delete the key of an id, if it still stands at that version."""
        lane = self._lane(key)
        if not lane.is_busy and not lane.held:
            self._propose(lane, Txn((Compare(key, version),), (Delete(key),)), partial(self._on_complete, lane))

    # --- answers ---

    def _answer(self, lane: _Lane, held: _Held, answer: Answer) -> None:
        if held not in lane.held:
            return
        lane.held.remove(held)
        self._held_count -= 1
        if held.timer is not None:
            held.timer.cancel()
        held.done(answer)

    def _give_up(self, lane: _Lane, held: _Held) -> None:
        self._answer(lane, held, Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
        self._run(lane)

    def resign(self) -> None:
        """This node coordinates no more, or in another epoch: nobody waits here for what others do."""
        for lane in tuple(self._lanes.values()):
            lane.marked_version = 0
            for held in tuple(lane.held):
                if held.timer is not None and not held.is_asking:
                    self._answer(lane, held, Answer(self._why_unavailable))
            self._run(lane)
