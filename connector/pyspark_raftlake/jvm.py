"""The jar of the JVM side: where it is, and the settings under which Spark finds `raftlake://` and the catalog in it.

Those that begin with `spark.hadoop.` Spark hands to the Hadoop configuration of the driver and of each executor, and those of
its SQL session too. Their names are those that the classes of the jar and Spark read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raftlake.errors import ConfigError, RaftlakeError

JARS_SETTING = "spark.jars"
HTTP_SERVERS_SETTING = "spark.hadoop.raftlake.http.servers"
BOOTSTRAP_SERVERS_SETTING = "spark.hadoop.raftlake.bootstrap.servers"
#: Topics as tables `raftlake.<topic>`, and what `raftlake://` is.
_CLASSES = {
    "spark.sql.catalog.raftlake": "io.raftlake.spark.connector.RaftlakeCatalog",
    "spark.hadoop.fs.raftlake.impl": "io.raftlake.spark.RaftlakeFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.raftlake.impl": "io.raftlake.spark.RaftlakeAbstractFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": "io.raftlake.spark.QuorumCheckpointFileManager",
}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
#: Changes of state go to topics of the quorum. Format 2 names in the commit log which attempt of a task counts.
_STATE = {
    _PROVIDER: "io.raftlake.spark.QuorumStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _FORMAT: "2",
}
#: Whether real-time mode takes but the sinks and operators that Spark's own list names.
REAL_TIME_SINKS_SETTING = "spark.sql.streaming.realTimeMode.allowlistCheck"
#: Providers whose state has ids, as format 2 needs.
_WITH_IDS = ("QuorumStateStoreProvider", "RocksDBStateStoreProvider")
#: What of the settings holds only where the user has chosen nothing: another provider of state is no mistake.
DEFAULTS = frozenset({*_STATE, REAL_TIME_SINKS_SETTING})
_DIRECTORY = Path(__file__).resolve().parent / "jars"
#: How long a quorum is asked where its HTTP fronts are.
_UNREACHABLE_TIMEOUT_MS = 5_000


def find_jar(directory: Path = _DIRECTORY) -> Path | None:
    """The jar that belongs to this package; None in a source tree where it was not built. ConfigError where there are two."""
    found = sorted(directory.glob("raftlake-spark-*.jar"))
    if len(found) > 1:
        raise ConfigError(f"{directory} holds {len(found)} jars, and only one can be of this release: remove the others")
    return found[0] if found else None


def require_jar(directory: Path = _DIRECTORY) -> Path:
    """The jar; ConfigError where it was not built."""
    jar = find_jar(directory)
    if jar is None:
        raise ConfigError(f"{directory} holds no raftlake-spark jar: a wheel brings it, and `make jar` builds it in a clone")
    return jar


def checkpoint_settings(jar: Path, quorum: str, http: str, jars_before: str = "") -> dict[str, str]:
    """What Spark has to be told for `raftlake://`, and for the sink in real-time mode. `quorum`, the nodes' Kafka listeners,
    and `http` are "host:port,host:port"; `jars_before` is what `spark.jars` has."""
    jars = [one for one in jars_before.split(",") if one]
    return {
        JARS_SETTING: ",".join([*jars, *([] if str(jar) in jars else [str(jar)])]),
        HTTP_SERVERS_SETTING: http,
        BOOTSTRAP_SERVERS_SETTING: quorum,
        **_CLASSES,
        **_STATE,
        REAL_TIME_SINKS_SETTING: "false",
    }


def left_to(before: Mapping[str, str]) -> frozenset[str]:
    """The settings that stay as they are in a session with the settings `before`."""
    chosen = DEFAULTS & before.keys()
    has_ids = before.get(_PROVIDER, _WITH_IDS[0]).endswith(_WITH_IDS)
    return chosen if has_ids else chosen | {_FORMAT}


def http_servers(quorum: str) -> str:
    """The HTTP fronts of the nodes, asked of the quorum. ConfigError where none names one; RaftlakeError where none answers."""
    from raftlake.client import Client

    found: list[str] = []
    with Client(quorum, client_id="raftlake-configure", unreachable_timeout_ms=_UNREACHABLE_TIMEOUT_MS) as client:
        for node_id in client.describe_cluster().nodes:
            try:
                address = client.node_configs(node_id).get("http.listener")
            except RaftlakeError:
                # A node that is down: the others suffice.
                continue
            if address:
                found.append(address.removeprefix("http://"))
    if not found:
        raise ConfigError(f"no node of {quorum} names its HTTP front; name them: configure(builder, quorum, http='host:port')")
    return ",".join(found)
