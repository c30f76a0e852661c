"""The relations between the core's settings are checked when they are built."""

from __future__ import annotations

import dataclasses

import pytest

from raftlake.errors import ConfigError
from raftlake.raft.config import RaftConfig


def test_defaults_are_kafkas() -> None:
    config = RaftConfig()
    assert (config.election_timeout_ms, config.fetch_timeout_ms, config.retry_backoff_ms) == (1000, 2000, 20)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(RaftConfig) if field.type == "int"])
@pytest.mark.parametrize("value", [0, -1])
def test_no_time_is_zero_or_less(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        RaftConfig(**{name: value})


def test_the_backoff_does_not_exceed_its_bound() -> None:
    with pytest.raises(ConfigError, match=r"retry\.backoff"):
        RaftConfig(retry_backoff_ms=50, retry_backoff_ms_max=49)


def test_the_jitter_does_not_exceed_the_election_timeout() -> None:
    with pytest.raises(ConfigError, match=r"jitter"):
        RaftConfig(election_timeout_ms=40, election_jitter_ms_max=41)


def test_check_quorum_takes_one_and_a_half_fetch_timeouts() -> None:
    assert RaftConfig(fetch_timeout_ms=2001).check_quorum_timeout_ms == 3001
