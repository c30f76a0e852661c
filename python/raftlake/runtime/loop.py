"""Which event loop a node runs on: uvloop where it exists, else the one of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    import uvloop

    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:
    # pyproject.toml asks for uvloop only on the platforms that it supports.
    new_event_loop = asyncio.new_event_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new loop of the right kind and close the loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
