"""Clients of the key-value space that deal with ranges of keys in a share of their operations: compares and deletions of all
keys with a prefix, and lists up to a delimiter.

Their ranges have keys of their own, few enough for the history to be judged. What concerns ranges is drawn by a generator of
its own, so that all else of such a client is drawn as by one without ranges.
"""

from __future__ import annotations

from typing import Any

from raftlake.errors import ErrorCode
from raftlake.kv.commands import Compare, ComparePrefix, Delete, DeletePrefix, Put, Txn
from raftlake.kv.keyspace import unpack
from raftlake.kv.machine import TxnResult
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.replica.node import ReplicaNode
from raftlake.sim.clients.base import CALL_TIMEOUT_MS, Shared
from raftlake.sim.clients.kv import KvClient
from raftlake.sim.faults.faults import stream
from raftlake.sim.histories.listing import KvList
from raftlake.sim.oracle import MARK_PREFIX

TREES = 2
DELIMITER = "/"
#: Below a tree: names right there, and names one level deeper.
LEAVES = ("a", "b", "d/x", "d/y")
FOLDER = "d/"


class RangeKvClient(KvClient):
    """So many in a hundred of its operations as the setting says are about ranges."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._ranges = stream(shared.settings.seed, f"{name} of ranges")
        #: The newest version below each prefix that this client heard of.
        self._newest: dict[str, int] = {}
        self._tree = ""

    def step(self) -> None:
        if self._ranges.randrange(100) >= self.shared.settings.kv_range_percent:
            super().step()
            return
        self._tree = f"tree/{self._ranges.randrange(TREES)}/"
        self._key = self._tree + LEAVES[self._ranges.randrange(len(LEAVES))]
        self._node_id = self.shared.node_ids[self._ranges.randrange(len(self.shared.node_ids))]
        self._floor = self.shared.oracle.kv_floor
        if self._ranges.randrange(3) == 0:
            self._list_names()
        else:
            self._send(self._draw_range_txn(), forwarded=bool(self._ranges.randrange(2)))

    def _draw_range_txn(self) -> Txn:
        self._counter += 1
        self._mark = f"{self.name}-{self._counter}".encode()
        mark = Put(MARK_PREFIX + self.name, self._mark)
        prefix = (self._tree, self._tree + FOLDER)[self._ranges.randrange(2)]
        compares: tuple[Compare | ComparePrefix, ...] = ()
        if self._ranges.randrange(2):
            compares = (ComparePrefix(prefix, (0, self._newest.get(prefix, 0))[self._ranges.randrange(2)]),)
        operation: Put | Delete | DeletePrefix
        match self._ranges.randrange(4):
            case 0:
                operation = DeletePrefix(prefix)
            case 1:
                operation = Delete(self._key)
            case _:
                operation = Put(self._key, self._mark)
        return Txn(compares, (mark, operation))

    def _record(self, result: TxnResult | None) -> None:
        super()._record(result)
        if result is None or not self._key.startswith("tree/"):
            return
        if result.ranges is not None:
            self._newest |= dict(result.ranges.newest)
        if result.succeeded:
            self._newest[self._tree] = self._newest[self._tree + FOLDER] = result.offset

    # --- lists ---

    def _list_names(self) -> None:
        prefix = (self._tree, self._tree, "tree/", "")[self._ranges.randrange(4)]
        after = (None, None, self._key, self._tree + FOLDER)[self._ranges.randrange(4)]
        limit = (1, 2, 1_000)[self._ranges.randrange(3)]

        def ask(node: ReplicaNode, reply: Any) -> None:
            def on_proven(result: ReadOffsetResult) -> None:
                machine = node.kv.machine
                names, has_more = machine.names(prefix, after, limit, DELIMITER)
                listed = KvList(
                    prefix=prefix,
                    after=after,
                    limit=limit,
                    found=tuple((name, unpack(row)) for name, row in names if row is not None),
                    has_more=has_more,
                    position=machine.applied_offset,
                    delimiter=DELIMITER,
                    prefixes=tuple(name for name, row in names if row is None),
                )
                reply(listed if result.error is ErrorCode.NONE else None)

            node.kv.read(True, on_proven)

        self.shared.calls.call(self._node_id, ask, self._on_names, CALL_TIMEOUT_MS)

    def _on_names(self, answer: Any) -> None:
        if not isinstance(answer, KvList):
            self.give_up()
            return
        shared = self.shared
        self.say(f"{answer} floor={self._floor} node={self._node_id}")
        shared.oracle.kv_list_answered(answer, self._floor, f"node {self._node_id}")
        if answer.prefix == self._tree:
            entries = dict(answer.found)
            right_there = [self._tree + leaf for leaf in LEAVES if DELIMITER not in leaf]
            found = {key: entries.get(key) for key in right_there if answer.covers(key)}
            folder = self._tree + FOLDER
            below = {folder: folder in answer.prefixes} if answer.covers(folder) else {}
            shared.kv_history.listed(self.name, self.began_us, shared.scheduler.now_us, found, below)
        self.succeed()
