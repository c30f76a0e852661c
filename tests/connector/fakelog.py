"""A quorum for tests of the connector: topics, logs and high watermarks in memory, behind the client's methods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from connector.fakekeys import FakeKeys
from raftlake.client.errors import OffsetOutOfRange
from raftlake.client.types import (
    AppendResult,
    EndTxn,
    FetchedBytes,
    IsolationLevel,
    OpenTransaction,
    PartitionDescription,
    TopicDescription,
)
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.wire.batches import iterate_headers, parse_header, stamp
from raftlake.wire.ids import table_uri

EARLIEST, LATEST = -2, -1
EARLIEST_LOCAL, LATEST_TIERED = -4, -5


class FakeLog:
    """One partition: its batches in order, and what the nodes say of its bounds."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.start = 0
        self.end = 0
        #: What ListOffsets says of the end; None: the truth.
        self.stale_end: int | None = None
        #: Timestamps (ms) by offset, for ListOffsets by time.
        self.times: dict[int, int] = {}
        #: The first offset on local disks, where that is not the first one.
        self.local_start: int | None = None
        #: Up to where the log is copied to the table.
        self.copied_end = 0

    def append(self, batch: bytes | bytearray | memoryview) -> int:
        owned = bytearray(batch)
        offset = self.end
        stamp(owned, 0, offset, 1)
        self.batches.append(owned)
        self.end += parse_header(owned).last_offset_delta + 1
        return offset

    def offset_for(self, timestamp: int) -> int:
        if timestamp == EARLIEST:
            return self.start
        if timestamp == EARLIEST_LOCAL:
            return self.start if self.local_start is None else self.local_start
        if timestamp == LATEST_TIERED:
            return self.copied_end - 1
        if timestamp == LATEST:
            return self.end if self.stale_end is None else self.stale_end
        return next((offset for offset, time_ms in sorted(self.times.items()) if time_ms >= timestamp), -1)


class FakeProducer:
    def __init__(self, quorum: FakeQuorum) -> None:
        self._quorum = quorum
        self.is_closed = False
        self.is_aborted = False
        #: The commit of its transaction, where it is a transactional one.
        self.ending: EndTxn | None = None

    def submit_batches(
        self, topic: str, partition: int, batches: Sequence[Any], *, timeout_ms: float | None = None
    ) -> Future[tuple[AppendResult, ...]]:
        assert not self.is_closed
        future: Future[tuple[AppendResult, ...]] = Future()
        if self._quorum.append_failure is not None:
            future.set_exception(self._quorum.append_failure)
            return future
        log = self._quorum.logs[topic][partition]
        results = [
            AppendResult(topic=topic, partition=partition, offset=log.append(batch), count=parse_header(batch).record_count)
            for batch in batches
        ]
        future.set_result(tuple(results))
        return future

    def end(self, *, commit: bool) -> EndTxn:
        assert commit and self.ending is not None
        return self.ending

    def abort(self, timeout_ms: float | None = None) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True


class FakeQuorum:
    """The client of a quorum of nodes 1, 2, 3 that hold everything."""

    def __init__(self, **partitions_of: int) -> None:
        self.logs: dict[str, list[FakeLog]] = {}
        #: As the node that is asked tells them. Where it is another one than that of `keys.topics`, the node lags: it leads the
        #: old topic still, and tells of its offsets. Who asks by an id is sent on to the other nodes, unless all of them lag.
        self.ids: dict[str, bytes] = {}
        self.do_all_lag = False
        self._logs_of: dict[bytes, list[FakeLog]] = {}
        #: Topics that Metadata does not list yet, though they exist.
        self.unlisted: set[str] = set()
        #: By topic: how many partitions Metadata tells of, as of a node that lags.
        self.told: dict[str, int] = {}
        #: Topics that Metadata still lists, though they were deleted.
        self.vanished: set[str] = set()
        self.calls: list[str] = []
        #: Of the questions for offsets.
        self.isolations: list[IsolationLevel] = []
        self.append_failure: Exception | None = None
        #: Its keys, and the transactions that their commands end.
        self.keys = FakeKeys()
        #: Where the tables are, as the nodes say; None: they have no remote tier.
        self.tier_uri: str | None = None
        self.producers: list[FakeProducer] = []
        self.fetches: list[tuple[int, int | None]] = []
        #: Answers to come before the log is asked: an exception or a FetchedBytes.
        self.fetch_script: list[Exception | FetchedBytes] = []
        for topic, count in partitions_of.items():
            self.create(topic, count)

    def create(self, topic: str, partitions: int) -> None:
        self.logs[topic] = [FakeLog() for _ in range(partitions)]
        self.ids[topic] = self.keys.topics[topic] = (len(self.ids) + len(self.calls) + 1).to_bytes(16, "big")
        self._logs_of[self.ids[topic]] = self.logs[topic]

    def recreate(self, topic: str) -> None:
        self.calls.append(f"recreate {topic}")
        self.create(topic, len(self.logs[topic]))

    def grow(self, topic: str, partitions: int) -> None:
        self.logs[topic] += [FakeLog() for _ in range(partitions - len(self.logs[topic]))]

    def set_bounds(self, topic: str, *bounds: tuple[int, int]) -> None:
        for log, (start, end) in zip(self.logs[topic], bounds, strict=True):
            log.start, log.end = start, end

    # --- the client's methods ------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> tuple[TopicDescription, ...]:
        self.calls.append("topics")
        listed = [topic for topic in sorted(self.logs) if topic not in self.unlisted]
        return tuple(self._describe(topic) for topic in listed if names is None or topic in names)

    def describe_topic(self, topic: str, *, topic_id: bytes | None = None) -> TopicDescription:
        self.calls.append(f"describe {topic}")
        if topic not in self.logs:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        return self._describe(topic, self._id_at_who_answers(topic, topic_id))

    def topic_configs(self, topic: str) -> dict[str, str]:
        self.calls.append(f"configs {topic}")
        self._require_present(topic)
        if self.tier_uri is None:
            return {"retention.ms": "-1"}
        uri = table_uri(self.tier_uri, topic, self.ids[topic])
        return {"remote.storage.enable": "true", "raftlake.tier.table.uri": uri}

    def partitions(self, topic: str) -> list[int]:
        return [partition.partition for partition in self.describe_topic(topic).partitions]

    def list_offsets(
        self,
        topic: str,
        timestamps: Mapping[int, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        topic_id: bytes | None = None,
    ) -> dict[int, int]:
        self.isolations.append(isolation)
        self.calls.append(f"list {topic}")
        logs = self._logs_at_who_answers(topic, topic_id)
        return {partition: logs[partition].offset_for(time) for partition, time in timestamps.items()}

    def read_offset(self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None) -> dict[int, int]:
        self.calls.append(f"read_offset {topic}")
        logs = self._logs_at_who_answers(topic, topic_id)
        asked = list(partitions)
        if any(partition >= len(logs) for partition in asked):
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has {len(logs)} partitions")
        return {partition: logs[partition].end for partition in asked}

    def read_stable_offset(self, topic: str, partitions: Iterable[int], *, topic_id: bytes | None = None) -> dict[int, int]:
        self.isolations.append(IsolationLevel.READ_COMMITTED)
        return self.read_offset(topic, partitions, topic_id=topic_id)

    def _logs_at_who_answers(self, topic: str, topic_id: bytes | None) -> list[FakeLog]:
        self._require_present(topic)
        return self._logs_of[self._id_at_who_answers(topic, topic_id)]

    def _id_at_who_answers(self, topic: str, topic_id: bytes | None) -> bytes:
        told = self.ids[topic]
        if topic_id is None or topic_id == told:
            return told
        if self.do_all_lag or topic_id != self.keys.topics.get(topic):
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic!r} was deleted and created again")
        return topic_id

    def _require_present(self, topic: str) -> None:
        if topic in self.vanished or topic not in self.logs:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")

    def producer(self) -> FakeProducer:
        self.producers.append(FakeProducer(self))
        return self.producers[-1]

    def transactional_producer(self, transactional_id: str, *, transaction_timeout_ms: int) -> FakeProducer:
        made = self.producer()
        made.ending = self.keys.begin(transactional_id)
        return made

    @property
    def kv(self) -> FakeKeys:
        return self.keys

    def open_transactions(self, prefix: str = "", *, timeout_ms: float | None = None) -> tuple[OpenTransaction, ...]:
        return self.keys.open_transactions(prefix)

    def settle_transactions(self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None) -> bool:
        return self.keys.settle_transactions(transactional_ids)

    def submit_fetch(self, topic: str, partition: int, offset: int, **arguments: Any) -> Future[FetchedBytes]:
        self.fetches.append((offset, arguments["replica"]))
        future: Future[FetchedBytes] = Future()
        try:
            future.set_result(self._fetch(topic, partition, offset, **arguments))
        except RequestRejected as error:
            future.set_exception(error)
        return future

    def _fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int,
        wait_ms: int,
        limit_offset: int,
        replica: int | None,
        topic_id: bytes | None = None,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> FetchedBytes:
        self.isolations.append(isolation)
        if self.fetch_script:
            scripted = self.fetch_script.pop(0)
            if isinstance(scripted, Exception):
                raise scripted
            return scripted
        if topic_id is not None and topic_id != self.ids[topic]:
            raise RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic!r} was deleted and created again")
        log = self.logs[topic][partition]
        start = log.offset_for(EARLIEST_LOCAL)
        if not start <= offset <= log.end:
            raise OffsetOutOfRange(topic, partition, offset, start, log.end)
        found = bytearray()
        next_offset = offset
        for batch in log.batches:
            header = parse_header(batch)
            if header.end_offset > offset and header.base_offset < limit_offset and (not found or len(found) < bytes_max):
                found += batch
                next_offset = header.end_offset
        assert sum(1 for _ in iterate_headers(found)) <= len(log.batches)
        return FetchedBytes(
            buffers=(memoryview(found),) if found else (),
            high_watermark=log.end,
            log_start_offset=log.start,
            next_offset=next_offset,
            node_id=1 if replica is None else replica,
        )

    def _describe(self, topic: str, topic_id: bytes | None = None) -> TopicDescription:
        described = self.ids[topic] if topic_id is None else topic_id
        return TopicDescription(
            name=topic,
            topic_id=described,
            partitions=tuple(
                PartitionDescription(partition=number, leader_id=1, leader_epoch=1, replicas=(1, 2, 3))
                for number in range(self.told.get(topic, len(self._logs_of[described])))
            ),
        )
