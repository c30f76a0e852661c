"""The jar and the settings for `raftlake://`: what `configure` and `raftlake spark-conf` tell Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_raftlake import jvm, session
from pyspark_raftlake.jvm import checkpoint_settings, find_jar, require_jar
from raftlake.cli import spark as cli_spark
from raftlake.errors import ConfigError


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    made = tmp_path / "raftlake-spark-0.1.0.jar"
    made.touch()
    return made


class Builder:
    """Of a Spark session: `_options` is where Spark's own keeps what was set."""

    def __init__(self, **options: str) -> None:
        self._options = options

    def config(self, name: str, value: str) -> Builder:
        self._options[name] = value
        return self


def test_the_jar_is_found_once(jar: Path) -> None:
    assert find_jar(jar.parent) == require_jar(jar.parent) == jar
    (jar.parent / "raftlake-spark-0.2.0.jar").touch()
    with pytest.raises(ConfigError, match="holds 2 jars"):
        find_jar(jar.parent)


def test_a_tree_without_the_jar_says_how_to_build_it(tmp_path: Path) -> None:
    assert find_jar(tmp_path) is None
    with pytest.raises(ConfigError, match="make jar"):
        require_jar(tmp_path)


def test_the_settings_keep_the_jars_that_are_there(jar: Path) -> None:
    settings = checkpoint_settings(jar, "b:1,b:2", "h:1,h:2", "/a.jar,/b.jar")
    assert settings == {
        "spark.jars": f"/a.jar,/b.jar,{jar}",
        "spark.hadoop.raftlake.http.servers": "h:1,h:2",
        "spark.hadoop.raftlake.bootstrap.servers": "b:1,b:2",
        "spark.sql.catalog.raftlake": "io.raftlake.spark.connector.RaftlakeCatalog",
        "spark.hadoop.fs.raftlake.impl": "io.raftlake.spark.RaftlakeFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.raftlake.impl": "io.raftlake.spark.RaftlakeAbstractFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": "io.raftlake.spark.QuorumCheckpointFileManager",
        "spark.sql.streaming.stateStore.providerClass": "io.raftlake.spark.QuorumStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    }
    assert checkpoint_settings(jar, "b:1", "h:1", str(jar))["spark.jars"] == str(jar)
    assert checkpoint_settings(jar, "b:1", "h:1")["spark.jars"] == str(jar)


def test_configure_makes_checkpoints_possible(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jar: Path
) -> None:
    monkeypatch.setattr(session, "find_jar", lambda: jar)
    monkeypatch.setattr(session, "require_jar", lambda: jar)
    monkeypatch.setattr(session, "http_servers", lambda quorum: f"asked-of-{quorum}")
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "")
    builder: Any = Builder(**{"spark.jars": "/a.jar"})
    session.configure(builder, "h:1", http="h:8")
    assert builder._options["spark.jars"] == f"/a.jar,{jar}"
    assert builder._options["spark.hadoop.raftlake.http.servers"] == "h:8"
    assert builder._options["spark.hadoop.raftlake.bootstrap.servers"] == "h:1"
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "raftlake: settings of this Spark session:"
    assert set(told[1:]) == {f"  {name}={value}" for name, value in builder._options.items()}
    session.configure(builder, "h:1")
    assert builder._options["spark.hadoop.raftlake.http.servers"] == "asked-of-h:1"
    assert builder._options["spark.jars"] == f"/a.jar,{jar}"
    with pytest.raises(ConfigError, match="is not host:port"):
        session.configure(builder, "h:1", http="nonsense")


def test_configure_keeps_what_the_user_chose_for_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jar: Path
) -> None:
    monkeypatch.setattr(session, "require_jar", lambda: jar)
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "")
    chosen = {
        "spark.sql.streaming.stateStore.providerClass": "org.example.Provider",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        "spark.sql.streaming.realTimeMode.allowlistCheck": "true",
    }
    other = {"spark.hadoop.raftlake.http.servers": "gone:1", "spark.sql.catalog.raftlake": "org.example.Catalog"}
    builder: Any = Builder(**chosen, **other)
    session.configure(builder, "h:1", http="h:8")
    assert {name: builder._options[name] for name in chosen} == chosen
    told = capsys.readouterr().err
    assert not any(name in told for name in chosen)
    # What the quorum decides is set anew.
    assert builder._options["spark.hadoop.raftlake.http.servers"] == "h:8"
    assert builder._options["spark.sql.catalog.raftlake"] == "io.raftlake.spark.connector.RaftlakeCatalog"
    assert builder._options["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"


@pytest.mark.parametrize(
    ("provider", "version"),
    [
        ("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider", None),
        ("org.example.Provider", None),
        ("org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider", "2"),
        ("io.raftlake.spark.QuorumStateStoreProvider", "2"),
    ],
)
def test_a_provider_without_ids_of_state_gets_no_format_that_needs_them(
    monkeypatch: pytest.MonkeyPatch, jar: Path, provider: str, version: str | None
) -> None:
    monkeypatch.setattr(session, "require_jar", lambda: jar)
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "")
    builder: Any = Builder(**{"spark.sql.streaming.stateStore.providerClass": provider})
    session.configure(builder, "h:1", http="h:8")
    assert builder._options["spark.sql.streaming.stateStore.providerClass"] == provider
    assert builder._options.get("spark.sql.streaming.stateStore.checkpointFormatVersion") == version


@pytest.mark.parametrize("is_built", [False, True])
def test_configure_tells_of_a_missing_jar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jar: Path, is_built: bool
) -> None:
    monkeypatch.setattr(session, "find_jar", lambda: jar if is_built else None)
    monkeypatch.setattr(session, "http_servers", lambda quorum: "h:8")
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "")
    builder: Any = Builder()
    session.configure(builder, "h:1")
    assert ("make jar" in capsys.readouterr().err) is not is_built
    assert ("spark.sql.catalog.raftlake" in builder._options) is is_built


class Live:
    """A running session: what was set, and what was run in SQL."""

    def __init__(self, jars: str) -> None:
        self.settings: dict[str, str] = {}
        self.statements: list[str] = []
        self.jars = jars

    @property
    def sparkContext(self) -> Live:
        return self

    @property
    def conf(self) -> Live:
        return self

    def getConf(self) -> Live:
        return self

    def get(self, name: str, default: str) -> str:
        return self.jars if name == "spark.jars" else default

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def sql(self, statement: str) -> None:
        self.statements.append(statement)


def test_a_running_session_gets_the_jar_and_the_settings(monkeypatch: pytest.MonkeyPatch, jar: Path) -> None:
    monkeypatch.setattr(session, "require_jar", lambda: jar)
    monkeypatch.setattr(session, "http_servers", lambda quorum: f"asked-of-{quorum}")
    live: Any = Live("/a.jar")
    assert session.attach(live, "h:1", http="h:8,i:8") is live
    assert live.statements == [f"ADD JAR '{jar}'"]
    assert live.settings == {
        "raftlake.http.servers": "h:8,i:8",
        "raftlake.bootstrap.servers": "h:1",
        "spark.sql.catalog.raftlake": "io.raftlake.spark.connector.RaftlakeCatalog",
        "fs.raftlake.impl": "io.raftlake.spark.RaftlakeFileSystem",
        "fs.AbstractFileSystem.raftlake.impl": "io.raftlake.spark.RaftlakeAbstractFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": "io.raftlake.spark.QuorumCheckpointFileManager",
        "spark.sql.streaming.stateStore.providerClass": "io.raftlake.spark.QuorumStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    }
    has_jar: Any = Live(f"/a.jar,{jar}")
    session.attach(has_jar, "h:1")
    assert has_jar.statements == []
    assert has_jar.settings["raftlake.http.servers"] == "asked-of-h:1"
    for wrong in (("nonsense", "h:8"), ("h:1", "nonsense")):
        with pytest.raises(ConfigError, match="is not host:port"):
            session.attach(live, *wrong)


def test_spark_conf_prints_the_same_settings(
    monkeypatch: pytest.MonkeyPatch, jar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jvm, "require_jar", lambda: jar)
    cli_spark.spark_conf("h:1", "h:8")
    lines = capsys.readouterr().out.splitlines()
    assert f"spark.jars={jar}" in lines
    assert "spark.hadoop.raftlake.http.servers=h:8" in lines
    assert "spark.hadoop.raftlake.bootstrap.servers=h:1" in lines
    assert "spark.sql.python.filterPushdown.enabled=true" in lines
    with pytest.raises(ConfigError, match="is not host:port"):
        cli_spark.settings_of("h:1", "nonsense")
    with pytest.raises(ConfigError, match="is not host:port"):
        cli_spark.settings_of("nonsense", "h:8")
