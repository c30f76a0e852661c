"""Events and actions as one-line text, for debug logs and golden traces.

Legend: `epoch=4` an epoch, `last=17@3` a log that ends at offset 17 (exclusive) with a record of epoch 3, `leader=-` no
known leader, `hw` the high watermark, errors by their Kafka names. The text is for people and tests, never parsed.
"""

from __future__ import annotations

from raftlake.errors import ErrorCode
from raftlake.raft import actions as do
from raftlake.raft import events as on
from raftlake.raft.actions import Action
from raftlake.raft.events import Event
from raftlake.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raftlake.raft.types import NO_LEADER, ElectionState, NodeId, OffsetAndEpoch


def describe(item: Action | Event) -> str:
    """One line, without a trailing newline, the same for equal values."""
    text = _describe_action(item) or _describe_event(item)
    return text if text is not None else type(item).__name__


def describe_message(message: Request | Response) -> str:
    """One RPC body."""
    match message:
        case VoteRequest():
            kind = "pre_vote " if message.pre_vote else ""
            return f"Vote {kind}epoch={message.epoch} last={_position(message.log_end)}"
        case VoteResponse():
            verdict = "granted" if message.vote_granted else "rejected"
            return f"Vote {verdict} {_view(message.error, message.leader_id, message.leader_epoch)}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch={message.leader_epoch}"
        case BeginQuorumEpochResponse():
            return f"BeginQuorumEpoch {_view(message.error, message.leader_id, message.leader_epoch)}"
        case EndQuorumEpochRequest():
            successors = ",".join(str(candidate.id) for candidate in message.preferred_candidates) or "-"
            return f"EndQuorumEpoch epoch={message.leader_epoch} successors={successors}"
        case EndQuorumEpochResponse():
            return f"EndQuorumEpoch {_view(message.error, message.leader_id, message.leader_epoch)}"
        case FetchRequest():
            position = f"{message.fetch_offset}@{message.last_fetched_epoch}"
            return f"Fetch epoch={message.leader_epoch} at={position} hw={message.high_watermark}"
        case FetchResponse():
            text = f"Fetch {_view(message.error, message.leader_id, message.leader_epoch)} hw={message.high_watermark}"
            if message.batches:
                text += f" records={message.batches[0].base_offset}..{message.batches[-1].end_offset}"
            return text + _detour(message.diverging, message.snapshot_id)
        case FetchSnapshotRequest():
            return f"FetchSnapshot epoch={message.leader_epoch} {_position(message.snapshot_id)} byte={message.position}"
        case FetchSnapshotResponse():
            view = _view(message.error, message.leader_id, message.leader_epoch)
            if message.error is not ErrorCode.NONE:
                return f"FetchSnapshot {view}"
            piece = f"bytes={message.position}..{message.position + len(message.data)} of {message.size}"
            return f"FetchSnapshot {view} {_position(message.snapshot_id)} {piece}"


def _describe_action(action: object) -> str | None:
    match action:
        case do.SaveElectionState():
            return f"save {_election(action.state)}"
        case do.AppendRecords():
            return f"append {action.base_offset}..{action.end_offset} epoch={action.epoch}"
        case do.AppendFetched():
            return f"append fetched {action.batches[0].base_offset}..{action.batches[-1].end_offset}"
        case do.AppendLeaderChange():
            text = f"append LeaderChange at={action.offset} epoch={action.epoch} votes={_ids(action.granting_voters)}"
            return text if action.initial_voters is None else f"{text} voters={_ids(action.initial_voters.ids)}"
        case do.AppendVoters():
            upgrade = "" if action.kraft_version is None else f" kraft.version={action.kraft_version}"
            return f"append voters {_ids(action.voters.ids)} at={action.offset} epoch={action.epoch}{upgrade}"
        case do.AnswerVoterChange():
            view = _view(action.error, action.leader_id, action.leader_epoch)
            return f"answer voter change #{action.request_id} {view}"
        case do.TruncateTo():
            return f"truncate to {action.end_offset}"
        case do.ResetLog():
            return f"reset log to {_position(action.start)}"
        case do.MendReplica():
            return "whole again"
        case do.SendRequest():
            return f"->{action.destination} {describe_message(action.request)}"
        case do.Respond():
            return f"answer #{action.request_id} {describe_message(action.response)}"
        case do.AnswerFetch():
            text = f"answer fetch of {action.replica_id} {_view(action.error, action.leader_id, action.leader_epoch)}"
            return text + f" hw={action.high_watermark}" + _detour(action.diverging, action.snapshot_id)
        case do.AnswerFetchSnapshot():
            view = _view(action.error, action.leader_id, action.leader_epoch)
            return f"answer #{action.request_id} FetchSnapshot {_position(action.request.snapshot_id)} {view}"
        case do.WriteSnapshot():
            return f"write snapshot {_position(action.snapshot_id)} at byte {action.position}"
        case do.FinishSnapshot():
            return f"finish snapshot {_position(action.snapshot_id)}"
        case do.AbandonSnapshot():
            return f"abandon snapshot {_position(action.snapshot_id)}"
        case do.BuildRemoteLogAux():
            return f"build remote log aux leader={action.leader_id} epoch={action.leader_epoch}"
        case do.AbandonRemoteLogAux():
            return "abandon remote log aux"
        case do.ReleaseFetchRounds():
            return "release fetch rounds"
        case do.AdvanceHighWatermark():
            return f"high watermark {action.high_watermark}"
        case do.AdoptLogStart():
            return f"adopt log start {action.log_start}"
        case do.AnswerRead():
            view = _view(action.error, action.leader_id, action.leader_epoch)
            return f"answer read #{action.read_id} offset={action.offset} {view}"
        case do.ReportRefusedEpoch():
            return f"refused epoch={action.epoch} of {action.source}"
        case do.ReportRole():
            return f"{action.role} epoch={action.epoch} leader={_node(action.leader_id)} ({action.reason})"
        case _:
            return None


def _describe_event(event: object) -> str | None:
    match event:
        case on.RequestReceived():
            return f"request #{event.request_id} {describe_message(event.request)}"
        case on.FetchRequestReceived():
            return f"fetch of {event.request.replica.id} {describe_message(event.request)} follows={event.follows}"
        case on.ReplicaConfirmed():
            return f"replica {event.replica_id} confirmed at={event.at_ms} follows={event.follows} epoch={event.leader_epoch}"
        case on.LeaderConfirmed():
            return f"leader {event.leader_id} confirmed at={event.at_ms}"
        case on.ResponseReceived():
            return f"response of {event.source} {describe_message(event.response)}"
        case on.RequestFailed():
            return f"request to {event.peer} {event.reason.value}: {describe_message(event.request)}"
        case on.PeerUnreachable():
            return f"peer {event.peer} unreachable"
        case on.AppendRequested():
            return f"append requested of {sum(event.record_counts)} records"
        case on.RecordsFlushed():
            return f"flushed to {event.end_offset} generation={event.generation}"
        case on.ReadRequested():
            return f"read #{event.read_id} sequence={event.sequence}"
        case on.LogStartAdvanced():
            return f"log start {event.log_start_offset}"
        case on.SnapshotTaken():
            return f"snapshot {_position(event.snapshot_id)} taken"
        case on.SnapshotReceived():
            return f"snapshot {_position(event.snapshot_id)} received{'' if event.is_intact else ' damaged'}"
        case on.HistoryTiered():
            return f"tiered {event.start_offset}..{event.end_offset}"
        case on.RemoteLogAuxBuilt():
            return f"remote log aux built {_position(event.snapshot_id)} epoch={event.leader_epoch}"
        case on.RemoteLogAuxFailed():
            return f"remote log aux failed epoch={event.leader_epoch}{_verdict(event)}"
        case on.VoterChangeRequested():
            change = event.change
            return f"voter change #{event.request_id} {type(change).__name__} {change.voter.id}"
        case on.Started() | on.DeadlineReached() | on.CampaignRequested() | on.ResignRequested():
            return type(event).__name__
        case _:
            return None


def _verdict(event: on.RemoteLogAuxFailed) -> str:
    return " refused" if event.is_refused else " unusable" if event.is_unusable else ""


def _view(error: ErrorCode, leader_id: NodeId, epoch: int) -> str:
    prefix = "" if error is ErrorCode.NONE else f"{error.name} "
    return f"{prefix}leader={_node(leader_id)} epoch={epoch}"


def _detour(diverging: OffsetAndEpoch | None, snapshot_id: OffsetAndEpoch | None) -> str:
    text = "" if diverging is None else f" diverging={_position(diverging)}"
    return text if snapshot_id is None else f"{text} begins={_position(snapshot_id)}"


def _election(state: ElectionState) -> str:
    voted = "-" if state.voted_key is None else str(state.voted_key.id)
    leader = "-" if state.leader_id is None else str(state.leader_id)
    return f"epoch={state.epoch} leader={leader} voted={voted}"


def _position(position: OffsetAndEpoch) -> str:
    return f"{position.offset}@{position.epoch}"


def _node(node_id: NodeId) -> str:
    return "-" if node_id == NO_LEADER else str(node_id)


def _ids(node_ids: tuple[NodeId, ...]) -> str:
    return ",".join(map(str, node_ids))
