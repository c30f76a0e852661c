"""Layout and facts: what names of files mean, what is listed and what is shown of a checkpoint."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

import checkpointkit as kit
from checkpointkit import QUERY, MemoryKv
from raftlake.checkpoints.blobs import INLINE_BYTES
from raftlake.checkpoints.facts import list_checkpoints, show_checkpoint
from raftlake.checkpoints.layout import Layout, data_files_of, is_after, log_json, offsets_of, problems, query_of, relocated
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark, uuid_of
from raftlake.checkpoints.node import Kind, Node
from raftlake.errors import ErrorCode, InvalidInput, RequestRejected, WrongState

MAIN = "raftlake://orders/main"


@pytest.mark.parametrize(
    ("name", "last"),
    [
        # The last batch to which a file belongs, and the first behind which it came.
        ("offsets/7", 7),
        ("commits/7", 7),
        ("state/0/1/8.delta", 7),
        ("state/0/1/8.snapshot", 7),
        ("state/12/3/8.changelog", 7),
        ("state/0/1/8_1b-f.zip", 7),
        ("state/0/1/left-keyToNumValues/8_1b.changelog.crc", 7),
        ("state/0/_metadata/v2/7", 7),
    ],
)
def test_a_file_is_of_a_batch(name: str, last: int) -> None:
    assert not is_after(name, last)
    assert is_after(name, last - 1)


@pytest.mark.parametrize(
    "name",
    [
        "metadata",
        "sources/0/9",
        "sources/0/9.compact",
        "state/0/_metadata/metadata",
        "state/0/1/_metadata/schema",
        "state/0/1/SSTs/000009-1b.sst",
        "state/0/_stateSchema/default/9_1b",
        "offsets/x",
        "state/0/1/9.other",
    ],
)
def test_other_files_are_of_no_batch(name: str) -> None:
    assert not is_after(name, 0)


def test_a_version_is_there_with_a_base_and_the_changes_behind_it() -> None:
    names = ["state/0/0/2.snapshot", *(f"state/0/0/{number}.delta" for number in (3, 4, 6))]
    layout = Layout.of(names)
    told = {version: layout.missing_of("state/0/0", version) for version in range(1, 7)}
    assert [version for version, missing in told.items() if missing is None] == [2, 3, 4]
    assert told[1] == "state/0/0 has no version 1: nothing below it, and no change 1 of it"
    assert told[6] == "state/0/0 has no version 6: state/0/0/2.snapshot below it, and no change 5 of it"
    assert layout.operators == (0,)


def test_a_base_above_is_of_no_use() -> None:
    layout = Layout.of(["state/0/0/5.zip", "state/0/0/4.changelog"])
    assert layout.missing_of("state/0/0", 4) is not None
    assert layout.missing_of("state/0/0", 5) is None
    base = layout.base_of("state/0/0", 9)
    assert base is not None and base.version == 5


def test_stores_of_joins_have_ids_in_the_order_of_their_names() -> None:
    stores = ("left-keyToNumValues", "right-keyToNumValues")
    ids = {"stateUniqueIds": {"0": [["a", "b"], ["c", "d"]]}}
    files = {"offsets/0": kit.offsets(0), "commits/0": f"v2\n{json.dumps(ids)}".encode()}
    files["state/0/_metadata/metadata"] = kit.operator(2, stores)
    wanted = {("0", stores[0]): "a", ("0", stores[1]): "b", ("1", stores[0]): "c", ("1", stores[1]): "d"}
    files |= {f"state/0/{partition}/{store}/1_{found}.changelog": b"" for (partition, store), found in wanted.items()}
    assert problems(Layout.of(files), 0, files.__getitem__) == []
    del files["state/0/1/right-keyToNumValues/1_d.changelog"]
    files["state/0/1/right-keyToNumValues/1_c.changelog"] = b""
    assert problems(Layout.of(files), 0, files.__getitem__) == ["state/0/1/right-keyToNumValues has no version 1 with the id d"]


def test_logs_of_offsets_have_numbers_or_names() -> None:
    assert offsets_of(b'v1\n{}\n{"logOffset":3}\n-\n"text"\n7') == {"0": {"logOffset": 3}, "1": None, "2": "text", "3": 7}
    assert offsets_of(b'v2\n{}\norders:{"t":{"0":5}}\nother:-') == {"orders": {"t": {"0": 5}}, "other": None}
    assert offsets_of(b"v1\n{}\nno JSON") == {"0": "no JSON"}
    assert log_json(b"v1") == log_json(b"v1\nno") == log_json(b"v1\n[]") == {}


def test_who_the_query_is() -> None:
    assert query_of(kit.metadata()) == uuid_of(kit.metadata()) == QUERY
    assert query_of(b"no") is query_of(b"[]") is query_of(b'{"id":1}') is None
    assert uuid_of(b'{"id":"x"}') is None
    mark = Mark("rewind", "raftlake checkpoints rewind p --batch 3", QUERY, kit.metadata().decode())
    assert Mark.decode(mark.encode()) == mark
    assert uuid_of(mark.encode()) is None
    assert Mark.decode(kit.metadata()) is Mark.decode(b"no") is Mark.decode(b"[]") is None


def test_data_files_of_a_snapshot() -> None:
    assert data_files_of("state/0/1/5.zip", kit.snapshot("a.sst", "b.sst")) == {f"state/0/1/SSTs/{n}.sst" for n in "ab"}
    with pytest.raises(ValueError, match=r"5\.zip is no snapshot"):
        data_files_of("state/0/1/5.zip", b"")


def test_only_metadata_of_operators_is_relocated() -> None:
    text = b'v2\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/state/0/_stateSchema/default/0_x"]}]}'
    assert relocated("state/0/0/1.delta", text, "raftlake://p/q") == text
    assert b'"raftlake://p/q/state/0/_stateSchema/default/0_x"' in relocated("state/0/_metadata/v2/0", text, "raftlake://p/q")
    assert b'"raftlake://p/state/0/' in relocated("state/0/_metadata/v2/0", text, "raftlake://p/")


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_list_tells_of_each_checkpoint() -> None:
    kv = MemoryKv()
    kit.write(kv, MAIN, kit.stateful(3) | {"offsets/3": kit.offsets(3)})
    kit.write(kv, "raftlake://orders/main2/deep", kit.stateless(1))
    kit.write(kv, "raftlake://other/marked", {"metadata": Mark("fork", "told", QUERY).encode()})
    kit.write(kv, "raftlake://other/none", {"metadata": b"no JSON", "file": b""})
    kit.own(kv, MAIN, "the-run")
    rows = list_checkpoints(kit.tools(kv), None)
    assert [(row["path"], row["lastBatch"], row["lastCommitted"], row["brokenOff"]) for row in rows] == [
        (MAIN, 3, 2, None),
        ("raftlake://orders/main2/deep", 0, 0, None),
        ("raftlake://other/marked", None, None, "told"),
    ]
    assert rows[0]["owner"]["run"] == "the-run"
    assert rows[1]["owner"] is None
    assert {row["query"] for row in rows} == {QUERY}
    keys = {"/fs/orders/main"} | kv.names("/fs/orders/main/")
    sizes = [len(entry.value or b"") for key in keys if (entry := kv.get(key)) is not None]
    assert (rows[0]["keys"], rows[0]["keyBytes"]) == (len(sizes), sum(sizes))
    json.dumps(rows)
    below = list_checkpoints(kit.tools(kv), Location.parse("raftlake://orders/main"))
    assert [row["path"] for row in below] == [MAIN]


def test_a_checkpoint_is_shown_whole() -> None:
    kv = MemoryKv()
    files = kit.stateful(4, snapshots=(3,), first=3) | {"offsets/4": kit.offsets(4, '{"a":1}', "-")}
    kit.write(kv, MAIN, files)
    kit.own(kv, MAIN)
    facts = show_checkpoint(kit.tools(kv), Location.parse(MAIN))
    json.dumps(facts)
    assert (facts["lastBatch"], facts["lastCommitted"], facts["files"]) == (4, 3, len(files))
    assert facts["bytes"] == sum(map(len, files.values()))
    assert [batch["canGoOn"] for batch in facts["batches"]] == [False, False, True, True, False]
    assert facts["batches"][0]["why"] == "state/0/0 has no version 1: nothing below it, and no change 1 of it"
    assert facts["batches"][4] == {
        "batch": 4,
        "committed": False,
        "offsets": {"0": {"a": 1}, "1": None},
        "timestampMs": kit.NOW_MS + 4,
        "watermarkMs": 0,
        "canGoOn": False,
        "why": "not committed",
    }
    (state,) = facts["state"]
    assert state["name"] == "stateStoreSave"
    assert (state["partitions"], state["stores"], state["versions"]) == (2, ["default"], [3, 4])
    assert facts["owner"]["run"] == "a-run"
    with pytest.raises(WrongState, match="raftlake://orders/none does not exist"):
        show_checkpoint(kit.tools(kv), Location.parse("raftlake://orders/none"))
    with pytest.raises(WrongState, match="raftlake://orders/main/metadata is a file; a checkpoint is a directory"):
        show_checkpoint(kit.tools(kv), Location.parse("raftlake://orders/main/metadata"))
    with pytest.raises(WrongState, match="raftlake://orders/main/state is no checkpoint: it has no file `metadata`"):
        show_checkpoint(kit.tools(kv), Location.parse("raftlake://orders/main/state"))


def test_a_broken_off_change_is_shown() -> None:
    kv = MemoryKv()
    mark = Mark("rewind", "raftlake checkpoints rewind raftlake://orders/main --batch 1", QUERY)
    kit.write(kv, MAIN, kit.stateful(3) | {"metadata": mark.encode()})
    facts = show_checkpoint(kit.tools(kv), Location.parse(MAIN))
    assert facts["brokenOff"] == mark.told
    assert facts["query"] == QUERY


@pytest.mark.parametrize("since_ms", [10**17, -(10**17), 10**400])
def test_an_odd_owner_key_of_one_checkpoint_hides_no_other(since_ms: int) -> None:
    kv = MemoryKv()
    for root in ("raftlake://a/one", "raftlake://b/two"):
        kit.write(kv, root, kit.stateful(2))
        kit.own(kv, root)
    kit.put(kv, Location.parse("raftlake://a/one").owner_key, json.dumps({"run": "r", "since_ms": since_ms}).encode())
    rows = list_checkpoints(kit.tools(kv), None)
    assert [(row["owner"]["run"], row["owner"]["since"]) for row in rows] == [
        ("r", "1970-01-01T00:00:00Z"),
        ("a-run", "2023-11-14T22:13:20Z"),
    ]
    assert show_checkpoint(kit.tools(kv), Location.parse("raftlake://a/one"))["owner"]["run"] == "r"


# --- keys of somebody else -------------------------------------------------------------------------------------------

THEIRS = "raftlake://theirs/file/metadata"
DEEP = b"[" * 60_000


def listed_beside(value: bytes, kv: MemoryKv | None = None) -> list[dict[str, Any]]:
    """What is listed where such a value stands under a name that a checkpoint could have."""
    kv = kv or MemoryKv()
    kit.write(kv, MAIN, kit.stateless(1))
    kit.put(kv, Location.parse(THEIRS).key, value)
    rows = list_checkpoints(kit.tools(kv), None)
    assert rows[0]["path"] == MAIN
    return rows


def blob(uri: object, content: bytes = b"any", **facts: object) -> bytes:
    return Node(Kind.BLOB, {**Node.blob(1, "x", "", content).facts, "blob": {"uri": uri}, **facts}).encode()


@pytest.mark.parametrize(
    "uri",
    [
        *("file://[", "http://[/x", "file:/tmp/a%00b", "file:/tmp", "file:/nowhere/x", "", 7),
        *("quorum:a topic!/0/0-0/1x1/id", f"quorum:{'t' * 250}/0/0-0/1x1/id", "quorum:t/0/0-0/1x1/id"),
    ],
)
def test_a_key_of_somebody_else_with_an_odd_uri_ends_no_list(uri: object) -> None:
    assert len(listed_beside(blob(uri))) == 1


def head_of(kind: Kind, text: bytes) -> bytes:
    return struct.pack(">BcI", 1, kind.value, len(text)) + text


@pytest.mark.parametrize("uri", ["file:/\ud800", "quorum:t/0/0-0/1x1/\ud800"])
def test_half_a_character_in_a_uri_ends_no_list(uri: str) -> None:
    text = json.dumps({**Node.blob(1, "x", "", b"any").facts, "blob": {"uri": uri}}).encode()
    assert Node.decode("k", head_of(Kind.BLOB, text)).uri.endswith("?")
    assert len(listed_beside(head_of(Kind.BLOB, text))) == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT])
def test_a_topic_that_cannot_be_read_ends_no_list(code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a name of two dots, and for offsets that the tier does not give in time."""
    kv = MemoryKv()

    def refuse(*_: object, **__: object) -> None:
        raise RequestRejected(code)

    monkeypatch.setattr(kit.logs(kv), "read", refuse)
    assert len(listed_beside(blob("quorum:../0/0-0/1x1/id"), kv)) == 1


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Who opens one waits for whoever writes into it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    kept = os.open(pipe, os.O_RDWR)  # A program that opens it does not wait for ever.
    try:
        os.write(kept, kit.metadata() + b"and more")
        value = blob(f"file:{pipe}", kit.metadata())
        with pytest.raises(WrongState, match=r"has its content at .*/pipe, which is no file"):
            kit.tools(MemoryKv()).blobs().content(Location.parse(THEIRS), Node.decode("k", value))
        assert len(listed_beside(value)) == 1
    finally:
        os.close(kept)


@pytest.mark.parametrize(("size", "is_listed"), [(INLINE_BYTES - 1, True), (INLINE_BYTES, True), (INLINE_BYTES + 1, False)])
def test_only_a_small_blob_is_read_for_the_list(size: int, is_listed: bool, tmp_path: Path) -> None:
    content = kit.metadata().ljust(size)
    (tmp_path / "blob").write_bytes(content)
    rows = listed_beside(blob(f"file:{tmp_path}/blob", content))
    assert [row["path"] for row in rows[1:]] == ["raftlake://theirs/file"] * is_listed


@pytest.mark.parametrize("said", [-(10**30), -5, -1, 0, 2, 4])
def test_of_a_file_no_more_is_read_than_its_key_says(said: int, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"any")
    assert len(listed_beside(blob(f"file:{tmp_path}/blob", length=said))) == 1
    read = kit.tools(MemoryKv()).blobs().content
    with pytest.raises(InvalidInput, match=rf"it has {min(3, max(0, said) + 1)} bytes of content and says {said}"):
        read(Location.parse(THEIRS), Node.decode("k", blob(f"file:{tmp_path}/blob", length=said)))


@pytest.mark.parametrize("value", [Node.inline(1, DEEP).encode(), head_of(Kind.INLINE, DEEP)])
def test_json_of_any_depth_ends_no_list(value: bytes) -> None:
    assert len(listed_beside(value)) == 1
    assert log_json(b"v1\n" + DEEP) == {} and offsets_of(b"v1\n{}\n" + DEEP) == {"0": DEEP.decode()}
    assert query_of(DEEP) is None is Mark.decode(DEEP)


def test_half_a_character_in_a_mark_can_be_printed() -> None:
    mark = b'{"doing":"delete","query":"\\ud800","told":"x\\ud800","before":""}'
    (_, row) = listed_beside(Node.inline(1, mark).encode())
    assert (row["query"], row["brokenOff"]) == ("?", "x?")
    "".join(map(str, row.values())).encode()


@pytest.mark.parametrize("value", [DEEP, b'{"id":7,"query":"q"}', b'{"id":["\\ud800"],"query":"q"}', b"no"])
def test_an_odd_key_of_a_changelog_is_none(value: bytes) -> None:
    kv = MemoryKv()
    kit.put(kv, Location.parse(MAIN).changelog_key, value)
    assert kit.tools(kv).changelog_of(Location.parse(MAIN), "q") is None
