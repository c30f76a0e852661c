"""Planted bugs in what keeps one request, or the requests of one turn, from holding a node's loop."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

CHECKS = "raftlake.replica.aside.record_checks"
COMPRESSION = "raftlake.wire.compression"
SEARCHES = "raftlake.replica.aside.time_searches"
FETCH = "raftlake.replica.apis.fetch"
RECOVERY = "raftlake.storage.recovery"

CHECKED = ("unit/replica/test_replica_aside_record_checks_work.py",)
SEARCHED = ("unit/replica/test_replica_aside_time_searches.py",)
FETCHED = ("unit/replica/test_replica_apis_fetch_work.py",)
TIMES = ("unit/storage/test_storage_times.py",)
EPOCHS = ("unit/storage/test_storage_recovery_epochs.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


PRODUCE = (
    mutant(
        "empty-snappy-blocks-cost-nothing",
        "8 MiB of xerial blocks that hold nothing took 3 s and 700 MiB",
        COMPRESSION,
        "        cost += max(len(block), BLOCK_COST_MIN)\n",
        "        cost += len(block)\n",
        ("unit/wire/test_wire_compression.py",),
    ),
    mutant(
        "frames-that-hold-nothing-cost-nothing",
        "8 MiB of empty gzip blocks take 0.7 s, and zstd and lz4 have empty and skippable frames",
        COMPRESSION,
        "    return len(content) + EXCESS_TIMES * max(0, len(view) - len(content) - EXCESS_FREE_BYTES)",
        "    return len(content)",
        CHECKED,
    ),
    mutant(
        "second-gzip-member-passed-over",
        "Java reads on in it: records behind the last one stop a consumer for good",
        COMPRESSION,
        "    if is_new and (stream.unused_data or stream.unconsumed_tail):\n",
        "    if False:\n",
        ("unit/wire/test_wire_compression.py",),
    ),
    mutant(
        "long-payload-unpacked-at-once",
        "1 MiB of empty gzip blocks takes 90 ms",
        CHECKS,
        "            if PACKED_TIMES * len(payload) > allowed:\n                return None\n",
        "",
        CHECKED,
    ),
    mutant(
        "batches-without-number",
        "12 partitions of 100,000 batches each held the loop for 4 s",
        CHECKS,
        "validate(records, count_max=1 + self._extra_batches_left)",
        "validate(records)",
        CHECKED,
    ),
    mutant(
        "batches-counted-for-each-partition",
        "what a request may do has to hold for all of its partitions together",
        CHECKS,
        "        self._extra_batches_left -= len(headers) - 1\n",
        "",
        CHECKED,
    ),
    mutant(
        "checksums-of-large-requests-on-the-loop",
        "headers and checksums of a whole request were looked at in one turn",
        CHECKS,
        "        if inline is not None and len(records) > self._inline_left:\n            return None\n",
        "",
        CHECKED,
    ),
    mutant(
        "each-request-of-a-turn-has-its-own-allowance",
        "a read of 64 KiB holds two hundred requests of 1 MiB of records each",
        CHECKS,
        "        if inline is not None:\n            inline.left -= cost\n",
        "",
        CHECKED,
    ),
    mutant(
        "allowance-of-a-turn-never-renewed",
        "after 2 MiB every compressed append would go aside for ever",
        "raftlake.replica.turn.turn",
        "        self._allowance.renew()\n",
        "",
        CHECKED,
    ),
    mutant(
        "attempt-in-vain-costs-nothing",
        "each of many requests decompresses what is left of the turn, and then goes aside",
        CHECKS,
        "            if inline is not None:\n                inline.left -= allowed\n",
        "",
        CHECKED,
    ),
)

LIST_OFFSETS = (
    mutant(
        "time-searched-on-the-loop",
        "ListOffsets by time decompressed up to 64 MiB on the loop",
        SEARCHES,
        "        if PACKED_TIMES * len(payload) > allowed:\n            return None\n",
        "        allowed = 64 << 20\n",
        SEARCHED,
    ),
    mutant(
        "all-questions-in-one-turn",
        "a request may ask for each partition",
        SEARCHES,
        "        self._allowance.left -= QUESTION_COST\n",
        "",
        SEARCHED,
    ),
    mutant(
        "requests-with-questions-take-no-turns",
        "one of thousands of questions kept all other clients waiting for minutes",
        SEARCHES,
        "        if request.questions:\n            self._waiting.append(request)\n        self._count",
        "        if request.questions:\n            self._waiting.appendleft(request)\n        self._count",
        SEARCHED,
    ),
    mutant(
        "late-questions-worked-off",
        "nodes were busy for minutes for clients that were gone",
        SEARCHES,
        "return replace(question, serving=lambda: ErrorCode.OFFSET_NOT_AVAILABLE) if is_late else question",
        "return question",
        SEARCHED,
    ),
    mutant(
        "answered-questions-counted-for-ever",
        "the second of two bounds: there is room again",
        SEARCHES,
        "        self._count -= 1\n",
        "",
        SEARCHED,
    ),
    mutant(
        "any-number-of-questions-waits",
        "each takes memory",
        SEARCHES,
        "        if self._count >= QUESTIONS_MAX:\n",
        "        if False:\n",
        SEARCHED,
    ),
    mutant(
        "all-records-in-one-turn",
        "a batch may hold a million records",
        SEARCHES,
        "            self._allowance.left -= WALKED_AT_ONCE * RECORD_COST\n",
        "",
        SEARCHED,
    ),
    mutant(
        "damaged-batch-answers-a-search",
        "a CRC that does not match was taken for records that a producer had spoilt",
        SEARCHES,
        "        data = partition.read_intact(found.offset, end, 1)\n",
        "        data = partition.log.read(found.offset, end, 1)\n",
        SEARCHED,
    ),
    mutant(
        "searches-stop-after-a-failure",
        "nobody who asks later would be answered",
        SEARCHES,
        "            self._current, self._is_going_on = None, False\n",
        "",
        SEARCHED,
    ),
    mutant(
        "search-walks-from-the-largest-time-so-far",
        "128 MiB of small batches behind it hold the loop for seconds",
        "raftlake.storage.index",
        "        if made_at and self.last_offsets[made_at - 1] > before:\n",
        "        if False:\n",
        TIMES,
    ),
    mutant(
        "search-begins-an-entry-too-late",
        "the first batch of a time lies before the entry at which the time was noted",
        "raftlake.storage.index",
        "            made_at = bisect_left(self.last_offsets, self.time_offsets[following])\n",
        "            made_at = bisect_left(self.last_offsets, self.time_offsets[following]) + 1\n",
        TIMES,
    ),
    mutant(
        "index-entry-astray-believed-by-a-search",
        "index files have no checksum: each entry that is used is compared with its batch",
        "raftlake.storage.times",
        "    return found if found is not None and position in (None, found.position) else None",
        "    return found",
        TIMES,
    ),
)

CONSUMERS = (
    mutant(
        "fetch-waits-for-any-number-of-bytes",
        "a look in vain read 64 MiB for each batch that was appended",
        FETCH,
        "min(max(request.bytes_min, 0), BYTES_MIN_MAX)",
        "max(request.bytes_min, 0)",
        FETCHED,
    ),
)

PRODUCER_IDS = (
    mutant(
        "named-producer-id-given-out-again",
        "ids and epochs can be guessed: asking must move nobody's epoch",
        "raftlake.replica.apis.producers",
        "    node.producer_ids.take(\n",
        "    if getattr(request, 'producer_id', -1) >= 0:\n"
        "        answer(ErrorCode.NONE, request.producer_id, request.producer_epoch + 1)\n        return\n"
        "    node.producer_ids.take(\n",
        ("unit/replica/test_replica_apis_topics_producers.py",),
    ),
)

FLIPPED = (
    mutant(
        "flipped-epoch-wins-over-its-file",
        "no CRC covers the epoch: the last batch of one epoch, flipped into the next, moved the boundary",
        RECOVERY,
        "                    require_no_lone_header(told or [], epochs.all_entries, segments)\n",
        "",
        EPOCHS,
    ),
    mutant(
        "epochs-go-back-from-segment-to-segment",
        "a flipped epoch at the end of a closed segment hid all epochs between",
        RECOVERY,
        "epoch_min=rebuilt.last, ",
        "",
        EPOCHS,
    ),
    mutant(
        "damage-at-the-end-of-a-segment-looked-for-in-the-next",
        "the node stopped, for there it finds none",
        "raftlake.storage.impairment",
        "            below.pop()\n",
        "            pass\n",
        EPOCHS,
    ),
    mutant(
        "wrong-epoch-file-taken-for-damage",
        "a file without a checksum must not cost a log its records",
        RECOVERY,
        "all(_header_at(segments, begin).is_control for begin in begun)",
        "True",
        EPOCHS,
    ),
)

OUTSIDE_THE_LOG = (
    mutant(
        "foreign-log-decoded-at-once",
        "a batch of 150,000 records for another program's log was decoded within one turn",
        CHECKS,
        "budget.is_aside or self._is_opaque or self",
        "budget.is_aside or self",
        ("unit/replica/test_replica_opaque.py",),
    ),
    mutant(
        "voter-added-where-nobody-votes",
        "`voters add` at an HTTP port asked for a minute, and then did not know the outcome",
        "raftlake.cli.voters",
        "    if served is not None and ApiKey.VOTE in served:\n",
        "    if served is None or ApiKey.VOTE in served:\n",
        ("unit/cli/test_cli_voters.py",),
    ),
    mutant(
        "clock-of-the-leader-taken-for-a-fetch",
        "the disk of a dead node was asked for, until the time was over",
        "raftlake.cli.voters",
        " > then + CLOCK_MS:\n",
        " > then:\n",
        ("unit/cli/test_cli_voters.py",),
    ),
    mutant(
        "time-of-a-fetch-moves-with-the-clocks",
        "17 of 60 answers of an idle leader named another time",
        "raftlake.replica.voters.describe",
        " > CLOCK_MS:\n",
        " > 0:\n",
        ("unit/replica/test_replica_voters_membership_describe.py",),
    ),
    mutant(
        "time-of-a-fetch-is-told-by-the-old-wall-clock",
        "somebody sets the wall clock, and all replicas seem to be gone",
        "raftlake.replica.voters.describe",
        "if abs(found - self._to_wall_ms) > CLOCK_MS:\n",
        "if not self._to_wall_ms:\n",
        ("unit/replica/test_replica_voters_membership_describe.py",),
    ),
    mutant(
        "starting-voter-asked-once",
        "a node that is just starting answers a moment later",
        "raftlake.cli.voters",
        " is None and time.monotonic() < deadline:",
        " is None and time.monotonic() < 0:",
        ("unit/cli/test_cli_voters.py",),
    ),
    mutant(
        "survivor-votes-at-the-clients-listener",
        "`raftlake recover` named the clients' listener, at which no votes are given",
        "raftlake.cli.recover",
        "    address = loaded.peers[loaded.node_id]\n",
        "    address = loaded.advertised_listener\n",
        ("unit/runtime/test_runtime_recovery_recover.py",),
    ),
    mutant(
        "settings-of-a-local-node-for-all-to-read",
        "data files are their owner's to read",
        "raftlake.local_directories",
        "        replace_file(node.properties, data)\n",
        "        node.properties.write_bytes(data)\n",
        ("unit/local/test_local_directories.py",),
    ),
)

HOSTILE_WORK = (*PRODUCE, *LIST_OFFSETS, *CONSUMERS, *PRODUCER_IDS, *FLIPPED, *OUTSIDE_THE_LOG)
