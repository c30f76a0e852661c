"""Whether a Produce request's records can be read, looked at so that the node is kept from nothing else by it.

Owns what one request may cost. A few kilobytes can decompress to gigabytes: the batches of a request may together decompress to
DECOMPRESSED_TIMES_MAX times its size, DECOMPRESSED_BYTES_MIN in any case and DECOMPRESSED_BYTES_MAX at most. Honest zeros fit:
most producers bound a batch by what it holds uncompressed, and Java's splits one that is refused as MESSAGE_TOO_LARGE.

What is small is checked at once. From the first batch on that is not, a request goes aside (`ports.Aside`), and so does what
comes for the same partitions before it is done: there it waits in one line, so that appends keep their order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from raftlake.errors import CorruptBatch, ErrorCode, RequestRejected
from raftlake.ports import Aside
from raftlake.replica.opaque import require_raft_records
from raftlake.replica.partition import Partition
from raftlake.wire.batches import HEADER_BYTES, BatchHeader
from raftlake.wire.compression import DECOMPRESSED_BYTES_MAX, PayloadTooLarge, decompress
from raftlake.wire.record_check import require_records

if TYPE_CHECKING:
    from raftlake.replica.node import ReplicaNode

logger = logging.getLogger("raftlake.produce")

DECOMPRESSED_TIMES_MAX = 8
DECOMPRESSED_BYTES_MIN = 16 << 20
#: What a request may hold, uncompressed, to be checked at once: 150,000 of the smallest records, or some 20 ms.
INLINE_BYTES = 1 << 20
#: Aside without an `Aside`: the next turns.
LATER_MS = 1

T = TypeVar("T")
Records = bytearray | memoryview
#: Told why the records are refused, None where they are not.
Checked = Callable[[RequestRejected | None], None]


class RequestBudget:
    """What is left to one request. Used by one thread at a time: aside once it was aside."""

    __slots__ = ("_inline_left", "_left", "_limit", "is_aside")

    def __init__(self, request_bytes: int) -> None:
        self._limit = min(DECOMPRESSED_BYTES_MAX, max(DECOMPRESSED_BYTES_MIN, DECOMPRESSED_TIMES_MAX * request_bytes))
        self._left = self._limit
        self._inline_left = INLINE_BYTES
        self.is_aside = False

    def check(self, records: Records, headers: Sequence[BatchHeader], *, inline: bool) -> bool:
        """Look at the batches of one partition. False where that would take too long `inline`. Raises RequestRejected."""
        left = self._left
        for header in headers:
            payload = memoryview(records)[header.position + HEADER_BYTES : header.end_position]
            if not header.is_compressed:
                content: bytes | bytearray | memoryview = payload
            else:
                allowed = min(self._left, self._inline_left) if inline else self._left
                try:
                    content = decompress(header.compression, payload, allowed)
                except PayloadTooLarge as error:
                    if allowed < self._left:
                        self._left = left
                        return False
                    # Whatever else the request holds is not worth a look.
                    self._left = 0
                    raise RequestRejected(ErrorCode.MESSAGE_TOO_LARGE, self._words()) from error
                except CorruptBatch as corrupt:
                    raise RequestRejected(ErrorCode.CORRUPT_MESSAGE, str(corrupt)) from corrupt
                self._left -= len(content)
            if inline and len(content) > self._inline_left:
                self._left = left
                return False
            self._inline_left -= len(content)
            require_records(content, header.record_count)
        return True

    def _words(self) -> str:
        return (
            f"the batches of this request decompress to more than {self._limit} bytes, which is what a request of its size may "
            "hold: send smaller batches, or fewer at a time"
        )


class RecordChecks:
    """`aside` takes what is large; without one it is done in a later turn."""

    def __init__(self, node: ReplicaNode, aside: Aside | None) -> None:
        self._node = node
        self._aside: Aside = aside or self

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """`ports.Aside` in the turns to come."""
        self._node.timers.schedule(self._node.now_ms + LATER_MS, lambda: done(job()))

    def check(
        self, partition: Partition, budget: RequestBudget, records: Records, headers: Sequence[BatchHeader], done: Checked
    ) -> None:
        """Call `done` now or later; for one partition in the order of the calls."""
        look = partial(self._look, budget, records, headers)
        if not (budget.is_aside or partition.checks_under_way):
            try:
                is_checked = look(inline=True)
            except RequestRejected as rejected:
                done(rejected)
                return
            if is_checked:
                done(None)
                return
        budget.is_aside = True
        partition.checks_under_way += 1

        def on_done(rejected: RequestRejected | None) -> None:
            self._node.begin_input()
            partition.checks_under_way -= 1
            done(rejected)

        self._aside.submit(partial(_attempt, look), on_done)

    def _look(self, budget: RequestBudget, records: Records, headers: Sequence[BatchHeader], *, inline: bool) -> bool:
        is_checked = budget.check(records, headers, inline=inline)
        if is_checked and self._node.config.is_opaque:
            require_raft_records(records, headers)
        return is_checked


def _attempt(look: Callable[..., bool]) -> RequestRejected | None:
    try:
        look(inline=False)
    except RequestRejected as rejected:
        # Not the one that was raised: its traceback would keep what was decompressed until the next full collection.
        return RequestRejected(rejected.code, rejected.message)
    except Exception:
        # A bug in one check must not keep those behind it waiting for ever.
        logger.exception("failed to check the records of a request")
        return RequestRejected(ErrorCode.UNKNOWN_SERVER_ERROR, "the records could not be checked")
    return None
