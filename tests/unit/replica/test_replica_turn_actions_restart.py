"""The parts of the turn, each alone on an engine: which service performs what, restarts of groups, the rounds of the house."""

from __future__ import annotations

from typing import Any

import pytest

from enginekit import ME, METADATA_GROUP, ORDERS, TWO, Ground, Noted
from raftlake.errors import DamagedData, DiskFull
from raftlake.ports.driver import SegmentInfo
from raftlake.ports.peer_rpcs import PeerMessage
from raftlake.raft import actions as do
from raftlake.raft.messages import EndQuorumEpochRequest, FetchRequest
from raftlake.raft.types import FIRST_OFFSET, ElectionState, Epoch, NodeId, Offset, ReplicaKey, VoterSet
from raftlake.replica.disk.findings import Findings
from raftlake.replica.hosting.closed import NO_ROOM_PAUSE_MS, ClosedGroups
from raftlake.replica.partition.retention import TableBounds
from raftlake.replica.producer_care import ProducerCare
from raftlake.replica.turn.actions import Actions
from raftlake.replica.turn.housekeeping import INTERVAL_MS, Housekeeping
from raftlake.replica.turn.restart import Restarts

END = EndQuorumEpochRequest(leader_id=ME, leader_epoch=Epoch(1), preferred_candidates=())
BROKEN = DamagedData("batch 3 is not what was written", offset=3)
SERVICES = (
    "control", "damage", "fetch_server", "fetchers", "handover", "hosting", "kv", "reads", "remote_log_aux", "reports",
    "snapshot_transfer", "voter_changes",
)  # fmt: skip


def performer(**given: Noted) -> tuple[Actions, dict[str, Noted]]:
    noted: dict[str, Any] = {name: Noted() for name in SERVICES} | given
    return Actions(**noted), noted


# --- actions ---


def test_a_new_role_is_told_to_waiting_clients_then_to_fetchers_then_to_all() -> None:
    ground = Ground(3)
    partition = ground.host()
    refused: list[object] = []
    partition.refuse_appends = lambda: refused.append(1)  # type: ignore[method-assign]
    report = do.ReportRole(role="Follower", epoch=Epoch(1), leader_id=TWO, reason="test")
    for holds in (False, True):
        actions, noted = performer(handover=Noted(holds=holds))
        actions.perform(partition, report)
        assert noted["fetchers"].calls == [("on_role", (METADATA_GROUP, TWO))]
        assert noted["reports"].calls == [("role", (METADATA_GROUP, report))]
    assert refused == [1], "what a stopping node holds goes on waiting"


def test_a_new_leader_is_told_what_the_remote_tier_shows() -> None:
    ground = Ground()
    partition = ground.lead(ORDERS)
    actions, noted = performer()
    actions.perform(partition, do.ReportRole(role="Leader", epoch=Epoch(1), leader_id=ME, reason="test"))
    assert noted["remote_log_aux"].calls == [("tell", (partition,))]


def test_what_comes_from_the_remote_tier_is_built_and_abandoned_there() -> None:
    partition = Ground(3).host(ORDERS)
    actions, noted = performer()
    wanted = [do.BuildRemoteLogAux(leader_id=TWO, leader_epoch=Epoch(1)), do.AbandonRemoteLogAux()]
    for action in wanted:
        actions.perform(partition, action)
    assert noted["remote_log_aux"].calls == [("perform", (partition, action)) for action in wanted]


def test_clients_see_of_the_metadata_log_what_is_applied_and_of_others_what_is_committed() -> None:
    ground = Ground(3)
    metadata, orders = ground.host(), ground.host(ORDERS)
    actions, noted = performer()
    for partition in (metadata, orders):
        actions.perform(partition, do.AdvanceHighWatermark(high_watermark=Offset(5)))
    assert noted["kv"].calls == [("advance", (metadata, 5))]
    assert (metadata.high_watermark, orders.high_watermark) == (0, 5)
    orders.shown_before = Offset(9)
    actions.perform(orders, do.AdvanceHighWatermark(high_watermark=Offset(8)))
    assert orders.high_watermark == 5, "less is not shown than before the repair"


def test_a_request_goes_the_way_of_its_kind() -> None:
    ground = Ground(3)
    partition = ground.host()
    actions, noted = performer()
    fetch = FetchRequest(
        replica=ReplicaKey(ME),
        leader_epoch=Epoch(1),
        fetch_offset=Offset(0),
        last_fetched_epoch=Epoch(0),
        high_watermark=Offset(0),
    )
    end = do.SendRequest(destination=TWO, request=END)
    actions.perform(partition, do.SendRequest(destination=TWO, request=fetch))
    actions.perform(partition, end)
    assert noted["fetchers"].calls == [("fetch", (TWO, METADATA_GROUP, fetch))]
    assert noted["control"].calls == [("send", (PeerMessage(METADATA_GROUP, end.request), end))]


# --- restarts ---


def restarts(
    ground: Ground,
    hosting: Any,
    damage: Any,
    actions: Any,
    fetch_server: Noted | None = None,
) -> tuple[Restarts, Findings]:
    findings = Findings(ground.engine)
    made = Restarts(
        ground.engine,
        findings=findings,
        damage=damage,  # type: ignore[arg-type]
        fetch_server=fetch_server or Noted(),  # type: ignore[arg-type]
        hosting=hosting,
        actions=actions,
    )
    return made, findings


def voter_set(*numbers: int) -> VoterSet:
    return VoterSet({NodeId(number): ReplicaKey(NodeId(number)) for number in numbers})


class Reopening(Noted):
    """Stands for `Hosting`: the group is opened from the disk."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self._ground, self.disk = ground, Noted()
        self.closed = ClosedGroups(ground.engine, self.disk)  # type: ignore[arg-type]
        self.is_empty = False

    def open_found(self, group: Any, *, election_delay_ms: int) -> bool:
        self.calls.append(("open_found", (group, election_delay_ms)))
        if not self.is_empty:
            self._ground.host(group)
        return not self.is_empty


def test_a_damaged_group_says_what_it_has_to_say_is_cut_and_opened_and_shows_no_less() -> None:
    ground = Ground()
    partition = ground.lead()
    shown = partition.high_watermark
    hosting, damage, performed = Reopening(ground), Noted(), Noted()
    made, findings = restarts(ground, hosting, damage, performed)
    made.repair_found()
    assert hosting.calls == []
    findings.found(METADATA_GROUP, BROKEN)
    saved = ElectionState(epoch=Epoch(9))
    partition.outbox += [do.SaveElectionState(state=saved), do.TruncateTo(end_offset=Offset(0)), do.ReleaseFetchRounds()]
    made.repair_found()
    assert hosting.calls == [("let_go", (partition,)), ("open_found", (METADATA_GROUP, 0))]
    assert damage.calls == [("set_aside", (METADATA_GROUP, BROKEN, partition.core.voters))]
    assert performed.calls == [("perform", (partition, do.ReleaseFetchRounds()))], "its log is left alone"
    assert ground.disk.elections[METADATA_GROUP] == saved, "before anything was said"
    assert ground.engine.partitions[METADATA_GROUP].shown_before == shown > 0
    assert not findings.has_found


def test_a_group_without_room_keeps_its_log_and_campaigns_later() -> None:
    ground = Ground()
    partition = ground.lead()
    end = partition.log.end_offset
    hosting, damage, fetch_server = Reopening(ground), Noted(), Noted()
    made, _ = restarts(ground, hosting, damage, Noted(), fetch_server)
    made.without_room(partition)
    assert fetch_server.calls == [("begun_anew", (METADATA_GROUP,))], "replicas that wait have to ask again"
    assert damage.calls == [] and ground.engine.partitions[METADATA_GROUP].log.end_offset == end
    assert hosting.calls[-1] == ("open_found", (METADATA_GROUP, ground.engine.config.raft.election_timeout_ms))


def test_a_group_that_waits_for_the_key_of_its_topic_is_left_alone() -> None:
    ground = Ground()
    partition = ground.lead(ORDERS)
    hosting = Reopening(ground)
    hosting.is_empty = True
    restarts(ground, hosting, Noted(), Noted())[0].without_room(partition)
    assert ground.engine.partitions[ORDERS] is partition, "it was let go, and no other one was opened"


class Crowded(Reopening):
    """The disk has no room for so many openings."""

    def __init__(self, ground: Ground, refusals: int) -> None:
        super().__init__(ground)
        self.refusals = refusals

    def let_go(self, partition: Any) -> None:
        self.calls.append(("let_go", (partition,)))
        del self._ground.engine.partitions[partition.group]

    def open_found(self, group: Any, *, election_delay_ms: int) -> bool:
        if self.refusals:
            self.refusals -= 1
            raise DiskFull("no space left for reset-pending")
        return super().open_found(group, election_delay_ms=election_delay_ms)


class Aside(Noted):
    """Sets damage aside, or has no room for that so many times."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    def set_aside(self, *given: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise DiskFull("no space left for the mark")
        self.calls.append(("set_aside", given))


@pytest.mark.parametrize("has_damage", [False, True])
@pytest.mark.parametrize("refusals", [1, 3])
def test_a_group_that_cannot_be_opened_for_want_of_room_is_opened_later(
    monkeypatch: pytest.MonkeyPatch, refusals: int, has_damage: bool
) -> None:
    """The second refusal, from within the care for the first one, stopped the node, and so did each start."""
    ground = Ground()
    partition = ground.lead()
    shown = partition.high_watermark
    settled: list[Any] = []
    monkeypatch.setattr(ground.disk, "settle", settled.append)
    hosting, damage = Crowded(ground, refusals), Aside(refusals if has_damage else 0)
    made, findings = restarts(ground, hosting, damage, Noted())
    if has_damage:
        findings.found(METADATA_GROUP, BROKEN)
        made.repair_found()
    else:
        made.without_room(partition)
    tries = 2 * refusals if has_damage else refusals
    for number in range(tries):
        assert METADATA_GROUP not in ground.engine.partitions and hosting.disk.names == ["on_full"] * (number + 1)
        ground.run(NO_ROOM_PAUSE_MS - 1)
        assert METADATA_GROUP not in ground.engine.partitions
        ground.run(1)
    opened = ground.engine.partitions[METADATA_GROUP]
    assert opened is not partition and opened.shown_before == shown > 0
    assert damage.names == ["set_aside"] * has_damage and len(settled) == (not has_damage), "once each"
    assert hosting.calls[-1] == (
        "open_found",
        (METADATA_GROUP, 0 if has_damage else ground.engine.config.raft.election_timeout_ms),
    )
    ground.run(10 * NO_ROOM_PAUSE_MS)
    assert ground.engine.partitions[METADATA_GROUP] is opened and len(hosting.disk.calls) == tries


# --- the rounds of the house ---


def test_the_house_ticks_in_order_and_answers_what_is_overdue() -> None:
    ground = Ground()
    partition = ground.lead()
    ticks: list[str] = []
    expired: list[int] = []
    partition.waiting.append(None)  # type: ignore[arg-type]
    partition.expire = expired.append  # type: ignore[method-assign]
    house = Housekeeping(
        ground.engine,
        disk=Noted(),  # type: ignore[arg-type]
        findings=Findings(ground.engine),
        producers=ProducerCare(ground.engine),
        scrub=Noted(),  # type: ignore[arg-type]
        snapshots=Noted(),  # type: ignore[arg-type]
        ticking=[lambda: ticks.append("first"), lambda: ticks.append("second")],
        table=lambda partition: None,
        adopted_start=lambda partition: FIRST_OFFSET,
    )
    house.run()
    ground.run(INTERVAL_MS)
    assert ticks == ["first", "second"] * 2 and expired == [0, INTERVAL_MS]


@pytest.mark.parametrize(
    ("table", "trimmed"),
    [
        (TableBounds(start=0, safe=4), [4]),
        (TableBounds(start=0, safe=3), []),
        (TableBounds(start=0, safe=1 << 40), [4]),
        # Without a table the local disks have the only copy: their own retention does not count.
        (None, []),
    ],
)
def test_local_disks_keep_what_the_table_did_not_give_back(table: TableBounds | None, trimmed: list[int]) -> None:
    assert _trimmed(table, retention_bytes=1 << 40, local_retention_bytes=1) == trimmed


@pytest.mark.parametrize(("start", "trimmed"), [(0, []), (3, []), (4, [4])])
def test_what_has_left_the_table_leaves_local_disks(start: int, trimmed: list[int]) -> None:
    assert _trimmed(TableBounds(start=start, safe=9), retention_bytes=1 << 40) == trimmed


def _trimmed(table: TableBounds | None, **settings: Any) -> list[int]:
    """Where a log of [0, 4), [4, 9) and an active segment begins after retention."""
    ground = Ground(retention_check_interval_ms=1_000, **settings)
    orders = ground.lead(ORDERS)
    orders.high_watermark = Offset(10)
    orders.log.segments = lambda: [  # type: ignore[method-assign]
        SegmentInfo(base_offset=Offset(0), end_offset=Offset(4), size=100, timestamp_ms_max=1),
        SegmentInfo(base_offset=Offset(4), end_offset=Offset(9), size=100, timestamp_ms_max=1),
    ]
    orders.log.start_points.save(Offset(4), b"", b"")
    snapshots = Noted()
    house = Housekeeping(
        ground.engine,
        disk=Noted(),  # type: ignore[arg-type]
        findings=Findings(ground.engine),
        producers=ProducerCare(ground.engine),
        scrub=Noted(),  # type: ignore[arg-type]
        snapshots=snapshots,  # type: ignore[arg-type]
        ticking=[],
        table=lambda partition: table,
        adopted_start=lambda partition: FIRST_OFFSET,
    )
    house.run()
    ground.run(1_000)
    return [given[1] for name, given in snapshots.calls if name == "trim"]


def test_retention_trims_data_and_leaves_the_metadata_log_to_its_snapshots() -> None:
    ground = Ground(retention_bytes=1, retention_check_interval_ms=1_000)
    metadata, orders = ground.lead(), ground.lead(ORDERS)
    for partition in (metadata, orders):
        partition.high_watermark = Offset(10)
        partition.log.segments = lambda: [  # type: ignore[method-assign]
            SegmentInfo(base_offset=Offset(0), end_offset=Offset(4), size=100, timestamp_ms_max=1),
            SegmentInfo(base_offset=Offset(4), end_offset=Offset(9), size=100, timestamp_ms_max=1),
        ]
    orders.log.start_points.save(Offset(4), b"", b"")
    snapshots, scrub = Noted(), Noted()
    house = Housekeeping(
        ground.engine,
        disk=Noted(),  # type: ignore[arg-type]
        findings=Findings(ground.engine),
        producers=ProducerCare(ground.engine),
        scrub=scrub,  # type: ignore[arg-type]
        snapshots=snapshots,  # type: ignore[arg-type]
        ticking=[],
        table=lambda partition: None,
        adopted_start=lambda partition: FIRST_OFFSET,
    )
    house.run()
    ground.run(1_000)
    assert snapshots.calls == [("trim", (orders, 4))]
    assert scrub.calls == [("read_on", (1_000,))]
