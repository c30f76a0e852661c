"""Files of auxiliary bytes that are of no use any more: those of copies that a delete removed, and of attempts that failed.

VACUUM leaves them alone, and they are small. A sweep comes with a delete, when the epoch of its leader is in the table: no
attempt of this leader or an older one can be shown any more. A sweep reads a bounded number of files and remembers which of
them are of use.
"""

from __future__ import annotations

import contextlib

from raftlake.ports.tier import Lineage
from raftlake.tier.failures import STORE_ERRORS
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.remote_segments import auxiliary_name, unpack_auxiliary
from raftlake.tier.store import Store

#: Files that one sweep reads, and names that are remembered.
_READ_MAX, _REMEMBERED_MAX = 64, 200_000


class Leftovers:
    """Remembers what earlier sweeps of this process have seen."""

    def __init__(self) -> None:
        #: Where the copy of a name ends; None for one of another lineage.
        self._ends: dict[tuple[Lineage, str], int | None] = {}

    def sweep(
        self, store: Store, lineage: Lineage, leader_epoch: int, before: LineageFiles, after: LineageFiles, start: int
    ) -> None:
        """`before` and `after` are the files that the table showed before a delete and after it. Nothing is shown of the
        lineage below `start`. A store that fails here leaves its files for another time."""
        with contextlib.suppress(*STORE_ERRORS):
            shown = {file.segment_id for file in after.files}
            gone = {file.segment_id for file in before.files if file.offset_max is not None and file.offset_max < start}
            # OPTIMIZE puts rows of several copies into a file, and rows of one copy into several files.
            mixed = [file for file in after.files if file.segment_id is None]
            names_gone = [name for name in gone - shown if name is not None]
            store.discard([auxiliary_name(name) for name in names_gone if not any(file.may_have(name) for file in mixed)])
            names = (name.removesuffix(".aux") for name in store.names("_raftlake") if name.endswith(".aux"))
            others = [name for name in names if name not in shown]
            read = 0
            for name in others:
                if (lineage, name) not in self._ends:
                    if read == _READ_MAX:
                        continue
                    read += 1
                    self._look(store, lineage, leader_epoch, after, start, name)
                end = self._ends.get((lineage, name))
                if end is not None and end <= start:
                    store.discard([auxiliary_name(name)])

    def _look(self, store: Store, lineage: Lineage, leader_epoch: int, after: LineageFiles, start: int, name: str) -> None:
        data = store.read(auxiliary_name(name))
        unpacked = None if data is None else unpack_auxiliary(data)
        if len(self._ends) >= _REMEMBERED_MAX:
            self._ends.clear()
        if unpacked is None or not unpacked[0].belongs_to(lineage):
            self._ends[(lineage, name)] = None
            return
        segment = unpacked[0].segment
        # Where one other copy has the first offset of an attempt, the attempt was not shown.
        holding = {file.segment_id for file in after.holding(segment.base_offset)}
        if segment.leader_epoch <= leader_epoch and len(holding) == 1 and not holding & {None, name}:
            store.discard([auxiliary_name(name)])
        elif segment.end_offset <= max(after.end, start):
            self._ends[(lineage, name)] = segment.end_offset
