"""Bugs planted where a review of the tier and of the key space found some: forged keys, lost histories, full key spaces."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

GATE = "raftlake.replica.kv.tier_gate"
BUILD = "raftlake.replica.tiering.remote_log_aux"
QUOTA = "raftlake.kv.quota"
JUDGED = ("unit/replica/test_replica_kv_tier_gate.py",)
BUILT = ("unit/replica/test_replica_tiering_remote_log_aux.py",)

FORGED = (
    mutant(
        "key-of-no-topic-id-stops-the-leader",
        "each next leader of the metadata log finds the same key, and stops",
        "raftlake.replica.tiering.gone_topics",
        "            except WireError:\n",
        "            except ValueError:\n",
        ("unit/replica/test_replica_tiering_gone_topics.py",),
    ),
    mutant(
        "keys-of-a-deleted-topic-go-amid-a-partition",
        "the next leader finds keys that name no topic: they stay for ever, and a warning with them",
        "raftlake.replica.tiering.gone_topics",
        "        if has_more:\n",
        "        if False:\n",
        ("unit/replica/test_replica_tiering_gone_topics.py",),
    ),
    mutant(
        "partition-that-fills-a-piece-of-keys-never-goes",
        "the keys of a deleted topic stay where one partition has as many as a transaction deletes",
        "raftlake.replica.tiering.gone_topics",
        " != last) or found\n",
        " != last)\n",
        ("unit/replica/test_replica_tiering_gone_topics.py",),
    ),
    mutant(
        "last-piece-of-keys-leaves-a-partition",
        "each page leaves its last partition behind: the keys never end",
        "raftlake.replica.tiering.gone_topics",
        "        if has_more:\n",
        "        if True:\n",
        ("unit/replica/test_replica_tiering_gone_topics.py",),
    ),
    mutant(
        "key-of-no-topic-id-stops-a-recovery",
        "a key that any node could write keeps `raftlake recover` from its work",
        "raftlake.runtime.recovery.key_space",
        "with suppress(WireError):",
        "with suppress(ValueError):",
        ("unit/runtime/test_runtime_recovery_key_space.py",),
    ),
    mutant(
        "first-copy-of-a-topic-that-never-was",
        "the key is taken for one of a deleted topic, whose table is made in order to be emptied",
        GATE,
        " and not _is_of_topic(first.key, wanted.topic, machine):",
        " and False:",
        JUDGED,
    ),
    mutant(
        "first-copy-under-the-id-of-another-topic",
        "a name that was deleted and created again has another table",
        GATE,
        "key == tier_key(id_to_text(topic.topic_id), partition) and ",
        "",
        JUDGED,
    ),
    mutant(
        "table-taken-over-in-the-name-of-another-topic",
        "with the end of its topic the table of the other one is emptied",
        GATE,
        "    if (standing is None or wanted.topic != standing.topic) and",
        "    if standing is None and",
        JUDGED,
    ),
    mutant(
        "path-taken-for-the-name-of-a-topic",
        "a table appears outside of tier.uri",
        "raftlake.tier.entries",
        "    if not _TOPIC.fullmatch(name):\n",
        "    if False:\n",
        ("unit/tier/test_tier_entries.py",),
    ),
)

SUPERSEDED = (
    mutant(
        "followers-sent-to-a-table-of-a-lost-history",
        "after an unclean election the leader's log and the table are two histories",
        BUILD,
        "self._remote_log.of_this_history(partition), partition.core",
        "self._remote_log.tiered(partition), partition.core",
        BUILT,
    ),
    mutant(
        "copy-taken-that-goes-on-in-a-lost-history",
        "the replica is asked to truncate what it takes for committed, at each start",
        BUILD,
        "        elif segment.end_offset > local.offset:\n",
        "        elif False:\n",
        BUILT,
    ),
    mutant(
        "end-of-the-leaders-epoch-taken-unread",
        "the leader has the epoch of the copy, and less of it",
        BUILD,
        "            if end.epoch == epoch and end.offset >= segment.end_offset:\n",
        "            if end.epoch == epoch:\n",
        BUILT,
    ),
)

FULL = (
    mutant(
        "longest-end-of-a-transaction-refused",
        "EndTxn of version 5 is refused for good in a full key space",
        QUOTA,
        "END_GROWTH_BYTES = 151",
        "END_GROWTH_BYTES = 150",
        ("property/test_replica_transaction_growth.py",),
    ),
    mutant(
        "partitions-added-in-small-steps-fill-the-room-of-the-quorum",
        "nodes cannot tell their addresses, and nothing that is open ends",
        QUOTA,
        "        return not may_add_partitions or ",
        "        return True or ",
        ("unit/kv/test_kv_end_txn.py",),
    ),
)

REVIEW_TIER = (*FORGED, *SUPERSEDED, *FULL)
