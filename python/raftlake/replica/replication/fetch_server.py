"""The leader's side of replication: Fetch rounds of other replicas, as incremental sessions (KIP-227) over all groups.

A round is one FetchRpc; it is answered when any of its groups has something to say, when a read needs proof of
leadership, or after its wait. Groups whose position did not change are not in the round: their
fetch stays parked in the core, and their followers' liveness is passed on only when a group asks for it (`confirm`), so
an idle group costs nothing per round.

News of a higher high watermark alone waits up to `NodeConfig.replica_fetch_linger_ms` for records to travel with (KIP-1166
answers at once, which doubles the rounds of a busy group); a read that needs proof takes it along at once. Records go at once
to as many voters as make a majority, to the others a little later (`pacing`).

The causal clock: `answer_sequence` counts the rounds answered by this node. A round that continues a session was sent
after the answer to the round before it had arrived, so its `follows` is that answer's number (see
`events.FetchRequestReceived`).
"""

from __future__ import annotations

from collections.abc import Callable

from raftlake.errors import ErrorCode
from raftlake.ports.driver import PeerConnection
from raftlake.ports.peer_rpcs import FetchReply, FetchRpc, GroupId, PeerMessage
from raftlake.raft.actions import AnswerFetch, AppendRecords
from raftlake.raft.events import FetchRequestReceived
from raftlake.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from raftlake.raft.types import NO_LEADER, UNKNOWN_OFFSET, Epoch, NodeId, Offset
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.engine import Engine
from raftlake.replica.names import Names
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.replication.fetch_sessions import SESSION_ID_START_MAX, FetchSessions, Round, Session
from raftlake.replica.replication.pacing import Pacing
from raftlake.replica.replication.proofs import AwaitedProofs
from raftlake.replica.replication.recent_appends import RecentAppends
from raftlake.wire.sync_report import SyncReport

#: Answers that bring nothing are held this long: Kafka's own replicas ask again without any pause.
LEADERLESS_WAIT_MS = 20
#: However long a replica would wait.
ROUND_WAIT_MS_MAX = 60_000


class FetchServer:
    def __init__(self, engine: Engine, names: Names, disk: DiskWatch, findings: Findings, proofs: AwaitedProofs) -> None:
        self._engine = engine
        self._names = names
        self._disk = disk
        self._findings = findings
        self._proofs = proofs
        # Random, so that a session of this process is never taken for one of the process before it.
        self.sessions = FetchSessions(engine.rng.randrange(SESSION_ID_START_MAX), engine.config.voters, self._drop)
        self.answer_sequence = 0
        self._recent = RecentAppends()
        self._pacing = Pacing(engine.config.replica_fetch_pause_ms)
        #: What every session is told once (`in_sync`).
        self.sync_report = SyncReport()
        #: Sessions whose round is complete; answered at the end of the turn.
        self._complete: dict[Session, None] = {}

    # --- rounds in ---

    def receive(self, connection: PeerConnection, rpc: FetchRpc, reply: Callable[[FetchReply], None]) -> None:
        """Take one round. The top-level checks (cluster id) are done."""
        session = self.sessions.of_round(connection, rpc)
        if session is None:
            reply(FetchReply(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
            return
        if session.round is not None:
            self._answer(session)
        now_ms = self._engine.now_ms
        self._disk.heard(session.replica_id, is_low=rpc.disk_is_low)
        session.last_round_ms = now_ms
        self._pacing.asked(session.replica_id, now_ms)
        session.round = Round(rpc, connection, reply)
        for group in rpc.forgotten:
            session.parked.pop(group, None)
            session.ready.pop(group, None)
        for message in rpc.messages:
            assert isinstance(message.body, FetchRequest)
            self._take_over(session, message.group)
            session.parked[message.group] = message.body
            session.ready.pop(message.group, None)
            session.held.pop(message.group, None)
            self._step(session, message.group, message.body)
        for group in self._proofs.groups():
            if group in session.parked:
                self.confirm(group, session.replica_id)
        if session.release_next or rpc.wait_ms_max <= 0:
            self._finish(session)
        elif session.ready:
            self._send_news_soon(session)
        wait_ms = min(rpc.wait_ms_max, LEADERLESS_WAIT_MS if session.held else ROUND_WAIT_MS_MAX)
        round_ = session.round
        round_.timer = self._engine.timers.schedule(now_ms + wait_ms, lambda: self._expire(session, round_))

    def _drop(self, session: Session) -> None:
        """A session ended, mostly for a new one on its connection: let go of its round, which is not read any more."""
        if session.round is not None:
            round_, session.round = session.round, None
            if round_.timer is not None:
                round_.timer.cancel()
            round_.reply(FetchReply(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        session.ready.clear()
        if not self.sessions.of(session.replica_id):
            self._pacing.forget(session.replica_id)

    def _take_over(self, session: Session, group: GroupId) -> None:
        """Of the sessions in which a replica has asked for a group the last one counts. Where the round is a late one, its
        sender waits in the other, and is told to ask there again; not at once, for two processes may go by one number."""
        other = self.sessions.waiting(session.replica_id, group)
        partition = self._engine.partitions.get(group)
        if other is None or other is session or partition is None:
            return
        # The core has perhaps not answered that request: nothing may be said about its position.
        other.held[group] = AnswerFetch(
            replica_id=session.replica_id,
            request=other.parked.pop(group),
            error=ErrorCode.REQUEST_TIMED_OUT,
            leader_id=partition.core.leader_id,
            leader_epoch=partition.core.epoch,
            high_watermark=UNKNOWN_OFFSET,
        )
        self._shorten(other)

    def _step(self, session: Session, group: GroupId, request: FetchRequest) -> None:
        partition = self._engine.partitions.get(group)
        if partition is None:
            self._refuse(session, session.parked.pop(group), group, self._names.why_unknown(group))
            return
        self._engine.step(partition, FetchRequestReceived(request=request, follows=session.follows))

    def _refuse(self, session: Session, request: FetchRequest, group: GroupId, error: ErrorCode) -> None:
        """No core answers the request: say so, not at once."""
        who = session.replica_id
        session.held[group] = AnswerFetch(
            replica_id=who, request=request, error=error, leader_id=NO_LEADER, leader_epoch=Epoch(-1), high_watermark=Offset(-1)
        )

    def begun_anew(self, group: GroupId) -> None:
        """The group has another core, which has heard of no fetch: replicas that wait have to ask again."""
        for session in self.sessions.all():
            ready = session.ready.pop(group, None)
            request = session.parked.pop(group, None) or (None if ready is None else ready.request)
            if request is not None:
                self._refuse(session, request, group, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._shorten(session)

    # --- what the cores say ---

    def answer(self, group: GroupId, action: AnswerFetch) -> None:
        """A core completed the parked fetch of a replica."""
        session = self.sessions.waiting(action.replica_id, group)
        # It may have asked anew since, here or in another session.
        if session is None or session.parked[group] is not action.request:
            return
        del session.parked[group]
        if action.error is not ErrorCode.NONE and action.leader_id < 0:
            session.held[group] = action
            self._shorten(session)
            return
        session.ready[group] = action
        if not _is_ordinary(action):
            self._release(session)
        elif action.request.fetch_offset == self._engine.partitions[group].log.end_offset:
            self._send_news_soon(session)
        else:
            self._bring_records(session, group)

    def appended(self, group: GroupId, action: AppendRecords) -> None:
        """Records were appended here: take them to the replicas whose fetch the core has let go for a high watermark alone."""
        pending: list[PendingAppend] = action.payload  # type: ignore[assignment]
        end_offset = self._engine.partitions[group].log.end_offset
        self._recent.add(group, action.base_offset, end_offset, action.epoch, [each.buffer for each in pending])
        for session in self.sessions.all():
            if group in session.ready:
                self._bring_records(session, group)

    def about_to_compact(self, group: GroupId, until: Offset) -> None:
        """Records of a group below `until` may go from its log."""
        self._recent.forget(group, until)

    def _bring_records(self, session: Session, group: GroupId) -> None:
        """The group has records for the replica: at once if a majority needs it, else when it is due."""
        core = self._engine.partitions[group].core
        others_needed = core.voters.majority - core.is_voter
        if self._pacing.is_needed(session.replica_id, core.voters, others_needed):
            self._release(session)
        else:
            if session.records_since_ms is None:
                session.records_since_ms = self._engine.now_ms
            self._release_when_due(session)

    def _send_news_soon(self, session: Session) -> None:
        """The replica has all records; there is a higher high watermark for it."""
        if session.news_due_ms is None:
            session.news_due_ms = self._engine.now_ms + self._engine.config.replica_fetch_linger_ms
            self._linger_until(session, session.news_due_ms)

    def _release_when_due(self, session: Session) -> None:
        due_ms = self._pacing.due_ms(session.replica_id, self._engine.now_ms)
        if session.news_due_ms is not None and session.news_due_ms < due_ms:
            due_ms = session.news_due_ms
        if due_ms > self._engine.now_ms:
            self._linger_until(session, due_ms)
        else:
            self._release(session)

    def _linger_until(self, session: Session, at_ms: int) -> None:
        if session.linger is not None:
            if session.linger.at_ms <= at_ms:
                return
            session.linger.cancel()
        session.linger = self._engine.timers.schedule(at_ms, lambda: self._end_linger(session))

    def _end_linger(self, session: Session) -> None:
        session.linger = None
        if not session.ready:
            session.news_due_ms = None
            return
        if self._steps_in(session):
            self._pacing.prefer(session.replica_id)
        self._release_when_due(session)

    def _steps_in(self, session: Session) -> bool:
        """Whether a majority waits for the replica, since the preferred ones have had time enough."""
        since_ms = session.records_since_ms
        return (
            since_ms is not None
            and self._pacing.is_overdue(session.replica_id, since_ms, self._engine.now_ms)
            and any(self._waits_for_majority(group, action) for group, action in session.ready.items())
        )

    def _waits_for_majority(self, group: GroupId, action: AnswerFetch) -> bool:
        """Whether the first record that the replica lacks is not committed yet, though others were brought it before."""
        partition = self._engine.partitions.get(group)
        return (
            partition is not None
            and action.replica_id in partition.core.voters
            and partition.core.high_watermark <= action.request.fetch_offset < partition.core.log_end
        )

    def _release(self, session: Session) -> None:
        """Answer the session's round at the end of this turn, or its next one as soon as it arrives."""
        if session.round is not None:
            self._finish(session)
        else:
            session.release_next = True

    def _finish(self, session: Session) -> None:
        """Answer the session's round at the end of the turn."""
        self._complete[session] = None
        self._engine.request_turn()

    def _shorten(self, session: Session) -> None:
        round_ = session.round
        if round_ is None or round_.timer is None:
            return
        at_ms = self._engine.now_ms + LEADERLESS_WAIT_MS
        if round_.timer.at_ms > at_ms:
            round_.timer.cancel()
            round_.timer = self._engine.timers.schedule(at_ms, lambda: self._expire(session, round_))

    def release(self) -> None:
        """A read needs proof: answer the rounds that are held, and the next ones of replicas whose rounds are on their way."""
        for session in self.sessions.all():
            self._release(session)

    def release_replica(self, replica_id: NodeId) -> None:
        """Answer the replica's rounds now, or its next ones as soon as they arrive."""
        for session in self.sessions.of(replica_id):
            self._release(session)

    def hasten(self, group: GroupId, replica_id: NodeId) -> None:
        """The replica waits for what is committed of the group by now: it is brought that without a linger or a pause."""
        # Behind this step, when the core has said what it brings.
        self._engine.timers.schedule(self._engine.now_ms, lambda: self._hasten(group, replica_id))

    def _hasten(self, group: GroupId, replica_id: NodeId) -> None:
        for session in self.sessions.of(replica_id):
            # One that is parked has all.
            if group not in session.parked:
                self._release(session)

    def confirm(self, group: GroupId, replica_id: NodeId | None = None) -> None:
        """Tell the core of `group` when its replicas (or one) last completed a round that covers it."""
        partition = self._engine.partitions[group]
        for session in self.sessions.all():
            confirmed = session.confirms(group)
            if confirmed is not None and replica_id in (None, session.replica_id):
                self._engine.step(partition, confirmed)

    # --- rounds out ---

    @property
    def has_answers(self) -> bool:
        """Rounds are complete and wait for the end of a turn."""
        return bool(self._complete)

    def send_answers(self) -> None:
        """End of turn: answer every round that is complete."""
        if not self._complete:
            return
        complete, self._complete = self._complete, {}
        for session in complete:
            if session.round is not None:
                self._answer(session)

    def _expire(self, session: Session, round_: Round) -> None:
        if session.round is round_:
            self._finish(session)

    def _answer(self, session: Session) -> None:
        round_, session.round = session.round, None
        assert round_ is not None
        if round_.timer is not None:
            round_.timer.cancel()
        session.release_next = False
        session.news_due_ms = session.records_since_ms = None
        self._pacing.answered(session.replica_id, self._engine.now_ms)
        budget = round_.rpc.size_max
        messages: list[PeerMessage] = []
        ready, session.ready = session.ready, {}
        held, session.held = session.held, {}
        for group, action in held.items():
            messages.append(PeerMessage(group, self._response(session, group, action, 0)[0]))
        for group, action in ready.items():
            if budget <= 0:
                session.ready[group] = action
                session.release_next = True
                continue
            response, size = self._response(session, group, action, budget)
            budget -= size
            messages.append(PeerMessage(group, response))
        if session.session_id == 0:
            messages += self._unchanged(session, round_)
        self.answer_sequence += 1
        session.answered_sequence = self.answer_sequence
        round_.connection.answer_sequence = self.answer_sequence
        told, report = tuple(messages), session.news_of(self.sync_report)
        round_.reply(FetchReply(error=ErrorCode.NONE, session_id=session.session_id, messages=told, sync_report=report))

    def _unchanged(self, session: Session, round_: Round) -> list[PeerMessage]:
        """Without a session nothing may be left unsaid: Kafka's Raft takes an answer that does not name its log for a broken
        one, asks again at once and, after its fetch timeout, for votes."""
        messages: list[PeerMessage] = []
        for message in round_.rpc.messages:
            partition = self._engine.partitions.get(message.group)
            if message.group not in session.parked or partition is None:
                continue
            core = partition.core
            unchanged = AnswerFetch(
                replica_id=session.replica_id,
                request=session.parked.pop(message.group),
                error=ErrorCode.NONE if core.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                leader_id=core.leader_id,
                leader_epoch=core.epoch,
                high_watermark=core.announced_high_watermark,
            )
            messages.append(PeerMessage(message.group, self._response(session, message.group, unchanged, 0)[0]))
        return messages

    def _read(self, session: Session, partition: Partition, offset: Offset, size_max: int) -> bytes:
        """Records for a replica, which checks their CRCs itself. When it asks for the same ones again, they are checked here:
        it may have dropped them as damaged, and no replica gets past those. Then it gets nothing, and this leader hands
        over."""
        end, is_again = partition.log.end_offset, session.given.get(partition.group) == offset
        data = None if is_again else self._recent.find(partition.group, offset, partition.core.epoch, size_max)
        data = data or self._findings.guarded(
            partition.group, lambda: partition.read_intact(offset, end, size_max, check_crc=is_again)
        )
        data = data or b""
        session.given[partition.group] = offset if data else -1
        return data

    def _response(self, session: Session, group: GroupId, action: AnswerFetch, size_max: int) -> tuple[FetchResponse, int]:
        """The group's answer with as many log bytes as fit. The log is read now: it may hold more than when the core spoke."""
        batches: tuple[FetchedBatch, ...] = ()
        size, high_watermark, log_start, log_end = 0, action.high_watermark, Offset(-1), UNKNOWN_OFFSET
        partition = self._engine.partitions.get(group)
        if partition is not None:
            log_start = partition.core.announced_log_start
            if partition.core.is_leader and partition.core.epoch == action.leader_epoch:
                log_end = partition.core.log_end
        if (
            partition is not None
            and _is_ordinary(action)
            and partition.core.is_leader
            and partition.core.epoch == action.leader_epoch
            and partition.log.start_offset <= action.request.fetch_offset
        ):
            high_watermark = partition.core.announced_high_watermark
            data = self._read(session, partition, action.request.fetch_offset, size_max)
            if data:
                size = len(data)
                # One value for all of them: the receiver cuts it into batches and checks each.
                batches = (
                    FetchedBatch(
                        base_offset=action.request.fetch_offset,
                        end_offset=partition.log.end_offset,
                        epoch=action.leader_epoch,
                        payload=data,
                    ),
                )
        response = FetchResponse(
            error=action.error,
            leader_id=action.leader_id,
            leader_epoch=action.leader_epoch,
            high_watermark=high_watermark,
            log_start_offset=log_start,
            diverging=action.diverging,
            snapshot_id=action.snapshot_id,
            batches=batches,
            leader_log_end=log_end,
        )
        return response, size


def _is_ordinary(action: AnswerFetch) -> bool:
    """Whether the replica goes on where it stands: with records, or with nothing but a high watermark."""
    return action.error is ErrorCode.NONE and action.diverging is None and action.snapshot_id is None
