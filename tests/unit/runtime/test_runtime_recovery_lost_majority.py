"""Whether a majority is lost is asked of everybody whom the directory's own log names, wherever the settings point."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contract.file_faults import without_sync
from raftlake.errors import WrongState
from raftlake.kv.commands import encode, put
from raftlake.kv.keyspace import pack
from raftlake.kv.snapshot import FOOTER, encode_header, encode_rows
from raftlake.ports.driver import BatchSpan
from raftlake.raft.types import DirectoryId, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.snapshot_files import SnapshotMaker
from raftlake.runtime.recovery.lost_majority import Survivor, _is_ours, _refuse_leader, registered, require_lost_majority
from raftlake.runtime.recovery.probe import Answer, _parse_metadata, answers
from raftlake.runtime.recovery.recover import PENDING_NAME
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.meta import read_meta
from raftlake.storage.partition import uuid_text
from raftlake.wire.batches import Record, VoterEntry, build_batch, iterate_headers
from raftlake.wire.control import voters_batch
from recoverkit import HERE, ME, ORDERS, begin, make_survivor, recover


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_sync(monkeypatch)
    return make_survivor(tmp_path)


@pytest.fixture
def listening() -> Iterator[Endpoint]:
    """Something that answers ApiVersions, as far as the probe looks."""
    server = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            connection, _ = server.accept()
            with connection:
                request = connection.recv(100)
                if request:
                    connection.sendall(b"\0\0\0\6" + request[8:12] + b"\0\0")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield Endpoint("127.0.0.1", server.getsockname()[1])
    stopping.set()
    socket.create_connection(server.getsockname()).close()
    thread.join()
    server.close()


def closed() -> Endpoint:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Endpoint("127.0.0.1", server.getsockname()[1])


def test_the_probe_tells_who_answers(listening: Endpoint) -> None:
    assert answers(listening, 5)
    assert not answers(closed(), 5)


OTHER = bytes(range(16, 32))


def test_a_quorum_that_still_has_a_majority_is_refused(listening: Endpoint) -> None:
    """One of the two others and this node are a majority of three: there is nothing to recover from."""

    def judge(*others: Endpoint) -> None:
        voters = {ME: HERE, **{NodeId(10 + number): place for number, place in enumerate(others)}}
        survivor = Survivor(replica=ReplicaKey(ME), cluster_id="mine", voters=None, groups={}, addresses={})
        require_lost_majority(survivor, static=voters, bootstrap_servers=(), own=[HERE])

    judge()
    judge(closed(), closed())
    with pytest.raises(WrongState, match=r"node 10 answers at .*start this node"):
        judge(listening, closed())
    judge(listening, closed(), closed(), closed())


def vote(place: Path, *replicas: ReplicaKey, endpoints: dict[int, Endpoint] | None = None) -> None:
    """Put a voter set into every log of the directory."""
    directory = FileLogDirectory(place, post=None)
    for group in (ORDERS, METADATA_GROUP):
        log = directory.open(group)
        entries = []
        for key in replicas:
            where = (endpoints or {}).get(key.id)
            places = () if where is None else (("CONTROLLER", where.host, where.port),)
            entries.append(VoterEntry(node_id=key.id, directory_id=key.directory_id, endpoints=places))
        data = voters_batch(log.end_offset, 4, -1, entries, kraft_version=1)
        append(log, data)
    directory.close()


def register(place: Path, node_id: int, where: Endpoint) -> None:
    directory = FileLogDirectory(place, post=None)
    log = directory.open(METADATA_GROUP)
    value = encode(put(f"/raftlake/nodes/{node_id}", json.dumps({"host": where.host, "port": where.port}).encode()))
    append(
        log, bytes(build_batch([Record(key=None, value=value)], base_offset=log.end_offset, leader_epoch=4, timestamp_ms=-1))
    )
    directory.close()


def append(log: Any, data: bytes) -> None:
    (header,) = iterate_headers(data)
    log.append([data], [BatchSpan(header.base_offset, header.end_offset, Epoch(4), header.timestamp_ms_max, header.size)])


def ask_whether_lost(place: Path, **settings: Any) -> None:
    known = {"voters": {ME: HERE}, "bootstrap_servers": (), "advertised_listener": HERE, "controller_listener": None}
    recovery = begin(place)
    try:
        recovery.require_lost_majority(SimpleNamespace(**{**known, **settings}))  # type: ignore[arg-type]
    finally:
        recovery.close()


def me(place: Path) -> ReplicaKey:
    return ReplicaKey(ME, read_meta(place).directory_id)


def others() -> list[ReplicaKey]:
    return [ReplicaKey(NodeId(node_id), DirectoryId(OTHER)) for node_id in (1, 2)]


def test_the_logs_voters_are_asked_whatever_the_settings_name(place: Path, listening: Endpoint) -> None:
    """quorum.voters names this node alone: at the endpoints that the log has, two others might serve."""
    vote(place, me(place), *others(), endpoints={1: listening, 2: closed()})
    with pytest.raises(WrongState, match=r"voters are 1, 2, 3: node 1 answers at .*start this node"):
        ask_whether_lost(place)
    with pytest.raises(WrongState, match="node 1 answers"):
        ask_whether_lost(place, voters={})


def test_the_latest_set_counts(place: Path, listening: Endpoint) -> None:
    vote(place, me(place), *others(), endpoints={1: listening})
    vote(place, me(place), others()[1], endpoints={2: closed()})
    ask_whether_lost(place)


def test_voters_are_asked_where_they_registered_and_at_the_bootstrap_servers(place: Path, listening: Endpoint) -> None:
    vote(place, me(place), *others())
    ask_whether_lost(place, bootstrap_servers=(HERE, closed()))
    with pytest.raises(WrongState, match="a node answers at"):
        ask_whether_lost(place, bootstrap_servers=(listening,))
    with pytest.raises(WrongState, match="node 2 answers"):
        ask_whether_lost(place, voters={ME: HERE, NodeId(2): listening})
    register(place, 1, listening)
    with pytest.raises(WrongState, match="node 1 answers"):
        ask_whether_lost(place)


def test_addresses_are_read_from_snapshots_too(tmp_path: Path) -> None:
    """A log that was trimmed no longer holds the records in which nodes registered."""
    directory = FileLogDirectory(tmp_path, post=None)
    directory.open(METADATA_GROUP)
    snapshot_id = OffsetAndEpoch(Offset(5), Epoch(4))
    maker = SnapshotMaker(directory.snapshots.create(METADATA_GROUP, snapshot_id), snapshot_id, None, 0, 0)
    maker.add(encode_header(5, 2))
    address = json.dumps({"host": "there", "port": 9097}).encode()
    maker.add(encode_rows([("/raftlake/nodes/7", pack(3, address)), ("key", pack(4, b"value"))]))
    maker.add(FOOTER)
    maker.end()
    maker.writer.freeze(lambda error: None)
    assert registered(directory) == {7: Endpoint("there", 9097)}
    directory.close()


def test_who_is_no_voter_by_its_own_log_recovers_nothing(place: Path) -> None:
    vote(place, *others())
    with pytest.raises(WrongState, match=r"node 3 is no voter: by the log in this directory the voters are 1, 2"):
        ask_whether_lost(place)
    vote(place, ReplicaKey(ME, DirectoryId(OTHER)), *others())
    with pytest.raises(WrongState, match="votes with another directory id"):
        ask_whether_lost(place)


def test_who_has_no_voters_in_its_log_must_be_named_by_the_settings(place: Path) -> None:
    with pytest.raises(WrongState, match=r"quorum\.voters does not name it"):
        ask_whether_lost(place, voters={})
    ask_whether_lost(place, voters={ME: HERE, NodeId(1): closed(), NodeId(2): closed()})


def test_a_finished_recovery_is_not_repeated(place: Path) -> None:
    vote(place, me(place), *others())
    ask_whether_lost(place)
    recover(place)
    with pytest.raises(WrongState, match="nothing is to be recovered"):
        ask_whether_lost(place)


def test_an_interrupted_recovery_goes_on(place: Path) -> None:
    vote(place, me(place), *others())
    old = (place / "meta.properties").read_bytes()
    directory_id = recover(place)
    (place / "meta.properties").write_bytes(old)
    groups = [[each.topic, each.partition, uuid_text(each.topic_id), 1004] for each in (ORDERS, METADATA_GROUP)]
    plan = {"version": 0, "directoryId": uuid_text(directory_id), "groups": groups}
    (place / PENDING_NAME).write_text(json.dumps(plan))
    ask_whether_lost(place)


def metadata_answer(cluster_id: str, leader_id: int) -> bytes:
    node = struct.pack(">ih4sih", 7, 4, b"host", 9092, -1)
    body = struct.pack(">i", 1) + node + struct.pack(">h", len(cluster_id)) + cluster_id.encode() + struct.pack(">i", leader_id)
    return body + struct.pack(">i", 0)


def test_a_live_leader_is_refused_and_another_cluster_is_not_ours(place: Path) -> None:
    assert _parse_metadata(metadata_answer("mine", 7)) == Answer("mine", 7, {7: Endpoint("host", 9092)})
    heard = {HERE: Answer("mine", 7)}
    with pytest.raises(WrongState, match="node 7 leads the quorum"):
        _refuse_leader(heard, ME)
    _refuse_leader({HERE: Answer("mine", -1)}, ME)
    _refuse_leader({HERE: Answer("mine", ME)}, ME)
    assert _is_ours(Answer(), "mine") and _is_ours(Answer("mine"), "mine")
    assert not _is_ours(Answer("theirs", 1), "mine") and not _is_ours(None, "mine")
