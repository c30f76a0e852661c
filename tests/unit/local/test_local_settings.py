"""Settings that the owner of a local quorum chose, or wrote into a node.properties: kept, refused in one line, or told of."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from raftlake import local, local_directories
from raftlake.errors import ConfigError
from raftlake.local_directories import LocalNode
from raftlake.local_settings import OWN, UNFIT, chosen_settings, few_connections, ignored_variables
from raftlake.runtime.settings.names import KNOWN, NUMBERS, TEXTS
from raftlake.runtime.settings.settings import Settings, load_settings

DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"
#: The settings that are no numbers, and fit every node of a local quorum.
FIT_TEXTS = {
    "quorum.kraft.version",
    "max.connections.per.ip",
    "http.allowed.hosts",
    "peer.address.allow",
    "tier.uri",
    "auto.create.topics.enable",
}


class Quorum:
    """A directory that is started again and again, without a process."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        self.directory = directory
        self.count = count
        self.notes: list[str] = []

    def start(self, settings: dict[str, str] | None = None, port: int | None = 19092) -> dict[int, LocalNode]:
        self.notes.clear()
        http_port = None if port is None else port - 1000
        return local_directories.prepare(self.directory, self.count, port, http_port, settings or {}, self.notes.append)

    def file(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "node.properties"

    def texts(self) -> dict[int, str]:
        return {node_id: self.file(node_id).read_text() for node_id in range(1, self.count + 1)}

    def loaded(self) -> list[Settings]:
        return [load_settings(self.file(node_id)) for node_id in range(1, self.count + 1)]

    def change(self, node_id: int, old: str, new: str) -> None:
        text = self.file(node_id).read_text()
        assert old in text
        self.file(node_id).write_text(text.replace(old, new))


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path)


# --- chosen ------------------------------------------------------------------------------------------------------------


def test_the_next_start_has_what_was_chosen_once(quorum: Quorum) -> None:
    quorum.start({"tier.uri": "/tmp/history", "tier.target.lag.ms": "2000"})
    before = quorum.texts()
    quorum.start()
    assert quorum.texts() == before and quorum.notes == []
    quorum.start({"tier.target.lag.ms": "3000", "log.segment.bytes": "65536"})
    tiers = [loaded.tier for loaded in quorum.loaded()]
    assert [(tier.uri, tier.target_lag_ms) for tier in tiers if tier is not None] == [("/tmp/history", 3000)] * 3
    assert {loaded.segment_bytes for loaded in quorum.loaded()} == {65536}


def test_an_empty_value_takes_a_setting_out(quorum: Quorum) -> None:
    quorum.start()
    before = quorum.texts()
    quorum.start({"tier.uri": "/tmp/history", "retention.ms": "5000"})
    quorum.start({"tier.uri": "", "log.retention.ms": "", "kv.quota.bytes": ""})
    assert quorum.texts() == before and quorum.notes == []


def test_a_setting_in_kafkas_spelling_is_the_same_setting(quorum: Quorum) -> None:
    quorum.start()
    quorum.file(2).write_text(quorum.texts()[2] + "log.retention.ms=7000\n")
    quorum.start({"controller.quorum.fetch.timeout.ms": "3000", "retention.ms": "9000"})
    assert {loaded.retention_ms for loaded in quorum.loaded()} == {9000}
    assert {loaded.raft.fetch_timeout_ms for loaded in quorum.loaded()} == {3000}
    assert quorum.notes == []


def test_what_no_node_could_start_with_is_refused_before_a_file_is_touched(quorum: Quorum) -> None:
    for settings, message in (
        ({"retention.ms": "often"}, "retention.ms=often: not a whole number"),
        ({"log.retention.ms": "often"}, "log.retention.ms=often: not a whole number"),
        ({"tier.uri": "history"}, "tier.uri=history: no absolute path"),
        ({"tier.flush.bytes": "70000"}, "tier.flush.bytes=70000: has no meaning without tier.uri"),
        ({"retention.msec": "1"}, "retention.msec: unknown setting in settings; did you mean retention.ms?"),
        ({"retention.ms": "1", "log.retention.ms": "2"}, "log.retention.ms=2: contradicts retention.ms=1"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}") as refused:
            quorum.start(settings)
        assert "\n" not in str(refused.value)
        assert not list(quorum.directory.iterdir())
    quorum.start({"tier.uri": "/tmp/history", "tier.flush.bytes": "70000"})
    before = quorum.texts()
    with pytest.raises(ConfigError, match=re.escape("tier.flush.bytes=70000: has no meaning without tier.uri")):
        quorum.start({"tier.uri": ""})
    assert quorum.texts() == before


@pytest.mark.parametrize("name", sorted(OWN))
@pytest.mark.parametrize("value", ["x", ""])
def test_what_a_local_quorum_sets_itself_is_not_to_be_chosen(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}={value}: a local quorum sets it itself \(`\w+`, --[a-z-]+\)$"):
        chosen_settings({name: value})


def test_kafkas_spelling_chooses_no_more() -> None:
    for name in ("broker.id", "log.dir", "controller.quorum.voters"):
        with pytest.raises(ConfigError, match=f"^{name}=x: a local quorum sets it itself"):
            chosen_settings({name: "x"})


@pytest.mark.parametrize("name", sorted(UNFIT))
def test_what_the_nodes_cannot_share_is_refused_wherever_it_is_said(quorum: Quorum, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=127\.0\.0\.1:1: the nodes of a local quorum cannot have it"):
        quorum.start({name: "127.0.0.1:1"})
    quorum.start()
    quorum.file(2).write_text(quorum.texts()[2] + f"{name}=127.0.0.1:1\n")
    before = quorum.texts()
    with pytest.raises(ConfigError, match=rf"^{name}=127\.0\.0\.1:1 in {quorum.file(2)}: the nodes of a local quorum cannot"):
        quorum.start()
    assert quorum.texts() == before
    quorum.start({name: ""})
    assert name not in quorum.texts()[2]


def test_every_setting_is_chosen_refused_or_set_by_the_quorum(quorum: Quorum) -> None:
    """A new setting of nodes needs a decision here."""
    assert set(OWN) | UNFIT | FIT_TEXTS == TEXTS
    assert not (set(OWN) & UNFIT or (set(OWN) | UNFIT) & FIT_TEXTS)
    texts = {
        "quorum.kraft.version": "1",
        "max.connections.per.ip": "9",
        "http.allowed.hosts": "h",
        "peer.address.allow": "::/0",
        "auto.create.topics.enable": "true",
    }
    everything = {**texts, "tier.uri": "/tmp/history", **{name: str(number.default) for name, number in NUMBERS.items()}}
    quorum.start(everything)
    assert set(everything) | set(OWN) | UNFIT == KNOWN
    for text in quorum.texts().values():
        assert {f"{name}={value}" for name, value in everything.items()} <= set(text.splitlines())


def test_the_page_of_settings_names_what_is_not_to_be_chosen() -> None:
    section = DOCUMENT.read_text().partition("## Nodes of `raftlake local`\n")[2].partition("\n## ")[0]
    itself, _, refused = section.partition("Refused are ")
    assert {name for name in re.findall(r"`([a-z.]+)`", itself) if name in OWN or name in UNFIT} == set(OWN)
    assert {name for name in re.findall(r"`([a-z.]+)`", refused) if name in KNOWN} == UNFIT


# --- written by hand ---------------------------------------------------------------------------------------------------


def test_what_was_written_into_a_file_stays_with_its_comments(quorum: Quorum) -> None:
    """It was overwritten at the next start, without a word."""
    quorum.start()
    quorum.file(1).write_text("# mine\n" + quorum.texts()[1] + "\nretention.ms = 7000\n")
    before = quorum.texts()
    quorum.start()
    assert quorum.texts() == before
    quorum.start({"kv.quota.bytes": "70000"})
    assert quorum.texts()[1] == before[1] + "kv.quota.bytes=70000\n"
    quorum.start(port=19192)
    assert quorum.texts()[1] == before[1].replace(":1909", ":1919").replace(":1809", ":1819") + "kv.quota.bytes=70000\n"


def test_nodes_that_differ_are_told_at_each_start(quorum: Quorum) -> None:
    """A tier on one node is most often a slip, and sometimes an experiment."""
    quorum.start({"kv.quota.bytes": "70000"})
    quorum.file(1).write_text(quorum.texts()[1] + "tier.uri=/tmp/history\nlog.retention.ms=\n")
    for _ in range(2):
        quorum.start()
        told = "the nodes do not have the same tier.uri in their node.properties; --set KEY=VALUE (`settings`) sets one on all"
        assert quorum.notes == [f"{told} nodes"]
    quorum.start({"tier.uri": "/tmp/history"})
    assert quorum.notes == [] and all(loaded.tier is not None for loaded in quorum.loaded())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("node.id", "node.id=2", "node.id=7"),
        ("listeners", "PLAINTEXT://127.0.0.1:19093", "PLAINTEXT://0.0.0.0:19093"),
        ("listeners", "PLAINTEXT://127.0.0.1:19093", "PLAINTEXT://127.0.0.1:29093"),
        ("http.listener", "http.listener=127.0.0.1:18093", "http.listener=0.0.0.0:18093"),
        ("quorum.voters", "3@127.0.0.1:", "3@10.0.0.1:"),
        ("log.dirs", "node-2", "large-disk"),
    ],
)
def test_what_the_quorum_sets_itself_is_set_again_and_told(quorum: Quorum, name: str, old: str, new: str) -> None:
    quorum.start()
    before = quorum.texts()
    quorum.change(2, old, new)
    quorum.start()
    assert quorum.texts() == before
    (note,) = quorum.notes
    assert note.startswith(f"{quorum.file(2)}: {name}=") and new.removeprefix(f"{name}=") in note
    assert note.endswith("since a local quorum sets it itself") and "\n" not in note
    quorum.start()
    assert quorum.notes == []


def test_a_quorum_that_moves_to_other_ports_has_nothing_to_tell(quorum: Quorum) -> None:
    quorum.start()
    for port in (19192, None):
        quorum.start(port=port)
        assert quorum.notes == []
    assert [str(loaded.listener) for loaded in quorum.loaded()] == [f"127.0.0.1:{19192 + index}" for index in range(3)]


def test_a_file_with_a_mistake_is_named_and_left_alone(quorum: Quorum) -> None:
    quorum.start()
    for line, message in (
        ("retention.msec=1", f"retention.msec: unknown setting in {quorum.file(3)}; did you mean retention.ms?"),
        ("retention.ms=often", f"{quorum.file(3)}: retention.ms=often: not a whole number"),
    ):
        kept = quorum.texts()[3]
        quorum.file(3).write_text(f"{kept}{line}\n")
        quorum.file(1).write_text(quorum.texts()[1].replace("node.id=1", "node.id=8"))
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            quorum.start()
        # Node 1 is as it was, so nobody is told that it is not.
        assert quorum.texts()[3] == f"{kept}{line}\n" and "node.id=8" in quorum.texts()[1] and quorum.notes == []
        quorum.file(3).write_text(kept)
    quorum.file(3).write_text(kept + "retention.ms=often\n")
    quorum.start({"retention.ms": "5000"})
    assert {loaded.retention_ms for loaded in quorum.loaded()} == {5000}


# --- lost or spoilt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoilt", [1, 3])
@pytest.mark.parametrize("content", [None, b"", b"# nothing\n"])
def test_a_file_that_is_lost_or_empty_goes_on_from_anothers(quorum: Quorum, spoilt: int, content: bytes | None) -> None:
    """A node without the tier that the others have would stop the copies of its partitions."""
    quorum.start({"tier.uri": "/tmp/history"})
    before = quorum.texts()
    quorum.file(spoilt).unlink()
    if content is not None:
        quorum.file(spoilt).write_bytes(content)
    quorum.start()
    assert quorum.texts() == before and quorum.notes == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\\uzzzz=1\n", r":1: \uzzzz is no character; accepted is \u and four hexadecimal digits"),
        (b"\0\0\0\xff\n", " is not UTF-8 (byte 3)"),
    ],
)
def test_a_file_that_cannot_be_understood_is_kept_beside_the_new_one(quorum: Quorum, content: bytes, reason: str) -> None:
    quorum.start({"retention.ms": "5000"})
    before = quorum.texts()
    quorum.file(2).write_bytes(content)
    for directory in quorum.directory.glob("node-*"):
        (directory / "__cluster_metadata-0").mkdir()
    quorum.start()
    kept = "the file is made anew, and what it held is kept as node.damaged.properties beside it"
    assert quorum.notes == [f"{quorum.file(2)}{reason}: {kept}"]
    assert quorum.texts() == before
    assert (quorum.file(2).with_name("node.damaged.properties")).read_bytes() == content
    quorum.start()
    assert quorum.notes == []


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (b"tier.uri=/b\n", ":7: tier.uri is set twice in this file; keep one of the two lines"),
        (b"\xf6\n", " is not UTF-8 (byte {})"),
    ],
)
def test_a_slip_among_settings_does_not_cost_the_others(tmp_path: Path, more: bytes, reason: str) -> None:
    """A quorum of one node would have gone on without its tier."""
    quorum = Quorum(tmp_path, 1)
    quorum.start({"tier.uri": "/tmp/history"})
    content = quorum.file(1).read_bytes() + more
    quorum.file(1).write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        quorum.start({"retention.ms": "5000"})
    where = reason.format(len(content) - len(more))
    assert str(refused.value) == f"{quorum.file(1)}{where}. Mend the file, or delete it: it is made anew"
    assert quorum.file(1).read_bytes() == content and quorum.notes == []
    quorum.file(1).unlink()
    quorum.start()
    assert quorum.loaded()[0].tier is None


def test_a_damaged_file_of_a_quorum_that_never_ran_is_no_data(tmp_path: Path) -> None:
    """A start with another number of nodes may follow, as after any start that came to nothing."""
    quorum = Quorum(tmp_path, 1)
    quorum.start()
    quorum.file(1).write_bytes(b"\xff")
    quorum.start()
    quorum.file(1).unlink()
    quorum.count = 3
    assert len(quorum.start()) == 3


# --- the environment ---------------------------------------------------------------------------------------------------


def test_settings_in_the_environment_are_told_to_have_no_effect() -> None:
    environ = {"RAFTLAKE_TIER_URI": "s3://secret", "RAFTLAKE_LOG_RETENTION_MS": "5", "RAFTLAKE_SERVICE_HOST": "h", "HOME": "/"}
    line = ignored_variables(environ)
    assert line is not None and line.startswith(
        "RAFTLAKE_LOG_RETENTION_MS, RAFTLAKE_TIER_URI: the nodes of a local quorum take"
    )
    assert "--set KEY=VALUE" in line and "secret" not in line
    assert ignored_variables({"RAFTLAKE_BOOTSTRAP_SERVERS": "h:1", "RAFTLAKE_PARENT_FD": "3"}) is None


@pytest.mark.parametrize(
    ("hard", "told"),
    [
        (1_024, "a node serves 173 clients at each listener and not max.connections=2000: a process may have 1024 files and"),
        (9_151, "a node serves 1999 clients at each listener and not max.connections=2000: a process may have 9151 files and"),
        (9_152, None),
        (resource.RLIM_INFINITY, None),
        # The node does not start, and its last words say why.
        (255, None),
    ],
)
def test_a_limit_that_leaves_few_connections_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard: int, told: str | None
) -> None:
    monkeypatch.setattr(local.LocalQuorum, "_spawn", ends_here)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, hard))
    notes: list[str] = []
    with pytest.raises(ConfigError, match="ends here"):
        local.LocalQuorum(3, tmp_path, note=notes.append)
    assert notes == ([] if told is None else [f"{told} connections open (ulimit -n); 2000 take 9152"])
    # As many as the settings ask for.
    assert few_connections(tmp_path / "node-1" / "node.properties") == (notes[0] if notes else None)
    with pytest.raises(ConfigError, match="ends here"):
        local.LocalQuorum(3, tmp_path, settings={"max.connections": "100"}, note=notes.append)
    assert len(notes) == (told is not None)


def ends_here(_quorum: local.LocalQuorum, _node_id: int) -> None:
    raise ConfigError("ends here")


def test_a_program_is_told_by_a_warning_and_a_listener_by_its_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFTLAKE_TIER_URI", "/tmp/history")
    monkeypatch.setattr(local.LocalQuorum, "_spawn", ends_here)
    notes: list[str] = []
    with pytest.raises(ConfigError, match="ends here"):
        local.LocalQuorum(1, tmp_path, note=notes.append)
    assert [note.partition(":")[0] for note in notes] == ["RAFTLAKE_TIER_URI"]
    with pytest.raises(ConfigError), pytest.warns(UserWarning, match="RAFTLAKE_TIER_URI: the nodes of a local quorum take no"):
        local.LocalQuorum(1, tmp_path)
