"""WriteTxnMarkers (27) of clients: `kafka-transactions --abort` ends a transaction that hangs in a partition.

The coordinator's own markers come another way (`ports.peer_rpcs`). What may be written is for `Markers.write_for_client`. The
answer has no room for a reason, so the node's log tells of a transaction that is not hanging.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.apis.answers import Answers, Reply, kafka_error
from raftlake.replica.config import METADATA_TOPIC, ClientContext
from raftlake.replica.refused_for_good import MARKER
from raftlake.replica.services import Services
from raftlake.wire.batches import EndMarker

NOT_HANGING = "the transaction is open, or ends in the other way: its coordinator ends it, at the latest when its time is over"
OUTDATED = "the partition knows a newer epoch of the producer, or of its coordinator: look at DescribeProducers again"
#: Each is a batch of its own.
MARKERS_MAX = 1_000
TOO_MANY = f"one request writes {MARKERS_MAX} markers: ask for the others in another one"

#: Marker, topic and partition by their places in the request.
Place = tuple[int, int, int]


def write_txn_markers(node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
    _Writing(node, request, client, reply).begin()


class _Writing:
    """One request, answered once each of its partitions is."""

    def __init__(self, node: Services, request: Any, client: ClientContext, reply: Reply) -> None:
        self._node = node
        self._request = request
        self._client = client
        self._reply = reply
        self._errors: dict[Place, ErrorCode] = {}
        self._asked: dict[Place, tuple[GroupId, EndMarker]] = {
            (row, column, depth): (node.names.resolve_group(topic.name, index), _marker_of(marker))
            for row, marker in enumerate(request.markers)
            for column, topic in enumerate(marker.topics)
            for depth, index in enumerate(topic.partition_indexes)
        }

    def begin(self) -> None:
        if not self._asked:
            self._end()
        is_too_much = len(self._asked) > MARKERS_MAX
        if is_too_much:
            self._refuse(next(iter(self._asked.values()))[0], ErrorCode.INVALID_REQUEST, TOO_MANY)
        for place, (group, marker) in self._asked.items():
            if is_too_much:
                self._put(place, ErrorCode.INVALID_REQUEST)
            elif group.topic == METADATA_TOPIC or group not in self._node.engine.partitions:
                self._put(place, self._node.names.why_unknown(group))
            else:
                self._node.markers.write_for_client(group, marker, partial(self._on_written, place, group))

    def _on_written(self, place: Place, group: GroupId, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            _, marker = self._asked[place]
            why = NOT_HANGING if error is ErrorCode.INVALID_TXN_STATE else OUTDATED
            self._refuse(group, error, f"producer {marker.producer_id} epoch {marker.epoch}: {why}")
        self._put(place, error)

    def _refuse(self, group: GroupId, error: ErrorCode, why: str) -> None:
        self._node.refused_for_good.note_error(MARKER, str(group), error, why, self._client)

    def _put(self, place: Place, error: ErrorCode) -> None:
        self._errors[place] = error
        if len(self._errors) == len(self._asked):
            self._end()

    def _end(self) -> None:
        make = Answers(self._request).make
        markers = []
        for row, marker in enumerate(self._request.markers):
            topics = []
            for column, topic in enumerate(marker.topics):
                results = tuple(
                    make(
                        "WritableTxnMarkerPartitionResult",
                        partition_index=index,
                        error_code=kafka_error(self._errors[row, column, depth]),
                    )
                    for depth, index in enumerate(topic.partition_indexes)
                )
                topics.append(make("WritableTxnMarkerTopicResult", name=topic.name, partitions=results))
            markers.append(make("WritableTxnMarkerResult", producer_id=marker.producer_id, topics=tuple(topics)))
        self._reply(make("WriteTxnMarkersResponse", markers=tuple(markers)))


def _marker_of(marker: Any) -> EndMarker:
    return EndMarker(
        producer_id=marker.producer_id,
        epoch=marker.producer_epoch,
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
    )
