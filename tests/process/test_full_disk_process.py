"""Node processes on a disk that is really full: refused, deleted from, served again without a restart; started on it.

The disk is a tmpfs of its own, so that nothing else is filled. Where mounting is not allowed these tests cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaError, Producer

from mountkit import MIB, fill, make_room, mounted
from raftlake import Client, LocalQuorum
from raftlake.client import NoReachableNode, NoRoom
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected, UnknownOutcome
from waitkit import attempt, wait_until

pytestmark = pytest.mark.process

DISK_BYTES = 96 * MIB
LIMIT = 16 * MIB
SETTINGS = {"log.dir.min.free.bytes": str(LIMIT), "log.segment.bytes": str(MIB)}
PATIENCE_S = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def put(quorum: LocalQuorum, key: str, value: bytes, method: str = "PUT") -> httpx.Response:
    url = f"http://{next(iter(quorum.nodes.values())).http_address}/v1/kv/{key}"
    return httpx.request(method, url, content=value or None, trust_env=False, follow_redirects=True, timeout=20)


def health(quorum: LocalQuorum, node_id: int, what: str = "live") -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"http://{quorum.nodes[node_id].http_address}/health/{what}", trust_env=False).json()
    return answer


def is_live(quorum: LocalQuorum, node_id: int) -> bool:
    try:
        return health(quorum, node_id)["live"] is True
    except httpx.HTTPError:
        return False


def start_all(quorum: LocalQuorum) -> None:
    """All, and wait for none: without room nobody is ready."""
    for node_id in quorum.nodes:
        quorum._spawn(node_id)


def low_nodes(quorum: LocalQuorum) -> list[int]:
    return [node_id for node_id in quorum.running() if "log.dir.min.free.bytes" in str(health(quorum, node_id))]


def refuses(quorum: LocalQuorum) -> bool:
    return put(quorum, "probe", b"v").status_code == 507


def acknowledged(client: Client, topic: str, count: int, what: str) -> list[bytes]:
    values = [f"{what} {number}".encode() for number in range(count)]
    for value in values:
        client.append(topic, value, partition=0)
    return values


def held(client: Client, topic: str) -> list[bytes]:
    """Everything that is committed."""
    found: list[bytes] = []
    position, end = 0, client.read_offset(topic, [0])[0]
    while position < end:
        records = client.read(topic, 0, position)
        found += [record.value or b"" for record in records]
        # The last ones may be control records, which no read shows.
        position = records[-1].offset + 1 if records else end
    return found


def test_fill_refuse_delete_and_serve_again_without_a_restart(disk: Path) -> None:
    with (
        LocalQuorum(nodes=3, data_dir=disk / "quorum", settings=SETTINGS) as quorum,
        Client(quorum.bootstrap_servers) as client,
    ):
        pids = {node_id: quorum.pid(node_id) for node_id in quorum.nodes}
        client.create_topic("orders")
        client.create_topic("doomed")
        values = acknowledged(client, "orders", 20, "before")
        wait_until(lambda: put(quorum, "doomed", b"v").status_code == 200, "a key is written", PATIENCE_S)
        wait_until(lambda: (disk / "quorum" / "node-1" / "ballast").exists(), "a ballast", PATIENCE_S)

        fill(disk, LIMIT // 2)
        # The leader hears of the others with their next rounds.
        wait_until(lambda: "node 1, 2, 3." in put(quorum, "probe", b"v").text, "the leader knows who is low", PATIENCE_S)
        assert low_nodes(quorum) == [1, 2, 3]
        _refused_in_every_way(quorum, client)

        # Not one byte is left: votes, deletions and what they need take the ballast.
        fill(disk, 0)
        wait_until(lambda: put(quorum, "doomed", b"", "DELETE").status_code == 200, "a key is deleted", PATIENCE_S)
        wait_until(lambda: put(quorum, "doomed", b"", "GET").status_code == 404, "it is gone", PATIENCE_S)
        wait_until(lambda: _deleted(client, "doomed"), "a topic is deleted", PATIENCE_S)
        assert held(client, "orders") == values

        waiting = Waiting(quorum.bootstrap_servers, [b"waited %d" % number for number in range(20)])
        make_room(disk)
        wait_until(lambda: not refuses(quorum), "writes go on", PATIENCE_S)
        values += waiting.delivered()
        values += acknowledged(client, "orders", 20, "after")
        assert held(client, "orders") == values
        wait_until(lambda: not low_nodes(quorum), "no node is low any more", PATIENCE_S)
        assert {node_id: quorum.pid(node_id) for node_id in quorum.nodes} == pids, "no node ended"
        wait_until(lambda: (disk / "quorum" / "node-1" / "ballast").exists(), "the ballast is made again", PATIENCE_S)
        assert not [*(disk / "quorum").rglob("*.part"), *(disk / "quorum").rglob("*.tmp")]


def _refused_in_every_way(quorum: LocalQuorum, client: Client) -> None:
    refused = put(quorum, "k", b"v")
    assert refused.status_code == 507 and refused.headers["retry-after"] == "1"
    assert "node 1, 2, 3" in refused.json()["error"] and "nothing was written" in refused.json()["error"]
    refusal = refused_in_time(lambda: client.kv.put("k", b"v", timeout_ms=500))
    assert isinstance(refusal, NoRoom) and "node 1, 2, 3" in str(refusal)
    refusal = refused_in_time(lambda: client.append("orders", b"no", partition=0, timeout_ms=500))
    assert refusal.code is ErrorCode.NOT_ENOUGH_REPLICAS and "node 1, 2, 3" in str(refusal)
    with pytest.raises(RequestRejected, match=r"log\.dir\.min\.free\.bytes"):
        client.create_topic("another")
    for is_idempotent in (True, False):
        settings = {"bootstrap.servers": quorum.bootstrap_servers, "enable.idempotence": is_idempotent}
        producer = Producer({**settings, "message.timeout.ms": 1500, "log_level": 0})
        errors: list[KafkaError | None] = []
        producer.produce("orders", b"no", partition=0, on_delivery=lambda error, _: errors.append(error))  # noqa: B023
        producer.flush(20)
        assert errors and errors[0] is not None and errors[0].code() == KafkaError._MSG_TIMED_OUT


def refused_in_time(write: Callable[[], object]) -> RequestRejected:
    """How a write is refused that may take half a second. Nodes that do not answer so soon have refused nothing: once more."""

    def refusal() -> RequestRejected | None:
        try:
            write()
        except (UnknownOutcome, NoReachableNode):
            return None
        except RequestRejected as rejected:
            return None if rejected.code is ErrorCode.REQUEST_TIMED_OUT else rejected
        raise AssertionError("the write was taken")

    told: RequestRejected = attempt(refusal, "nodes that answer in time")
    return told


class Waiting:
    """An idempotent producer of librdkafka with records under way that have been refused at least once."""

    def __init__(self, bootstrap: str, values: list[bytes]) -> None:
        self._values = values
        self._errors: list[KafkaError | None] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})
        for value in values:
            self._producer.produce("orders", value, partition=0, on_delivery=lambda error, _: self._errors.append(error))
            # Some requests, not one.
            self._producer.poll(0.05)
        assert self._errors == [], "nobody is told of a refusal that may pass"

    def delivered(self) -> list[bytes]:
        """What its application was told to be appended: all of it."""
        assert self._producer.flush(PATIENCE_S) == 0
        assert self._errors == [None] * len(self._values)
        return self._values


def _deleted(client: Client, topic: str) -> bool:
    try:
        client.delete_topic(topic)
    except RaftlakeError:
        return topic not in {each.name for each in client.topics()}
    return True


def test_nodes_start_on_a_full_disk_elect_delete_and_go_on_when_there_is_room(disk: Path) -> None:
    with (
        LocalQuorum(nodes=3, data_dir=disk / "quorum", settings=SETTINGS) as quorum,
        Client(quorum.bootstrap_servers) as client,
    ):
        client.create_topic("orders")
        values = acknowledged(client, "orders", 20, "before")
        wait_until(lambda: put(quorum, "doomed", b"v").status_code == 200, "a key is written", PATIENCE_S)
        wait_until(lambda: all((disk / "quorum" / f"node-{n}" / "ballast").exists() for n in (1, 2, 3)), "ballasts", PATIENCE_S)
        for node_id in quorum.nodes:
            quorum.kill(node_id)
        fill(disk, 0)
        quorum.start(*quorum.nodes)
        wait_until(lambda: put(quorum, "doomed", b"", "DELETE").status_code == 200, "a key is deleted", PATIENCE_S)
        wait_until(lambda: refuses(quorum), "writes are refused", PATIENCE_S)
        assert held(client, "orders") == values
        # Once more without any room at all: nobody can be elected, and nobody ends.
        fill(disk, 0)
        for node_id in quorum.nodes:
            quorum.kill(node_id)
        fill(disk, 0)
        start_all(quorum)
        wait_until(lambda: all(is_live(quorum, node_id) for node_id in quorum.nodes), "all nodes are there", PATIENCE_S)
        make_room(disk)
        wait_until(lambda: not refuses(quorum), "writes go on", PATIENCE_S)
        values += acknowledged(client, "orders", 20, "after")
        assert held(client, "orders") == values


def test_one_full_node_of_three_stops_nobody_and_catches_up(disk: Path, tmp_path: Path) -> None:
    data = tmp_path / "quorum"
    data.mkdir()
    (data / "node-2").symlink_to(disk)
    with LocalQuorum(nodes=3, data_dir=data, settings=SETTINGS) as quorum, Client(quorum.bootstrap_servers) as client:
        pids = {node_id: quorum.pid(node_id) for node_id in quorum.nodes}
        client.create_topic("orders")
        fill(disk, 0)
        (disk / "ballast").unlink(missing_ok=True)
        fill(disk, 0)
        values = acknowledged(client, "orders", 300, "x" * 10_000)
        wait_until(lambda: "the disk is full" in str(health(quorum, 2)), "node 2 says that it is full", PATIENCE_S)
        wait_until(lambda: put(quorum, "k", b"v").status_code == 200, "a key is written", PATIENCE_S)
        make_room(disk)

        def has_caught_up() -> bool:
            described = httpx.get(f"http://{quorum.nodes[2].http_address}/v1/quorum?topic=orders", trust_env=False).json()
            return all(replica["lag"] == 0 for replica in described["replicas"]) and "warnings" not in health(quorum, 2)

        wait_until(has_caught_up, "node 2 has everything", PATIENCE_S)
        assert held(client, "orders") == values
        assert {node_id: quorum.pid(node_id) for node_id in quorum.nodes} == pids
