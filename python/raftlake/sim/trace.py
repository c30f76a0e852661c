"""The trace of a run: one line per event, the same bytes for the same seed.

A line is `<microseconds> <who> <what>`: `12034500 2<3 topic-0(Vote ...)` (node 2 received a Vote request from node 3), `2<-3`
an answer from node 3, `2 Follower epoch=4 leader=3 hw=17 topic-0` a change of a group, `2 crash`, `client ...` a promise to a
client. `raft.trace` describes the messages of a group; this module describes the requests and answers that carry them. A trace
costs nothing when it is off: callers test `enabled` first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    DescribeReply,
    DescribeRpc,
    EpochEndRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
    LocalStartRpc,
    MarkersReply,
    MarkersRpc,
    OffsetReply,
    PeerMessage,
    PeerReply,
    PeerRpc,
    ProposeReply,
    ProposeRpc,
    ReadOffsetReply,
    ReadOffsetRpc,
    VoterReply,
    VoterRpc,
)
from raftlake.raft.events import FailureReason
from raftlake.raft.trace import describe_message
from raftlake.sim.clock import Scheduler
from raftlake.wire.control import EndMarker


class LineSink(Protocol):
    def write(self, text: str, /) -> object: ...


class Trace:
    """Writes lines to `sink`, or nothing when it is None."""

    def __init__(self, scheduler: Scheduler, sink: LineSink | None) -> None:
        self._scheduler = scheduler
        self._sink = sink
        self.enabled = sink is not None

    def write(self, who: object, what: str) -> None:
        if self._sink is not None:
            self._sink.write(f"{self._scheduler.now_us:>9} {who} {what}\n")


def describe_rpc(rpc: PeerRpc) -> str:
    match rpc:
        case ControlRpc(messages=messages) | FetchSnapshotRpc(messages=messages):
            return _describe_each(messages)
        case FetchRpc(session_id=session_id, session_epoch=session_epoch, messages=messages):
            return f"Fetch session={session_id}/{session_epoch} {_describe_each(messages)}".rstrip()
        case ReadOffsetRpc(groups=names):
            return "ReadOffset " + " ".join(str(group) for group in names)
        case ProposeRpc(batch=batch):
            return f"Propose bytes={len(batch)}"
        case DescribeRpc():
            return "DescribeQuorum"
        case LocalStartRpc(group=group, timestamp=timestamp, leader_epoch=epoch):
            return f"ListOffsets {group} timestamp={timestamp} epoch={epoch}"
        case EpochEndRpc(group=group, epoch=asked, leader_epoch=epoch):
            return f"OffsetForLeaderEpoch {group} of={asked} epoch={epoch}"
        case MarkersRpc(markers=markers):
            return "WriteMarkers " + " ".join(f"{asked.group}:{_describe_marker(asked.marker)}" for asked in markers)
        case VoterRpc(request=request):
            return type(request).__name__
        case _:
            assert_never(rpc)


def describe_answer(answer: PeerReply | FailureReason) -> str:
    match answer:
        case FailureReason():
            return answer.value
        case ControlReply(error=error, messages=messages) | FetchReply(error=error, messages=messages):
            return f"{type(answer).__name__} {error.name} {_describe_each(messages)}"
        case FetchSnapshotReply(messages=messages):
            return _describe_each(messages)
        case ReadOffsetReply(results=results):
            return "ReadOffsetReply " + " ".join(f"{r.group}:{r.error.name}@{r.applied_offset}" for r in results)
        case ProposeReply(error=error, base_offset=base_offset):
            return f"ProposeReply {error.name} base={base_offset}"
        case DescribeReply():
            return "DescribeQuorumReply"
        case OffsetReply(error=error, position=position):
            return f"OffsetReply {error.name} {position.offset}@{position.epoch}"
        case MarkersReply(error=error, errors=errors):
            return f"WriteMarkersReply {error.name} " + " ".join(each.name for each in errors)
        case VoterReply(response=response):
            return f"{type(response).__name__} {response.error_code.name}"  # type: ignore[attr-defined]
        case _:
            assert_never(answer)


def _describe_marker(marker: EndMarker) -> str:
    return f"{marker.producer_id}/{marker.epoch} {'commit' if marker.commit else 'abort'}"


def _describe_each(messages: Iterable[PeerMessage]) -> str:
    """The messages of one request or answer, each with its group, in the words of `raft.trace`."""
    return " ".join(f"{message.group}({describe_message(message.body)})" for message in messages)
