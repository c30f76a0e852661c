"""Bugs planted in what a partition derives from its log about transactions: open, undecided and aborted ones, and markers."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

STATES = "raftlake.replica.partition.producer_state"
OPEN = "raftlake.replica.partition.transactions"
FACTS = "raftlake.replica.partition.start_points"
PARTITION = "raftlake.replica.partition.partition"
FILES = "raftlake.storage.aborted_index"
ENTRIES = "raftlake.wire.aborted_index"
CONTROL = "raftlake.wire.control"

ROWS = ("unit/replica/test_replica_partition_producer_state_transactions.py",)
ALONE = ("unit/replica/test_replica_partition_transactions.py",)
DERIVED = ("unit/replica/test_replica_partition_transactions_log.py",)
NODES = ("unit/replica/test_replica_partition_transactions_nodes.py",)
INDEX = ("unit/storage/test_storage_aborted_index.py",)
KEPT = ("contract/test_storage_log_contract.py",)
BYTES = ("unit/wire/test_wire_aborted_index.py",)
MARKERS = ("unit/wire/test_wire_end_markers.py",)

DERIVATION = (
    mutant(
        "batches-of-the-old-epoch-kept-behind-a-marker",
        "KIP-360: an aborted producer must not go on with its old epoch",
        STATES,
        '        if old and marker.epoch <= int.from_bytes(_epoch(old), "big", signed=True):\n',
        "        if old:\n",
        ROWS,
    ),
    mutant(
        "each-batch-opens-its-transaction-anew",
        "KAFKA-5490: the first offset of a transaction is that of its first batch",
        STATES,
        "        if first_offset is None and transactional:\n",
        "        if transactional:\n",
        ROWS,
    ),
    mutant(
        "producer-of-an-open-transaction-forgotten",
        "KAFKA-15653: the last stable offset hung for ever",
        STATES,
        "and producer_id not in self._changed and not is_open(producer_id):",
        "and producer_id not in self._changed:",
        ROWS,
    ),
    mutant(
        "marker-not-undone",
        "a snapshot at an offset told what came behind it",
        STATES,
        "        self._undo.append((offset, producer_id, old))\n",
        "",
        ROWS,
    ),
    mutant(
        "stable-behind-the-marker-whatever-is-open",
        "KAFKA-5880: a reader left out too few transactions",
        STATES,
        "offset + 1 if earliest_open is None else earliest_open)",
        "offset + 1)",
        ROWS,
    ),
    mutant(
        "coordinator-epoch-lost-with-the-next-batch",
        "DescribeProducers tells it for as long as the producer is known",
        STATES,
        "        coordinator_epoch = _TRANSACTION.unpack_from(old, len(old) - ENTRY.size)[0] if old else -1\n",
        "        coordinator_epoch = -1\n",
        ROWS,
    ),
    mutant(
        "marker-at-the-high-watermark-taken-for-committed",
        "the last stable offset went back with the next leader",
        OPEN,
        "queue[0].marker_offset < high_watermark:",
        "queue[0].marker_offset <= high_watermark:",
        ALONE,
    ),
    mutant(
        "stable-as-soon-as-the-marker-is-written",
        "a marker that is not committed may be cut",
        OPEN,
        "        if not self._minima:\n            return earliest\n",
        "        if True:\n            return earliest\n",
        ALONE,
    ),
    mutant(
        "last-ended-transaction-taken-for-the-earliest",
        "transactions end in any order",
        OPEN,
        "        while minima and minima[-1].first_offset > ended.first_offset:\n",
        "        while False:\n",
        ALONE,
    ),
    mutant(
        "start-point-without-undecided-transactions",
        "a node that starts behind the marker must not show the transaction before the marker is committed",
        FACTS,
        "            ended=self.producers.transactions.ended_below(offset),\n",
        "",
        DERIVED,
    ),
    mutant(
        "marker-in-the-log-not-read-at-a-start",
        "KAFKA-10002: open transactions came back with each start",
        FACTS,
        "self.remember(header, now_ms, self._read_control(chunk, header, read_end_marker))",
        "self.remember(header, now_ms)",
        DERIVED,
    ),
    mutant(
        "followers-pass-markers-over",
        "the followers' last stable offset stood still",
        PARTITION,
        "                marker = read_end_marker(batch)\n",
        "                marker = None\n",
        NODES,
    ),
    mutant(
        "sequence-asked-of-a-marker",
        "a marker has none, and must not wait for its producer",
        PARTITION,
        "    return header.producer_id != NO_PRODUCER and not header.is_control\n",
        "    return header.producer_id != NO_PRODUCER\n",
        NODES,
    ),
    mutant(
        "stable-below-the-start-of-the-log",
        "a reader was sent to records that are deleted",
        PARTITION,
        "min(max(self.log.start_offset, earliest), self.high_watermark)",
        "min(earliest, self.high_watermark)",
        DERIVED,
    ),
    mutant(
        "open-transaction-copied-to-the-tier",
        "KIP-405: segments below the last stable offset are copied",
        "raftlake.replica.tiering.copier",
        "partition.last_stable_offset, points.__contains__)",
        "partition.high_watermark, points.__contains__)",
        ("unit/replica/test_replica_tiering_copier.py",),
    ),
    mutant(
        "commit-read-as-abort",
        "ABORT is 0 and COMMIT 1",
        CONTROL,
        "    return type_ == ControlType.COMMIT, coordinator_epoch\n",
        "    return type_ == ControlType.ABORT, coordinator_epoch\n",
        MARKERS,
    ),
)

ABORTED = (
    mutant(
        "start-point-saved-before-the-index-is-durable",
        "KAFKA-13834: an index that lacks entries shows aborted records",
        FACTS,
        "        self._log.aborted.sync()\n",
        "",
        DERIVED,
    ),
    mutant(
        "entries-that-found-no-room-passed-over",
        "the index has to be whole for readers, not for the disk",
        FACTS,
        "        return found + [each for each in self._aborted if each.last_offset >= start and each.first_offset < end]\n",
        "        return found\n",
        DERIVED,
    ),
    mutant(
        "damaged-index-believed",
        "its format has no checksum",
        FACTS,
        "                if log.aborted.agrees(offset, notes.aborted):\n",
        "                if True:\n",
        DERIVED,
    ),
    mutant(
        "entries-behind-the-start-point-kept",
        "a crash took the records that they tell of",
        FACTS,
        "        log.aborted.truncate_to(producers_from)\n",
        "",
        DERIVED,
    ),
    mutant(
        "lost-entries-not-counted",
        "an index file that somebody has deleted is no empty one",
        FILES,
        "            if self._intact_below(base, end_offset) != told.get(base, 0):\n",
        "            if self._intact_below(base, end_offset) > told.get(base, 0):\n",
        INDEX,
    ),
    mutant(
        "marker-at-the-fetch-offset-left-out",
        "the reader that begins at the marker is told of its transaction, as by Kafka",
        FILES,
        "    return bisect_left(range",
        "    return bisect_right(range",
        KEPT,
    ),
    mutant(
        "new-index-file-without-its-name-synced",
        "a file whose name is lost is lost",
        FILES,
        "            self._names_changed |= base not in counts\n",
        "",
        INDEX,
    ),
    mutant(
        "index-kept-by-a-reset",
        "the entries of the old log were those of the new one",
        "raftlake.storage.reset",
        '(".log", SWAP_SUFFIX, ".index", ".timeindex", ABORTED_SUFFIX, *POINT_SUFFIXES)',
        '(".log", SWAP_SUFFIX, ".index", ".timeindex", *POINT_SUFFIXES)',
        KEPT,
    ),
    mutant(
        "index-kept-when-its-segment-is-put-aside",
        "entries of segments that are not there any more",
        "raftlake.storage.impairment",
        "(*SUFFIXES, ABORTED_SUFFIX)",
        "SUFFIXES",
        ("unit/storage/test_storage_impairment.py",),
    ),
    mutant(
        "search-ended-by-the-first-that-begins-behind",
        "a transaction that began early may end late",
        ENTRIES,
        "        if entry.last_stable_offset >= end_offset:\n",
        "        if entry.first_offset >= end_offset:\n",
        BYTES,
    ),
)

TRANSACTIONS_LOG = (*DERIVATION, *ABORTED)
