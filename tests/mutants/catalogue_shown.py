"""Bugs planted in what consumers are shown in place of Raft's control batches."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

SHOWN = "raftlake.wire.shown"
READ = "raftlake.replica.apis.shown_records"
FETCH = "raftlake.replica.apis.fetch"
INTACT = "raftlake.replica.partition.intact"
BYTES = ("unit/wire/test_wire_shown.py",)
GIVEN = ("unit/replica/test_replica_apis_shown_records.py",)
OLD = ("unit/replica/test_replica_tiering_remote_reads.py", "unit/replica/test_replica_apis_fetch_remote.py")

SHOWN_BATCHES = (
    mutant(
        "markers-of-transactions-hidden",
        "a consumer that reads committed records ends a transaction at its marker",
        SHOWN,
        "    return ControlType.LEADER_CHANGE <= type_ <= ControlType.KRAFT_VOTERS",
        "    return type_ <= ControlType.KRAFT_VOTERS",
        BYTES,
    ),
    mutant(
        "voters-shown-to-consumers",
        "kafka-python 2.0.2 hands control records to the application",
        SHOWN,
        "    return ControlType.LEADER_CHANGE <= type_ <= ControlType.KRAFT_VOTERS",
        "    return ControlType.LEADER_CHANGE <= type_ < ControlType.KRAFT_VOTERS",
        BYTES,
    ),
    mutant(
        "second-control-batch-not-emptied",
        "an answer may hold the batches of several leaders",
        SHOWN,
        "    for header in of_raft:\n",
        "    for header in of_raft[:1]:\n",
        BYTES,
    ),
    mutant(
        "empty-batch-without-its-offsets",
        "rskafka and librdkafka go on behind the last offset of a batch",
        SHOWN,
        "attributes, header.last_offset_delta, _NO_TIMESTAMP)",
        "attributes, 0, _NO_TIMESTAMP)",
        BYTES,
    ),
    mutant(
        "empty-batch-with-the-crc-of-the-full-one",
        "consumers check CRCs",
        SHOWN,
        "    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))\n",
        "",
        BYTES,
    ),
    mutant(
        "first-batch-never-taken-for-a-control-batch",
        "each partition begins with the records of its first leader",
        INTACT,
        "        if header.attributes & CONTROL_BIT:\n",
        "        if header.attributes & CONTROL_BIT and header.position:\n",
        GIVEN,
    ),
    mutant(
        "old-control-batches-shown",
        "the table has the control records, and gives them back as the log had them",
        "raftlake.replica.tiering.remote_reads",
        "    shown = without_raft_records(data, control)\n",
        "    shown = data\n",
        OLD,
    ),
    mutant(
        "positions-in-a-piece-as-before-its-batches-were-emptied",
        "what follows an emptied batch begins earlier",
        "raftlake.replica.tiering.remote_reads",
        "headers if shown is data else iterate_headers(shown)",
        "headers",
        OLD,
    ),
    mutant(
        "empty-batches-alone-at-the-end-of-a-segment",
        "rskafka goes on behind its last record, and asked for the same offset for ever",
        READ,
        "        if end is None or end >= limit:\n            break\n",
        "        break\n",
        GIVEN,
    ),
    mutant(
        "empty-batches-answered-at-once",
        "rskafka asked an idle partition without a pause",
        FETCH,
        "self._done = final or urgent or size - empty >= self._bytes_min",
        "self._done = final or urgent or size >= self._bytes_min",
        GIVEN,
    ),
    mutant(
        "wait-of-empty-batches-begins-anew-with-each-look",
        "looks may follow one another for as long as the request waits",
        FETCH,
        "        if deadline_ms >= self._deadline_ms:\n            return\n",
        "",
        GIVEN,
    ),
)
