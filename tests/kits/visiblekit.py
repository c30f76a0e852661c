"""What readers are shown of a topic: those of committed records, and those of all."""

from __future__ import annotations

from collections.abc import Mapping

from raftlake import Client
from raftlake.client import IsolationLevel


def visible(client: Client, topic: str) -> list[str]:
    """The values in front of the ends as they are now."""
    return _values(client, topic, client.read_stable_offset(topic), IsolationLevel.READ_COMMITTED)


def appended(client: Client, topic: str) -> list[str]:
    """The same with those of transactions that are open, or were aborted."""
    return _values(client, topic, client.read_offset(topic), IsolationLevel.READ_UNCOMMITTED)


def _values(client: Client, topic: str, ends: Mapping[int, int], isolation: IsolationLevel) -> list[str]:
    found: list[str] = []
    for partition, end in ends.items():
        offset = 0
        while offset < end:
            fetched = client.read(topic, partition, offset, max_wait_ms=100, isolation=isolation)
            found += [(record.value or b"").decode() for record in fetched]
            if not fetched:
                break
            offset = fetched[-1].offset + 1
    return found
