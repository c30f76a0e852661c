"""Requests that decode and mean nothing good: whatever a client or a peer asks, in every version, it is answered, and the node
lives on.

They go the road of a served request without its sockets: wire, peer codec, handlers of a real node, codec, wire. Numbers are
random or just at an edge; names and ids are of topics that exist, or of none. Only WireError may be raised, which ends a
connection; anything else would stop the node or be a bug in a handler.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing
import uuid
from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from raftlake.errors import WireError
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP, ClientContext
from raftlake.replica.node import ReplicaNode
from raftlake.runtime.listener.listener import answer_api_versions
from raftlake.runtime.peers.codec import PeerCodec, peer_client_id
from raftlake.wire import fetch, fetch_snapshot, find_quorum, produce, read_offset, write_markers
from raftlake.wire.api import API_TABLE, ApiKey, decode_request, encode_request, encode_response, request_type
from replica_cluster import Cluster, batch

HOT_REQUESTS: dict[ApiKey, type] = {
    ApiKey.PRODUCE: produce.ProduceRequest,
    ApiKey.FETCH: fetch.FetchRequest,
    ApiKey.FETCH_SNAPSHOT: fetch_snapshot.FetchSnapshotRequest,
    ApiKey.READ_OFFSET: read_offset.ReadOffsetRequest,
    ApiKey.FIND_QUORUM: find_quorum.FindQuorumRequest,
    ApiKey.WRITE_MARKERS: write_markers.WriteMarkersRequest,
}
PARTITION_FIELDS = ("partition", "partitions", "partition_index", "partition_indexes", "index")
EPOCH_FIELDS = ("current_leader_epoch", "last_fetched_epoch")
TOPIC_FIELDS = ("topic", "topic_name", "name")
#: Longer than any request may wait.
ANSWER_MS_MAX = 70_000

edges = st.sampled_from([-1, 0, 1, 2, 3, 4, 100])


def numbers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(edges, edges, st.sampled_from([low, low + 1, high - 1, high]), st.integers(low, high))


class Requests:
    """What may be asked of a cluster that hosts `group`."""

    def __init__(self, group: GroupId) -> None:
        uuids = st.sampled_from([group.topic_id, METADATA_GROUP.topic_id, bytes(range(16))])
        uuids = st.one_of(st.just(group.topic_id), uuids, st.binary(min_size=16, max_size=16).filter(any))
        names = [
            group.topic,
            f"{group.topic}:{uuid.UUID(bytes=group.topic_id)}",
            METADATA_GROUP.topic,
            "absent",
            "",
            "CONTROLLER",
        ]
        records = [b"", b"\0" * 61, bytes(batch(b"x")), bytes(batch(b"x") + batch(b"y")), bytes(batch(b"x"))[:-1]]
        self._plain: dict[str, st.SearchStrategy[Any]] = {
            **{f"int{bits}": numbers(bits) for bits in (8, 16, 32, 64)},
            "uint16": st.integers(0, (1 << 16) - 1),
            "bool": st.booleans(),
            "string": st.one_of(st.sampled_from(names), st.text(max_size=5)),
            "error_code": st.sampled_from(KioErrorCode),
            "timedelta_i32": st.one_of(edges, st.integers(0, 1000)).map(lambda ms: datetime.timedelta(milliseconds=ms)),
            "uuid": st.one_of(st.none(), uuids.map(lambda raw: uuid.UUID(bytes=raw))),
            "records": st.one_of(st.none(), st.one_of(st.sampled_from(records), st.binary(max_size=70)).map(bytearray)),
            "id": uuids,
            "bytes": st.binary(max_size=5),
        }
        #: Half of them get past the first checks.
        half = {
            **dict.fromkeys(PARTITION_FIELDS, 0),
            **dict.fromkeys(EPOCH_FIELDS, -1),
            **dict.fromkeys(TOPIC_FIELDS, group.topic),
        }
        self._half = {name: st.just(value) for name, value in half.items()}

    def of(self, key: ApiKey, version: int) -> st.SearchStrategy[Any]:
        return self._message(HOT_REQUESTS[key] if key in HOT_REQUESTS else request_type(key, version))

    def _message(self, kind: type) -> st.SearchStrategy[Any]:
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{field.name: self._field(field, hints[field.name]) for field in dataclasses.fields(kind)})

    def _field(self, field: dataclasses.Field[Any], type_: Any) -> st.SearchStrategy[Any]:
        if field.name == "records":
            return self._plain["records"]
        arguments = get_args(type_)
        if NoneType in arguments:
            (inner,) = (argument for argument in arguments if argument is not NoneType)
            present = self._field(field, inner)
            # Each version of a hot message has the name or the id of a topic.
            return present if field.name in ("name", "topic_id") else st.one_of(st.none(), present)
        if get_origin(type_) in (tuple, list, Sequence):
            return st.lists(self._field(field, arguments[0]), max_size=3).map(tuple if get_origin(type_) is tuple else list)
        if dataclasses.is_dataclass(type_):
            return self._message(type_)
        if "kafka_type" in field.metadata:
            values = self._plain[field.metadata["kafka_type"]]
        elif type_ is int:
            bits = {"acks": 16, "isolation_level": 8, "fetch_offset": 64, "read_timestamp_ms": 64, "position": 64}
            bits |= {"producer_id": 64, "epoch": 16, "decided_at": 64}
            values = numbers(bits.get(field.name, 32))
        else:
            values = self._plain["bool" if type_ is bool else "string" if type_ is str else "id"]
        return st.one_of(self._half[field.name], values) if field.name in self._half else values


class Served:
    """A cluster, and the road of a request through one of its nodes."""

    def __init__(self) -> None:
        self.cluster = Cluster(directories=True, is_watched=False)
        (self.group,) = self.cluster.create_topic("t")
        self.cluster.produce(self.group, batch(b"a", b"b"))
        self.leader_id = self.cluster.leader(self.group).config.node_id

    def serve(self, node: ReplicaNode, key: ApiKey, version: int, message: Any, client_id: str) -> None:
        """Encoded, decoded, served, encoded: returns when the answer could be sent."""
        frame = bytearray(b"".join(encode_request(key, version, 7, client_id, message)))[4:]
        header, decoded = decode_request(frame)
        codec = PeerCodec(node_id=node.config.node_id, peers=self.cluster.voters)
        codec.attach(node.names)
        answers: list[object] = []
        try:
            rpc = codec.decode_request(header, decoded)
        except WireError:
            # It ends the connection.
            return
        if rpc is not None:
            node.receive(PeerConnection(), rpc, lambda reply: answers.append(codec.encode_reply(header, rpc, reply)))
        elif key is ApiKey.API_VERSIONS:
            answers.append(answer_api_versions(version))
        else:
            node.handle(header, decoded, ClientContext(client_id, "127.0.0.1"), answers.append)
        self.cluster.run(20)
        self.cluster.run(ANSWER_MS_MAX, until=lambda: bool(answers))
        (answer,) = answers
        if answer is not None:
            assert encode_response(header, answer)
        assert all(other.fatal is None for other in self.cluster.nodes.values())


@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: key.name.lower())
def test_whatever_is_asked_is_answered(key: ApiKey) -> None:
    served = Served()
    requests, api = Requests(served.group), API_TABLE[key]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def ask(data: st.DataObject) -> None:
        version = data.draw(st.integers(api.version_min, api.version_max))
        message = data.draw(requests.of(key, version))
        node = served.cluster.nodes[data.draw(st.sampled_from([served.leader_id, *sorted(served.cluster.nodes)]))]
        client_id = data.draw(st.sampled_from(["client", peer_client_id(node.config.node_id)]))
        served.serve(node, key, version, message, client_id)

    ask()
