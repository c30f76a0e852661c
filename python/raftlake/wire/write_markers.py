"""WriteMarkers (private key 10098, version 0; KIP-98), both directions: the coordinator's markers for a node's partitions.

Kafka's WriteTxnMarkers has no field for where the metadata log says that the transaction ends so. The leader of a partition has
to have read that before it writes a marker. All flexible. The errors of an answer are in the order of the markers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raftlake.errors import ErrorCode, WireError
from raftlake.wire.control import EndMarker
from raftlake.wire.parts import Parts
from raftlake.wire.primitives import (
    I16,
    error_code,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_nullable_string,
    write_uvarint,
)

#: Of one request.
MARKERS_MAX = 10_000
#: Partition, producer id, epoch, 1 for a commit and 0 for an abort, coordinator's epoch, end of the decision.
_MARKER = struct.Struct(">iqhBiq")
#: With the length of a name and the tags.
_MARKER_BYTES_MIN = _MARKER.size + 2


@dataclass(slots=True)
class WrittenMarker:
    #: The topic as nodes name it to each other: `name:id`.
    topic: str
    partition: int
    marker: EndMarker
    #: The end of the decision in the metadata log.
    decided_at: int


@dataclass(slots=True)
class WriteMarkersRequest:
    cluster_id: str | None
    markers: list[WrittenMarker]


@dataclass(slots=True)
class WriteMarkersResponse:
    #: INCONSISTENT_CLUSTER_ID: then there are no others.
    error: ErrorCode
    errors: list[ErrorCode]


def encode_request(parts: Parts, request: WriteMarkersRequest, version: int) -> None:
    assert version == 0
    out = parts.tail
    write_nullable_string(out, request.cluster_id, True)
    write_uvarint(out, len(request.markers) + 1)
    for written in request.markers:
        marker = written.marker
        write_nullable_string(out, written.topic, True)
        out += _MARKER.pack(
            written.partition,
            marker.producer_id,
            marker.epoch,
            marker.commit,
            marker.coordinator_epoch,
            written.decided_at,
        )
        out.append(0)
    out.append(0)


def decode_request(view: memoryview, position: int, version: int) -> tuple[WriteMarkersRequest, int]:
    assert version == 0
    cluster_id, position = read_nullable_string(view, position, True)
    count, position = read_count(view, position, True, _MARKER_BYTES_MIN)
    if count > MARKERS_MAX:
        raise WireError(f"{count} markers in one request, allowed are {MARKERS_MAX}")
    markers: list[WrittenMarker] = []
    for _ in range(count):
        topic, position = read_string(view, position, True)
        partition, producer_id, epoch, commit, coordinator_epoch, decided_at = _MARKER.unpack_from(view, position)
        if commit > 1:
            raise WireError(f"a transaction ends by 0 or 1, not {commit}")
        marker = EndMarker(producer_id=producer_id, epoch=epoch, commit=commit == 1, coordinator_epoch=coordinator_epoch)
        markers.append(WrittenMarker(topic, partition, marker, decided_at))
        position = skip_tags(view, position + _MARKER.size)
    return WriteMarkersRequest(cluster_id, markers), skip_tags(view, position)


def encode_response(parts: Parts, response: WriteMarkersResponse, version: int) -> None:
    assert version == 0
    out = parts.tail
    out += I16.pack(response.error)
    write_uvarint(out, len(response.errors) + 1)
    for error in response.errors:
        out += I16.pack(error)
    out.append(0)


def decode_response(view: memoryview, position: int, version: int) -> tuple[WriteMarkersResponse, int]:
    assert version == 0
    (top_code,) = I16.unpack_from(view, position)
    count, position = read_count(view, position + 2, True, I16.size)
    errors = [error_code(code) for (code,) in I16.iter_unpack(view[position : position + count * I16.size])]
    return WriteMarkersResponse(error_code(top_code), errors), skip_tags(view, position + count * I16.size)
