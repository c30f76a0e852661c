"""Methods for ordinary threads: they say what their asynchronous twins say, and take the caller's iterators in its thread."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from raftlake.client import AsyncClient, AsyncProducer, Client, Producer
from raftlake.client.blocking import blocking, iterating
from raftlake.client.kv import AsyncKv
from raftlake.client.loop_thread import LoopThread
from raftlake.client.sync_kv import Kv

#: What is made for each side by hand, since the two differ.
BY_HAND = {"close", "producer", "close_producer", "submit_batches", "submit_fetch", "choose_partition", "kv"}
PAIRS = [
    (plain, twin, name)
    for plain, twin in ((Client, AsyncClient), (Kv, AsyncKv), (Producer, AsyncProducer))
    for name in sorted({*vars(plain), *vars(twin)})
    if not name.startswith("_") and name not in BY_HAND
]


@pytest.mark.parametrize(("plain", "twin", "name"), PAIRS, ids=lambda part: getattr(part, "__name__", part))
def test_help_tells_the_parameters_and_the_promise(plain: type, twin: type, name: str) -> None:
    method, asked = getattr(plain, name), getattr(twin, name)
    assert method.__doc__ and method.__doc__ == asked.__doc__
    assert "see `" not in method.__doc__.lower(), "help shows one method"
    assert method.__qualname__ == f"{plain.__name__}.{name}"
    told, expected = inspect.signature(method), inspect.signature(asked)
    assert told.parameters == expected.parameters
    assert told.return_annotation == expected.return_annotation.removeprefix("Async")
    assert not inspect.iscoroutinefunction(method) and not inspect.isasyncgenfunction(method)


class AsyncCounter:
    """Tells in which thread it runs, and what it was given."""

    async def take(self, *values: object, **named: object) -> tuple[tuple[object, ...], dict[str, object], int]:
        return values, named, threading.get_ident()

    async def count(self, numbers: list[int]) -> object:
        """Asked for as an iterator."""
        for number in numbers:
            yield number


class Counter:
    def __init__(self, running: LoopThread) -> None:
        self.running = running
        #: The threads in which the counter was reached.
        self.reached: list[int] = []

    take = blocking(AsyncCounter.take)
    count = iterating(AsyncCounter.count)

    def _reach(self) -> tuple[LoopThread, Callable[[], AsyncCounter]]:
        def inner() -> AsyncCounter:
            self.reached.append(threading.get_ident())
            return AsyncCounter()

        return self.running, inner


@pytest.fixture
def counter() -> Iterator[Counter]:
    running = LoopThread(lambda: AsyncClient("127.0.0.1:1"))
    yield Counter(running)
    running.stop()


def test_the_work_is_done_on_the_loop(counter: Counter) -> None:
    values, named, thread = counter.take(1, b"two", name="three")
    assert (values, named) == ((1, b"two"), {"name": "three"})
    assert thread != threading.get_ident()


def test_what_the_caller_makes_one_by_one_is_made_in_its_own_thread(counter: Counter) -> None:
    """A generator may use the client itself; on the loop it would wait for ever."""
    threads: list[int] = []

    def made() -> Iterator[int]:
        for number in range(2):
            threads.append(threading.get_ident())
            yield number

    text, pair, mapping = "ab", (1, 2), {0: 1}
    values, named, _ = counter.take(made(), text, pair, mapping, numbers=made())
    assert values == ([0, 1], text, pair, mapping) and named == {"numbers": [0, 1]}
    assert threads == [threading.get_ident()] * 4


def test_an_iterator_gives_its_items_and_ends(counter: Counter) -> None:
    assert list(counter.count(number for number in range(3))) == [0, 1, 2]
    left = counter.count([5, 6])
    assert next(left) == 5
    left.close()
    assert list(counter.count([])) == []


def test_an_error_of_the_work_reaches_the_caller(counter: Counter) -> None:
    with pytest.raises(TypeError, match="numbers"):
        counter.count()
    with pytest.raises(TypeError):
        list(counter.count(None))


def test_the_asynchronous_object_is_reached_on_the_loop(counter: Counter) -> None:
    """`AsyncClient.kv` makes an HTTP client at its first use: two threads that came first would make two."""
    *_, loop = counter.take()
    assert list(counter.count([1])) == [1]
    assert counter.reached == [loop, loop]


def test_who_uses_no_keys_imports_no_http_client() -> None:
    code = "import sys, raftlake.client; raftlake.client.Client('a:1'); sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_made_method_belongs_to_the_event_loop_of_its_object() -> None:
    """The twin stays what it was: it may be awaited in any loop."""
    values, _, thread = asyncio.run(AsyncCounter().take(7))
    assert values == (7,) and thread == threading.get_ident()
