"""Time limits on both event loops. uvloop rounds times to milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from raftlake.client.deadline import Alarm

RUNNERS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(test: Callable[[], Awaitable[None]], loop: str) -> None:
    with asyncio.Runner(loop_factory=RUNNERS[loop]) as runner:
        runner.run(asyncio.wait_for(test(), 20))


class Ringing:
    """An alarm, and the times at which it rang."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rang: list[float] = []
        self._next = self.loop.create_future()
        self.alarm = Alarm(self._ring)

    def _ring(self) -> None:
        self.rang.append(self.loop.time())
        self._next.set_result(None)
        self._next = self.loop.create_future()

    async def wait(self) -> None:
        await self._next


@pytest.mark.parametrize("loop", RUNNERS)
def test_an_alarm_rings_at_its_time_and_not_before(loop: str) -> None:
    async def test() -> None:
        ringing = Ringing()
        for tenths in range(1, 21):
            at = ringing.loop.time() + tenths / 10_000
            ringing.alarm.set(at)
            await ringing.wait()
            assert ringing.rang[-1] >= at
        assert len(ringing.rang) == 20

    run(test, loop)


@pytest.mark.parametrize("loop", RUNNERS)
@pytest.mark.parametrize(("first_ms", "second_ms"), [(-1, 5), (0, 5), (0.2, 5), (5, -1), (5, 0), (60_000, 2), (2, 60_000)])
def test_an_alarm_rings_once_at_the_earlier_of_two_times(loop: str, first_ms: float, second_ms: float) -> None:
    """The handle of a time that is over does not know its time, on uvloop."""

    async def test() -> None:
        ringing = Ringing()
        now = ringing.loop.time()
        ringing.alarm.set(now + first_ms / 1000)
        ringing.alarm.set(now + second_ms / 1000)
        await ringing.wait()
        assert ringing.rang[0] < now + 30
        other: asyncio.Future[None] = ringing.loop.create_future()
        ringing.loop.call_later(0.02, other.set_result, None)
        await other
        assert len(ringing.rang) == 1

    run(test, loop)


@pytest.mark.parametrize("loop", RUNNERS)
@pytest.mark.parametrize("at_ms", [-1, 0, 0.3, 2])
def test_an_alarm_that_was_cancelled_is_silent_and_may_be_set_again(loop: str, at_ms: float) -> None:
    async def test() -> None:
        ringing = Ringing()
        ringing.alarm.set(ringing.loop.time() + at_ms / 1000)
        ringing.alarm.cancel()
        ringing.alarm.cancel()
        at = ringing.loop.time() + 0.01
        ringing.alarm.set(at)
        await ringing.wait()
        assert len(ringing.rang) == 1 and ringing.rang[0] >= at

    run(test, loop)
