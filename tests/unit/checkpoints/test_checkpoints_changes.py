"""Rewinding, renaming and deleting: what stays, what is refused, who is fenced, and what a broken-off command leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import QUERY, Crash, MemoryKv
from raftlake.checkpoints import changes
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark
from raftlake.checkpoints.node import Node
from raftlake.checkpoints.writer import Writer
from raftlake.errors import WrongState

MAIN, OTHER = "raftlake://orders/main", "raftlake://trial/deep/main"


def rewind(kv: MemoryKv, batch: int) -> changes.Changed:
    told = f"raftlake checkpoints rewind {MAIN} --batch {batch}"
    return changes.rewind(kit.tools(kv), Location.parse(MAIN), batch, told)


def rename(kv: MemoryKv, source: str = MAIN, target: str = OTHER) -> changes.Changed:
    told = f"raftlake checkpoints rename {source} {target}"
    return changes.rename(kit.tools(kv), Location.parse(source), Location.parse(target), told)


def delete(kv: MemoryKv, root: str = MAIN, topics: Callable[[str], None] = lambda prefix: None) -> changes.Changed:
    return changes.delete(kit.tools(kv), Location.parse(root), f"raftlake checkpoints delete {root}", topics)


def space(files: dict[str, bytes]) -> MemoryKv:
    kv = MemoryKv()
    kit.write(kv, MAIN, files)
    kit.own(kv, MAIN)
    return kv


FILES = kit.stateful(6, snapshots=(2, 4, 6))


def version(kv: MemoryKv, key: str) -> int:
    entry = kv.get(key)
    return 0 if entry is None else entry.version


def owner(kv: MemoryKv, root: str = MAIN) -> str:
    entry = kv.get(Location.parse(root).owner_key)
    assert entry is not None and entry.value is not None
    return str(json.loads(entry.value)["run"])


# --- rewind ----------------------------------------------------------------------------------------------------------


def test_a_rewind_removes_what_came_behind_its_batch() -> None:
    operators = {f"state/0/_metadata/v2/{batch}": b"v2\n{}" for batch in (0, 3, 5)}
    sums = {f"state/0/0/{number}.changelog.crc": b"{}" for number in range(1, 7)}
    begun = {"offsets/6": kit.offsets(6), "state/0/1/7_left.changelog": b"of an attempt"}
    kv = space(FILES | operators | sums | begun)
    changed = rewind(kv, 3)
    found = kit.read(kv, MAIN)
    assert {name for name in found if name.split("/")[0] in ("offsets", "commits")} == {
        f"{kind}/{batch}" for kind in ("offsets", "commits") for batch in range(4)
    }
    state = {name for name in found if name.startswith("state/0/0/") and "SSTs" not in name and "schema" not in name}
    versions = {f"state/0/0/{number}.changelog{end}" for number in range(1, 5) for end in ("", ".crc")}
    assert state == versions | {"state/0/0/2.zip", "state/0/0/4.zip"}
    assert {name for name in found if "_metadata/v2" in name} == {"state/0/_metadata/v2/0", "state/0/_metadata/v2/3"}
    assert found["metadata"] == kit.metadata()
    assert changed.query == QUERY
    assert changed.owner is not None and changed.owner.run == "a-run"
    assert owner(kv).startswith(f"`raftlake checkpoints rewind {MAIN} --batch 3` ")


def test_a_rewind_to_where_it_is_fences_nobody() -> None:
    kv = space(FILES)
    assert rewind(kv, 5) == changes.Changed(QUERY, 0, None)
    assert owner(kv) == "a-run"
    # A batch that was begun goes.
    kit.write(kv, MAIN, {"offsets/6": kit.offsets(6)})
    assert rewind(kv, 5).files == 1
    assert "offsets/6" not in kit.read(kv, MAIN)


@pytest.mark.parametrize(
    ("files", "batch", "told"),
    [
        (FILES, 6, "batch 6 is not among the committed batches that are kept (0 to 5)"),
        ({k: v for k, v in FILES.items() if k not in ("commits/0", "offsets/0")}, 0, "(1 to 5)"),
        (kit.stateful(6, snapshots=(4,), first=5), 2, "state/0/0 has no version 3: nothing below it"),
        ({k: v for k, v in FILES.items() if k not in ("state/0/1/2.zip", "state/0/1/1.changelog")}, 2, "no change 1 of it"),
    ],
)
def test_a_rewind_to_what_is_not_kept_is_refused_and_fences_nobody(files: dict[str, bytes], batch: int, told: str) -> None:
    kv = space(files)
    before = kit.read(kv, MAIN)
    with pytest.raises(WrongState, match=r".*") as refused:
        rewind(kv, batch)
    assert told in str(refused.value)
    assert kit.read(kv, MAIN) == before
    assert owner(kv) == "a-run"


def test_a_batch_that_a_query_removes_before_it_is_fenced_is_refused_then() -> None:
    kv = space(FILES)

    def clean_up(number: int) -> None:
        if number == 0:
            for partition in (0, 1):
                for name in ("1.changelog", "2.zip", "2.changelog"):
                    kit.remove(kv, Location.parse(MAIN).below(f"state/0/{partition}/{name}").key)

    kv.before = clean_up
    with pytest.raises(WrongState, match="state/0/0 has no version 2"):
        rewind(kv, 1)
    assert Mark.decode(kit.read(kv, MAIN)["metadata"]) is None


def test_where_changes_are_in_topics_they_begin_at_the_oldest_snapshot() -> None:
    files = {name: content for name, content in FILES.items() if not name.endswith(".changelog")}
    kv = space(files)
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    with pytest.raises(WrongState, match="state/0/0 has no version 1: its oldest snapshot is of version 2"):
        rewind(kv, 0)
    assert rewind(kv, 2).files > 0
    assert "state/0/0/2.zip" in kit.read(kv, MAIN)


def test_the_run_before_can_write_no_more_once_a_rewind_has_begun() -> None:
    kv = space(FILES)
    before = version(kv, "/fs-owner/orders/main")
    seen: list[bool] = []
    kv.before = lambda number: seen.append(version(kv, "/fs-owner/orders/main") == before)
    rewind(kv, 2)
    # The first transaction takes the checkpoint, before any file goes.
    assert seen == [True] + [False] * (len(seen) - 1)
    key = "/fs-owner/orders/main"
    assert all(any(getattr(one, "key", "") == key for one in txn.compares) for txn in kv.transactions)


@pytest.mark.parametrize("work", [lambda kv: rewind(kv, 2), rename, delete])
def test_topics_with_state_are_named_for_as_long_as_the_checkpoint_is_there(work: Callable[[MemoryKv], object]) -> None:
    """A collector takes a key in /fs-state/ for garbage unless `metadata` has the id that the key has."""
    kv = space(FILES)
    facts = {"id": "abc", "query": QUERY}
    kit.put(kv, "/fs-state/orders/main", json.dumps(facts).encode())
    seen: set[str] = set()

    def look(number: int) -> None:
        told = json.loads(kit.read(kv, MAIN)["metadata"])["id"]
        entry = kv.get("/fs-state/orders/main")
        assert entry is not None
        assert json.loads(entry.value or b"") == {"id": "abc", "query": told}
        seen.add(told)

    kv.before = look
    work(kv)
    assert len(seen) == 2
    left = [kv.get(key) for key in ("/fs-state/orders/main", "/fs-state/trial/deep/main")]
    assert [json.loads(entry.value or b"") for entry in left if entry is not None] == ([] if work is delete else [facts])


def crash_at(kv: MemoryKv, last: int) -> None:
    def crash(number: int) -> None:
        if number == last:
            raise Crash

    kv.before = crash


def repeat(kv: MemoryKv, work: Callable[[], object], last: int) -> None:
    """Break the work off before one of its transactions, and do it again. Raises where it would not come so far."""
    crash_at(kv, last)
    with pytest.raises(Crash):
        work()
    kv.before = lambda number: None


def test_a_rewind_that_is_broken_off_anywhere_is_repeated() -> None:
    files = FILES | {f"state/0/0/{number}_x.changelog": b"" for number in range(200, 470)}
    whole = space(files)
    rewind(whole, 2)
    count = len(whole.transactions)
    assert count > 4
    for last in range(count):
        kv = space(files)
        repeat(kv, lambda kv=kv: rewind(kv, 2), last)  # type: ignore[misc]
        if last >= 2:
            with pytest.raises(WrongState, match=r"--batch 2` was broken off, or still runs. Repeat it, or delete"):
                rewind(kv, 1)
        rewind(kv, 2)
        assert kit.read(kv, MAIN) == kit.read(whole, MAIN)


# --- rename ----------------------------------------------------------------------------------------------------------


def test_a_renamed_checkpoint_is_the_same_elsewhere() -> None:
    kv = space(FILES)
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    changed = rename(kv)
    assert kit.read(kv, OTHER) == FILES
    assert kv.names("/fs/orders/") == set()
    assert changed.files == len(FILES)
    assert changed.owner is not None and changed.owner.run == "a-run"
    assert json.loads((kv.get("/fs-state/trial/deep/main") or pytest.fail("gone")).value or b"")["id"] == "abc"
    assert kv.get("/fs-state/orders/main") is None
    assert "/fs/trial/deep/main/state/0/1" in kv.names()


def test_a_rename_that_is_broken_off_anywhere_is_repeated() -> None:
    whole = space(FILES)
    rename(whole)
    count = len(whole.transactions)
    for last in range(count):
        kv = space(FILES)
        repeat(kv, lambda kv=kv: rename(kv), last)  # type: ignore[misc]
        marked = [root for root in (MAIN, OTHER) if Mark.decode(kit.read(kv, root).get("metadata", b"")) is not None]
        assert marked in ([], [MAIN, OTHER]), "both at once"
        if marked and set(kit.read(kv, OTHER)) == {"metadata"}:
            delete(kv, OTHER)
            assert kv.names("/fs/trial/deep/main") == set()
            marked = [MAIN]
        for root in marked:
            with pytest.raises(WrongState, match=r"Repeat it$"):
                delete(kv, root)
        rename(kv)
        assert kit.read(kv, OTHER) == FILES
        assert kv.names("/fs/orders/") == set()


@pytest.mark.parametrize("files", [FILES, {"metadata": kit.metadata()}])
def test_the_source_of_a_rename_never_goes_without_its_target(files: dict[str, bytes]) -> None:
    """Behind the last move it holds nothing but the mark, as a target before the first one does."""
    whole = space(files)
    rename(whole)
    kv = space(files)
    repeat(kv, lambda: rename(kv), len(whole.transactions) - 1)
    assert set(kit.read(kv, MAIN)) == {"metadata"}
    with pytest.raises(WrongState, match=r"Repeat it$"):
        delete(kv, MAIN)
    rename(kv)
    assert kit.read(kv, OTHER) == files


def target_marked_alone(kv: MemoryKv) -> None:
    """As an earlier version left it: it marked the source behind the target."""
    told = f"raftlake checkpoints rename {MAIN} {OTHER}"
    kit.write(kv, OTHER, {"metadata": Mark("rename", told, QUERY, kit.metadata().decode()).encode()})


def test_a_target_that_was_marked_alone_is_free_again_when_the_rename_is_given_up() -> None:
    third = "raftlake://orders/third"
    kv = space(FILES)
    target_marked_alone(kv)
    way = rf"Repeat it, or delete what it left \(raftlake checkpoints delete {OTHER}\)$"
    with pytest.raises(WrongState, match=way):
        changes.rename(kit.tools(kv), Location.parse(MAIN), Location.parse(OTHER), "another command")
    rename(kv, target=third)
    with pytest.raises(WrongState, match=f"{MAIN} does not exist"):
        rename(kv)
    delete(kv, OTHER)
    assert kv.names("/fs/trial/deep/main") == set()
    rename(kv, third, OTHER)
    assert kit.read(kv, OTHER) == FILES


def test_a_rename_whose_target_was_marked_alone_is_repeated() -> None:
    kv = space(FILES)
    target_marked_alone(kv)
    rename(kv)
    assert kit.read(kv, OTHER) == FILES
    assert kv.names("/fs/orders/") == set()


def test_a_lost_answer_does_not_break_a_change_off() -> None:
    whole = space(FILES)
    rename(whole)
    for lost in range(len(whole.transactions)):
        kv = space(FILES)
        kv.loses_answers = frozenset({lost})
        rename(kv)
        assert kit.read(kv, OTHER) == FILES
        assert kv.names("/fs/orders/") == set()


def test_paths_in_metadata_of_operators_follow_a_rename() -> None:
    schema = "state/0/_stateSchema/default/0_1b6f"
    info = {"storeName": "default", "stateSchemaFilePaths": [f"{MAIN}/{schema}"]}
    kv = space(FILES | {schema: b"", "state/0/_metadata/v2/0": f"v2\n{json.dumps({'stateStoreInfo': [info]})}".encode()})
    rename(kv)
    assert f'"{OTHER}/{schema}"'.encode() in kit.read(kv, OTHER)["state/0/_metadata/v2/0"]
    assert kv.names("/fs/orders/") == set()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{MAIN}/below", "lie in each other"),
        ("raftlake://orders", "lie in each other"),
        ("raftlake://orders/third", "raftlake://orders/third exists"),
        ("raftlake://orders/third/below", "lies in the checkpoint raftlake://orders/third"),
    ],
)
def test_a_rename_to_a_place_that_is_taken_is_refused(target: str, told: str) -> None:
    kv = space(FILES)
    kit.write(kv, "raftlake://orders/third", kit.stateless(1))
    with pytest.raises(WrongState, match=told):
        rename(kv, target=target)
    assert owner(kv) == "a-run"
    assert kit.read(kv, MAIN) == FILES


def test_a_file_that_another_program_puts_into_the_old_place_stops_a_rename() -> None:
    kv = space(FILES)
    late = Location.parse(MAIN).below("late")

    def put(number: int) -> None:
        if number == 10:
            kit.put(kv, late.key, Node.inline(0, b"x").encode())

    kv.before = put
    with pytest.raises(WrongState, match="another program changes these files at the same time"):
        rename(kv)
    kv.before = lambda number: None
    rename(kv)
    assert kit.read(kv, OTHER) == FILES | {"late": b"x"}


# --- delete ----------------------------------------------------------------------------------------------------------


def test_a_deleted_checkpoint_leaves_its_owner_key_alone() -> None:
    kv = space(FILES)
    kit.write(kv, "raftlake://orders/main2", kit.stateless(1))
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    topics: list[str] = []
    assert delete(kv, topics=topics.append).files == len(FILES)
    assert topics == ["__raftlake-state-abc-"]
    left = {key for key in kv.names() if not key.startswith("/fs/orders/main2")}
    assert left == {"/fs-owner/orders/main"}
    assert "raftlake checkpoints delete" in owner(kv)
    with pytest.raises(WrongState, match="does not exist"):
        delete(kv)


def test_a_deletion_that_is_broken_off_anywhere_is_repeated() -> None:
    whole = space(FILES)
    delete(whole)
    for last in range(len(whole.transactions)):
        kv = space(FILES)
        repeat(kv, lambda kv=kv: delete(kv), last)  # type: ignore[misc]
        delete(kv)
        assert kv.names("/fs/") == set()


def test_only_one_checkpoint_is_deleted() -> None:
    kv = space(FILES)
    kit.write(kv, f"{MAIN}/inner", kit.stateless(1))
    kit.write(kv, "raftlake://orders/none", {"file": b"x"})
    with pytest.raises(WrongState, match=f"{MAIN} holds another checkpoint, {MAIN}/inner: give that one"):
        delete(kv)
    with pytest.raises(WrongState, match="is no checkpoint"):
        delete(kv, "raftlake://orders/none")
    delete(kv, f"{MAIN}/inner")
    assert kit.read(kv, MAIN) == FILES


def test_a_broken_fork_may_be_deleted() -> None:
    kv = space(FILES | {"metadata": Mark("fork", "raftlake checkpoints fork a b", QUERY).encode()})
    assert delete(kv).files == len(FILES)


def test_blobs_go_with_their_files_and_stay_with_moved_ones(tmp_path: Path) -> None:
    kv = space(FILES)
    blobs = kit.tools(kv).blobs(f"file:{tmp_path}")
    large = Location.parse(MAIN).below("state/0/0/SSTs/large.sst")
    node, intent, at = blobs.write(large, bytes(100_000))
    kit.put(kv, large.key, node.encode())
    kit.remove(kv, intent)
    foreign = Location.parse(MAIN).below("state/0/0/SSTs/foreign.sst")
    kit.put(kv, foreign.key, Node.blob(0, "b1", "s3a://bucket/orders/b1", b"far").encode())
    rename(kv)
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [bytes(100_000)]
    assert kv.names("/fs-blobs/") == set()
    delete(kv, OTHER)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    # What only Hadoop can remove is left to the collector of a Spark job.
    assert kv.names("/fs-blobs/") == {"/fs-blobs/trial/b1"}
    assert at > 0


def test_a_file_is_no_directory() -> None:
    kv = space(FILES)
    tools = kit.tools(kv)
    ownership, _ = tools.own(Location.parse(MAIN), "told", QUERY)
    writer = Writer(tools.space, tools.blobs(), [ownership], tools.clock)
    with pytest.raises(WrongState, match=f"{MAIN}/metadata is a file"):
        writer.put(Location.parse(MAIN).below("metadata/below"), b"", over=0)
