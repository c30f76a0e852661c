"""Our hot messages as kio's dataclasses of one version: lets a test compare the two codecs byte by byte."""

from __future__ import annotations

import datetime
import io
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from raftlake.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchResponse
from raftlake.wire.ids import id_to_kio
from raftlake.wire.produce import ProducePartitionResult, ProduceRequest, ProduceResponse


def kio_bytes(message: Any) -> bytes:
    """What kio's own writer makes of its message."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def _ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def _topic(topic: Any, by_id: bool, name_field: str) -> dict[str, Any]:
    return {"topic_id": id_to_kio(topic.topic_id)} if by_id else {name_field: topic.name}


def produce_request(request: ProduceRequest, version: int) -> Any:
    kio = import_module(f"kio.schema.produce.v{version}.request")
    return kio.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout=_ms(request.timeout_ms),
        topic_data=tuple(
            kio.TopicProduceData(
                **_topic(topic, version >= 13, "name"),
                partition_data=tuple(
                    kio.PartitionProduceData(index=partition.index, records=partition.records) for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def produce_response(response: ProduceResponse, version: int) -> Any:
    kio = import_module(f"kio.schema.produce.v{version}.response")

    def partition(result: ProducePartitionResult) -> Any:
        time_ms = result.log_append_time_ms
        fields: dict[str, Any] = {
            "index": result.index,
            "error_code": KioErrorCode(result.error),
            "base_offset": result.base_offset,
            "log_append_time": None if time_ms == -1 else datetime.datetime.fromtimestamp(0, datetime.UTC) + _ms(time_ms),
        }
        if version >= 5:
            fields["log_start_offset"] = result.log_start_offset
        if version >= 8:
            fields |= {"record_errors": (), "error_message": result.error_message}
        if version >= 10 and result.current_leader is not None:
            fields["current_leader"] = kio.LeaderIdAndEpoch(**result.current_leader._asdict())
        return kio.PartitionProduceResponse(**fields)

    topics = tuple(
        kio.TopicProduceResponse(
            **_topic(topic, version >= 13, "name"), partition_responses=tuple(map(partition, topic.partitions))
        )
        for topic in response.topics
    )
    return kio.ProduceResponse(
        responses=topics, throttle_time=_ms(response.throttle_ms), **_endpoints(kio, response, version >= 10)
    )


def _endpoints(kio: Any, response: ProduceResponse | FetchResponse, has_them: bool) -> dict[str, Any]:
    if not has_them:
        return {}
    return {"node_endpoints": tuple(kio.NodeEndpoint(**endpoint._asdict()) for endpoint in response.node_endpoints)}


def fetch_request(request: FetchRequest, version: int) -> Any:
    kio = import_module(f"kio.schema.fetch.v{version}.request")

    def partition(asked: FetchPartition) -> Any:
        fields: dict[str, Any] = {
            "partition": asked.index,
            "fetch_offset": asked.fetch_offset,
            "partition_max_bytes": asked.bytes_max,
        }
        if version >= 5:
            fields["log_start_offset"] = asked.log_start_offset
        if version >= 9:
            fields["current_leader_epoch"] = asked.current_leader_epoch
        if version >= 12:
            fields["last_fetched_epoch"] = asked.last_fetched_epoch
        if version >= 17:
            fields["replica_directory_id"] = id_to_kio(asked.replica_directory_id)
        if version >= 18:
            fields["high_watermark"] = asked.high_watermark
        return kio.FetchPartition(**fields)

    def topics(kind: Any, source: Any, make: Any) -> Any:
        return tuple(
            kind(**_topic(topic, version >= 13, "topic"), partitions=tuple(map(make, topic.partitions))) for topic in source
        )

    fields: dict[str, Any] = {
        "max_wait": _ms(request.wait_ms_max),
        "min_bytes": request.bytes_min,
        "max_bytes": request.bytes_max,
        "isolation_level": request.isolation_level,
        "topics": topics(kio.FetchTopic, request.topics, partition),
    }
    if version >= 7:
        fields |= {"session_id": request.session_id, "session_epoch": request.session_epoch}
        fields["forgotten_topics_data"] = topics(kio.ForgottenTopic, request.forgotten, int)
    if version >= 11:
        fields["rack_id"] = request.rack_id
    if version >= 12:
        fields["cluster_id"] = request.cluster_id
    if version >= 15:
        fields["replica_state"] = kio.ReplicaState(replica_id=request.replica_id, replica_epoch=request.replica_epoch)
    else:
        fields["replica_id"] = request.replica_id
    return kio.FetchRequest(**fields)


def fetch_response(response: FetchResponse, version: int) -> Any:
    kio = import_module(f"kio.schema.fetch.v{version}.response")

    def partition(result: FetchPartitionResult) -> Any:
        aborted = result.aborted_transactions
        fields: dict[str, Any] = {
            "partition_index": result.index,
            "error_code": KioErrorCode(result.error),
            "high_watermark": result.high_watermark,
            "last_stable_offset": result.last_stable_offset,
            "aborted_transactions": None
            if aborted is None
            else tuple(kio.AbortedTransaction(**transaction._asdict()) for transaction in aborted),
            "records": result.records,
        }
        if version >= 5:
            fields["log_start_offset"] = result.log_start_offset
        if version >= 11:
            fields["preferred_read_replica"] = result.preferred_read_replica
        if result.diverging_epoch is not None:
            fields["diverging_epoch"] = kio.EpochEndOffset(**result.diverging_epoch._asdict())
        if result.current_leader is not None:
            fields["current_leader"] = kio.LeaderIdAndEpoch(**result.current_leader._asdict())
        if result.snapshot_id is not None:
            fields["snapshot_id"] = kio.SnapshotId(**result.snapshot_id._asdict())
        return kio.PartitionData(**fields)

    fields: dict[str, Any] = {
        "throttle_time": _ms(response.throttle_ms),
        "responses": tuple(
            kio.FetchableTopicResponse(
                **_topic(topic, version >= 13, "topic"), partitions=tuple(map(partition, topic.partitions))
            )
            for topic in response.topics
        ),
    }
    if version >= 7:
        fields |= {"error_code": KioErrorCode(response.error), "session_id": response.session_id}
    return kio.FetchResponse(**fields, **_endpoints(kio, response, version >= 16))
