"""What readers of committed records are shown of a topic."""

from __future__ import annotations

from raftlake import Client


def visible(client: Client, topic: str) -> list[str]:
    """The values in front of the ends as they are now."""
    found: list[str] = []
    for partition, end in client.read_stable_offset(topic).items():
        offset = 0
        while offset < end:
            fetched = client.read(topic, partition, offset, max_wait_ms=100)
            found += [(record.value or b"").decode() for record in fetched]
            if not fetched:
                break
            offset = fetched[-1].offset + 1
    return found
