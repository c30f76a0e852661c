"""The client that deletes old records: what it finds in a quiet run, and what it takes for a broken promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raftlake.raft.types import Offset
from raftlake.replica.record_deletion import RecordDeletion
from raftlake.replica.tiering.remote_log import RemoteLog
from raftlake.sim.clients.deleter import STAYS_DELETED, Deleter
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.invariants import Violation

QUIET = Settings(seed=3, safety_ms=10_000, producers=3, readers=1, deleters=2, think_ms_mean=50, segment_bytes=300)


def test_records_are_deleted_and_logs_trimmed_while_others_read() -> None:
    cluster = Cluster(QUIET)
    outcome = cluster.run()
    deleters = [client for client in cluster.clients if isinstance(client, Deleter)]
    assert len(deleters) == 2 and all(client.starts for client in deleters)
    assert outcome.covered["records deleted"] > 5
    assert all(replica.log.start_offset > 0 for replica in cluster.replicas() if replica.group.topic == "orders")


def test_some_seeds_have_a_deleter() -> None:
    drawn = [Settings.draw(seed) for seed in range(60)]
    assert 3 < sum(settings.deleters for settings in drawn) < 25
    assert all(settings.trims for settings in drawn if settings.deleters)


def broken(patch: pytest.MonkeyPatch, where: Any, name: str, instead: Any) -> str:
    patch.setattr(where, name, instead)
    with pytest.raises(Violation) as caught:
        Cluster(replace(QUIET, liveness_ms=10_000)).run()
    return str(caught.value)


def test_a_node_that_shows_what_it_has_deleted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that logs have the records still.
    monkeypatch.setattr(RecordDeletion, "tick", lambda _: None)
    told = broken(monkeypatch, RemoteLog, "deleted_below", lambda *_: Offset(0))
    assert "asked for" in told or STAYS_DELETED in told


def test_a_node_that_never_learns_of_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordDeletion, "tick", lambda _: None)
    known = RemoteLog.deleted_below

    def forgetful(self: RemoteLog, partition: Any) -> Offset:
        return Offset(0) if self._engine.config.node_id == 2 and not partition.core.is_leader else known(self, partition)

    assert STAYS_DELETED in broken(monkeypatch, RemoteLog, "deleted_below", forgetful)
