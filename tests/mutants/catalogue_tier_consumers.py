"""Bugs planted in how consumers are given offsets that are only in the remote tier."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

FETCH = "raftlake.replica.apis.fetch"
OFFSETS = "raftlake.replica.apis.offsets"
READS = "raftlake.replica.tiering.remote_reads"
PIECES = "raftlake.replica.tiering.pieces"
SEARCHES = "raftlake.replica.tiering.remote_searches"
LOG = "raftlake.replica.tiering.remote_log"
TALLY = "raftlake.replica.tiering.read_tally"
ALONE = ("unit/replica/test_replica_tiering_remote_reads.py",)
CACHED = ("unit/replica/test_replica_tiering_pieces.py",)
SEARCHED = ("unit/replica/test_replica_tiering_remote_searches.py",)
DELTA = "raftlake.tier.time_search"
FILES = ("unit/tier/test_tier_time_search.py",)
CONTRACT = ("contract/test_tier_contract.py",)
FETCHED = ("unit/replica/test_replica_apis_fetch_remote.py",)
PLACES = ("unit/replica/test_replica_tiering_remote_log.py",)
CLIENT = ("unit/client/test_client_reader.py",)
WHOLE = ("unit/replica/test_replica_tiering_words.py",)

READ = (
    mutant(
        "old-offsets-shown-above-the-tables-end",
        "KIP-405: what the keys do not tell of may be another leader's",
        READS,
        "        limit = min(tiered.end_offset, partition.high_watermark, limit)\n",
        "        limit = min(partition.high_watermark, limit)\n",
        ALONE,
    ),
    mutant(
        "old-offsets-shown-above-the-high-watermark",
        "promise 3: no high watermark goes back, and nothing above it is shown",
        READS,
        "        limit = min(tiered.end_offset, partition.high_watermark, limit)\n",
        "        limit = min(tiered.end_offset, limit)\n",
        ALONE,
    ),
    mutant(
        "pieces-of-the-tier-not-checked",
        "a piece with flipped bytes goes to consumers",
        READS,
        "headers = list(headers_from(group, data, wanted.offset))",
        "headers = list(headers_from(group, data, wanted.offset, check_crc=False))",
        ALONE,
    ),
    mutant(
        "pieces-of-another-epoch-given",
        "the seed's scenario 5: divergent segments stay out",
        READS,
        "control = require_epochs(group, wanted.offset, headers, epochs)",
        "control = [header for header in headers if header.is_control]",
        ALONE,
    ),
    mutant(
        "failed-read-repeated-with-each-fetch",
        "a consumer asks again at once, and so would the node ask the store",
        READS,
        "len(self._wanted) >= LINE_MAX or (failed is not None and self._engine.now_ms < failed.retry_at_ms)",
        "len(self._wanted) >= LINE_MAX",
        ALONE,
    ),
    mutant(
        "one-partition-takes-all-turns",
        "a line that is fair between partitions",
        READS,
        "            if waiting:\n                self._line[group] = waiting\n",
        "            if waiting:\n                self._line[group] = waiting\n"
        "                self._line.move_to_end(group, last=False)\n",
        ALONE,
    ),
    mutant(
        "calls-of-the-tier-without-bound",
        "a hundred consumers, a hundred calls",
        READS,
        "self._under_way < CALLS_MAX and (self._under_way + 1)",
        "(self._under_way + 1)",
        ALONE,
    ),
    mutant(
        "read-of-a-closed-partition-ends-that-of-its-successor",
        "two reads of one offset, and nobody is told of the second",
        READS,
        "        if self._wanted.get(wanted.key) is wanted:\n            del self._wanted[wanted.key]\n",
        "        self._wanted.pop(wanted.key, None)\n",
        ALONE,
    ),
    mutant(
        "nothing-is-read-ahead",
        "each Fetch of a sequential consumer waits for the store",
        READS,
        "            self._ask_ahead(lineage, piece.end_offset)\n",
        "            pass\n",
        ALONE,
    ),
    mutant(
        "deleted-offset-told-as-a-failure",
        "issue 12: OFFSET_OUT_OF_RANGE, not a storage error for a while",
        READS,
        "        if error.failure is TierFailure.ABSENT and not self._is_there(partition, wanted):\n",
        "        if False:\n",
        ALONE,
    ),
    mutant(
        "pieces-that-are-read-go-first",
        "a hundred partitions read in turns: each piece is read many times",
        PIECES,
        "next((each for each in others if not each.is_awaited(now_ms)), others[0])",
        "others[0]",
        CACHED,
    ),
    mutant(
        "pieces-of-the-tier-checked-on-the-loop",
        "sixty thousand small batches keep the node from everything else for a quarter of a second",
        READS,
        "self._aside.submit(lambda: _checked(",
        "(lambda job, done: done(job()))(lambda: _checked(",
        ALONE,
    ),
    mutant(
        "a-failure-in-the-log-with-each-try",
        "one line that names the file, not one a second",
        TALLY,
        "(TELL_AGAIN_MS if reason == error.reason else TELL_MS)",
        "0",
        ALONE,
    ),
)

APIS = (
    mutant(
        "request-forgotten-when-its-piece-comes",
        "a Fetch waits for its whole time though the piece is there",
        FETCH,
        "waiter = None if self._done else self._on_piece",
        "waiter = None",
        FETCHED,
    ),
    mutant(
        "piece-not-asked-for-by-a-fetch-that-does-not-wait",
        "a consumer with max.wait 0 never gets on",
        FETCH,
        "self._missing[:REMOTE_PIECES_MAX]",
        "self._missing[: 0 if self._done else REMOTE_PIECES_MAX]",
        FETCHED,
    ),
    mutant(
        "request-asks-for-all-its-old-partitions",
        "a Fetch may name a hundred partitions with old offsets",
        FETCH,
        "self._missing[:REMOTE_PIECES_MAX]",
        "self._missing",
        FETCHED,
    ),
    mutant(
        "offset-gone-before-the-keys-are-known",
        "KAFKA-15351: after a restart the log began at the local start, and consumers skipped the rest",
        FETCH,
        "is_gone = offset < 0 or remote_log.knows_start(partition)",
        "is_gone = True",
        FETCHED,
    ),
    mutant(
        "earliest-told-before-the-keys-are-known",
        "KAFKA-15351: after a restart consumers were told the local start, and skipped the rest",
        OFFSETS,
        "    if which in _OVER_THE_TABLE and not remote_log.knows_start(partition):\n",
        "    if partition is None:\n",
        (*PLACES, *WHOLE),
    ),
    mutant(
        "end-of-an-epoch-denied-before-the-keys-are-known",
        "KIP-320: a consumer that is told of no such epoch takes its records for lost",
        OFFSETS,
        "        if not is_replica and not node.remote_log.knows_start(partition):\n",
        "        if partition is None:\n",
        FETCHED,
    ),
    mutant(
        "epoch-denied-to-a-fetch-before-the-keys-are-known",
        "KIP-320: a consumer goes back to the beginning for want of an epoch that the table has",
        FETCH,
        "    if end.offset < 0 and not remote_log.knows_start(partition):\n",
        "    if end.offset < 0 and part.index < 0:\n",
        FETCHED,
    ),
    mutant(
        "divergence-judged-by-the-local-log",
        "the seed's scenario 5: the consumer of offset 3, epoch 1",
        FETCH,
        "end = remote_log.epoch_end(partition, Epoch(part.last_fetched_epoch))",
        "end = partition.core.epoch_end(Epoch(part.last_fetched_epoch))",
        FETCHED,
    ),
    mutant(
        "epoch-ends-told-of-the-local-log-alone",
        "KIP-405: the leader epoch sequence goes on before the local start",
        OFFSETS,
        "end = node.remote_log.epoch_end(partition, Epoch(asked.leader_epoch))",
        "end = partition.core.epoch_end(Epoch(asked.leader_epoch))",
        FETCHED,
    ),
)

SEARCH = (
    mutant(
        "times-searched-in-the-local-log-alone",
        "Kafka: remote first, then local",
        SEARCHES,
        "        elif self._remote_log.start_offset(partition) >= partition.log.start_offset:\n",
        "        elif True:\n",
        SEARCHED,
    ),
    mutant(
        "times-that-moved-to-the-table-are-missed",
        "the local start moves while the table is searched",
        SEARCHES,
        "elif partition.log.start_offset > end or (found",
        "elif (found",
        SEARCHED,
    ),
    mutant(
        "time-search-that-failed-found-nothing",
        "an unreachable store makes consumers begin behind their time",
        SEARCHES,
        "            question.done(FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR))\n",
        "            self._local.ask(search.request, question)\n",
        SEARCHED,
    ),
    mutant(
        "latest-of-two-times-is-the-local-one",
        "MAX_TIMESTAMP: the first record with the latest time",
        SEARCHES,
        "local.timestamp_ms > answer.timestamp_ms",
        "local.timestamp_ms >= answer.timestamp_ms",
        SEARCHED,
    ),
    mutant(
        "one-request-takes-all-turns-at-the-table",
        "a request for a hundred partitions holds up all others",
        SEARCHES,
        "            if questions:\n                self._line[request] = questions\n",
        "            if questions:\n                self._line[request] = questions\n"
        "                self._line.move_to_end(request, last=False)\n",
        SEARCHED,
    ),
    mutant(
        "start-known-before-the-keys-are",
        "a leader whose keys lag answers for the local log alone",
        LOG,
        "self.tiered(partition) is not None or self._has_keys_since_start(partition)",
        "True",
        SEARCHED,
    ),
    mutant(
        "start-known-by-keys-that-are-older",
        "seed 1080004486: a follower that began behind the table's records told consumers that they are gone",
        LOG,
        "        known[1].ask()\n        return known[1].are_here",
        "        return True",
        PLACES,
    ),
    mutant(
        "start-known-by-keys-since-an-earlier-start",
        "a log that begins later, before the key is here that says why, tells that the records between are gone",
        LOG,
        "if known is None or known[0] != start:",
        "if known is None:",
        PLACES,
    ),
    mutant(
        "start-of-a-closed-partition-is-remembered",
        "a replica that was deleted and is hosted again goes by a read from before",
        LOG,
        "        self._keys_since.pop(partition.group, None)\n",
        "",
        PLACES,
    ),
)

TABLE = (
    mutant(
        "all-files-read-for-a-time",
        "a table of a hundred thousand files",
        DELTA,
        "if file.time_max is None or file.time_max >= request.timestamp_ms * _US_PER_MS",
        "",
        FILES,
    ),
    mutant(
        "control-records-have-a-time",
        "a control record must not answer a search for records by time",
        DELTA,
        'batch = batch.filter(pc.not_equal(batch.column("kind"), _CONTROL))',
        "pass",
        CONTRACT,
    ),
    mutant(
        "last-of-the-latest-records-found",
        "MAX_TIMESTAMP: the first of several",
        DELTA,
        "(found.timestamp_ms, -found.offset) > (best.timestamp_ms, -best.offset)",
        "(found.timestamp_ms, found.offset) > (best.timestamp_ms, best.offset)",
        FILES,
    ),
    mutant(
        "latest-time-looked-for-in-all-files",
        "a table of a hundred thousand files",
        DELTA,
        "if best is not None and file.time_max is not None and file.time_max < best.timestamp_ms * _US_PER_MS:",
        "if False:",
        FILES,
    ),
    mutant(
        "times-of-another-incarnation-found",
        "rows of a history that an unclean election ended",
        DELTA,
        "rows.of_incarnation(request.lineage.incarnation).batch",
        "rows.batch",
        FILES,
    ),
)

AWAITED = (
    mutant(
        "client-takes-history-that-comes-later-for-the-end",
        "a loop over a partition ends amid its history, without an error",
        "raftlake.client.reader",
        "            if fetched.next_offset > offset or offset >= end:\n",
        "            if True:\n",
        CLIENT,
    ),
    mutant(
        "client-waits-behind-an-open-transaction",
        "a reader of what is committed gets an error at the last stable offset",
        "raftlake.client.reader",
        "fetched.last_stable_offset if is_committed else fetched.high_watermark",
        "fetched.high_watermark",
        CLIENT,
    ),
    mutant(
        "client-waits-at-the-end",
        "each look at the end of a log is an error",
        "raftlake.client.reader",
        "offset >= end:",
        "offset > end:",
        CLIENT,
    ),
)

TIER_CONSUMERS = (*READ, *APIS, *SEARCH, *TABLE, *AWAITED)
