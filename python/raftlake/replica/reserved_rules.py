"""Which puts of reserved keys take effect: what is in force stays in force, whatever is committed over it.

The gate in front of the log (`proposals`) refuses what nodes do not write. What a broken, a forged or another release's leader
has committed all the same is judged here, as it is applied. The rule holds over a topic, the next producer id, an incarnation,
the start of a partition's records and a transaction (`transaction_index`). A put that means nothing, or that takes back what
stands there, changes the version of its key alone. The value stays, and with it a topic's id, partitions and data; a delete is
what ends a topic. All else that the transaction does is done.

Why as it is applied: then the key space itself holds the last good value. A restart, a snapshot and a node that joins later
find it there. Why the version changes: earlier releases take any value, and count the same versions. So no later compare,
delete or creation ends otherwise on one of their nodes, or on a node that has the spoilt value from an old snapshot.

Why nothing else is judged: nodes write their addresses and the cluster's id anew where these were spoilt. Under a key where
nothing good stands, any value is taken as it is: it ends nothing. A topic with the id of another one leaves an empty value.

A later release that wants to say more under one of these keys adds fields, or takes another key. A value that this module
refuses would take no effect on nodes of this release, and be lost to them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from raftlake.kv.commands import EndTxn
from raftlake.kv.keys import (
    INCARNATION_KEY,
    PRODUCERS_NEXT_KEY,
    STARTS_PREFIX,
    TOPICS_PREFIX,
    TRANSACTIONS_PREFIX,
    topic_key,
)
from raftlake.kv.keyspace import Entry
from raftlake.kv.rules import Decided
from raftlake.kv.strict_json import Refused
from raftlake.replica.reserved import (
    RecordStart,
    Topic,
    decode_incarnation,
    decode_producers_next,
    decode_start,
    decode_topic,
    first_free_producer_id,
    start_group,
)
from raftlake.replica.transaction_index import TransactionIndex

#: Partitions of one topic, at most. No setting: nodes that differ here would host different topics.
PARTITIONS_MAX = 10_000


def topic_under(name: str, value: bytes) -> Topic | None:
    """The topic that a value describes under the key of `name`; None for a value that means nothing."""
    topic = decode_topic(name, value, PARTITIONS_MAX)
    return None if isinstance(topic, Refused) else topic


class ReservedRules:
    """The judge of one key space (`kv.rules.Rules`). `topics` are those that its keys describe, by name. Invariant: no two of
    them have one id, for they would share their groups."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        #: Of all topics together.
        self.partitions = 0
        self._names: dict[bytes, str] = {}
        self._starts: dict[tuple[bytes, int], RecordStart] = {}
        self.transactions = TransactionIndex()

    @property
    def starts(self) -> Mapping[tuple[bytes, int], RecordStart]:
        """Where the records of partitions begin, by topic id and partition. What is not named has all of its records."""
        return self._starts

    @property
    def topic_ids(self) -> Container[bytes]:
        """Of all topics."""
        return self._names.keys()

    def take(self, key: str, value: bytes, version: int, standing: Entry | None) -> str | None:
        if key.startswith(TOPICS_PREFIX):
            return self._take_topic(key.removeprefix(TOPICS_PREFIX), value)
        if key.startswith(STARTS_PREFIX):
            return self._take_start(key, value)
        if key.startswith(TRANSACTIONS_PREFIX):
            return self.transactions.take(key, value)
        if standing is None:
            return None
        if key == PRODUCERS_NEXT_KEY:
            return _fault_of_ids(value, version, standing)
        if key == INCARNATION_KEY and not isinstance(decode_incarnation(standing.value), Refused):
            found = decode_incarnation(value)
            return found.reason if isinstance(found, Refused) else None
        return None

    def drop(self, key: str) -> None:
        if key.startswith(STARTS_PREFIX):
            group = start_group(key)
            if group is not None:
                self._starts.pop(group, None)
            return
        if key.startswith(TRANSACTIONS_PREFIX):
            self.transactions.drop(key)
            return
        topic = self.topics.pop(key.removeprefix(TOPICS_PREFIX), None) if key.startswith(TOPICS_PREFIX) else None
        if topic is not None:
            del self._names[topic.topic_id]
            self.partitions -= topic.partitions

    def restore(self, key: str, entry: Entry, version_of: Callable[[str], int]) -> str | None:
        """Snapshots of earlier releases may hold several names for one id: the oldest key counts, as it did there."""
        if key.startswith(STARTS_PREFIX):
            self._take_start(key, entry.value)
            return None
        if key.startswith(TRANSACTIONS_PREFIX):
            return self.transactions.restore(key, entry, version_of)
        name = key.removeprefix(TOPICS_PREFIX)
        topic = topic_under(name, entry.value) if key.startswith(TOPICS_PREFIX) else None
        if topic is None:
            return None
        other = self._names.get(topic.topic_id)
        if other is not None and (version_of(topic_key(other)), other) < (entry.version, name):
            return key
        if other is not None:
            self.partitions -= self.topics.pop(other).partitions
        self._note(topic)
        return None if other is None else topic_key(other)

    def judge_end(self, ending: EndTxn) -> Decided | str:
        return self.transactions.judge_end(ending)

    def _take_start(self, key: str, value: bytes) -> str | None:
        """Deleted records stay deleted. After a recovery that lost the log's end, new records stand below an old start. Then
        the start goes back."""
        group = start_group(key)
        if group is None:
            return None
        before, found = self._starts.get(group), decode_start(value)
        if isinstance(found, Refused):
            return found.reason if before is not None else None
        if before is not None and found.offset < before.offset and found.recovery == before.recovery:
            return f"the records below {before.offset} are deleted"
        self._starts[group] = found
        return None

    def _take_topic(self, name: str, value: bytes) -> str | None:
        before = self.topics.get(name)
        found = decode_topic(name, value, PARTITIONS_MAX)
        if isinstance(found, Refused):
            return None if before is None else found.reason
        if before is not None and (found.topic_id, found.voters) != (before.topic_id, before.voters):
            return "a topic keeps its id and the voters that it began with until its key is deleted"
        if before is not None and not _goes_on(found, before):
            return "partitions keep the voters that they began with"
        if before is not None and found.partitions < before.partitions:
            return f"the topic has {before.partitions} partitions, and none of them goes before all"
        other = self._names.get(found.topic_id, name)
        if other != name:
            return f"the id is that of the topic {other!r}"
        self._note(found)
        return None

    def _note(self, topic: Topic) -> None:
        before = self.topics.get(topic.name)
        self.partitions += topic.partitions - (0 if before is None else before.partitions)
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name


def _goes_on(found: Topic, before: Topic) -> bool:
    """Whether all that is said of voters is still said, and what is new is of new partitions alone."""
    told = len(before.grown)
    added = found.grown[told:]
    return found.grown[:told] == before.grown and all(first >= before.partitions for first, _ in added)


def _fault_of_ids(value: bytes, version: int, standing: Entry) -> str | None:
    """Producer ids never go back: one that is given out twice mixes two producers' sequences. A spoilt value loses nothing by
    this, since all ids that can have been given out are below those that follow it."""
    wanted = decode_producers_next(value, version)
    known = first_free_producer_id(standing)
    if isinstance(wanted, Refused):
        return wanted.reason if not isinstance(decode_producers_next(standing.value, standing.version), Refused) else None
    return None if wanted >= known else f"producer ids below {known} are given out already"
