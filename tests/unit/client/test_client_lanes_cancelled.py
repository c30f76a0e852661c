"""A caller that no longer waits for its append: what comes behind it neither hangs, nor changes places, nor skips a number.

A batch with a place in its lane is sent also when it was cancelled, else the lane would have a gap. One without a place is left
out; behind it a strict producer appends nothing more, as behind any batch that was not appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clientkit import DROP, FakeQuorum, produced, run
from raftlake.client import AppendResult, AsyncClient
from raftlake.client.lanes import BATCHES_PER_LANE
from raftlake.client.producer import AsyncProducer
from raftlake.client.sender import PartitionSender
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch, decode_records, parse_header

Outcomes = Sequence[asyncio.Future[AppendResult]]
LOST = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
COUNT = 12
#: The first, the second, one amid others, and the last of a lane that is full; some of them, and all.
PLACES = [{0}, {1}, {2}, {BATCHES_PER_LANE - 1}, {0, 1}, {1, 3}, set(range(BATCHES_PER_LANE))]
places = pytest.mark.parametrize("cancelled", PLACES)
lane_counts = pytest.mark.parametrize("lanes", [1, 2])


def values(count: int = COUNT) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def value_of(message: Any) -> bytes:
    (record,) = decode_records(message.topics[0].partitions[0].records)
    assert record.value is not None
    return record.value


class Appends:
    """One producer that submits `COUNT` batches at once, to a node that tells every answer to this test."""

    def __init__(self, quorum: FakeQuorum, client: AsyncClient, lanes: int) -> None:
        self.quorum = quorum
        self.partition = quorum.topics["t"].partitions[0]
        self.producer = AsyncProducer(client._cluster, lanes_max=lanes)
        self.outcomes: Outcomes = []
        #: What arrived: the value, the producer id and the sequence.
        self.arrived: list[tuple[bytes, int, int]] = []
        self.codes: list[ErrorCode] = []
        #: Asked for each request before the node answers; None lets the node answer.
        self.on_request: Callable[[bytes], Any] = lambda value: None
        quorum.nodes[1].standing[ApiKey.PRODUCE] = self._on_produce

    def _on_produce(self, header: object, message: Any) -> Any:
        batch, value = parse_header(message.topics[0].partitions[0].records), value_of(message)
        self.arrived.append((value, batch.producer_id, batch.base_sequence))
        answer = self.on_request(value)
        if answer is None:
            answer = self.append(message)
        if answer is not DROP:
            self.codes.append(ErrorCode(answer.topics[0].partitions[0].error))
        return answer

    def append(self, message: Any) -> Any:
        return self.quorum._produce(self.quorum.nodes[1], message)

    @property
    def sender(self) -> PartitionSender:
        return self.producer._senders["t", 0]

    def submit(self, count: int = COUNT) -> None:
        batches = [build_batch([Record(value=value)], timestamp_ms=1) for value in values(count)]
        self.outcomes = self.producer.submit_batches("t", 0, batches)

    def cancel(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            self.outcomes[number].cancel()

    async def ended(self) -> list[AppendResult | BaseException]:
        return await asyncio.gather(*self.outcomes, return_exceptions=True)

    async def require_all_but(self, cancelled: set[int]) -> None:
        """Every other append gets an offset, and no lane has skipped a number."""
        ended = await self.ended()
        assert [number for number, one in enumerate(ended) if isinstance(one, asyncio.CancelledError)] == sorted(cancelled)
        log = self.partition.values()
        for number, one in enumerate(ended):
            if number not in cancelled:
                assert isinstance(one, AppendResult), one
                assert log[one.offset] == b"%d" % number
        assert len(log) == len(set(log))
        self.require_no_gap()
        await self.require_more()

    def require_no_gap(self) -> None:
        assert not [code for code in self.codes if code in LOST]
        for producer_id in self.partition.producers:
            sequences = list(dict.fromkeys(sequence for _, producer, sequence in self.arrived if producer == producer_id))
            assert sequences == list(range(len(sequences)))

    async def require_more(self) -> None:
        """The producer goes on as if nothing had been."""
        self.on_request = lambda value: None
        before = len(self.partition.values())
        batches = [build_batch([Record(value=b"more")], timestamp_ms=1) for _ in range(BATCHES_PER_LANE + 1)]
        results = await self.producer.append_batches("t", 0, batches)
        assert [result.offset for result in results] == list(range(before, before + len(batches)))


def appends_test(test: Callable[[Appends], Any], lanes: int = 1) -> None:
    async def body() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, retry_backoff_ms=1) as client:
            quorum.add_topic("t")
            appends = Appends(quorum, client, lanes)
            await test(appends)
            await appends.producer.close()

    run(body())


@lane_counts
@places
@pytest.mark.parametrize("answer", ["appended", "lost", "appended and lost", "refused"])
def test_cancelled_while_under_way(lanes: int, cancelled: set[int], answer: str) -> None:
    """All of a full lane have arrived at the node when they are cancelled; then the node answers, or the connection breaks."""

    async def test(appends: Appends) -> None:
        held: list[bytes] = []

        def on_request(value: bytes) -> Any:
            if value in held or int(value) >= BATCHES_PER_LANE:
                return None
            held.append(value)
            if len(held) == 1:
                # Those behind it are on their way: the client has sent them before it reads this answer.
                appends.cancel(cancelled)
            if int(value) not in cancelled or answer == "appended":
                return None
            if answer == "refused":
                return produced("t", 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            if answer == "appended and lost":
                batch = next(batch for batch in sent if value_of(batch) == value)
                appends.append(batch)
            return DROP

        sent: list[Any] = []
        node_answers = appends._on_produce

        def keep(header: object, message: Any) -> Any:
            sent.append(message)
            return node_answers(header, message)

        appends.quorum.nodes[1].standing[ApiKey.PRODUCE] = keep
        appends.on_request = on_request
        appends.submit()
        if answer == "refused":
            # What follows a batch that was refused is out of order at first, and is sent again behind it.
            ended = await appends.ended()
            assert [type(one) for number, one in enumerate(ended) if number not in cancelled] == [AppendResult] * (
                COUNT - len(cancelled)
            )
        else:
            await appends.require_all_but(cancelled)
        assert set(appends.partition.values()[:COUNT]) == set(values()), "what has a place is sent"
        assert lanes > 1 or appends.partition.values()[:COUNT] == values()

    appends_test(test, lanes)


@lane_counts
@places
def test_cancelled_while_it_waits_to_be_sent_again(lanes: int, cancelled: set[int]) -> None:
    """Every first try is refused for want of a leader. The client looks for one, and the callers give up meanwhile."""

    async def test(appends: Appends) -> None:
        refused: list[bytes] = []

        def on_request(value: bytes) -> Any:
            if value in refused or int(value) >= BATCHES_PER_LANE:
                return None
            refused.append(value)
            return produced("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)

        seen: list[int] = []

        def on_metadata(header: object, message: Any) -> None:
            placed = [batch.number for batch in appends.sender._waiting if batch.lane is not None]
            if refused and not seen:
                seen.extend(placed)
                appends.cancel(cancelled)
            appends.quorum.nodes[1].once(ApiKey.METADATA, on_metadata)

        appends.quorum.nodes[1].once(ApiKey.METADATA, on_metadata)
        appends.on_request = on_request
        appends.submit()
        ended = await appends.ended()
        assert set(seen) >= cancelled, "they had their places"
        assert [number for number, one in enumerate(ended) if isinstance(one, asyncio.CancelledError)] == sorted(cancelled)
        log = appends.partition.values()
        assert sorted(log, key=str) == sorted(values(), key=str)
        assert lanes > 1 or log == values()
        appends.require_no_gap()
        await appends.require_more()

    appends_test(test, lanes)


@pytest.mark.parametrize("cancelled", [{10}, {11}, {10, 11}, {13}, {19}, {10, 19}, set(range(10, 20))])
def test_cancelled_before_it_has_a_place(cancelled: set[int]) -> None:
    """Two lanes hold ten; of those behind, the first, the second and the last. They are left out, and take no number."""

    async def test(appends: Appends) -> None:
        were_waiting: list[int] = []

        def on_request(value: bytes) -> Any:
            if len(appends.sender._lanes) < 2:
                # The answer comes when the second lane is there and full.
                return DROP
            if not were_waiting:
                were_waiting.extend(batch.number for batch in appends.sender._waiting if batch.lane is None)
                appends.cancel(cancelled)
            return None

        appends.on_request = on_request
        appends.submit(20)
        await appends.require_all_but(cancelled)
        assert were_waiting == list(range(10, 20))
        assert set(appends.partition.values()) - {b"more"} == set(values(20)) - {b"%d" % number for number in cancelled}

    appends_test(test, lanes=2)


@pytest.mark.parametrize("cancelled", [5, 6, 8, 11])
def test_a_strict_producer_appends_nothing_behind_what_was_left_out(cancelled: int) -> None:
    async def test(appends: Appends) -> None:
        def on_request(value: bytes) -> None:
            if value == b"0":
                appends.cancel({cancelled})

        appends.on_request = on_request
        appends.submit()
        ended = await appends.ended()
        assert all(isinstance(one, AppendResult) for one in ended[:cancelled])
        assert isinstance(ended[cancelled], asyncio.CancelledError)
        for one in ended[cancelled + 1 :]:
            assert isinstance(one, RequestRejected) and one.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert appends.partition.values() == values()[:cancelled]
        appends.require_no_gap()
        with pytest.raises(RequestRejected, match="earlier append"):
            await appends.producer.append_batches("t", 0, [build_batch([Record(value=b"late")], timestamp_ms=1)])

    appends_test(test)


@pytest.mark.parametrize("cancelled", [{0}, {1}, {0, 1}, {11}, set(range(12))])
def test_cancelled_before_there_is_a_connection(cancelled: set[int]) -> None:
    async def test(appends: Appends) -> None:
        appends.submit()
        appends.cancel(cancelled)
        await appends.require_all_but(cancelled)
        left = [value for number, value in enumerate(values()) if number not in cancelled]
        assert appends.partition.values()[: len(left)] == left

    appends_test(test, lanes=2)


@pytest.mark.parametrize("count", [1, BATCHES_PER_LANE - 1, BATCHES_PER_LANE])
def test_the_room_of_a_cancelled_batch_is_free_again(count: int) -> None:
    """Round after round of a lane whose callers all give up while their batches are under way."""

    async def test(appends: Appends) -> None:
        for turn in range(1, 4):
            appends.on_request = lambda value: appends.cancel(set(range(count)))
            appends.submit(count)
            await asyncio.wait(appends.outcomes)
            await appends.require_more()
            assert len(appends.partition.values()) == turn * (count + BATCHES_PER_LANE + 1)
            appends.require_no_gap()

    appends_test(test)


@pytest.mark.parametrize("first_try", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NOT_LEADER_OR_FOLLOWER])
@pytest.mark.parametrize("cancelled", [0, 1, 3, 4])
def test_one_whose_time_is_over_as_well_retires_its_lane(cancelled: int, first_try: ErrorCode) -> None:
    """It is not sent any more. Those behind it in its lane move where they certainly were not appended, and are unknown where
    they may have been; those of the other lane, and the next ones, are appended."""

    async def test(appends: Appends) -> None:
        refused: list[bytes] = []

        def on_request(value: bytes) -> Any:
            if value in refused or int(value) >= BATCHES_PER_LANE:
                return None
            refused.append(value)
            return produced("t", 0, first_try)

        def on_metadata(header: object, message: Any) -> None:
            for batch in appends.sender._waiting:
                if refused and batch.number == cancelled:
                    batch.outcome.cancel()
                    batch.deadline._at = 0.0
            appends.quorum.nodes[1].once(ApiKey.METADATA, on_metadata)

        appends.quorum.nodes[1].once(ApiKey.METADATA, on_metadata)
        appends.on_request = on_request
        for value in values():
            # A time limit of its own for each.
            batch = build_batch([Record(value=value)], timestamp_ms=1)
            appends.outcomes = [*appends.outcomes, *appends.producer.submit_batches("t", 0, [batch])]
        ended = await appends.ended()
        log = appends.partition.values()
        assert b"%d" % cancelled not in log and len(log) == len(set(log))
        assert isinstance(ended[cancelled], asyncio.CancelledError)
        may_be_unknown = first_try is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for number, one in enumerate(ended):
            if number == cancelled:
                continue
            is_behind = cancelled < number < BATCHES_PER_LANE
            if may_be_unknown and is_behind:
                assert isinstance(one, UnknownOutcome)
            else:
                assert isinstance(one, AppendResult) and log[one.offset] == b"%d" % number
        await appends.require_more()
        if not may_be_unknown:
            assert not [code for code in appends.codes if code in LOST], "the lane was used again"

    appends_test(test, lanes=2)
