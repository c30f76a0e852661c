"""The follower's side of replication: one Fetch session with each peer that leads any of our groups.

A round goes out when no round is under way and no group is still writing what the last answer brought: the next round then
carries the synced positions of all of them, so one sync and one RPC serve every group the two nodes share. One that leaves
out a group which is to fetch from this peer again any moment is held by the peer only shortly: that group cannot ask before
the round is over.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import CorruptBatch, ErrorCode
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId, PeerMessage, PeerReply
from raftlake.raft.events import FailureReason, LeaderConfirmed, RequestFailed, ResponseReceived
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from raftlake.raft.types import NodeId
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.partition.partition import Partition, split_batches
from raftlake.replica.replication.fetch_sessions import NEVER_MS
from raftlake.wire.batches import BatchHeader, iterate_headers, validate
from raftlake.wire.sync_report import SyncReport

#: How long a round that leaves out an absent group is held when there is nothing to say.
ABSENT_WAIT_MS = 20


class PeerFetcher:
    """All fetching from one peer. `mark` is told when the fetcher may be able to send its next round, `on_report` what the peer
    reports."""

    def __init__(
        self,
        engine: Engine,
        disk: DiskWatch,
        peer: NodeId,
        mark: Callable[[PeerFetcher], None],
        on_report: Callable[[NodeId, SyncReport], None],
    ) -> None:
        self._engine = engine
        self._on_report = on_report
        self._disk = disk
        self._peer = peer
        self._mark = mark
        self._session_id = 0
        self._session_epoch = 0
        #: New positions to send with the next round.
        self._wanted: dict[GroupId, FetchRequest] = {}
        #: What the peer holds parked for us.
        self._parked: dict[GroupId, FetchRequest] = {}
        #: What it still holds and may not count any more: until a round has told it, also of a group that is wanted meanwhile.
        self._forgotten: dict[GroupId, None] = {}
        #: Groups whose request went out with a round that has not been answered: earlier answers say nothing about them.
        self._unproven: dict[GroupId, None] = {}
        #: Groups that got records with the last answer and have not asked for more yet.
        self._writing: dict[GroupId, None] = {}
        #: Groups that follow the peer and have neither asked for more nor something to write: they wait for a retry, for votes
        #: or for a snapshot.
        self._absent: dict[GroupId, None] = {}
        #: Groups whose cores do not hear a leader: not yet, or not since a connection was lost. A round without news of a group
        #: tells its core nothing, and no deadline asks for the leader of an observer.
        self._unheard: dict[GroupId, None] = {}
        self._under_way = False
        #: When the peer last answered a round, `NEVER_MS` before.
        self.last_answer_ms = NEVER_MS

    # --- what the cores want ---

    def want(self, group: GroupId, request: FetchRequest) -> None:
        self._writing.pop(group, None)
        self._absent.pop(group, None)
        self._wanted[group] = request
        if not self._engine.partitions[group].core.hears_leader:
            self._unheard[group] = None
        self._mark(self)

    def forget(self, group: GroupId) -> None:
        """The group no longer fetches from this peer."""
        self._wanted.pop(group, None)
        self._absent.pop(group, None)
        self._unheard.pop(group, None)
        self.written(group)
        if self._parked.pop(group, None) is not None:
            self._forgotten[group] = None

    def lose(self, group: GroupId) -> None:
        """The group follows the peer, and its core was told that a connection to the peer is gone."""
        self._unheard[group] = None

    def confirm(self, group: GroupId) -> bool:
        """Tell the core when the leader last completed a round in which this group was parked."""
        partition = self._engine.partitions[group]
        is_asked_anew = group in self._wanted or group in self._unproven
        if group not in self._parked or is_asked_anew or self.last_answer_ms < 0:
            return False
        self._engine.step(partition, LeaderConfirmed(leader_id=self._peer, at_ms=self.last_answer_ms))
        return True

    # --- rounds ---

    def send_round(self) -> None:
        """End of turn: send the next round unless it would leave out a group that is still writing."""
        if self._under_way or self._writing or not (self._wanted or self._parked):
            return
        self._unproven.update(dict.fromkeys(self._wanted))
        if self._session_id == 0:
            # A new session lists everything.
            self._wanted = {**self._parked, **self._wanted}
            self._parked.clear()
            self._forgotten.clear()
        wanted, self._wanted = self._wanted, {}
        forgotten, self._forgotten = self._forgotten, {}
        self._parked.update(wanted)
        config = self._engine.config
        rpc = FetchRpc(
            cluster_id=self._engine.cluster_id,
            replica_id=config.node_id,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            wait_ms_max=min(ABSENT_WAIT_MS, config.replica_fetch_wait_ms) if self._absent else config.replica_fetch_wait_ms,
            size_max=config.replica_fetch_bytes_max,
            messages=tuple(PeerMessage(group, request) for group, request in wanted.items()),
            forgotten=tuple(group for group in forgotten if group not in wanted),
            disk_is_low=self._disk.is_low,
        )
        self._under_way = True
        self._engine.network.send(self._peer, rpc, self._on_reply)

    def _on_reply(self, reply: PeerReply | FailureReason) -> None:
        self._under_way = False
        engine = self._engine
        engine.begin_input()
        if not isinstance(reply, FetchReply) or reply.error is not ErrorCode.NONE:
            reason = reply if isinstance(reply, FailureReason) else FailureReason.DISCONNECTED
            broken_session = isinstance(reply, FetchReply) and reply.error in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
            self._restart(reason, keep=broken_session)
            return
        self._session_id = reply.session_id
        # A peer that keeps no sessions (Kafka's own Raft) is asked for a new one each time.
        self._session_epoch = self._session_epoch + 1 if reply.session_id else 0
        self.last_answer_ms = engine.now_ms
        self._unproven.clear()
        if reply.sync_report is not None:
            self._on_report(self._peer, reply.sync_report)
        for message in reply.messages:
            assert isinstance(message.body, FetchResponse)
            self._deliver(message.group, message.body)
        if self._unheard:
            self._confirm_unheard()
        self._mark(self)

    def _confirm_unheard(self) -> None:
        for group in list(self._unheard):
            partition = self._engine.partitions.get(group)
            if partition is not None and not partition.core.hears_leader:
                self.confirm(group)
            if partition is None or partition.core.hears_leader:
                self._unheard.pop(group, None)

    def _deliver(self, group: GroupId, response: FetchResponse) -> None:
        request = self._parked.pop(group, None)
        partition = self._engine.partitions.get(group)
        if request is None or partition is None:
            return
        if group not in self._wanted:
            # Until it asks for more, at the end of the turn as a rule.
            self._absent[group] = None
        log_end = partition.core.log_end
        partition.note_leader_end(response.leader_epoch, response.leader_log_end)
        if response.batches:
            response = cut_into_batches(response)
            if not response.batches:
                # Not one intact batch came, and the same would come at once; the leader looks at what is asked for twice.
                self._engine.step(partition, RequestFailed(peer=self._peer, request=request, reason=FailureReason.TIMED_OUT))
                return
        self._engine.step(partition, ResponseReceived(source=self._peer, request=request, response=response))
        if partition.core.log_end > log_end and group not in self._wanted:
            self._writing[group] = None
            self._absent.pop(group, None)

    def _restart(self, reason: FailureReason, *, keep: bool) -> None:
        """The session is gone. Where it just broke, list everything anew; else let the cores decide when to ask again."""
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        if keep:
            self._mark(self)
            return
        failed = {**self._parked, **self._wanted}
        self._unproven.clear()
        self._parked.clear()
        self._wanted.clear()
        for group, request in failed.items():
            partition = self._engine.partitions.get(group)
            if partition is not None:
                self._absent[group] = None
                self._engine.step(partition, RequestFailed(peer=self._peer, request=request, reason=reason))
        self._mark(self)

    def on_role(self, group: GroupId, leader_id: NodeId) -> None:
        """The group has another role, and perhaps another leader. One that campaigns asks for nothing when it has written, so
        no round may wait for it; unless it wins, it comes back to this peer."""
        if leader_id != self._peer:
            self.forget(group)
        else:
            self.stop_waiting(group)

    def stop_waiting(self, group: GroupId) -> None:
        """The group asks for nothing behind what it has written, and comes back to this peer later."""
        if group in self._writing:
            self._absent[group] = None
            self.written(group)

    def written(self, group: GroupId) -> None:
        """The group is not waited for any more: its next fetch goes elsewhere, or its log was cut."""
        if group in self._writing:
            del self._writing[group]
            self._mark(self)


class Fetchers:
    """The fetchers of all peers, and the groups' way to them."""

    def __init__(self, engine: Engine, disk: DiskWatch) -> None:
        self._engine = engine
        self._disk = disk
        self._fetchers: dict[NodeId, PeerFetcher] = {}
        #: Those that may be able to send their next round.
        self._to_send: dict[PeerFetcher, None] = {}
        #: Told what a peer reports.
        self.on_sync_report: Callable[[NodeId, SyncReport], None] = lambda _peer, _report: None

    def fetch(self, peer: NodeId, group: GroupId, request: FetchRequest) -> None:
        """The group fetches from `peer` now, and from no other node."""
        fetcher = self._fetchers.get(peer)
        if self._disk.is_full:
            # What came could not be written. The core asks again after a while.
            if fetcher is not None:
                fetcher.stop_waiting(group)
            failed = RequestFailed(peer=peer, request=request, reason=FailureReason.TIMED_OUT)
            self._engine.step(self._engine.partitions[group], failed)
            return
        if fetcher is None:
            fetcher = self._fetchers[peer] = PeerFetcher(self._engine, self._disk, peer, self._mark, self._report)
        for other in self._fetchers.values():
            if other is not fetcher:
                other.forget(group)
        fetcher.want(group, request)

    def on_role(self, group: GroupId, leader_id: NodeId) -> None:
        """The leader of a group is fetched from, and no other node."""
        for fetcher in self._fetchers.values():
            fetcher.on_role(group, leader_id)

    def forget(self, group: GroupId) -> None:
        """The group is no longer hosted."""
        for fetcher in self._fetchers.values():
            fetcher.forget(group)

    def confirm(self, partition: Partition) -> None:
        """Tell a group that follows when its leader last completed a round in which the group was parked."""
        fetcher = self._fetchers.get(partition.core.leader_id)
        if fetcher is not None:
            fetcher.confirm(partition.group)

    def lose(self, peer: NodeId, group: GroupId) -> None:
        """The core of a group that follows `peer` was told that a connection to it is gone."""
        fetcher = self._fetchers.get(peer)
        if fetcher is not None:
            fetcher.lose(group)

    def heard_ms(self, peer: NodeId) -> int:
        """When a peer last answered a round, `NEVER_MS` where it has not."""
        fetcher = self._fetchers.get(peer)
        return NEVER_MS if fetcher is None else fetcher.last_answer_ms

    def _report(self, peer: NodeId, report: SyncReport) -> None:
        self.on_sync_report(peer, report)

    def _mark(self, fetcher: PeerFetcher) -> None:
        self._to_send[fetcher] = None
        self._engine.request_turn()

    @property
    def has_rounds(self) -> bool:
        """A fetcher may be able to send its next round."""
        return bool(self._to_send)

    def send_rounds(self) -> None:
        """End of turn."""
        fetchers, self._to_send = self._to_send, {}
        for fetcher in fetchers:
            fetcher.send_round()


def cut_into_batches(response: FetchResponse) -> FetchResponse:
    """The response with one value per record batch; damaged bytes and what follows them are left out (KAFKA-18723)."""
    batches: list[FetchedBatch] = []
    for part in response.batches:
        view = memoryview(part.payload)
        try:
            headers = validate(view, is_from_log=True)
        except CorruptBatch:
            headers = _intact_prefix(view)
        batches.extend(split_batches(view, headers))
    return FetchResponse(
        error=response.error,
        leader_id=response.leader_id,
        leader_epoch=response.leader_epoch,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging=response.diverging,
        snapshot_id=response.snapshot_id,
        batches=tuple(batches),
        leader_log_end=response.leader_log_end,
    )


def _intact_prefix(view: memoryview) -> list[BatchHeader]:
    intact: list[BatchHeader] = []
    position = 0
    try:
        for header in iterate_headers(view):
            validate(view[position : position + header.size], is_from_log=True)
            intact.append(header)
            position += header.size
    except CorruptBatch:
        return intact
    return intact
