"""Methods for ordinary threads, made from asynchronous ones: same parameters, same documentation, and the caller waits.

`append = blocking(AsyncClient.append)` in the body of a class makes a method of that class. The parameters and the result are
checked by their types, and `help` shows both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from raftlake.client.loop_thread import LoopThread

A_co = TypeVar("A_co", covariant=True)
A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

#: Arguments that the loop may read as they are.
_AT_HAND = (str, bytes, bytearray, memoryview, Mapping, list, tuple)


class Facade(Protocol[A_co]):
    """An object for ordinary threads, before an asynchronous one that lives on the loop of a thread."""

    def _reach(self) -> tuple[LoopThread, Callable[[], A_co]]:
        """The thread, and what gives the asynchronous object there."""


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Facade[A], P], T]:
    """The method of a facade that waits for `method`."""
    work: Callable[..., Coroutine[Any, Any, T]] = method

    @functools.wraps(method)
    def wait(facade: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        running, inner = facade._reach()
        taken, named = _taken(args, kwargs)

        async def call() -> T:
            return await work(inner(), *taken, **named)

        return running.call(call())

    return _named(wait)


def iterating(method: Callable[Concatenate[A, P], AsyncIterator[T]]) -> Callable[Concatenate[Facade[A], P], Iterator[T]]:
    """The method of a facade that gives what the asynchronous iterator of `method` gives. Nothing is sent before the first
    item is asked for; wrong arguments raise at once."""
    work: Callable[..., AsyncIterator[T]] = method
    told = inspect.signature(method)

    @functools.wraps(method)
    def iterate(facade: Facade[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        told.bind(facade, *args, **kwargs)
        taken, named = _taken(args, kwargs)
        return _iterate(facade, lambda inner: work(inner, *taken, **named))

    iterate.__dict__["__signature__"] = told.replace(return_annotation=str(told.return_annotation).removeprefix("Async"))
    return _named(iterate)


def _iterate(facade: Facade[A], begin: Callable[[A], AsyncIterator[T]]) -> Iterator[T]:
    running, inner = facade._reach()

    async def start() -> AsyncIterator[T]:
        return begin(inner())

    # Nothing here ends the asynchronous iterator where its reader leaves. The collector may end this one at any time: in the
    # loop's thread, under a lock, or when the interpreter exits and the loop runs no more. So nothing may wait for the loop.
    # An asynchronous generator that is dropped closes itself on its loop (PEP 525).
    iterator = running.call(start())
    while True:
        try:
            item = running.call(_next(iterator))
        except StopAsyncIteration:
            return
        yield item


async def _next(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


def _taken(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for the loop. What the caller's code makes one by one is made in the caller's thread: it may take its time, and
    it may use the client."""
    return [_take(value) for value in args], {name: _take(value) for name, value in kwargs.items()}


def _take(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, _AT_HAND) else value


def _named(method: Callable[P, T]) -> Callable[P, T]:
    """`AsyncClient.append` makes `Client.append`."""
    method.__qualname__ = method.__qualname__.removeprefix("Async")
    return method
