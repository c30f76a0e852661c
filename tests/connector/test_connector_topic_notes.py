"""Which topic a query has read under a name: kept in the quorum over restarts, looked at by the first tasks of a run."""

from __future__ import annotations

import pytest

from connector.fakekeys import FakeKeys
from connector.fakelog import FakeQuorum
from connector.fakequery import Query
from pyspark_raftlake.errors import DataLoss
from pyspark_raftlake.topic_notes import Note, note_topic
from raftlake.kv.commands import Put

OLD, NEW = bytes(15) + b"\x01", bytes(15) + b"\x02"
KEY = "/sources/q%2F1/t"


class Keys(FakeKeys):
    """With single puts."""

    def put(self, key: str, value: bytes, *, if_version: int | None = None) -> int:
        return self.txn({} if if_version is None else {key: if_version}, [Put(key, value)])


def noted(space: Keys, topic_id: bytes, note: Note = Note.CHECK, *, fail: bool = True) -> None:
    note_topic(space, "q/1", "t", topic_id, note, fail=fail)


def test_the_first_run_writes_down_what_it_reads_and_later_ones_compare() -> None:
    space = Keys()
    noted(space, OLD)
    assert space.entries[KEY][0] == b'{"topic_id": "00000000000000000000000000000001"}'
    noted(space, OLD)
    assert len(space.commands) == 1
    with pytest.raises(DataLoss, match=r"Topic t was deleted and created again while the query was down: .*01, .*02 now"):
        noted(space, NEW)
    # It fails again as long as nobody decides.
    with pytest.raises(DataLoss):
        noted(space, NEW)


def test_without_failing_the_query_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    space = Keys()
    noted(space, OLD)
    for _ in range(2):
        noted(space, NEW, fail=False)
    assert caplog.text.count("created again while the query was down") == 1
    noted(space, NEW)


def test_a_run_that_found_the_new_topic_itself_writes_it_down() -> None:
    space = Keys()
    noted(space, OLD)
    noted(space, NEW, Note.REPLACE)
    noted(space, NEW)
    noted(space, OLD, Note.NONE)


def test_two_tasks_at_once_and_a_key_that_means_nothing() -> None:
    space = Keys()
    space.before_txn = [lambda: noted(space, OLD)]
    noted(space, OLD)
    assert len(space.commands) == 2
    for value in (b"", b"no json", b"{}", b'{"topic_id":7}', b'{"topic_id":"zz"}'):
        space.entries[KEY] = (value, 50)
        noted(space, NEW)
        assert b"02" in space.entries[KEY][0]


def notes(query: Query) -> list[str]:
    start = dict(query.planner.initial_offsets()) if query.end is None else query.end
    query.now_ms += 2_000
    query.end = dict(query.planner.plan_end(start, query.planner.default_limit()))
    return [task.note.value for task in query.planner.plan_tasks(start, query.end)]


def test_the_first_tasks_of_each_topic_and_run_look() -> None:
    quorum = FakeQuorum(t=2)
    quorum.set_bounds("t", (0, 5), (0, 5))
    query = Query(quorum, startingOffsets="earliest", failOnDataLoss="false")
    assert notes(query) == ["check", "check"]
    quorum.set_bounds("t", (0, 7), (0, 7))
    assert notes(query) == ["none", "none"]
    quorum.recreate("t")
    quorum.set_bounds("t", (0, 3), (0, 3))
    assert notes(query) == []
    assert notes(query) == ["replace", "replace"]
    quorum.set_bounds("t", (0, 4), (0, 4))
    assert notes(query) == ["none", "none"]
    query.restart()
    quorum.set_bounds("t", (0, 5), (0, 5))
    assert notes(query) == ["check", "check"]
