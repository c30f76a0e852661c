"""Trace lines: the words for what nodes say to one another, and nothing at all when the trace is off."""

from __future__ import annotations

import io
from dataclasses import replace

from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import (
    ControlReply,
    ControlRpc,
    FetchReply,
    FetchRpc,
    FetchSnapshotRpc,
    GroupId,
    PeerMessage,
    ProposeReply,
    ProposeRpc,
    ReadOffsetReply,
    ReadOffsetResult,
    ReadOffsetRpc,
)
from raftlake.raft.events import FailureReason
from raftlake.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchSnapshotRequest, VoteResponse
from raftlake.raft.types import Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.sim.clock import Scheduler
from raftlake.sim.trace import Trace, describe_answer, describe_rpc

GROUP = GroupId("t", 0)
AT = OffsetAndEpoch(Offset(17), Epoch(3))
ONE = NodeId(1)


def test_requests_between_nodes() -> None:
    begin = PeerMessage(GROUP, BeginQuorumEpochRequest(leader_id=ONE, leader_epoch=Epoch(4)))
    assert describe_rpc(ControlRpc(cluster_id=None, messages=(begin, begin))) == (
        "t-0(BeginQuorumEpoch epoch=4) t-0(BeginQuorumEpoch epoch=4)"
    )
    fetch = FetchRpc(cluster_id=None, replica_id=ONE, session_id=7, session_epoch=2, wait_ms_max=500, size_max=1, messages=())
    assert describe_rpc(fetch) == "Fetch session=7/2"
    body = FetchRequest(replica=ReplicaKey(ONE), leader_epoch=Epoch(4), fetch_offset=Offset(17), last_fetched_epoch=Epoch(3))
    one = replace(fetch, messages=(PeerMessage(GROUP, body),))
    assert describe_rpc(one) == "Fetch session=7/2 t-0(Fetch epoch=4 at=17@3 hw=-1)"
    piece = FetchSnapshotRequest(replica=ReplicaKey(ONE), leader_epoch=Epoch(4), snapshot_id=AT, position=6)
    rpc = FetchSnapshotRpc(cluster_id=None, replica_id=ONE, size_max=9, messages=(PeerMessage(GROUP, piece),))
    assert describe_rpc(rpc) == "t-0(FetchSnapshot epoch=4 17@3 byte=6)"
    assert describe_rpc(ReadOffsetRpc(cluster_id=None, read_timestamp_ms=0, groups=(GROUP,))) == "ReadOffset t-0"
    assert describe_rpc(ProposeRpc(batch=b"abc")) == "Propose bytes=3"


def test_answers_between_nodes() -> None:
    assert describe_answer(FailureReason.TIMED_OUT) == "timed out"
    assert describe_answer(ControlReply(error=ErrorCode.INCONSISTENT_CLUSTER_ID)).startswith(
        "ControlReply INCONSISTENT_CLUSTER_ID"
    )
    assert describe_answer(FetchReply(error=ErrorCode.NONE)).startswith("FetchReply NONE")
    refused = VoteResponse(error=ErrorCode.NONE, leader_id=ONE, leader_epoch=Epoch(4), vote_granted=False)
    told = ControlReply(error=ErrorCode.NONE, messages=(PeerMessage(GROUP, refused),))
    assert describe_answer(told) == "ControlReply NONE t-0(Vote rejected leader=1 epoch=4)"
    result = ReadOffsetResult(group=GROUP, error=ErrorCode.NONE, applied_offset=Offset(5), leader_id=ONE, leader_epoch=Epoch(4))
    assert describe_answer(ReadOffsetReply(error=ErrorCode.NONE, results=(result,))) == "ReadOffsetReply t-0:NONE@5"
    assert describe_answer(ProposeReply(error=ErrorCode.NONE, base_offset=Offset(6))) == "ProposeReply NONE base=6"


def test_a_line_has_the_time_who_and_what() -> None:
    scheduler, sink = Scheduler(), io.StringIO()
    scheduler.run_until(1_234)
    Trace(scheduler, sink).write(2, "crash")
    assert sink.getvalue() == "     1234 2 crash\n"


def test_a_trace_without_a_sink_is_off() -> None:
    trace = Trace(Scheduler(), None)
    assert not trace.enabled
    trace.write(1, "nothing")
