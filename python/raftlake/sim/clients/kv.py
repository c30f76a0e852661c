"""Clients of the key-value space: gets, lists, puts, compare-and-set, deletes and transactions at any node.

Gets are linearizable; of the lists one half is, the other half shows what the node has.

Every transaction also writes a mark of its own, so that the oracle finds it in the log whatever else it did.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.machine import Entry, TxnResult
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Client, Shared
from raftlake.sim.clients.calls import CallFailure
from raftlake.sim.histories.listing import KvList
from raftlake.sim.oracle import MARK_PREFIX

KEYS = "key/"
#: Transactions change two keys out of so many.
TIED_KEYS = 4


class KvClient(Client):
    """Reads and changes a few keys at any node."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._counter = 0
        #: What this client last saw of each key: the versions that its compare-and-sets expect.
        self._versions: dict[str, int] = {}
        self._key = ""
        self._floor = 0
        self._mark = b""
        self._txn = Txn(compares=(), ops=())

    def step(self) -> None:
        number = self.rng.randrange(self.shared.settings.kv_keys)
        self._key = f"{KEYS}{number}"
        self._node_id = self.any_node()
        self._floor = self.shared.oracle.kv_floor
        match self.rng.randrange(8):
            case 0:
                self._list(number)
            case 1 | 2 | 3:
                self._get()
            case _:
                self._change(number)

    def _get(self) -> None:
        key = self._key

        def ask(node: ReplicaNode, reply: Any) -> None:
            def on_proven(result: ReadOffsetResult) -> None:
                # The state is read at the very moment at which the node says that it may be.
                state = (node.kv.machine.get(key), node.kv.machine.applied_offset)
                reply(state if result.error is ErrorCode.NONE else None)

            node.kv.read(True, on_proven)

        self.shared.calls.call(self._node_id, ask, self._on_state, CALL_TIMEOUT_MS)

    def _on_state(self, answer: Any) -> None:
        if not isinstance(answer, tuple):
            self.give_up()
            return
        entry: Entry | None = answer[0]
        position: int = answer[1]
        self.say(f"get {self._key} = {entry and entry.value.decode()} at {position} floor={self._floor} node={self._node_id}")
        self.shared.oracle.kv_read_answered(self._key, entry, position, self._floor, f"node {self._node_id}")
        shared = self.shared
        shared.kv_history.got(self.name, self.began_us, shared.scheduler.now_us, self._key, entry)
        self._versions[self._key] = ABSENT if entry is None else entry.version
        self.succeed()

    def _list(self, number: int) -> None:
        """A page of the keys: all of them with a prefix, or what follows a key that need not exist."""
        prefix = (KEYS, KEYS, "", f"{KEYS}{number % 10}", MARK_PREFIX)[self.rng.randrange(5)]
        after = (None, self._key, KEYS)[self.rng.randrange(3)]
        limit = (1, 2, 5, 1_000)[self.rng.randrange(4)]
        is_linearizable = bool(self.rng.randrange(2))

        def ask(node: ReplicaNode, reply: Any) -> None:
            def on_proven(result: ReadOffsetResult) -> None:
                machine = node.kv.machine
                found, has_more = machine.list(prefix, after, limit)
                position = machine.applied_offset
                listed = KvList(prefix=prefix, after=after, limit=limit, found=found, has_more=has_more, position=position)
                reply(listed if result.error is ErrorCode.NONE else None)

            node.kv.read(is_linearizable, on_proven)

        self.shared.calls.call(self._node_id, ask, partial(self._on_listed, is_linearizable), CALL_TIMEOUT_MS)

    def _on_listed(self, is_linearizable: bool, answer: Any) -> None:
        if not isinstance(answer, KvList):
            self.give_up()
            return
        shared, floor = self.shared, self._floor if is_linearizable else 0
        self.say(f"{answer} floor={floor} node={self._node_id}")
        shared.oracle.kv_list_answered(answer, floor, f"node {self._node_id}")
        if is_linearizable:
            # Not as one look at all of them: the search for an order of the operations would have to take all keys at once.
            found = dict(answer.found)
            for key in (f"{KEYS}{each}" for each in range(shared.settings.kv_keys)):
                if answer.covers(key):
                    shared.kv_history.got(self.name, self.began_us, shared.scheduler.now_us, key, found.get(key))
        self.succeed()

    def _change(self, number: int) -> None:
        self._counter += 1
        self._mark = f"{self.name}-{self._counter}".encode()
        txn = self._draw_txn(number)
        self._send(txn, forwarded=bool(self.rng.randrange(2)))

    def _send(self, txn: Txn, *, forwarded: bool) -> None:
        self._txn = txn
        self.shared.oracle.kv_write_sent(self._mark, txn)

        def ask(node: ReplicaNode, reply: Any) -> None:
            if forwarded:
                node.kv.propose_anywhere(txn, reply)
            else:
                node.kv.propose(txn, reply)

        self.shared.calls.call(self._node_id, ask, self._on_outcome, CALL_TIMEOUT_MS)

    def _draw_txn(self, number: int) -> Txn:
        kind = self.rng.randrange(5)
        mark = Put(MARK_PREFIX + self.name, self._mark)
        compares: tuple[Compare, ...] = ()
        if kind in (1, 2, 3):
            compares = (Compare(self._key, self._versions.get(self._key, ABSENT)),)
        if kind == 3:
            # One of four neighbours, lest all keys hang together.
            first = number - number % TIED_KEYS
            other = f"{KEYS}{first + self.rng.randrange(min(TIED_KEYS, self.shared.settings.kv_keys - first))}"
            if other != self._key:
                return Txn(compares=compares, ops=(mark, Put(self._key, self._mark), Put(other, self._mark)))
        if kind == 4:
            return Txn(compares=(), ops=(mark, Delete(self._key)))
        return Txn(compares=compares, ops=(mark, Put(self._key, self._mark)))

    def _on_outcome(self, answer: Any) -> None:
        if isinstance(answer, ProposeOutcome) and answer.status is ProposeStatus.DONE and answer.result is not None:
            self.say(f"change {self._key} {self._mark.decode()}: {answer.result}")
            self.shared.oracle.kv_write_answered(self._mark, self._txn, answer.result, self._floor)
            self._record(answer.result)
            self.succeed()
            return
        if answer is CallFailure.REFUSED or (
            isinstance(answer, ProposeOutcome) and answer.status in (ProposeStatus.REFUSED, ProposeStatus.NOT_LEADER)
        ):
            self.shared.oracle.kv_write_refused(self._mark)
        else:
            self._record(None)
        self.give_up()

    def _record(self, result: TxnResult | None) -> None:
        self.shared.kv_history.changed(self.name, self.began_us, self.shared.scheduler.now_us, self._txn, result)
