"""What the adoption of one partition's table does to files: which go, which come, and where the superseded ones are kept.

An adoption is made for what one version of the table shows. All of its files are complete in the store before the commit. So
the commit shows the new history at once, and nothing of the older one is lost, whenever the process ends.

A file that goes on in part is written anew. A copy that is cut there gets another name, and no auxiliary bytes where its end is
gone: what a replica has to know at the end of the uncut copy must not be found by the cut one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftlake.ports.tier import AdoptRequest, Lineage, RemoteSegment, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.tier.failures import TierProblem
from raftlake.tier.known_copies import KnownCopies, written_by_the_tier
from raftlake.tier.lineage import Part, Piece, adopt, cut_off, hole_words
from raftlake.tier.lineage_facts import epochs_of
from raftlake.tier.lineage_files import LineageFiles, lineage_files
from raftlake.tier.reader import read_files
from raftlake.tier.remote_segments import SEGMENT_KEY, auxiliary_name, file_name, footer_json, pack_auxiliary
from raftlake.tier.segment_file import ROW_GROUP_ROWS, Ranges, SegmentFile, parquet_writer
from raftlake.tier.store import Store
from raftlake.tier.superseded import superseded_files, superseded_name
from raftlake.tier.table_files import TableFile, groups_by_overlap

#: pyarrow ships no types.
Arrow: TypeAlias = Any

_RANGED = ("offset", "timestamp", "kind", "leader_epoch", "incarnation", "segment_id")


class _Run(NamedTuple):
    """Rows of one copy, or of several ones that stay as they are (`cut` is None)."""

    base_offset: int
    end_offset: int
    #: The copy that goes on in part.
    cut: str | None
    #: The last row of the copy is here.
    is_ended: bool = True


@dataclass(frozen=True, slots=True)
class _Source:
    piece: Piece
    #: Several where OPTIMIZE left them overlapping, or one copy in several.
    files: tuple[TableFile, ...]


@dataclass(slots=True)
class Adoption:
    """`write` fills it."""

    #: The incarnation that begins.
    lineage: Lineage
    #: The first offset that the log has to copy by itself.
    end_offset: int
    #: Files of the table that go.
    removed: list[TableFile] = field(default_factory=list)
    added: list[SegmentFile] = field(default_factory=list)
    #: All files that were written for the table: of no use where there is no commit.
    written: list[str] = field(default_factory=list)
    #: Superseded files that the table shows again as a whole: of no use after the commit.
    returned: list[str] = field(default_factory=list)


class AdoptionWriter:
    """Plans and writes the adoption of a partition, as `files` shows it. Raises TierProblem; a store's errors go through."""

    def __init__(self, store: Store, uri: str, request: AdoptRequest, newest: int, files: Sequence[TableFile]) -> None:
        self._store = store
        self._uri = uri
        self._request = request
        self._newest = newest
        self._files: LineageFiles = lineage_files(store, uri, files, newest)
        self._copies = KnownCopies(store, uri, Lineage(request.group, newest), self._files)
        self.adoption = Adoption(Lineage(request.group, newest + 1), request.log_start)

    def write(self) -> None:
        """Write all files, durably. TierProblem (ELSEWHERE) where rows would be lost that only the table has."""
        request, adoption = self._request, self.adoption
        live = list(self._live())
        # What an attempt that ended midway has kept of these is perhaps not whole, and tells nothing more.
        kept = {self._kept_name(source.files) for source in live}
        sources = {source.piece.name: source for source in [*live, *self._superseded(kept)]}
        pieces = [source.piece for source in sources.values()]
        parts = adopt(pieces, request.epochs, request.log_start, request.end_offset)
        if (cut := cut_off(pieces, request.epochs, request.log_start, parts)) is not None:
            what = f"{request.group}: {hole_words(cut, request.log_start)}: put back the missing rows"
            raise TierProblem(TierFailure.ELSEWHERE, f"{self._uri}: {what} (DESCRIBE HISTORY tells who removed rows)")
        if parts:
            adoption.end_offset = parts[-1].end_offset
        whole = {part.piece.name for part in parts if part.is_whole}
        for source in sources.values():
            if source.piece.is_live and source.piece.name not in whole:
                self._supersede(source.files)
                adoption.removed += source.files
            elif not source.piece.is_live and source.piece.name in whole:
                adoption.returned += [file.path for file in source.files]
        for part in parts:
            if not part.is_whole or not part.piece.is_live:
                for run in self._runs(part, sources[part.piece.name].files):
                    self._write_run(run, sources[part.piece.name].files)
        self._store.sync(adoption.written)

    # --- pieces --------------------------------------------------------------------------------------------------------------

    def _live(self) -> Iterator[_Source]:
        """What the table shows: files that share offsets or a copy belong together."""
        files = self._files.files
        extents = [self._extent(file) for file in files]
        for numbers in groups_by_overlap((first, last, number) for number, (first, last) in enumerate(extents)):
            yield self._source([files[number] for number in numbers], is_live=True)

    def _superseded(self, passed_over: Collection[str]) -> Iterator[_Source]:
        group = self._request.group
        for file in superseded_files(self._store, self._uri, group.partition, self._newest, passed_over):
            yield self._source([file], is_live=False)

    def _source(self, files: Sequence[TableFile], *, is_live: bool) -> _Source:
        firsts: dict[int, int] = {}
        for file in files:
            for epoch, offset in epochs_of(self._store, self._uri, file, self._newest, self._copies):
                firsts[epoch] = min(offset, firsts.get(epoch, offset))
        piece = Piece(
            name=files[0].path,
            base_offset=Offset(min(file.offset_min or 0 for file in files)),
            end_offset=Offset(max(file.offset_max or 0 for file in files) + 1),
            epochs=tuple(sorted(((Epoch(epoch), Offset(at)) for epoch, at in firsts.items()), key=lambda each: each[1])),
            is_live=is_live,
        )
        return _Source(piece, tuple(files))

    def _extent(self, file: TableFile) -> tuple[int, int]:
        """The first and the last offset of a file, and of the copies that begin or end in it."""
        first, last = file.offset_min or 0, file.offset_max or 0
        if written_by_the_tier(file):
            return first, last
        known = [self._copies.beside(name)[0] for name in {self._copies.id_at(first), self._copies.id_at(last)} if name]
        copies = [copy.segment for copy in known if copy is not None]
        return (
            min([first, *(copy.base_offset for copy in copies)]),
            max([last, *(copy.end_offset - 1 for copy in copies)]),
        )

    # --- files ---------------------------------------------------------------------------------------------------------------

    def _supersede(self, files: Sequence[TableFile]) -> None:
        """Keep files that the table is going to show no more. What is kept already, with all its bytes, stays."""
        name = self._kept_name(files)
        if len(files) > 1:
            # Only together they hold each offset once, in one history.
            base = min(file.offset_min or 0 for file in files)
            self._write_rows(name, files, base, max(file.offset_max or 0 for file in files) + 1)
        elif self._store.size(name) != files[0].size:
            self._store.duplicate(files[0].path, name)
        self._store.sync([name])

    def _kept_name(self, files: Sequence[TableFile]) -> str:
        newest = max(self._newest if file.incarnation_max is None else file.incarnation_max for file in files)
        name = superseded_name(newest, files[0])
        return name if len(files) == 1 else f"{name.removesuffix('.parquet')}-{len(files)}.parquet"

    def _runs(self, part: Part, files: Sequence[TableFile]) -> list[_Run]:
        """A part, divided where a copy is cut that is not alone in it."""
        base, end = part.base_offset, part.end_offset
        if part.is_whole:
            return [_Run(base, end, None)]
        runs: list[_Run] = []
        for name, first, behind in self._copies_in(part.piece, files, max(base - 1, 0), end + 1):
            is_whole = base <= first and behind <= end
            low, high = max(base, first), min(end, behind)
            if low >= high:
                continue
            if is_whole and runs and runs[-1].cut is None:
                runs[-1] = _Run(runs[-1].base_offset, high, None)
            else:
                runs.append(_Run(low, high, None if is_whole else name, behind <= end))
        return runs

    def _copies_in(self, piece: Piece, files: Sequence[TableFile], start: int, end: int) -> list[tuple[str, int, int]]:
        """The copies of the rows in a range of a piece: name, first offset there, and the offset behind the last one."""
        found: list[tuple[str, int, int]] = []
        offset, end = max(start, piece.base_offset), min(end, piece.end_offset)
        for rows in read_files(self._store, self._uri, files, offset, end, ["segment_id"]):
            names = pc.run_end_encode(rows.column("segment_id"))
            first = offset
            for name, behind in zip(names.values.to_pylist(), names.run_ends.to_pylist(), strict=True):
                if found and found[-1][0] == name:
                    first = found.pop()[1]
                found.append((str(name), first, offset + behind))
                first = offset + behind
            offset += rows.num_rows
        return found

    def _write_run(self, run: _Run, files: Sequence[TableFile]) -> None:
        adoption, store = self.adoption, self._store
        name = str(uuid.uuid4())
        path = file_name(self._request.group.partition, name)
        adoption.written.append(path)
        if run.cut is None:
            adoption.added.append(self._write_rows(path, files, run.base_offset, run.end_offset))
            return
        written = self._write_rows(path, files, run.base_offset, run.end_offset, name, run.cut)
        known = self._copies.beside(run.cut)[0]
        auxiliary = known.auxiliary if known is not None and run.is_ended else None
        adoption.written.append(auxiliary_name(name))
        store.write(auxiliary_name(name), pack_auxiliary(adoption.lineage, written.segment, auxiliary or b""))
        adoption.added.append(written)

    def _write_rows(
        self, path: str, files: Sequence[TableFile], base: int, end: int, name: str = "", cut: str = ""
    ) -> SegmentFile:
        """Some rows as a file; with a `name`, as the copy of this name that goes on for a part of the one that is `cut`."""
        ranges, epochs = Ranges(*_RANGED), list[tuple[Epoch, Offset]]()
        file = self._store.create(path)
        with parquet_writer(file) as writer:
            for rows in read_files(self._store, self._uri, files, base, end):
                batch = _named(rows, name) if name else rows
                ranges.add(batch)
                _add_epochs(epochs, batch)
                writer.write_batch(batch.drop_columns(["partition"]), row_group_size=ROW_GROUP_ROWS)
            segment = self._segment(path, base, end, tuple(epochs), name, cut)
            segment = replace(segment, timestamp_ms_max=ranges.timestamp_ms_max)
            if name:
                writer.add_key_value_metadata({SEGMENT_KEY: footer_json(self.adoption.lineage, segment)})
        file.finish()
        return SegmentFile(replace(segment, size=file.size, crc=file.crc), ranges.statistics({}))

    def _segment(
        self, path: str, base: int, end: int, epochs: tuple[tuple[Epoch, Offset], ...], name: str, cut: str
    ) -> RemoteSegment:
        known = self._copies.beside(cut)[0] if cut else None
        share = 0.0 if known is None else (end - base) / (known.segment.end_offset - known.segment.base_offset)
        return RemoteSegment(
            segment_id=name,
            base_offset=Offset(base),
            end_offset=Offset(end),
            leader_epoch=epochs[-1][0] if known is None else known.segment.leader_epoch,
            epochs=epochs,
            timestamp_ms_max=-1,
            log_bytes=0 if known is None else round(known.segment.log_bytes * share),
            size=0,
            crc=0,
            file=path,
        )


def _named(rows: Arrow, name: str) -> Arrow:
    """The same rows as those of another copy."""
    at = rows.schema.get_field_index("segment_id")
    field = rows.schema.field(at)
    return rows.set_column(at, field, pa.repeat(pa.scalar(name, field.type), rows.num_rows))


def _add_epochs(epochs: list[tuple[Epoch, Offset]], rows: Arrow) -> None:
    """The leader epochs of more rows, each with its first offset."""
    found, offsets = rows.column("leader_epoch").to_numpy(), rows.column("offset").to_numpy()
    for row in [0, *(np.flatnonzero(np.diff(found)) + 1).tolist()] if len(found) else []:
        if not epochs or epochs[-1][0] != found[row]:
            epochs.append((Epoch(int(found[row])), Offset(int(offsets[row]))))
