"""The small pieces of the shell: log lines, the clock, the loop, listening sockets, ApiVersions."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from raftlake.errors import ConfigError, MachineError
from raftlake.raft.types import Offset
from raftlake.replica.config import Endpoint
from raftlake.runtime import loop as loops
from raftlake.runtime.clock import SystemClock
from raftlake.runtime.listener.api_versions import answer_api_versions
from raftlake.runtime.log import configure_logging, event, quote
from raftlake.runtime.sockets import bind
from raftlake.wire.api import API_TABLE, ApiKey, RequestHeader, decode_response, encode_response


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        (5, "5"),
        ("two words", "'two words'"),
        ("", "''"),
        ("a\nb", r"'a\nb'"),
        ('q"', "'q\"'"),
        ("a=b", "'a=b'"),
    ],
)
def test_a_fact_stays_on_its_line(value: object, expected: str) -> None:
    assert quote(value) == expected


def test_an_event_is_one_line_of_facts(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("raftlake.test")
    with caplog.at_level(logging.INFO, logger="raftlake.test"):
        event(logger, logging.INFO, "closing connection", peer="h", client="evil\nline")
        event(logger, logging.DEBUG, "not this one")
    assert caplog.messages == [r"closing connection peer=h client='evil\nline'"]


def test_logging_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        configure_logging()
        logging.getLogger("raftlake.test").info("hello")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(" INFO raftlake.test hello\n")
    assert captured.err[10] == "T" and captured.err[23] == "Z"


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.now_us() for _ in range(100)]
    assert times == sorted(times)
    assert abs(clock.now_ms() - clock.now_us() // 1000) <= 100
    assert clock.wall_ms() > 1_700_000_000_000


def test_runs_on_the_chosen_loop() -> None:
    async def which() -> str:
        return type(asyncio.get_running_loop()).__module__

    loop = loops.new_event_loop()
    loop.close()
    assert loops.run(which()) == type(loop).__module__


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with bind(Endpoint("127.0.0.1", 0), "listeners") as first:
        port = first.getsockname()[1]
        with pytest.raises(
            MachineError, match=rf"http\.listener=127\.0\.0\.1:{port}: cannot listen on port {port}: Address already"
        ):
            bind(Endpoint("127.0.0.1", port), "http.listener")
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"listeners=192\.0\.2\.1:\d+: cannot listen"):
        bind(Endpoint("192.0.2.1", 5), "listeners")
    with pytest.raises(ConfigError, match="no such address on this machine"):
        bind(Endpoint("no.such.host.invalid", 5), "listeners")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_clients_may_use(version: int) -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, version, 7, None)
    frame = b"".join(encode_response(header, answer_api_versions(version)))
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, version, frame[4:])
    assert correlation_id == 7
    listed = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert listed == {api.key: (api.version_min, api.version_max) for api in API_TABLE.values() if api.public}
    assert ApiKey.READ_OFFSET not in listed


@pytest.mark.parametrize(
    ("version", "finalized", "told"),
    [(3, (1, 7), (-1, [])), (4, (0, -1), (-1, [])), (4, (0, 7), (7, [])), (4, (1, 7), (7, [("kraft.version", 1, 1)]))],
)
def test_api_versions_tells_the_kraft_version_that_the_log_has(
    version: int, finalized: tuple[int, int], told: tuple[int, list[tuple[str, int, int]]]
) -> None:
    """As at Kafka: without an epoch nothing is known, and a feature at level 0 is none."""
    header = RequestHeader(ApiKey.API_VERSIONS, version, 7, None)
    level, epoch = finalized
    answer: Any = answer_api_versions(version, finalized=(level, Offset(epoch)))
    _, decoded = decode_response(ApiKey.API_VERSIONS, version, b"".join(encode_response(header, answer))[4:])
    found = [(each.name, each.min_version_level, each.max_version_level) for each in decoded.finalized_features]
    assert (decoded.finalized_features_epoch, found) == told


@pytest.mark.parametrize(("version", "level"), [(3, 2), (4, 0), (4, 2)])
def test_api_versions_tells_the_transaction_version_that_all_nodes_know(version: int, level: int) -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, version, 7, None)
    answer: Any = answer_api_versions(version, finalized=(0, Offset(9)), transaction_version=level)
    _, decoded = decode_response(ApiKey.API_VERSIONS, version, b"".join(encode_response(header, answer))[4:])
    found = [(each.name, each.min_version_level, each.max_version_level) for each in decoded.finalized_features]
    assert found == ([("transaction.version", 2, 2)] if (version, level) == (4, 2) else [])
    supported = [(each.name, each.min_version, each.max_version) for each in decoded.supported_features]
    assert (("transaction.version", 0, 2) in supported) is (version == 4)
