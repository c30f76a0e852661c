"""Large files outside of the key space, and transactions whose answer is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import MemoryKv
from raftlake.checkpoints import copies
from raftlake.checkpoints.blobs import Blobs, base_of, local_path
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.node import Kind, Node
from raftlake.checkpoints.owner import Ownership
from raftlake.checkpoints.space import Change, Space
from raftlake.client.errors import KvConflict, NoReachableNode
from raftlake.client.types import KvEntry
from raftlake.errors import (
    ConfigError,
    ErrorCode,
    InvalidInput,
    MachineError,
    RequestRejected,
    UnknownOutcome,
    WrongState,
)

AT = Location.parse("raftlake://orders/main/state/0/0/5.zip")
MAIN = Location.parse("raftlake://orders/main")


def blobs(kv: MemoryKv, base: Path | None) -> Blobs:
    return kit.tools(kv).blobs(None if base is None else f"file:{base}")


def test_a_blob_has_an_intent_until_a_file_points_to_it(tmp_path: Path) -> None:
    kv = MemoryKv()
    content = bytes(range(256)) * 4000
    node, intent, version = blobs(kv, tmp_path).write(AT, content)
    entry = kv.get(intent)
    assert entry is not None and entry.version == version
    assert json.loads(entry.value or b"") == {"mtime": kit.NOW_MS, "where": node.uri}
    assert intent == f"/fs-blobs/orders/{node.uri.rpartition('/')[2]}"
    assert blobs(kv, None).content(AT, node) == content
    assert len(node.facts["blob"]["chunk_crc32c"]) == 2
    assert base_of(node.uri) == f"file:{tmp_path}"


def test_a_blob_that_is_damaged_or_gone_names_its_file(tmp_path: Path) -> None:
    kv = MemoryKv()
    node, _, _ = blobs(kv, tmp_path).write(AT, b"content")
    path = local_path(node.uri)
    assert path is not None
    path.write_bytes(b"contenT")
    with pytest.raises(InvalidInput, match=rf"{AT}.*checksum of its content is wrong"):
        blobs(kv, None).content(AT, node)
    path.unlink()
    with pytest.raises(WrongState, match=rf"the content of {AT} is gone"):
        blobs(kv, None).content(AT, node)


@pytest.mark.parametrize("length", [2, 1 << 62, 10**30])
def test_a_head_that_tells_of_more_than_there_is_names_its_file(tmp_path: Path, length: int) -> None:
    """Anybody may write such a key. The memory for so much was asked for, which ended the command."""
    path = tmp_path / "blob"
    path.write_bytes(b"x")
    head = Node(Kind.BLOB, {"mtime": 0, "id": "i", "length": length, "crc32c": 0, "blob": {"uri": f"file:{path}"}})
    with pytest.raises(InvalidInput, match=f"{AT}.*says {length}$"):
        blobs(MemoryKv(), None).content(AT, head)


def test_a_blob_in_a_file_system_of_hadoop_is_left_to_hadoop() -> None:
    node = Node.blob(0, "x", "s3a://user:secret@bucket/orders/x", b"far")
    with pytest.raises(WrongState, match=rf"{AT} has its content at s3a://bucket/orders/x: commands read") as told:
        blobs(MemoryKv(), None).content(AT, node)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("base", ["s3a://bucket/x", "relative", "file://host/x"])
def test_a_place_is_a_directory_of_this_machine(base: str) -> None:
    with pytest.raises(ConfigError, match="accepted is file:/"):
        kit.tools(MemoryKv()).blobs(base)


def test_a_place_that_cannot_be_written_is_an_error_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text("a file")
    with pytest.raises(MachineError, match="cannot be written"):
        blobs(MemoryKv(), tmp_path).write(AT, b"x")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:/a%20b/c", "/a b/c"),
        ("file:///a/b", "/a/b"),
        ("file://host/a", None),
        ("hdfs:///a", None),
        ("quorum:x", None),
        ("file://[", None),
        ("file:/a%00b", None),
    ],
)
def test_paths_of_uris(uri: str, path: str | None) -> None:
    assert local_path(uri) == (None if path is None else Path(path))


def test_large_files_are_copied_and_do_not_share_their_blobs(tmp_path: Path) -> None:
    kv = MemoryKv()
    large = bytes(2_000_000)
    directory = kit.to_directory(kit.stateful(2) | {"state/0/0/large": large}, tmp_path / "in")
    base = f"file:{tmp_path}/blobs"
    copies.import_(kit.tools(kv), directory, MAIN, base, "told")
    fork = Location.parse("raftlake://trial/fork")
    copies.fork(kit.tools(kv), MAIN, fork, None, None, "told")
    assert len(list((tmp_path / "blobs").rglob("*-*"))) == 2
    assert kit.read(kv, str(fork))["state/0/0/large"] == large
    assert not kv.names("/fs-blobs/")
    copies.export(kit.tools(kv), fork, tmp_path / "out")
    assert (tmp_path / "out/state/0/0/large").read_bytes() == large


# --- transactions ----------------------------------------------------------------------------------------------------


def change(key: str, value: bytes, over: int) -> Change:
    made = Change()
    made.put(key, value, over=over)
    return made


def test_a_lost_answer_is_read_back() -> None:
    kv = MemoryKv(loses_answers=frozenset({0}))
    version = Space(kv).commit(change("/k", b"1", 0))
    entry = kv.get("/k")
    assert entry is not None and (entry.version, entry.value) == (version, b"1")
    assert len(kv.transactions) == 1
    kv.loses_answers = frozenset({1})
    gone = Change()
    gone.delete("/k", at=version)
    Space(kv).commit(gone)
    assert kv.get("/k") is None


def test_a_change_that_did_not_happen_is_sent_again() -> None:
    kv = MemoryKv()
    lost = iter([True, False])

    def lose(number: int) -> None:
        if next(lost):
            raise UnknownOutcome("no answer came")

    kv.before = lose
    assert Space(kv).commit(change("/k", b"1", 0)) > 0


def test_a_change_that_happened_late_is_no_conflict() -> None:
    kv = MemoryKv()
    late = iter([True, False])

    def happen_between(number: int) -> None:
        if next(late):
            raise UnknownOutcome("no answer came")
        kit.put(kv, "/k", b"1")

    kv.before = happen_between
    entry_version = Space(kv).commit(change("/k", b"1", 0))
    entry = kv.get("/k")
    assert entry is not None and entry.version == entry_version


REFUSED = (RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "not accepted in time"), NoReachableNode(["h:1"], {}))


@dataclass
class Failing:
    """`tells` of each transaction what is raised; the last one for all further ones. `looks`: what each look raises."""

    tells: list[Exception]
    looks: Exception | None = None
    tries: int = 0

    def txn(self, compare: object, ops: object, *, newest: object) -> int:
        self.tries += 1
        raise self.tells[min(self.tries, len(self.tells)) - 1]

    def get(self, key: str) -> None:
        if self.looks is not None:
            raise self.looks


@pytest.mark.parametrize("refusal", REFUSED)
@pytest.mark.parametrize("is_look", [True, False])
def test_a_change_that_may_have_happened_is_not_refused(refusal: Exception, is_look: bool) -> None:
    """The node goes behind the first try; then there is no leader, for the look or for the repetition."""
    sent = UnknownOutcome("sent")
    kv = Failing([sent], refusal) if is_look else Failing([sent, refusal])
    with pytest.raises(UnknownOutcome, match=r"^sent$") as caught:
        Space(kv).commit(change("/k", b"1", 0))  # type: ignore[arg-type]
    assert caught.value.__cause__ is refusal and kv.tries == (1 if is_look else 2)


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_conflict_that_cannot_be_looked_at_is_no_refusal(refusal: Exception) -> None:
    """It may be with the change's own first try."""
    kv = MemoryKv(loses_answers=frozenset({0}))
    looks = iter([None, refusal])
    found = kv.get

    def look(key: str) -> KvEntry | None:
        fails = next(looks)
        if fails is not None:
            raise fails
        return found(key) if key != "/k" else None

    kv.get = look  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome):
        Space(kv).commit(change("/k", b"1", 0))


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_change_that_was_refused_at_once_did_not_happen(refusal: Exception) -> None:
    with pytest.raises(type(refusal)):
        Space(Failing([refusal])).commit(change("/k", b"1", 0))  # type: ignore[arg-type]


def test_a_conflict_is_a_conflict() -> None:
    kv = MemoryKv()
    kit.put(kv, "/k", b"theirs")
    with pytest.raises(KvConflict):
        Space(kv).commit(change("/k", b"1", 0))


def test_a_checkpoint_is_taken_from_whoever_came_before() -> None:
    kv = MemoryKv()
    kit.own(kv, str(MAIN), "older")

    def race(number: int) -> None:
        if number == 0:
            kit.own(kv, str(MAIN), "between")

    kv.before = race
    ownership = Ownership(Space(kv), MAIN, "told", "query", 0)
    before = ownership.take()
    assert before is not None and before.run == "between"
    entry = kv.get(MAIN.owner_key)
    assert entry is not None and entry.version == ownership.version


def test_who_takes_the_checkpoint_all_the_time_keeps_it() -> None:
    kv = MemoryKv()
    kv.before = lambda number: kit.own(kv, str(MAIN), f"run {number}")
    with pytest.raises(WrongState, match="others took the checkpoint 100 times"):
        Ownership(Space(kv), MAIN, "told", "query", 0).take()


def test_a_file_that_was_renamed_behind_a_lost_answer_keeps_its_content(tmp_path: Path) -> None:
    """The put was applied. Its repetition is refused, since the file is elsewhere by then: nobody may take the blob away."""
    kv = MemoryKv()
    there = Location.parse("raftlake://orders/renamed/5.zip")
    tools = kit.tools(kv)
    ownership, _ = tools.own(MAIN, "told", "query")
    writer = tools.writer(ownership, blobs=blobs(kv, tmp_path))
    writer.make_directories(AT.parent)
    putting = len(kv.transactions) + 1
    kv.loses_answers = frozenset({putting})
    found = kv.get

    def get(key: str) -> KvEntry | None:
        """Before the look somebody renames the directory."""
        entry = found(key)
        if key == AT.key and entry is not None:
            kit.put(kv, there.key, entry.value or b"")
            kit.remove(kv, AT.key)
            return None
        return entry

    kv.get = get  # type: ignore[method-assign]
    content = bytes(100_000)
    with pytest.raises(WrongState, match="another program changes these files at the same time"):
        writer.put(AT, content, over=0)
    moved = found(there.key)
    assert moved is not None and blobs(kv, None).content(there, Node.decode(there.key, moved.value or b"")) == content
