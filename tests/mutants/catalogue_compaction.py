"""Bugs planted in compaction: what a pass removes, what it keeps, which part of a log it takes, and what others make of it."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Edit, Mutant

PURE = "raftlake.wire.compaction"
SERVICE = "raftlake.replica.compaction.compactor"
FLOOR = "raftlake.replica.compaction.floor"
FACTS = "raftlake.replica.partition.start_points"
FETCHER = "raftlake.replica.replication.fetcher"
PARTITION = "raftlake.replica.partition.partition"

RULES = ("unit/wire/test_wire_compaction.py",)
SPARSE = ("unit/wire/test_wire_sparse_batches.py",)
FACTS_ALONE = ("unit/replica/test_replica_partition_compacted.py",)
CHOSEN = ("unit/replica/test_replica_compaction_compactor.py",)
CLEANABLE = ("unit/replica/test_replica_compaction_cleanable.py",)
ENDS = ("unit/replica/test_replica_compaction_floor.py",)


def found_by_seeds(name: str, source: str, module: str, before: str, after: str) -> Mutant:
    """A bug that simulated clusters with a compacted topic find."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), compacts=True, places=RULES)


KEYS = (
    found_by_seeds(
        "oldest-record-of-a-key-kept",
        "KIP-58: the newest one stays",
        PURE,
        "            self._newest.update(zip(known, [base + delta for delta in columns.offset_deltas], strict=True))\n",
        "            for key, delta in zip(known, columns.offset_deltas, strict=True):\n"
        "                self._newest.setdefault(key, base + delta)\n",
    ),
    found_by_seeds(
        "newest-record-of-a-key-removed-too",
        "an off-by-one: a record does not supersede itself",
        PURE,
        "(newer is None or newer <= base + delta)",
        "(newer is None or newer < base + delta)",
    ),
    found_by_seeds(
        "records-above-the-map-taken-for-superseded",
        "an off-by-one at the end of a full map",
        PURE,
        "        self.clean_until = header.end_offset\n        return True\n",
        "        self.clean_until = header.end_offset + 1\n        return True\n",
    ),
    found_by_seeds(
        "first-dirty-batch-not-in-the-map",
        "an off-by-one where the dirty part begins",
        PURE,
        "        if header.end_offset <= self._dirty_from:\n",
        "        if header.base_offset <= self._dirty_from:\n",
    ),
    found_by_seeds(
        "map-ends-where-the-next-one-begins-later",
        "what is not in the map is not clean",
        PURE,
        "        if len(self._newest) >= self._keys_max and self.clean_until > self._dirty_from:\n            return False\n",
        "        if len(self._newest) >= self._keys_max and self.clean_until > self._dirty_from:\n"
        "            self.clean_until = header.end_offset\n            return False\n",
    ),
    found_by_seeds(
        "records-without-keys-kept",
        "nothing supersedes them: as in Kafka they go",
        PURE,
        "            if key is not None and (newer",
        "            if key is None or (newer",
    ),
    found_by_seeds(
        "records-of-a-batch-take-the-first-ones-place",
        "which records stay is not which bytes stay",
        PURE,
        "    first = before = kept[0]\n",
        "    first = before = 0\n",
    ),
)

TOMBSTONES = (
    found_by_seeds(
        "tombstones-go-at-once",
        "KIP-58: a reader on its way must see them",
        PURE,
        "        is_over = horizon is not None and horizon <= self._request.now_ms and not self._is_dirty(header)\n",
        "        is_over = horizon is None or (horizon <= self._request.now_ms and not self._is_dirty(header))\n",
    ),
    found_by_seeds(
        "tombstones-go-before-their-time",
        "KIP-534: the horizon is when they may go",
        PURE,
        "        is_over = horizon is not None and horizon <= self._request.now_ms and not self._is_dirty(header)\n",
        "        is_over = horizon is not None and not self._is_dirty(header)\n",
    ),
    found_by_seeds(
        "a-fetched-horizon-lets-a-tombstone-go-with-its-values",
        "a reader at a follower saw the value, and had no time to come to the tombstone; Kafka's cleaner does it",
        PURE,
        "        is_over = horizon is not None and horizon <= self._request.now_ms and not self._is_dirty(header)\n",
        "        is_over = horizon is not None and horizon <= self._request.now_ms\n",
    ),
    found_by_seeds(
        "a-fetched-horizon-is-kept",
        "the next pass may begin at once, and finds that it is over",
        PURE,
        "            if self._is_dirty(header):\n",
        "            if horizon is None and self._is_dirty(header):\n",
    ),
    found_by_seeds(
        "tombstones-go-that-a-voter-lacks",
        "in Kafka a replica that was away for a day brings deleted keys back",
        PURE,
        "        staying_from = self._request.tombstones_below - base\n",
        "        staying_from = 1 << 62\n",
    ),
    found_by_seeds(
        "the-fastest-replica-counts-for-all",
        "the floor is where all have the records",
        FLOOR,
        "    return Offset(min(ends))\n",
        "    return Offset(max(ends))\n",
    ),
    found_by_seeds(
        "horizon-set-in-the-clean-part",
        "a pass knows the older values of the dirty part's keys only",
        PURE,
        "        return self._request.dirty_from <= header.base_offset and",
        "        return",
    ),
    found_by_seeds(
        "horizon-of-a-batch-put-off-by-each-pass",
        "KAFKA-8522: tombstones that never went",
        PURE,
        "            if self._is_dirty(header):\n",
        "            if self._is_dirty(header) or horizon is not None:\n",
    ),
    found_by_seeds(
        "times-of-records-move-with-the-horizon",
        "KIP-534: deltas are relative to the horizon then",
        PURE,
        "    shift_ms = header.base_timestamp_ms - horizon_ms\n",
        "    shift_ms = 0\n",
    ),
)

TRANSACTIONS = (
    found_by_seeds(
        "aborted-records-kept",
        "KIP-98: without their entry in the index they come to light",
        PURE,
        "        if self._aborted.hold(header):\n            self.records_removed",
        "        if False:\n            self.records_removed",
    ),
    found_by_seeds(
        "aborted-records-supersede-others",
        "a value that was never there hides one that is",
        PURE,
        " and not header.is_control and not self._aborted.hold(header):\n",
        " and not header.is_control:\n",
    ),
    found_by_seeds(
        "aborted-transactions-with-a-later-marker-passed-over",
        "a bug of ours: the marker stood behind the end of the pass",
        SERVICE,
        "                aborted=tuple(aborted),\n",
        "                aborted=tuple(each for each in aborted if each.last_offset < found.until),\n",
    ),
    found_by_seeds(
        "marker-goes-before-its-batches",
        "KAFKA-8335, the other way round: the transaction is open for ever",
        PURE,
        "        if has_batches or is_known or",
        "        if is_known or",
    ),
    mutant(
        "marker-goes-above-what-is-known-to-be-compacted",
        "a bug of ours: a start point told of the transaction, and nothing ended it any more",
        PURE,
        "        below = min(self._request.tombstones_below, self._request.dirty_from)\n",
        "        below = self._request.tombstones_below\n",
        RULES,
    ),
    mutant(
        "start-point-opens-a-transaction-for-ever",
        "a bug of ours: the marker behind the start point was compacted away",
        FACTS,
        "        self.producers.close_transactions(log.compacted_until or Offset(0))\n",
        "",
        FACTS_ALONE,
    ),
    mutant(
        "snapshot-of-a-compacted-log-tells-open-transactions",
        "a bug of ours: no marker ends them on who begins there",
        PARTITION,
        "        return known if known is None or not self.is_compacted else known.without_transactions()\n",
        "        return known\n",
        FACTS_ALONE,
    ),
    found_by_seeds(
        "fence-of-a-producer-goes",
        "KAFKA-10730: a marker is all that tells of an epoch",
        PURE,
        "        is_known = producer in self._request.last_markers or header.producer_id in self._request.unsettled\n",
        "        is_known = False\n",
    ),
)

PRODUCERS = (
    found_by_seeds(
        "last-batch-of-a-producer-dropped",
        "KAFKA-5167: its next batch is out of order then",
        PURE,
        "        return _header_alone(header) if is_needed and producer_id != NO_PRODUCER else None\n",
        "        return None\n",
    ),
    found_by_seeds(
        "newest-batch-above-the-high-watermark-counts",
        "a bug of ours: it was cut, and the one before it was gone",
        SERVICE,
        "    committed_end = partition.high_watermark\n",
        "    committed_end = partition.log.end_offset\n",
    ),
    found_by_seeds(
        "sequences-of-removed-records-not-counted",
        "a bug of ours: a follower that read a compacted log refused its producer",
        FACTS,
        "                header.last_offset_delta + 1,\n",
        "                header.record_count,\n",
    ),
)

PLACES = (
    found_by_seeds(
        "open-transactions-compacted",
        "the bound is the last stable offset",
        SERVICE,
        "            partition.last_stable_offset,\n",
        "            partition.high_watermark,\n",
    ),
    found_by_seeds(
        "uncommitted-records-compacted",
        "what is cut later has removed what it superseded",
        SERVICE,
        "            partition.last_stable_offset,\n",
        "            partition.log.end_offset,\n",
    ),
    found_by_seeds(
        "leader-epoch-lost-in-a-run-of-empty-batches",
        "KIP-101: epochs find where logs part",
        PURE,
        "            and held.leader_epoch == header.leader_epoch\n",
        "",
    ),
    found_by_seeds(
        "empty-batch-cut-too-short",
        "an off-by-one: the follower has to go on where the next batch begins",
        PURE,
        "            last_offset_delta=header.last_offset_delta - before,\n",
        "            last_offset_delta=header.last_offset_delta - before + 1,\n",
    ),
    mutant(
        "trimmed-log-compacted-as-it-was",
        "a bug of ours: the log lost its segments while the leader was asked",
        SERVICE,
        "        if all(segment.end_offset != found.until for segment in partition.log.segments()[:-1]):\n",
        "        if False:\n",
        CHOSEN,
    ),
    Mutant(
        name="follower-takes-no-batch-that-lacks-records",
        source="a bug of ours: who was behind stayed behind",
        edits=(
            Edit(FETCHER, "            headers = validate(view, is_from_log=True)\n", "            headers = validate(view)\n"),
            Edit(
                FETCHER,
                "view[position : position + header.size], is_from_log=True)",
                "view[position : position + header.size])",
            ),
        ),
        compacts=True,
        places=SPARSE,
    ),
    mutant(
        "young-records-compacted",
        "KIP-354: min.compaction.lag.ms",
        "raftlake.replica.compaction.cleanable",
        " or (is_young and not is_clean):\n",
        ":\n",
        CLEANABLE,
    ),
)

OBSERVERS = (
    mutant(
        "observer-that-a-new-leader-has-not-heard-of-is-left-out",
        "a bug of ours: it kept deleted keys once the leader had changed",
        FLOOR,
        " or any(node_id not in known for node_id in registered):\n",
        ":\n",
        ENDS,
    ),
    mutant(
        "observer-counts-while-it-is-heard-of-alone",
        "its address is known as long as it may come back",
        FLOOR,
        " or node_id in registered or status",
        " or status",
        ENDS,
    ),
    mutant(
        "nobody-is-registered-before-the-topic-is-known",
        "a node that was just started leads before it has applied any key",
        FLOOR,
        "    if partition.in_force is None or any(",
        "    if any(",
        ENDS,
    ),
)

REFUSED = (
    mutant(
        "records-of-a-compacted-topic-deleted-on-demand",
        "Kafka's Partition.deleteRecordsOnLeader: the policy forbids it",
        "raftlake.replica.apis.delete_records",
        "        raise RequestRejected(ErrorCode.POLICY_VIOLATION, COMPACT_ONLY.format(topic))\n",
        "        pass\n",
        ("unit/replica/test_replica_apis_delete_records.py",),
    ),
    mutant(
        "compact-and-delete-refused-like-compact",
        "Kafka's Partition.deleteRecordsOnLeader: delete among the policies allows it",
        "raftlake.replica.apis.delete_records",
        " and not partition.in_force.deletes:\n",
        ":\n",
        ("unit/replica/test_replica_apis_delete_records.py",),
    ),
)

COMPACTION: tuple[Mutant, ...] = (*KEYS, *TOMBSTONES, *TRANSACTIONS, *PRODUCERS, *PLACES, *OBSERVERS, *REFUSED)
