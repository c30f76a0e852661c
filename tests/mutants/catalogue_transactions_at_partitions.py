"""Planted bugs: transactional batches and markers at a partition's leader, and what readers of committed records get."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

VERIFICATION = "raftlake.replica.transactions.verification"
MARKERS = "raftlake.replica.transactions.markers"
PARTITION = "raftlake.replica.partition.partition"
HOLDS = "raftlake.replica.partition.holds"
FETCH = "raftlake.replica.apis.fetch"
SHOWN = "raftlake.replica.apis.shown_records"
OFFSETS = "raftlake.replica.apis.offsets"
SEARCHES = "raftlake.replica.aside.time_searches"
PRODUCE = "raftlake.replica.apis.produce"
DESCRIBE = "raftlake.replica.apis.describe_producers"
SEGMENT = "raftlake.arrow.segment"
REMOTE_ABORTED = "raftlake.replica.tiering.remote_aborted"
PIECE = "raftlake.replica.tiering.piece_transactions"
ABORTED = "raftlake.client.aborted"
READER = "raftlake.client.reader"

BATCHES = (
    "unit/replica/test_replica_partition_holds.py",
    "unit/replica/test_replica_transactions_verification.py",
)
ENDS = ("unit/replica/test_replica_transactions_markers.py",)
CLIENTS_ENDS = ("unit/replica/test_replica_apis_write_txn_markers.py",)
READS = ("unit/replica/test_replica_apis_read_committed.py",)
REMOTE = (
    "unit/replica/test_replica_tiering_remote_aborted.py",
    "unit/replica/test_replica_tiering_piece_transactions.py",
)
PRODUCERS = ("unit/replica/test_replica_apis_describe_producers.py",)
CLIENT = ("unit/client/test_client_aborted.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


TRANSACTIONS_AT_PARTITIONS = (
    mutant(
        "first-batch-judged-by-keys-that-no-read-has-proven",
        "KIP-890 on a new leader: its log may be newer than the keys that it has applied",
        VERIFICATION,
        "        if partition.keys_known_in != epoch:\n            return None\n",
        "",
        BATCHES,
    ),
    mutant(
        "what-the-keys-do-not-say-yet-is-refused-at-once",
        "the producer's partition was added at another node a moment ago",
        VERIFICATION,
        "return error if error is ErrorCode.NONE or pending.looked_up_in == epoch else None",
        "return error",
        BATCHES,
    ),
    mutant(
        "epoch-of-the-transaction-is-not-compared",
        "a fenced producer writes into the transaction of its successor",
        VERIFICATION,
        "transaction.epoch != header.producer_epoch or transaction.is_retired",
        "transaction.is_retired",
        BATCHES,
    ),
    mutant(
        "transaction-begins-in-partitions-that-it-does-not-have",
        "nobody writes a marker there: it hangs for ever",
        VERIFICATION,
        "    if not transaction.is_ongoing or (group.topic_id, group.partition) not in transaction.partitions:\n",
        "    if not transaction.is_ongoing:\n",
        BATCHES,
    ),
    mutant(
        "no-marker-where-the-producers-were-forgotten",
        "simulator seed 744876267: other replicas keep the transaction open, and no reader passes it",
        HOLDS,
        "        return producers.has_forgotten\n",
        "        return False\n",
        BATCHES,
    ),
    mutant(
        "no-marker-where-an-open-transaction-was-forgotten",
        "simulator, seed 873000191: a compacted log that began anew tells of no open transaction",
        HOLDS,
        "return producers.has_forgotten or producers.open_transaction(marker.producer_id) is not None",
        "return producers.open_transaction(marker.producer_id) is not None",
        BATCHES,
    ),
    mutant(
        "marker-of-a-producer-that-never-wrote-here",
        "each transaction writes markers where it has no records",
        HOLDS,
        "        return producers.has_forgotten\n",
        "        return True\n",
        BATCHES,
    ),
    mutant(
        "batch-passes-another-of-its-producer-that-waits",
        "order within a connection is all that a producer can count on",
        PARTITION,
        "            if self._holds and first.producer_id in self._holds:\n"
        "                self._holds.add(pending)\n                continue\n",
        "",
        BATCHES,
    ),
    mutant(
        "what-waited-is-judged-behind-what-came-later",
        "order within a connection is all that a producer can count on",
        PARTITION,
        "self.appending[:0] = held",
        "self.appending += held",
        BATCHES,
    ),
    mutant(
        "what-waits-is-forgotten-when-leadership-ends",
        "its client is never answered, and all later answers of the connection wait behind it",
        PARTITION,
        "refused, self.appending = [*self._holds.take_all(), *self.appending], []",
        "refused, self.appending = self.appending, []",
        BATCHES,
    ),
    mutant(
        "plain-batch-amid-the-producers-transaction",
        "Kafka's ProducerAppendInfo: a non-transactional batch while a transaction is open",
        HOLDS,
        "return ErrorCode.INVALID_TXN_STATE if is_open else ErrorCode.NONE",
        "return ErrorCode.NONE",
        BATCHES,
    ),
    mutant(
        "open-transaction-goes-on-with-any-epoch",
        "a batch of a new epoch is not verified while the old transaction is open",
        HOLDS,
        "is_open and known is not None and known.epoch == header.producer_epoch",
        "is_open",
        BATCHES,
    ),
    mutant(
        "transactional-records-without-an-id",
        "Kafka's KafkaApis.handleProduceRequest",
        PRODUCE,
        "elif checked[0].is_transactional and transactional_id is None:",
        "elif False:",
        BATCHES,
    ),
    mutant(
        "marker-before-the-decision-is-applied",
        "a late batch, judged by older keys, begins the transaction anew behind its marker",
        MARKERS,
        "is_fresh = known_to is not None and self._keys.machine.applied_offset >= known_to",
        "is_fresh = known_to is not None",
        ENDS,
    ),
    mutant(
        "new-leader-writes-a-marker-by-keys-of-before",
        "its log may hold records of the next transaction of the same epoch",
        MARKERS,
        "if is_fresh and partition.keys_known_in == partition.core.epoch:",
        "if is_fresh:",
        ENDS,
    ),
    mutant(
        "late-marker-ends-the-next-transaction",
        "KIP-890: a marker that was on its way too long",
        MARKERS,
        "return None if self._verification.is_due(marker) else ErrorCode.NONE",
        "return None",
        ENDS,
    ),
    mutant(
        "marker-of-the-other-outcome-is-due",
        "a transaction is committed in one partition and aborted in another",
        VERIFICATION,
        "found.is_prepared and found.epoch == marker.epoch and _decides(found, marker)",
        "found.is_prepared and found.epoch == marker.epoch",
        ENDS,
    ),
    mutant(
        "replaced-leader-says-that-there-is-nothing-to-end",
        "the transaction is open in the log of its successor, and hangs",
        MARKERS,
        "            self._prove(partition.group, lambda leads: done(ErrorCode.NONE if leads else"
        " ErrorCode.NOT_LEADER_OR_FOLLOWER))\n",
        "            done(ErrorCode.NONE)\n",
        ENDS,
    ),
    mutant(
        "repeated-marker-does-not-wait-for-the-first-one",
        "the first one is not committed, and may be lost with its leader",
        PARTITION,
        "            self._wait_for(offset, NOT_WRITTEN, pending)\n",
        "            pending.done(ErrorCode.NONE, 0)\n",
        ENDS,
    ),
    mutant(
        "marker-written-though-it-ends-nothing",
        "a marker for each repetition, for ever",
        HOLDS,
        "return producers.has_forgotten or producers.open_transaction(marker.producer_id) is not None",
        "return True",
        ENDS,
    ),
    mutant(
        "fence-not-written-where-the-transaction-has-no-records",
        "batches of the fenced epoch are taken there for ever",
        HOLDS,
        "        return known.epoch < marker.epoch\n",
        "        return False\n",
        ENDS,
    ),
    mutant(
        "client-tears-an-open-transaction",
        "WriteTxnMarkers in one partition of a transaction that is committed in the others",
        MARKERS,
        "if not self._verification.is_hanging(partition.group, marker):",
        "if False:",
        CLIENTS_ENDS,
    ),
    mutant(
        "client-marker-judged-by-keys-of-before",
        "the transaction has begun at another node meanwhile",
        MARKERS,
        "self._with_keys(group, None, done, append)",
        "self._with_keys(group, Offset(0), done, append)",
        CLIENTS_ENDS,
    ),
    mutant(
        "older-coordinator-ends-a-transaction",
        "Kafka's ProducerAppendInfo.checkCoordinatorEpoch",
        MARKERS,
        "known.coordinator_epoch > marker.coordinator_epoch",
        "False",
        CLIENTS_ENDS,
    ),
    mutant(
        "committed-reader-is-shown-what-is-not-decided",
        "read_committed ends at the last stable offset",
        FETCH,
        "end = Offset(stable if self._is_committed else high_watermark)",
        "end = high_watermark",
        READS,
    ),
    mutant(
        "committed-fetch-sleeps-through-its-marker",
        "the last stable offset moves, and the waiting Fetch is not called",
        FETCH,
        "return has_moved and self._on_watermark(high_watermark)",
        "return False",
        READS,
    ),
    mutant(
        "committed-fetch-looks-at-each-high-watermark",
        "a busy loop for as long as a transaction is open",
        FETCH,
        "waiter = self._stable_waiter(partition) if self._is_committed else self._on_watermark",
        "waiter = self._on_watermark",
        READS,
    ),
    mutant(
        "committed-fetch-does-not-hear-that-its-node-has-caught-up",
        "what may be said of the position changes, the last stable offset does not",
        FETCH,
        "self._is_unsettled |= may_pass",
        "self._is_unsettled |= False",
        READS,
    ),
    mutant(
        "aborted-transactions-of-the-rest-of-the-log",
        "the answer names transactions that begin behind its records",
        SHOWN,
        "look = partial(partition.aborted, Offset(offset), Offset(end_of_batches(found.data)))",
        "look = partial(partition.aborted, Offset(offset + 1), Offset(end_of_batches(found.data)))",
        READS,
    ),
    mutant(
        "latest-offset-of-committed-readers-is-the-high-watermark",
        "KIP-98: ListOffsets with an isolation level",
        OFFSETS,
        "end_of = partial(stable_end, node.remote_log) if is_committed else committed_end",
        "end_of = committed_end",
        READS,
    ),
    mutant(
        "time-found-behind-the-last-stable-offset",
        "a committed reader begins at an offset that it may not be shown",
        SEARCHES,
        "log, end, timestamp = partition.log, question.end_of(partition), question.timestamp",
        "log, end, timestamp = partition.log, partition.high_watermark, question.timestamp",
        READS,
    ),
    mutant(
        "time-searched-behind-the-last-stable-offset",
        "the same where the index names deleted records",
        SEARCHES,
        "timestamp, end = question.timestamp, question.end_of(partition)\n        is_latest",
        "timestamp, end = question.timestamp, partition.high_watermark\n        is_latest",
        READS,
    ),
    mutant(
        "transaction-of-the-tier-taken-for-committed-before-its-marker-is-known",
        "the replica is behind, and the table is ahead of its log",
        REMOTE_ABORTED,
        "    if first is not None and first <= offset:\n        return NotKnown()\n",
        "",
        REMOTE,
    ),
    mutant(
        "marker-in-the-local-log-is-not-looked-for",
        "a transaction goes over the end of what only the table has",
        REMOTE_ABORTED,
        "if aborted.producer_id == producer_id and aborted.first_offset <= offset:",
        "if False:",
        REMOTE,
    ),
    mutant(
        "second-transaction-of-a-producer-in-a-piece",
        "each of its transactions has an end of its own",
        REMOTE_ABORTED,
        "if ended is not None and offset < ended.marker_offset:",
        "if ended is not None:",
        REMOTE,
    ),
    mutant(
        "marker-before-the-records-ends-them",
        "the first marker behind a batch is its end",
        PIECE,
        "index = bisect_left(markers, (offset,))",
        "index = 0",
        REMOTE,
    ),
    mutant(
        "open-transactions-are-not-told-first",
        "kafka-transactions finds what holds the last stable offset",
        DESCRIBE,
        "return is_open, -row.transaction_first_offset if is_open else row.timestamp_ms",
        "return False, row.timestamp_ms",
        PRODUCERS,
    ),
    mutant(
        "records-of-aborted-transactions-reach-our-readers",
        "Kafka's CompletedFetch",
        ABORTED,
        "        if not header.is_control:\n            return True\n",
        "",
        CLIENT,
    ),
    mutant(
        "aborted-producer-stays-aborted",
        "its next transaction is committed, and lost to our readers",
        ABORTED,
        "self._aborted.discard(header.producer_id)",
        "pass",
        CLIENT,
    ),
    mutant(
        "transaction-that-begins-amid-a-batch",
        "its first offset is compared with the last offset of a batch",
        ABORTED,
        "self._waiting[-1].first_offset <= header.last_offset",
        "self._waiting[-1].first_offset <= header.base_offset",
        CLIENT,
    ),
    mutant(
        "only-aborted-records-count-as-none",
        "a follower that has them is taken to be behind, and the leader is asked",
        READER,
        "if fetched.next_offset > offset or not is_behind:",
        "if fetched.buffers or not is_behind:",
        CLIENT,
    ),
    mutant(
        "read-ends-amid-aborted-records",
        "a reader that goes on behind its last record stays before them for ever",
        READER,
        "if records or fetched.next_offset == position:",
        "if True:",
        CLIENT,
    ),
    mutant(
        "proven-end-is-not-proven-for-committed-readers",
        "ListOffsets is no linearizable question",
        READER,
        "            if latest[partition] < end:\n",
        "            if False:\n",
        CLIENT,
    ),
    Mutant(
        name="stable-end-before-the-deleted-records",
        source="DeleteRecords over an open transaction, and a restart: LATEST was below EARLIEST, and consumers saw no end",
        by_tests=True,
        places=READS,
        edits=(
            Edit(
                OFFSETS,
                "max(partition.last_stable_offset, remote_log.deleted_below(partition))",
                "partition.last_stable_offset",
            ),
        ),
    ),
    Mutant(
        name="aborted-records-are-data-in-the-table",
        source="Spark reads history straight from the table: it showed what was aborted",
        by_tests=True,
        places=("unit/arrow/test_arrow_segment.py",),
        edits=(Edit(SEGMENT, "return KIND_ABORTED if index >= 0", "return KIND_DATA if index >= 0"),),
    ),
    Mutant(
        name="aborted-transaction-of-a-producer-goes-on-behind-its-marker",
        source="the next transaction of the same producer was committed",
        by_tests=True,
        places=("unit/arrow/test_arrow_segment.py",),
        edits=(Edit(SEGMENT, "header.base_offset < aborted[index][1] else", "True else"),),
    ),
    Mutant(
        name="copy-tells-nothing-of-aborted-transactions",
        source="the leader knows them, the process beside it does not",
        by_tests=True,
        places=("unit/replica/test_replica_tiering_copier.py",),
        edits=(
            Edit(
                "raftlake.replica.tiering.copier",
                "tuple(partition.aborted(copying.base_offset, copying.end_offset))",
                "tuple(partition.aborted(copying.base_offset, copying.base_offset))",
            ),
        ),
    ),
    Mutant(
        name="history-shows-aborted-records-to-all",
        source="kafka.isolation.level is read_committed unless somebody asks for the other",
        by_tests=True,
        places=("connector/test_connector_table_reader.py",),
        edits=(
            Edit(
                "pyspark_raftlake.table_reader",
                "[KIND_DATA] if reads_committed else [KIND_DATA, KIND_ABORTED]",
                "[KIND_DATA, KIND_ABORTED]",
            ),
        ),
    ),
)
