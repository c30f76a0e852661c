"""Crowds at the listeners: connections that say they are nodes, slow HTTP clients, scrapes, pages of other sites."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from siegekit import Footprint, Siege

from raftlake import Client, LocalQuorum
from raftlake.local import LocalNode
from raftlake.runtime.peers.codec import peer_client_id
from raftlake.wire import fetch
from raftlake.wire.api import ApiKey, encode_request
from waitkit import wait_until

pytestmark = pytest.mark.process

CONNECTIONS_MAX = 120
CROWD = CONNECTIONS_MAX + 140
PATIENCE_S = 30


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory, twin: LocalQuorum) -> Iterator[Siege]:
    """Nodes that take few connections: a crowd is the same in small."""
    settings = {"max.connections": str(CONNECTIONS_MAX)}
    with LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("crowded"), settings=settings) as quorum:
        yield Siege.of(quorum, twin)


def claim(stack: contextlib.ExitStack, node: LocalNode, node_id: int) -> socket.socket | None:
    """A connection whose first request is of a node, as it says; None where it is refused."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S))
    client_id = peer_client_id(node_id)  # type: ignore[arg-type]
    asked = fetch.FetchRequest(wait_ms_max=0, bytes_min=0, replica_id=node_id, topics=[])
    try:
        connection.sendall(b"".join(map(bytes, encode_request(ApiKey.FETCH, 17, 1, client_id, asked))))
        return connection if connection.recv(4) else None
    except OSError:
        return None


def metric(node: LocalNode, name: str) -> float:
    text = httpx.get(f"http://{node.http_address}/metrics", trust_env=False, timeout=PATIENCE_S).text
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


def test_a_crowd_that_says_it_is_the_quorum_keeps_no_node_out(siege: Siege) -> None:
    """All of a node's places are taken by forged numbers, and a voter that lost its connections comes back."""
    leader = siege.quorum.nodes[siege.quorum.leader()]
    with siege.attack("connections that say they are nodes"), contextlib.ExitStack() as stack:
        held = [claim(stack, leader, node_id) for node_id in (1, 2, 3, 77, 1_000_000) for _ in range(CROWD // 5)]
        assert held.count(None) > 0
        assert metric(leader, "raftlake_refused_connections_total") > 0
        before = len(siege.honest.acknowledged)
        wait_until(lambda: len(siege.honest.acknowledged) > before + 20, "appends go on in the crowd", PATIENCE_S)


def test_a_voter_that_is_started_anew_finds_its_place_in_the_crowd(siege: Siege) -> None:
    """Whoever leads is full of connections with the voter's own number."""
    quorum = siege.quorum
    gone = next(node_id for node_id in quorum.nodes if node_id != quorum.leader())
    with contextlib.ExitStack() as stack:
        quorum.kill(gone)
        for node_id in quorum.running():
            for claimed in (gone, 77):
                for _ in range(CROWD // 2):
                    claim(stack, quorum.nodes[node_id], claimed)
        # It is ready when it has fetched from the leader all that was committed.
        quorum.start(gone)
    siege.before[gone] = Footprint.of(quorum.pid(gone))


def test_slow_http_clients_end_where_the_limit_is(siege: Siege) -> None:
    nodes = list(siege.quorum.nodes.values())
    with siege.attack("half a head of HTTP on every connection"), contextlib.ExitStack() as stack:
        for node in nodes:
            for _ in range(CROWD // 2):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", node.http_port), timeout=PATIENCE_S))
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET /v1/kv HTTP/1.1\r\nhost: localhost\r\n")
        before = len(siege.honest.acknowledged)
        wait_until(lambda: len(siege.honest.acknowledged) > before + 20, "appends go on beside them", PATIENCE_S)


def test_scrapes_of_many_partitions_from_all_sides(siege: Siege) -> None:
    nodes = list(siege.quorum.nodes.values())

    def scrape() -> None:
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as http:
            for _ in range(20):
                for node in nodes:
                    assert "raftlake_log_end_offset{" in http.get(f"http://{node.http_address}/metrics").text

    with siege.attack("eight scrapers"), Client(siege.quorum.bootstrap_servers) as client:
        client.create_topic("wide", partitions=200)
        scrapers = [threading.Thread(target=scrape) for _ in range(8)]
        for scraper in scrapers:
            scraper.start()
        for scraper in scrapers:
            scraper.join(120)
            assert not scraper.is_alive()
        client.delete_topic("wide")


def test_a_page_of_another_site_writes_nothing(siege: Siege) -> None:
    """What a browser sends for any page without asking first, and what a name sends that was pointed at the node."""
    body = json.dumps({"ops": [{"put": {"key": "from-a-page", "text": "evil"}}]}).encode()
    tries = (
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
        ({"origin": "null", "content-type": "application/json"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example", "content-type": "application/json"}, 421),
        ({"content-type": "text/plain"}, 415),
    )
    with siege.attack("requests of pages"), httpx.Client(trust_env=False, timeout=PATIENCE_S) as http:
        for node in siege.quorum.nodes.values():
            front = f"http://{node.http_address}"
            for headers, status in tries:
                assert http.post(f"{front}/v1/txn", content=body, headers=headers).status_code == status
            assert http.get(f"{front}/v1/kv/from-a-page").status_code == 404


def test_nobody_learns_by_us_what_is_at_an_address(siege: Siege) -> None:
    """A forged replica asks to be made a voter at an address of its choice; the answer says nothing of what is there."""
    leader = siege.quorum.nodes[siege.quorum.leader()]
    with siege.attack("probes of addresses"), contextlib.ExitStack() as stack:
        assert claim(stack, leader, 4242) is not None
        with Client(siege.quorum.bootstrap_servers) as client, pytest.raises(Exception) as refused:
            client.add_voter(4242, b"\x07" * 16, "127.0.0.1", leader.http_port, timeout_ms=3000)
        assert str(leader.http_port) not in str(refused.value)
