"""The directories of a quorum on this machine: `DIR/node-1 .. node-N` with their settings, before any process runs.

Owns which quorum a directory holds, the ports of its nodes, and each node's `node.properties`; `local_settings` makes its text.
A start may end at any moment and be repeated. Each file is replaced in one step, and a file that says the same already is left
alone. What somebody wrote there is not lost without a word. A file that cannot be understood is kept under another name.

The nodes are made one after the other, so a start that was interrupted leaves fewer directories than the quorum has nodes. Each
`node.properties`, the first one too, names all nodes in `quorum.voters`. The files therefore tell how many nodes there are to
be, however many directories exist. Without any such file the number is free, as long as no node has run.

Only a quorum without data is completed. Beside nodes that have run, a directory without `meta.properties` is a lost disk: a new
one in its place would have forgotten its votes. A node has run where its directory holds more than what is written before the
first start (`storage/meta.py: used_names`). No process starts before the whole set is there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import ConfigError, WrongState
from raftlake.local_settings import (
    HOST,
    SETS_ONE,
    SettingsFile,
    chosen_settings,
    differing,
    edited_text,
    own_settings,
    read_settings,
    replaced,
)
from raftlake.runtime.format import format_data_dir
from raftlake.runtime.free_ports import free_ports
from raftlake.runtime.settings.names import Given
from raftlake.runtime.settings.parsing import parse_voters
from raftlake.storage.files import DIRECTORY_MODE, read_file, replace_file, storage_error
from raftlake.storage.lock import DirectoryLock
from raftlake.storage.meta import FILE_NAME, random_uuid, read_meta, used_names
from raftlake.wire.ids import id_to_text

PROPERTIES_FILE = "node.properties"
#: Where a node.properties goes that cannot be understood. The end of the name tells that no node has run for its sake.
DAMAGED_FILE = "node.damaged.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    node_id: int
    directory: Path
    port: int
    http_port: int

    @property
    def properties(self) -> Path:
        return self.directory / PROPERTIES_FILE

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def http_address(self) -> str:
        return f"{HOST}:{self.http_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A directory of a node as the last start left it, complete or not."""

    directory: Path
    is_formatted: bool
    has_run: bool
    #: node.properties, whatever it holds.
    file: SettingsFile | None
    #: The ports of all nodes, by id; none where node.properties is missing, empty or cannot be understood.
    ports: Mapping[int, int]
    http_port: int | None


def take(data_dir: Path) -> DirectoryLock:
    """Lock the directory for its quorum's life: two that start at once would write each other's settings."""
    try:
        str(data_dir).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{str(data_dir)!r} is not valid Unicode text, as paths in a {PROPERTIES_FILE} have to be") from error
    try:
        if (data_dir / FILE_NAME).exists():
            raise WrongState(f"{data_dir} is the data directory of one node; a local quorum needs a directory of its own")
        data_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create", data_dir, error) from error
    return DirectoryLock(data_dir)


def prepare(
    data_dir: Path,
    count: int,
    port: int | None,
    http_port: int | None,
    settings: Mapping[str, str],
    note: Callable[[str], None] = lambda _: None,
) -> dict[int, LocalNode]:
    """Directories formatted with one cluster id, with their node.properties; what is there already is kept, and what is missing
    is made. `note` hears what is not kept. Raises WrongState for a quorum of another size, and for one that has run and lost a
    node; ConfigError for settings that no node could start with."""
    chosen = chosen_settings(settings)
    found = _look(data_dir)
    _require_size(data_dir, found, count)
    _require_whole(data_dir, found, count)
    ports = _choose_ports(data_dir, count, port, found)
    http_ports = _choose_http_ports(count, http_port, found, ports)
    nodes = {
        index + 1: LocalNode(
            node_id=index + 1,
            directory=data_dir / f"node-{index + 1}",
            port=ports[index],
            http_port=http_ports[index],
        )
        for index in range(count)
    }
    with _none_running(each.directory for node_id, each in found.items() if node_id in nodes):
        cluster_id = _cluster_id(nodes)
        texts = _plan(nodes, found, chosen, note)
        for node_id, node in nodes.items():
            format_data_dir(node.directory, node_id, cluster_id)
            _write_properties(node, texts[node_id], found[node_id].file if node_id in found else None)
    return nodes


@contextlib.contextmanager
def _none_running(directories: Iterable[Path]) -> Iterator[None]:
    """Hold the nodes' directories while their settings are written: those of a quorum that runs must not change under it.
    StorageError names the first directory in use and its process."""
    with contextlib.ExitStack() as held:
        for directory in directories:
            held.callback(DirectoryLock(directory).release)
        yield


# --- what is there ----------------------------------------------------------------------------------------------------


def _look(data_dir: Path) -> dict[int, _Found]:
    """The directories of nodes in `data_dir`, by id. Raises StorageError where one cannot be read."""
    named = ((re.fullmatch(r"node-([1-9][0-9]{0,8})", path.name), path) for path in data_dir.glob("node-*") if path.is_dir())
    return {node_id: _look_at(path) for node_id, path in sorted((int(match[1]), path) for match, path in named if match)}


def _look_at(directory: Path) -> _Found:
    file = read_settings(directory / PROPERTIES_FILE)
    values = {} if file is None else file.values
    return _Found(
        directory=directory,
        is_formatted=(directory / FILE_NAME).exists(),
        has_run=bool(used_names(directory)),
        file=file,
        ports=_voter_ports(values.get("quorum.voters", "")),
        http_port=_port_of(values.get("http.listener", "")),
    )


def _voter_ports(voters: str) -> dict[int, int]:
    try:
        return {int(node_id): endpoint.port for node_id, endpoint in parse_voters("quorum.voters", voters).items()}
    except ConfigError:
        return {}


def _port_of(listener: str) -> int | None:
    """None where the text ends in no port."""
    match = re.fullmatch(r".*:([0-9]{1,5})", listener, re.ASCII)
    return int(match[1]) if match and 1 <= int(match[1]) <= 65535 else None


def _require_size(data_dir: Path, found: Mapping[int, _Found], count: int) -> None:
    """The nodes of a quorum are those that the files name, and those with a file. Where no file names any, they are those that
    were formatted, if one has run."""
    members: set[int] = set()
    if any(each.ports for each in found.values()):
        members.update(*(each.ports for each in found.values()))
        members.update(node_id for node_id, each in found.items() if each.file is not None)
    elif any(each.has_run for each in found.values()):
        members.update(node_id for node_id, each in found.items() if each.is_formatted or each.has_run)
    if members and members != set(range(1, count + 1)):
        names = ", ".join(map(str, sorted(members)))
        raise WrongState(f"{data_dir} holds a quorum of {len(members)} nodes ({names}); it cannot be started with {count}")


def _require_whole(data_dir: Path, found: Mapping[int, _Found], count: int) -> None:
    """A node may be made anew as long as no node has voted or stored anything."""
    if not any(each.has_run for each in found.values()):
        return
    for node_id in range(1, count + 1):
        # A directory with logs and without meta.properties: the formatting refuses it, and says how to mend it.
        if node_id not in found or not (found[node_id].is_formatted or found[node_id].has_run):
            raise WrongState(
                f"{data_dir / f'node-{node_id}'} is missing or empty, and other nodes of this quorum have run. Restore it from "
                f"a copy; or start each of the others with `raftlake serve --config` and its {PROPERTIES_FILE}, and replace "
                f"node {node_id} as a dead node"
            )


# --- ports and settings ------------------------------------------------------------------------------------------------


def _row(count: int, first: int) -> list[int]:
    if not 1 <= first <= 65536 - count:
        raise ConfigError(f"port {first}: {count} ports from there on do not exist")
    return [first + index for index in range(count)]


def _choose_ports(data_dir: Path, count: int, first: int | None, found: Mapping[int, _Found]) -> list[int]:
    """All from one file: where nodes move to other ports and that start is interrupted, the files differ. The first file is the
    newest."""
    if first is not None:
        return _row(count, first)
    told = next((each.ports for each in found.values() if len(each.ports) == count), None)
    if told is not None:
        return [told[index + 1] for index in range(count)]
    if any(each.has_run for each in found.values()):
        raise ConfigError(
            f"no {PROPERTIES_FILE} below {data_dir} names the ports of its nodes in quorum.voters: give the port of node 1 "
            "(`port`, --port); the others follow, and the files are written anew"
        )
    return free_ports(HOST, count)


def _choose_http_ports(count: int, first: int | None, found: Mapping[int, _Found], taken: Collection[int]) -> list[int]:
    """Each node keeps its own, as far as no other has it: only clients know these ports."""
    if first is not None:
        row = _row(count, first)
        if set(row) & set(taken):
            raise ConfigError(f"ports {row[0]} to {row[-1]} are wanted for both Kafka and HTTP; choose others")
        return row
    kept: dict[int, int] = {}
    for node_id, each in found.items():
        if each.http_port is not None and node_id <= count and each.http_port not in {*taken, *kept.values()}:
            kept[node_id] = each.http_port
    free = iter(free_ports(HOST, count - len(kept), {*taken, *kept.values()}))
    return [kept.get(index + 1) or next(free) for index in range(count)]


def _cluster_id(nodes: Mapping[int, LocalNode]) -> str:
    """That of the nodes which are formatted already, or a new one."""
    found = {
        node.node_id: read_meta(node.directory).cluster_id for node in nodes.values() if (node.directory / FILE_NAME).exists()
    }
    known = dict.fromkeys(cluster_id for cluster_id in found.values() if cluster_id is not None)
    if len(known) > 1:
        raise WrongState(f"the nodes belong to different clusters: {', '.join(known)}")
    return next(iter(known), None) or id_to_text(random_uuid())


def _plan(
    nodes: Mapping[int, LocalNode], found: Mapping[int, _Found], chosen: Mapping[str, Given], note: Callable[[str], None]
) -> dict[int, str]:
    """The new text of each node's file. One that is missing, empty or cannot be understood goes on from another's. `note` hears
    what is not kept once all of them are known to be usable."""
    files = {node_id: each.file for node_id, each in found.items() if node_id in nodes and each.file is not None}
    spare = next((file for file in files.values() if file.text), None)
    ports = {node_id: node.port for node_id, node in nodes.items()}
    own = {node_id: own_settings(node_id, node.directory, ports, node.http_port) for node_id, node in nodes.items()}
    texts: dict[int, str] = {}
    for node_id in nodes:
        file = files.get(node_id)
        texts[node_id] = edited_text(file if file is not None and file.text else spare, own[node_id], chosen)
    for node_id in files:
        _tell_replaced(node_id, found[node_id], own[node_id], note)
    if names := differing(texts.values()):
        note(f"the nodes do not have the same {', '.join(names)} in their {PROPERTIES_FILE}; {SETS_ONE}")
    return texts


def _tell_replaced(node_id: int, was: _Found, own: Mapping[str, str], note: Callable[[str], None]) -> None:
    """What of a file is not kept."""
    file = was.file
    if file is None:
        return
    if file.trouble is not None:
        note(f"{file.trouble}: the file is made anew, and what it held is kept as {DAMAGED_FILE} beside it")
    left: Mapping[str, str] = {}
    if node_id in was.ports and was.http_port is not None:
        left = own_settings(node_id, was.directory, was.ports, was.http_port)
    for name in replaced(file, own, left):
        note(f"{file.path}: {name}={file.values[name]} becomes {own[name]}, since a local quorum sets it itself")


def _write_properties(node: LocalNode, text: str, file: SettingsFile | None) -> None:
    data = text.encode()
    if file is not None and file.trouble is not None:
        replace_file(node.directory / DAMAGED_FILE, file.data)
    if read_file(node.properties) != data:
        replace_file(node.properties, data)
