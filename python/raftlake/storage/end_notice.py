"""How the driver hears that a flush is over: it is woken, or it asks.

To be woken takes a loop iteration and a turn of its own: where nothing can follow from the end of a flush yet, that is work
in vain. Owns the `done` of the one flush that is under way; knows nothing of what was flushed.

The flush thread sets `_ended` and then looks at `_is_awaited`; the driver's thread sets `_is_awaited` and then looks at
`_ended`. So one of the two sees what the other did, and no end is missed; `collect` calls each `done` once.
"""

from __future__ import annotations

from collections.abc import Callable


class EndNotice:
    """`post` hands a call to the driver's thread."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._ended: Callable[[], None] | None = None
        self._is_awaited = True

    def begin(self, *, is_awaited: bool) -> None:
        """A flush begins."""
        self._ended = None
        self._is_awaited = is_awaited

    def end(self, done: Callable[[], None], *, is_urgent: bool = False) -> None:
        """It is over. The only method that may be called on another thread."""
        self._ended = done
        if self._is_awaited or is_urgent:
            self._post(self.collect)

    def collect(self) -> None:
        """Call the `done` of a flush that is over, unless it was called."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def wait(self) -> None:
        """Somebody waits for the flush from now on."""
        self._is_awaited = True
        self.collect()
