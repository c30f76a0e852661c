"""The bytes of the Kafka protocol and of Kafka's record formats, in both directions.

The package turns bytes into values and values into bytes. It knows no socket, no group and no clock. Its libraries are kio (the
messages of the cold APIs), crc32c, cramjam (compression) and numpy (checks of many records).

Reading order:

- `api`: `API_TABLE`, the one list of APIs and versions; the way between frames and messages.
- `primitives`, `common`: varints, strings, arrays and tagged fields; small values that several messages share.
- `framing`, `parts`: a byte stream cut into frames; a frame under construction.
- `produce`, `fetch`, `fetch_response`, `fetch_snapshot`: the hot messages, written by hand for all versions.
- `sync_report`: who lags, a tagged field of our own in Fetch responses.
- `read_offset`, `find_quorum`, `topic_lists`: two private APIs, from KIP-650 and KIP-595; the topics in their messages.
- `write_markers`: a third one, for the ends of transactions between nodes.
- `schema`, `durations`, `ids`: the codec of the cold messages, compiled from kio's dataclasses; durations and ids as kio holds
  them.
- `metadata`, `quorum`: one topic of a Metadata answer, written by hand; the values of DescribeQuorum, and the facts in them.
- `batches`: record batches in one place, for the users of the four modules that follow.
- `batch_header`, `batch_records`: the header of a batch and its CRC; records in a batch.
- `compression`, `control`: the five compression codecs; the control records of Raft, and the markers of transactions.
- `shown`: batches as consumers are shown them, without the control records of Raft.
- `record_check`, `record_times`: a check that records are what their header says; a search for a time in a batch.
- `compaction`, `record_slices`: what compaction makes of the batches of a log; the records of a batch as slices, with keys.
- `snapshots`, `producer_snapshot`, `aborted_index`: the bytes of a snapshot file (KIP-630), of Kafka's producer state file,
  and of its index of aborted transactions.

Callers: every package but `raft` and `kv`. The package imports `errors` and nothing else of raftlake.

Invariants:

- Whatever the bytes, decoding a frame returns a message or raises `WireError`.
- Memory is bounded by the bytes that came or by a given limit, never by a length that the bytes claim.
- Decoded records stay where the frame has them. Encoded messages send large records from where they lie.
- The CRC of a batch covers neither the base offset nor the leader epoch, so a leader stamps both without a new CRC.
"""
