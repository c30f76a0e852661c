"""Leaders of real quorums, who may change at any moment: on a busy machine a follower that gets no turn elects another one.

A test asks for the leader when there is one, for what is said while one leads, and for the offsets of records alone: each new
leader writes a control record between them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import waitkit
from raftlake import Client
from raftlake.wire.batches import iterate_headers

T = TypeVar("T")
#: A new partition begins with the control records of its first leader: who leads, and who votes (two records).
FIRST = 3
wait_until = partial(waitkit.wait_until, seconds=30)


def leader_of(client: Client, topic: str, partition: int = 0) -> int:
    """The node that leads a partition, as soon as one does."""

    def found() -> int | None:
        leader_id = client.describe_topic(topic).partitions[partition].leader_id
        return leader_id if leader_id > 0 else None

    leader: int = wait_until(found, f"a leader of {topic}-{partition}")
    return leader


def while_one_leads(client: Client, ask: Callable[[], T]) -> T:
    """What `ask` returns while the same node leads the metadata log in the same epoch; it is asked again otherwise."""

    def steady() -> tuple[T] | None:
        described = client.describe_quorum()
        answer = ask()
        after = client.describe_quorum()
        is_same = (described.leader_id, described.leader_epoch) == (after.leader_id, after.leader_epoch)
        return (answer,) if is_same else None

    (answer,) = wait_until(steady, "one leader throughout a question")
    return answer


def is_everywhere(client: Client, topic: str) -> bool:
    """Whether every voter of partition 0 has the whole log, and all of it is committed."""
    described = client.describe_quorum(topic)
    return {voter.log_end_offset for voter in described.voters} == {described.high_watermark}


def record_offsets(client: Client, topic: str, partition: int = 0) -> list[int]:
    """The offsets of the records that clients appended, up to the linearizable end. Every other offset is a marker of a
    transaction, or one of a leader's own records, which consumers see as an empty batch: the log itself has no gap."""
    end = client.read_offset(topic, [partition])[partition]
    found: list[int] = []
    position = 0
    while position < end:
        fetched = client.fetch_raw(topic, partition, position, limit_offset=end)
        for buffer in fetched.buffers:
            for header in iterate_headers(buffer):
                assert header.base_offset == position, f"{topic}-{partition}: {header.base_offset} follows {position}"
                position = header.end_offset
                if header.record_count and not header.is_control:
                    found += range(header.base_offset, header.end_offset)
    return found
