"""The one state machine as this node has applied it, and what its reserved keys say of topics and transactions.

Read by the services of this package before they propose and after they apply; changed by `KvService` alone.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from raftlake.kv.machine import StateMachine
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import Offset
from raftlake.replica.reserved import RecordStart, Topic
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.replica.transaction_entry import Transaction
from raftlake.replica.transaction_index import TransactionIndex


class KvState:
    def __init__(self) -> None:
        self.machine = StateMachine(rules=ReservedRules)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics that the keys describe, by name, as far as they are applied here."""
        return self._rules.topics

    @property
    def topic_ids(self) -> Container[bytes]:
        """Their ids."""
        return self._rules.topic_ids

    @property
    def record_starts(self) -> Mapping[tuple[bytes, int], RecordStart]:
        """See `ReservedRules.starts`."""
        return self._rules.starts

    def records_from(self, group: GroupId) -> Offset:
        """The records of a partition below it are deleted; 0 where none were."""
        starts = self._rules.starts
        start = starts.get((group.topic_id, group.partition)) if starts else None
        return Offset(0) if start is None else start.offset

    @property
    def transactions(self) -> TransactionIndex:
        """The transactions that the keys describe, as far as they are applied here."""
        return self._rules.transactions

    def transaction_of(self, producer_id: int) -> Transaction | None:
        """Of the transactional id that has this producer id; None where none has it."""
        return self._rules.transactions.of(producer_id)

    @property
    def partition_count(self) -> int:
        """Of all topics that are applied here, and of the quorum's own log."""
        return 1 + self._rules.partitions

    @property
    def _rules(self) -> ReservedRules:
        rules = self.machine.rules
        assert isinstance(rules, ReservedRules)
        return rules
