"""The HTTP listeners of a node: all at one, or health and metrics at one that clients of the keys cannot fill."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from raftlake.errors import ConfigError
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.http.front import Serves
from raftlake.runtime.http_fronts import HttpFronts
from raftlake.runtime.metrics import NodeMetrics
from raftlake.runtime.settings.settings import load_settings
from raftlake.runtime.sockets import bind
from raftlake.runtime.work_line import WorkLine
from runtime_fakes import LOOPBACK, address_of, run, until
from runtime_http_fakes import FakeHttpNode, http_front

OPS, KEYS = ("/metrics", "/health/live", "/health/ready"), ("/v1/kv", "/v1/kv/k", "/v1/watch")


@pytest.mark.parametrize(
    ("serves", "here", "elsewhere"),
    [(Serves.ALL, OPS, ()), (Serves.DATA, (), OPS), (Serves.OPS, OPS, (*KEYS, "/v1/txn"))],
)
def test_what_each_listener_serves(serves: Serves, here: tuple[str, ...], elsewhere: tuple[str, ...]) -> None:
    async def main() -> None:
        async with http_front(serves=serves) as on:
            for path in (*here, "/v1/quorum"):
                assert (await on.client.get(path)).status_code == 200, path
            for path in elsewhere:
                answer = await on.client.get(path)
                assert answer.status_code == 404 and "http.ops.listener" in answer.json()["error"], path
            written = await on.client.put("/v1/kv/k", content=b"v")
            assert written.status_code == (404 if serves is Serves.OPS else 200)
            assert len(on.node.kv.proposed) == (0 if serves is Serves.OPS else 1)

    run(main())


def settings_of(directory: Path, **extra: str) -> Any:
    given = {"node.id": "1", "quorum.voters": "1@127.0.0.1:9092", "log.dirs": str(directory), **extra}
    return load_settings(None, overrides=[f"{key.replace('_', '.')}={value}" for key, value in given.items()])


def test_clients_that_fill_the_listener_of_the_keys_do_not_reach_the_health_check(tmp_path: Path) -> None:
    async def main() -> None:
        node: Any = FakeHttpNode()
        clock = SystemClock()
        metrics = NodeMetrics(node, clock, dict)
        settings = settings_of(tmp_path, max_connections="3", http_ops_listener="127.0.0.1:8093")
        loop = asyncio.get_running_loop()
        line = WorkLine(loop, clock.now_us)
        fronts = HttpFronts(settings, node, metrics, WorkLine(loop, clock.now_us), line, clock.now_us, lambda error: None)
        for_keys, for_ops = bind(LOOPBACK, "http.listener"), bind(LOOPBACK, "http.ops.listener")
        keys, ops = address_of(for_keys), address_of(for_ops)
        await fronts.start(for_keys, for_ops)
        slow = [await asyncio.open_connection(keys.host, keys.port) for _ in range(3)]
        await until(lambda: fronts.connection_counts() == {"http": 3, "ops": 0})
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.HTTPError):
                await client.get(f"http://{keys}/v1/quorum")
            assert (await client.get(f"http://{ops}/health/live")).json() == {"live": True}
            assert "raftlake_number_of_voters" in (await client.get(f"http://{ops}/metrics")).text
        for _, writer in slow:
            writer.close()
        fronts.close()
        await fronts.wait_closed()
        await fronts.abandon()

    run(main())


def test_the_listener_is_one_of_the_settings(tmp_path: Path) -> None:
    assert settings_of(tmp_path).http_ops_listener is None
    given = settings_of(tmp_path, http_ops_listener="ops.example:8093")
    assert str(given.http_ops_listener) == "ops.example:8093" and given.allowed_hosts.allows("ops.example")
    with pytest.raises(ConfigError, match=r"the same address as http\.listener"):
        settings_of(tmp_path, http_ops_listener="127.0.0.1:8092")
