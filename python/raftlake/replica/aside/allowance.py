"""What the requests of one turn of the loop may do at once. The rest goes aside, or waits for a later turn.

One read of a connection may hold hundreds of requests, so a bound for each of them is none for the loop.
"""

from __future__ import annotations

#: Some 40 ms of the dearest work.
TURN_BYTES = 2 << 20


class Allowance:
    """`left` is in bytes that are decompressed; below 0 after work that was larger than it looked."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = TURN_BYTES

    def renew(self) -> None:
        """Another turn begins."""
        self.left = TURN_BYTES
