"""`raftlake tier verify`: whether the table of a topic holds each record of its history once, exactly, and in order.

Each partition is read once by the files (`file_checks`), once by the rows in the order of offsets (`row_checks`), and compared
with the quorum's keys (`key_checks`). Memory does not grow with the table: one piece of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raftlake.ports.tier import RemoteSegment
from raftlake.tier.commit_watch import CommitWatch
from raftlake.tier.entries import PartitionKeys, Tiered
from raftlake.tier.file_checks import FileChecks
from raftlake.tier.findings import Finding, Findings, Kind
from raftlake.tier.foreign_commits import Change
from raftlake.tier.key_checks import Shown, check_keys
from raftlake.tier.ordered_rows import FileProblem, rows_in_order
from raftlake.tier.probe import Probe
from raftlake.tier.reader import TopicHistory
from raftlake.tier.row_checks import PartitionCheck
from raftlake.tier.table_files import TableFile
from raftlake.tier.topic_table import commit_name

OFFSET_END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the work is."""

    table: str
    partition: int
    #: Of the partition, where the table's log tells.
    rows: int
    rows_total: int
    #: The file that is looked at; None while rows are read.
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What was read of a partition."""

    partition: int
    #: None where no row could be read.
    start: int | None
    end: int | None
    rows: int
    files: int
    segments: int
    batches: int
    #: Those whose CRC was made again.
    checked_batches: int
    #: Rows of aborted transactions.
    aborted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    table: str
    #: None where it cannot be read.
    topic: str | None
    version: int | None
    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]
    #: Its topic was deleted, and the tier has emptied it.
    is_dropped: bool = False


@dataclass(frozen=True, slots=True)
class QuorumKeys:
    """The quorum's keys of a topic by partition, from before the table was opened and from after that."""

    before: Mapping[int, PartitionKeys]
    after: Mapping[int, PartitionKeys]


def verify_table(
    history: TopicHistory, keys: QuorumKeys | None = None, tell: Callable[[Progress], None] = lambda progress: None
) -> TableReport:
    """Read all of a table. Raises TierProblem where the store does not answer. `keys` is None for a topic that is deleted."""
    if (elsewhere := history.elsewhere) is not None:
        return _unread(history, Finding(kind=Kind.PLACE, table=history.uri, partition=None, what=elsewhere))
    if keys is None and history.is_dropped:
        return _unread(history)
    partitions = {*history.partitions(), *history.partitions_begun()}
    if keys is not None:
        partitions |= {*keys.before, *keys.after}
    reports: list[PartitionReport] = []
    findings: list[Finding] = []
    with Probe(history.uri, history.storage_options) as probe:
        for partition in sorted(partitions):
            verifier = _Verifier(history, partition, keys, probe, tell)
            reports.append(verifier.run())
            findings += verifier.findings
    return TableReport(
        table=history.uri,
        topic=history.topic,
        version=history.version,
        partitions=tuple(reports),
        findings=tuple(findings),
    )


def _unread(history: TopicHistory, *findings: Finding) -> TableReport:
    """The report of a table whose rows need not be read: it is another topic's, or none are left of a deleted one."""
    return TableReport(
        table=history.uri,
        topic=history.topic,
        version=history.version,
        partitions=(),
        findings=findings,
        is_dropped=not findings,
    )


def unreadable(uri: str, why: str) -> TableReport:
    """The report of what is no table, or one of somebody else."""
    finding = Finding(kind=Kind.TABLE, table=uri, partition=None, what=why)
    return TableReport(table=uri, topic=None, version=None, partitions=(), findings=(finding,))


def _change(history: TopicHistory, partition: int) -> Change | None:
    """What others have done to a partition, as the commits of the table tell it."""
    watch = CommitWatch()
    watch.look(history.version, lambda version: history.store.read(commit_name(version)))
    return watch.change(partition)


class _Verifier:
    """One partition."""

    def __init__(
        self,
        history: TopicHistory,
        partition: int,
        keys: QuorumKeys | None,
        probe: Probe,
        tell: Callable[[Progress], None],
    ) -> None:
        self._history = history
        self._partition = partition
        self._tell = tell
        self._has_keys = keys is not None
        self._before = PartitionKeys() if keys is None else keys.before.get(partition, PartitionKeys())
        self._after = PartitionKeys() if keys is None else keys.after.get(partition, PartitionKeys())
        self.findings = Findings(history.uri, partition)
        newest = [segment for segment in self._after.segments.values() if isinstance(segment, RemoteSegment)]
        self._files = FileChecks(history, self.findings, probe, [segment.file for segment in newest])
        self._newest = history.newest_incarnation(partition)
        self._rows = PartitionCheck(
            history.topic, self.findings, [segment.segment_id for segment in newest], newest_incarnation=self._newest
        )
        self._listed = history.files(partition)
        self._total = sum(file.rows or 0 for file in self._listed)

    def run(self) -> PartitionReport:
        self._files.check(self._listed, lambda file: self._note(file.path))
        self._excuse(self._files.bad)
        while not self._read():
            pass
        self._rows.finish()
        self._check_end()
        if self._has_keys:
            self._check_keys()
        self._check_unmade()
        rows = self._rows
        return PartitionReport(
            partition=self._partition,
            start=rows.first,
            end=rows.next,
            rows=rows.rows,
            files=len(self._listed),
            segments=rows.segments,
            batches=rows.batches,
            checked_batches=rows.checked_batches,
            aborted=rows.aborted,
        )

    def _note(self, file: str | None) -> None:
        self._tell(
            Progress(
                table=self._history.uri,
                partition=self._partition,
                rows=self._rows.rows,
                rows_total=self._total,
                file=file,
            )
        )

    def _excuse(self, files: list[TableFile]) -> None:
        """What was in a file that cannot be read is told once."""
        for file in files:
            if file.offset_min is not None and file.offset_max is not None:
                self._rows.excused.append((file.offset_min, file.offset_max))

    def _read(self) -> bool:
        """Read the rows from where they were left. False where a file turned out to be bad, and is left out from now on."""
        history = self._history
        try:
            for rows in rows_in_order(history.store, history.uri, self._files.good, self._rows.next or 0, OFFSET_END):
                self._rows.add(rows)
                self._note(None)
        except FileProblem as problem:
            (file,) = [file for file in self._files.good if file.path == problem.path]
            self._files.drop(file, problem)
            self._excuse([file])
            return False
        return True

    def _check_end(self) -> None:
        """The last row is the one that the `txn` of the newest incarnation names, whatever incarnation copied it. No row of an
        older one is behind what that one has shown."""
        lasts = self._rows.last_of
        newest = max(self._newest, *lasts, 0)
        for incarnation in self._incarnations():
            last, said = lasts.get(incarnation), self._history.last_offset(self._partition, incarnation)
            if incarnation == newest:
                last = max(lasts.values(), default=None)
            if last is None and (said is None or incarnation != newest or self._is_empty(newest, said)):
                continue
            if said is None:
                what = f"its last offset is {last}, and no commit of the tier shows a row of incarnation {incarnation}"
            elif last is not None and (last > said or (incarnation == newest and last < said)):
                what = f"its last offset is {last}, and the tier's last commit shows the rows up to {said}"
            elif last is None:
                what = f"it has no row, and the tier's last commit shows the rows up to {said}"
            else:
                continue
            behind = last + 1 if last is not None else min((low for low, _ in self._rows.excused), default=0)
            if said is None or said < behind or not self._rows.is_excused(behind, said):
                self.findings.add(Kind.END, what, offset=last)

    def _incarnations(self) -> list[int]:
        keys = [keys.tiered.incarnation for keys in (self._before, self._after) if isinstance(keys.tiered, Tiered)]
        return sorted({0, self._newest, *self._rows.last_of, *keys})

    def _is_empty(self, incarnation: int, said: int) -> bool:
        """An election left nothing; or retention has removed all that was copied, as the quorum's key says."""
        tiered = self._after.tiered
        is_empty_by_keys = isinstance(tiered, Tiered) and tiered.start_offset == tiered.end_offset
        return is_empty_by_keys or said == self._history.begin_offset(self._partition, incarnation)

    def _check_keys(self) -> None:
        """Where another program has changed the table, keys are not to be made anew from it: it is told once what to do."""
        told = Findings(self._history.uri, self._partition)
        check_keys(told, self._before, self._after, self._shown())
        differs = [finding for finding in told if finding.kind is Kind.KEYS]
        change = _change(self._history, self._partition) if differs else None
        is_told = any(finding.kind.is_to_be_undone for finding in self.findings)
        for finding in told:
            if finding.kind is not Kind.KEYS or (change is None and not is_told):
                self.findings.add(finding.kind, finding.what, offset=finding.offset, file=finding.file)
        if change is not None and not is_told:
            self.findings.add(Kind.CHANGED, f"{change.words(self._partition)}: {differs[0].what}")

    def _check_unmade(self) -> None:
        """The CRC of a compressed batch is of bytes that rows do not tell. So where another program has changed the table, such
        rows are not known to be what was produced."""
        unmade = self._rows.batches - self._rows.checked_batches
        if not unmade or any(finding.kind.is_to_be_undone for finding in self.findings):
            return
        change = _change(self._history, self._partition)
        if change is not None:
            what = f"the values of {unmade} of its {self._rows.batches} batches cannot be checked, since they were compressed"
            self.findings.add(Kind.CHANGED, f"{change.words(self._partition)}: {what}")

    def _shown(self) -> Shown | None:
        rows, files = self._rows, self._files
        firsts = [low for low, _ in rows.excused] + ([] if rows.first is None else [rows.first])
        ends = [high + 1 for _, high in rows.excused] + ([] if rows.next is None else [rows.next])
        if not firsts:
            return None
        return Shown(
            incarnation=max(self._newest, max(rows.last_of, default=0)),
            start=min(firsts),
            end=max(ends),
            segments=None if files.bad else rows.segments,
            size=None if files.bad or files.is_rewritten else sum(file.size for file in self._listed),
            files=files.shown,
            spans=rows.spans,
        )
