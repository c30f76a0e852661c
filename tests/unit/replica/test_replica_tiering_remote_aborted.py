"""Which transactions are aborted among records that only the remote tier has: by markers in the piece, behind it, or in the
local log."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from asidekit import AtOnce
from enginekit import ORDERS
from raftlake.errors import DamagedData, ErrorCode, StorageError, TooManyFiles
from raftlake.raft.types import Offset
from raftlake.replica.apis.shown_records import ShownRecords, read_shown
from raftlake.replica.disk.findings import Findings
from raftlake.replica.partition.partition import Partition
from raftlake.replica.partition.pending import PendingAppend
from raftlake.replica.tiering import remote_aborted
from raftlake.replica.tiering.remote_aborted import NotKnown, RemoteAborted
from raftlake.replica.tiering.remote_reads import RemoteReads
from raftlake.wire.batches import EndMarker, end_marker_batch, iterate_headers
from remotekit import LOST, RemoteWorld
from replica_cluster import batch
from txnkit import offsets, records

#: What stands in the log from offset 1 on: (producer, None) is a transactional batch, (producer, commit) its marker, None a
#: plain batch. One more plain batch follows.
Script = Sequence[tuple[int, bool | None] | None]


NO_FILE = TooManyFiles("cannot open /data/x.txnindex: Too many open files (EMFILE)")
#: Of a piece that has no room for a second one.
ONE_BATCH = 100


class Story:
    """A partition that node 1 leads with `script` in its log; the table has all below `local_from`, where the log begins."""

    def __init__(self, script: Script, *, local_from: int, piece_bytes: int = 1 << 20) -> None:
        self.world = RemoteWorld(tier_piece_bytes=piece_bytes)
        ground = self.world.ground
        self.partition: Partition = ground.lead(ORDERS)
        sequences: dict[int, int] = {}
        for step in (*script, None):
            marker = None
            if step is None:
                data = batch(b"plain")
            elif step[1] is None:
                sequence = sequences[step[0]] = sequences.get(step[0], -1) + 1
                data = records(b"x", sequence=sequence, producer_id=step[0])
            else:
                marker = EndMarker(producer_id=step[0], epoch=0, commit=step[1], coordinator_epoch=0)
                data = end_marker_batch(marker, 1)
            headers = tuple(iterate_headers(data))
            pending = PendingAppend(data, headers, 1 << 40, lambda error, offset: None, False, marker=marker)
            self.partition.appending.append(pending)
            ground.append_waiting(self.partition)
        self.world.tier.data[self.partition.group] = self.partition.log.read(Offset(0), self.partition.log.end_offset, 1 << 30)
        self.world.say(self.partition, 0, local_from)
        self.world.trim(self.partition, local_from)
        self.reads = RemoteReads(ground.engine, self.world.remote_log, self.world.tier, self.world.tally, AtOnce())
        self.aborted = RemoteAborted(self.reads)
        self.node: Any = SimpleNamespace(remote_reads=self.reads, remote_aborted=self.aborted, findings=Findings(ground.engine))

    def read(self, offset: int, size_max: int = 1 << 20) -> ShownRecords:
        """As a Fetch does: what is missing is asked for, given, and looked at again."""
        for _ in range(50):
            found = read_shown(self.node, self.partition, offset, size_max, self.partition.last_stable_offset)
            if found.missing < 0:
                return found
            self.reads.ask(self.partition, found.missing)
            while self.world.tier.reads:
                self.world.tier.give()
        raise AssertionError("it does not come to an end")


STORIES: dict[str, tuple[Script, int, list[tuple[int, int]]]] = {
    "both in the piece": ([(1, None), None, (1, False), (1, None), (1, True)], 6, [(1, 1)]),
    "committed": ([(1, None), (1, True)], 3, []),
    "two of a producer": ([(1, None), (1, False), (1, None), (1, False)], 5, [(1, 1), (1, 3)]),
    "two producers": ([(1, None), (2, None), (1, True), (2, False)], 5, [(2, 2)]),
    "the marker is in the local log": ([(1, None), (2, None), None, (1, False), (2, True)], 4, [(1, 1)]),
    "aborted there, and another one after it": ([(1, None), None, (1, True), (1, None), (1, False)], 3, []),
    "no transactions": ([None, None, None], 3, []),
}


@pytest.mark.parametrize(("script", "local_from", "expected"), STORIES.values(), ids=STORIES.keys())
@pytest.mark.parametrize("piece_bytes", [ONE_BATCH, 1 << 20])
def test_what_is_aborted_is_told_with_the_records(
    script: Script, local_from: int, expected: list[tuple[int, int]], piece_bytes: int
) -> None:
    story = Story(script, local_from=local_from, piece_bytes=piece_bytes)
    told: list[tuple[int, int]] = []
    offset = 0
    while offset < local_from:
        found = story.read(offset)
        assert found.error is ErrorCode.NONE and found.data
        told += [tuple(each) for each in found.aborted]
        offset = list(iterate_headers(found.data))[-1].end_offset
    assert sorted(set(told)) == expected


def test_who_does_not_mind_is_told_nothing() -> None:
    story = Story([(1, None), (1, False)], local_from=3)
    story.reads.ask(story.partition, 0)
    story.world.tier.give()
    found = read_shown(story.node, story.partition, 0, 1 << 20)
    assert (offsets(found.data), found.aborted) == ([1, 2], [])


def test_nothing_is_given_before_its_outcome_is_known() -> None:
    """The marker is pieces away. Each look asks for the next piece, and goes on where the last one ended."""
    script: Script = [(1, None), *[None] * 5, (1, False)]
    story = Story(script, local_from=8, piece_bytes=ONE_BATCH)
    asked: list[int] = []
    ask = story.reads.ask
    story.reads.ask = lambda partition, offset, waiter=None: (asked.append(offset), ask(partition, offset, waiter))[1]  # type: ignore[method-assign]
    found = story.read(1)
    assert (offsets(found.data), found.aborted) == ([1], [(1, 1)])
    assert asked == [1, 2, 3, 4, 5, 6, 7]
    asked.clear()
    story.reads._on_closed(story.partition)
    assert story.read(1).aborted == [(1, 1)]
    assert asked == [1], "how it ended is remembered"


def test_a_piece_that_cannot_be_read_is_told() -> None:
    story = Story([(1, None), None, (1, False)], local_from=4, piece_bytes=ONE_BATCH)
    story.reads.ask(story.partition, 1)
    story.world.tier.give()
    assert read_shown(story.node, story.partition, 1, 1, Offset(4)).missing == 2
    story.reads.ask(story.partition, 2)
    while story.world.tier.reads:
        story.world.tier.answer(LOST)
    assert read_shown(story.node, story.partition, 1, 1, Offset(4)).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_marker_that_this_log_does_not_have_yet_is_waited_for() -> None:
    """The replica is behind, and the table is ahead of its log: to call the transaction committed would be a guess."""
    story = Story([(1, None), None, None], local_from=3)
    story.reads.ask(story.partition, 0)
    story.world.tier.give()
    assert story.aborted.find(story.partition, 0, 3) == NotKnown()
    found = read_shown(story.node, story.partition, 0, 1 << 20, Offset(3))
    assert (found.data, found.missing, found.error) == (b"", -1, ErrorCode.NONE)


def marker_here() -> Story:
    """The table has the records of an aborted transaction, and the local log has its marker."""
    script, local_from, _ = STORIES["the marker is in the local log"]
    return Story(script, local_from=local_from)


def bar_the_local_log(story: Story, monkeypatch: pytest.MonkeyPatch, error: StorageError) -> None:
    """Its index of aborted transactions cannot be read."""

    def barred(start: Offset, end: Offset) -> list[object]:
        raise error

    monkeypatch.setattr(story.partition, "aborted", barred)


def test_a_reader_comes_again_where_no_file_can_be_opened_for_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    story = marker_here()
    told: list[TooManyFiles] = []
    story.node.findings.on_too_many = told.append
    with monkeypatch.context() as meanwhile:
        bar_the_local_log(story, meanwhile, NO_FILE)
        found = story.read(1)
        assert (found.data, found.error, told) == (b"", ErrorCode.KAFKA_STORAGE_ERROR, [NO_FILE])
    found = story.read(1)
    assert found.error is ErrorCode.NONE and found.aborted == [(1, 1)]


def test_damage_where_the_marker_is_looked_for_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    story = marker_here()
    damage = DamagedData("the index of aborted transactions is damaged", offset=4)
    bar_the_local_log(story, monkeypatch, damage)
    assert story.read(1).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert story.node.findings.take() == {story.partition.group: damage}


def test_a_fetch_that_waited_for_its_piece_stops_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer calls it, and an error there stops the node."""
    story = marker_here()
    bar_the_local_log(story, monkeypatch, NO_FILE)
    found: list[ShownRecords] = []
    story.reads.ask(story.partition, 1, lambda: found.append(read_shown(story.node, story.partition, 1, 1 << 20, Offset(6))))
    while story.world.tier.reads:
        story.world.tier.give()
    timers = story.world.ground.engine.timers
    timers.run_due(story.world.ground.engine.now_ms)
    assert [each.error for each in found] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_searches_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_aborted, "SEARCHES_MAX", 2)
    story = Story([*[(producer_id, None) for producer_id in range(4)], None], local_from=5)
    story.reads.ask(story.partition, 0)
    story.world.tier.give()
    for offset in range(1, 5):
        assert story.aborted.find(story.partition, offset, offset + 1) == NotKnown()
    assert len(story.aborted._searches) == 2
