"""How Spark 4 lays out a checkpoint, as far as commands must know: batches, state versions, and what a batch needs. Pure.

Names are relative to the checkpoint, as in `offsets/5` and `state/0/1/6.delta`. Batch N leaves state version N + 1. A version
is there with a snapshot at or below it and the deltas between; version 0 is empty. With unique ids (checkpoint format 2) the
commit of a batch names the files of its versions. The ids between a snapshot and these are not looked into.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from raftlake.kv.lenient_json import facts_of

METADATA = "metadata"
#: Metadata of operators, with a version per batch, names schema files by whole paths.
_BATCH = re.compile(r"(offsets|commits)/([0-9]+)")
_STATE_FILE = re.compile(
    r"(?P<store>state/(?P<operator>[0-9]+)/(?P<partition>[0-9]+)(?:/(?P<name>[^/]+))?)"
    r"/(?P<version>[0-9]+)(?:_(?P<id>[^./]+))?\.(?P<kind>delta|snapshot|changelog|zip)(?P<checksum>\.crc)?"
)
_OPERATOR_OF_BATCH = re.compile(r"state/[0-9]+/_metadata/v2/([0-9]+)")
_OPERATOR_DIRECTORY = re.compile(r"state/([0-9]+)/")
_SCHEMA_FILE = re.compile(r".*(/state/[0-9]+/_stateSchema/[^/]+/[^/]+)")
_BASES = ("snapshot", "zip")
_DEFAULT_STORE = "default"


@dataclass(frozen=True, slots=True)
class StateFile:
    """`store` is its directory, as in `state/0/1` or `state/0/1/left-keyToNumValues`."""

    path: str
    store: str
    version: int
    unique_id: str | None
    kind: str

    @property
    def is_base(self) -> bool:
        """Whether it is a whole state, and not a change."""
        return self.kind in _BASES


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of a checkpoint, in groups."""

    names: frozenset[str]
    offsets: tuple[int, ...]
    commits: tuple[int, ...]
    #: By store.
    state: Mapping[str, tuple[StateFile, ...]]

    @staticmethod
    def of(names: Collection[str]) -> Layout:
        batches: dict[str, list[int]] = {"offsets": [], "commits": []}
        state: defaultdict[str, list[StateFile]] = defaultdict(list)
        for name in names:
            if found := _BATCH.fullmatch(name):
                batches[found[1]].append(int(found[2]))
            elif (file := state_file(name)) is not None:
                state[file.store].append(file)
        stores = {store: tuple(sorted(state[store], key=lambda file: (file.version, file.path))) for store in sorted(state)}
        return Layout(frozenset(names), tuple(sorted(batches["offsets"])), tuple(sorted(batches["commits"])), stores)

    @property
    def operators(self) -> tuple[int, ...]:
        return tuple(sorted({int(found[1]) for name in self.names if (found := _OPERATOR_DIRECTORY.match(name))}))

    def base_of(self, store: str, version: int) -> StateFile | None:
        """The newest whole state at or below a version."""
        bases = [file for file in self.state.get(store, ()) if file.is_base and file.version <= version]
        return bases[-1] if bases else None

    def missing_of(self, store: str, version: int) -> str | None:
        """Why the version of a store is not there; None where it is."""
        base = self.base_of(store, version)
        begin = 0 if base is None else base.version
        changes = {file.version for file in self.state.get(store, ()) if not file.is_base}
        gone = [number for number in range(begin + 1, version + 1) if number not in changes]
        if not gone:
            return None
        oldest = "nothing" if base is None else base.path
        return f"{store} has no version {version}: {oldest} below it, and no change {gone[0]} of it"


def state_file(name: str) -> StateFile | None:
    """What a file of state holds; None for any other file, a checksum too."""
    found = _STATE_FILE.fullmatch(name)
    if found is None or found["checksum"]:
        return None
    return StateFile(name, found["store"], int(found["version"]), found["id"], found["kind"])


def batch_of(name: str) -> int | None:
    """The batch of a file of offsets, of a commit, or of metadata of an operator. None for other files."""
    found = _BATCH.fullmatch(name) or _OPERATOR_OF_BATCH.fullmatch(name)
    return None if found is None else int(found[found.re.groups])


def is_after(name: str, batch: int) -> bool:
    """Whether the file belongs to what came behind a batch."""
    if (state := _STATE_FILE.fullmatch(name)) is not None:
        return int(state["version"]) > batch + 1
    number = batch_of(name)
    return number is not None and number > batch


def problems(layout: Layout, batch: int, read: Callable[[str], bytes], *, has_changelog: bool = False) -> list[str]:
    """Why a query cannot go on behind a batch from these files; empty where it can. `read` gives the content of a file.

    `has_changelog`: changes are in topics, which keep all behind the oldest snapshot that is there.
    """
    found: list[str] = []
    if batch not in layout.commits:
        kept = f"{layout.commits[0]} to {layout.commits[-1]}" if layout.commits else "none"
        return [f"batch {batch} is not among the committed batches that are kept ({kept})"]
    # A query that starts reads the offsets of its last two batches.
    found += [
        f"the offsets of batch {number} are not kept"
        for number in (batch - 1, batch)
        if number >= 0 and number not in layout.offsets
    ]
    stores, ids = expected_stores(layout, batch, read)
    for store in stores:
        if has_changelog:
            bases = [file.version for file in layout.state.get(store, ()) if file.is_base]
            if bases and min(bases) > batch + 1:
                found.append(f"{store} has no version {batch + 1}: its oldest snapshot is of version {min(bases)}")
            continue
        if store in ids:
            wanted = {f"{store}/{batch + 1}_{ids[store]}.{kind}" for kind in ("changelog", "zip", "delta", "snapshot")}
            if not wanted & layout.names:
                found.append(f"{store} has no version {batch + 1} with the id {ids[store]}")
                continue
        if (missing := layout.missing_of(store, batch + 1)) is not None:
            found.append(missing)
    return found


def expected_stores(layout: Layout, batch: int, read: Callable[[str], bytes]) -> tuple[list[str], dict[str, str]]:
    """The stores that must have the version of a batch, and the unique ids of those whose ids its commit names."""
    stores = set(layout.state)
    ids: dict[str, str] = {}
    commit = log_json(read(f"commits/{batch}"))
    ids_by_operator = commit.get("stateUniqueIds") or {}
    for operator in layout.operators:
        named = _stores_of_operator(layout, operator, read)
        stores |= {store for partition in named for store in partition}
        by_partition = ids_by_operator.get(str(operator), [])
        if len(by_partition) == len(named):
            for partition, its_ids in zip(named, by_partition, strict=True):
                if len(its_ids) == len(partition):
                    ids.update(zip(partition, its_ids, strict=True))
    return sorted(stores), ids


def _stores_of_operator(layout: Layout, operator: int, read: Callable[[str], bytes]) -> list[list[str]]:
    """The stores of each partition, in the order of the operator's metadata. Empty without metadata."""
    facts = operator_facts(layout, operator, read)
    infos = facts.get("stateStoreInfo", []) if facts else []
    count = max((info.get("numPartitions", 0) for info in infos), default=0)
    return [
        [_store(operator, partition, str(info.get("storeName", _DEFAULT_STORE))) for info in infos]
        for partition in range(count)
    ]


def _store(operator: int, partition: int, name: str) -> str:
    return f"state/{operator}/{partition}" + ("" if name == _DEFAULT_STORE else f"/{name}")


def operator_facts(layout: Layout, operator: int, read: Callable[[str], bytes]) -> dict[str, Any] | None:
    """The newest metadata of a stateful operator."""
    home = f"state/{operator}/_metadata/"
    versions = [number for name in layout.names if name.startswith(home) and (number := batch_of(name)) is not None]
    name = f"{home}v2/{max(versions)}" if versions else home + METADATA
    return log_json(read(name)) if name in layout.names else None


def log_lines(content: bytes) -> list[str]:
    """The lines of a log file behind its version."""
    return content.decode("utf-8", errors="replace").split("\n")[1:]


def log_json(content: bytes) -> dict[str, Any]:
    """The JSON in the line behind the version; empty where there is none."""
    lines = log_lines(content)
    return facts_of(lines[0].encode()) if lines else {}


def offsets_of(content: bytes) -> dict[str, Any]:
    """The offsets of a batch by source: its number, or its name where the log has names (version 2). None: no offset."""
    has_names = content.startswith(b"v2")
    offsets: dict[str, Any] = {}
    for number, line in enumerate(log_lines(content)[1:]):
        name, text = line.split(":", 1) if has_names and ":" in line else (str(number), line)
        if text == "-":
            offsets[name] = None
            continue
        try:
            offsets[name] = json.loads(text)
        except (ValueError, RecursionError):
            offsets[name] = text
    return offsets


def query_of(metadata: bytes) -> str | None:
    """The id of the query, as in Spark's file `metadata`."""
    found = facts_of(metadata).get("id")
    return found if isinstance(found, str) else None


def data_files_of(snapshot: str, content: bytes) -> frozenset[str]:
    """The files beside a RocksDB snapshot (a .zip) that it consists of, as in `state/0/0/SSTs/…`. ValueError for another
    file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            facts = log_json(archive.read(METADATA))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{snapshot} is no snapshot of RocksDB: {error}") from error
    home = snapshot.rpartition("/")[0]
    tables = {f"{home}/SSTs/{file['dfsSstFileName']}" for file in facts.get("sstFiles", [])}
    logs = {f"{home}/logs/{file['dfsLogFileName']}" for file in facts.get("logFiles", []) or [] if "dfsLogFileName" in file}
    return frozenset(tables | logs)


def names_paths(name: str) -> bool:
    """Whether a file may hold whole paths into its checkpoint, so that its content depends on the place."""
    return _OPERATOR_OF_BATCH.fullmatch(name) is not None


def relocated(name: str, content: bytes, root: str) -> bytes:
    """The content of a file as the checkpoint at `root` has it: metadata of operators names schema files by whole paths."""
    if not names_paths(name):
        return content
    version, _, text = content.decode().partition("\n")
    facts = json.loads(text)
    for info in facts.get("stateStoreInfo", []):
        paths = info.get("stateSchemaFilePaths", [])
        info["stateSchemaFilePaths"] = [_SCHEMA_FILE.sub(lambda found: root.rstrip("/") + found[1], path) for path in paths]
    return f"{version}\n{json.dumps(facts, separators=(',', ':'))}".encode()
