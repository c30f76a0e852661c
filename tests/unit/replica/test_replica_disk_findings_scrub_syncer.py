"""The services of the disk, each alone on an engine: room, syncs, and what damage they find and set aside."""

from __future__ import annotations

import pytest

from enginekit import DIRECTORY, METADATA_GROUP, ORDERS, TWO, Ground
from raftlake.errors import DamagedData, DiskFull, StorageError
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import ElectionState, Epoch
from raftlake.replica.disk import scrub as scrubs
from raftlake.replica.disk.alone import Solitude
from raftlake.replica.disk.damage import DamageControl
from raftlake.replica.disk.findings import Findings
from raftlake.replica.disk.scrub import Scrub
from raftlake.replica.disk.syncer import LogSyncer
from raftlake.replica.disk.watch import DiskWatch
from raftlake.replica.names import Names
from raftlake.replica.quorum import Quorum, static_voters
from raftlake.sim.faults.damage import FLIPPED_BYTE

BROKEN = DamagedData("batch 3 is not what was written", offset=3)


def watched(ground: Ground) -> DiskWatch:
    disk = DiskWatch(ground.engine, Quorum(ground.engine))
    disk.tick()
    return disk


# --- room ---


def test_the_only_voter_refuses_while_its_disk_is_low() -> None:
    ground = Ground(min_free_bytes=1_000)
    partition, told = ground.lead(), []
    disk = watched(ground)
    disk.listeners.append(told.append)
    assert disk.refusal(partition) == "" and disk.free_bytes is not None
    ground.disk.space.fill(999)
    ground.run(1_000)
    disk.tick()
    assert disk.is_low and "node 1" in disk.refusal(partition) and len(disk.warnings) == 2
    ground.disk.space.empty()
    ground.run(1_000)
    disk.tick()
    assert disk.refusal(partition) == "" and disk.warnings == ()
    assert len(told) == 4, "low, a majority is low, room again, a majority has room again"


def test_a_minority_of_low_disks_refuses_nothing() -> None:
    ground = Ground(3)
    partition, disk = ground.host(), watched(ground)
    disk.heard(TWO, is_low=True)
    assert disk.low_among(partition.core.voters) == (TWO,) and disk.refusal(partition) == ""
    disk.is_low = True
    assert disk.refusal(partition) != ""
    disk.heard(TWO, is_low=False)
    assert disk.refusal(partition) == ""


def test_without_room_for_its_state_a_group_waits_and_the_others_go_on() -> None:
    ground = Ground()
    first, second = ground.host(), ground.host(ORDERS)
    disk = watched(ground)
    ground.disk.space.fill(0)
    ground.disk.give_up_ballast()
    ground.disk.space.fill(0)
    dirty = {METADATA_GROUP: first, ORDERS: second}
    assert disk.save(dirty, {METADATA_GROUP: ElectionState(epoch=Epoch(1))}) == {ORDERS: second}
    assert list(disk.held) == [METADATA_GROUP] and disk.is_full
    ground.engine.take_dirty()
    ground.run(1_000)
    assert ground.engine.take_dirty() == {METADATA_GROUP: first} and not disk.held


# --- syncs ---


def test_what_is_written_during_a_sync_shares_the_next_one() -> None:
    ground = Ground()
    partitions = [ground.lead(METADATA_GROUP), ground.lead(ORDERS)]
    syncer = LogSyncer(ground.engine)
    for partition in partitions:
        syncer.mark(partition)
    assert not syncer.start() and len(ground.syncs) == 1
    syncer.mark(partitions[0])
    assert not syncer.start() and len(ground.syncs) == 1, "one is under way"
    turns = ground.turns
    ground.engine.end_turn()
    ground.run(1)
    assert ground.turns == turns + 1, "the next one is started at the end of a turn"
    assert not syncer.start() and len(ground.syncs) == 1


def test_a_sync_that_failed_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground()
    syncer = LogSyncer(ground.engine)
    syncer.mark(ground.lead())
    error = StorageError("fdatasync failed")
    monkeypatch.setattr(ground.disk, "flush", lambda logs, done, *, may_wait: done(error))
    syncer.start()
    assert ground.engine.fatal is error


# --- damage ---


def test_damage_is_noted_once_for_each_hosted_group_until_it_is_taken() -> None:
    ground = Ground()
    ground.host()
    findings = Findings(ground.engine)
    ground.engine.end_turn()
    turns = ground.turns

    def read() -> bytes:
        raise BROKEN

    assert findings.guarded(METADATA_GROUP, read) is None
    findings.found(METADATA_GROUP, DamagedData("another place", offset=9))
    findings.found(ORDERS, BROKEN)
    assert findings.guarded(ORDERS, lambda: b"whole") == b"whole"
    assert findings.has_found and ground.turns == turns + 1
    assert findings.take() == {METADATA_GROUP: BROKEN}
    assert not findings.has_found and findings.take() == {}


def test_damage_is_forgotten_with_the_log_that_had_it() -> None:
    """What is opened in its place reads the log itself. Damage of before was set aside once more, where there was none."""
    ground = Ground()
    groups = [ground.host(), ground.host(ORDERS)]
    findings = Findings(ground.engine)
    for partition in groups:
        findings.found(partition.group, BROKEN)
        assert findings.holds(partition.group)
    ground.engine.forget(groups[1])
    assert findings.holds(METADATA_GROUP) and not findings.holds(ORDERS)
    assert findings.take() == {METADATA_GROUP: BROKEN} and not findings.holds(METADATA_GROUP)


def damaged(ground: Ground, number: int) -> None:
    """A metadata log of ten batches, of which one is damaged."""
    partition = ground.lead()
    for value in range(10):
        ground.append(partition, b"%d" % value * 50)
    log = ground.disk.logs[METADATA_GROUP]
    log.settle()
    assert log.damage(number, FLIPPED_BYTE) is not None


def test_the_scrub_finds_damage_in_a_closed_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(segment_bytes=300)
    damaged(ground, 5)
    findings = Findings(ground.engine)
    scrub = Scrub(ground.engine, findings)
    monkeypatch.setattr(scrubs, "SCRUB_BYTES_PER_SECOND", 200)
    scrub.read_on(1_000)
    assert not findings.has_found, "it has not come so far"
    for _ in range(20):
        scrub.read_on(1_000)
    assert list(findings.take()) == [METADATA_GROUP]


def test_the_scrub_reads_no_more_than_its_time_allows_and_goes_on_with_the_next_log(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground()
    read: list[tuple[GroupId, int]] = []
    for group in (METADATA_GROUP, ORDERS):
        log = ground.host(group).log
        log.scrub = lambda size, group=group: (read.append((group, size)), 60)[1]  # type: ignore[method-assign, misc]
    scrub = Scrub(ground.engine, Findings(ground.engine))
    monkeypatch.setattr(scrubs, "SCRUB_BYTES_PER_SECOND", 50)
    for _ in range(2):
        scrub.read_on(1_000)
    assert read == [(METADATA_GROUP, 50), (METADATA_GROUP, 50)], "its first log is longer than that"
    monkeypatch.setattr(scrubs, "SCRUB_BYTES_PER_SECOND", 100)
    read.clear()
    for _ in range(2):
        scrub.read_on(1_000)
    assert read == [(METADATA_GROUP, 100), (ORDERS, 40), (ORDERS, 100), (METADATA_GROUP, 40)]


def test_the_scrub_reads_in_slices_that_are_spread_over_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a second at once held up every append for milliseconds."""
    ground = Ground()
    read: list[tuple[int, GroupId, int]] = []
    begin_ms = ground.engine.now_ms
    for group in (METADATA_GROUP, ORDERS):
        log = ground.host(group).log
        log.scrub = lambda size, group=group: (  # type: ignore[method-assign, misc]
            read.append((ground.engine.now_ms - begin_ms, group, size)), min(size, 70)
        )[1]  # fmt: skip
    scrub = Scrub(ground.engine, Findings(ground.engine))
    monkeypatch.setattr(scrubs, "SCRUB_BYTES_PER_SECOND", 250)
    monkeypatch.setattr(scrubs, "SLICE_BYTES", 100)
    scrub.read_on(1_000)
    first = [(0, METADATA_GROUP, 100), (0, ORDERS, 30)]
    assert read == first
    ground.run(399)
    assert read == first
    ground.run(1)
    # ORDERS had its 30, and may have more; then each was seen in this second.
    assert read == [*first, (400, ORDERS, 100)]
    ground.run(5_000)
    assert len(read) == 3
    read.clear()
    scrub.read_on(1_000)
    scrub.read_on(1_000)
    assert [each[1:] for each in read] == [(METADATA_GROUP, 100), (ORDERS, 30)], "one slice is under way"
    del ground.engine.partitions[ORDERS]
    ground.run(5_000)
    assert [each[1:] for each in read[2:]] == [(METADATA_GROUP, 100)], "what is gone is passed over"


def test_the_voters_in_the_log_say_who_votes_alone() -> None:
    ground = Ground(directory_id=DIRECTORY)
    partition = ground.lead()
    assert partition.core.voter_history.kraft_version == 1
    del ground.engine.partitions[METADATA_GROUP]
    others = Ground(3)
    others.disk.logs, others.disk.elections = ground.disk.logs, ground.disk.elections
    for asked in (ground, others):
        solitude = Solitude(asked.engine, Names(asked.engine.config), Quorum(asked.engine))
        assert solitude.votes_alone(METADATA_GROUP, None), "what the settings say does not count"
        assert not solitude.votes_alone(METADATA_GROUP, static_voters(others.engine.config))


def test_the_only_voter_cuts_nothing() -> None:
    ground = Ground()
    damaged(ground, 5)
    damage = DamageControl(ground.engine, Names(ground.engine.config), Quorum(ground.engine))
    end = ground.disk.logs[METADATA_GROUP].end_offset

    def attempt() -> None:
        raise BROKEN

    with pytest.raises(StorageError, match="only voter"):
        damage.opening(METADATA_GROUP, attempt)
    assert ground.disk.logs[METADATA_GROUP].end_offset == end and damage.impaired == {}


def test_where_others_vote_damage_is_set_aside_and_told_until_it_is_mended() -> None:
    ground = Ground()
    damaged(ground, 5)
    others = Ground(3)
    others.disk.logs, others.disk.elections = ground.disk.logs, ground.disk.elections
    damage = DamageControl(others.engine, Names(others.engine.config), Quorum(others.engine))
    told: list[str | None] = []
    damage.listeners.append(lambda group, reason: told.append(reason))
    place = ground.disk.logs[METADATA_GROUP].batches[5].base

    def attempt() -> int:
        # What was closed meanwhile is another log.
        end = ground.disk.logs[METADATA_GROUP].end_offset
        if end > place:
            raise DamagedData("it is damaged", offset=place)
        return int(end)

    assert damage.opening(METADATA_GROUP, attempt) == place
    assert damage.impaired == {METADATA_GROUP: told[0]}
    assert damage.impairment(METADATA_GROUP, Epoch(1)) is not None
    damage.mended(METADATA_GROUP)
    assert damage.impaired == {} and told[1:] == [None]
    assert damage.impairment(METADATA_GROUP, Epoch(1)) is None


def test_a_disk_that_finds_no_room_gives_up_its_ballast_and_tells_once() -> None:
    ground = Ground()
    disk, told = watched(ground), []
    disk.listeners.append(told.append)
    ground.disk.space.fill(0)
    for _ in range(2):
        disk.on_full(DiskFull("no space left"))
    assert disk.is_full and len(told) == 1 and not ground.disk.give_up_ballast()
