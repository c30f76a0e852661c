"""Log matching, roles, and the key-value history: accepted where they hold, told where they do not."""

from __future__ import annotations

import pytest

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn
from raftlake.kv.machine import Entry, TxnResult
from raftlake.ports import GroupId
from raftlake.raft.actions import ReportRole
from raftlake.raft.types import NO_LEADER, Epoch, NodeId
from raftlake.sim.client_history import KvHistory
from raftlake.sim.invariants import Violation
from raftlake.sim.invariants.base import ClusterView
from raftlake.sim.invariants.log_matching import LogMatching
from raftlake.sim.invariants.valid_roles import ValidRoles
from raftlake.sim.log_image import StoredBatch

GROUP = GroupId("orders", 0, bytes(range(16)))
ONE, TWO = NodeId(1), NodeId(2)
VIEW = ClusterView((ONE, TWO), lambda node_id, group: None, lambda node_id, group: None)


def stored(base: int, end: int, epoch: int, data: bytes = b"x") -> StoredBatch:
    return StoredBatch(base, end, epoch, -1, data)


def test_equal_batches_at_equal_places_match_and_a_later_epoch_may_replace_them() -> None:
    invariant = LogMatching(VIEW)
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
    invariant = LogMatching(VIEW)
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
