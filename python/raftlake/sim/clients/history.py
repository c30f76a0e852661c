"""What the key-value clients of a run asked and were told, judged as one history: is it linearizable?

The oracle compares answers with the log; this does without the log, and so without believing what an answer says of its place
in it. Owns the translation of requests and results into operations; the judging is `histories.kv`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raftlake.kv.commands import Put, Txn
from raftlake.kv.machine import Entry, TxnResult
from raftlake.sim.histories.kv import Change, Changed, Conflict, Get, KvOperation, Seen, check_key_value
from raftlake.sim.histories.linearizability import Finding, Operation, Outcome
from raftlake.sim.invariants.base import Violation

#: A search that takes longer is given up, which says nothing.
CONFIGURATIONS_MAX = 50_000


class KvHistory:
    """One per run. Times are simulated microseconds; keys that begin with `ignored_prefix` are left out."""

    def __init__(self, ignored_prefix: str) -> None:
        self._ignored_prefix = ignored_prefix
        self.operations: list[KvOperation] = []

    def got(self, client: str, asked_us: int, answered_us: int, key: str, entry: Entry | None) -> None:
        """A linearizable get was answered."""
        seen = None if entry is None else Seen(entry.value, entry.version)
        self._add(client, asked_us, answered_us, Outcome.OK, Get({key: seen}))

    def listed(
        self, client: str, asked_us: int, answered_us: int, found: Mapping[str, Entry | None], below: Mapping[str, bool]
    ) -> None:
        """A linearizable list was answered: what it says of keys, and whether there are keys below prefixes."""
        if found or below:
            seen = {key: None if entry is None else Seen(entry.value, entry.version) for key, entry in found.items()}
            self._add(client, asked_us, answered_us, Outcome.OK, Get(seen, below=below))

    def changed(self, client: str, asked_us: int, answered_us: int, txn: Txn, result: TxnResult | None) -> None:
        """A transaction was answered, or its outcome stays unknown (None). What was refused is no operation."""
        values: dict[str, bytes | None] = {}
        newest = {compare.prefix: compare.newest for compare in txn.prefix_compares}
        deleted = txn.deleted_prefixes
        for operation in txn.changes:
            if not operation.key.startswith(self._ignored_prefix):
                values[operation.key] = operation.value if isinstance(operation, Put) else None
        compares = {compare.key: compare.version for compare in txn.key_compares}
        change = Change(values, compares, newest=newest, deleted=deleted)
        if result is None:
            self._add(client, asked_us, answered_us, Outcome.UNKNOWN, change)
            return
        newer = {} if result.ranges is None else dict(result.ranges.newest)
        told = Changed(result.offset) if result.succeeded else Conflict(dict(result.current), newest=newer)
        self._add(client, asked_us, answered_us, Outcome.OK, replace(change, result=told))

    def _add(self, client: str, asked_us: int, answered_us: int, outcome: Outcome, action: Get | Change) -> None:
        self.operations.append(
            Operation(client=client, invoked_at=asked_us, returned_at=answered_us, outcome=outcome, action=action)
        )

    def check(self) -> None:
        """Raise Violation when no order of the operations explains every answer."""
        for keys, verdict in check_key_value(self.operations, configurations_max=CONFIGURATIONS_MAX):
            if verdict.finding is Finding.NOT_LINEARIZABLE:
                raise Violation("the key-value space is linearizable", f"keys {', '.join(keys)}: {verdict}")
