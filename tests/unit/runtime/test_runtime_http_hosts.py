"""Web pages of other sites and the HTTP front: which Host and Origin are served, and which bodies."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from raftlake.runtime.http.base import HttpError, Request
from raftlake.runtime.http.hosts import AllowedHosts
from raftlake.runtime.settings.settings import load_settings
from runtime_fakes import run
from runtime_http_fakes import Front, http_front

TXN = {"ops": [{"put": {"key": "a", "text": "b"}}]}


def request(method: str = "GET", version: str = "1.1", **headers: str) -> Request:
    rows = tuple((name.encode(), value.encode()) for name, value in headers.items())
    source: Any = None
    return Request(method, b"/v1/kv", b"", rows, source, version)


def status_of(hosts: AllowedHosts, asked: Request) -> int:
    try:
        hosts.check(asked)
    except HttpError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("raft.example", 200),
        ("RAFT.example.:8092", 200),
        ("localhost:8092", 200),
        ("node1.localhost", 200),
        ("127.0.0.1:8092", 200),
        ("169.254.1.1", 200),
        ("[::1]:8092", 200),
        ("[fd00::1]", 200),
        ("evil.example", 421),
        ("raft.example.evil.example:8092", 421),
        ("127.0.0.1.evil.example", 421),
        ("notlocalhost", 421),
        ("127.1", 421),
        ("", 400),
        ("a b", 400),
        ("raft.example:x", 400),
        ("user@raft.example", 400),
        ("raft.example, localhost", 400),
    ],
)
def test_names_are_served_where_they_are_known(host: str, status: int) -> None:
    """DNS rebinding needs a name. An IP address is what it says."""
    assert status_of(AllowedHosts(["raft.example"]), request(host=host)) == status


def test_a_refusal_names_the_setting() -> None:
    with pytest.raises(HttpError, match=r"Host 'evil\.example:8092' is not served here: name it in http\.allowed\.hosts"):
        AllowedHosts([]).check(request(host="evil.example:8092"))


def test_a_page_is_told_both_names_and_what_a_proxy_has_to_do() -> None:
    """The refusal named a setting that does not help: behind a proxy which puts another Host in, the name is allowed."""
    told = r"pages of 'https://raft\.example' are not served here, for Host is '10\.0\.0\.5:8092'; a proxy has to pass"
    with pytest.raises(HttpError, match=told):
        AllowedHosts(["raft.example"]).check(request("POST", host="10.0.0.5:8092", origin="https://raft.example"))


def test_a_star_serves_every_name_and_no_other_sites_pages() -> None:
    hosts = AllowedHosts(["*"])
    assert status_of(hosts, request(host="any.example:1")) == 200
    assert status_of(hosts, request("POST", host="any.example:1", origin="http://other.example:1")) == 403


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8092", "http://localhost:8092", 200),
        ("Localhost:8092", "http://LOCALHOST:8092", 200),
        ("[::1]:8092", "http://[::1]:8092", 200),
        ("raft.example", "https://raft.example", 200),
        ("raft.example:443", "https://raft.example", 200),
        ("raft.example:80", "http://raft.example", 200),
        ("raft.example", "http://raft.example:8092", 403),
        ("localhost:8092", "http://localhost:3000", 403),
        ("localhost:8092", "http://127.0.0.1:8092", 403),
        ("localhost:8092", "null", 403),
        ("localhost:8092", "", 403),
        ("localhost:8092", "https://evil.example", 403),
        ("localhost:8092", "http://localhost:8092.evil.example", 403),
        ("localhost:8092", "http://localhost:8092/", 403),
        ("localhost:8092", "file://", 403),
        # A name that was pointed here has an Origin of the same name.
        ("evil.example:8092", "http://evil.example:8092", 421),
    ],
)
def test_a_page_of_this_node_may_ask_and_another_may_not(host: str, origin: str, status: int) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
        assert status_of(AllowedHosts(["raft.example"]), request(method, host=host, origin=origin)) == status


@pytest.mark.parametrize(
    ("method", "version", "headers", "status"),
    [
        ("GET", "1.0", {}, 200),
        ("HEAD", "1.0", {}, 200),
        ("POST", "1.0", {}, 400),
        ("PUT", "1.0", {}, 400),
        ("GET", "1.0", {"origin": "http://evil.example"}, 400),
        ("GET", "1.1", {}, 400),
        ("PUT", "1.1", {}, 400),
    ],
)
def test_without_a_host_only_old_readers_pass(method: str, version: str, headers: dict[str, str], status: int) -> None:
    assert status_of(AllowedHosts([]), request(method, version, **headers)) == status


def test_a_host_that_was_served_before_makes_no_other_page_welcome() -> None:
    hosts, page = AllowedHosts(()), {"host": "10.0.0.1:8092", "origin": "http://evil.example"}
    for _ in range(2):
        assert status_of(hosts, request(host="10.0.0.1:8092")) == 200
        assert status_of(hosts, request(**page)) == 403
        assert status_of(hosts, request(host="evil.example")) == 421


def test_a_host_that_stands_twice_is_refused() -> None:
    source: Any = None
    twice = ((b"host", b"localhost"), (b"host", b"evil.example"))
    assert status_of(AllowedHosts([]), Request("GET", b"/", b"", twice, source)) == 400


def test_a_nodes_own_names_are_served() -> None:
    given = {
        "node.id": "1", "quorum.voters": "1@one.example:9092", "log.dirs": "/data", "listeners": "in.example:9092",
        "advertised.listeners": "out.example:9092", "http.listener": "0.0.0.0:8092",
        "advertised.http.listener": "web.example:80", "http.allowed.hosts": "more.example, other.example",
    }  # fmt: skip
    hosts = load_settings(None, overrides=[f"{key}={value}" for key, value in given.items()]).allowed_hosts
    names = ("in.example", "out.example", "web.example", "more.example", "other.example", "localhost", "10.0.0.1")
    assert all(hosts.allows(name) for name in names)
    assert not hosts.allows("one.example") and not hosts.allows("evil.example")


# --- over a socket ----------------------------------------------------------------------------------------------------------


def fronted(test: Any) -> None:
    async def main() -> None:
        async with http_front() as on:
            await test(on)

    run(main())


def allows_no_other_site(answer: httpx.Response) -> bool:
    """No header of CORS: a browser shows the answer to no page, and sends no request that needs a leave."""
    return not any(name.startswith("access-control-") for name in answer.headers)


@pytest.mark.parametrize("path", ["/v1/kv", "/v1/kv/a", "/v1/watch", "/v1/quorum", "/metrics", "/health/live", "/nothing"])
def test_every_path_looks_at_host_and_origin(path: str) -> None:
    async def test(on: Front) -> None:
        rebound = await on.client.get(path, headers={"host": "evil.example:8092"})
        foreign = await on.client.get(path, headers={"origin": "http://evil.example"})
        assert (rebound.status_code, foreign.status_code) == (421, 403)
        assert "http.allowed.hosts" in rebound.json()["error"] and "http://evil.example" in foreign.json()["error"]
        assert allows_no_other_site(rebound) and allows_no_other_site(foreign)
        assert on.node.kv.reads == 0

    fronted(test)


def test_a_page_of_this_node_is_served() -> None:
    async def test(on: Front) -> None:
        own = {"origin": f"http://{on.address}"}
        assert (await on.client.post("/v1/txn", json=TXN, headers=own)).status_code == 200
        assert (await on.client.put("/v1/kv/k", content=b"v", headers=own)).status_code == 200
        assert (await on.client.get("/v1/kv/k", headers=own)).content == b"v"

    fronted(test)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "GET"])
def test_a_browser_gets_no_leave_to_write(method: str) -> None:
    """It asks before a PUT or DELETE of another page; there is no yes, whatever Origin it tells."""

    async def test(on: Front) -> None:
        for origin in ("http://evil.example", f"http://{on.address}"):
            asked = {"origin": origin, "access-control-request-method": method}
            for path in ("/v1/kv/k", "/v1/txn"):
                answer = await on.client.options(path, headers=asked)
                assert answer.status_code in (403, 405) and allows_no_other_site(answer)
        assert on.node.kv.proposed == []

    fronted(test)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("text/plain;application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonx", 415),
        ("", 415),
        (None, 415),
    ],
)
def test_a_transaction_has_to_say_that_it_is_json(content_type: str | None, status: int) -> None:
    """A form or a script of any page sends text/plain without asking."""

    async def test(on: Front) -> None:
        headers = {} if content_type is None else {"content-type": content_type}
        answer = await on.client.post("/v1/txn", content=json.dumps(TXN).encode(), headers=headers)
        assert answer.status_code == status
        assert len(on.node.kv.proposed) == (status == 200)
        if status == 415:
            assert "accepted is content-type: application/json" in answer.json()["error"]

    fronted(test)


def test_a_value_is_stored_as_it_comes_whatever_its_type() -> None:
    async def test(on: Front) -> None:
        for content_type in ("text/plain", "image/png"):
            answer = await on.client.put("/v1/kv/k", content=b"raw", headers={"content-type": content_type})
            assert answer.status_code == 200 and allows_no_other_site(answer)

    fronted(test)
