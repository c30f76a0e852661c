"""Forks, imports and exports: what is copied, what is refused, and what a broken-off copy leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import FORK, QUERY, Crash, MemoryKv
from raftlake.checkpoints import copies
from raftlake.checkpoints.directory import Directory, require_new
from raftlake.checkpoints.location import Location
from raftlake.checkpoints.mark import Mark
from raftlake.checkpoints.sources import select
from raftlake.errors import InvalidInput, MachineError, UnknownOutcome, WrongState

MAIN, TRIAL = "raftlake://orders/main", "raftlake://orders/deep/trial"
TOLD = f"raftlake checkpoints fork {MAIN} {TRIAL}"


def fork(kv: MemoryKv, batch: int | None = None, source: str = MAIN, target: str = TRIAL) -> copies.Copied:
    return copies.fork(kit.tools(kv), Location.parse(source), Location.parse(target), batch, None, TOLD)


def space(files: dict[str, bytes], root: str = MAIN) -> MemoryKv:
    kv = MemoryKv()
    kit.write(kv, root, files)
    kit.own(kv, root)
    return kv


# --- what a fork has -------------------------------------------------------------------------------------------------


def test_a_fork_is_the_checkpoint_as_of_its_batch_with_an_id_of_its_own() -> None:
    files = kit.stateful(5, snapshots=(2, 4))
    kv = space(files)
    before = kit.read(kv, MAIN)
    assert fork(kv, 2) == copies.Copied(FORK, 2, len(kit.read(kv, TRIAL)))
    found = kit.read(kv, TRIAL)
    later = {"offsets/3", "offsets/4", "commits/3", "commits/4"}
    later |= {f"state/0/{partition}/{name}" for partition in (0, 1) for name in ("4.changelog", "5.changelog", "4.zip")}
    later |= {f"state/0/{partition}/SSTs/000004-{partition}.sst" for partition in (0, 1)}
    assert found == {name: content for name, content in files.items() if name not in later} | {"metadata": kit.metadata(FORK)}
    assert kit.read(kv, MAIN) == before


def test_the_default_is_the_last_batch_that_is_committed() -> None:
    kv = space(kit.stateful(3) | {"offsets/3": kit.offsets(3)})
    assert fork(kv).batch == 2
    assert "offsets/3" not in kit.read(kv, TRIAL)


def test_the_owner_of_the_source_stays_and_the_target_is_of_the_command() -> None:
    kv = space(kit.stateful(2))
    owner = kv.get("/fs-owner/orders/main")
    fork(kv)
    assert kv.get("/fs-owner/orders/main") == owner
    target = kv.get("/fs-owner/orders/deep/trial")
    assert target is not None and target.value is not None
    told = json.loads(target.value)
    assert TOLD in told["run"]
    assert told["query"] == FORK


def test_each_file_of_a_fork_stands_in_its_directory() -> None:
    kv = space(kit.stateful(2))
    fork(kv)
    keys = kv.names("/fs/orders/")
    assert {"/fs/orders/deep", "/fs/orders/deep/trial", "/fs/orders/deep/trial/state/0/1"} <= keys
    assert all(key.rpartition("/")[0] in keys | {"/fs/orders"} for key in keys)


def test_many_files_go_in_transactions_that_a_node_takes() -> None:
    big = {f"state/0/0/extra-{number}": bytes(900_000) for number in range(12)}
    kv = space(kit.stateful(2, partitions=3) | {f"sources/0/{number}": b"x" for number in range(1200)} | big)
    before = len(kv.transactions)
    fork(kv)
    copied = [txn for txn in kv.transactions[before:] if len(txn.ops) > 100]
    assert len(copied) >= 2
    for txn in kv.transactions[before:]:
        assert sum(len(getattr(op, "value", b"")) for op in txn.ops) <= 6 << 20


@pytest.mark.parametrize(
    ("files", "batch", "told"),
    [
        (kit.stateful(3), 3, "batch 3 is not among the committed batches that are kept (0 to 2)"),
        (kit.stateful(3) | {"offsets/3": kit.offsets(3)}, 3, "batch 3 is not among the committed"),
        (kit.stateful(6, snapshots=(5,), first=5), 3, "state/0/0 has no version 4: nothing below it, and no change 1 of it"),
        ({k: v for k, v in kit.stateful(3).items() if k != "offsets/1"}, 2, "the offsets of batch 1 are not kept"),
        ({k: v for k, v in kit.stateful(3).items() if k != "state/0/1/2.changelog"}, 2, "no change 2 of it"),
        ({k: v for k, v in kit.stateful(3).items() if not k.startswith("state/0/1/")}, 2, "state/0/1 has no version 3"),
        ({k: v for k, v in kit.stateful(3, snapshots=(2,)).items() if "SSTs" not in k}, 2, "and state/0/0/2.zip needs it"),
        ({k: v for k, v in kit.stateful(3).items() if k != "metadata"}, 2, "is no checkpoint: it has no file `metadata`"),
        ({}, None, "raftlake://orders/main does not exist"),
        ({"metadata": kit.metadata()}, None, "has no batch that is committed"),
    ],
)
def test_a_fork_that_could_not_go_on_is_refused_before_anything_is_changed(
    files: dict[str, bytes], batch: int | None, told: str
) -> None:
    kv = space(files)
    before = len(kv.transactions)
    with pytest.raises(WrongState, match=r".*") as refused:
        fork(kv, batch)
    assert told in str(refused.value)
    assert len(kv.transactions) == before


def test_the_commit_says_which_attempt_of_a_version_must_be_there() -> None:
    files = kit.stateless(2) | {"state/0/_metadata/metadata": kit.operator(2), "commits/1": kit.commit(["x", "y"])}
    for partition, last in enumerate(("x", "y")):
        files |= {f"state/0/{partition}/1_a.changelog": b"1", f"state/0/{partition}/2_{last}.changelog": b"2"}
    kv = space(files)
    fork(kv, 1)
    assert "state/0/1/2_y.changelog" in kit.read(kv, TRIAL)
    kv = space(files | {"commits/1": kit.commit(["x", "z"])})
    with pytest.raises(WrongState, match="state/0/1 has no version 2 with the id z"):
        fork(kv, 1)


def test_topics_of_another_query_at_the_same_path_do_not_count() -> None:
    kv = space(kit.stateful(4))
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": FORK}).encode())
    assert fork(kv, 3).batch == 3


# --- where it may go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [f"{MAIN}/inside", "raftlake://orders", MAIN, "raftlake://orders/main/"])
def test_a_copy_does_not_lie_in_its_source(target: str) -> None:
    kv = space(kit.stateful(2))
    with pytest.raises(WrongState, match=r"lie in each other"):
        fork(kv, target=target)


def test_a_copy_goes_to_a_new_place() -> None:
    kv = space(kit.stateful(2))
    kit.write(kv, TRIAL, kit.stateless(1))
    before = kit.read(kv, TRIAL)
    with pytest.raises(WrongState, match="exists: give a new place, or delete it first"):
        fork(kv)
    assert kit.read(kv, TRIAL) == before
    with pytest.raises(WrongState, match=f"lies in the checkpoint {TRIAL}"):
        fork(kv, target=f"{TRIAL}/below")


def test_an_empty_directory_is_a_new_place() -> None:
    kv = space(kit.stateful(2))
    kit.write(kv, TRIAL, {"x": b""})
    kit.remove(kv, Location.parse(TRIAL).below("x").key)
    assert fork(kv).batch == 1


# --- broken off ------------------------------------------------------------------------------------------------------


def test_a_fork_that_is_broken_off_anywhere_is_no_checkpoint_and_is_repeated() -> None:
    files = kit.stateful(2, snapshots=(1,)) | {f"sources/0/{number}": bytes(900_000) for number in range(6)}
    whole = space(files)
    fork(whole)
    count = len(whole.transactions)
    assert count > 8
    for last in range(count):
        kv = space(files)

        def crash(number: int, last: int = last) -> None:
            if number == last:
                raise Crash

        kv.before = crash
        with pytest.raises(Crash):
            fork(kv)
        kv.before = lambda number: None
        if (found := kit.read(kv, TRIAL)).get("metadata"):
            mark = Mark.decode(found["metadata"])
            assert mark is not None and mark.told == TOLD
            # Spark shows so much of what is no UUID.
            assert len(json.loads(found["metadata"])["id"]) <= 36
        fork(kv)
        assert kit.read(kv, TRIAL) == kit.read(whole, TRIAL)


def test_a_lost_answer_does_not_break_a_fork_off() -> None:
    files = kit.stateful(2)
    whole = space(files)
    fork(whole)
    for lost in range(len(whole.transactions)):
        kv = space(files)
        kv.loses_answers = frozenset({lost})
        fork(kv)
        assert kit.read(kv, TRIAL) == kit.read(whole, TRIAL)


def test_where_no_answer_comes_at_all_the_outcome_is_unknown() -> None:
    kv = space(kit.stateful(2))

    def lose(number: int) -> None:
        raise UnknownOutcome("no answer came")

    kv.before = lose
    with pytest.raises(UnknownOutcome):
        fork(kv)


def test_another_command_does_not_touch_what_was_broken_off() -> None:
    kv = space(kit.stateful(2))
    mark = Mark("import", f"raftlake checkpoints import ckpt {TRIAL}", QUERY)
    kit.write(kv, TRIAL, {"metadata": mark.encode(), "offsets/0": b"x"})
    with pytest.raises(WrongState, match=f"`raftlake checkpoints import ckpt {TRIAL}` was broken off, or still runs"):
        fork(kv)
    with pytest.raises(WrongState, match="was broken off, or still runs"):
        fork(kv, source=TRIAL, target="raftlake://orders/third")


def test_a_run_that_takes_the_target_meanwhile_keeps_it() -> None:
    kv = space(kit.stateful(2))

    def take(number: int) -> None:
        if number == 4:
            kit.own(kv, TRIAL, "the-new-run")

    kv.before = take
    with pytest.raises(WrongState, match=r"was taken from this command, .* The owner is run the-new-run"):
        fork(kv)
    count = len(kv.names("/fs/orders/deep/"))
    assert count < len(kit.stateful(2))


# --- directories -----------------------------------------------------------------------------------------------------


def import_(kv: MemoryKv, directory: Path, target: str = MAIN) -> copies.Copied:
    told = f"raftlake checkpoints import {directory} {target}"
    return copies.import_(kit.tools(kv), directory, Location.parse(target), None, told)


def export(kv: MemoryKv, directory: Path, source: str = MAIN) -> copies.Copied:
    return copies.export(kit.tools(kv), Location.parse(source), directory)


def test_a_checkpoint_goes_in_and_out_as_it_is(tmp_path: Path) -> None:
    files = kit.stateful(4, snapshots=(2, 4)) | {"offsets/4": kit.offsets(4)}
    kv = MemoryKv()
    copied = import_(kv, kit.to_directory(files, tmp_path / "in"))
    assert copied == copies.Copied(QUERY, 3, len(files))
    # What Hadoop keeps beside its files stays behind. The batch that was begun comes along.
    assert kit.read(kv, MAIN) == files
    export(kv, tmp_path / "out")
    assert kit.from_directory(tmp_path / "out") == files
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_state_behind_the_last_committed_batch_stays_behind(tmp_path: Path) -> None:
    files = kit.stateful(3)
    begun = {"offsets/3": kit.offsets(3), "state/0/0/4.changelog": b"of an attempt", "state/0/0/4.changelog.crc": b"{}"}
    kv = MemoryKv()
    import_(kv, kit.to_directory(files | begun, tmp_path / "in"))
    assert kit.read(kv, MAIN) == files | {"offsets/3": kit.offsets(3)}


def test_paths_in_metadata_of_operators_lead_to_the_new_place(tmp_path: Path) -> None:
    schema = "state/0/_stateSchema/default/0_1b6f"
    info = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": [f"file:{tmp_path}/in/{schema}"]}
    facts = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithState"}, "stateStoreInfo": [info]}
    files = kit.stateful(2) | {schema: b"schema", "state/0/_metadata/v2/0": f"v2\n{json.dumps(facts)}".encode()}
    kv = MemoryKv()
    import_(kv, kit.to_directory(files, tmp_path / "in"))
    told = json.loads(kit.read(kv, MAIN)["state/0/_metadata/v2/0"].split(b"\n")[1])
    assert told["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"{MAIN}/{schema}"]
    export(kv, tmp_path / "out")
    told = json.loads((tmp_path / "out/state/0/_metadata/v2/0").read_text().split("\n")[1])
    assert told["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"file:{tmp_path}/out/{schema}"]


def test_a_directory_that_a_query_writes_to_is_not_taken(tmp_path: Path) -> None:
    directory = kit.to_directory(kit.stateful(2), tmp_path / "in")
    kv = MemoryKv()

    def commit(number: int) -> None:
        if number == 5:
            (directory / "offsets/2").write_bytes(kit.offsets(2))

    kv.before = commit
    with pytest.raises(WrongState, match=r"was changed while it was read \(offsets/2\): stop the query"):
        import_(kv, directory)
    assert Mark.decode(kit.read(kv, MAIN)["metadata"]) is not None
    kv.before = lambda number: None
    assert import_(kv, directory).batch == 1


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"x": b""}, "is no checkpoint: it has no file `metadata`"),
        ({"metadata": b'{"id":"x"}'}, "is no checkpoint"),
        ({k: v for k, v in kit.stateful(3).items() if "2.changelog" not in k}, "a query cannot go on behind batch 2"),
    ],
)
def test_what_is_no_whole_checkpoint_is_not_imported(tmp_path: Path, files: dict[str, bytes], told: str) -> None:
    kv = MemoryKv()
    with pytest.raises(WrongState, match=r".*") as refused:
        import_(kv, kit.to_directory(files, tmp_path / "in"))
    assert told in str(refused.value)
    assert not kv.names()


def test_an_export_goes_to_a_new_directory(tmp_path: Path) -> None:
    kv = space(kit.stateful(2))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("x")
    with pytest.raises(WrongState, match="exists: give a new or an empty directory"):
        export(kv, tmp_path / "there")
    with pytest.raises(WrongState, match="no directory"):
        import_(kv, tmp_path / "there" / "file")
    (tmp_path / "empty").mkdir()
    assert export(kv, tmp_path / "empty").batch == 1


def test_an_export_waits_for_a_moment_without_changes(tmp_path: Path) -> None:
    kv = space(kit.stateful(3))
    batches = iter(range(3, 99))
    listing = kv.list

    def commit_meanwhile(prefix: str, *, after: str | None, limit: int, values: bool) -> object:
        if not values and after is None and (batch := next(batches)) < ends:
            kit.write(kv, MAIN, kit.stateful(batch + 1))
        return listing(prefix, after=after, limit=limit, values=values)

    kv.list = commit_meanwhile  # type: ignore[method-assign,assignment]
    ends = 5
    assert export(kv, tmp_path / "out").batch == 4
    ends = 99
    with pytest.raises(WrongState, match="was changed each of the 5 times that it was read: stop the query"):
        export(kv, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    kv = space(kit.stateful(2))
    for name in ("offsets/1", "commits/0"):
        location = Location.parse(MAIN).below(name)
        entry = kv.get(location.key)
        assert entry is not None and entry.value is not None
        kit.put(kv, location.key, entry.value[:-1] + b"?")
        with pytest.raises(Exception, match="the checksum of its content is wrong"):
            export(kv, tmp_path / "out")
        kit.put(kv, location.key, entry.value)
    assert list(tmp_path.iterdir()) == []


def test_hidden_files_are_no_part_of_a_directory(tmp_path: Path) -> None:
    files = kit.stateful(2)
    found = Directory(kit.to_directory(files | {".hidden/file": b""}, tmp_path))
    assert found.names == set(files)
    assert found.query == QUERY


def test_a_query_that_has_committed_nothing_yet_may_move() -> None:
    names = {"metadata": kit.metadata(), "offsets/0": kit.offsets(0)}
    chosen = select("it", names, names.__getitem__, None, is_move=True)
    assert (chosen.batch, chosen.names) == (None, ("offsets/0",))


def test_a_path_that_the_system_refuses_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 256)
    require_new(tmp_path / ("x" * 255))
    for look in (require_new, Directory):
        with pytest.raises(MachineError, match="xxx cannot be read: File name too long"):
            look(long)
        with pytest.raises(InvalidInput, match=r"b\\udcffd' is not valid Unicode text"):
            look(tmp_path / os.fsdecode(b"b\xffd"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WrongState, match="loop is no directory"):
        Directory(tmp_path / "loop")
    with pytest.raises(WrongState, match="loop exists"):
        require_new(tmp_path / "loop")

    def refuse(path: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(MachineError, match="cannot be read: Permission denied"):
        require_new(tmp_path)
