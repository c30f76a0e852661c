"""State whose changes are in topics: a copy has them in files, as Spark's RocksDB provider reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import checkpointkit as kit
from checkpointkit import FORK, QUERY, MemoryKv, MemoryLogs
from raftlake.checkpoints import copies
from raftlake.checkpoints.changelog_file import encode
from raftlake.checkpoints.changelog_topics import StoreLog, topic_of
from raftlake.checkpoints.location import Location
from raftlake.client.types import NewRecord, Record
from raftlake.errors import ErrorCode, RequestRejected, WrongState

MAIN, TRIAL = "raftlake://orders/main", "raftlake://orders/trial"
TOLD = f"raftlake checkpoints fork {MAIN} {TRIAL}"
STORES = ("state/0/0", "state/0/1")
Names = Sequence[tuple[int, str]]


def fork(kv: MemoryKv, batch: int | None = None) -> copies.Copied:
    return copies.fork(kit.tools(kv), Location.parse(MAIN), Location.parse(TRIAL), batch, None, TOLD)


def changes(version: int, unique_id: str | None, count: int = 3) -> list[NewRecord]:
    text = f"{version} {unique_id}".encode()
    puts = [NewRecord(key=b"key-%d" % number, value=text) for number in range(count)]
    return [*puts, NewRecord(key=b"gone", value=None), NewRecord(key=b"list", value=text, headers=(("op", b"merge"),))]


class Changelog:
    """The topic of one store, written as the provider in Java does."""

    def __init__(self, logs: MemoryLogs, store: str, changelog_id: str = "abc") -> None:
        topic, partition = topic_of(changelog_id, store)
        self.records = logs.records.setdefault((topic, partition), [])

    def append(self, version: int, unique_id: str | None, lineage: Names = (), pieces: int = 1) -> list[list[int]]:
        """Where the batches of the version are."""
        places: list[list[int]] = []
        rows = changes(version, unique_id)
        for number in range(pieces):
            batch = rows[number::pieces] if pieces > 1 else rows
            first, is_last = len(self.records), number == pieces - 1
            trailer = {
                "format": 1,
                "version": version,
                **({"id": unique_id} if unique_id else {}),
                "changes": len(batch),
                "last": is_last,
                "pieces": places if is_last else [],
                "lineage": [[*name, -1, -1] for name in lineage] if is_last else [],
            }
            self.records += [*batch, NewRecord(value=json.dumps(trailer).encode())]
            places = [*places, [first, len(self.records) - 1]]
        return places


def logged(*snapshots: int, versions: int = 4) -> MemoryKv:
    """A checkpoint of format 2: a query of so many batches, two partitions, with the ids `a1`, `b1` and so on."""
    files = {name: content for name, content in kit.stateful(versions).items() if not name.endswith(".changelog")}
    kv = MemoryKv()
    for batch in range(versions):
        files[f"commits/{batch}"] = kit.commit([f"a{batch + 1}", f"b{batch + 1}"])
    for store, letter in zip(STORES, "ab", strict=True):
        log = Changelog(kit.logs(kv), store)
        for version in range(1, versions + 1):
            lineage = [(each, f"{letter}{each}") for each in range(max(snapshots, default=1), version)]
            # Before and behind it are those of a task that was killed, and of one that was slower.
            for attempt in ("-killed", "", "-slower"):
                log.append(version, f"{letter}{version}{attempt}", lineage)
        for version in snapshots:
            files[f"{store}/{version}_{letter}{version}.zip"] = kit.snapshot(f"{version}.sst")
            files[f"{store}/SSTs/{version}.sst"] = b"table"
    kit.write(kv, MAIN, files)
    kit.own(kv, MAIN)
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    return kv


def expected(version: int, unique_id: str | None, lineage: Names | None) -> bytes:
    made = [
        Record(topic="", partition=0, offset=0, timestamp_ms=0, key=each.key, value=each.value, headers=tuple(each.headers))
        for each in changes(version, unique_id)
    ]
    return encode(made, lineage, "lz4")


def changelogs(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(".changelog")}


def of_both(versions: Sequence[int], begin: int = 1) -> dict[str, bytes]:
    return {
        f"{store}/{version}_{letter}{version}.changelog": expected(
            version, f"{letter}{version}", [(each, f"{letter}{each}") for each in range(begin, version)]
        )
        for store, letter in zip(STORES, "ab", strict=True)
        for version in versions
    }


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_fork_has_each_change_up_to_its_batch_of_the_attempts_that_count(batch: int) -> None:
    kv = logged()
    assert fork(kv, batch).batch == batch
    assert changelogs(kit.read(kv, TRIAL)) == of_both(range(1, batch + 2))
    assert kv.get("/fs-state/orders/trial") is None, "the new query has topics of its own, once it writes"


def test_what_a_snapshot_has_is_not_copied_again() -> None:
    kv = logged(2)
    fork(kv, 3)
    found = kit.read(kv, TRIAL)
    assert changelogs(found) == of_both((3, 4), begin=2)
    assert {name for name in found if name.endswith(".zip")} == {"state/0/0/2_a2.zip", "state/0/1/2_b2.zip"}
    kv = logged(4)
    fork(kv)
    assert changelogs(kit.read(kv, TRIAL)) == {}


def test_a_batch_older_than_the_newest_snapshot_is_forked_from_an_older_one() -> None:
    kv = logged(1, 4)
    # The names of versions behind the newer snapshot are no help.
    for store, letter in zip(STORES, "ab", strict=True):
        log = Changelog(kit.logs(kv), store)
        log.records.clear()
        for version in (2, 3, 4):
            log.append(version, f"{letter}{version}", [(each, f"{letter}{each}") for each in range(1, version)])
    fork(kv, 2)
    assert changelogs(kit.read(kv, TRIAL)) == of_both((2, 3))


@pytest.mark.parametrize("failing", ["list_offsets", "read_offset", "read"])
@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_only_a_definite_answer_tells_that_changes_are_gone(
    failing: str, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RequestRejected(code)

    log = StoreLog(kit.logs(logged()), "abc", STORES[0])
    monkeypatch.setattr(MemoryLogs, failing, refuse)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        assert log.find(1, "a1") is None
    else:
        with pytest.raises(RequestRejected, match="REQUEST_TIMED_OUT"):
            log.find(1, "a1")


def test_an_export_has_the_changes_too(tmp_path: Path) -> None:
    kv = logged(2)
    assert copies.export(kit.tools(kv), Location.parse(MAIN), tmp_path / "out").query == QUERY
    assert changelogs(kit.from_directory(tmp_path / "out")) == of_both((3, 4), begin=2)


@pytest.mark.parametrize("page", [1, 2, 1000])
def test_a_version_in_pieces_is_whole_whatever_a_read_gives(page: int) -> None:
    kv = logged(versions=1)
    for store in STORES:
        Changelog(kit.logs(kv), store).records.clear()
    Changelog(kit.logs(kv), STORES[0]).append(1, "a1", pieces=3)
    second = Changelog(kit.logs(kv), STORES[1])
    # A gap, as a change of leaders leaves, and a piece of a task that was killed.
    second.records += changes(1, "lost")
    second.append(1, "b1")
    second.records += changes(1, "lost")
    kit.logs(kv).page = page
    fork(kv)
    found = changelogs(kit.read(kv, TRIAL))
    rows = changes(1, "a1")
    ordered = [row for number in range(3) for row in rows[number::3]]
    made = [
        Record(topic="", partition=0, offset=0, timestamp_ms=0, key=r.key, value=r.value, headers=r.headers) for r in ordered
    ]
    assert found == {"state/0/0/1_a1.changelog": encode(made, (), "lz4"), "state/0/1/1_b1.changelog": expected(1, "b1", ())}


def test_a_version_that_is_nowhere_is_refused_before_anything_is_written() -> None:
    kv = logged()
    logs = kit.logs(kv)
    topic, partition = topic_of("abc", STORES[1])
    third = next(at for at, row in enumerate(logs.records[topic, partition]) if row.value == b"3 b3")
    logs.starts[topic, partition] = third
    before = len(kv.transactions)
    with pytest.raises(WrongState, match="state/0/1 has no version 2 with the id b2: no file and no topic has its changes"):
        fork(kv, 3)
    del logs.records[topic, partition]
    with pytest.raises(WrongState, match="state/0/1 has no version 4 with the id b4"):
        fork(kv)
    assert len(kv.transactions) == before and not kit.read(kv, TRIAL)


def test_changes_that_spark_deletes_amid_the_copy_are_told() -> None:
    kv = logged(versions=1)
    log = StoreLog(kit.logs(kv), "abc", STORES[0])
    trailer = log.find(1, "a1")
    assert trailer is not None and trailer.parent is None
    topic, partition = topic_of("abc", STORES[0])
    kit.logs(kv).starts[topic, partition] = trailer.place[0][0] + 1
    with pytest.raises(WrongState, match="Spark deleted it meanwhile, try again"):
        list(log.changes(trailer))


def test_in_format_1_a_small_file_says_where_a_version_is() -> None:
    kv = MemoryKv()
    files = kit.stateful(3, snapshots=(1,))
    for store in STORES:
        log = Changelog(kit.logs(kv), store)
        for version in (2, 3):
            log.append(version, None)
            files[f"{store}/{version}.changelog"] = json.dumps({"format": 1, "pieces": log.append(version, None)}).encode()
            files[f"{store}/{version}.changelog.crc"] = b"{}"
    kit.write(kv, MAIN, files)
    kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
    fork(kv)
    found = kit.read(kv, TRIAL)
    assert changelogs(found) == {
        f"{store}/{version}.changelog": expected(version, None, None) for store in STORES for version in (2, 3)
    }
    assert not [name for name in found if name.endswith(".crc")]
    for topic_partition in kit.logs(kv).records:
        kit.logs(kv).starts[topic_partition] = 1000
    kit.remove(kv, "/fs/orders/trial/metadata")
    with pytest.raises(WrongState, match=r"version 3 is not at offset .* it was deleted"):
        copies.fork(kit.tools(kv), Location.parse(MAIN), Location.parse("raftlake://orders/next"), None, None, TOLD)


def test_files_of_an_imported_state_stay_below_the_first_version_in_the_topic() -> None:
    for ids in (("a", "b"), None):
        kv = MemoryKv()
        files = kit.stateful(4)
        for store, letter in zip(STORES, "ab", strict=True):
            log = Changelog(kit.logs(kv), store)
            for version in (1, 2, 3, 4):
                spark = files.pop(f"{store}/{version}.changelog")
                unique_id = f"{letter}{version}" if ids else None
                name = f"{store}/{version}_{unique_id}.changelog" if ids else f"{store}/{version}.changelog"
                lineage = [(each, f"{letter}{each}") for each in range(1, version)] if ids else []
                if version < 3:
                    files[name] = spark
                    continue
                place = log.append(version, unique_id, lineage)
                if not ids:
                    files[name] = json.dumps({"format": 1, "pieces": place}).encode()
        if ids:
            files |= {f"commits/{batch}": kit.commit([f"a{batch + 1}", f"b{batch + 1}"]) for batch in range(4)}
        kit.write(kv, MAIN, files)
        kit.put(kv, "/fs-state/orders/main", json.dumps({"id": "abc", "query": QUERY}).encode())
        fork(kv)
        found = changelogs(kit.read(kv, TRIAL))
        assert len(found) == 8
        for name, content in found.items():
            is_spark = int(name.rpartition("/")[2].split("_")[0].split(".")[0]) < 3
            assert (content == files.get(name)) is is_spark


def test_a_store_has_the_topic_that_the_provider_names() -> None:
    assert topic_of("1f", "state/0/12") == ("__raftlake-state-1f-0-default", 12)
    assert topic_of("1f", "state/3/0/left-keyToNumValues") == ("__raftlake-state-1f-3-left-keyToNumValues", 0)
    assert topic_of("1f", "state/0/0/a.b ä") == ("__raftlake-state-1f-0-a.002eb.0020.00e4", 0)


def test_a_trailer_of_a_later_release_is_told() -> None:
    kv = logged(versions=1)
    kit.logs(kv).records[topic_of("abc", STORES[0])].append(NewRecord(value=b'{"format": 2}'))
    with pytest.raises(WrongState, match="has format 2, and this release reads format 1"):
        fork(kv)


def test_the_fork_has_an_id_of_its_own() -> None:
    kv = logged()
    assert fork(kv).query == FORK
