"""The settings of the remote tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlake.errors import ConfigError
from raftlake.replica.configs.in_force import in_force
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.runtime.settings.tier import NEEDED, TierLocation, parse_tier_uri, require_packages

BASE = {"node.id": "1", "quorum.voters": "1@127.0.0.1:9092", "log.dirs": "/data/one"}


def settings(**given: str) -> Settings:
    return load_settings(None, overrides=[f"{key}={value}" for key, value in {**BASE, **given}.items()])


def test_a_node_without_a_tier_knows_nothing_of_one() -> None:
    assert settings().tier is None


def test_the_defaults_of_a_tier() -> None:
    loaded = settings(**{"tier.uri": "/tables/"})
    expected = TierLocation(uri="/tables", target_lag_ms=60_000, flush_bytes=32 << 20, request_timeout_ms=120_000)
    assert loaded.tier == expected
    config = loaded.node_config(cluster_id=None, directory_id=bytes(16))
    assert (config.tier_target_lag_ms, config.tier_flush_bytes) == (60_000, 32 << 20)


def test_what_is_given_reaches_the_driver() -> None:
    given = {
        "tier.uri": "s3a://b/p",
        "tier.target.lag.ms": "5000",
        "tier.flush.bytes": "65536",
        "tier.request.timeout.ms": "9000",
    }
    loaded = settings(**given)
    assert loaded.tier == TierLocation(uri="s3a://b/p", target_lag_ms=5_000, flush_bytes=65_536, request_timeout_ms=9_000)
    config = loaded.node_config(cluster_id=None, directory_id=bytes(16))
    assert (config.tier_target_lag_ms, config.tier_flush_bytes) == (5_000, 65_536)


@pytest.mark.parametrize(
    ("whole", "local", "kept"), [("-1", "-2", -1), ("-1", "7", 7), ("9", "-2", 9), ("9", "9", 9), ("9", "8", 8), ("9", "0", 0)]
)
def test_local_disks_keep_the_recent_part(whole: str, local: str, kept: int) -> None:
    given = {"tier.uri": "/t", "retention.bytes": whole, "local.retention.bytes": local}
    config = settings(**given).node_config(cluster_id=None, directory_id=bytes(16))
    assert (config.retention_bytes, in_force({}, config).local_bytes) == (int(whole), kept)
    given = {"tier.uri": "/t", "retention.ms": whole, "local.retention.ms": local}
    config = settings(**given).node_config(cluster_id=None, directory_id=bytes(16))
    assert (config.retention_ms, in_force({}, config).local_ms) == (int(whole), kept)


@pytest.mark.parametrize(
    "uri", ["/t", "file:///t", "s3://b", "s3a://b/p/q", "az://c/p", "abfss://c@a.dfs.core.windows.net/p", "gs://b/p"]
)
def test_places_that_delta_rs_opens(uri: str) -> None:
    assert parse_tier_uri("tier.uri", uri) == parse_tier_uri("tier.uri", f"{uri}/") == uri


@pytest.mark.parametrize("missing", [NEEDED[:1], NEEDED[1:], NEEDED])
def test_a_missing_package_is_one_line_that_says_how_to_install_it(missing: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"tier\.uri=/t: the tier needs .*: pip install 'raftlake\[tier\]'") as raised:
        require_packages("tier.uri", "/t", lambda name: None if name in missing else name)
    assert all(name in str(raised.value) for name in missing)
    require_packages("tier.uri", "/t", lambda name: name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"tier.uri": "s3://me:pa55@bucket/history"},
            r"tier\.uri=s3://bucket/history: has a password; .* AWS_SECRET_ACCESS_KEY",
        ),
        ({"tier.uri": "s3://:pa55@bucket/history"}, "has a password"),
        ({"tier.uri": "ftp://me:pa55@bucket"}, "has a password"),
        ({"tier.uri": "az://c/p?sv=1&sig=pa55"}, r"tier\.uri=az://c/p: has a query or a fragment, .* environment"),
        ({"tier.uri": "az://c/p#pa55"}, "has a query or a fragment"),
        (
            {"tier.uri": "s3://b", "tier.storage.aws_secret_access_key": "pa55"},
            r"key: unknown setting .* environment, .* AWS_SEC",
        ),
        ({"s3.secret": "pa55"}, r"s3\.secret: unknown setting"),
    ],
)
def test_secrets_are_refused_and_not_repeated(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        settings(**given)
    assert "pa55" not in str(raised.value)


def test_secrets_are_not_repeated_where_two_values_contradict_or_a_variable_has_a_slip(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("retention.bytes=1\nlog.retention.bytes=http://me:pa55@host\n")
    with pytest.raises(ConfigError, match=r"contradicts retention\.bytes=1") as raised:
        load_settings(file)
    assert "pa55" not in str(raised.value)
    with pytest.raises(ConfigError, match="did you mean RAFTLAKE_TIER_URI") as raised:
        load_settings(None, environ={"RAFTLAKE_TIER_URL": "s3://me:pa55@bucket"})
    assert "pa55" not in str(raised.value)


@pytest.mark.parametrize("uri", ["/var/history", "s3://bucket/h", "abfss://container@account.dfs.core.windows.net/history"])
def test_clients_are_told_the_place(uri: str) -> None:
    """A name alone is the container of Azure, and no secret."""
    config = settings(**{"tier.uri": uri}).node_config(cluster_id=None, directory_id=bytes(16))
    assert config.tier_uri == uri
