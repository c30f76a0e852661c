"""Directories of topic partitions: names, identity, and the leftovers of crashes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from raftlake.errors import PathOutside, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage.disposal import Disposal
from raftlake.storage.partition import (
    create_partitions,
    ensure_partition,
    list_partitions,
    parse_uuid,
    remove_partitions,
    sweep,
    uuid_text,
)

METADATA_ID = bytes(15) + b"\x01"


def test_uuids_are_spelled_as_kafka_does() -> None:
    assert uuid_text(METADATA_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAQ") == METADATA_ID
    assert parse_uuid(uuid_text(b"\xff\xfe" * 8)) == b"\xff\xfe" * 8


NO_UUIDS = ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAB", "A" * 24, "é" * 22, "AAAAAAAAAAAAAAAAAAAAA="]


@pytest.mark.parametrize("text", NO_UUIDS)
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_uuid(text)


def test_the_metadata_file_is_kafkas(tmp_path: Path) -> None:
    path = ensure_partition(tmp_path, GroupId("__cluster_metadata", 0, METADATA_ID))
    assert path == tmp_path / "__cluster_metadata-0"
    assert (path / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_another_topic_of_the_same_name_is_refused(tmp_path: Path) -> None:
    ensure_partition(tmp_path, GroupId("a", 0, METADATA_ID))
    with pytest.raises(StorageError, match=r"a-0 belongs to topic id AAAAAAAAAAAAAAAAAAAAAQ, not to AAAAAAAAAAAAAAAAAAAAAA"):
        ensure_partition(tmp_path, GroupId("a", 0, bytes(16)))


DAMAGED = ["", "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "version: 0\ntopic_id: AAAA", "version: 0", "nonsense"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_identity_is_an_error(tmp_path: Path, text: str) -> None:
    group = GroupId("a", 0, METADATA_ID)
    path = ensure_partition(tmp_path, group)
    (path / "partition.metadata").write_text(text)
    with pytest.raises(StorageError, match=r"partition\.metadata is damaged.*Copy the file from the same"):
        list_partitions(tmp_path)
    (path / "partition.metadata").unlink()
    with pytest.raises(StorageError, match=r"partition\.metadata is missing.*raftlake format"):
        ensure_partition(tmp_path, group)


def test_other_files_are_no_partitions(tmp_path: Path) -> None:
    for name in ("-0", "a-", "a-x", "a", "a-²", "a-0-create", "a-0-delete"):
        (tmp_path / name).mkdir()
    (tmp_path / "b-1").write_text("a file")
    assert list_partitions(tmp_path) == []


def test_leftovers_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a-0-create", "a-b-12-delete", "backup-delete", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    (tmp_path / "c-0-delete").write_text("a file")
    ensure_partition(tmp_path, GroupId("a", 1))
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1", "backup-delete", "c-0-delete", "mine"]


def test_removing_is_final_and_may_be_repeated(tmp_path: Path) -> None:
    group = GroupId("a", 0)
    ensure_partition(tmp_path, group)
    (tmp_path / "a-0" / "1.log").write_bytes(b"x")
    (tmp_path / f"{uuid_text(group.topic_id)}-0-delete").mkdir()
    remove_partitions(tmp_path, [group], Disposal(threaded=False))
    assert list(tmp_path.iterdir()) == []
    remove_partitions(tmp_path, [group], Disposal(threaded=False))


@pytest.mark.parametrize("count", [1, 3])
def test_a_topic_may_have_the_longest_name_that_there_is(tmp_path: Path, count: int) -> None:
    """249 characters, a dash and five digits are 255, which is all that a file's name may have."""
    groups = [GroupId("t" * 249, 99_999 - number, bytes(range(16))) for number in range(count)]
    create_partitions(tmp_path, groups)
    assert list_partitions(tmp_path) == sorted(groups)
    remove_partitions(tmp_path, groups, Disposal(threaded=False))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for call in (lambda path: list_partitions(path), sweep, lambda path: ensure_partition(path, GroupId("a", 0))):
        with pytest.raises(StorageError, match="file"):
            call(tmp_path / "file")


def test_many_are_created_at_once_and_what_is_there_is_left_alone(tmp_path: Path) -> None:
    other = GroupId("orders", 3, bytes(range(1, 17)))
    ensure_partition(tmp_path, other)
    groups = [GroupId("orders", number, bytes(range(16))) for number in range(20)]
    create_partitions(tmp_path, groups)
    assert list_partitions(tmp_path) == [*groups[:3], other, *groups[4:]]


def test_a_failed_creation_of_many_leaves_none_that_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [GroupId("orders", number, bytes(range(16))) for number in range(20)]

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.storage.files.sync_descriptor", fail)
        with pytest.raises(StorageError, match=r"cannot create .*orders-\d+: Input/output error \(EIO\)"):
            create_partitions(tmp_path, groups)
    assert list_partitions(tmp_path) == []
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


OUTSIDE = ["../pwned", "../../../pwned", "a/../../pwned", "/tmp/pwned", "a\0b", "sub/dir"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_out_of_the_data_directory_is_neither_made_nor_deleted(tmp_path: Path, name: str) -> None:
    root = tmp_path / "data"
    victim = tmp_path / "pwned-0"
    for path in (root / "a", root / "sub", victim):
        path.mkdir(parents=True)
    (victim / "file").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    for groups in ([GroupId(name, 0)], [GroupId("good", 0), GroupId(name, 0)]):
        with pytest.raises(PathOutside):
            create_partitions(root, groups)
        with pytest.raises(PathOutside):
            remove_partitions(root, groups, Disposal(threaded=False))
    with pytest.raises(PathOutside):
        ensure_partition(root, GroupId(name, 0))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("target", ["elsewhere", "data/other-0", "nowhere"])
def test_a_directory_that_is_a_link_is_neither_made_nor_deleted(tmp_path: Path, target: str) -> None:
    root = tmp_path / "data"
    for path in (tmp_path / "elsewhere", root / "other-0"):
        path.mkdir(parents=True)
        (path / "1.log").write_text("kept")
    (root / "a-0").symlink_to(tmp_path / target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PathOutside, match="a-0 leads to"):
        create_partitions(root, [GroupId("a", 0)])
    with pytest.raises(PathOutside, match="a-0 leads to"):
        remove_partitions(root, [GroupId("a", 0)], Disposal(threaded=False))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_data_directory_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    root = tmp_path / "link"
    root.symlink_to(tmp_path / "real")
    create_partitions(root, [GroupId("a", 0)])
    assert list_partitions(root) == [GroupId("a", 0)]
    remove_partitions(root, [GroupId("a", 0)], Disposal(threaded=False))
    assert list_partitions(root) == []


def test_a_leftover_that_is_a_link_is_not_swept(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = tmp_path / "data"
    root.mkdir()
    (root / "a-0-delete").symlink_to(tmp_path / "elsewhere")
    sweep(root)
    assert (tmp_path / "elsewhere").is_dir()
