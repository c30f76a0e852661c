"""Bugs put back on purpose: the simulator must find each within some seeds. A net that catches nothing proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from raftlake.errors import ErrorCode
from raftlake.ports import GroupId
from raftlake.raft import elections, progress, reads
from raftlake.raft.actions import AnswerRead
from raftlake.raft.config import RaftConfig
from raftlake.raft.handlers import append as append_handler
from raftlake.raft.handlers import fetch as fetch_handler
from raftlake.raft.handlers import fetch_response
from raftlake.raft.messages import FetchedBatch
from raftlake.raft.roles import Leader
from raftlake.raft.state import GroupState
from raftlake.raft.types import ElectionState
from raftlake.replica.partition import Partition
from raftlake.replica.producer_state import ProducerStates
from raftlake.replica.reads import GroupReads
from raftlake.sim.cluster import Cluster
from raftlake.sim.disk import SimulatedDisk
from raftlake.sim.faults import Settings
from raftlake.sim.invariants import Invariant, Violation
from raftlake.sim.invariants.durable_vote import DurableVote
from raftlake.sim.network import NetworkSettings

Patch = Callable[[pytest.MonkeyPatch], None]


def first_violation(seeds: range, change: Callable[[Settings], Settings] = lambda settings: settings) -> Violation | None:
    for seed in seeds:
        try:
            Cluster(change(Settings.draw(seed))).run()
        except Violation as violation:
            return violation
    return None


# --- the bugs -------------------------------------------------------------------------------------------------------


def leader_counts_itself_before_its_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = progress.advance_high_watermark

    def hasty(group: GroupState, leader: Leader) -> None:
        flushed_end, group.flushed_end = group.flushed_end, group.log_end
        honest(group, leader)
        group.flushed_end = flushed_end

    for module in (append_handler, fetch_handler):
        monkeypatch.setattr(module, "advance_high_watermark", hasty)


def follower_acknowledges_before_its_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = fetch_response._append

    def hasty(group: GroupState, batches: tuple[FetchedBatch, ...]) -> bool:
        made_progress = honest(group, batches)
        group.flushed_end = group.log_end
        return made_progress

    monkeypatch.setattr(fetch_response, "_append", hasty)


def read_without_proof_of_leadership(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(group: GroupState, leader: Leader) -> None:
        for read in group.pending_reads:
            group.actions.append(
                AnswerRead(
                    read_id=read.read_id,
                    error=ErrorCode.NONE,
                    offset=group.high_watermark,
                    leader_id=group.leader_id,
                    leader_epoch=group.epoch,
                )
            )
        group.pending_reads = []

    monkeypatch.setattr(reads, "answer_proven", trusting)


def read_before_the_own_epoch_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = reads.answer_proven

    def early(group: GroupState, leader: Leader) -> None:
        start, group.epoch_start_offset = group.epoch_start_offset, type(group.epoch_start_offset)(-1)
        honest(group, leader)
        group.epoch_start_offset = start

    monkeypatch.setattr(reads, "answer_proven", early)


def follower_serves_a_read_before_it_has_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupReads, "_complete", lambda self, waiting, result: self._finish(waiting, result))


def vote_is_not_persisted(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SimulatedDisk.save

    def forgetful(self: SimulatedDisk, states: Mapping[GroupId, ElectionState]) -> None:
        honest(self, {group: state if state.leader_id else replace(state, voted_key=None) for group, state in states.items()})

    monkeypatch.setattr(SimulatedDisk, "save", forgetful)


def retried_batches_are_appended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda self, *args, **kwargs: None)


def producers_are_forgotten_at_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "rebuild_producers", lambda self: None)


def truncation_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(group: GroupState, diverging: Any) -> bool:
        return True

    monkeypatch.setattr(fetch_response, "_truncate", keep)


def election_without_the_newest_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A nominee claims more than it has."""
    monkeypatch.setattr(
        GroupState, "synced_position", property(lambda self: replace(self.log_end_position, offset=self.log_end + 1_000))
    )


def leader_change_is_never_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody resends BeginQuorumEpoch and no epoch is learned from answers: elections never settle."""
    monkeypatch.setattr(elections, "learn_leader", lambda *args: True)


PLANTED: tuple[tuple[Patch, int], ...] = (
    (leader_counts_itself_before_its_sync, 20),
    (follower_acknowledges_before_its_sync, 20),
    (read_without_proof_of_leadership, 60),
    (read_before_the_own_epoch_has_committed, 60),
    (follower_serves_a_read_before_it_has_applied, 60),
    (vote_is_not_persisted, 20),
    (retried_batches_are_appended_again, 60),
    (producers_are_forgotten_at_a_restart, 60),
    (truncation_is_skipped, 60),
    (election_without_the_newest_log, 60),
    (leader_change_is_never_announced, 20),
)


@pytest.mark.sim
@pytest.mark.parametrize(("plant", "seeds"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_found(plant: Patch, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_violation(range(1, seeds + 1)) is not None, f"{plant.__name__} survived {seeds} seeds"


@pytest.mark.sim
def test_a_vote_that_is_lost_is_found_by_its_consequence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check at the answer: two leaders or lost data must show where elections race and nodes restart at once."""
    vote_is_not_persisted(monkeypatch)
    monkeypatch.setattr(DurableVote, "on_vote_granted", Invariant.on_vote_granted)

    def racing(settings: Settings) -> Settings:
        return Settings(
            seed=settings.seed,
            voters=5,
            safety_ms=20_000,
            raft=RaftConfig(election_timeout_ms=300, fetch_timeout_ms=400, election_jitter_ms_max=10),
            network=NetworkSettings(delay_us_min=50, delay_us_mean=20_000),
            crash_interval_ms=300,
            port_crash_interval_ms=200,
            down_ms_max=5,
            think_ms_mean=1_000,
        )

    violation = first_violation(range(1, 60), racing)
    assert violation is not None and violation.promise != DurableVote.promise
