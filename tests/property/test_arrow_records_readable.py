"""What the leader lets into the log, every reader can read; and the fast check says what the careful one says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlake.arrow.records import decode_to_arrow
from raftlake.errors import RequestRejected
from raftlake.wire.batch_records import Record, assemble_batch, build_batch, decode_records
from raftlake.wire.batches import HEADER_BYTES
from raftlake.wire.record_check import TOGETHER_MIN, _check_each, require_records
from recordways import COMPILED, PLAIN

FIELDS = st.none() | st.binary(max_size=12) | st.integers(100, 20_000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2).map(tuple)
RECORDS = st.builds(Record, key=FIELDS, value=FIELDS, headers=HEADERS, timestamp_ms=st.integers(0, 1 << 41))
BATCHES = st.one_of(
    st.lists(RECORDS, min_size=1, max_size=3),
    st.builds(lambda few, count: few * count, st.lists(RECORDS, min_size=1, max_size=2), st.integers(TOGETHER_MIN, 60)),
)
#: Where a payload is changed (a share of its length), how many of its bytes are replaced there, and by what.
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), st.binary(max_size=2)), max_size=3)


def changed(payload: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for share, size, replacement in changes:
        at = int(share * len(payload))
        payload = payload[:at] + replacement + payload[at + size :]
    return payload


def is_accepted(payload: bytes, count: int) -> bool:
    try:
        require_records(payload, count)
    except RequestRejected:
        return False
    return True


def is_accepted_one_by_one(payload: bytes, count: int) -> bool:
    try:
        _check_each(payload, 0, 0, count)
    except RequestRejected:
        return False
    return True


@given(BATCHES, CHANGES)
def test_what_is_let_in_can_be_read_by_everybody(records: list[Record], changes: list[tuple[float, int, bytes]]) -> None:
    whole = build_batch(records, timestamp_ms=1)
    payload = changed(bytes(whole[HEADER_BYTES:]), changes)
    accepted = is_accepted(payload, len(records))
    assert accepted == is_accepted_one_by_one(payload, len(records))
    assert accepted or changes
    if accepted:
        batch = assemble_batch(
            payload,
            attributes=0,
            base_offset=0,
            leader_epoch=0,
            base_timestamp_ms=0,
            timestamp_ms_max=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=len(records),
        )
        assert [record.offset for record in decode_records(batch)] == list(range(len(records)))
        for loader in (COMPILED, PLAIN):
            rows = decode_to_arrow([batch], topic="t", partition=0, include_headers=True, loader=loader)
            assert rows.num_rows == len(records)
