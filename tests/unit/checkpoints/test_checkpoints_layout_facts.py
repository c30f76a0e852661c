"""Layout and facts: what names of files mean, what is listed and what is shown of a checkpoint."""

from __future__ import annotations

import json

import pytest

import checkpointkit as kit
from checkpointkit import QUERY, MemoryKv
from raftlake.checkpoints.facts import list_checkpoints, show_checkpoint
from raftlake.checkpoints.layout import Layout, data_files_of, is_after, log_json, offsets_of, problems, query_of, relocated
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark, uuid_of
from raftlake.errors import WrongState

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
