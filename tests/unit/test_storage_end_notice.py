"""The end of a flush is told once: to who asks, or to who waits."""

from __future__ import annotations

from collections.abc import Callable

from raftlake.storage.end_notice import EndNotice


class Driver:
    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.notice = EndNotice(self.posted.append)
        self.told = 0

    def done(self) -> None:
        self.told += 1

    def run(self) -> None:
        while self.posted:
            self.posted.pop(0)()


def test_who_waits_from_the_beginning_is_woken() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=True)
    driver.notice.end(driver.done)
    assert driver.told == 0, "not on the flush thread"
    driver.run()
    assert driver.told == 1


def test_who_does_not_wait_is_told_when_it_asks_and_once() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=False)
    driver.notice.collect()
    assert driver.told == 0
    driver.notice.end(driver.done)
    assert not driver.posted
    driver.notice.collect()
    driver.notice.collect()
    assert driver.told == 1


def test_who_comes_to_wait_before_the_end_is_woken_by_it() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=False)
    driver.notice.wait()
    assert driver.told == 0
    driver.notice.end(driver.done)
    driver.run()
    assert driver.told == 1


def test_who_comes_to_wait_after_the_end_is_told_at_once() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=False)
    driver.notice.end(driver.done)
    driver.notice.wait()
    assert driver.told == 1
    driver.run()
    assert driver.told == 1


def test_a_failure_wakes_who_does_not_wait() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=False)
    driver.notice.end(driver.done, is_urgent=True)
    driver.run()
    assert driver.told == 1


def test_a_call_that_comes_late_finds_nothing_to_tell() -> None:
    driver = Driver()
    driver.notice.begin(is_awaited=True)
    driver.notice.end(driver.done)
    driver.notice.collect()
    driver.notice.begin(is_awaited=False)
    driver.run()
    assert driver.told == 1
