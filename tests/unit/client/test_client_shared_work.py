"""One request for all who ask for the same: each of them waits in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from clientkit import run
from raftlake.client.deadline import Deadline
from raftlake.client.shared_work import SharedWork
from raftlake.errors import ErrorCode, RequestRejected


class Work:
    """Ends when the test says so."""

    def __init__(self) -> None:
        self.shared: SharedWork[str, int] = SharedWork("test")
        self.begun: list[asyncio.Future[int]] = []

    async def _work(self) -> int:
        ending: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.begun.append(ending)
        return await ending

    async def caller(self, timeout: float | Deadline, key: str = "k") -> asyncio.Task[int]:
        """A caller that waits by now. `timeout` is in ms."""
        deadline = timeout if isinstance(timeout, Deadline) else Deadline(timeout)
        task = asyncio.create_task(self.shared.result(key, self._work, deadline))
        for _ in range(3):
            await asyncio.sleep(0)
        return task


class Told(Deadline):
    """Is over when the test says so."""

    is_told = False

    def is_over(self) -> bool:
        return self.is_told


REFUSED = RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "its time was over")


def test_who_asks_for_the_same_shares_the_work() -> None:
    async def test() -> None:
        work = Work()
        callers = [await work.caller(5000), await work.caller(5000), await work.caller(5000, "other")]
        assert len(work.begun) == 2
        work.begun[0].set_result(1)
        work.begun[1].set_result(2)
        assert await asyncio.gather(*callers) == [1, 1, 2]
        again = await work.caller(5000)
        work.begun[2].set_result(3)
        assert await again == 3

    run(test())


def test_nobody_waits_longer_than_its_own_time() -> None:
    async def test() -> None:
        work = Work()
        first, second = await work.caller(20_000), await work.caller(50)
        with pytest.raises(TimeoutError):
            await second
        assert not first.done()
        work.begun[0].set_result(1)
        assert await first == 1

    run(test())


def test_who_has_time_left_begins_anew_where_the_work_of_another_caller_had_none_left() -> None:
    async def test() -> None:
        work = Work()
        deadlines = [Told(20_000) for _ in range(4)]
        first, second, third, fourth = [await work.caller(deadline) for deadline in deadlines]
        deadlines[0].is_told = True
        work.begun[0].set_exception(REFUSED)
        with pytest.raises(RequestRejected):
            await first
        await work.caller(20_000)
        assert len(work.begun) == 2 and not third.done() and not fourth.done(), "they share the new work"
        deadlines[1].is_told = True
        work.begun[1].set_exception(REFUSED)
        with pytest.raises(RequestRejected):
            await second
        await work.caller(20_000)
        assert len(work.begun) == 3
        work.begun[2].set_result(7)
        assert [await third, await fourth] == [7, 7]

    run(test())


def test_a_caller_that_is_cancelled_ends_the_work_for_nobody() -> None:
    async def test() -> None:
        work = Work()
        first, second = await work.caller(20_000), await work.caller(20_000)
        first.cancel()
        await asyncio.wait([first])
        work.begun[0].set_result(1)
        assert await second == 1
        assert len(work.begun) == 1

    run(test())


def test_an_error_of_the_program_is_not_tried_again() -> None:
    async def test() -> None:
        work = Work()
        first, second = await work.caller(20_000), await work.caller(20_000)
        work.begun[0].set_exception(RuntimeError("this client is closed"))
        for caller in (first, second):
            with pytest.raises(RuntimeError, match="closed"):
                await caller
        assert len(work.begun) == 1

    run(test())


def test_what_is_closed_ends_its_callers_and_begins_nothing() -> None:
    async def test() -> None:
        work = Work()
        first, second = await work.caller(20_000), await work.caller(20_000)
        await work.shared.close()
        late = await work.caller(20_000)
        for caller in (first, second, late):
            with pytest.raises(RequestRejected, match="closed"):
                await caller
        assert len(work.begun) == 1

    run(test())


def test_all_who_wait_share_a_failure_that_was_no_want_of_time() -> None:
    """Where no node answers, each began anew, and twenty callers ended one after the other."""

    async def test() -> None:
        work = Work()
        callers = [await work.caller(20_000) for _ in range(5)]
        work.begun[0].set_exception(REFUSED)
        for caller in callers:
            with pytest.raises(RequestRejected):
                await caller
        assert len(work.begun) == 1
        later = await work.caller(20_000)
        work.begun[1].set_result(7)
        assert await later == 7

    run(test())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nobody_gives_up_before_the_time_is_over(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """uvloop rings up to half a millisecond early: who has more time was told to have none."""

    async def test() -> None:
        work = Work()
        begun = await work.caller(60_000)
        for tenths in range(20):
            deadline = Deadline(1 + tenths / 10)
            with pytest.raises(TimeoutError):
                await (await work.caller(deadline))
            assert deadline.is_over()
        work.begun[0].set_result(1)
        assert await begun == 1

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test(), 20))
