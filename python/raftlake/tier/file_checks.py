"""The rules for each file of a partition: it is there, it is what was written, and the table's log says what it holds.

A file that the tier wrote is known by the facts in its footer and in the file of auxiliary bytes beside it. For a file that
somebody rewrote (OPTIMIZE) only the statistics in the table's log are compared.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow.parquet as pq

from raftlake.tier.findings import Findings, Kind
from raftlake.tier.key_checks import ShownFile
from raftlake.tier.ordered_rows import FileProblem, judged, row_groups
from raftlake.tier.probe import Probe
from raftlake.tier.reader import TopicHistory
from raftlake.tier.remote_segments import SEGMENT_KEY, NamedSegment, auxiliary_name, file_name, from_json, unpack_auxiliary
from raftlake.tier.table_files import TableFile


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file that the tier wrote."""

    base_offset: int
    end_offset: int
    path: str


class FileChecks:
    """The rules for the files of one partition."""

    def __init__(self, history: TopicHistory, findings: Findings, probe: Probe, wanted: Iterable[str] = ()) -> None:
        self._history = history
        self._probe = probe
        self._store = history.store
        self._findings = findings
        self._wanted = frozenset(wanted)
        self._copies: list[_Copy] = []
        #: The files that can be read.
        self.good: list[TableFile] = []
        #: Those that cannot.
        self.bad: list[TableFile] = []
        #: The files of which the quorum's keys tell.
        self.shown: dict[str, ShownFile] = {}
        #: Some file is not as the tier wrote it.
        self.is_rewritten = False

    def check(self, files: Sequence[TableFile], tell: Callable[[TableFile], None]) -> None:
        """Look at each file."""
        for file in files:
            tell(file)
            try:
                self._check(file)
            except FileProblem as problem:
                self.drop(file, problem)
            else:
                self.good.append(file)
        self._copies.sort(key=lambda copy: (copy.base_offset, copy.end_offset))
        for earlier, later in pairwise(self._copies):
            if earlier.end_offset > later.base_offset:
                what = f"it overlaps {earlier.path}, which holds the offsets up to {earlier.end_offset - 1}"
                self._findings.add(Kind.OVERLAP, what, offset=later.base_offset, file=later.path)

    def drop(self, file: TableFile, problem: FileProblem) -> None:
        """The file is of no use. A file that the table no longer shows may be removed: that is no fault."""
        self.good = [other for other in self.good if other is not file]
        self.bad.append(file)
        if self._history.is_still_shown(file):
            what = problem.what.removeprefix(f"{self._history.uri}/{file.path} ")
            held = "" if not file.has_range else f"; it held the offsets {file.offset_min} to {file.offset_max}"
            self._findings.add(Kind.FILE, f"the file {what}{held}", offset=file.offset_min, file=file.path)

    def _check(self, file: TableFile) -> None:
        with judged(self._store, self._history.uri, file):
            size = self._store.size(file.path)
            if size != file.size:
                raise OSError(f"{size} bytes")
            name = auxiliary_name(posixpath.basename(file.path).removesuffix(".parquet"))
            data = self._store.read(name)
            unpacked = None if data is None else unpack_auxiliary(data)
            beside = unpacked[0] if unpacked is not None and unpacked[0].segment.file == file.path else None
            crc = self._store.checksum(file.path) if beside is not None or file.path in self._wanted else 0
            if beside is None:
                written = self._by_its_footer(file, f"{name} is {'missing' if data is None else 'damaged'}")
            else:
                written = beside
                self._require_bytes(file, beside, crc)
        if file.path in self._wanted:
            self.shown[file.path] = ShownFile(file.size, crc)
        if written is None:
            self.is_rewritten = True
        else:
            segment = written.segment
            self._copies.append(_Copy(segment.base_offset, segment.end_offset, file.path))
        self._check_statistics(file, written)

    def _require_bytes(self, file: TableFile, beside: NamedSegment, crc: int) -> None:
        """FileProblem unless the file is to the byte what the tier wrote. Bytes that are not are read no further."""
        segment = beside.segment
        if (segment.size, segment.crc) != (file.size, crc):
            raise FileProblem(
                file.path,
                f"{self._history.uri}/{file.path} was written with {segment.size} bytes and the checksum {segment.crc:#010x}, "
                f"and has {file.size} with {crc:#010x}",
            )

    def _by_its_footer(self, file: TableFile, lacking: str) -> NamedSegment | None:
        """The facts of a file that the tier wrote and that has lost the file beside it; None for a file of somebody else."""
        if not self._probe.survives(file.path):
            raise FileProblem(file.path, f"{self._history.uri}/{file.path} cannot be read: its metadata is damaged")
        with self._store.open(file.path) as source:
            footer = (pq.read_metadata(source).metadata or {}).get(SEGMENT_KEY.encode())
        named = None if footer is None else from_json(footer, size=file.size, crc=0, file=file.path)
        if named is None or file_name(named.partition, named.segment.segment_id) != file.path:
            return None
        # Retention deletes it with the copy. The Parquet file stays for readers of old versions.
        if self._history.is_still_shown(file):
            what = f"{lacking}: no replica can begin behind this copy without it"
            self._findings.add(Kind.FILE, what, offset=named.segment.base_offset, file=file.path)
        return named

    def _check_statistics(self, file: TableFile, written: NamedSegment | None) -> None:
        groups = row_groups(self._store, self._history.uri, file)
        rows = sum(group.rows for group in groups)
        low = min((group.offset_min for group in groups), default=None)
        high = max((group.offset_max for group in groups), default=None)
        told = [("the table's log", file.offset_min, file.offset_max, file.rows)]
        if written is not None:
            segment = written.segment
            last = segment.end_offset - 1
            told.append(("its copy's facts", segment.base_offset, last, segment.end_offset - segment.base_offset))
        for whose, *said in told:
            if any(one is not None and one != found for one, found in zip(said, (low, high, rows), strict=True)):
                what = f"{whose}: offsets {said[0]} to {said[1]} in {said[2]} rows; the file: {low} to {high} in {rows}"
                self._findings.add(Kind.FILE, what, offset=low, file=file.path)
                return
