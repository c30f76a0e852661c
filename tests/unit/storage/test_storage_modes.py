"""What a node writes is for its owner alone, whatever the umask; what older versions wrote is mended at the start."""

from __future__ import annotations

import logging
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.batches import fill
from raftlake.errors import DamagedData, StorageError, WrongState
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.pid_file import write_pid
from raftlake.storage import modes as storage_modes
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import format_directory
from raftlake.storage.modes import mend_modes, require_owner

GROUP = GroupId("orders", 0, bytes(range(16)))


@pytest.fixture(params=[0, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root.parent)): stat.S_IMODE(path.lstat().st_mode) for path in [root, *root.rglob("*")]}


def is_private(root: Path) -> bool:
    return all(mode == (0o700 if (root.parent / name).is_dir() else 0o600) for name, mode in modes(root).items())


def live(root: Path) -> None:
    """Make every kind of file that a node makes."""
    format_directory(root, node_id=NodeId(1), cluster_id="mine")
    directory = FileLogDirectory(root, segment_bytes=500, post=None)
    write_pid(root)
    elections = FileElectionStore(root)
    for group in (GROUP, METADATA_GROUP):
        log = directory.open(group)
        fill(log, 40)
        directory.flush([log], lambda _: None)
        elections.save({group: ElectionState(Epoch(3))})
        log.start_points.save(Offset(5), b"producers", b"voters")
        writer = directory.snapshots.create(group, OffsetAndEpoch(Offset(3), Epoch(1)))
        writer.append(b"snapshot")
        writer.freeze(lambda _: None)
        directory.snapshots.create(group, OffsetAndEpoch(Offset(4), Epoch(1))).append(b"unfinished")
    directory.checkpoint()
    damaged = sorted((root / "orders-0").glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    directory.set_aside(GROUP, DamagedData("damaged", offset=int(damaged.stem)), Epoch(3))
    elections.close()
    directory.close()


def test_all_that_a_node_makes_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    root = tmp_path / "data"
    live(root)
    assert len(modes(root)) > 25
    assert is_private(root), {name: oct(mode) for name, mode in modes(root).items()}


def test_what_was_open_to_others_is_mended_at_the_start(tmp_path: Path) -> None:
    root = tmp_path / "data"
    live(root)
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o664)
    directory = FileLogDirectory(root, post=None)
    assert is_private(root)
    directory.close()
    assert mend_modes(root) == 0


def test_settings_and_what_links_lead_to_stay_as_they_are(tmp_path: Path) -> None:
    root, shared = tmp_path / "data", tmp_path / "shared"
    root.mkdir()
    shared.write_text("for all")
    shared.chmod(0o644)
    for name in ("node.properties", "meta.properties"):
        (root / name).write_text("")
        (root / name).chmod(0o644)
    (root / "link").symlink_to(shared)
    (root / "lost+found").mkdir(0o755)
    mend_modes(root)
    found = modes(root)
    assert found["data/node.properties"] == 0o644
    assert found["data/meta.properties"] == 0o600
    assert found["data/lost+found"] == 0o755
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644


def test_what_is_not_ours_to_change_is_told_and_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o644)

    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "chmod", refuse)
        assert mend_modes(tmp_path) == 0
    (told,) = [record.getMessage() for record in caplog.records]
    assert "others may read" in told and str(tmp_path) in told


def test_a_directory_of_others_is_told_and_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """NFS shows `.snapshot`, and administrators leave their own."""
    for name in (".snapshot", "t-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
        (tmp_path / name / "file").chmod(0o644)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith(".snapshot"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "scandir", refuse)
        mend_modes(tmp_path)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "1 directories" in told and ".snapshot" in told
    assert stat.S_IMODE((tmp_path / "t-0" / "file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / ".snapshot" / "file").stat().st_mode) == 0o644


def test_a_data_directory_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(StorageError, match="Permission denied"):
            mend_modes(tmp_path)


def test_a_directory_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        mend_modes(tmp_path / "nowhere")


def pretend(monkeypatch: pytest.MonkeyPatch, *, user: int, owner: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(storage_modes, "owner_id", lambda path: owner)


def test_root_writes_nothing_into_the_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of root kept the node from starting."""
    pretend(monkeypatch, user=0, owner=2**31 - 2)
    told = f"run as the owner of {tmp_path} (user #2147483646), for example with `sudo -u '#2147483646'`: "
    with pytest.raises(WrongState, match=re.escape(told)):
        require_owner(tmp_path)


def test_the_owner_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = next(each for each in pwd.getpwall() if each.pw_uid != 0)
    pretend(monkeypatch, user=0, owner=named.pw_uid)
    with pytest.raises(WrongState, match=re.escape(f"(user {pwd.getpwuid(named.pw_uid).pw_name})")):
        require_owner(tmp_path)


@pytest.mark.parametrize(("user", "owner"), [(0, 0), (1000, 1000), (1000, 0), (1000, 1001)])
def test_other_users_are_judged_by_the_system_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, owner: int
) -> None:
    pretend(monkeypatch, user=user, owner=owner)
    require_owner(tmp_path)


def test_the_owner_of_a_path_is_that_of_the_file_system(tmp_path: Path) -> None:
    assert storage_modes.owner_id(tmp_path) == os.stat(tmp_path).st_uid


def test_a_directory_that_does_not_exist_has_no_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    require_owner(tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot look at .*file/below"):
        require_owner(tmp_path / "file" / "below")
