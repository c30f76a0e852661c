"""A handler that waits for dear work of its own: in the line of all clients, and no longer than clients wait."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

from raftlake.runtime.http.base import HttpError, unavailable
from raftlake.runtime.http.exchange import Waiter
from raftlake.runtime.work_line import Work, WorkLine

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


async def in_line(line: WorkLine, pieces: Generator[None, None, T], *, is_short: bool = False) -> T:
    """What `pieces` returns. Raises HttpError as they do, and 503 when their turn does not come in time. Short work is done at
    once. Pieces that are wanted no more are closed."""
    waiter: Waiter[list[T] | HttpError | None] = Waiter()
    work = Work(_told(pieces), waiter.set)
    if is_short:
        while work.take_turn():
            pass
    else:
        line.enter(work)
    patience = asyncio.get_running_loop().call_later(
        PATIENCE_SECONDS, waiter.set, unavailable("there is more work than this node can do in time; nothing changed")
    )
    try:
        outcome = await waiter
    finally:
        patience.cancel()
        line.leave(work)
        pieces.close()
    if outcome is None:
        raise HttpError(500, "internal error, see the node's log")
    if isinstance(outcome, HttpError):
        raise outcome
    return outcome[0]


def _told(pieces: Generator[None, None, T]) -> Generator[None, None, list[T] | HttpError]:
    try:
        return [(yield from pieces)]
    except HttpError as error:
        return error
