"""Keys and transactions of a quorum in memory, behind the client's methods; answers may be lost before or after the change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raftlake.client.errors import KvConflict
from raftlake.client.types import EndTxn, KvEntry, KvPage, OpenTransaction
from raftlake.errors import RequestRejected, UnknownOutcome
from raftlake.kv.commands import Delete, DeletePrefix, Put
from raftlake.kv.keys import TOPICS_PREFIX, topic_key
from raftlake.wire.ids import id_to_text


@dataclass
class FakeTransaction:
    """Of one transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int = 0
    state: str = "Ongoing"


@dataclass
class FakeKeys:
    """`client.kv`, and the transactions that its commands end."""

    entries: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    transactions: dict[str, FakeTransaction] = field(default_factory=dict)
    version: int = 10
    #: What the next commands end with: "lost before", "lost after", or an error that is raised before anything happens.
    outcomes: list[str | Exception | None] = field(default_factory=list)
    #: Called before the next commands, in turn.
    before_txn: list[Callable[[], object]] = field(default_factory=list)
    commands: list[list[Any]] = field(default_factory=list)
    page_entries: int = 2
    #: What was waited for.
    settled: list[list[str]] = field(default_factory=list)
    settle_failure: Exception | None = None
    #: The ids of topics, as the keys of the nodes have them; and what was asked of these keys.
    topics: dict[str, bytes] = field(default_factory=dict)
    topics_asked: list[str] = field(default_factory=list)
    #: What the next questions about topics end with.
    topics_failures: list[Exception] = field(default_factory=list)

    # --- what producers do ---

    def begin(self, transactional_id: str) -> EndTxn:
        """The commit of the transaction that a new producer of the id begins. One that is open is aborted."""
        known = self.transactions.get(transactional_id)
        if known is None:
            known = FakeTransaction(transactional_id, 1000 + len(self.transactions))
            self.transactions[transactional_id] = known
        else:
            known.epoch += 1
            known.state = "Ongoing"
        return EndTxn(known.producer_id, known.epoch, True)

    def time_out(self, transactional_id: str) -> None:
        found = self.transactions[transactional_id]
        found.epoch += 1
        found.state = "Aborted"

    def states(self) -> dict[str, str]:
        return {name: found.state for name, found in sorted(self.transactions.items())}

    def open_transactions(self, prefix: str = "", *, timeout_ms: float | None = None) -> tuple[OpenTransaction, ...]:
        return tuple(
            OpenTransaction(transactional_id=name, producer_id=found.producer_id, epoch=found.epoch)
            for name, found in sorted(self.transactions.items())
            if name.startswith(prefix) and found.state == "Ongoing"
        )

    def settle_transactions(self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None) -> bool:
        self.settled.append(sorted(transactional_ids))
        if self.settle_failure is not None:
            raise self.settle_failure
        return len(self.settled) > 1

    # --- client.kv ---

    @property
    def kv(self) -> FakeKeys:
        return self

    def get(self, key: str, *, timeout_ms: float | None = None) -> KvEntry | None:
        self._note(key)
        return self._entry(key) if key in self._readable() else None

    def list(
        self, prefix: str = "", *, after: str | None = None, values: bool = False, timeout_ms: float | None = None
    ) -> KvPage:
        assert values
        self._note(prefix)
        names = [key for key in sorted(self._readable()) if key.startswith(prefix) and (after is None or key > after)]
        found = tuple(self._entry(key) for key in names[: self.page_entries])
        return KvPage(entries=found, more=len(names) > len(found), version=self.version)

    def txn(
        self,
        compare: Mapping[str, int],
        ops: Sequence[Put | Delete | DeletePrefix | EndTxn],
        *,
        newest: Mapping[str, int] | None = None,
        timeout_ms: float | None = None,
    ) -> int:
        if self.before_txn:
            self.before_txn.pop(0)()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        if outcome == "lost before":
            raise UnknownOutcome("no answer")
        version = self._apply(compare, ops, newest or {})
        if outcome == "lost after":
            raise UnknownOutcome("no answer")
        return version

    def _apply(
        self, compare: Mapping[str, int], ops: Sequence[Put | Delete | DeletePrefix | EndTxn], newest: Mapping[str, int]
    ) -> int:
        self.commands.append(list(ops))
        current = {key: self._version(key) for key, version in compare.items() if self._version(key) != version}
        refused = {op.producer_id: why for op in ops if isinstance(op, EndTxn) and (why := self._why_not(op))}
        newer = {
            prefix: version
            for key, (_, version) in self.entries.items()
            for prefix, limit in newest.items()
            if key.startswith(prefix) and version > limit
        }
        if current or refused or newer:
            raise KvConflict(current, refused, newer)
        self.version += 1
        for op in ops:
            match op:
                case Put(key=key, value=value):
                    self.entries[key] = (value, self.version)
                case Delete(key=key):
                    self.entries.pop(key, None)
                case DeletePrefix(prefix=prefix):
                    self.entries = {key: entry for key, entry in self.entries.items() if not key.startswith(prefix)}
                case EndTxn():
                    self._of(op.producer_id).state = "Committed" if op.commit else "Aborted"
        return self.version

    def _why_not(self, op: EndTxn) -> str:
        found = self._of(op.producer_id)
        if found.epoch != op.epoch:
            return f"the producer {op.producer_id} has the epoch {found.epoch}, not {op.epoch}"
        is_so = found.state in ("Ongoing", "Committed" if op.commit else "Aborted")
        return "" if is_so else f"the transaction of the producer {op.producer_id} is {found.state}"

    def _of(self, producer_id: int) -> FakeTransaction:
        return next(found for found in self.transactions.values() if found.producer_id == producer_id)

    def _note(self, key: str) -> None:
        if key.startswith(TOPICS_PREFIX):
            self.topics_asked.append(key)
            if self.topics_failures:
                raise self.topics_failures.pop(0)

    def _readable(self) -> dict[str, tuple[bytes, int]]:
        told = {topic: json.dumps({"id": id_to_text(topic_id)}).encode() for topic, topic_id in self.topics.items()}
        return self.entries | {topic_key(topic): (value, 1) for topic, value in told.items()}

    def _version(self, key: str) -> int:
        return self.entries[key][1] if key in self.entries else 0

    def _entry(self, key: str) -> KvEntry:
        value, version = self._readable()[key]
        return KvEntry(key=key, version=version, size=len(value), value=value)


def away() -> RequestRejected:
    """What a client says when no node has answered in time."""
    from raftlake.errors import ErrorCode

    return RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "POST /v1/txn was not accepted in time")
