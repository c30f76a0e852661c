"""State whose changes are in topics, as a copy has it: the changes behind the newest snapshot of each store, as Spark's files.

A query goes on from these files with any provider of RocksDB, and writes its own changes to topics of its own. In Spark's
checkpoint format 2 a version is named by its id, and each version names its parent. In format 1 a small file of the version's
name says where it lies in the topic. A state that was imported has files of Spark's below the first version in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from raftlake.checkpoints.changelog_file import CODEC, CODEC_DEFAULT, encode
from raftlake.checkpoints.changelog_topics import Piece, StoreLog, Trailer
from raftlake.checkpoints.layout import Layout, expected_stores, log_json, state_file
from raftlake.errors import WrongState

_SUM = ".crc"


class LoggedState:
    """What a copy as of a batch has of the changes: `files` are made when they are called. WrongState where a version is
    nowhere."""

    def __init__(
        self, what: str, layout: Layout, batch: int, read: Callable[[str], bytes], log_of: Callable[[str], StoreLog]
    ) -> None:
        self._what = what
        self._layout = layout
        self._read = read
        #: By store, the newest version whose change is a file of Spark's.
        self._filed: dict[str, int] = {}
        self.files: dict[str, Callable[[], bytes]] = {}
        codec = str(log_json(read(f"offsets/{batch}")).get("conf", {}).get(CODEC, CODEC_DEFAULT))
        stores, ids = expected_stores(layout, batch, read)
        for store in stores:
            log, unique_id = log_of(store), ids.get(store)
            found = self._named(log, store, batch + 1, unique_id) if unique_id else self._placed(log, store, batch + 1)
            for trailer in found:
                name = _name(store, trailer.version, unique_id and trailer.unique_id, "changelog")
                self.files[name] = partial(_content, log, trailer, codec)

    def keeps(self, name: str) -> bool:
        """Whether a file of the checkpoint is part of the copy. Where changes are in topics the files of the same names only
        point there."""
        file = state_file(name.removesuffix(_SUM))
        return file is None or file.is_base or file.version <= self._filed.get(file.store, 0)

    def _named(self, log: StoreLog, store: str, version: int, unique_id: str) -> list[Trailer]:
        """The versions behind the newest snapshot of format 2, the newest first."""
        found: list[Trailer] = []
        parent: str | None = unique_id
        while version and not {_name(store, version, each, "zip") for each in (parent, None)} & self._layout.names:
            trailer = log.find(version, parent) if parent else None
            if trailer is None:
                if parent and _name(store, version, parent, "changelog") in self._layout.names:
                    self._filed[store] = version
                    break
                raise self._missing(store, version, f" with the id {parent}" if parent else "")
            found.append(trailer)
            version, parent = version - 1, trailer.parent
        return found

    def _placed(self, log: StoreLog, store: str, version: int) -> list[Trailer]:
        """The same of format 1."""
        found: list[Trailer] = []
        base = self._layout.base_of(store, version)
        for number in range(version, 0 if base is None else base.version, -1):
            name = _name(store, number, None, "changelog")
            if name not in self._layout.names:
                raise self._missing(store, number, "")
            pieces = _pointer(self._read(name))
            if pieces is None:
                self._filed[store] = number
                break
            found.append(log.of_place(number, pieces))
        return found

    def _missing(self, store: str, version: int, which: str) -> WrongState:
        return WrongState(f"{self._what}: {store} has no version {version}{which}: no file and no topic has its changes")


def _name(store: str, version: int, unique_id: str | None, kind: str) -> str:
    return f"{store}/{version}" + (f"_{unique_id}" if unique_id else "") + f".{kind}"


def _pointer(content: bytes) -> list[Piece] | None:
    """Where a version of format 1 lies; None for a file with changes in Spark's own form."""
    try:
        facts = json.loads(content)
    except ValueError:
        return None
    pieces = facts.get("pieces") if isinstance(facts, dict) else None
    return [(int(first), int(last)) for first, last in pieces] if isinstance(pieces, list) and pieces else None


def _content(log: StoreLog, trailer: Trailer, codec: str) -> bytes:
    return encode(log.changes(trailer), trailer.lineage if trailer.unique_id else None, codec)
