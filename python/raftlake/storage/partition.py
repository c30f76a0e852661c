"""The directory of a topic partition: its name, Kafka's `partition.metadata`, and how it comes and goes in one step.

`<topic>-<partition>/` appears by a rename when its metadata is durable, and disappears by a rename before its files go:
after a crash a directory is whole or has a name that ends in `-create` or `-delete` and is swept away at the next start.
Those names have the topic's id in them: with the name of a long topic they would be longer than a file's name may be.
"""

from __future__ import annotations

import base64
import binascii
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from crc32c import crc32c

from raftlake.errors import PathOutside, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.storage.descriptors import spared
from raftlake.storage.disposal import Disposal
from raftlake.storage.files import (
    DIRECTORY_MODE,
    TEMPORARY_SUFFIX,
    discard,
    durable_names,
    read_file,
    storage_error,
    sync_directory,
    write_file,
)

METADATA_NAME = "partition.metadata"
_ADVICE = (
    "Copy the file from the same partition's directory on another node, where it is the same; or let this node begin anew with "
    "an empty data directory that `raftlake format` makes"
)
ELECTION_NAME = "quorum-state"
#: A replica that has seen no election yet. It is there from the first moment on, so that its absence is always a loss.
NO_ELECTION = (
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":0,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}'
)


def seal(line: bytes) -> bytes:
    """A quorum-state file: a second line, which Kafka does not read, is the CRC-32C of the first."""
    return line + b"\n%08x\n" % crc32c(line)


#: Of files that are not what they are to be: a snapshot, a compacted segment, and whatever is replaced by a rename.
UNFINISHED_SUFFIXES = (".checkpoint.part", ".cleaned", TEMPORARY_SUFFIX)
CREATE_SUFFIX = "-create"
DELETE_SUFFIX = "-delete"
_LARGE_SUFFIXES = (".log", ".checkpoint", ".swap", ".cleaned")
#: Syncs that run at the same time share the file system's commits.
SYNC_THREADS = 8


def uuid_text(value: bytes) -> str:
    """Kafka's way to write a UUID of 16 bytes: base64url without padding, 22 characters."""
    assert len(value) == 16
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of a UUID in Kafka's spelling. Raises ValueError."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a base64url UUID: {error}") from error
    if len(value) != 16 or uuid_text(value) != text:
        raise ValueError(f"{text!r} is not a base64url UUID of 22 characters")
    return value


def partition_path(root: Path, group: GroupId) -> Path:
    """Raises PathOutside for a name that is not one of an entry of `root`."""
    name = str(group)
    if "/" in name or "\0" in name:
        raise PathOutside(f"{name[:255]!r} is not the name of a directory in {root}")
    return root / name


def require_inside(root: Path, group: GroupId) -> Path:
    """The group's directory, which may be made or deleted. Raises PathOutside when it is a link, or is reached through one."""
    path = partition_path(root, group)
    real = os.path.realpath(path)
    if real != os.path.join(os.path.realpath(root), path.name):
        raise PathOutside(f"{path} leads to {real}: it is left alone")
    return path


def encode_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def read_topic_id(path: Path) -> bytes:
    """The topic id in a partition's directory. Raises StorageError when the file is missing or damaged."""
    file = path / METADATA_NAME
    data = read_file(file)
    if data is None:
        raise StorageError(
            f"{file} is missing: {path} looks like a topic partition, but which topic it is of is not known. {_ADVICE}"
        )
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines() if line)
        if not fields:
            raise ValueError("it is empty")
        if fields.get("version") != "0":
            raise ValueError(f"version {fields.get('version')} is not 0")
        return parse_uuid(fields.get("topic_id", ""))
    except ValueError as error:
        raise StorageError(f"{file} is damaged: {error}. {_ADVICE}") from error


def ensure_partition(root: Path, group: GroupId) -> Path:
    """The group's directory, created durably when absent. Raises StorageError, also when it is that of another topic id."""
    path = partition_path(root, group)
    if path.is_dir():
        found = read_topic_id(path)
        if found != group.topic_id:
            raise StorageError(f"{path} belongs to topic id {uuid_text(found)}, not to {uuid_text(group.topic_id)}")
        return path
    create_partitions(root, [group])
    return path


def create_partitions(root: Path, groups: Sequence[GroupId]) -> None:
    """The directories of those groups that have none, whatever incarnation it is of; durable when it returns. Raises
    StorageError, and PathOutside before anything is made."""
    absent = [group for group in groups if not require_inside(root, group).exists()]
    if not absent:
        return
    if len(absent) == 1:
        _create_aside(root, absent[0])
    else:
        with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="raftlake-create") as threads:
            for _ in threads.map(partial(_create_aside, root), absent):
                pass
    with durable_names(root):
        try:
            for group in absent:
                path = partition_path(root, group)
                os.rename(_aside(root, group, CREATE_SUFFIX), path)
        except OSError as error:
            raise storage_error("create", path, error) from error


def _aside(root: Path, group: GroupId, suffix: str) -> Path:
    return root / f"{uuid_text(group.topic_id)}-{group.partition}{suffix}"


def _create_aside(root: Path, group: GroupId) -> None:
    """The whole directory, durable under its temporary name."""
    path = partition_path(root, group)
    temporary = _aside(root, group, CREATE_SUFFIX)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(DIRECTORY_MODE)
        write_file(temporary / METADATA_NAME, encode_metadata(group.topic_id), sync=True)
        write_file(temporary / ELECTION_NAME, seal(NO_ELECTION), sync=True)
        sync_directory(temporary)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error("create", path, error) from error


def remove_partitions(root: Path, groups: Sequence[GroupId], disposal: Disposal) -> None:
    """Delete the groups' directories; they are gone for good when this returns. Raises StorageError, and PathOutside before
    anything is deleted."""
    removed: list[Path] = []
    path = root
    for group in groups:
        require_inside(root, group)
    try:
        for group in groups:
            path = partition_path(root, group)
            doomed = _aside(root, group, DELETE_SUFFIX)
            shutil.rmtree(doomed, ignore_errors=True)
            if path.exists():
                os.rename(path, doomed)
                removed.append(doomed)
        if removed:
            sync_directory(root)
        for path in removed:
            for file in path.iterdir():
                if file.suffix in _LARGE_SUFFIXES:
                    disposal.unlink(file)
            shutil.rmtree(path)
    except OSError as error:
        raise storage_error("delete", path, error) from error


def list_partitions(root: Path) -> list[GroupId]:
    """The groups that have a directory, by topic and partition. Raises StorageError."""
    groups = []
    for entry in _entries(root):
        topic, dash, partition = entry.name.rpartition("-")
        if topic and dash and partition.isascii() and partition.isdigit() and entry.is_dir():
            groups.append(GroupId(topic, int(partition), read_topic_id(root / entry.name)))
    return sorted(groups)


def sweep(root: Path) -> None:
    """Remove what a crash left of creations and deletions, and of files that were being written. Raises StorageError."""
    for entry in _entries(root):
        if entry.name.endswith(TEMPORARY_SUFFIX) and entry.is_file(follow_symlinks=False):
            discard(root / entry.name)
        elif _is_partition_name(entry.name) and entry.is_dir(follow_symlinks=False):
            for path in (root / entry.name).iterdir():
                if path.name.endswith(UNFINISHED_SUFFIXES):
                    discard(path)
        if (
            entry.name.endswith((CREATE_SUFFIX, DELETE_SUFFIX))
            and entry.is_dir(follow_symlinks=False)
            and _is_partition_name(entry.name)
        ):
            try:
                shutil.rmtree(root / entry.name)
            except OSError as error:
                raise storage_error("delete", root / entry.name, error) from error


def _is_partition_name(name: str) -> bool:
    topic, _, partition = name.removesuffix(CREATE_SUFFIX).removesuffix(DELETE_SUFFIX).rpartition("-")
    return bool(topic) and partition.isascii() and partition.isdigit()


def _entries(root: Path) -> list[os.DirEntry[str]]:
    try:
        with spared(lambda: os.scandir(root)) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise storage_error("list", root, error) from error
