"""A start of LocalQuorum that ended amid its work: which directories the next start completes, and which it refuses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlake.errors import ConfigError, StorageError, WrongState
from raftlake.local_directories import LocalNode, prepare
from raftlake.runtime.settings.settings import load_settings
from raftlake.storage.meta import read_meta

#: What a start does to directories and files, each of which Ctrl-C or a kill may keep from being done.
STEPS = ("mkdir", "open", "pwritev", "fsync", "rename")


def let_run(node: LocalNode) -> None:
    """Leave what a node that has run leaves."""
    log = node.directory / "__cluster_metadata-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(b"")


def require_one_quorum(nodes: dict[int, LocalNode]) -> None:
    """All nodes belong to one cluster, serve at ports of their own, and agree on the voters."""
    assert len({read_meta(node.directory).cluster_id for node in nodes.values()}) == 1
    assert [read_meta(node.directory).node_id for node in nodes.values()] == list(nodes)
    all_settings = [load_settings(node.properties) for node in nodes.values()]
    assert len({tuple(settings.voters.items()) for settings in all_settings}) == 1
    assert [str(settings.listener) for settings in all_settings] == [str(each) for each in all_settings[0].voters.values()]
    ports = [port for node in nodes.values() for port in (node.port, node.http_port)]
    assert len(set(ports)) == 2 * len(nodes)


def interrupt_step(patch: pytest.MonkeyPatch, number: int, done: list[str]) -> None:
    """The step of this number raises KeyboardInterrupt instead of being done."""

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **named: object) -> object:
            done.append(name)
            if len(done) == number:
                raise KeyboardInterrupt
            return None if name == "fsync" else real(*args, **named)

        return step

    for name in STEPS:
        patch.setattr(os, name, counted(name, getattr(os, name)))


def start_in_vain(data_dir: Path, number: int, port: int | None, http_port: int | None) -> bool:
    """Whether a start with three nodes was interrupted at the step; False where it has fewer steps."""
    done: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        interrupt_step(patch, number, done)
        try:
            prepare(data_dir, 3, port, http_port, {})
        except KeyboardInterrupt:
            return True
    assert set(STEPS[1:]) <= set(done)
    return False


def test_a_first_start_may_be_interrupted_at_every_step(tmp_path: Path) -> None:
    """Ctrl-C within some milliseconds left `DIR holds a quorum of 1 nodes; it cannot be started with 3` for good."""
    number = 1
    while start_in_vain(tmp_path / f"{number}", number, None, None):
        nodes = prepare(tmp_path / f"{number}", 3, None, None, {})
        assert list(nodes) == [1, 2, 3]
        require_one_quorum(nodes)
        number += 1
    assert number > 20


def test_a_move_to_other_ports_may_be_interrupted_at_every_step(tmp_path: Path) -> None:
    """The rows of ports overlap: two nodes of a start that went by each node's own file would have one port."""
    number = 1
    while True:
        data_dir = tmp_path / f"{number}"
        before = prepare(data_dir, 3, 19092, 18092, {})
        for node in before.values():
            let_run(node)
        if not start_in_vain(data_dir, number, 19094, 18094):
            break
        nodes = prepare(data_dir, 3, None, None, {})
        require_one_quorum(nodes)
        assert [node.port for node in nodes.values()] in ([19092, 19093, 19094], [19094, 19095, 19096])
        assert prepare(data_dir, 3, 19094, 18094, {})[3].http_port == 18096
        number += 1
    assert number > 10


@pytest.mark.parametrize("left", [(1,), (1, 2), (2,)])
def test_fewer_nodes_than_the_quorum_has_are_completed_with_their_cluster_and_ports(
    tmp_path: Path, left: tuple[int, ...]
) -> None:
    whole = prepare(tmp_path, 3, None, None, {})
    cluster_id = read_meta(whole[1].directory).cluster_id
    for node_id, node in whole.items():
        if node_id not in left:
            shutil.rmtree(node.directory)
    nodes = prepare(tmp_path, 3, None, None, {})
    require_one_quorum(nodes)
    assert read_meta(nodes[3].directory).cluster_id == cluster_id
    assert [node.port for node in nodes.values()] == [node.port for node in whole.values()]
    assert [nodes[node_id].http_port for node_id in left] == [whole[node_id].http_port for node_id in left]


def test_a_start_that_got_no_further_than_its_first_directory_binds_to_no_number_of_nodes(tmp_path: Path) -> None:
    """An earlier release made node.properties empty before it wrote it."""
    for at, content in enumerate((None, b"")):
        data_dir = tmp_path / f"{at}"
        node = prepare(data_dir, 1, None, None, {})[1]
        node.properties.unlink()
        if content is not None:
            node.properties.write_bytes(content)
        identity = read_meta(node.directory)
        nodes = prepare(data_dir, 3, None, None, {})
        require_one_quorum(nodes)
        assert read_meta(nodes[1].directory) == identity


def test_another_number_than_the_one_that_was_begun_with_is_refused(tmp_path: Path) -> None:
    whole = prepare(tmp_path, 3, None, None, {})
    for node_id in (2, 3):
        shutil.rmtree(whole[node_id].directory)
    for count in (1, 2, 5):
        with pytest.raises(WrongState, match=rf"holds a quorum of 3 nodes \(1, 2, 3\); it cannot be started with {count}"):
            prepare(tmp_path, count, None, None, {})
    assert [path.name for path in tmp_path.glob("node-*")] == ["node-1"]


def test_a_quorum_that_shrank_is_started_once_its_files_say_so(tmp_path: Path) -> None:
    """After `raftlake voters remove`, as docs/troubleshooting.md says."""
    nodes = prepare(tmp_path, 4, 19092, 18092, {})
    for node in nodes.values():
        let_run(node)
    shutil.rmtree(nodes.pop(4).directory)
    with pytest.raises(WrongState, match=r"holds a quorum of 4 nodes \(1, 2, 3, 4\)"):
        prepare(tmp_path, 3, None, None, {})
    for node in nodes.values():
        node.properties.write_text(node.properties.read_text().replace(",4@127.0.0.1:19095", ""))
    assert prepare(tmp_path, 3, None, None, {}) == nodes


def test_a_quorum_that_ran_without_its_files_is_started_with_its_own_number_alone(tmp_path: Path) -> None:
    for node in prepare(tmp_path, 3, None, None, {}).values():
        let_run(node)
        node.properties.unlink()
    for count in (2, 5):
        with pytest.raises(WrongState, match=f"holds a quorum of 3 nodes .* started with {count}"):
            prepare(tmp_path, count, 19092, 18092, {})
    with pytest.raises(ConfigError, match=rf"no node.properties below {tmp_path} names the ports .*: give the port of node 1"):
        prepare(tmp_path, 3, None, None, {})
    assert not list(tmp_path.glob("*/node.properties"))
    nodes = prepare(tmp_path, 3, 19092, None, {})
    require_one_quorum(nodes)
    assert nodes[3].port == 19094


@pytest.mark.parametrize("lost", [1, 3])
def test_a_node_that_is_lost_beside_others_that_ran_is_not_made_anew(tmp_path: Path, lost: int) -> None:
    """It may have voted for, or acknowledged, what an empty node knows nothing of."""
    nodes = prepare(tmp_path, 3, None, None, {})
    for node in nodes.values():
        let_run(node)
    shutil.rmtree(nodes[lost].directory)
    for _ in range(2):
        with pytest.raises(WrongState, match=rf"node-{lost} is missing or empty, .* replace node {lost} as a dead node"):
            prepare(tmp_path, 3, None, None, {})
        # Nor where its settings are there.
        nodes[lost].directory.mkdir(exist_ok=True)
        nodes[lost].properties.write_bytes(nodes[2].properties.read_bytes())
    assert not (nodes[lost].directory / "meta.properties").exists()


@pytest.mark.parametrize("content", [None, b"", b"node.id=3\n", b"\\uzzzz=1\n", b"\xff\xfe", b"quorum.voters=3\n"])
@pytest.mark.parametrize("torn", [1, 3])
def test_settings_that_are_missing_or_torn_are_made_anew_from_those_of_the_others(
    tmp_path: Path, torn: int, content: bytes | None
) -> None:
    """`listeners or http.listener is missing or names no port` was the end of a directory with data."""
    before = prepare(tmp_path, 3, None, None, {})
    for node in before.values():
        let_run(node)
    identity = read_meta(before[torn].directory)
    before[torn].properties.unlink()
    if content is not None:
        before[torn].properties.write_bytes(content)
    nodes = prepare(tmp_path, 3, None, None, {})
    require_one_quorum(nodes)
    assert read_meta(nodes[torn].directory) == identity
    assert [node.port for node in nodes.values()] == [node.port for node in before.values()]
    assert all(nodes[node_id] == before[node_id] for node_id in nodes if node_id != torn)


@pytest.mark.parametrize("port", ["", "0", "65536", "x"])
def test_a_lost_port_of_http_is_chosen_anew(tmp_path: Path, port: str) -> None:
    nodes = prepare(tmp_path, 2, None, None, {})
    told = nodes[2].properties.read_text()
    nodes[2].properties.write_text(told.replace(nodes[2].http_address, f"127.0.0.1:{port}" if port else ""))
    require_one_quorum(prepare(tmp_path, 2, None, None, {}))


def test_settings_are_replaced_as_a_whole_and_left_alone_where_they_are_equal(tmp_path: Path) -> None:
    """A file that is cut to nothing first is lost where the disk is full, or the start is interrupted."""
    node = prepare(tmp_path, 1, 19092, 18092, {})[1]
    first = node.properties.stat()
    os.link(node.properties, tmp_path / "first")
    prepare(tmp_path, 1, 19092, 18092, {})
    assert node.properties.stat().st_ino == first.st_ino
    assert node.properties.stat().st_mtime_ns == first.st_mtime_ns
    prepare(tmp_path, 1, 19093, 18092, {})
    assert "19093" in node.properties.read_text()
    assert "19092" in (tmp_path / "first").read_text()


def test_settings_that_cannot_be_read_are_one_error(tmp_path: Path) -> None:
    node = prepare(tmp_path, 1, None, None, {})[1]
    node.properties.unlink()
    node.properties.mkdir()
    with pytest.raises(StorageError, match=rf"cannot read {node.properties}: Is a directory"):
        prepare(tmp_path, 1, None, None, {})
