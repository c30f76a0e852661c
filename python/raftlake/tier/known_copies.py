"""Which copy holds an offset, whoever rewrote the files since then: by the table's log, the rows, the file beside the copy.

The id of a copy stands in each of its rows, and in the statistics of a file that holds rows of one copy only. The file of
auxiliary bytes has that id for a name, and all facts of the copy. OPTIMIZE changes neither.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from raftlake.ports.tier import Lineage, RemoteSegment, TierFailure
from raftlake.tier.failures import RESTORE, TierProblem
from raftlake.tier.lineage_files import LineageFiles
from raftlake.tier.ordered_rows import judged
from raftlake.tier.reader import read_files
from raftlake.tier.remote_segments import SEGMENT_KEY, auxiliary_name, file_name, from_json, unpack_auxiliary
from raftlake.tier.store import Store
from raftlake.tier.table_files import TableFile

#: pyarrow ships no types.
Arrow: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class KnownCopy:
    """A copy as it was written. `auxiliary` is None where the file of auxiliary bytes is missing or damaged, and `lacking` says
    so."""

    segment: RemoteSegment
    auxiliary: bytes | None
    lacking: str = ""


class KnownCopies:
    """The copies of one lineage, as one version of its table shows them."""

    def __init__(self, store: Store, uri: str, lineage: Lineage, files: LineageFiles) -> None:
        self._store = store
        self._uri = uri
        self._lineage = lineage
        self._files = files

    def id_at(self, offset: int) -> str | None:
        """The copy that holds an offset; None where no file holds it."""
        holding = self._files.holding(offset)
        if not holding:
            return None
        if len(holding) == 1 and holding[0].segment_id is not None and holding[0].is_of(self._lineage.incarnation):
            return holding[0].segment_id
        return self._id_of_row(holding, offset)

    def _id_of_row(self, holding: list[TableFile], offset: int) -> str:
        found = read_files(self._store, self._uri, holding, offset, offset + 1, ["segment_id"], self._lineage.incarnation)
        segment_id = next(rows.column("segment_id")[0].as_py() for rows in found if rows.num_rows)
        if not isinstance(segment_id, str):
            raise TierProblem(
                TierFailure.DAMAGED, f"{self._uri}/{holding[0].path}: the row of offset {offset} names no copy: {RESTORE}"
            )
        return segment_id

    def at(self, offset: int) -> KnownCopy | None:
        """The copy that holds an offset; None where no file holds it. TierProblem (DAMAGED) where nothing tells its facts."""
        segment_id = self.id_at(offset)
        if segment_id is None:
            return None
        known, lacking = self.beside(segment_id)
        if known is None:
            written = self._by_footer(segment_id, offset)
            known = None if written is None else KnownCopy(written, None, lacking)
        if known is None:
            raise TierProblem(TierFailure.DAMAGED, f"{lacking}: {RESTORE}")
        segment = known.segment
        if not segment.base_offset <= offset < segment.end_offset:
            name = auxiliary_name(segment_id)
            held = f"{segment.base_offset} to {segment.end_offset - 1}"
            raise TierProblem(
                TierFailure.DAMAGED, f"{self._uri}/{name} is of a copy of the offsets {held}, and its rows hold {offset}"
            )
        return known

    def beside(self, segment_id: str) -> tuple[KnownCopy | None, str]:
        """What the file of auxiliary bytes tells of a copy of this lineage; else what is wrong with it."""
        name = auxiliary_name(segment_id)
        data = self._store.read(name)
        unpacked = None if data is None else unpack_auxiliary(data)
        if unpacked is None:
            return None, f"{self._uri}/{name} is {'missing' if data is None else 'damaged'}"
        named, auxiliary = unpacked
        if named.segment.segment_id != segment_id or not named.is_shown_by(self._lineage):
            return None, f"{self._uri}/{name} is of another copy"
        return KnownCopy(named.segment, auxiliary), ""

    def _by_footer(self, segment_id: str, offset: int) -> RemoteSegment | None:
        """The facts in the file itself, where it is as its leader wrote it."""
        path = file_name(self._lineage.group.partition, segment_id)
        file = next((file for file in self._files.holding(offset) if file.path == path), None)
        if file is None:
            return None
        with judged(self._store, self._uri, file):
            with self._store.open(path) as source:
                facts = (pq.read_metadata(source).metadata or {}).get(SEGMENT_KEY.encode())
            crc = self._store.checksum(path)
        named = None if facts is None else from_json(facts, size=file.size, crc=crc, file=path)
        return named.segment if named is not None and named.is_shown_by(self._lineage) else None


def written_by_the_tier(file: TableFile) -> bool:
    """The file has the name of the one copy that is in it."""
    return file.segment_id is not None and posixpath.basename(file.path) == f"{file.segment_id}.parquet"
