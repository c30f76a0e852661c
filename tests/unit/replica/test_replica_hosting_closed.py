"""Groups that wait for room to be opened again: what the node does with them meanwhile, and what it forgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enginekit import ORDERS, Ground, Noted
from hostedkit import FIRST, SECOND, Hosted
from raftlake.errors import DamagedData, DiskFull, StorageError, TooManyFiles
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NodeId, ReplicaKey, VoterSet
from raftlake.replica.config import METADATA_GROUP
from raftlake.replica.disk.alone import Solitude
from raftlake.replica.disk.findings import Findings
from raftlake.replica.hosting.closed import NO_ROOM_PAUSE_MS, ClosedGroups
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.start_points import LogFacts
from raftlake.replica.reserved import Topic
from raftlake.replica.turn.restart import Restarts
from raftlake.storage import directory as directories


class Place:
    """Closed groups, and attempts that find room when the test says so."""

    def __init__(self) -> None:
        self.ground, self.disk = Ground(), Noted()
        self.closed = ClosedGroups(self.ground.engine, self.disk)  # type: ignore[arg-type]
        self.tries: list[str] = []
        self.error: StorageError | None = DiskFull("no space left")

    def attempt(self, name: str) -> Callable[[], None]:
        def attempt() -> None:
            self.tries.append(name)
            if self.error is not None:
                raise self.error

        return attempt


@pytest.mark.parametrize("error", [DiskFull("full"), TooManyFiles("many")])
def test_an_opening_is_tried_each_second_until_there_is_room(error: StorageError) -> None:
    place = Place()
    place.error = error
    place.closed.open(ORDERS, place.attempt("a"))
    for number in range(1, 4):
        assert place.tries == ["a"] * number and ORDERS in place.closed
        place.ground.run(NO_ROOM_PAUSE_MS - 1)
        assert len(place.tries) == number
        place.ground.run(1)
    assert place.disk.calls == [("on_full", (error,))] * 4
    place.error = None
    place.ground.run(NO_ROOM_PAUSE_MS)
    assert ORDERS not in place.closed and len(place.tries) == 5
    place.ground.run(5 * NO_ROOM_PAUSE_MS)
    assert len(place.tries) == 5


def test_one_that_is_opened_at_once_was_never_closed() -> None:
    place = Place()
    place.error = None
    place.closed.open(ORDERS, place.attempt("a"))
    assert place.tries == ["a"] and ORDERS not in place.closed and place.disk.calls == []


def test_another_error_is_the_callers() -> None:
    place = Place()
    place.error = StorageError("broken")
    with pytest.raises(StorageError, match="broken"):
        place.closed.open(ORDERS, place.attempt("a"))


def test_groups_wait_apart_and_one_that_is_forgotten_is_tried_no_more() -> None:
    place = Place()
    other = GroupId("orders", 1, ORDERS.topic_id)
    place.closed.open(ORDERS, place.attempt("a"))
    place.closed.open(other, place.attempt("b"))
    place.closed.forget(ORDERS)
    place.closed.forget(METADATA_GROUP)
    assert ORDERS not in place.closed and other in place.closed
    place.ground.run(NO_ROOM_PAUSE_MS)
    assert place.tries == ["a", "b", "b"]
    # Closed once more, before the timer of the first attempt: that one is over.
    place.closed.forget(other)
    place.closed.open(other, place.attempt("c"))
    place.ground.run(NO_ROOM_PAUSE_MS)
    assert place.tries == ["a", "b", "b", "c", "c"]


# --- with hosts on real files ---


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    found = Hosted(tmp_path)
    yield found
    found.files.abandon()


def restarts(hosted: Hosted) -> tuple[Restarts, Findings]:
    engine = hosted.ground.engine
    findings, noted = Findings(engine), Noted()
    made = Restarts(
        engine, findings=findings, damage=hosted.damage, fetch_server=noted, hosting=hosted.hosting, actions=noted  # type: ignore[arg-type]
    )  # fmt: skip
    return made, findings


def refuse_openings(monkeypatch: pytest.MonkeyPatch, times: int, group: GroupId | None = None) -> None:
    """There is no room for so many openings, of the group or of any."""
    left, honest = [times], LogFacts.restore

    def restore(self: LogFacts, *given: Any, **named: Any) -> None:
        if left[0] and group in (None, self._name):
            left[0] -= 1
            raise DiskFull("no space left")
        honest(self, *given, **named)

    monkeypatch.setattr(LogFacts, "restore", restore)


def hosted_group(hosted: Hosted, number: int = 0) -> tuple[GroupId, Partition]:
    return next((group, its) for group, its in hosted.ground.engine.partitions.items() if str(group) == f"orders-{number}")


def with_records(hosted: Hosted, count: int) -> tuple[GroupId, Partition]:
    hosted.create(FIRST)
    hosted.ground.run(100)
    group, partition = hosted_group(hosted)
    hosted.ground.perform(partition)
    for _ in range(count):
        hosted.ground.append(partition, b"x" * 100)
    return group, partition


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_group_whose_topic_was_deleted_is_not_opened_again(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, *, is_created_again: bool
) -> None:
    """Its directory was still there, for deletions come some at a time. The node stopped when its log was deleted under it."""
    hosted.create(FIRST, 40)
    hosted.ground.run(5_000)
    group, partition = hosted_group(hosted, 39)
    hosted.ground.append(partition, b"x")
    refuse_openings(monkeypatch, 1)
    restarts(hosted)[0].without_room(partition)
    assert group not in hosted.ground.engine.partitions
    hosted.ground.run(NO_ROOM_PAUSE_MS - 3)
    hosted.delete()
    if is_created_again:
        hosted.create(SECOND, 40)
    hosted.ground.run(5_000)
    wanted = {f"orders-{index}": SECOND for index in range(40)} if is_created_again else {}
    assert hosted.hosts == wanted and hosted.directories == sorted(wanted)
    for group, its in hosted.ground.engine.partitions.items():
        assert group == METADATA_GROUP or its.log.segments()


@pytest.mark.parametrize("change", [{"retention_ms": 5}, {"partitions": 2}, None])
def test_what_clients_were_shown_is_remembered_though_the_topic_changes(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any] | None
) -> None:
    group, partition = with_records(hosted, 3)
    shown = partition.high_watermark
    assert shown > 2
    refuse_openings(monkeypatch, 1)
    restarts(hosted)[0].without_room(partition)
    if change is not None:
        hosted.create(FIRST, **change)
        hosted.ground.run(NO_ROOM_PAUSE_MS - 1)
        assert group not in hosted.ground.engine.partitions, "its attempt alone knows what was shown"
    hosted.ground.run(NO_ROOM_PAUSE_MS)
    assert hosted.ground.engine.partitions[group].shown_before == shown
    # Another partition of the topic does not wait.
    assert ("orders-1" in hosted.hosts) == (change == {"partitions": 2})


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_log_that_lost_records_is_never_opened_without_its_mark(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, *, is_changed: bool
) -> None:
    """There was no room for the mark. Within that second the topic got other configs: its group was opened as if whole."""
    monkeypatch.setattr(Solitude, "votes_alone", lambda *_given: False)
    group, partition = with_records(hosted, 3)
    hosted.files.settle(group)
    end = partition.log.end_offset
    (segment,) = (hosted.place / "orders-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-50] + b"!" * 50)
    left, honest = [1], directories.mark

    def mark(*given: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise DiskFull("no space left on device")
        honest(*given)

    monkeypatch.setattr(directories, "mark", mark)
    made, findings = restarts(hosted)
    findings.found(group, DamagedData("the CRC of the newest batch is wrong", offset=end - 1))
    made.repair_found()
    hosted.ground.run(100)
    if is_changed:
        hosted.create(FIRST, retention_ms="1000000")
    hosted.ground.run(3 * NO_ROOM_PAUSE_MS)
    opened = hosted.ground.engine.partitions[group]
    assert opened.core.log_end < end and opened.core.impairment is not None


@pytest.mark.parametrize("refused", ["orders-0", "orders-1"])
def test_a_start_without_room_for_one_log_opens_the_others(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """It stopped the node, at each start."""
    hosted.create(FIRST, 2)
    hosted.ground.run(100)
    for number in range(2):
        hosted.ground.append(hosted_group(hosted, number)[1], b"x")
    groups = {str(group): group for group in hosted.ground.engine.partitions}
    hosted.files.abandon()
    again = Hosted(hosted.place)
    del again.ground.engine.partitions[METADATA_GROUP]
    refuse_openings(monkeypatch, 2, groups[refused])
    again.hosting.open_all()
    assert METADATA_GROUP in again.ground.engine.partitions
    assert again.hosts == {name: FIRST for name in ("orders-0", "orders-1") if name != refused}
    assert again.hosting.has(groups[refused]) and groups[refused] not in again.ground.engine.partitions
    again.ground.run(2 * NO_ROOM_PAUSE_MS)
    assert again.hosts == {"orders-0": FIRST, "orders-1": FIRST} and again.disk.names == ["on_full"] * 2
    again.files.abandon()


@pytest.mark.parametrize(("partition", "voters"), [(0, "first"), (1, "first"), (2, "later")])
def test_a_log_that_was_emptied_begins_with_the_voters_of_its_partition(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch, partition: int, voters: str
) -> None:
    sets = {
        "first": VoterSet({NodeId(number): ReplicaKey(NodeId(number)) for number in (1, 2, 3)}),
        "later": VoterSet({NodeId(number): ReplicaKey(NodeId(number)) for number in (1, 3, 4)}),
    }
    hosted.names.add(Topic("orders", FIRST, 2, voters=sets["first"]).with_partitions(4, sets["later"]))
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hosted.hosting, "open", lambda group, **settings: asked.append(settings))
    hosted.hosting.open_found(GroupId("orders", partition, FIRST), election_delay_ms=7)
    assert asked == [{"election_delay_ms": 7, "initial": sets[voters], "is_found": False}]


def test_a_log_on_disk_waits_for_the_key_of_its_topic_and_that_of_the_quorum_for_none(
    hosted: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1040026142: a node came back and had not read the key yet, when the disk was full and the leader had cut the group's
    log to nothing. The group began anew with the static voters: elected by those, it led, and wrote down no voters."""
    asked: list[tuple[GroupId, bool]] = []
    monkeypatch.setattr(hosted.hosting, "open", lambda group, *, is_found, **_settings: asked.append((group, is_found)))
    for group in (ORDERS, METADATA_GROUP):
        hosted.hosting.open_found(group)
    assert asked == [(ORDERS, True), (METADATA_GROUP, False)]
