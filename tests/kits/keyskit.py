"""The key-value service for tests of one service alone: real keys, whose commands are applied when the test says so."""

from __future__ import annotations

from collections.abc import Callable

from enginekit import Ground
from raftlake.errors import ErrorCode
from raftlake.kv.commands import Delete, EndTxn, Put, Txn, encode
from raftlake.kv.machine import TxnResult
from raftlake.ports.driver import Origin
from raftlake.ports.peer_rpcs import ReadOffsetResult
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica import transaction_entry
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.kv.outcomes import ProposeDone, ProposeOutcome, ProposeStatus
from raftlake.replica.kv.state import KvState
from raftlake.replica.transaction_entry import Transaction, transaction_key


class Keys:
    """In the place of `KvService`, on the metadata log that node 1 leads."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.partition = ground.lead(METADATA_GROUP)
        self.state = KvState()
        self.machine = self.state.machine
        self.machine.advance_to(self.partition.core.log_end)
        self.listeners: list[Callable[[int], None]] = []
        #: Proposed and not decided, in their order.
        self.proposed: list[tuple[Txn, ProposeDone]] = []
        self.reads: list[Callable[[ReadOffsetResult], None]] = []

    # --- what services call ---

    def propose(self, txn: Txn, done: ProposeDone, origin: Origin = Origin.CLIENT) -> None:
        assert origin is Origin.SELF
        self.proposed.append((txn, done))

    def propose_anywhere(self, txn: Txn, done: ProposeDone) -> None:
        self.proposed.append((txn, done))

    def read(self, linearizable: bool, done: Callable[[ReadOffsetResult], None]) -> None:
        assert linearizable
        self.reads.append(done)

    # --- what the test decides ---

    def commit(self, *, tell: bool = True) -> TxnResult:
        """The first of those that are proposed is committed and applied."""
        txn, done = self.proposed.pop(0)
        result = self._apply(txn, tell=tell)
        done(ProposeOutcome(ProposeStatus.DONE, result))
        return result

    def fail(self, status: ProposeStatus, reason: str = "", *, is_passing: bool = False) -> None:
        """The first of those that are proposed is not applied, as far as is known."""
        _, done = self.proposed.pop(0)
        done(ProposeOutcome(status, reason=reason, is_passing=is_passing))

    def apply(self, *ops: Put | Delete | EndTxn) -> TxnResult:
        """Somebody else's command is committed and applied."""
        return self._apply(Txn((), ops))

    def _apply(self, txn: Txn, *, tell: bool = True) -> TxnResult:
        result = self.machine.apply(self.machine.applied_offset, encode(txn))
        if tell:
            for listener in self.listeners:
                listener(self.machine.applied_offset)
        return result

    def put(self, *transactions: Transaction) -> None:
        result = self.apply(*(as_put(each) for each in transactions))
        assert not result.ignored, result

    def prove(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """All reads that wait are answered."""
        reads, self.reads = self.reads, []
        for done in reads:
            offset = Offset(self.machine.applied_offset)
            done(
                ReadOffsetResult(
                    group=METADATA_GROUP, error=error, applied_offset=offset, leader_id=NodeId(1), leader_epoch=Epoch(1)
                )
            )

    def transaction(self, transactional_id: str) -> Transaction | None:
        return self.state.transactions.by_key.get(transaction_key(transactional_id))

    def version(self, transactional_id: str) -> int:
        entry = self.machine.get(transaction_key(transactional_id))
        return 0 if entry is None else entry.version


def as_put(transaction: Transaction) -> Put:
    return Put(transaction_key(transaction.transactional_id), transaction_entry.encode(transaction))
