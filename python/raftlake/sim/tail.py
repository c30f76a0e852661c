"""The end of a trace: the last lines of each node, of the network and of the clients, in the order of time.

Enough to see what led to a broken promise, and short enough to read. A `trace.LineSink`.
"""

from __future__ import annotations

import re
from collections import deque

LINES_PER_NODE = 25
LINES_PER_OTHER = 6
_NODE = re.compile(r"\d+")


class TraceTail:
    """Keeps the last lines of every speaker."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[int, str]]] = {}
        self._counter = 0

    def write(self, text: str, /) -> None:
        self._counter += 1
        who = text.split(maxsplit=2)[1]
        node = _NODE.match(who)
        key = node.group() if node else who
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = deque(maxlen=LINES_PER_NODE if node else LINES_PER_OTHER)
        kept.append((self._counter, text))

    def lines(self) -> list[str]:
        """What was kept, oldest first."""
        return [text.rstrip("\n") for _, text in sorted(line for kept in self._kept.values() for line in kept)]
