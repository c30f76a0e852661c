"""The retry loop over leaders, and the time limits it lives by."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from clientkit import FakeQuorum, run
from raftlake.client import AsyncClient
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.errors import Disconnected
from raftlake.client.routing import RETRIABLE, ask_leaders
from raftlake.client.types import Address, ClientConfig
from raftlake.errors import ErrorCode, RequestRejected


def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    async def test() -> None:
        async with FakeQuorum(2) as quorum, AsyncClient(quorum.bootstrap) as client:
            topic = quorum.add_topic("t", partitions=4)
            topic.partitions[3].leader_id = 2
            asked: list[list[int]] = []

            async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
                asked.append(partitions)
                return {partition: 10 * partition for partition in partitions}

            results = await ask_leaders(client._cluster, "t", [0, 1, 3, 3], Deadline(5000), ask)
            assert results == {0: 0, 1: 10, 3: 30}
            assert sorted(asked) == [[0, 1], [3]]

    run(test())


def test_only_what_failed_is_asked_again() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t", partitions=2)
            asked: list[list[int]] = []

            async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
                asked.append(partitions)
                if len(asked) == 1:
                    return {0: 5, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
                if len(asked) == 2:
                    raise Disconnected(str(address), "gone", sent=True)
                return {1: 6}

            assert await ask_leaders(client._cluster, "t", [0, 1], Deadline(5000), ask) == {0: 5, 1: 6}
            assert asked == [[0, 1], [1], [1]]

    run(test())


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("first", [5, ErrorCode.REQUEST_TIMED_OUT, None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_what_changes_something_is_not_asked_of_the_next_topic(first: int | None, changes: bool) -> None:
    """Unless nothing was done in the topic before. None: the connection is lost."""

    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap, unknown_topic_grace_ms=50) as client:
            quorum.add_topic("t", partitions=2)
            asked: list[list[int]] = []

            async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
                asked.append(partitions)
                if len(asked) > 1:
                    return dict.fromkeys(partitions, 7)
                quorum.add_topic("t", partitions=2)
                if first is None:
                    raise Disconnected(str(address), "gone", sent=True)
                return {0: first, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}

            asking = ask_leaders(client._cluster, "t", [0, 1], Deadline(5000), ask, changes=changes)
            if changes and first is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                with pytest.raises(RequestRejected) as caught:
                    await asking
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_ID and len(asked) == 1
            else:
                assert (await asking)[1] == 7

    run(test())


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")

            async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
                return {0: ErrorCode.INVALID_REQUEST}

            with pytest.raises(RequestRejected, match="t-0") as caught:
                await ask_leaders(client._cluster, "t", [0], Deadline(5000), ask)
            assert caught.value.code == ErrorCode.INVALID_REQUEST

    run(test())


def test_the_last_error_is_raised_when_the_time_is_over() -> None:
    async def test() -> None:
        async with FakeQuorum() as quorum, AsyncClient(quorum.bootstrap) as client:
            quorum.add_topic("t")
            # The time limit is that of the answers: the leader is known already.
            await client.append("t", "zero")

            async def ask(address: Address, partitions: list[int], deadline: Deadline) -> Mapping[int, int | ErrorCode]:
                return {0: ErrorCode.OFFSET_NOT_AVAILABLE}

            with pytest.raises(RequestRejected) as caught:
                await ask_leaders(client._cluster, "t", [0], Deadline(60), ask)
            assert caught.value.code == ErrorCode.OFFSET_NOT_AVAILABLE

    run(test())


def test_what_says_that_the_request_is_wrong_is_not_retriable() -> None:
    for code in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ):
        assert code not in RETRIABLE


def test_deadlines_end() -> None:
    async def test() -> None:
        deadline = Deadline(0)
        assert deadline.is_over()
        assert deadline.remaining_ms() == 0
        now = asyncio.get_running_loop().time
        before = now()
        later = Deadline(60_000)
        assert before + 60 <= later.at <= now() + 60
        times = [(later.at - now()) * 1000, later.remaining_ms(), (later.at - now()) * 1000]
        assert times == sorted(times, reverse=True)
        assert not later.is_over()

    run(test())


def test_pauses_grow_to_a_limit_and_begin_anew() -> None:
    backoff = Backoff(20, 100)
    pauses = [backoff.next_ms() for _ in range(20)]
    assert 10 <= pauses[0] <= 20
    assert all(50 <= pause <= 100 for pause in pauses[10:])
    backoff.reset()
    assert backoff.next_ms() <= 20


def test_a_pause_ends_with_the_deadline() -> None:
    async def test() -> None:
        # `run` ends a pause that goes on.
        await Backoff(3_600_000, 3_600_000).pause(Deadline(20))

    run(test())


def test_even_the_last_attempt_gets_some_time() -> None:
    config = ClientConfig(bootstrap=(Address("h", 1),), request_timeout_ms=2000, attempt_timeout_ms=600)
    assert [config.attempt_ms(remaining) for remaining in (5000, 550, 0)] == [600, 550, 500]
