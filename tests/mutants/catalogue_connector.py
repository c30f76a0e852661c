"""Planted bugs: the connector, the wire codecs and the end of the quickstart."""

from __future__ import annotations

from functools import partial

from tests.mutants.plant import Edit, Mutant

READER = "pyspark_raftlake.reader"
PLANNING = "pyspark_raftlake.planning"
POSITIONS = "pyspark_raftlake.positions"
QUICKSTART = "raftlake.quickstart.spark"
QUICKSTART_STOP = "raftlake.quickstart.stop"

DAMAGED = "                self._leave_damaged(fetched.node_id, asked, damage)\n                fetching = None\n"
MARKS = "        if partition not in self._maybe_late_bound or self._initial is None or self._initial[partition] != begin:\n"


def connector(name: str, source: str, module: str, before: str, after: str, *tests: str) -> Mutant:
    places = tuple(f"connector/test_connector_{test}.py" for test in tests)
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


def wire(name: str, source: str, module: str, before: str, after: str, *tests: str, package: str = "raftlake.wire") -> Mutant:
    edits = (Edit(f"{package}.{module}", before, after),)
    return Mutant(name=name, source=source, edits=edits, by_tests=True, places=tuple(f"{test}.py" for test in tests))


arrow = partial(wire, package="raftlake.arrow")


READING = (
    connector(
        "pattern-matches-what-raftlake-keeps-for-itself",
        "a bug of ours: a stateful query of all topics read the changes of its own state, and changed it again, for ever",
        "pyspark_raftlake.options",
        "        return is_meant and re.fullmatch",
        "        return re.fullmatch",
        "options",
    ),
    connector(
        "damaged-piece-skipped-for-the-next-one",
        "the piece that was fetched ahead must not stand in for the damaged one: its rows would be lost silently",
        READER,
        DAMAGED,
        "                self._leave_damaged(fetched.node_id, asked, damage)\n",
        "reader",
    ),
    connector(
        "damage-ignored-where-the-next-piece-is-there",
        "an error of one piece surfaces whatever else was fetched",
        READER,
        DAMAGED,
        "                if fetching is not None:\n                    position = next_position\n                    continue\n"
        + DAMAGED,
        "reader",
    ),
    connector(
        "damage-found-amid-the-rows",
        "a bug of ours: behind the first row of a piece no other node can be asked",
        READER,
        "            require_crc(buffer, header)\n",
        "            header.compression\n",
        "reader",
    ),
    connector(
        "proven-end-is-there",
        "the end of a log is exclusive: a log that ends at 3 does not hold offset 3",
        READER,
        "return ends[self._range.partition] > position",
        "return ends[self._range.partition] >= position",
        "reader",
    ),
    connector(
        "last-record-before-the-proven-end-lost",
        "a leader that was replaced says that its log ends before, and the last record is there all the same",
        READER,
        "return ends[self._range.partition] > position",
        "return ends[self._range.partition] > position + 1",
        "reader",
    ),
)

PLANS = (
    connector(
        "start-by-time-without-match-moves",
        "Spark keeps the end of the first batch only: a start that is the log's end changes with the time of asking",
        POSITIONS,
        "_latest(view, unmatched), unmatched, maybe)",
        "_latest(view, unmatched), (), maybe)",
        "timestamps",
    ),
    connector(
        "start-by-time-with-match-marks-only",
        "a record of the asked time is read by the first batch",
        POSITIONS,
        "_latest(view, unmatched), unmatched, maybe)",
        "_latest(view, unmatched), found, maybe)",
        "timestamps",
    ),
    connector(
        "match-that-came-later-is-a-loss",
        "a bug of ours: a query that starts at a time beyond the end could not plan its first batch again",
        POSITIONS,
        "    maybe = found if options.starts_at_latest_without_match else ()\n",
        "    maybe = ()\n",
        "timestamps",
    ),
    connector(
        "removed-first-batch-is-no-loss",
        "what retention removed before a first batch is planned again is lost data, and no marked place",
        PLANNING,
        "        return self._view.earliest([partition]).get(partition, until) <= until\n",
        "        return True\n",
        "timestamps",
    ),
    connector(
        "any-end-marks-the-place",
        "only a batch that begins where the query began may end before its start",
        PLANNING,
        MARKS,
        "        if partition not in self._maybe_late_bound or self._initial is None:\n",
        "data_loss",
    ),
    connector(
        "end-one-below-the-start-is-no-loss",
        "an end that is proven to lie below the start is lost data, by one record too",
        PLANNING,
        "elif proven.get(partition, start[partition]) < start[partition]:",
        "elif proven.get(partition, start[partition]) < start[partition] - 1:",
        "data_loss",
    ),
    connector(
        "one-removed-record-is-no-loss",
        "a log that begins one record behind the checkpoint has lost that record",
        PLANNING,
        "            if earliest > start[partition]:\n",
        "            if earliest > start[partition] + 1:\n",
        "data_loss",
    ),
)

BATCHES = (
    wire(
        "batch-without-records-skipped",
        "compaction leaves batches of 61 bytes, whose offsets count",
        "batch_header",
        "    while position <= limit:\n",
        "    while position < limit:\n",
        "unit/wire/test_wire_batches",
    ),
    wire(
        "negative-field-of-few-records-accepted",
        "a length of -2 whose bytes are there: no reader could walk the records of that partition any more",
        "record_check",
        "                    if raw & 1 or raw > 0x3FFF:\n",
        "                    if raw > 0x3FFF:\n",
        "unit/wire/test_wire_record_check",
    ),
    wire(
        "negative-field-of-many-records-accepted",
        "the same where records are checked together",
        "record_check",
        "        is_sound &= (size & 1 == 0) | (size == 1)\n",
        "",
        "unit/wire/test_wire_record_check",
    ),
    wire(
        "largest-batch-refused",
        "a limit is the last number that is allowed",
        "record_check",
        "    if count > RECORDS_MAX:\n",
        "    if count >= RECORDS_MAX:\n",
        "unit/wire/test_wire_record_check",
    ),
    arrow(
        "keys-not-counted-in-the-limit",
        "what one Arrow batch may hold is the bytes of keys and values",
        "decode",
        'sum(len(record.key or b"") + len(record.value or b"") for record in records)',
        'sum(len(record.value or b"") for record in records)',
        "unit/arrow/test_arrow_records",
    ),
    arrow(
        "claimed-records-take-memory",
        "a header's count is believed only as far as its payload reaches",
        "decode",
        "    if count < 0 or count * _RECORD_BYTES_MIN > end - start:\n",
        "    if count < 0:\n",
        "unit/arrow/test_arrow_records",
    ),
    arrow(
        "compiled-varint-of-65-bits",
        "a bug of ours: the compiled way read another number where the plain way refuses",
        "kernels",
        "        if shift == 63 and byte > 1:\n            return 0, -1\n",
        "        if shift > 63:\n            return 0, -1\n",
        "unit/arrow/test_arrow_kernels",
    ),
    arrow(
        "compiled-headers-end-anywhere",
        "a record's headers end where the record ends",
        "kernels",
        "            value_ends[count] = value_at\n        if position != stop:\n            return DAMAGED\n",
        "            value_ends[count] = value_at\n",
        "unit/arrow/test_arrow_records",
    ),
    arrow(
        "compiled-time-wraps",
        "a time before what Arrow can hold would become one of the far future",
        "kernels",
        "                if time_ms > TIME_MS_MAX or time_ms < -TIME_MS_MAX:\n",
        "                if time_ms > TIME_MS_MAX:\n",
        "unit/arrow/test_arrow_records",
    ),
)

FRAMES_AND_MESSAGES = (
    wire(
        "half-a-size-is-no-frame",
        "a connection that stalls amid a frame's size is as slow as one that stalls behind it",
        "framing",
        "        return self._frame is not None or self._staged > 0\n",
        "        return self._frame is not None\n",
        "unit/wire/test_wire_framing",
    ),
    wire(
        "beginning-with-memory-behind-it",
        "who sends a large frame is told by the bytes that came, not by zeros behind them",
        "framing",
        "[: min(self._filled, BEGINNING_BYTES)]",
        "[:BEGINNING_BYTES]",
        "unit/wire/test_wire_framing",
    ),
    wire(
        "first-of-several-voter-sets-counts",
        "KIP-853: the last set of voters in the log is the one in force",
        "control",
        "        if isinstance(control, KRaftVoters):\n            voters",
        "        if isinstance(control, KRaftVoters) and voters is None:\n            voters",
        "unit/wire/test_wire_control",
    ),
    wire(
        "unknown-tag-of-a-voter-misread",
        "KIP-482: unknown tagged fields are passed over wherever they stand",
        "control",
        "            position = skip_tags(value, position + 2)\n",
        "            position += 3\n",
        "unit/wire/test_wire_control",
    ),
    wire(
        "voters-of-another-version-guessed",
        "what cannot be read is not guessed",
        "control",
        '    if version != 0:\n        raise CorruptBatch(f"KRaftVoters of version {version}")\n',
        "",
        "unit/wire/test_wire_control",
    ),
    wire(
        "impossible-snapshot-batch-waited-for",
        "a size that no batch has would keep all that comes in memory",
        "snapshots",
        "return not HEADER_BYTES <= size <= BATCH_BYTES_MAX or len(self._buffer) - first >= size",
        "return len(self._buffer) - first >= size",
        "unit/wire/test_wire_snapshots",
    ),
    wire(
        "bytes-behind-a-fetched-snapshot-kept",
        "KIP-630: nothing follows the footer",
        "snapshots",
        "        if self._scanner.is_complete and self._buffer:\n",
        "        if False:\n",
        "unit/wire/test_wire_snapshots",
    ),
    wire(
        "tag-of-another-taken-for-the-offset",
        "KIP-482: Kafka may add fields to the header of a snapshot",
        "snapshots",
        " if tag == END_OFFSET_TAG]",
        "]",
        "unit/wire/test_wire_snapshots",
    ),
    wire(
        "snapshot-leader-beyond-its-tag",
        "a value ends where its tagged field ends",
        "fetch_snapshot",
        "            _require_whole(tag, skip_tags(view, start + _LEADER.size), end)\n",
        "",
        "property/test_wire_fetch_snapshot",
    ),
    wire(
        "produce-request-with-bytes-behind-it",
        "the short way of a request refuses what the general way refuses",
        "produce",
        "    if view[end:] != _ONE_END:\n",
        "    if view[end : end + 3] != _ONE_END:\n",
        "unit/wire/test_wire_shapes",
    ),
    wire(
        "cluster-id-counted-in-letters",
        "the short way of a replica's fetch has room for 22 bytes",
        "fetch",
        "len(encoded) != _CLUSTER_ID_BYTES",
        "len(cluster_id) != _CLUSTER_ID_BYTES",
        "unit/wire/test_wire_shapes",
    ),
    wire(
        "short-answer-forgets-the-divergence",
        "KIP-595: a follower that diverged must hear where; the short way has no place for it",
        "fetch_response",
        "        or result.diverging_epoch is not None\n",
        "",
        "unit/wire/test_wire_shapes",
    ),
    wire(
        "short-produce-answer-forgets-where-leaders-are",
        "KIP-951: an answer names the new leader and where it is",
        "produce",
        "!= 1 or response.node_endpoints or topics[0].name is None",
        "!= 1 or topics[0].name is None",
        "unit/wire/test_wire_shapes",
    ),
    wire(
        "half-a-client-id-is-another",
        "who sends a large frame is told by the whole name",
        "api",
        " if len(client_id) == size else None",
        "",
        "unit/wire/test_wire_shapes",
    ),
)

QUICKSTART_END = (
    Mutant(
        name="jvm-ends-under-a-call",
        source="a bug of ours: py4j printed a traceback between the quickstart's result and its verdict",
        edits=(Edit(QUICKSTART, "            thread.join(JVM_END_SECONDS)\n", "            pass\n"),),
        by_tests=True,
        places=("unit/quickstart/test_quickstart_spark_end.py",),
    ),
    Mutant(
        name="ended-jvm-told-of-dropped-objects",
        source="the same, for what Python drops later",
        edits=(Edit(QUICKSTART, "    client.is_connected = False\n", ""),),
        by_tests=True,
        places=("unit/quickstart/test_quickstart_spark_end.py",),
    ),
    Mutant(
        name="tour-that-hears-ctrl-c-alone",
        source="a tour that was ended by SIGTERM left its directory, and Spark's processes to themselves",
        edits=(Edit(QUICKSTART_STOP, "for signum in stop_signals()}", "for signum in (signal.SIGINT,)}"),),
        by_tests=True,
        places=("unit/quickstart/test_quickstart_stop.py",),
    ),
    Mutant(
        name="tour-that-leaves-its-handlers",
        source="a program that had run the tour did not end on SIGTERM any more",
        edits=(Edit(QUICKSTART_STOP, "        signal.signal(signum, handler)\n", "        pass\n"),),
        by_tests=True,
        places=("unit/quickstart/test_quickstart_stop.py",),
    ),
    Mutant(
        name="tour-that-a-second-signal-breaks-off",
        source="a second signal ended the process amid its end, with its directory left",
        edits=(
            Edit(
                QUICKSTART_STOP,
                "            signal.signal(signum, signal.SIG_IGN)\n",
                "            signal.signal(signum, signal.SIG_DFL)\n",
            ),
        ),
        by_tests=True,
        places=("unit/quickstart/test_quickstart_stop.py",),
    ),
)

CONNECTOR: tuple[Mutant, ...] = (*READING, *PLANS, *BATCHES, *FRAMES_AND_MESSAGES, *QUICKSTART_END)
