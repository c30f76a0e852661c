"""The settings of a quorum on this machine: which ones its owner may choose, and what `node.properties` of each node says.

Owns the settings that every start writes (`OWN`), those that the nodes of a local quorum cannot have (`UNFIT`), and the text of
the files. A file is edited and not written anew: what its owner chose at an earlier start, or wrote by hand, stays. An empty
value takes a setting out. All settings of a node are checked before there is a new text for its file. Writes nothing itself.
"""

from __future__ import annotations

import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from raftlake.errors import ConfigError
from raftlake.runtime.descriptor_shares import shortage
from raftlake.runtime.settings.names import KNOWN, Given, canonical, canonical_name, gather, variables
from raftlake.runtime.settings.properties import edit_properties, parse_properties
from raftlake.runtime.settings.settings import load_settings
from raftlake.storage.files import read_file

HOST = "127.0.0.1"
#: What each start writes, and what chooses it.
OWN: Mapping[str, str] = {
    "node.id": "`nodes`, --nodes",
    "quorum.voters": "`port`, --port",
    "log.dirs": "`data_dir`, --data-dir",
    "listeners": "`port`, --port",
    "http.listener": "`http_port`, --http-port",
}
SETS_ONE = "--set KEY=VALUE (`settings`) sets one on all nodes"
#: Addresses that no two nodes can share, and ways of nodes that are not told their voters.
UNFIT = frozenset(
    {
        "advertised.listeners",
        "controller.listener",
        "advertised.http.listener",
        "http.ops.listener",
        "quorum.bootstrap.servers",
        "quorum.auto.join.enable",
        "quorum.topic",
        "quorum.topic.id",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A `node.properties` as the last start, or its owner, left it."""

    path: Path
    data: bytes
    #: Empty where the file says nothing, or cannot be understood.
    text: str
    #: By canonical name.
    values: Mapping[str, str]
    #: Why nothing in the file can be understood, if nothing can.
    trouble: str | None


def read_settings(path: Path) -> SettingsFile | None:
    """None where there is no file. Raises StorageError where it cannot be read, and ConfigError for settings with a slip among
    them: somebody wrote them, and should not lose the others."""
    data = read_file(path)
    if data is None:
        return None
    try:
        text = data.decode()
        values = _canonical_values(text, str(path))
    except (ConfigError, UnicodeDecodeError) as error:
        trouble = str(error) if isinstance(error, ConfigError) else f"{path} is not UTF-8 (byte {error.start})"
        if _names_settings(data):
            raise ConfigError(f"{trouble}. Mend the file, or delete it: it is made anew") from error
        return SettingsFile(path=path, data=data, text="", values={}, trouble=trouble)
    return SettingsFile(path=path, data=data, text=text if values else "", values=values, trouble=None)


def _names_settings(data: bytes) -> bool:
    """Whether a line of what cannot be understood as a whole begins as a setting does."""
    keys = (line.partition(b"=")[0].strip().decode("ascii", errors="replace") for line in data.splitlines())
    return any(canonical_name(key) in KNOWN for key in keys)


def own_settings(node_id: int, directory: Path, ports: Mapping[int, int], http_port: int) -> dict[str, str]:
    """What a start writes itself; `ports` are those of all nodes."""
    return {
        "node.id": str(node_id),
        "quorum.voters": ",".join(f"{voter}@{HOST}:{port}" for voter, port in ports.items()),
        "log.dirs": str(directory),
        "listeners": f"PLAINTEXT://{HOST}:{ports[node_id]}",
        "http.listener": f"{HOST}:{http_port}",
    }


def chosen_settings(settings: Mapping[str, str]) -> dict[str, Given]:
    """The settings for all nodes, by canonical name. Raises ConfigError for one that is unknown, or not to be chosen."""
    chosen = canonical(settings, "settings")
    for name, given in chosen.items():
        if name in OWN:
            raise ConfigError(f"{given.spelling}={given.value}: a local quorum sets it itself ({OWN[name]})")
        _require_fit(name, given, "")
    return chosen


def _require_fit(name: str, given: Given, where: str) -> None:
    if name in UNFIT and given.value:
        raise ConfigError(
            f"{given.spelling}={given.value}{where}: the nodes of a local quorum cannot have it; it is for nodes that "
            "`raftlake serve` starts"
        )


def edited_text(file: SettingsFile | None, own: Mapping[str, str], chosen: Mapping[str, Given]) -> str:
    """The new text of a node's file, which goes on from `file`. Raises ConfigError where no node could start with it."""
    _require_usable(file, own, chosen)
    text = "" if file is None else file.text
    wanted = {**own, **{name: given.value or None for name, given in chosen.items()}}
    spelled = {spelling: canonical_name(spelling) for spelling in parse_properties(text, "")}
    changes = {spelling: wanted[name] for spelling, name in spelled.items() if name in wanted}
    changes.update({name: value for name, value in wanted.items() if name not in spelled.values()})
    return edit_properties(text, changes)


def _require_usable(file: SettingsFile | None, own: Mapping[str, str], chosen: Mapping[str, Given]) -> None:
    """As the node would. An error names the file unless it may come from what was chosen."""
    path = None if file is None else file.path
    overrides = [f"{name}={value}" for name, value in own.items()]
    overrides += [f"{given.spelling}={given.value}" for given in chosen.values()]
    for name, given in gather(path, {}, overrides).items():
        _require_fit(name, given, f" in {given.source}")
    try:
        load_settings(path, overrides=overrides)
    except ConfigError as error:
        if path is None or chosen:
            raise
        raise ConfigError(f"{path}: {error}") from error


def replaced(file: SettingsFile, own: Mapping[str, str], left: Mapping[str, str]) -> list[str]:
    """The own settings that somebody changed in the file: they are not as the last start `left` them, and are written anew."""
    return [name for name in OWN if file.values.get(name, "") not in ("", own[name], left.get(name))]


def differing(texts: Collection[str]) -> list[str]:
    """The settings of the owner that the nodes do not have in common."""
    of_nodes = [
        {name: value for name, value in _canonical_values(text, "").items() if name not in OWN and value} for text in texts
    ]
    names = {name for values in of_nodes for name in values}
    return sorted(name for name in names if len({values.get(name) for values in of_nodes}) > 1)


def ignored_variables(environ: Mapping[str, str]) -> str | None:
    """A line about settings in the environment, if there are any: the data directory alone says how its nodes are set."""
    names = ", ".join(variables(environ))
    return f"{names}: the nodes of a local quorum take no settings from the environment; {SETS_ONE}" if names else None


def few_connections(properties: Path) -> str | None:
    """A line about a node that can serve fewer clients than its settings say, since a child of this process may have too few
    files open. None too where the node will not even start: it says so itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return None
    try:
        return shortage(load_settings(properties), hard)
    except ConfigError:
        return None


def _canonical_values(text: str, source: str) -> dict[str, str]:
    return {canonical_name(key): value.strip() for key, value in parse_properties(text, source).items()}
