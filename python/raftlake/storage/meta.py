"""`meta.properties`: whose data directory this is. Kafka's file, version 1: cluster id, node id, directory id.

`raftlake format` writes it once; `serve` refuses a directory without it or with another node's. The cluster id may be
absent until the quorum has chosen one. The directory id names this copy of the data: a replaced disk gets a new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import StorageError
from raftlake.raft.types import DirectoryId, NodeId
from raftlake.storage.files import DIRECTORY_MODE, TEMPORARY_SUFFIX, read_file, replace_file, storage_error
from raftlake.storage.modes import mend_modes
from raftlake.storage.partition import parse_uuid, uuid_text

FILE_NAME = "meta.properties"
VERSION = 1
#: What a directory may hold that is not ours yet: a mount's own, settings, and what an earlier node left beside its logs.
_HARMLESS = frozenset({"lost+found", ".lock", "raftlake.pid", "node.log"})
_HOW_TO_MEND = (
    "Restore it from a copy, or write its lines anew: version=1, node.id, directory.id (`raftlake voters list` at another node "
    "shows it), cluster.id (as on the other nodes). Where neither is possible, remove this voter (`raftlake voters remove`), "
    "empty the directory, format it and add it again; its data comes from the others"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of the file."""

    node_id: NodeId
    directory_id: DirectoryId
    cluster_id: str | None = None


def used_names(path: Path) -> list[str]:
    """What lies in a directory beside what a node that has never run may find there, sorted. Raises StorageError."""
    try:
        return _foreign(entry.name for entry in path.iterdir())
    except OSError as error:
        raise storage_error("look at", path, error) from error


def _foreign(names: Iterable[str]) -> list[str]:
    """Settings are harmless, finished or not, and so is this file where its first writing was interrupted."""
    return sorted(
        name for name in names if name not in _HARMLESS and not name.removesuffix(TEMPORARY_SUFFIX).endswith(".properties")
    )


def _holds_logs(path: Path) -> bool:
    """Whether there are segments one level below, as in a data directory."""
    return any(path.glob(f"*/{'[0-9]' * 20}.log"))


def random_uuid() -> bytes:
    """16 random bytes as a version 4 UUID whose text does not begin with a dash (it would read as an option)."""
    while True:
        value = bytearray(os.urandom(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if not uuid_text(bytes(value)).startswith("-"):
            return bytes(value)


def format_directory(
    path: Path, *, node_id: NodeId, cluster_id: str | None = None, directory_id: DirectoryId | None = None
) -> MetaProperties:
    """Make `path` (created when absent) the data directory of a node. Raises StorageError when it already is one."""
    try:
        path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise storage_error("create", path, error) from error
    file = path / FILE_NAME
    if file.exists():
        raise StorageError(f"{file} exists: {path} is formatted already. Remove the directory first if its data may be lost")
    if _holds_logs(path):
        raise StorageError(f"{path} holds logs but no {FILE_NAME}: it will not be formatted over them. {_HOW_TO_MEND}")
    if foreign := _foreign(names):
        shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
        raise StorageError(f"{path} is not empty (it holds {shown}) and no data directory: give a directory of its own")
    meta = MetaProperties(node_id=node_id, directory_id=directory_id or DirectoryId(random_uuid()), cluster_id=cluster_id)
    mend_modes(path)
    write_meta(path, meta)
    return meta


def write_meta(path: Path, meta: MetaProperties) -> None:
    """Write the file of the data directory `path` in one step, durably. Raises StorageError."""
    cluster = [] if meta.cluster_id is None else [f"cluster.id={meta.cluster_id}"]
    directory_id = uuid_text(meta.directory_id)
    lines = [f"version={VERSION}", *cluster, f"node.id={meta.node_id}", f"directory.id={directory_id}"]
    replace_file(path / FILE_NAME, ("\n".join(lines) + "\n").encode())


def read_meta(path: Path) -> MetaProperties:
    """The file of the data directory `path`. Raises StorageError that says what to do."""
    file = path / FILE_NAME
    data = read_file(file)
    if data is None and _holds_logs(path):
        raise StorageError(f"{file} is missing beside the logs of a node. {_HOW_TO_MEND}")
    if data is None:
        raise StorageError(
            f"{file} does not exist: {path} is not formatted. Run: raftlake format --data-dir {path} --node-id ID"
        )
    try:
        return parse_meta(data.decode("utf-8"))
    except ValueError as error:
        raise StorageError(f"{file} cannot be used: {error}. {_HOW_TO_MEND}") from error


def require_meta(path: Path, *, node_id: NodeId) -> MetaProperties:
    """The file, which must be this node's. Raises StorageError."""
    meta = read_meta(path)
    file = path / FILE_NAME
    if meta.node_id != node_id:
        raise StorageError(f"{file} belongs to node.id={meta.node_id}, but this node is configured as node.id={node_id}")
    return meta


def parse_meta(text: str) -> MetaProperties:
    """The values in the text of a meta.properties file. Raises ValueError that names the key."""
    fields = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            key, equals, value = stripped.partition("=")
            if not equals:
                raise ValueError(f"{stripped!r} is no key=value line")
            # Java escapes these two in properties files.
            fields[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    if fields.get("version") != str(VERSION):
        raise ValueError(f"version is {fields.get('version')!r}, {VERSION} is expected")
    node_id = fields.get("node.id", "")
    if not (node_id.isascii() and node_id.isdigit()):
        raise ValueError(f"node.id is {node_id!r}, a whole number is expected")
    try:
        directory_id = parse_uuid(fields.get("directory.id", ""))
    except ValueError as error:
        raise ValueError(f"directory.id: {error}") from error
    cluster_id = fields.get("cluster.id")
    if cluster_id == "":
        raise ValueError("cluster.id is empty")
    return MetaProperties(node_id=NodeId(int(node_id)), directory_id=DirectoryId(directory_id), cluster_id=cluster_id)
