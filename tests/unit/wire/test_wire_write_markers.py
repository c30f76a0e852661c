"""WriteMarkers on the wire: the bytes themselves, and what is no such message."""

from __future__ import annotations

import pytest

from raftlake.errors import ErrorCode, WireError
from raftlake.wire import write_markers
from raftlake.wire.api import ApiKey, RequestHeader, decode_request, decode_response, encode_request, encode_response
from raftlake.wire.control import EndMarker
from raftlake.wire.write_markers import MARKERS_MAX, WriteMarkersRequest, WriteMarkersResponse, WrittenMarker

MARKER = EndMarker(producer_id=4000, epoch=258, commit=True, coordinator_epoch=7)
REQUEST = WriteMarkersRequest("c", [WrittenMarker("t:x", 3, MARKER, 99)])
HEADER = RequestHeader(ApiKey.WRITE_MARKERS, 0, 5, None)


def sent(request: WriteMarkersRequest) -> bytearray:
    return bytearray(b"".join(encode_request(ApiKey.WRITE_MARKERS, 0, 5, None, request)))[4:]


def test_the_bytes_of_a_request() -> None:
    assert sent(REQUEST).hex(" ") == bytes.fromhex(
        "2772 0000 00000005 ffff 00"  # header
        "0263 02"  # cluster id, one marker
        "04743a78 00000003 0000000000000fa0 0102 01 00000007 0000000000000063 00"
        "00"
    ).hex(" ")
    assert decode_request(sent(REQUEST)) == (HEADER, REQUEST)


def test_the_bytes_of_an_answer() -> None:
    answer = WriteMarkersResponse(ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    frame = bytearray(b"".join(encode_response(HEADER, answer)))[4:]
    assert frame.hex() == "00000005000000030000000600"
    assert decode_response(ApiKey.WRITE_MARKERS, 0, frame) == (5, answer)


def test_an_end_that_is_neither_is_refused() -> None:
    frame = sent(REQUEST)
    place = frame.index(bytes.fromhex("010201")) + 2
    for byte in (0, 1, 2, 255):
        frame[place] = byte
        if byte < 2:
            assert decode_request(frame)[1].markers[0].marker.commit is (byte == 1)
        else:
            with pytest.raises(WireError):
                decode_request(frame)


def test_so_many_markers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MARKERS_MAX == 10_000
    monkeypatch.setattr(write_markers, "MARKERS_MAX", 2)
    for count in range(4):
        request = WriteMarkersRequest(None, REQUEST.markers * count)
        if count <= 2:
            assert decode_request(sent(request))[1] == request
        else:
            with pytest.raises(WireError, match="3 markers"):
                decode_request(sent(request))


def test_cut_requests_are_refused() -> None:
    frame = sent(REQUEST)
    for end in range(len(frame)):
        with pytest.raises(WireError):
            decode_request(frame[:end])
