"""The report of lagging replicas: its bytes, and its place in Fetch responses."""

from __future__ import annotations

from typing import Any

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.wire.api import ApiKey, RequestHeader, decode_response, encode_response
from raftlake.wire.common import LeaderAndEpoch, NodeEndpoint
from raftlake.wire.fetch_response import FetchPartitionResult, FetchResponse, FetchTopicResult
from raftlake.wire.primitives import DECODE_ERRORS
from raftlake.wire.sync_report import Lagging, SyncReport, decode_sync_report, encode_sync_report

ONE, OTHER = bytes(range(16)), bytes(range(16, 32))
REPORT = SyncReport((3,), (Lagging(ONE, 0, (3,)), Lagging(ONE, 1, (3,)), Lagging(OTHER, 0, (3,)), Lagging(ONE, 2, (2, 3))))


def test_the_bytes_of_a_report() -> None:
    """In full, for it travels between releases."""
    number = lambda value: value.to_bytes(4, "big")  # noqa: E731
    expected = (
        b"\x02" + number(3)
        + b"\x03"
        + b"\x02" + number(3) + b"\x03" + ONE + b"\x03" + number(0) + number(1) + OTHER + b"\x02" + number(0)
        + b"\x03" + number(2) + number(3) + b"\x02" + ONE + b"\x02" + number(2)
    )  # fmt: skip
    assert encode_sync_report(REPORT) == expected
    assert decode_sync_report(expected) == REPORT


@pytest.mark.parametrize("gone", [None, (), (1, 2**31 - 1)])
def test_nobody_gone_is_not_the_same_as_not_known(gone: tuple[int, ...] | None) -> None:
    assert decode_sync_report(encode_sync_report(SyncReport(gone))) == SyncReport(gone)


def test_a_thousand_partitions_that_miss_the_same_node_take_four_bytes_each() -> None:
    report = SyncReport((3,), tuple(Lagging(ONE, partition, (3,)) for partition in range(1000)))
    assert len(encode_sync_report(report)) < 4_050


def test_bytes_that_end_too_early_or_too_late_are_refused() -> None:
    whole = bytes(encode_sync_report(REPORT))
    for cut in range(len(whole)):
        with pytest.raises((WireError, *DECODE_ERRORS)):
            decode_sync_report(whole[:cut])
    with pytest.raises(WireError, match="left over"):
        decode_sync_report(whole + b"\x00")
    with pytest.raises(WireError, match="null"):
        decode_sync_report(b"\x00\x02\x00\x01")


def carried(response: FetchResponse, version: int = 18) -> bytes:
    return b"".join(encode_response(RequestHeader(ApiKey.FETCH, version, 5, "t"), response))


def response(**fields: Any) -> FetchResponse:
    result = FetchPartitionResult(0, ErrorCode.NONE, records=b"", current_leader=LeaderAndEpoch(1, 2))
    return FetchResponse([FetchTopicResult(None, ONE, [result])], session_id=7, **fields)


@pytest.mark.parametrize("endpoints", [[], [NodeEndpoint(1, "one", 9092)]])
@pytest.mark.parametrize("version", [16, 17, 18])
def test_a_fetch_response_carries_it_beside_the_endpoints(version: int, endpoints: list[NodeEndpoint]) -> None:
    frame = carried(response(sync_report=REPORT, node_endpoints=endpoints), version)
    _, read = decode_response(ApiKey.FETCH, version, memoryview(bytearray(frame[4:])))
    assert (read.sync_report, read.node_endpoints) == (REPORT, endpoints)


def test_damaged_content_is_an_error_of_the_message() -> None:
    frame = bytearray(carried(response(sync_report=SyncReport((3,)))))
    frame[-6:-5] = b"\xff"
    with pytest.raises(WireError):
        decode_response(ApiKey.FETCH, 18, memoryview(frame)[4:])
