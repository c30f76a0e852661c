"""Sending one kind of request to several voters until each has answered.

Owns the book-keeping of `roles.Outbox`; knows nothing of what is sent. At most one request per voter is under way, a
failed one is sent again after `retry_backoff_ms`. The driver promises an answer or a `RequestFailed` for each request,
so there are no timeouts here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raftlake.raft.actions import SendRequest
from raftlake.raft.messages import Request
from raftlake.raft.roles import Outbox
from raftlake.raft.state import GroupState
from raftlake.raft.types import NodeId


def send_due(
    group: GroupState, outbox: Outbox, targets: Iterable[NodeId], build: Callable[[NodeId], Request], now_ms: int
) -> None:
    """Send to each of `targets` that has no request under way and is not waiting for its retry time."""
    for voter in targets:
        if voter in outbox.in_flight or outbox.retry_at_ms.get(voter, now_ms) > now_ms:
            continue
        outbox.retry_at_ms.pop(voter, None)
        request = build(voter)
        outbox.in_flight[voter] = request
        group.actions.append(SendRequest(destination=voter, request=request))


def take(outbox: Outbox, voter: NodeId, request: Request) -> bool:
    """An answer or a failure for `request` has come. Return whether `request` is the one under way. A late duplicate is not,
    nor is an equal request of an earlier pre-vote round."""
    if outbox.in_flight.get(voter) is not request:
        return False
    del outbox.in_flight[voter]
    return True


def schedule_retry(group: GroupState, outbox: Outbox, voter: NodeId, now_ms: int) -> None:
    """Send again after the retry backoff. Elections are short, so it does not grow."""
    outbox.failures[voter] = outbox.failures.get(voter, 0) + 1
    outbox.retry_at_ms[voter] = now_ms + group.config.retry_backoff_ms


def schedule_growing_retry(group: GroupState, outbox: Outbox, voter: NodeId, now_ms: int) -> None:
    """Send again after a backoff that doubles up to `retry_backoff_ms_max`: a voter may be down for days."""
    failures = outbox.failures.get(voter, 0)
    outbox.failures[voter] = failures + 1
    backoff_ms = min(group.config.retry_backoff_ms << min(failures, 16), group.config.retry_backoff_ms_max)
    outbox.retry_at_ms[voter] = now_ms + backoff_ms


def next_retry_ms(outbox: Outbox) -> int | None:
    """When the earliest retry is due."""
    retries = outbox.retry_at_ms
    return min(retries.values()) if retries else None
