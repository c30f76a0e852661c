"""Settings: every name and default, the order of the three sources, and one clear error for each way to be wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raftlake.errors import ConfigError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.config import RaftConfig
from raftlake.raft.types import NodeId
from raftlake.replica.config import METADATA_GROUP, REPLICA_LAG_MS_MAX, Endpoint
from raftlake.runtime.settings.names import KNOWN, NUMBERS, SYNONYMS, TEXTS, gather
from raftlake.runtime.settings.parsing import is_wildcard, parse_endpoint
from raftlake.runtime.settings.settings import Settings, load_settings
from raftlake.storage import directory

BASE = {"node.id": "1", "quorum.voters": "1@127.0.0.1:9092,2@127.0.0.1:9093,3@127.0.0.1:9094", "log.dirs": "/data/one"}


DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_document_has_each_setting_as_it_is() -> None:
    """Key, default, range and environment form of every setting, and nothing else."""
    rows = [[cell.strip("` ") for cell in line.strip("|").split(" | ")] for line in DOCUMENT.read_text().splitlines()]
    told = {row[0]: row[1:] for row in rows if len(row) in (4, 6) and row[0] not in ("key", "---")}
    assert set(told) == TEXTS | set(NUMBERS)
    for name, cells in told.items():
        assert all(cells), name
        assert list(gather(None, {cells[-1]: "1"}, ())) == [name]
        if name in NUMBERS:
            number = NUMBERS[name]
            assert (cells[0], cells[2]) == (str(number.default), f"{number.low} to {number.high}"), name
            unit = cells[1]
            assert unit in ("bytes", "ms", "connections", "partitions", "ids"), name
            # Kafka's name of one of them says size.
            assert name.endswith((unit, ".buffer.size")) or "." + unit in name, name


def test_segments_have_the_size_and_the_limit_of_the_storage() -> None:
    """Which the settings do not import: it takes long, and the reader of a node that joins starts before it."""
    number = NUMBERS["log.segment.bytes"]
    assert (number.default, number.high) == (directory.SEGMENT_BYTES, directory.SEGMENT_BYTES_MAX)


def test_the_document_tells_the_defaults_of_the_texts() -> None:
    told = DOCUMENT.read_text()
    alone = load_settings(None, environ={"RAFTLAKE_" + key.upper().replace(".", "_"): value for key, value in BASE.items()})
    for row, found in (
        ("| `quorum.auto.join.enable` | false |", alone.auto_join is False),
        ("| `quorum.kraft.version` | 1; 0 with `quorum.topic` |", alone.raft.voters_in_log),
        ("| `quorum.topic` | `__cluster_metadata` |", alone.quorum_group == METADATA_GROUP),
        ("| `listeners` | the address that `quorum.voters` gives this node;", alone.listener == Endpoint("127.0.0.1", 9092)),
        ("| `http.listener` | the host of `listeners`, port 8092 |", alone.http_listener == Endpoint("127.0.0.1", 8092)),
        ("| `advertised.listeners` | `listeners`;", alone.advertised_listener == alone.listener),
        ("| `advertised.http.listener` | `http.listener`;", alone.advertised_http_listener == alone.http_listener),
        ("| `controller.listener` | none |", alone.controller_listener is None),
        ("| `quorum.bootstrap.servers` | none |", alone.bootstrap_servers == ()),
    ):
        assert row in told and found, row


def test_the_document_names_the_other_spellings() -> None:
    told = set(re.findall(r"`([a-z.]+)` for `([a-z.]+)`", DOCUMENT.read_text()))
    assert told == set(SYNONYMS.items())


def settings(
    extra: dict[str, str] | None = None, *, without: str | None = None, environ: dict[str, str] | None = None
) -> Settings:
    values = {**BASE, **(extra or {})}
    if without is not None:
        del values[without]
    return load_settings(None, environ=environ, overrides=[f"{key}={value}" for key, value in values.items()])


def test_three_settings_are_enough() -> None:
    loaded = settings()
    assert loaded.node_id == 1
    assert loaded.voters == {1: Endpoint("127.0.0.1", 9092), 2: Endpoint("127.0.0.1", 9093), 3: Endpoint("127.0.0.1", 9094)}
    assert loaded.data_dir == Path("/data/one")
    assert loaded.listener == loaded.advertised_listener == Endpoint("127.0.0.1", 9092)
    assert loaded.controller_listener is None
    assert loaded.http_listener == loaded.advertised_http_listener == Endpoint("127.0.0.1", 8092)
    assert loaded.raft == RaftConfig()
    assert (loaded.retention_bytes, loaded.retention_ms) == (-1, -1)
    assert (loaded.connections_max, loaded.request_bytes_max) == (2000, 100 * 1024 * 1024)


def test_another_log_than_the_metadata_log() -> None:
    assert settings().quorum_group == METADATA_GROUP
    given = {"quorum.topic": "__raft_performance_test", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAg"}
    loaded = settings(given)
    assert loaded.quorum_group == GroupId("__raft_performance_test", 0, bytes(15) + b"\x02")
    config = loaded.node_config(cluster_id=None, directory_id=bytes(16))
    assert config.quorum_group == loaded.quorum_group and config.is_opaque
    named = {"quorum.topic": "__cluster_metadata", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert not settings(named).node_config(cluster_id=None, directory_id=bytes(16)).is_opaque


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"quorum.topic": "t"}, "quorum.topic=t: needs quorum.topic.id too"),
        ({"quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAg"}, "needs quorum.topic too"),
        ({"quorum.topic": "a/b", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAg"}, "quorum.topic=a/b: not a topic's name"),
        ({"quorum.topic": "..", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAg"}, "not a topic's name"),
        ({"quorum.topic": "t", "quorum.topic.id": "short"}, "quorum.topic.id=short: not a topic id"),
        ({"quorum.topic": "t", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAA"}, "the zero id names no topic"),
        ({"quorum.topic": "t", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAQ"}, "belongs to __cluster_metadata"),
        ({"quorum.topic": "__cluster_metadata", "quorum.topic.id": "AAAAAAAAAAAAAAAAAAAAAg"}, "does not go with"),
    ],
)
def test_half_a_log_or_a_wrong_one_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        settings(given)


def test_an_observer_listens_on_the_usual_port() -> None:
    assert settings({"node.id": "7"}).listener == Endpoint("127.0.0.1", 9092)


@pytest.mark.parametrize("prefix", ["", "controller."])
def test_timing_in_both_spellings(prefix: str) -> None:
    raft = settings(
        {
            f"{prefix}quorum.election.timeout.ms": "500",
            f"{prefix}quorum.fetch.timeout.ms": "700",
            f"{prefix}quorum.election.jitter.max.ms": "30",
            f"{prefix}quorum.retry.backoff.ms": "10",
            f"{prefix}quorum.retry.backoff.max.ms": "400",
            f"{prefix}quorum.request.timeout.ms": "900",
        }
    ).raft
    assert raft == RaftConfig(
        election_timeout_ms=500,
        fetch_timeout_ms=700,
        election_jitter_ms_max=30,
        retry_backoff_ms=10,
        retry_backoff_ms_max=400,
        request_timeout_ms=900,
    )


def test_kafkas_name_of_the_jitter() -> None:
    assert settings({"controller.quorum.election.backoff.max.ms": "77"}).raft.election_jitter_ms_max == 77


def test_the_later_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("node.id=1\nlog.dirs=/file\nquorum.voters=1@h:1\nmax.connections=10\nretention.ms=5\n")
    environ = {"RAFTLAKE_MAX_CONNECTIONS": "20", "RAFTLAKE_CONTROLLER_QUORUM_VOTERS": "1@h:2", "HOME": "/x"}
    loaded = load_settings(file, environ=environ, overrides=["max.connections=30"])
    assert (loaded.connections_max, loaded.retention_ms) == (30, 5)
    assert loaded.voters == {1: Endpoint("h", 2)}


def test_variables_of_container_platforms_are_no_settings() -> None:
    environ = {"RAFTLAKE_SERVICE_HOST": "10.0.0.1", "RAFTLAKE_PORT_9092_TCP": "tcp://x", "RAFTLAKE_PARENT_FD": "3"}
    assert settings(environ=environ) == settings()


def test_listeners() -> None:
    loaded = settings(
        {"listeners": "PLAINTEXT://0.0.0.0:9192,CONTROLLER://127.0.0.1:9292", "http.listener": "http://[::1]:8000/"}
    )
    assert loaded.listener == Endpoint("0.0.0.0", 9192)
    assert loaded.advertised_listener == Endpoint("127.0.0.1", 9192)
    assert loaded.controller_listener == Endpoint("127.0.0.1", 9292)
    assert loaded.http_listener == Endpoint("::1", 8000)
    other = settings(
        {"listeners": "h:1", "controller.listener": "CONTROLLER://h:2", "advertised.listeners": "PLAINTEXT://name:3"}
    )
    assert other.controller_listener == Endpoint("h", 2)
    assert other.advertised_listener == Endpoint("name", 3)


def test_a_voter_is_not_looked_for_at_its_listener_for_clients() -> None:
    """Peers are refused there as soon as they have a listener of their own."""
    with pytest.raises(ConfigError, match=re.escape("quorum.voters=1@127.0.0.1:9092,2@")) as refused:
        settings({"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"})
    assert "accepted is where peers reach listeners=127.0.0.1:9192" in str(refused.value)
    with pytest.raises(ConfigError, match=re.escape("controller.listener=127.0.0.1:9192")):
        settings({"listeners": "127.0.0.1:9092", "controller.listener": "127.0.0.1:9192"})
    apart = {"listeners": "127.0.0.1:9292", "controller.listener": "0.0.0.0:9092"}
    assert settings(apart).peers[NodeId(1)] == Endpoint("127.0.0.1", 9092)


def test_peers_are_told_an_address_that_they_can_connect_to() -> None:
    def own(extra: dict[str, str]) -> Endpoint:
        return settings(extra, without="quorum.voters").node_config(cluster_id=None, directory_id=bytes(16)).own_address

    joining = {"quorum.bootstrap.servers": "h:1", "advertised.listeners": "PLAINTEXT://name:3"}
    assert own(joining) == Endpoint("name", 3)
    assert own({**joining, "controller.listener": "CONTROLLER://inside:2"}) == Endpoint("inside", 2)
    assert own({**joining, "controller.listener": "CONTROLLER://0.0.0.0:2"}) == Endpoint("name", 2)


@pytest.mark.parametrize("prefix", ["", "controller."])
def test_a_node_joins_by_itself_only_where_it_is_told_to(prefix: str) -> None:
    assert not settings().auto_join
    loaded = settings({f"{prefix}quorum.auto.join.enable": "true"})
    assert loaded.auto_join and loaded.node_config(cluster_id=None, directory_id=bytes(16)).auto_join
    assert not settings({f"{prefix}quorum.auto.join.enable": "False"}).auto_join
    with pytest.raises(ConfigError, match=rf"{prefix}quorum\.auto\.join\.enable=yes: accepted is true or false"):
        settings({f"{prefix}quorum.auto.join.enable": "yes"})


def test_a_wildcard_http_listener_is_advertised_by_name() -> None:
    assert settings({"http.listener": "0.0.0.0:80"}).advertised_http_listener == Endpoint("127.0.0.1", 80)
    assert settings({"advertised.http.listener": "gate:81"}).advertised_http_listener == Endpoint("gate", 81)


def test_what_the_driver_is_told() -> None:
    config = settings({"retention.bytes": "5", "message.max.bytes": "2048"}).node_config(cluster_id="c", directory_id=b"d" * 16)
    assert (config.node_id, config.cluster_id, config.directory_id) == (1, "c", b"d" * 16)
    assert (config.retention_bytes, config.message_bytes_max) == (5, 2048)
    assert config.listener == Endpoint("127.0.0.1", 9092)
    assert config.http_listener == Endpoint("127.0.0.1", 8092)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"quorum.voter": "1@h:1"}, r"quorum\.voter: unknown setting in --set; did you mean quorum\.voters\?"),
        ({"controller.quorum.fetch.timeout": "1"}, "did you mean controller.quorum.fetch.timeout.ms"),
        ({"zzz": "1"}, r"zzz: unknown setting .* the known ones are .*quorum\.voters"),
        ({"node.id": "one"}, r"node\.id=one: not a whole number; accepted is 0 to 2147483647"),
        ({"node.id": "-1"}, r"node\.id=-1: out of range; accepted is 0 to"),
        ({"node.id": "\u0663"}, "not a whole number"),
        ({"quorum.voters": "1@h"}, r"quorum\.voters=1@h: '1@h' is not an address; accepted is 1@host:port"),
        ({"quorum.voters": "2@h:1,1@"}, r"quorum\.voters=2@h:1,1@: '1@' is not an address; accepted is 1@host:port"),
        ({"quorum.bootstrap.servers": "h:1,"}, r"quorum\.bootstrap\.servers=h:1,: '' is not an address; accepted is host:port"),
        ({"quorum.voters": "h:1"}, r"'h:1' is no voter; accepted is a list like 1@host:9092"),
        ({"quorum.voters": "1@@h:1"}, r"quorum\.voters=1@@h:1: '1@@h:1' is not an address; accepted is 1@host:port"),
        ({"quorum.voters": "1@h:1,1@h:2"}, "voter 1 is listed twice"),
        ({"quorum.voters": "1@h:1,2@h:1"}, "two voters share the address h:1"),
        ({"quorum.voters": "1@h:0"}, "'h:0' is no address that others can connect to"),
        ({"quorum.voters": "1@h:70000"}, "port 70000 is out of range"),
        ({"controller.quorum.voters": "1@other:1"}, r"controller\.quorum\.voters=1@other:1: contradicts quorum\.voters="),
        ({"log.dirs": "/a,/b"}, r"log\.dirs=/a,/b: several directories; accepted is exactly one"),
        ({"listeners": "SSL://h:1"}, r"listeners=SSL://h:1: unknown listener SSL; accepted are PLAINTEXT"),
        ({"listeners": "h:1,PLAINTEXT://h:2"}, "two PLAINTEXT listeners"),
        ({"listeners": "CONTROLLER://h:1"}, "no listener for clients"),
        ({"listeners": "h"}, "listeners=h: 'h' is not an address"),
        ({"listeners": "0.0.0.0:1", "node.id": "9"}, r"advertised\.listeners is not set, but listeners=0\.0\.0\.0:1"),
        ({"listeners": "h:1,CONTROLLER://h:2", "controller.listener": "h:3"}, r"controller\.listener=h:3: contradicts"),
        ({"advertised.listeners": "0.0.0.0:1"}, "no client can connect to that address"),
        ({"advertised.listeners": "h:1,CONTROLLER://h:2"}, r"advertised\.listeners=.*accepted is one PLAINTEXT"),
        ({"http.listener": "127.0.0.1:9092"}, r"http\.listener=127\.0\.0\.1:9092: the same address as listeners"),
        ({"http.listener": "https://h:1"}, r"http\.listener=https://h:1: unknown scheme https"),
        ({"quorum.election.timeout.ms": "5"}, r"quorum\.election\.timeout\.ms=5: out of range; accepted is 10 to 600000"),
        (
            {"quorum.retry.backoff.ms": "2000"},
            r"quorum\.retry\.backoff\.ms=2000 must not exceed quorum\.retry\.backoff\.max\.ms=1000",
        ),
        (
            {"controller.quorum.election.timeout.ms": "40"},
            r"quorum\.election\.jitter\.max\.ms=50 must not exceed controller\.quorum\.election\.timeout\.ms=40",
        ),
        ({"log.segment.bytes": "1"}, r"log\.segment\.bytes=1: out of range"),
        ({"retention.ms": "-2"}, r"retention\.ms=-2: out of range; accepted is -1 to"),
        (
            {"local.retention.ms": "1000"},
            r"local\.retention\.ms=1000: differs from retention\.ms=-1, which needs a remote tier",
        ),
        ({"message.max.bytes": "104857600"}, r"message\.max\.bytes=104857600: does not fit into socket\.request\.max\.bytes"),
        ({"socket.request.max.bytes": "99999999999"}, r"socket\.request\.max\.bytes=99999999999: out of range"),
        (
            {"queued.max.request.bytes": "1048576"},
            r"socket\.request\.max\.bytes=104857600 must not exceed queued\.max\.request\.bytes=1048576",
        ),
        ({"max.connections": "0"}, r"max\.connections=0: out of range; accepted is 1 to"),
        ({"tier.flush.bytes": "70000"}, r"tier\.flush\.bytes=70000: has no meaning without tier\.uri"),
        ({"tier.uri": "tables"}, r"tier\.uri=tables: no absolute path; accepted is an absolute path, or file://"),
        ({"tier.uri": "hdfs://h/p"}, r"tier\.uri=hdfs://h/p: unknown scheme hdfs"),
        ({"tier.uri": "s3:///p"}, r"tier\.uri=s3:///p: names no bucket"),
        ({"tier.uri": "s3://b/p?x=1"}, r"has a query or a fragment"),
        ({"tier.uri": "/t", "tier.flush.bytes": "1"}, r"tier\.flush\.bytes=1: out of range"),
        (
            {"tier.uri": "/t", "retention.ms": "9", "local.retention.ms": "10"},
            r"local\.retention\.ms=10: is more than",
        ),
        (
            {"tier.uri": "/t", "retention.ms": "9", "local.retention.ms": "-1"},
            r"local\.retention\.ms=-1: is more than",
        ),
    ],
)
def test_one_line_says_what_is_wrong(extra: dict[str, str], message: str) -> None:
    overrides = [f"{key}={value}" for key, value in BASE.items() if key not in extra]
    with pytest.raises(ConfigError, match=message) as raised:
        load_settings(None, overrides=[*overrides, *(f"{key}={value}" for key, value in extra.items())])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("missing", sorted(BASE))
def test_a_missing_setting_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is not set; accepted is"):
        settings(without=missing)


def test_a_local_retention_that_says_the_same_is_fine() -> None:
    assert settings({"retention.ms": "1000", "local.retention.ms": "1000"}).retention_ms == 1000


def test_an_environment_variable_with_a_slip_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"RAFTLAKE_QUORUM_VOTER: .* did you mean RAFTLAKE_QUORUM_VOTERS\?"):
        settings(environ={"RAFTLAKE_QUORUM_VOTER": "x"})


def test_the_error_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text("nod.id=1\n")
    with pytest.raises(ConfigError, match=f"nod.id: unknown setting in {file}; did you mean node.id"):
        load_settings(file)
    with pytest.raises(ConfigError, match=r"cannot read the settings file .*missing: No such file"):
        load_settings(tmp_path / "missing")
    file.write_bytes(b"node.id=\xff")
    with pytest.raises(ConfigError, match=r"is not UTF-8 \(byte 8\)"):
        load_settings(file)


@pytest.mark.parametrize("override", ["node.id", "=1"])
def test_an_override_needs_a_key_and_a_value(override: str) -> None:
    with pytest.raises(ConfigError, match="accepted is --set key=value"):
        load_settings(None, overrides=[override])


def test_endpoints() -> None:
    assert parse_endpoint("k", "[::1]:5") == Endpoint("::1", 5)
    assert is_wildcard("::") and is_wildcard("") and not is_wildcard("localhost")


def test_the_table_of_names_is_consistent() -> None:
    assert sorted(KNOWN) == sorted([*NUMBERS, *TEXTS])
    assert all(number.low <= number.default <= number.high for number in NUMBERS.values())


@pytest.mark.parametrize(("fetch_timeout", "wait_ms"), [("2000", 500), ("60000", 500), ("400", 100), ("10", 2)])
def test_an_idle_follower_hears_of_its_leader_before_it_takes_it_for_lost(fetch_timeout: str, wait_ms: int) -> None:
    loaded = settings({"quorum.fetch.timeout.ms": fetch_timeout})
    assert loaded.node_config(cluster_id=None, directory_id=bytes(16)).replica_fetch_wait_ms == wait_ms


def test_connections_of_one_address() -> None:
    """By default no address takes all, and what runs on one machine is spared."""
    limit = settings({"max.connections": "10"}).new_address_limit()
    assert limit.setting == "max.connections.per.ip=5"
    for _ in range(5):
        limit.take("10.0.0.1")
        limit.take("127.0.0.1")
    assert not limit.has_room("10.0.0.1") and limit.has_room("127.0.0.1")
    given = settings({"max.connections": "10", "max.connections.per.ip": "1"}).new_address_limit()
    given.take("127.0.0.1")
    assert not given.has_room("127.0.0.1")
    assert settings({"max.connections": "1"}).new_address_limit().has_room("10.0.0.1")


def test_networks_of_peers() -> None:
    assert settings().peer_networks == ()
    given = settings({"peer.address.allow": "10.0.0.0/8, 192.168.1.7,fd00::/8"}).peer_networks
    assert [str(network) for network in given] == ["10.0.0.0/8", "192.168.1.7/32", "fd00::/8"]
    for wrong in ("10.0.0.1/8", "h", "10.0.0.0/8,,", "10.0.0.0/33"):
        with pytest.raises(ConfigError, match=re.escape(f"peer.address.allow={wrong}: ")):
            settings({"peer.address.allow": wrong})


def test_the_time_that_a_replica_may_lag_reaches_the_node() -> None:
    told = settings({"replica.lag.time.max.ms": "1000"}).node_config(cluster_id=None, directory_id=bytes(16))
    assert told.replica_lag_ms_max == 1_000
    alone = settings()
    assert alone.replica_lag_ms_max == 2 * alone.raft.fetch_timeout_ms == REPLICA_LAG_MS_MAX
    assert settings({"replica.lag.time.max.ms": "600000"}).replica_lag_ms_max == 600_000
    for wrong in ("999", "600001", "soon", "-1"):
        with pytest.raises(ConfigError, match=r"replica\.lag\.time\.max\.ms"):
            settings({"replica.lag.time.max.ms": wrong})
