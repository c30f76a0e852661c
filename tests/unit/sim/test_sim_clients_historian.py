"""The client that reads from the beginning: what it finds in a quiet run, and what it takes for a broken promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports.tier import TierError, TierFailure
from raftlake.replica.node import ReplicaNode
from raftlake.replica.partition.partition import Partition
from raftlake.replica.tiering.pieces import Piece
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.replica.tiering.remote_searches import RemoteSearches
from raftlake.sim.clients.historian import FIRST_OF_A_TIME, NOT_GONE, ONE_SPACE, Historian, _Asked, _Sought
from raftlake.sim.clients.messages import NO_CONTROL
from raftlake.sim.clients.operations import Operations
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation
from raftlake.wire.batches import iterate_headers
from raftlake.wire.fetch_response import FetchPartitionResult, FetchResponse, FetchTopicResult

QUIET = Settings(
    seed=3,
    safety_ms=10_000,
    producers=3,
    historians=2,
    think_ms_mean=50,
    tier_lag_ms=1_000,
    tier_piece_bytes=700,
    local_retention_bytes=600,
    segment_bytes=300,
)


def test_the_beginning_is_read_over_and_over_though_local_logs_are_trimmed() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    historians = [client for client in cluster.clients if isinstance(client, Historian)]
    assert len(historians) == 2 and all(client.completed > 20 for client in historians)
    assert outcome.covered["old offsets read"] > 10 and outcome.covered["times found"] > 2
    assert cluster.oracle.partitions[0].seen


def test_a_control_record_that_is_shown_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever client sees it. Without a tier nobody compares batches with the log."""
    monkeypatch.setattr(Partition, "read_shown", Partition.read_intact)
    with pytest.raises(Violation, match=NO_CONTROL):
        Cluster(Settings(seed=3, safety_ms=5_000, producers=1, think_ms_mean=50)).run()


def test_seeds_with_a_tier_have_historians_and_others_none() -> None:
    drawn = [Settings.draw(seed) for seed in range(60)]
    assert all(settings.tier_lag_ms for settings in drawn if settings.historians)
    tiered = [settings for settings in drawn if settings.tier_lag_ms]
    assert 0 < sum(bool(settings.historians) for settings in tiered) < len(tiered)
    assert len({settings.tier_piece_bytes for settings in tiered}) == 4


def broken(patch: pytest.MonkeyPatch, where: Any, name: str, instead: Any) -> str:
    patch.setattr(where, name, instead)
    with pytest.raises(Violation) as caught:
        # A producer may rest for seconds.
        Cluster(replace(QUIET, liveness_ms=10_000)).run()
    return str(caught.value)


@pytest.mark.parametrize("how", ["a gap", "a double", "another epoch"])
def test_what_is_not_what_was_committed_is_a_broken_promise(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    cut = Piece.cut

    def other(self: Piece, offset: int, limit: int, size_max: int) -> bytes:
        if how == "a gap":
            return cut(self, offset + 3, limit, size_max)
        data = cut(self, offset, limit, size_max)
        if how == "a double" and data:
            return data[: next(iterate_headers(data)).size] + data
        return data[:15] + b"?" + data[16:] if data else data

    assert ONE_SPACE in broken(monkeypatch, Piece, "cut", other)


def test_an_offset_that_the_table_has_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def local(self: RemoteLog, partition: Any) -> Any:
        return partition.log.start_offset

    assert NOT_GONE in broken(monkeypatch, RemoteLog, "start_offset", local)


def test_the_first_record_of_a_time_may_be_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_only(self: RemoteSearches, request: Any, question: Any) -> None:
        self._local.ask(request, question)

    assert FIRST_OF_A_TIME in broken(monkeypatch, RemoteSearches, "ask", local_only)


def test_a_node_that_never_reads_the_table_leaves_historians_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: RemoteReads, partition: Any, offset: int, size_max: int) -> TierError:
        return TierError(TierFailure.UNKNOWN, "nothing is read")

    assert "historian" in broken(monkeypatch, RemoteReads, "find", refuse)


def led_cluster() -> tuple[Cluster, Historian, ReplicaNode]:
    """A cluster with a topic, its first historian, and the node that leads the first partition."""
    cluster = Cluster(QUIET)
    cluster.start_all()
    for client in cluster.clients:
        client.start()
    historian = next(client for client in cluster.clients if isinstance(client, Historian))
    while cluster.shared.topic_id is None or cluster.shared.leader_epoch(cluster.shared.group(0)) < 0:
        cluster.run_a_while()
    group = cluster.shared.group(0)
    hosting = (node for node in cluster._running() if group in node.partitions)
    return cluster, historian, next(node for node in hosting if node.partitions[group].core.is_leader)


def test_a_leader_that_was_replaced_may_have_less_than_was_read_elsewhere() -> None:
    """Simulator, seed 400258: it knew of no later leader yet, and an offset behind its end was out of its range."""
    cluster, historian, node = led_cluster()
    group = cluster.shared.group(0)
    refused = FetchPartitionResult(0, ErrorCode.OFFSET_OUT_OF_RANGE)
    answer = FetchResponse(topics=[FetchTopicResult(group.topic, None, [refused])])
    end = node.partitions[group].log.end_offset
    assert historian._judge(node, _Asked(0, end + 1), answer) is not None
    with pytest.raises(Violation, match=NOT_GONE):
        historian._judge(node, _Asked(0, end), answer)


def test_what_the_leader_before_deleted_may_be_unknown_to_a_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulator, seed 1090001911: its keys said that the table begins at 16, the committed ones 21. The table had 21 first."""
    cluster, historian, node = led_cluster()
    group = cluster.shared.group(0)
    epoch = node.partitions[group].core.epoch
    sought = _Sought(partition=0, time_ms=7, first=16, leader_epoch=epoch)
    asked = []
    monkeypatch.setattr(Operations, "table_start", lambda self, group: asked.append(group) or 17)
    assert historian._judge_search(node, sought, (21, 3)) and asked == [group]
    monkeypatch.setattr(Operations, "table_start", lambda self, group: 16)
    with pytest.raises(Violation, match=FIRST_OF_A_TIME):
        historian._judge_search(node, sought, (21, 3))
    assert historian._judge_search(node, sought, (16, 3)), "what was read"
    assert historian._judge_search(node, replace(sought, leader_epoch=epoch + 1), (21, 3)), "a newer one may lead"
    assert not historian._judge_search(node, sought, None)


def test_the_start_of_a_table_is_that_of_the_committed_keys() -> None:
    cluster = Cluster(replace(QUIET, retention_bytes=1_500))
    cluster.run()
    known: list[int] = []
    for number in range(QUIET.partitions):
        group = cluster.shared.group(number)
        tiered = [node.remote_log.tiered(node.partitions[group]) for node in cluster._running()]
        known.append(max(each.start_offset for each in tiered if each is not None))
    starts = [cluster.shared.operations.table_start(cluster.shared.group(number)) for number in range(QUIET.partitions)]
    assert starts == known and min(starts) > 0
