"""The trace of a run: one line per event, the same bytes for the same seed.

A line is `<microseconds> <who> <what>`: `12034500 2<3 Vote ...` (node 2 received a Vote request from node 3), `2<-3` an answer
from node 3, `2 Follower epoch=4 leader=3 hw=17 topic-0` a change of a group, `2 crash`, `client ...` a promise to a client.
Knows the peer values of `ports`, nothing else. Costs nothing when it is off: callers test `enabled` first.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    DescribeReply,
    DescribeRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotReply,
    FetchSnapshotRpc,
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
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.trace import describe_message
from raftlake.sim.clock import Scheduler


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
        case ControlRpc(messages=messages):
            return " ".join(f"{message.group}:{describe_body(message.body)}" for message in messages)
        case FetchRpc(session_id=session_id, session_epoch=session_epoch, messages=messages):
            groups = " ".join(f"{message.group}:{describe_body(message.body)}" for message in messages)
            return f"Fetch session={session_id}/{session_epoch} {groups}".rstrip()
        case FetchSnapshotRpc(messages=messages):
            return " ".join(f"{message.group}:{describe_body(message.body)}" for message in messages)
        case ReadOffsetRpc(groups=names):
            return "ReadOffset " + " ".join(str(group) for group in names)
        case ProposeRpc(batch=batch):
            return f"Propose bytes={len(batch)}"
        case DescribeRpc():
            return "DescribeQuorum"
        case VoterRpc(request=request):
            return type(request).__name__
        case _:
            assert_never(rpc)


def describe_answer(answer: PeerReply | FailureReason) -> str:
    match answer:
        case FailureReason():
            return answer.value
        case ControlReply(error=error, messages=messages) | FetchReply(error=error, messages=messages):
            kind = "FetchReply" if isinstance(answer, FetchReply) else "ControlReply"
            return f"{kind} {error.name} " + " ".join(f"{message.group}:{describe_body(message.body)}" for message in messages)
        case FetchSnapshotReply(messages=messages):
            return " ".join(f"{message.group}:{describe_body(message.body)}" for message in messages)
        case ReadOffsetReply(results=results):
            return "ReadOffsetReply " + " ".join(f"{r.group}:{r.error.name}@{r.applied_offset}" for r in results)
        case ProposeReply(error=error, base_offset=base_offset):
            return f"ProposeReply {error.name} base={base_offset}"
        case DescribeReply():
            return "DescribeQuorumReply"
        case VoterReply(response=response):
            return f"{type(response).__name__} {response.error_code.name}"  # type: ignore[attr-defined]
        case _:
            assert_never(answer)


def describe_body(body: Request | Response) -> str:
    """One request or response of one group, in the words of the protocol."""
    match body:
        case VoteRequest():
            kind = "PreVote" if body.pre_vote else "Vote"
            return f"{kind}(epoch={body.epoch} last={body.log_end.offset}@{body.log_end.epoch})"
        case BeginQuorumEpochRequest():
            return f"Begin(epoch={body.leader_epoch})"
        case EndQuorumEpochRequest():
            return f"End(epoch={body.leader_epoch} next={','.join(str(key.id) for key in body.preferred_candidates)})"
        case FetchRequest():
            at = f"{body.fetch_offset}@{body.last_fetched_epoch}"
            return f"Fetch(epoch={body.leader_epoch} at={at} hw={body.high_watermark})"
        case VoteResponse():
            verdict = "granted" if body.vote_granted else "refused"
            return f"{verdict}({body.error.name} epoch={body.leader_epoch} leader={body.leader_id})"
        case FetchResponse():
            return _describe_fetch_response(body)
        case FetchSnapshotRequest() | FetchSnapshotResponse():
            return describe_message(body)
        case _:
            return f"ok({body.error.name} epoch={body.leader_epoch} leader={body.leader_id})"


def _describe_fetch_response(body: FetchResponse) -> str:
    parts = [body.error.name, f"epoch={body.leader_epoch}", f"leader={body.leader_id}", f"hw={body.high_watermark}"]
    if body.diverging is not None:
        parts.append(f"diverging={body.diverging.offset}@{body.diverging.epoch}")
    if body.snapshot_id is not None:
        parts.append(f"snapshot={body.snapshot_id.offset}@{body.snapshot_id.epoch}")
    if body.batches:
        parts.append(f"records={body.batches[0].base_offset}..{body.batches[-1].end_offset}")
    return f"records({' '.join(parts)})"
