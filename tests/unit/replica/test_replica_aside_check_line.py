"""Checks that wait to be done aside: whose turn comes, what is not looked at any more, and what keeps its order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from asidekit import aside, hold, result, send
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.aside import check_line
from raftlake.replica.aside.check_line import AT_ONCE
from raftlake.replica.config import ClientContext
from replica_cluster import Cluster, batch

MIB = 1 << 20
BOMB = batch(bytes(10 * MIB), compression="zstd")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


@pytest.fixture
def group(cluster: Cluster) -> GroupId:
    (group,) = cluster.create_topic("t")
    return group


def another() -> ClientContext:
    """A client on a connection of its own."""
    return ClientContext("another", "127.0.0.1")


def error(answers: list[Any]) -> ErrorCode:
    return result(answers).error


def test_small_records_of_other_connections_wait_for_no_bomb(cluster: Cluster, group: GroupId) -> None:
    """256 bombs of 592 bytes on one connection made them wait for 24 s."""
    held = hold(cluster)
    bombs = [send(cluster, group, BOMB) for _ in range(256)]
    small = send(cluster, group, batch(b"small"), client=another())
    cluster.run(10)
    assert error(small) is ErrorCode.NONE and not any(bombs)
    assert len(held.jobs) == AT_ONCE


def test_connections_take_turns(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    first, second, third = another(), another(), another()
    bombs = [send(cluster, group, BOMB, client=first) for _ in range(20)]
    others = [send(cluster, group, BOMB, client=client) for client in (second, third, second, third)]
    held.finish(AT_ONCE + 3)
    cluster.run(10)
    assert [bool(each) for each in others] == [True, True, False, False]
    held.finish(3)
    cluster.run(10)
    assert all(others), "each of them had a turn for each of the bombs"
    assert sum(map(bool, bombs)) == AT_ONCE + 2
    held.finish_all()
    cluster.run(10)
    assert [result(each).base_offset for each in bombs[-3:]] == [22, 23, 24] and aside(cluster) == 0


def test_what_is_past_its_deadline_is_not_looked_at(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    bombs = [send(cluster, group, BOMB, timeout_ms=timeout_ms) for timeout_ms in (100, 100, 100, 1_000, 100)]
    cluster.run(101)
    held.finish(1)
    assert [bool(each) for each in bombs] == [False, False, True, False, False], "the first was begun in time"
    assert error(bombs[2]) is ErrorCode.REQUEST_TIMED_OUT and "too late" in str(result(bombs[2]).error_message)
    assert len(held.jobs) == 2
    held.finish_all()
    cluster.run(10)
    assert error(bombs[4]) is ErrorCode.REQUEST_TIMED_OUT
    assert (error(bombs[3]), aside(cluster), cluster.client.connection.checks_aside) == (ErrorCode.NONE, 0, 0)


def test_a_deadline_is_the_last_moment_at_which_a_check_begins(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    bombs = [send(cluster, group, BOMB, timeout_ms=timeout_ms) for timeout_ms in (5_000, 5_000, 100)]
    cluster.run(100)
    held.finish(1)
    assert len(held.jobs) == 2 and not bombs[2]


def test_checks_of_a_connection_that_is_gone_are_left_undone_unless_acks_are_0(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    client = another()
    answers = [send(cluster, group, BOMB, client=client, acks=acks) for acks in (-1, -1, -1, 1, 0)]
    client.connection.is_gone = True
    held.finish(1)
    assert error(answers[2]) is error(answers[3]) is ErrorCode.REQUEST_TIMED_OUT
    held.finish_all()
    cluster.run(10)
    assert answers[4] == [None]
    assert cluster.leader(group).partitions[group].log.end_offset == 4, "a producer that needs no answer may have gone"


def test_a_connection_knows_how_many_of_its_checks_are_aside(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    one, other = another(), another()
    for count in range(5):
        send(cluster, group, BOMB, client=one)
        assert one.connection.checks_aside == count + 1
    send(cluster, group, BOMB, client=other)
    assert (one.connection.checks_aside, other.connection.checks_aside, aside(cluster)) == (5, 1, 6)
    held.finish_all()
    assert (one.connection.checks_aside, other.connection.checks_aside, aside(cluster)) == (0, 0, 0)


def test_a_connection_is_told_of_each_check_that_is_done_and_may_send_again_at_once(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    one, left = another(), []
    late = send(cluster, group, BOMB, client=another(), timeout_ms=5_000)

    def send_again() -> None:
        left.append(one.connection.checks_aside)
        if len(left) == 1:
            send(cluster, group, BOMB, client=one)

    one.connection.on_check_done = send_again
    for timeout_ms in (5_000, 5_000, 100):
        send(cluster, group, BOMB, client=one, timeout_ms=timeout_ms)
    held.finish(1)
    assert not left, "it was the other connection's"
    held.finish(1)
    assert left == [2] and one.connection.checks_aside == 3
    cluster.run(101)
    held.finish_all()
    cluster.run(10)
    assert left == [2, 2, 1, 0] and late, "one of them was too late, and done too"


def test_what_a_connection_starts_then_comes_behind_the_append_whose_check_was_done(cluster: Cluster, group: GroupId) -> None:
    held = hold(cluster)
    one, small = another(), []
    one.connection.on_check_done = lambda: small.append(send(cluster, group, batch(b"small"), client=one))
    bomb = send(cluster, group, BOMB, client=one)
    held.finish(1)
    cluster.run(10)
    assert result(small[0]).base_offset == result(bomb).base_offset + 1


def test_what_waits_together_has_an_end(cluster: Cluster, group: GroupId, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that came, sent and went hold nothing of what the listener counts."""
    monkeypatch.setattr(check_line, "WAITING_BYTES_MAX", 3 * len(BOMB))
    held = hold(cluster)
    answers = [send(cluster, group, BOMB, client=another(), acks=acks) for acks in (0, 0, 0, -1)]
    assert error(answers[3]) is ErrorCode.NOT_ENOUGH_REPLICAS and not any(answers[:3])
    held.finish(1)
    late = send(cluster, group, BOMB, client=another())
    assert not late
    held.finish_all()
    cluster.run(10)
    assert error(late) is ErrorCode.NONE
    monkeypatch.setattr(check_line, "WAITING_BYTES_MAX", 1)
    alone = send(cluster, group, BOMB)
    held.finish_all()
    cluster.run(10)
    assert error(alone) is ErrorCode.NONE, "one is always taken"


@pytest.mark.parametrize("seed", range(10))
def test_appends_of_a_connection_to_a_partition_keep_their_order(cluster: Cluster, seed: int) -> None:
    rng = random.Random(seed)
    groups = cluster.create_topic("t", 2)
    held = hold(cluster)
    clients = [another() for _ in range(3)]
    sent: dict[tuple[int, int], list[list[Any]]] = {}
    for _ in range(60):
        which, partition = rng.randrange(3), rng.randrange(2)
        data = rng.choice([BOMB, batch(b"small"), batch(b"packed", compression="gzip")])
        answers = send(cluster, groups[partition], data, client=clients[which])
        sent.setdefault((which, partition), []).append(answers)
        held.finish(min(len(held.jobs), rng.choice([0, 0, 1, 2])))
        cluster.run(rng.choice([0, 1, 10]))
    held.finish_all()
    cluster.run(100)
    for row in sent.values():
        offsets = [result(each).base_offset for each in row]
        assert offsets == sorted(offsets) and -1 not in offsets
