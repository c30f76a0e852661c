"""Driver: which offsets a query reads, batch by batch.

Runs in the one Python process that Spark keeps per query. Invariants: a batch's end never lies below its start unless the data
is proven lost; what a batch was planned to hold does not depend on when its tasks run; and a batch that Spark replays from
its checkpoint gets the same ranges again.

The last one needs care with the first batch of a query that starts at the end of the log. Spark does not keep its *start*, only
its end, so a replay would see another "latest". Therefore such a partition's first batch is empty: it only marks the place.
A start by time is such a start where no record is that young yet; a replay may find one, behind the place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from pyspark_raftlake import errors
from pyspark_raftlake.data_loss import report_data_loss
from pyspark_raftlake.log_view import LogView
from pyspark_raftlake.offsets import Latest, Offsets, TopicPartition, topics_of
from pyspark_raftlake.options import Quorum, SourceOptions, Tier
from pyspark_raftlake.positions import require_known, resolve_end, resolve_start
from pyspark_raftlake.pushdown import ALL_ROWS, Wanted
from pyspark_raftlake.query_position import FirstPosition
from pyspark_raftlake.ranges import OffsetRange, count_offsets, limit_offsets, split_ranges
from pyspark_raftlake.seam import FileIndex, cut_by_bytes, split_at_seam
from pyspark_raftlake.tables import TablePiece, Tables
from pyspark_raftlake.topic_notes import Note

#: Ranges of at least this many offsets are spread over all replicas; shorter ones are read from the leader, which is not
#: behind.
SPREAD_OFFSETS_MIN = 1_000
#: A query with nothing to read is asked for news a hundred times a second. It looks for new, deleted and recreated topics this
#: often, and before every batch.
LOOK_AGE_MS_MAX = 1_000


@dataclass(frozen=True, eq=False)
class RangePartition(InputPartition):
    """One task of a read, all that its executor needs to know."""

    range: OffsetRange
    #: The topic that the range was planned for: another id under the same name is another topic. None: it is gone already.
    topic_id: bytes | None
    quorum: Quorum
    #: Where to read first; None: at the leader.
    node_id: int | None
    #: The nodes that hold the partition, as far as is known.
    replicas: tuple[int, ...]
    include_headers: bool
    fail_on_data_loss: bool
    #: The Delta table that has history of the partition: to read first, or where the log does not go back so far.
    table: TablePiece | None = None
    #: Whether the nodes may be asked.
    reads_log: bool = True
    reads_committed: bool = True
    #: What to do with what is written down of the topic.
    note: Note = Note.NONE
    #: How far the query is, to be written down by the task.
    first: FirstPosition | None = None


class StreamPlanner:
    """The plans of one streaming query."""

    def __init__(
        self, view: LogView, options: SourceOptions, now_ms: Callable[[], float] | None = None, tables: Tables | None = None
    ) -> None:
        self._view = view
        self._options = options
        self._tables = tables
        self._now_ms = now_ms or (lambda: time.monotonic() * 1000)
        self._initial: dict[TopicPartition, int] | None = None
        #: Partitions whose start was "where the log ends": it changes with the time of asking.
        self._late_bound: frozenset[TopicPartition] = frozenset()
        self._maybe_late_bound: frozenset[TopicPartition] = frozenset()
        self._is_first_plan = True
        self._topic_ids: dict[str, bytes] = {}
        #: Topics that were created again while this run read them; by topic the id that tasks have written down.
        self._recreated: set[str] = set()
        #: Of the last look: where lost partitions begin anew.
        self._restarts: dict[TopicPartition, int] = {}
        self._noted: dict[str, bytes | None] = {}
        #: The ends beyond which a query with Trigger.AvailableNow does not read.
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._triggered_at_ms: float | None = None
        self._looked_at_ms: float | None = None

    def initial_offsets(self) -> Offsets:
        """Where a new query starts; the same answer as often as Spark asks."""
        if self._initial is None:
            start = resolve_start(self._view, self._options.starting or Latest(), self._options)
            self._initial, self._late_bound, self._maybe_late_bound = start.offsets, start.late_bound, start.maybe_late_bound
            self._note_ids()
        return self._initial

    def prepare_available_now(self) -> None:
        selected = self._view.require_selected()
        self._note_ids()
        self._target = self._view.latest(selected)

    def _note_ids(self) -> None:
        """Of the last look, whose offsets are asked for. What was noted before stays: its offsets are of the topic before."""
        self._topic_ids = {**self._view.topic_ids(), **self._topic_ids}

    def default_limit(self) -> ReadLimit:
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    @property
    def is_available_now(self) -> bool:
        """Whether the query ends where the logs ended as it began."""
        return self._target is not None

    def seen_latest(self) -> Offsets:
        return self._latest

    # --- the end of the next batch -------------------------------------------------------------------------------------

    def plan_end(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next batch; `start` itself when there is nothing to read."""
        is_first, self._is_first_plan = self._is_first_plan, False
        if is_first:
            self._require_retained(start)
        elif self._is_idle(start):
            return start
        self._latest = ends = self._ends_for(start)
        if is_first and self._initial is not None:
            for partition in self._late_bound & ends.keys() - self._restarts.keys():
                if start.get(partition) == self._initial[partition]:
                    ends = ends | {partition: start[partition]}
        if isinstance(limit, ReadAllAvailable):
            return ends
        if not isinstance(limit, ReadMaxRows | ReadMinRows):
            raise errors.UnsupportedLimit(f"raftlake source does not know the read limit {limit}")
        begin = {**self._view.earliest(ends.keys() - start.keys()), **start}
        if self._shall_wait(begin, ends):
            return start
        offsets_max = self._options.offsets_per_trigger_max if isinstance(limit, ReadMinRows) else limit.max_rows
        return ends if offsets_max is None else limit_offsets(offsets_max, begin, ends)

    def _is_idle(self, start: Offsets) -> bool:
        """Whether the logs end where the next batch would start, in the partitions that were there a moment ago."""
        looked_lately = self._looked_at_ms is not None and self._now_ms() - self._looked_at_ms < LOOK_AGE_MS_MAX
        # minOffsetsPerTrigger counts the time without news too.
        may_wait = self._target is None and self._options.offsets_per_trigger_min is None
        return looked_lately and may_wait and self._latest == start and self._view.latest(start) == start

    def _ends_for(self, start: Offsets) -> dict[TopicPartition, int]:
        """Committed ends of all partitions, none below its start."""
        assigned = self._view.look()
        self._looked_at_ms = self._now_ms()
        recreated = self._recreated_topics()
        if self._target is not None:
            # Of a topic that was created again, what it holds now is what is available.
            self._target = {partition: end for partition, end in self._target.items() if partition.topic not in recreated}
            self._target |= self._view.latest([partition for partition in assigned if partition.topic in recreated])
            ends = {partition: self._target.get(partition, start.get(partition, -1)) for partition in assigned}
            ends = {partition: end for partition, end in ends.items() if end >= 0}
        else:
            ends = self._view.latest(assigned)
        absent = [partition for partition in start if partition not in ends and self._options.selection.names(partition)]
        # A node that lags does not know a partition yet that was read: nothing new is read of it now, but what is known to be
        # available. With Trigger.AvailableNow Spark ends the query with the first batch without news.
        available = self._target or {}
        ends |= {partition: max(start[partition], available.get(partition, 0)) for partition in self._view.present(absent)}
        self._report_gone(sorted(start.keys() - ends.keys()))
        return self._without_lost(start, ends, recreated)

    def _without_lost(
        self, start: Offsets, ends: dict[TopicPartition, int], recreated: Mapping[str, bytes]
    ) -> dict[TopicPartition, int]:
        """`ends` where they lie at or above `start`. A replica that lags may name an older end: then the end is the start,
        and no data is lost. Data is lost where an end is proven to lie below the start, or the name's topic has another id.
        `recreated`: these topics, with the ids before."""
        behind = [partition for partition, end in ends.items() if end < start.get(partition, 0)]
        proven = self._view.proven_latest(behind)
        lost: list[TopicPartition] = []
        for partition in ends:
            if partition not in start:
                continue
            if partition.topic in recreated:
                self._report(f"Topic {partition.topic} was deleted and created again, offsets of {partition} begin anew")
                lost.append(partition)
            elif proven.get(partition, start[partition]) < start[partition]:
                self._report(
                    f"Partition {partition}'s offset was changed from {start[partition]} to {proven[partition]}, "
                    "some data may have been missed"
                )
                lost.append(partition)
        anew = self._begin_anew(lost, start, recreated)
        return {partition: anew.get(partition, max(end, start.get(partition, 0))) for partition, end in ends.items()}

    def _begin_anew(
        self, lost: list[TopicPartition], start: Offsets, recreated: Mapping[str, bytes]
    ) -> dict[TopicPartition, int]:
        """The ends of logs that began anew: their beginnings, so that nothing of them is skipped. A query that stands at the
        beginning already goes on."""
        begins = self._view.earliest(lost)
        untold = set(topics_of(partition for partition in lost if partition not in begins))
        # The next look tells again of a topic whose beginning nobody tells yet. The query stays where it is until then.
        self._topic_ids |= {topic: recreated[topic] for topic in untold & recreated.keys()}
        held = {partition: start[partition] for partition in lost if partition.topic in untold}
        moved = {partition: begin for partition, begin in begins.items() if begin != start[partition]}
        self._restarts = {partition: begin for partition, begin in moved.items() if partition.topic not in untold}
        return held | self._restarts

    def _recreated_topics(self) -> dict[str, bytes]:
        """Those that have other ids than before, which are returned."""
        ids = self._view.topic_ids()
        recreated = {topic: self._topic_ids[topic] for topic in ids if self._topic_ids.get(topic, ids[topic]) != ids[topic]}
        self._topic_ids.update(ids)
        self._recreated |= recreated.keys()
        return recreated

    def _require_retained(self, start: Offsets) -> None:
        """Before the first batch of a run: what the query is to go on with must still be there. Later its tasks find out."""
        existing = set(self._view.look())
        for partition, earliest in self._view.earliest(start.keys() & existing).items():
            if earliest > start[partition]:
                self._report(
                    f"Cannot fetch records in [{start[partition]}, {earliest}) of {partition}: the log begins at {earliest}"
                )

    def _shall_wait(self, begin: Offsets, ends: Offsets) -> bool:
        """minOffsetsPerTrigger: too little is waiting, and not for long enough."""
        offsets_min = self._options.offsets_per_trigger_min
        if offsets_min is None or self._target is not None:
            return False
        if any(end < begin.get(partition, end) for partition, end in ends.items()):
            # A log that begins anew is told of once: a later look would go on amid it.
            return False
        now_ms = self._now_ms()
        is_due = self._triggered_at_ms is None or now_ms - self._triggered_at_ms >= self._options.trigger_delay_ms_max
        if not is_due and count_offsets(begin, ends) < offsets_min:
            return True
        self._triggered_at_ms = now_ms
        return False

    # --- the tasks of a batch ------------------------------------------------------------------------------------------

    def plan_tasks(self, start: Offsets, end: Offsets) -> list[RangePartition]:
        if start == end:
            return []
        self._view.look()
        self._view.look_for(set(topics_of(end)) - self._topic_ids.keys())
        for topic, topic_id in self._view.topic_ids().items():
            self._topic_ids.setdefault(topic, topic_id)
        added = self._start_of_added(sorted(end.keys() - start.keys()))
        gone = sorted(start.keys() - end.keys())
        self._report_gone(gone)
        ranges: list[OffsetRange] = []
        for partition, until in sorted(end.items()):
            begin = start.get(partition, added.get(partition, until))
            if until < begin and not self._only_marks_the_place(partition, begin, until):
                self._report(
                    f"Partition {partition}'s offset was changed from {begin} to {until}, some data may have been missed"
                )
            ranges.append(OffsetRange(topic=partition.topic, partition=partition.partition, start=begin, end=until))
        tasks = tasks_of(ranges, self._view, self._options, self._topic_ids, self._tables)
        notes = {topic: self._note_of(topic) for topic in {task.range.topic for task in tasks}}
        return [replace(task, note=notes[task.range.topic]) for task in tasks]

    def _note_of(self, topic: str) -> Note:
        """The first tasks of a topic, and of one that was created again, look at what is written down of it."""
        topic_id = self._topic_ids.get(topic)
        before, self._noted[topic] = self._noted.get(topic), topic_id
        if topic_id is None or before == topic_id:
            return Note.NONE
        return Note.CHECK if before is None and topic not in self._recreated else Note.REPLACE

    def _start_of_added(self, added: list[TopicPartition]) -> dict[TopicPartition, int]:
        earliest = self._view.earliest(added) if added else {}
        # Without its start a partition would be passed over.
        self._view.require_told(topics_of(partition for partition in added if partition not in earliest))
        for partition, offset in earliest.items():
            if offset != 0:
                self._report(f"Added partition {partition} starts from {offset} instead of 0. Some data may have been missed")
        return earliest

    def _only_marks_the_place(self, partition: TopicPartition, begin: int, until: int) -> bool:
        """A replayed first batch: its end is where the log ended then, its start where the log ends now, or where a record of
        the asked time has come since. The log still holds what followed."""
        if partition not in self._maybe_late_bound or self._initial is None or self._initial[partition] != begin:
            return False
        return self._view.earliest([partition]).get(partition, until) <= until

    def _report_gone(self, gone: list[TopicPartition]) -> None:
        """Partitions that the checkpoint has, and the query does not read any more."""
        unnamed = [partition for partition in gone if not self._options.selection.names(partition)]
        if unnamed:
            self._report(errors.no_longer_named(self._options.selection.option, topics_of(unnamed)))
        left = [partition for partition in gone if partition not in unnamed]
        if left:
            self._report(f"{', '.join(map(str, left))} are gone. Some data may have been missed")

    def _report(self, message: str) -> None:
        report_data_loss(message, fail=self._options.fail_on_data_loss)


def plan_batch_query(
    view: LogView, options: SourceOptions, tables: Tables | None = None, wanted: Wanted = ALL_ROWS
) -> list[RangePartition]:
    """The tasks of a batch query: everything between its two positions that may be wanted."""
    start = resolve_start(view, options.starting, options).offsets
    # Those that the start is of: the look for the end may find topics that were created again.
    topic_ids = view.topic_ids()
    end = resolve_end(view, options.ending, options)
    ranges: list[OffsetRange] = []
    for partition, until in sorted(end.items()):
        # One that has come between both looks has nothing to read yet.
        begin = start.get(partition, until)
        if until < begin:
            if until >= view.earliest([partition]).get(partition, begin):
                raise errors.end_before_start(partition, begin, until)
            report_data_loss(f"Partition {partition} ends at {until}, before its start {begin}", fail=options.fail_on_data_loss)
        ranges.append(OffsetRange(topic=partition.topic, partition=partition.partition, start=begin, end=until))
    return tasks_of(ranges, view, options, topic_ids, tables, wanted)


def check_before_start(view: LogView, options: SourceOptions) -> None:
    """What can be refused before any query runs: no reachable node, topics and partitions that do not exist."""
    view.require_selected()
    for option, position in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        require_known(view, option, position)


def tasks_of(
    ranges: Iterable[OffsetRange],
    view: LogView,
    options: SourceOptions,
    topic_ids: Mapping[str, bytes],
    tables: Tables | None = None,
    wanted: Wanted = ALL_ROWS,
) -> list[RangePartition]:
    narrowed = [piece for range_ in ranges if (piece := wanted.narrow(range_)) is not None]
    shown = {} if tables is None else tables.shown(narrowed, topic_ids)
    files = {} if tables is None else {each: FileIndex(tables.files(each)) for each in shown}
    cut: list[OffsetRange] = []
    for range_ in narrowed:
        its = TopicPartition(range_.topic, range_.partition)
        for piece in split_at_seam(range_, shown.get(its)):
            if its in shown and shown[its].holds(piece.start):
                kept = files[its].without_times(piece, wanted.times)
                cut += [part for each in kept for part in cut_by_bytes(each, files[its].within(each))]
            else:
                cut += _from_time(piece, view, wanted.times.us_min)
    pieces = split_ranges(cut, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
    tasks: list[RangePartition] = []
    for index, piece in enumerate(pieces):
        its, topic_id = TopicPartition(piece.topic, piece.partition), topic_ids.get(piece.topic)
        replicas = view.replicas(its)
        place = None if tables is None else tables.place(piece.topic, topic_id)
        found = files[its].within(piece) if its in shown and shown[its].holds(piece.start) else None
        tasks.append(
            RangePartition(
                range=piece,
                topic_id=topic_id,
                quorum=options.quorum,
                node_id=_choose_node(replicas, piece, index),
                replicas=replicas,
                include_headers=options.include_headers,
                fail_on_data_loss=options.fail_on_data_loss,
                table=None if place is None else TablePiece(place=place, files=found, times=wanted.times),
                reads_log=options.tier.mode is not Tier.REMOTE,
                reads_committed=options.reads_committed,
            )
        )
    return tasks


def _from_time(piece: OffsetRange, view: LogView, us_min: int | None) -> list[OffsetRange]:
    """A range of the log from its first record on that is as late as a time. Records have milliseconds."""
    if us_min is None:
        return [piece]
    partition = TopicPartition(piece.topic, piece.partition)
    found = view.at_timestamps({partition: max(0, -(-us_min // 1000))}).get(partition, piece.start)
    start = piece.end if found < 0 else max(piece.start, found)
    return [replace(piece, start=start)] if start < piece.end else []


def _choose_node(replicas: tuple[int, ...], piece: OffsetRange, index: int) -> int | None:
    """Neighbouring tasks read from different nodes, and a partition's from the same one in every batch."""
    if piece.size < SPREAD_OFFSETS_MIN or not replicas:
        return None
    return replicas[index % len(replicas)]
