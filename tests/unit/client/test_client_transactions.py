"""Transactional producers: one identity in all partitions, the way to the coordinator, ends, and what is left open."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from kio.schema.describe_transactions.v0 import response as described
from kio.schema.errors import ErrorCode as KioError
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_transactions.v0 import response as listed
from kio.schema.types import BrokerId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import TZAware, i16, i32, i32Timedelta

from clientkit import DROP, FakeQuorum, produced, run
from clientkit_answers import NO_THROTTLE
from clientkit_kv import Front, Silence
from raftlake.client import AsyncClient, EndTxn, KvConflict, NewRecord, NoReachableNode, OpenTransaction, loop_thread
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WireError
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import iterate_headers


class Coordinated(FakeQuorum):
    """One of the nodes coordinates; each other one says that it does not."""

    def __init__(self, nodes: int = 2, coordinator_id: int = 2) -> None:
        super().__init__(nodes)
        self.coordinator_id = coordinator_id
        #: What the coordinator answers first to InitProducerId.
        self.refusals: list[KioError] = []
        self.epoch = 3
        self.asked: list[Any] = []
        self.open: dict[str, str] = {}
        #: How often the transaction "slow" is described before its markers are written.
        self.slow_looks = 0
        for node in self.nodes.values():
            node.standing[ApiKey.FIND_COORDINATOR] = lambda *_: self.found()
            node.standing[ApiKey.INIT_PRODUCER_ID] = lambda _, message, at=node.node_id: self.init(at, message)
            node.standing[ApiKey.LIST_TRANSACTIONS] = lambda *_, at=node.node_id: self.listing(at)
            node.standing[ApiKey.DESCRIBE_TRANSACTIONS] = lambda _, message, at=node.node_id: self.description(at, message)

    def found(self) -> FindCoordinatorResponse:
        node = self.nodes[self.coordinator_id]
        return FindCoordinatorResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            error_message=None,
            node_id=BrokerId(node.node_id),
            host="127.0.0.1",
            port=i32(node.port),
        )

    def init(self, at: int, message: Any) -> InitProducerIdResponse:
        code = KioError.not_coordinator if at != self.coordinator_id else KioError.none
        if code is KioError.none and self.refusals:
            code = self.refusals.pop(0)
        if code is KioError.none:
            self.asked.append(message)
            self.epoch += 1
        return InitProducerIdResponse(
            throttle_time=NO_THROTTLE, error_code=code, producer_id=ProducerId(77), producer_epoch=i16(self.epoch)
        )

    def listing(self, at: int) -> listed.ListTransactionsResponse:
        """Who does not coordinate knows none, and says so by no error."""
        names = sorted(self.open) if at == self.coordinator_id else []
        rows = [
            listed.TransactionState(
                transactional_id=TransactionalId(name), producer_id=ProducerId(5), transaction_state=self.open[name]
            )
            for name in names
        ]
        return listed.ListTransactionsResponse(
            throttle_time=NO_THROTTLE, error_code=KioError.none, unknown_state_filters=(), transaction_states=tuple(rows)
        )

    def description(self, at: int, message: Any) -> described.DescribeTransactionsResponse:
        self.asked.append(message)
        return described.DescribeTransactionsResponse(
            throttle_time=NO_THROTTLE, transaction_states=tuple(self.row(at, str(name)) for name in message.transactional_ids)
        )

    def state(self, name: str) -> str:
        if name == "slow":
            return "PrepareCommit" if self.slow_looks > 0 else "CompleteCommit"
        if name == "marked":
            return "PrepareCommit"
        return "CompleteAbort" if name.endswith("ended") else "Ongoing"

    def row(self, at: int, name: str) -> described.TransactionState:
        code = KioError.not_coordinator if at != self.coordinator_id else KioError.none
        if name == "slow":
            self.slow_looks -= 1
        if name.endswith("gone"):
            code = KioError.transactional_id_not_found
        return described.TransactionState(
            error_code=code,
            transactional_id=TransactionalId(name),
            transaction_state=self.state(name),
            transaction_timeout=i32Timedelta.parse(timedelta(seconds=1)),
            transaction_start_time=TZAware.parse(datetime.fromtimestamp(0, UTC)),
            producer_id=ProducerId(5),
            producer_epoch=i16(len(name)),
            # Of a decided one those without their marker.
            topics=(described.TopicData(topic=TopicName("t"), partitions=(i32(0),)),) if name == "slow" else (),
        )


def test_all_partitions_have_one_producer_and_the_batches_say_that_they_are_of_a_transaction() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=2)
            quorum.move_leader("t", 1, 2)
            producer = client.transactional_producer("mine", transaction_timeout_ms=7_000)
            assert not producer.has_begun
            for partition in (0, 1, 0):
                await producer.append_batches("t", partition, [batch_of(b"v")])
            headers = [header for part in topic.partitions for one in part.batches for header in iterate_headers(one)]
            found = {(header.producer_id, header.producer_epoch, header.is_transactional) for header in headers}
            assert found == {(77, 4, True)}
            assert sorted(header.base_sequence for header in headers) == [0, 0, 1]
            sent = [m for node in quorum.nodes.values() for key, m in node.requests if key is ApiKey.PRODUCE]
            assert {message.transactional_id for message in sent} == {"mine"}
            (asked,) = quorum.asked
            assert (asked.transactional_id, asked.transaction_timeout.total_seconds()) == ("mine", 7)
            assert producer.end(commit=True) == EndTxn(77, 4, True)
            with pytest.raises(RequestRejected, match="this transaction is ended"):
                await producer.append("t", b"late")

    run(test())


def batch_of(value: bytes) -> bytearray:
    from raftlake.wire.batches import Record, build_batch

    return build_batch([Record(value=value)], timestamp_ms=1)


def test_a_plain_producer_takes_a_batch_out_of_any_transaction() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            batch = batch_of(b"v")
            batch[22] |= 0x10
            await client.append_batches("t", 0, [batch])
            (header,) = iterate_headers(partition.batches[0])
            assert not header.is_transactional

    run(test())


def test_the_coordinator_is_found_anew_where_it_moved_or_is_busy() -> None:
    async def test() -> None:
        async with Coordinated(coordinator_id=1) as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            quorum.refusals = [KioError.concurrent_transactions, KioError.coordinator_load_in_progress]
            await producer.begin()
            quorum.coordinator_id = 2
            quorum.nodes[2].once(ApiKey.INIT_PRODUCER_ID, lambda *_: DROP)
            await client.transactional_producer("other").begin()
            assert [message.transactional_id for message in quorum.asked] == ["mine", "other"]
            quorum.refusals = [KioError.invalid_transaction_timeout]
            told = (
                "no producer for the transactional id 'mine' with a time limit of 60000 ms: .* above transaction.max.timeout.ms"
            )
            with pytest.raises(RequestRejected, match=told):
                await client.transactional_producer("mine").begin()

    run(test())


def test_a_transaction_that_misses_a_batch_takes_no_later_one() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            fenced = produced("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: fenced)
            with pytest.raises(RequestRejected, match="INVALID_PRODUCER_EPOCH"):
                await producer.append("t", b"two")
            with pytest.raises(RequestRejected):
                await producer.append("t", b"three")
            assert len(quorum.asked) == 1

    run(test())


def test_a_node_that_has_forgotten_the_producer_ends_the_transaction() -> None:
    """A plain producer goes on under another id, which would be another transaction."""

    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            lost = produced("t", 0, ErrorCode.UNKNOWN_PRODUCER_ID)
            quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: lost)
            with pytest.raises(RequestRejected, match="the transaction of 'mine' misses a batch"):
                await producer.append("t", b"two")
            assert len(quorum.asked) == 1
            assert partition.values() == [b"one"]

    run(test())


def test_a_batch_waits_for_the_transaction_before() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            partition = quorum.add_topic("t").partitions[0]
            busy = produced("t", 0, ErrorCode.CONCURRENT_TRANSACTIONS)
            for _ in range(2):
                quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: busy)
            await client.transactional_producer("mine").append("t", b"one")
            assert partition.values() == [b"one"]

    run(test())


def test_nothing_is_ended_where_nothing_was_appended() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            producer = client.transactional_producer("mine")
            with pytest.raises(RequestRejected, match="nothing was appended"):
                await producer.commit()
            await producer.begin()
            await producer.abort()
            await client.close_producer(producer)

    run(test())


NOTHING: dict[str, Callable[[Any], Any]] = {
    "record": lambda producer: producer.append("t", NewRecord(value=b"v", timestamp_ms=1 << 70)),
    "records": lambda producer: producer.append_many("t", [NewRecord(value=b"v", timestamp_ms=1 << 70)]),
    "no batch": lambda producer: producer.append_batches("t", 0, [b"no batch"]),
    "no records": lambda producer: producer.append_many("t", []),
    "no batches": lambda producer: producer.append_batches("t", 0, []),
}


@pytest.mark.parametrize("append", NOTHING.values(), ids=NOTHING)
def test_an_append_that_sends_nothing_leaves_nothing_to_end(append: Callable[[Any], Any]) -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.begin()
            with contextlib.suppress(struct.error, WireError):
                await append(producer)
            assert not producer.has_begun
            await producer.abort()
            with pytest.raises(RequestRejected, match="nothing was appended"):
                await producer.commit()

    run(test())


def test_an_end_without_an_answer_is_sent_again() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            front.answers = [None, (200, {"etag": '"9"'}, b"{}")]
            await producer.commit()
            bodies = {body for _, _, body in front.requests}
            assert len(front.requests) == 2
            assert bodies == {b'{"compare": [], "ops": [{"end_txn": {"producer_id": 77, "epoch": 4, "commit": true}}]}'}

    run(test())


REFUSED = {
    "no leader": (503, {"retry-after": "1"}, b'{"error": "no leader is heard of"}'),
    "another epoch": (
        412,
        {},
        b'{"error": "x", "failed": [], "refused": [{"producer_id": 77, "reason": "the epoch is retired"}]}',
    ),
    "no permission": (403, {}, b'{"error": "not here"}'),
}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("then", list(REFUSED))
def test_an_end_that_may_have_happened_is_not_refused(then: str, commit: bool) -> None:
    """The node goes behind the first proposal. That the repetition is refused says nothing of it."""

    async def test() -> None:
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            front.answers = [None, *[REFUSED[then]] * 500]
            with pytest.raises(
                UnknownOutcome, match=r"end of the transaction was sent.*\(the last try ended with: .*read what"
            ):
                await (producer.commit if commit else producer.abort)(timeout_ms=800)
            assert len(front.requests) > 1

    run(test())


@pytest.mark.parametrize(("then", "error"), [("another epoch", KvConflict), ("no permission", RequestRejected)])
def test_an_end_that_was_refused_at_once_did_not_happen(then: str, error: type[Exception]) -> None:
    async def test() -> None:
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            front.answers = [REFUSED[then]]
            with pytest.raises(error):
                await producer.commit(timeout_ms=2_000)

    run(test())


def test_an_end_that_no_node_is_left_to_repeat_may_have_happened() -> None:
    async def test() -> None:
        settings = {"unreachable_timeout_ms": 100}
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap, **settings) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            kv, tries = client.kv, []

            async def txn(*_: object, **options: float) -> int:
                tries.append(asyncio.get_running_loop().time())
                if len(tries) < 4:
                    raise UnknownOutcome("sent")
                raise NoReachableNode(["h:1"], {})

            kv.txn = txn  # type: ignore[assignment,method-assign]
            with pytest.raises(UnknownOutcome, match="no reachable node among h:1"):
                await producer.commit(timeout_ms=5_000)
            # Between the tries there are pauses, of half of 20 ms at least.
            assert all(later - earlier > 0.005 for earlier, later in pairwise(tries))

    run(test())


def test_open_transactions_are_those_of_the_coordinator_and_of_the_prefix() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            many = [f"a.{number:03}" for number in range(150)]
            quorum.open = dict.fromkeys([*many, "a.ended", "a.gone", "b.1"], "Ongoing")
            found = await client.open_transactions("a.")
            assert [each.transactional_id for each in found] == many
            assert found[0] == OpenTransaction(transactional_id="a.000", producer_id=5, epoch=5)
            assert found[0].end(commit=False) == EndTxn(5, 5, False)
            assert [len(message.transactional_ids) for message in quorum.asked] == [100, 52]
            # Another node coordinates now: the one that was replaced would say that nothing is open.
            quorum.coordinator_id = 1
            assert len(await client.open_transactions("a.")) == 150

    run(test())


def test_what_is_decided_is_waited_for_until_all_partitions_know() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.slow_looks = 3
            assert await client.settle_transactions(["slow", "a.ended", "a.gone", "marked"])
            # Only what lacks a marker is asked for again.
            assert [len(message.transactional_ids) for message in quorum.asked] == [4, 1, 1]
            quorum.slow_looks = 1_000_000
            assert not await client.settle_transactions(["slow"], timeout_ms=20)

    run(test())


# --- an end, and a client that is closed meanwhile ---


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_was_sent_is_unknown_when_its_client_is_closed(commit: bool) -> None:
    """`Client.close` cancels what has no outcome a few turns later."""

    async def test() -> None:
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            front.answers = [Silence()]
            ending = asyncio.create_task((producer.commit if commit else producer.abort)())
            while not front.requests:
                await asyncio.sleep(0)
            await client.close()
            for _ in range(loop_thread._LAST_TURNS):
                await asyncio.sleep(0)
            assert ending.done() and isinstance(ending.exception(), UnknownOutcome)

    run(test())


async def in_the_pause(client: AsyncClient, producer: Any) -> asyncio.Task[None]:
    """A commit whose first try had no answer, and that waits for its second one."""
    kv, tries, txn = client.kv, [], client.kv.txn

    async def lost_first(*arguments: Any, **options: Any) -> int:
        tries.append(arguments)
        if len(tries) == 1:
            raise UnknownOutcome("sent")
        return await txn(*arguments, **options)

    kv.txn = lost_first  # type: ignore[method-assign]
    ending = asyncio.create_task(producer.commit())
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(tries) == 1 and not ending.done()
    return ending


@pytest.mark.parametrize("how", ["closed", "cancelled", "closed and cancelled"])
def test_an_end_between_two_tries_is_unknown_when_its_client_is_closed(how: str) -> None:
    """Who cancels the call itself has it cancelled."""

    async def test() -> None:
        settings = {"retry_backoff_ms": 400, "retry_backoff_ms_max": 400}
        async with Coordinated() as quorum, Front() as front, AsyncClient(quorum.bootstrap, **settings) as client:
            for node in quorum.nodes.values():
                node.http_listener = f"127.0.0.1:{front.port}"
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            ending = await in_the_pause(client, producer)
            if how != "cancelled":
                await client.close()
            if how != "closed":
                ending.cancel()
            await asyncio.wait([ending], timeout=5)
            if how == "cancelled":
                assert ending.cancelled()
            else:
                assert isinstance(ending.exception(), UnknownOutcome) and "this client is closed" in str(ending.exception())
            assert front.requests == []

    run(test())


def test_an_end_that_was_not_sent_is_not_unknown_when_its_client_is_closed() -> None:
    async def test() -> None:
        async with Coordinated() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            producer = client.transactional_producer("mine")
            await producer.append("t", b"one")
            _ = client.kv
            await client.close()
            with pytest.raises((RuntimeError, RequestRejected, NoReachableNode), match=r"closed|no reachable|http\.listener"):
                await producer.commit(timeout_ms=300)

    run(test())
