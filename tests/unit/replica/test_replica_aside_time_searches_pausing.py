"""A search by time that reads on after a pause: what it is told of a partition that has changed meanwhile.

Batches of 1,000 bytes, two of them in a segment. The first record is the latest of all, and is deleted. So what the log finds
is of no use, and the batches behind it are looked at, one a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_replica_apis_delete_records import delete
from test_replica_aside_time_searches import ask, found, times

from raftlake.errors import ErrorCode, TooManyFiles
from raftlake.raft.types import Offset
from raftlake.replica.aside import time_searches
from raftlake.replica.aside.allowance import TURN_BYTES
from raftlake.replica.partition.partition import Partition
from replica_cluster import Cluster

LATEST_TIME = time_searches.MAX_TIMESTAMP
PAUSE_MS = 1_000
NOT_NOW = [(ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)]


class Search:
    """A question that is under way in a partition of its own: offset 0 is its leader's, 1 is deleted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 1, questions: int = 1) -> None:
        self.cluster = cluster = Cluster(size, segment_bytes=2_300)
        (self.group,) = cluster.create_topic("t")
        cluster.produce(self.group, times(9_000_000, size=900))
        for number in range(2, 9):
            # The latest ones stand in the second segment.
            cluster.produce(self.group, times(100 - number, size=900))
        delete(cluster, self.group, 2)
        self.node = cluster.leader(self.group)
        self.partition = self.node.partitions[self.group]
        assert [segment.base_offset for segment in self.partition.log.segments()] == [0, 3, 5, 7]
        monkeypatch.setattr(time_searches, "PAUSE_MS", PAUSE_MS)
        monkeypatch.setattr(time_searches, "BATCH_COST", TURN_BYTES)
        self.reads: list[int] = []
        self._listen(monkeypatch)
        self.answers = ask(cluster, self.group, *[LATEST_TIME] * questions)

    def _listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read = Partition.read_intact

        def heard(partition: Partition, start: Offset, limit: Offset, size_max: int, **given: Any) -> bytes:
            if partition is self.partition and size_max == 1:
                self.reads.append(start)
            return read(partition, start, limit, size_max, **given)

        monkeypatch.setattr(Partition, "read_intact", heard)

    def before(self, offset: int) -> None:
        """Let it pause there: that is what it would read next."""
        self.cluster.run(20 * PAUSE_MS, until=lambda: self.reads[-1:] == [offset - 1])
        assert not self.answers

    def trim_to(self, offset: int) -> None:
        """As retention does: a snapshot first, then a segment a turn."""
        log = self.partition.log
        self.node.snapshots.trim(self.partition, Offset(offset))
        self.cluster.run(PAUSE_MS // 2)
        self.node.snapshots.trim(self.partition, Offset(offset))
        self.cluster.run(PAUSE_MS // 4)
        assert log.start_offset == offset and not self.answers

    def told(self) -> list[tuple[int, int, int]]:
        self.cluster.run(30 * PAUSE_MS, until=lambda: bool(self.answers))
        return found(self.answers)

    def ask_again(self) -> list[tuple[int, int, int]]:
        self.answers = ask(self.cluster, self.group, LATEST_TIME)
        return self.told()


def test_the_batches_of_the_segments_that_can_hold_the_answer_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(monkeypatch)
    assert search.told() == [(0, 1_098, 2)]
    # In front of offset 2 stands what is deleted. Of the whole segments the one with the latest record is enough.
    assert search.reads[1:] == [2, 3, 4]


@pytest.mark.parametrize(("start", "answer"), [(0, (0, 1_098, 2)), (3, (0, 1_098, 2)), (5, NOT_NOW[0]), (7, NOT_NOW[0])])
def test_what_is_to_be_read_next_may_be_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, start: int, answer: tuple[int, int, int]
) -> None:
    """A read in front of the log's start ended the node. The rest of the log is no answer: the latest record may be gone with
    what was not looked at."""
    search = Search(monkeypatch)
    search.before(3)
    if start:
        search.trim_to(start)
    assert search.told() == [answer]
    again = {0: (0, 1_098, 2), 3: (0, 1_097, 3), 5: (0, 1_095, 5), 7: (0, 1_093, 7)}[start]
    assert search.ask_again() == [again]


def test_the_next_question_of_a_request_is_told_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(monkeypatch, questions=2)
    search.before(3)
    search.trim_to(5)
    assert search.told() == [*NOT_NOW, (0, 1_095, 5)]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_that_is_deleted_meanwhile_is_unknown(monkeypatch: pytest.MonkeyPatch, *, is_made_again: bool) -> None:
    """A log that is closed cannot be read: that ended the node."""
    search = Search(monkeypatch)
    search.before(3)
    done: list[Any] = []
    search.node.topics.delete(search.node.names.topic("t"), lambda *given: done.append(given))
    search.cluster.run(PAUSE_MS // 2, until=lambda: bool(done) and search.group not in search.cluster.disks[1].logs)  # type: ignore[index]
    if is_made_again:
        (search.group,) = search.cluster.create_topic("t")
        search.cluster.produce(search.group, times(7))
    error = ErrorCode.UNKNOWN_TOPIC_ID if is_made_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert search.told() == [(error, -1, -1)]
    if is_made_again:
        assert search.ask_again() == [(0, 1_007, 1)]


def begun_anew(search: Search) -> None:
    """As after an append that found no room."""
    search.node.turn._restarts.without_room(search.partition)
    search.node.engine.request_turn()


def test_a_partition_that_is_started_anew_meanwhile_has_no_leader_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(monkeypatch)
    search.before(3)
    begun_anew(search)
    assert not search.node.partitions[search.group].core.is_leader
    assert search.told() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]


def test_a_partition_that_was_started_anew_and_leads_again_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(monkeypatch)
    search.before(3)
    # From here on a pause is long enough for an election.
    monkeypatch.setattr(time_searches, "PAUSE_MS", 60_000)
    search.before(4)
    begun_anew(search)
    search.cluster.run(30_000, until=lambda: search.node.partitions[search.group].is_serving)
    assert not search.answers and search.node.partitions[search.group] is not search.partition
    search.cluster.run(60_000, until=lambda: bool(search.answers))
    assert search.told() == NOT_NOW
    monkeypatch.setattr(time_searches, "PAUSE_MS", PAUSE_MS)
    assert search.ask_again() == [(0, 1_098, 2)]


def test_who_lost_the_leadership_meanwhile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next leader may delete, and answers from what it has."""
    search = Search(monkeypatch, size=3)
    search.before(3)
    monkeypatch.setattr(time_searches, "PAUSE_MS", 60_000)
    search.before(4)
    search.cluster.cut(search.node.config.node_id)
    search.cluster.run(30_000, until=lambda: not search.partition.core.is_leader)
    assert not search.answers
    search.cluster.run(60_000, until=lambda: bool(search.answers))
    assert search.told() == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]
    monkeypatch.setattr(time_searches, "PAUSE_MS", PAUSE_MS)
    assert search.ask_again() == [(0, 1_098, 2)]


def test_segments_that_cannot_be_looked_at_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file could be opened, and the client was told that no record has the time."""
    cluster = Cluster(1, segment_bytes=60_000)
    (group,) = cluster.create_topic("t")
    for _ in range(3):
        cluster.produce(group, times(0))
    delete(cluster, group, 3)
    log = cluster.leader(group).partitions[group].log
    with monkeypatch.context() as patch:
        patch.setattr(log, "segments", failing(TooManyFiles("open ...timeindex: [Errno 24] Too many open files")))
        assert found(ask(cluster, group, 1_000, LATEST_TIME)) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)] * 2
    assert found(ask(cluster, group, 1_000, LATEST_TIME)) == [(0, 1_000, 3)] * 2


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail
