"""meta.properties: Kafka's text, and errors that name the file and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftlake.errors import StorageError
from raftlake.raft.types import DirectoryId, NodeId
from raftlake.storage.meta import (
    MetaProperties,
    format_directory,
    parse_meta,
    random_uuid,
    read_meta,
    require_meta,
    used_names,
    write_meta,
)
from raftlake.storage.partition import parse_uuid, uuid_text

ID = DirectoryId(parse_uuid("b8tRS7h4TJ2Vt43Dp85v2A"))
META = MetaProperties(node_id=NodeId(1), directory_id=ID, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")


def test_the_text_is_kafkas(tmp_path: Path) -> None:
    write_meta(tmp_path, META)
    assert (tmp_path / "meta.properties").read_text() == (
        "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\ndirectory.id=b8tRS7h4TJ2Vt43Dp85v2A\n"
    )
    assert read_meta(tmp_path) == META


def test_what_java_writes_is_read() -> None:
    lines = [
        "#",
        "#Sat Nov 21 10:00:00 UTC 2026",
        "! note",
        "",
        " node.id = 7 ",
        "directory.id=b8tRS7h4TJ2Vt43Dp85v2A",
        "version=1",
        "cluster.id=a\\:b\\=c",
        "other=1",
    ]
    assert parse_meta("\n".join(lines)) == MetaProperties(node_id=NodeId(7), directory_id=ID, cluster_id="a:b=c")


def test_formatting_makes_a_directory_for_one_node(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    made = format_directory(path, node_id=NodeId(3))
    assert read_meta(path) == made
    assert made.node_id == 3
    assert made.cluster_id is None
    assert any(made.directory_id)
    other = format_directory(tmp_path / "other", node_id=NodeId(3))
    assert other.directory_id != made.directory_id


def test_a_formatted_directory_is_not_formatted_again(tmp_path: Path) -> None:
    format_directory(tmp_path, node_id=NodeId(3))
    with pytest.raises(StorageError, match=r"meta\.properties exists"):
        format_directory(tmp_path, node_id=NodeId(4))


def test_logs_are_never_formatted_over(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(StorageError, match=r"missing beside the logs of a node\. Restore it"):
        read_meta(tmp_path)
    with pytest.raises(StorageError, match=r"holds logs.*Restore it"):
        format_directory(tmp_path, node_id=NodeId(4))


def test_a_directory_of_something_else_is_not_taken(tmp_path: Path) -> None:
    """Such as /etc, by a slip: a node would spread its files there."""
    for name in ("passwd", "hosts", "fstab", "ssl"):
        (tmp_path / name).write_text("x")
    with pytest.raises(StorageError, match=rf"{tmp_path} is not empty \(it holds fstab, hosts, passwd and 1 more\)"):
        format_directory(tmp_path, node_id=NodeId(4))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["fstab", "hosts", "passwd", "ssl"]


def test_a_fresh_mount_and_settings_do_not_keep_a_directory_from_being_formatted(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "node.properties").write_text("node.id=4")
    assert format_directory(tmp_path, node_id=NodeId(4)).node_id == 4


@pytest.mark.parametrize("left", [b"", b"version=1\nnode.id=4"])
def test_a_format_that_was_interrupted_is_repeated(tmp_path: Path, left: bytes) -> None:
    """A kill leaves the file under the name that it has until it is whole."""
    (tmp_path / "meta.properties.tmp").write_bytes(left)
    assert format_directory(tmp_path, node_id=NodeId(4)).node_id == 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["meta.properties"]


def test_what_a_node_that_never_ran_may_find_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for name in ("meta.properties", "node.properties.tmp", ".lock", "node.log", "raftlake.pid"):
        (tmp_path / name).write_bytes(b"")
    assert used_names(tmp_path) == []
    (tmp_path / "t-0").mkdir()
    (tmp_path / "ballast.tmp").write_bytes(b"")
    assert used_names(tmp_path) == ["ballast.tmp", "t-0"]
    with pytest.raises(StorageError, match=f"cannot look at {tmp_path}/none"):
        used_names(tmp_path / "none")


def test_an_unformatted_directory_says_how_to_format_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=rf"raftlake format --data-dir {tmp_path} --node-id"):
        read_meta(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=f"{tmp_path}/file"):
        format_directory(tmp_path / "file" / "data", node_id=NodeId(1))


@pytest.mark.parametrize(
    ("line", "replacement", "named"),
    [
        ("version=1", "version=0", "version"),
        ("version=1", "", "version"),
        ("node.id=1", "node.id=-1", "node.id"),
        ("node.id=1", "node.id=one", "node.id"),
        ("node.id=1", "", "node.id"),
        ("directory.id=b8tRS7h4TJ2Vt43Dp85v2A", "directory.id=b8tRS7h4TJ2Vt43Dp85v2", "directory.id"),
        ("directory.id=b8tRS7h4TJ2Vt43Dp85v2A", "directory.id=b8tRS7h4TJ2Vt43Dp85v2!", "directory.id"),
        ("directory.id=b8tRS7h4TJ2Vt43Dp85v2A", "", "directory.id"),
        ("cluster.id=MkU3OEVBNTcwNTJENDM2Qg", "cluster.id=", "cluster.id"),
        ("version=1", "version=1\nnonsense", "nonsense"),
    ],
)
def test_a_damaged_file_names_the_key(tmp_path: Path, line: str, replacement: str, named: str) -> None:
    write_meta(tmp_path, META)
    path = tmp_path / "meta.properties"
    path.write_text(path.read_text().replace(line, replacement))
    with pytest.raises(StorageError, match=rf"{path} cannot be used: .*{named}.*Restore it from a copy, .*voters list"):
        read_meta(tmp_path)


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xff")
    with pytest.raises(StorageError, match="cannot be used"):
        read_meta(tmp_path)


def test_another_nodes_directory_is_refused(tmp_path: Path) -> None:
    write_meta(tmp_path, META)
    assert require_meta(tmp_path, node_id=NodeId(1)) == META
    with pytest.raises(StorageError, match=r"belongs to node\.id=1, but this node is configured as node\.id=2"):
        require_meta(tmp_path, node_id=NodeId(2))


def test_a_cluster_id_may_come_later(tmp_path: Path) -> None:
    made = format_directory(tmp_path, node_id=NodeId(1))
    assert made.cluster_id is None
    assert require_meta(tmp_path, node_id=NodeId(1)) == made


def test_random_ids_are_version_4_and_never_look_like_options(monkeypatch: pytest.MonkeyPatch) -> None:
    dashed = b"\xf8" + bytes(15)
    values = iter([dashed, bytes(range(16))])
    monkeypatch.setattr("os.urandom", lambda size: next(values))
    assert uuid_text(dashed).startswith("-")
    made = random_uuid()
    assert (made[6] >> 4, made[8] >> 6, made[0]) == (4, 2, 0)
