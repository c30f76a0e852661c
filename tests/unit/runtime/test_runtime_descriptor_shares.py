"""Who gets how many of a process's file descriptors, and what a node says and serves where they are few."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from descriptorkit import soft_limit
from raftlake.errors import ConfigError
from raftlake.runtime.admission import OBSERVERS_MAX, PLACES_PER_NODE
from raftlake.runtime.descriptor_shares import LIMIT_MIN, DescriptorShares, shares_of
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.server import NodeServer, serve
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.storage.descriptors import LIMIT_MAX, limit, spares
from runtime_fakes import run


def settings_of(directory: Path, **extra: str) -> Settings:
    listener, http = free_ports("127.0.0.1", 2)
    given = {
        "node.id": "1", "quorum.voters": f"1@127.0.0.1:{listener}", "log.dirs": str(directory),
        "http.listener": f"127.0.0.1:{http}", **{key.replace("_", "."): value for key, value in extra.items()},
    }  # fmt: skip
    return load_settings(None, overrides=[f"{key}={value}" for key, value in given.items()])


@pytest.fixture
def _process_state() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, thresholds = root.handlers[:], root.level, gc.get_threshold()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.parametrize("listeners", [2, 3, 4])
def test_no_share_is_taken_twice(listeners: int) -> None:
    for most in [*range(LIMIT_MIN, 5_000, 7), 65_536, LIMIT_MAX]:
        shares = DescriptorShares.of(most, listeners=listeners, wanted=2_000)
        assert shares.own + shares.peers + listeners * shares.connections + shares.files <= most
        assert 0 < shares.connections <= 2_000 and shares.files > 0
        if most >= 1_024:
            # Beside clients there is room for all that may have a node's place, in a quorum of three.
            assert shares.peers > OBSERVERS_MAX + 3 * PLACES_PER_NODE


def test_a_usual_limit_leaves_all_connections_and_a_shells_some() -> None:
    assert DescriptorShares.of(65_536, listeners=3, wanted=2_000).connections == 2_000
    # The number that the documents name.
    assert [DescriptorShares.of(most, listeners=2, wanted=2_000).connections for most in (9_151, 9_152)] == [1_999, 2_000]
    few = DescriptorShares.of(1_024, listeners=2, wanted=2_000)
    assert (few.own, few.peers, few.connections, few.files) == (128, 204, 173, 346)
    assert DescriptorShares.of(1_024, listeners=2, wanted=100).files == 692 - 200


def test_each_listener_has_its_share(tmp_path: Path) -> None:
    ports = free_ports("127.0.0.1", 2)
    both = {"controller_listener": f"127.0.0.1:{ports[0]}", "http_ops_listener": f"127.0.0.1:{ports[1]}"}
    assert shares_of(settings_of(tmp_path), 1_024).connections == 692 // 2 // 2
    assert shares_of(settings_of(tmp_path, **both), 1_024).connections == 692 // 2 // 4


def test_what_holds_is_said_once_and_limits_one_address_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = settings_of(tmp_path)
    with caplog.at_level(logging.INFO):
        held = shares_of(settings, 1_024).held_to(settings)
    (told,) = caplog.messages
    assert "ulimit -n" in told and "each_listener=173 asked=2000 limit=1024" in told
    assert held.connections_max == 173
    caplog.clear()
    assert shares_of(settings, 65_536).held_to(settings).connections_max == 2_000 and caplog.messages == []
    addresses = held.new_address_limit()
    for _ in range(86):
        addresses.take("10.0.0.1")
    assert not addresses.has_room("10.0.0.1"), "half of what holds, and not of what was asked for"


@pytest.mark.usefixtures("_process_state")
def test_a_node_with_few_descriptors_serves_fewer_and_shows_how_many(tmp_path: Path) -> None:
    format_data_dir(tmp_path, 1, "c")
    settings = settings_of(tmp_path)

    async def main() -> None:
        server = NodeServer(settings, asyncio.get_running_loop())
        try:
            await server.start()
            async with httpx.AsyncClient(base_url=f"http://{settings.http_listener}", trust_env=False) as client:
                text = (await client.get("/metrics")).text
            assert "raftlake_connections_max 173.0" in text
            assert server._logs is not None and server._logs._pool._limit == 346
            listeners = list(server._listeners.values())
            assert [each._admission._guests_max for each in listeners] == [173 + 204]
            server.stop()
            assert await server.run() == 0
        finally:
            server.close()

    with soft_limit(1_024):
        run(main())
    assert spares.count == 0


@pytest.mark.usefixtures("_process_state")
def test_serve_raises_the_limit_for_itself_and_its_children(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path)
    with soft_limit(1_024):
        assert serve(settings, {}) == 1
        assert limit() > 1_024
    assert "is not formatted" in capsys.readouterr().err


def test_with_next_to_nothing_a_node_does_not_start() -> None:
    with pytest.raises(ConfigError, match=r"may have 255 files .*ulimit -n.*needs 256 or more, and 9152 to serve"):
        DescriptorShares.of(255, listeners=2, wanted=2_000)
    assert DescriptorShares.of(256, listeners=4, wanted=2_000).connections > 0
