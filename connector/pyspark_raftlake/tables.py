"""Driver: the Delta tables of a query's topics: where they are, which offsets they show, which files hold a range.

The nodes say where the table of a topic is (DescribeConfigs) and up to where it is copied (ListOffsets, LATEST_TIERED). A plan
of a topic without a remote tier costs one question of it, and one about records that are not copied yet opens no table.

A table that this driver cannot read is an error where the user asked for tables (`tier=remote`, `tier.uri`). Otherwise the
nodes serve its records, and a warning says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark_raftlake import errors
from pyspark_raftlake.offsets import LATEST_TIERED, TopicPartition
from pyspark_raftlake.options import Tier, TierOptions
from pyspark_raftlake.ranges import OffsetRange
from pyspark_raftlake.seam import ALL_TIMES, Shown, TimeSpan
from raftlake.errors import ErrorCode, RaftlakeError, RequestRejected

if TYPE_CHECKING:
    from raftlake.tier.reader import TableFile, TopicHistory

_log = logging.getLogger(__name__)

#: Names of the topic's configs.
IS_TIERED, TABLE_URI = "remote.storage.enable", "raftlake.tier.table.uri"
#: A topic without a table, and a table that could not be read, are looked at again after this time.
LOOK_AGAIN_MS = 60_000


class TierClient(Protocol):
    """The part of `raftlake.client.Client` that tells of tables."""

    def topic_configs(self, topic: str) -> dict[str, str]: ...

    def list_offsets(self, topic: str, timestamps: Mapping[int, int], *, topic_id: bytes | None = None) -> dict[int, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """What an executor needs to find a table."""

    uri: str
    #: Options of its store: credentials are among them.
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePiece:
    """A task's part of a table."""

    place: TablePlace
    #: Those that hold the task's range as the plan has seen them. None: the task begins with the log.
    files: tuple[TableFile, ...] | None = None
    #: Rows of other times may be left out.
    times: TimeSpan = ALL_TIMES


@dataclass(slots=True)
class _Topic:
    topic_id: bytes
    place: TablePlace | None
    asked_at_ms: float
    history: TopicHistory | None = None
    failed_at_ms: float | None = None
    refreshed_at_ms: float = 0.0
    #: By partition, of the history's version.
    shown: dict[int, Shown | None] = field(default_factory=dict)


def open_history(place: TablePlace) -> TopicHistory:
    """The newest version of a table. Imported late: most queries need no table."""
    from raftlake.tier.reader import TopicHistory

    return TopicHistory(place.uri, dict(place.storage))


class Tables:
    def __init__(
        self,
        client: TierClient,
        options: TierOptions,
        now_ms: Callable[[], float] | None = None,
        open_table: Callable[[TablePlace], TopicHistory] = open_history,
    ) -> None:
        self._client = client
        self._options = options
        self._now_ms = now_ms or (lambda: time.monotonic() * 1000)
        self._open_table = open_table
        self._topics: dict[str, _Topic] = {}

    def place(self, topic: str, topic_id: bytes | None) -> TablePlace | None:
        """Where the table of a topic is; None without a remote tier, and where the topic is gone."""
        if self._options.mode is Tier.LOCAL or topic_id is None:
            return None
        try:
            return self._topic(topic, topic_id).place
        except RequestRejected as rejected:
            if rejected.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    def shown(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, bytes]) -> dict[TopicPartition, Shown]:
        """What the tables show of the partitions of some ranges, as new as these ranges need it. Partitions whose ranges lie
        behind all copies are left out."""
        by_topic: dict[str, list[OffsetRange]] = {}
        for range_ in ranges:
            if range_.size > 0 and self.place(range_.topic, topic_ids.get(range_.topic)) is not None:
                by_topic.setdefault(range_.topic, []).append(range_)
        found: dict[TopicPartition, Shown] = {}
        for name, its in by_topic.items():
            topic = self._topics[name]
            ends = {each.partition: each.end for each in its}
            if self._options.mode is not Tier.REMOTE:
                tiered = self._tiered_ends(name, topic.topic_id, ends)
                its = [each for each in its if each.start < tiered[each.partition]]
                ends = {each.partition: min(each.end, tiered[each.partition]) for each in its}
            if its and self._reaches(name, topic, ends):
                shown = {each.partition: self._shown_of(topic, each.partition) for each in its}
                found.update((TopicPartition(name, number), each) for number, each in shown.items() if each is not None)
        return found

    def files(self, partition: TopicPartition) -> list[TableFile]:
        """The files of a partition of which `shown` has told, as it saw them."""
        history = self._topics[partition.topic].history
        assert history is not None
        return history.files(partition.partition)

    # --- a query of tables only --------------------------------------------------------------------------------------

    def newest(self, topic: str, topic_id: bytes, partition: int, age_ms_max: float) -> Shown:
        """What a table shows of a partition, at most `age_ms_max` old: an empty range where it has no row."""
        known = self._opened(topic, topic_id, partition, age_ms_max)
        if known.history is None:
            return Shown(0, 0)
        shown = self._shown_of(known, partition)
        if shown is None:
            last = known.history.last_offset(partition, known.history.newest_incarnation(partition))
            return Shown(0, 0) if last is None else Shown(last + 1, last + 1)
        return shown

    def first_at(self, topic: str, topic_id: bytes, partition: int, time_ms: int) -> int:
        """The first offset of a table that is as late as a time; -1 where none is."""
        known = self._opened(topic, topic_id, partition, LOOK_AGAIN_MS)
        found = None if known.history is None else known.history.first_at(partition, time_ms)
        return -1 if found is None else found

    def _opened(self, name: str, topic_id: bytes, partition: int, age_ms_max: float) -> _Topic:
        """The topic with its history; without one while nothing of the partition is copied."""
        topic = self._topic(name, topic_id)
        if topic.place is None:
            raise errors.no_table(name)
        try:
            if topic.history is None or self._now_ms() - topic.refreshed_at_ms >= age_ms_max:
                self._refresh(name, topic)
        except (RaftlakeError, ImportError) as error:
            is_known = self._options.uri is not None or topic.history is not None
            if is_known or self._tiered_ends(name, topic_id, [partition])[partition]:
                self._give_up(name, topic, error)
        return topic

    # --- topics ------------------------------------------------------------------------------------------------------

    def _topic(self, name: str, topic_id: bytes) -> _Topic:
        known = self._topics.get(name)
        is_known = known is not None and known.topic_id == topic_id
        if known is None or not is_known or (known.place is None and self._now_ms() - known.asked_at_ms >= LOOK_AGAIN_MS):
            known = self._topics[name] = _Topic(topic_id, self._find_place(name, topic_id), self._now_ms())
        return known

    def _find_place(self, name: str, topic_id: bytes) -> TablePlace | None:
        from raftlake.wire.ids import table_uri

        named = None if self._options.uri is None else table_uri(self._options.uri, name, topic_id)
        if named is not None and self._options.mode is Tier.REMOTE:
            return TablePlace(uri=named, storage=self._options.storage)
        configs = self._client.topic_configs(name)
        is_tiered = configs.get(IS_TIERED) == "true"
        if named is not None and not is_tiered:
            raise errors.no_table_beside_the_log(name, self._options.uri)
        uri = named or configs.get(TABLE_URI)
        if not is_tiered or uri is None:
            return None
        if uri != table_uri(uri.rpartition("/")[0], name, topic_id):
            # The name may be that of another topic already. Or the node lags, and names the table of one that was deleted.
            if self._options.mode is Tier.REMOTE:
                raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"a node names the table of another topic {name!r}")
            return None
        return TablePlace(uri=uri, storage=self._options.storage)

    def _tiered_ends(self, topic: str, topic_id: bytes, partitions: Iterable[int]) -> dict[int, int]:
        """Up to where partitions are copied, as the quorum says; 0 where nothing is."""
        asked = dict.fromkeys(partitions, LATEST_TIERED)
        try:
            found = self._client.list_offsets(topic, asked, topic_id=topic_id)
        except RequestRejected as error:
            is_gone = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            # A query of tables alone is not to take a copy that nobody tells of for none.
            is_untold = error.code is ErrorCode.UNKNOWN_TOPIC_ID and self._options.mode is not Tier.REMOTE
            if not is_gone and not is_untold:
                raise
            found = {}
        return {number: found.get(number, -1) + 1 for number in asked}

    # --- tables ------------------------------------------------------------------------------------------------------

    def _reaches(self, name: str, topic: _Topic, ends: Mapping[int, int]) -> bool:
        """Whether there is a table to read. It is looked at anew where it showed less than what is copied now."""
        if topic.failed_at_ms is not None and self._now_ms() - topic.failed_at_ms < LOOK_AGAIN_MS:
            return False
        try:
            if topic.history is None or any(self._end_of(topic, number) < end for number, end in ends.items()):
                self._refresh(name, topic)
            for number in ends:
                self._shown_of(topic, number)
        except (RaftlakeError, ImportError) as error:
            self._give_up(name, topic, error)
        return topic.history is not None

    def _end_of(self, topic: _Topic, partition: int) -> int:
        shown = self._shown_of(topic, partition)
        return 0 if shown is None else shown.end

    def _shown_of(self, topic: _Topic, partition: int) -> Shown | None:
        assert topic.history is not None
        if partition not in topic.shown:
            offsets = topic.history.offsets(partition)
            topic.shown[partition] = None if offsets is None else Shown(*offsets)
        return topic.shown[partition]

    def _refresh(self, name: str, topic: _Topic) -> None:
        """Open the table, or see its newest version."""
        assert topic.place is not None
        topic.refreshed_at_ms = self._now_ms()
        if topic.history is None:
            history = self._open_table(topic.place)
            if history.topic_id != topic.topic_id:
                raise errors.foreign_table(topic.place.uri, name)
            topic.history = history
        else:
            topic.history.refresh()
        topic.shown.clear()
        topic.failed_at_ms = None

    def _give_up(self, name: str, topic: _Topic, error: Exception) -> None:
        """Go on without a table that cannot be read, where the user did not ask for it."""
        assert topic.place is not None
        topic.history, topic.failed_at_ms = None, self._now_ms()
        topic.shown.clear()
        if self._options.is_strict:
            raise errors.unreadable_table(topic.place.uri, name, error, option_uri=self._options.uri) from error
        _log.warning("%s", errors.unreadable_table(topic.place.uri, name, error))
