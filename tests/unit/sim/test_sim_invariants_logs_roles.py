"""Log matching, roles, a leader's majority, and the key-value history: accepted where they hold, told where they do not."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.machine import Entry, TxnResult
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_LEADER, Epoch, NodeId, Offset, ReplicaKey, VoterSet
from raftlake.raft.voters import VoterHistory
from raftlake.sim.clients.history import KvHistory
from raftlake.sim.clock import US_PER_MS
from raftlake.sim.disk.disk import SimulatedDisk
from raftlake.sim.disk.log_image import StoredBatch
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.awake_majority import AwakeMajority
from raftlake.sim.invariants.base import ClusterView, ReplicaState
from raftlake.sim.invariants.committed_log import CommittedLogs
from raftlake.sim.invariants.log_matching import LogMatching
from raftlake.sim.invariants.valid_roles import ValidRoles

GROUP = GroupId("orders", 0, bytes(range(16)))
ONE, TWO = NodeId(1), NodeId(2)
VIEW = ClusterView((ONE, TWO), lambda node_id, group: None, lambda node_id, group: None)


def stored(base: int, end: int, epoch: int, data: bytes = b"x") -> StoredBatch:
    return StoredBatch(base, end, epoch, -1, data)


def test_equal_batches_at_equal_places_match_and_a_later_epoch_may_replace_them() -> None:
    invariant = LogMatching(VIEW, CommittedLogs())
    for node_id in (ONE, TWO):
        invariant.on_append(node_id, GROUP, stored(0, 1, 1), -1)
        invariant.on_append(node_id, GROUP, stored(1, 3, 1), 1)
    invariant.on_append(TWO, GROUP, stored(1, 2, 2, b"other"), 1)
    # A log that begins there does not know what lay before.
    invariant.on_append(ONE, GROUP, stored(3, 4, 2), 1)
    invariant.on_append(TWO, GROUP, stored(3, 4, 2), -1)


@pytest.mark.parametrize(
    ("batch", "epoch_before"),
    [(stored(1, 3, 1, b"y"), 1), (stored(1, 2, 1), 1), (stored(1, 3, 1), 0)],
    ids=["other bytes", "other end", "other epoch before it"],
)
def test_logs_that_share_a_place_and_nothing_else_are_told(batch: StoredBatch, epoch_before: int) -> None:
    invariant = LogMatching(VIEW, CommittedLogs())
    invariant.on_append(ONE, GROUP, stored(1, 3, 1), 1)
    with pytest.raises(Violation, match="share all before"):
        invariant.on_append(TWO, GROUP, batch, epoch_before)


def report(role: str, leader: NodeId = NO_LEADER) -> ReportRole:
    return ReportRole(role=role, epoch=Epoch(3), leader_id=leader, reason="")


def test_an_elected_leader_and_its_followers_are_fine() -> None:
    invariant = ValidRoles(VIEW)
    invariant.on_role(ONE, GROUP, "Follower", report("Prospective", TWO), True)
    invariant.on_role(ONE, GROUP, "Prospective", report("Candidate"), True)
    invariant.on_role(ONE, GROUP, "Candidate", report("Leader", ONE), True)
    invariant.on_role(TWO, GROUP, "Unattached", report("Follower", ONE), False)


@pytest.mark.parametrize(
    ("before", "action", "is_voter"),
    [
        ("Unattached", report("Prospective"), False),
        ("Prospective", report("Leader", ONE), True),
        ("Candidate", report("Leader", TWO), True),
        ("Prospective", report("Candidate", TWO), True),
        ("Unattached", report("Follower"), True),
        ("Unattached", report("Follower", ONE), True),
    ],
)
def test_a_role_that_cannot_be_is_told(before: str, action: ReportRole, is_voter: bool) -> None:
    with pytest.raises(Violation, match="its role allows"):
        ValidRoles(VIEW).on_role(ONE, GROUP, before, action, is_voter)


# --- key-value history ----------------------------------------------------------------------------------------------


def put(value: bytes, version: int | None = None) -> Txn:
    compares = () if version is None else (Compare("k", version),)
    return Txn(compares=compares, ops=(Put("mark/c", value), Put("k", value)))


def done(offset: int) -> TxnResult:
    return TxnResult(succeeded=True, offset=offset)


def test_a_history_that_one_copy_could_have_had_is_fine() -> None:
    history = KvHistory("mark/")
    history.changed("a", 0, 10, put(b"1", ABSENT), done(5))
    history.changed("b", 0, 12, put(b"2", ABSENT), TxnResult(succeeded=False, offset=6, current=(("k", 5),)))
    history.got("c", 20, 30, "k", Entry(b"1", 5))
    history.changed("a", 31, 40, put(b"3"), None)
    history.got("c", 50, 60, "k", Entry(b"3", 9))
    history.changed("a", 61, 70, Txn(compares=(), ops=(Put("mark/a", b"4"), Delete("k"))), done(11))
    history.got("b", 80, 90, "k", None)
    history.check()


def test_a_get_that_misses_an_acknowledged_change_is_told() -> None:
    history = KvHistory("mark/")
    history.changed("a", 0, 10, put(b"1"), done(5))
    history.got("b", 20, 30, "k", None)
    with pytest.raises(Violation, match="linearizable"):
        history.check()


def test_two_conditions_that_cannot_both_have_held_are_told() -> None:
    history = KvHistory("mark/")
    history.changed("a", 0, 10, put(b"1", ABSENT), done(5))
    history.changed("b", 0, 10, put(b"2", ABSENT), done(6))
    with pytest.raises(Violation, match="linearizable"):
        history.check()


class Office:
    """Node 1 leads three voters, and is asked every 100 ms whether a majority still fetches from it."""

    def __init__(self) -> None:
        self.history = VoterHistory(VoterSet({voter: ReplicaKey(voter) for voter in (ONE, TWO, NodeId(3))}))
        view = ClusterView(
            (ONE, TWO, NodeId(3)),
            lambda node_id, group: None,
            lambda node_id, group: None,
            history_of=lambda node_id, group: self.history,
        )
        self.invariant = AwakeMajority(view, fetch_timeout_ms=1_000)
        log = SimulatedDisk(QuietMachine()).open(GROUP)
        self.replica = ReplicaState(ONE, 1, GROUP, log, epoch=4, is_leader=True)
        self.now_ms = 0

    def lead(self, ms: int, *fetching: int) -> None:
        for _ in range(ms // 100):
            self.now_ms += 100
            for source in fetching:
                self.invariant.on_fetch(ONE, NodeId(source), self.now_ms * US_PER_MS)
            self.invariant.on_leading(self.replica, self.now_ms * US_PER_MS)


class QuietMachine:
    def port_call(self, name: str) -> None:
        """Never crashes."""

    def flush_later(self, complete: object, fail: object) -> None:
        """Nothing is synced here."""


def test_a_leader_with_one_of_two_others_may_stay() -> None:
    office = Office()
    office.lead(10_000, 3)


def test_a_leader_that_nobody_fetches_from_any_more_has_one_and_a_half_timeouts() -> None:
    office = Office()
    office.lead(3_000, 2)
    office.lead(1_700)
    with pytest.raises(Violation, match=r"1 of \[2, 3\] have not fetched"):
        office.lead(200)


def test_a_new_term_and_a_new_set_of_voters_begin_with_everybody_heard_of() -> None:
    office = Office()
    office.lead(1_500)
    office.replica.epoch += 1
    office.lead(1_500)
    office.history.record(Offset(9), office.history.latest.with_voter(ReplicaKey(NodeId(4)), ()))
    office.lead(1_500)
    office.replica.incarnation += 1
    office.lead(1_500)
    with pytest.raises(Violation, match="a leader without a majority resigns"):
        office.lead(500)


def test_a_leader_alone_needs_nobody_and_one_that_left_needs_the_majority_of_the_others() -> None:
    alone = Office()
    alone.history.record(Offset(9), VoterSet({ONE: ReplicaKey(ONE)}))
    alone.lead(5_000)
    gone = Office()
    gone.history.record(Offset(9), gone.history.latest.without(ONE))
    gone.lead(1_500, 2)
    with pytest.raises(Violation, match=r"2 of \[2, 3\]"):
        gone.lead(500, 2)
