"""What the quorum says about the topics of one query: which partitions there are, where they begin and where they end.

The driver's only way to the nodes. It does not know batches, limits or what lost data means; it answers questions, each
with fresh facts. The invariant: an end offset that it returns is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from pyspark_raftlake import errors
from pyspark_raftlake.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, Offsets, TopicPartition, by_topic, topics_of
from pyspark_raftlake.options import Assign, Consistency, Selection, Subscribe, SubscribePattern
from pyspark_raftlake.topic_ids import KeyClient, TopicIds
from raftlake.errors import ConfigError, ErrorCode, RequestRejected

if TYPE_CHECKING:
    from raftlake.client.types import IsolationLevel, TopicDescription


class OffsetClient(KeyClient, Protocol):
    """The part of `raftlake.client.Client` that planning needs."""

    def topics(self, names: Iterable[str] | None = None) -> tuple[TopicDescription, ...]: ...

    def describe_topic(self, topic: str, *, topic_id: bytes | None = None) -> TopicDescription: ...

    def list_offsets(
        self, topic: str, timestamps: Mapping[int, int], *, isolation: IsolationLevel = ..., topic_id: bytes | None = None
    ) -> dict[int, int]: ...

    def read_offset(self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None) -> dict[int, int]: ...

    def read_stable_offset(self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None) -> dict[int, int]: ...


class LogView:
    def __init__(
        self,
        client: OffsetClient,
        selection: Selection,
        consistency: Consistency,
        *,
        is_local: bool = False,
        reads_committed: bool = True,
        checks_ids: bool = True,
    ) -> None:
        """With `is_local` a partition begins where the local disks of the nodes begin. `checks_ids`: the quorum is asked which
        id a topic has now, whatever a node that lags tells."""
        # Only now: who merely looks the format up needs no client.
        from raftlake.client.types import IsolationLevel

        self._isolation = IsolationLevel.READ_COMMITTED if reads_committed else IsolationLevel.READ_UNCOMMITTED
        self._reads_committed = reads_committed
        self._client = client
        self._selection = selection
        self._consistency = consistency
        self._is_local = is_local
        #: The topics that the query names, or all of the quorum for a pattern; as of the last look.
        self._topics: dict[str, TopicDescription] = {}
        self._ids = TopicIds(client if checks_ids else None)
        #: Since the last look: topics of which nodes know another one of the name alone, with what the client said. Their topic
        #: may be older or newer. So nothing is told of such a topic, neither offsets nor that it is gone.
        self._untold: dict[str, RequestRejected] = {}

    # --- topics ------------------------------------------------------------------------------------------------------

    def look(self) -> tuple[TopicPartition, ...]:
        """The partitions that the query reads now, sorted. What it names and what does not exist is left out."""
        self._untold.clear()
        match self._selection:
            case Subscribe(topics):
                self._look_at(topics)
                return self._partitions_of(topics)
            case SubscribePattern():
                self._topics = {topic.name: topic for topic in self._client.topics()}
                matching = [topic for topic in self._topics if self._selection.matches(topic)]
                self._hear_ids(matching)
                return self._partitions_of(matching)
            case Assign(partitions):
                named = topics_of(partitions)
                self._look_at(named)
                existing = set(self._partitions_of(named))
                return tuple(partition for partition in partitions if partition in existing)
            case _:
                assert_never(self._selection)

    def require_selected(self) -> tuple[TopicPartition, ...]:
        """As `look`; ConfigError when something that the query names does not exist."""
        found = self.look()
        self.require_told(list(self._untold))
        match self._selection:
            case Subscribe(topics):
                missing = set(topics) - set(self._topics)
            case SubscribePattern():
                # Topics that match may still come.
                missing = set()
            case Assign(partitions):
                missing = {topic for topic, _ in partitions} - set(self._topics)
            case _:
                assert_never(self._selection)
        if missing:
            raise self.missing_topics(missing)
        if isinstance(self._selection, Assign):
            self.require_existing("assign", self._selection.partitions)
        return found

    def require_existing(self, option: str, partitions: Iterable[TopicPartition]) -> None:
        """ConfigError when an option names a topic or a partition that does not exist."""
        named = sorted(partitions)
        missing_topics = {topic for topic, _ in named} - set(self._topics)
        if missing_topics:
            raise self.missing_topics(missing_topics)
        existing = set(self._partitions_of({topic for topic, _ in named}))
        missing = [partition for partition in named if partition not in existing]
        if missing:
            counts = {topic: len(self._topics[topic].partitions) for topic, _ in missing}
            raise errors.missing_partitions(option, missing, counts)

    def require_told(self, topics: Iterable[str]) -> None:
        """RequestRejected(UNKNOWN_TOPIC_ID) where nodes know another topic of such a name alone."""
        for topic in topics:
            if topic in self._untold:
                raise self._untold[topic]

    def missing_topics(self, missing: Iterable[str]) -> ConfigError:
        """The error that names them, and the topics that exist."""
        return errors.missing_topics(missing, [topic.name for topic in self._client.topics()])

    def topic_ids(self) -> dict[str, bytes]:
        """The ids of the query's topics, as of the last look: another id under the same name is another topic. Offsets that
        are asked for behind a look are those of these topics, or of newer ones that a later look tells from them."""
        return {name: topic_id for name in self._topics if (topic_id := self._ids.get(name)) is not None}

    def _hear_ids(self, topics: Iterable[str]) -> None:
        named = {topic: self._topics[topic].topic_id for topic in topics if topic in self._topics}
        self._ids.hear(named)
        for topic, told in named.items():
            if (topic_id := self._ids.get(topic)) != told:
                # The partitions that were told are those of the other topic, too.
                try:
                    self._topics[topic] = self._client.describe_topic(topic, topic_id=topic_id)
                except RequestRejected as rejected:
                    self._leave_out(topic, rejected)

    def _leave_out(self, topic: str, rejected: RequestRejected) -> None:
        """Until the next look. Raises what says nothing of the topic."""
        if rejected.code is ErrorCode.UNKNOWN_TOPIC_ID:
            self._untold[topic] = rejected
        elif rejected.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise rejected
        self._topics.pop(topic, None)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The nodes that hold a partition, as of the last look, sorted; empty when that is not known."""
        topic = self._topics.get(partition.topic)
        if topic is None:
            return ()
        return next((tuple(sorted(p.replicas)) for p in topic.partitions if p.partition == partition.partition), ())

    def present(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those whose leaders answer for them, whatever a node that lags has said at the last look. And those of whose topic
        nothing is told: they are not known to be gone."""
        found: set[TopicPartition] = set()
        for topic, numbers in by_topic(partitions).items():
            try:
                if topic not in self._untold:
                    self._client.read_offset(topic, numbers, topic_id=self._ids.get(topic))
            except RequestRejected as rejected:
                if rejected.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                if rejected.code is not ErrorCode.UNKNOWN_TOPIC_ID:
                    raise
            found.update(TopicPartition(topic, number) for number in numbers)
        return found

    def _look_at(self, topics: Sequence[str]) -> None:
        """Topics reach the nodes one after another: one that a node does not know may exist. Asked for alone, the client
        gives it some time."""
        self._topics = {topic.name: topic for topic in self._client.topics(topics)}
        self.look_for(topics)

    def look_for(self, topics: Collection[str]) -> None:
        """Asks for topics, each alone, that the last look did not find."""
        for topic in topics:
            if topic not in self._topics:
                try:
                    self._topics[topic] = self._client.describe_topic(topic)
                except RequestRejected as error:
                    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise
        self._hear_ids(topics)

    def _partitions_of(self, topics: Iterable[str]) -> tuple[TopicPartition, ...]:
        described = [self._topics[topic] for topic in topics if topic in self._topics]
        return tuple(sorted(TopicPartition(topic.name, p.partition) for topic in described for p in topic.partitions))

    # --- offsets -----------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.at_timestamps(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Exclusive end offsets, as fresh as the query's consistency demands."""
        match self._consistency:
            case Consistency.COMMITTED:
                return self.at_timestamps(dict.fromkeys(partitions, LATEST))
            case Consistency.LINEARIZABLE:
                client = self._client
                return self._proven(partitions, client.read_stable_offset if self._reads_committed else client.read_offset)
            case _:
                assert_never(self._consistency)

    def proven_latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Linearizable end offsets (ReadOffset): nothing acknowledged before this call lies at or above them."""
        return self._proven(partitions, self._client.read_offset)

    def _proven(
        self, partitions: Iterable[TopicPartition], read: Callable[..., Mapping[int, int]]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic, numbers in by_topic(partitions).items():
            ends = self._of_topic(topic, partial(read, topic, numbers))
            found.update((TopicPartition(topic, number), offset) for number, offset in ends.items())
        return found

    def at_timestamps(self, timestamps_ms: Offsets) -> dict[TopicPartition, int]:
        """The offset of the first record at or after a time, -1 where there is none. LATEST and EARLIEST are themselves."""
        if self._is_local:
            return self._locally(timestamps_ms)
        return self._listed(timestamps_ms)

    def _locally(self, timestamps_ms: Offsets) -> dict[TopicPartition, int]:
        """The search by time begins in the remote tier: what it finds there is moved to where the local disks begin."""
        asked = {each: EARLIEST_LOCAL if time_ms == EARLIEST else time_ms for each, time_ms in timestamps_ms.items()}
        found = self._listed(asked)
        searched = [each for each, time_ms in asked.items() if time_ms >= 0 and found.get(each, -1) >= 0]
        starts = self._listed(dict.fromkeys(searched, EARLIEST_LOCAL))
        return found | {each: max(found[each], start) for each, start in starts.items()}

    def _listed(self, timestamps_ms: Offsets) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic, numbers in by_topic(timestamps_ms).items():
            asked = {number: timestamps_ms[TopicPartition(topic, number)] for number in numbers}
            offsets = self._of_topic(topic, partial(self._offsets, topic, asked))
            found.update((TopicPartition(topic, number), offset) for number, offset in offsets.items())
        return found

    def _offsets(self, topic: str, timestamps_ms: Mapping[int, int], *, topic_id: bytes | None) -> Mapping[int, int]:
        return self._client.list_offsets(topic, timestamps_ms, isolation=self._isolation, topic_id=topic_id)

    def _of_topic(self, topic: str, ask: Callable[..., Mapping[int, int]]) -> Mapping[int, int]:
        """The answer about a topic, which is asked for by the id that is known; empty when the topic was deleted after the last
        look, or nodes know another one of the name alone."""
        try:
            return ask(topic_id=self._ids.get(topic))
        except RequestRejected as rejected:
            self._leave_out(topic, rejected)
            return {}
