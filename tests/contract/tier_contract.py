"""What every remote tier must do, whatever it is made of: the guarantees of `ports.RemoteTier`, by their numbers.

A test module derives `Test...` from `TierContract` and gives a `TierWorld`: nodes, a table, and what may happen to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import CopyRequest, FileRange, Lineage, LineageEnd, RemoteSegment, RemoteTier, TierError, TierFailure
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers
from raftlake.wire.control import leader_change_batch

GROUP = GroupId("flights", 2, bytes(range(16)))
LINEAGE = Lineage(GROUP, 0)

#: Offset, leader epoch, kind, milliseconds, key, value, headers.
Row = tuple[int, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Moment(Enum):
    """Where the process of a copy ends."""

    BEFORE_FILE = "before its file is complete"
    BEFORE_COMMIT = "between its file and its commit"
    AFTER_COMMIT = "between its commit and its answer"


class TierWorld(ABC):
    """Nodes that use one tier. A node's number is all that a test knows of it."""

    @abstractmethod
    def tier(self, node: int) -> RemoteTier:
        """The tier as this node has it."""

    @abstractmethod
    def settle(self, is_done: Callable[[], bool]) -> None:
        """Let calls proceed until `is_done`; an AssertionError where they all have ended without it."""

    @abstractmethod
    def crash(self, node: int, request: CopyRequest, moment: Moment) -> None:
        """Begin a copy whose process ends then. No answer comes, and the node uses a new process from now on."""

    @abstractmethod
    def delay(self, node: int, request: CopyRequest) -> Callable[[], None]:
        """Begin a copy that is given up while its commit is on the way. The result lets the commit arrive."""

    @abstractmethod
    def shown(self, lineage: Lineage) -> list[Row]:
        """The rows that a reader of the table sees, in the order of offsets."""

    @abstractmethod
    def put_foreign_table(self, group: GroupId) -> None:
        """Put a table of another topic where that of this one would be."""

    @abstractmethod
    def commits(self, group: GroupId) -> int:
        """How many commits the table at the place of this topic has."""

    @abstractmethod
    def damage(self, lineage: Lineage, segment: RemoteSegment) -> None:
        """Change what the store has of a copy: one byte among its values."""

    @abstractmethod
    @abstractmethod
    def put_together(self, lineage: Lineage) -> None:
        """Another program writes all copies of a lineage into one file, where the tier has files that others may write."""

    @abstractmethod
    def lose(self, lineage: Lineage, offset: Offset) -> None:
        """The same program loses the row of an offset, or its batch."""

    @abstractmethod
    def take_out(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        """Another program removes the rows of these copies."""

    @abstractmethod
    def put_back(self, lineage: Lineage, segments: Sequence[RemoteSegment]) -> None:
        """Another program puts back what it removed."""

    @abstractmethod
    def superseded(self, group: GroupId) -> dict[int, list[str]]:
        """The values that unclean elections took out of the table, by incarnation, in the order of offsets."""

    @abstractmethod
    def faults(self) -> list[str]:
        """What `raftlake tier verify` finds in the table of `GROUP`."""

    def ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """The answer to a call, which comes once, and later."""
        answers: list[Any] = []
        begin(answers.append)
        assert answers == [], "answered before the call returned"
        self.settle(lambda: bool(answers))
        assert len(answers) == 1
        return answers[0]

    def copy(self, node: int, request: CopyRequest) -> RemoteSegment | TierError:
        """The answer to a copy."""
        answer = self.ask(lambda done: self.tier(node).copy(request, done))
        assert isinstance(answer, RemoteSegment | TierError)
        return answer

    def claim(self, node: int, epoch: int, lineage: Lineage = LINEAGE) -> LineageEnd | TierError:
        """The answer to a claim."""
        answer = self.ask(lambda done: self.tier(node).claim(lineage, Epoch(epoch), done))
        assert isinstance(answer, LineageEnd | TierError)
        return answer

    def last(self, node: int, epoch: int, lineage: Lineage = LINEAGE) -> RemoteSegment | None:
        """The last copy, which a claim tells."""
        answer = self.claim(node, epoch, lineage)
        assert isinstance(answer, LineageEnd), answer
        return answer.last


def data_batch(base: int, epoch: int, *, count: int = 3, **more: Any) -> bytes:
    records = [
        Record(
            timestamp_ms=1_700_000_000_000 + base + n,
            key=None if n % 2 else b"k%d" % n,
            value=b"v%d" % (base + n),
            headers=(("h", b"%d" % n), ("n", None)) if n == 1 else (),
        )
        for n in range(count)
    ]
    return bytes(build_batch(records, base_offset=base, leader_epoch=epoch, timestamp_ms=0, **more))


def request_for(
    batches: bytes, segment_id: str, leader_epoch: int = 5, lineage: Lineage = LINEAGE, auxiliary: bytes = b"producers"
) -> CopyRequest:
    """A copy of these batches."""
    headers = list(iterate_headers(batches))
    epochs: list[tuple[Epoch, Offset]] = []
    for header in headers:
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((Epoch(header.leader_epoch), Offset(header.base_offset)))
    return CopyRequest(
        lineage=lineage,
        segment_id=segment_id,
        base_offset=Offset(headers[0].base_offset),
        end_offset=Offset(headers[-1].end_offset),
        leader_epoch=Epoch(leader_epoch),
        epochs=tuple(epochs),
        sources=(batches,),
        auxiliary=auxiliary,
    )


def bytes_of(request: CopyRequest) -> bytes:
    """The batches of a copy, which the request has with it."""
    return b"".join(source for source in request.sources if isinstance(source, bytes))


def segment(base: int, segment_id: str, *, epoch: int = 5, count: int = 6, lineage: Lineage = LINEAGE) -> CopyRequest:
    """A copy of `count` records in batches of three, which the leader of `epoch` has written and copies."""
    batches = b"".join(data_batch(base + n, epoch) for n in range(0, count, 3))
    return request_for(batches, segment_id, epoch, lineage)


def rows_of(*requests: CopyRequest) -> list[Row]:
    """What the table has to show after these copies."""
    rows: list[Row] = []
    for request in requests:
        batches = bytes_of(request)
        for header in iterate_headers(batches):
            batch = batches[header.position : header.end_position]
            for record in decode_records(batch, include_control=True):
                place = (record.offset, header.leader_epoch, int(header.is_control), record.timestamp_ms)
                rows.append((*place, record.key, record.value, record.headers))
    return rows


def failure(answer: object) -> TierFailure:
    assert isinstance(answer, TierError), answer
    assert answer.reason and "\n" not in answer.reason
    return answer.failure


class TierContract(ABC):
    """The suite."""

    @abstractmethod
    def make_world(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> TierWorld: ...

    def end_world(self, world: TierWorld) -> None:
        """After a test."""
        assert world

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TierWorld]:
        world = self.make_world(tmp_path, monkeypatch)
        yield world
        self.end_world(world)

    # --- 1: once -------------------------------------------------------------------------------------------------------------

    def test_1_copies_follow_one_another(self, world: TierWorld) -> None:
        assert world.last(1, 5) is None
        requests = [segment(base, f"s{base}") for base in (0, 6, 12)]
        for request in requests:
            made = world.copy(1, request)
            assert isinstance(made, RemoteSegment), made
            assert (made.segment_id, made.base_offset, made.end_offset) == (
                request.segment_id,
                request.base_offset,
                request.end_offset,
            )
            assert (made.leader_epoch, made.epochs) == (5, ((5, request.base_offset),))
            assert made.timestamp_ms_max == 1_700_000_000_000 + request.end_offset - 1
            assert made.log_bytes == len(bytes_of(request)) and made.size > 0
            assert world.last(1, 5) == made
        assert world.shown(LINEAGE) == rows_of(*requests)

    @pytest.mark.parametrize("base", [0, 3, 9])
    def test_1_a_gap_or_an_overlap_is_not_shown(self, world: TierWorld, base: int) -> None:
        first = segment(0, "a")
        world.copy(1, first)
        assert failure(world.copy(1, segment(base, "b"))) is TierFailure.ELSEWHERE
        assert world.shown(LINEAGE) == rows_of(first)
        assert isinstance(world.copy(1, segment(6, "c")), RemoteSegment)

    def test_1_a_lineage_begins_where_its_first_copy_does(self, world: TierWorld) -> None:
        first = segment(900, "a")
        assert isinstance(world.copy(1, first), RemoteSegment)
        assert failure(world.copy(1, segment(894, "b"))) is TierFailure.ELSEWHERE
        assert world.shown(LINEAGE) == rows_of(first)

    def test_1_a_table_that_knows_of_no_copy_is_not_begun_in_the_middle(self, world: TierWorld) -> None:
        """A share that is not mounted, say: what is copied there would hide what it has."""
        later = replace(segment(6, "b"), is_continued=True)
        assert failure(world.copy(1, later)) is TierFailure.UNUSABLE
        assert world.shown(LINEAGE) == []
        first = segment(0, "a")
        assert isinstance(world.copy(1, first), RemoteSegment)
        assert isinstance(world.copy(2, later), RemoteSegment)
        assert world.shown(LINEAGE) == rows_of(first, later)

    def test_1_partitions_have_their_own_ends(self, world: TierWorld) -> None:
        other = Lineage(GROUP._replace(partition=3), 0)
        for lineage in (LINEAGE, other):
            assert isinstance(world.copy(1, segment(0, f"a{lineage.group.partition}", lineage=lineage)), RemoteSegment)
        assert isinstance(world.copy(2, segment(6, "b", lineage=other)), RemoteSegment)
        assert [len(world.shown(lineage)) for lineage in (LINEAGE, other)] == [6, 12]
        ends = [world.last(1, 5, lineage) for lineage in (LINEAGE, other)]
        assert [end and end.end_offset for end in ends] == [6, 12]

    def test_1_a_commit_whose_answer_was_lost_is_not_made_again(self, world: TierWorld) -> None:
        """Fluss 1064, Aiven's whitepaper: the table had the rows, the bookkeeping did not, and the rows came a second time."""
        request = segment(0, "a")
        world.crash(1, request, Moment.AFTER_COMMIT)
        assert failure(world.copy(1, replace(request, segment_id="b"))) is TierFailure.ELSEWHERE
        last = world.last(1, 5)
        assert last is not None and (last.segment_id, last.end_offset) == ("a", 6)
        assert world.shown(LINEAGE) == rows_of(request)

    def test_1_the_late_commit_of_an_attempt_that_was_given_up_is_no_second_one(self, world: TierWorld) -> None:
        """Iceberg 15710: a cycle timed out and was repeated, and then its files came as well."""
        request = segment(0, "a")
        arrive = world.delay(1, request)
        again = replace(request, segment_id="b")
        assert isinstance(world.copy(1, again), RemoteSegment)
        arrive()
        assert world.shown(LINEAGE) == rows_of(request)
        last = world.last(1, 5)
        assert last is not None and last.segment_id == "b"

    def test_1_after_a_claim_nothing_late_comes_even_of_the_same_leader(self, world: TierWorld) -> None:
        arrive = world.delay(1, segment(0, "a"))
        assert world.last(1, 5) is None
        arrive()
        assert world.shown(LINEAGE) == []
        assert world.last(1, 5) is None
        assert isinstance(world.copy(1, segment(0, "b")), RemoteSegment)

    def test_1_of_two_writers_one_is_shown(self, world: TierWorld) -> None:
        """Fluss 2648: two jobs passed the check for the missing copy, and both committed."""
        first, second = segment(0, "a", epoch=5), segment(0, "b", epoch=6)
        arrive = world.delay(1, first)
        assert isinstance(world.copy(2, second), RemoteSegment)
        arrive()
        assert world.shown(LINEAGE) == rows_of(second)

    def test_1_a_node_that_has_seen_an_old_table_looks_again(self, world: TierWorld) -> None:
        """Fluss 2625: of two snapshots the wrong one was taken for the latest."""
        assert world.last(1, 5) is None
        assert isinstance(world.copy(2, segment(0, "a")), RemoteSegment)
        assert isinstance(world.copy(2, segment(6, "b")), RemoteSegment)
        assert failure(world.copy(1, segment(0, "c"))) is TierFailure.ELSEWHERE
        assert isinstance(world.copy(1, segment(12, "d")), RemoteSegment)
        assert failure(world.copy(2, segment(12, "e"))) is TierFailure.ELSEWHERE
        assert [row[0] for row in world.shown(LINEAGE)] == list(range(18))

    # --- 2: whole ------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.name)
    def test_2_a_copy_is_shown_whole_or_not_at_all(self, world: TierWorld, moment: Moment) -> None:
        first, second = segment(0, "a"), segment(6, "b", count=12)
        world.copy(1, first)
        world.crash(1, second, moment)
        is_shown = moment is Moment.AFTER_COMMIT
        assert world.shown(LINEAGE) == (rows_of(first, second) if is_shown else rows_of(first))
        last = world.last(2, 6)
        assert last is not None and last.end_offset == (18 if is_shown else 6)
        third = segment(int(last.end_offset), "c", epoch=6)
        assert isinstance(world.copy(2, third), RemoteSegment)
        assert [row[0] for row in world.shown(LINEAGE)] == list(range(third.end_offset))

    # --- 3: fenced -----------------------------------------------------------------------------------------------------------

    def test_3_after_a_claim_older_leaders_show_nothing(self, world: TierWorld) -> None:
        assert isinstance(world.copy(1, segment(0, "a", epoch=5)), RemoteSegment)
        last = world.last(2, 6)
        assert last is not None and last.end_offset == 6
        assert failure(world.copy(1, segment(6, "b", epoch=5))) is TierFailure.FENCED
        assert failure(world.claim(1, 5)) is TierFailure.FENCED
        assert isinstance(world.copy(2, segment(6, "c", epoch=6)), RemoteSegment)
        assert [row[1] for row in world.shown(LINEAGE)] == [5] * 6 + [6] * 6

    def test_3_a_copy_fences_too(self, world: TierWorld) -> None:
        assert isinstance(world.copy(2, segment(0, "a", epoch=6)), RemoteSegment)
        assert failure(world.copy(1, segment(6, "b", epoch=5))) is TierFailure.FENCED
        assert failure(world.claim(1, 5)) is TierFailure.FENCED

    def test_3_an_older_leader_that_wakes_up_in_the_middle_loses(self, world: TierWorld) -> None:
        arrive = world.delay(1, segment(0, "a", epoch=5))
        assert world.last(2, 6) is None
        arrive()
        assert world.shown(LINEAGE) == []
        request = segment(0, "b", epoch=6)
        assert isinstance(world.copy(2, request), RemoteSegment)
        assert world.shown(LINEAGE) == rows_of(request)

    def test_3_a_claim_that_was_fenced_has_no_effect(self, world: TierWorld) -> None:
        assert world.last(2, 7) is None
        assert failure(world.claim(1, 6)) is TierFailure.FENCED
        assert isinstance(world.copy(2, segment(0, "a", epoch=7)), RemoteSegment)

    def test_3_a_fence_holds_for_one_lineage(self, world: TierWorld) -> None:
        other = Lineage(GROUP._replace(partition=0), 0)
        assert world.last(2, 9) is None
        assert isinstance(world.copy(1, segment(0, "a", epoch=5, lineage=other)), RemoteSegment)
        assert isinstance(world.copy(1, segment(0, "b", epoch=5, lineage=Lineage(GROUP, 1))), RemoteSegment)

    # --- 4: exact ------------------------------------------------------------------------------------------------------------

    def test_4_the_rows_are_the_records(self, world: TierWorld, tmp_path: Path) -> None:
        """All kinds of batches, from bytes and from the middle of a file."""
        batches = [
            leader_change_batch(0, 3, 1_700_000_000_000, 1, (1, 2, 3), (1, 2)),
            data_batch(1, 3, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True),
            data_batch(4, 3, compression="zstd"),
            leader_change_batch(7, 5, 1_700_000_000_009, 2, (1, 2, 3), (2, 3)),
            data_batch(8, 5, log_append_time=True),
            bytes(build_batch([Record(), Record(value=b"")], base_offset=11, leader_epoch=5, timestamp_ms=-1)),
        ]
        whole = b"".join(batches)
        first, second = request_for(b"".join(batches[:3]), "a"), request_for(b"".join(batches[3:]), "b")
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(b"in front" + whole + b"behind")
        in_file = FileRange(str(path), 8 + len(bytes_of(first)), len(bytes_of(second)))
        assert isinstance(world.copy(1, first), RemoteSegment)
        made = world.copy(1, replace(second, sources=(in_file,)))
        assert isinstance(made, RemoteSegment) and made.log_bytes == len(bytes_of(second))
        assert world.shown(LINEAGE) == rows_of(request_for(whole, "all"))
        assert [row[2] for row in world.shown(LINEAGE)] == [1] + [0] * 6 + [1] + [0] * 5
        assert {row[3] for row in world.shown(LINEAGE)[-2:]} == {-1}

    def test_4_parts_of_several_segments_become_one_copy(self, world: TierWorld, tmp_path: Path) -> None:
        """Where a replica could not begin at the end of the first one."""
        request = segment(0, "a", count=9)
        batches = bytes_of(request)
        first, second, _ = (header.end_position for header in iterate_headers(batches))
        path = tmp_path / "segment.log"
        path.write_bytes(b"before" + batches[first:second] + b"behind")
        parts = (batches[:first], FileRange(str(path), 6, second - first), batches[second:])
        made = world.copy(1, replace(request, sources=parts))
        assert isinstance(made, RemoteSegment) and made.log_bytes == len(batches)
        assert world.shown(LINEAGE) == rows_of(request)

    def test_4_parts_in_another_order_are_not_shown(self, world: TierWorld) -> None:
        request = segment(0, "a")
        batches = bytes_of(request)
        first, _ = (header.end_position for header in iterate_headers(batches))
        swapped = replace(request, sources=(batches[first:], batches[:first]))
        assert failure(world.copy(1, swapped)) is TierFailure.DAMAGED
        assert world.shown(LINEAGE) == []

    @pytest.mark.parametrize(
        "change",
        [
            lambda request: {"sources": (bytes_of(request)[:-9] + b"?" + bytes_of(request)[-8:],)},
            lambda request: {"sources": (bytes_of(request)[:-1],)},
            lambda request: {"sources": (bytes_of(request) + bytes_of(request)[:10],)},
            lambda request: {"sources": (data_batch(0, 5) + data_batch(4, 5),), "end_offset": Offset(7)},
            lambda request: {"base_offset": Offset(1)},
            lambda request: {"end_offset": Offset(5)},
            lambda request: {"end_offset": Offset(7)},
            lambda request: {"sources": (), "end_offset": Offset(0)},
            lambda request: {"epochs": ((Epoch(4), Offset(0)),)},
            lambda request: {"leader_epoch": Epoch(4)},
            lambda request: {"sources": (FileRange("/nowhere/0.log", 0, 100),)},
        ],
        ids=[
            "a byte",
            "its end is cut",
            "half a batch more",
            "a gap inside",
            "begins elsewhere",
            "ends before",
            "ends behind",
            "empty",
            "other epochs",
            "from the future",
            "no file",
        ],
    )
    def test_4_what_is_damaged_or_not_what_was_asked_for_is_not_shown(
        self, world: TierWorld, change: Callable[[CopyRequest], dict[str, Any]]
    ) -> None:
        request = segment(0, "a")
        assert failure(world.copy(1, replace(request, **change(request)))) is TierFailure.DAMAGED
        assert world.shown(LINEAGE) == []
        assert world.last(1, 5) is None
        assert isinstance(world.copy(1, replace(request, segment_id="b")), RemoteSegment)
        assert world.shown(LINEAGE) == rows_of(request)

    # --- 5: answered ---------------------------------------------------------------------------------------------------------

    def test_5_each_call_is_answered_once_also_when_many_wait(self, world: TierWorld) -> None:
        answers: dict[int, list[object]] = {partition: [] for partition in range(8)}
        for partition, calls in answers.items():
            lineage = Lineage(GROUP._replace(partition=partition), 0)
            world.tier(1).copy(segment(0, f"a{partition}", lineage=lineage), calls.append)
        assert not any(answers.values())
        world.settle(lambda: all(answers.values()))
        assert all(len(calls) == 1 and isinstance(calls[0], RemoteSegment) for calls in answers.values())

    # --- 6: its own ----------------------------------------------------------------------------------------------------------

    def test_6_a_table_of_another_topic_is_not_written_to(self, world: TierWorld) -> None:
        world.put_foreign_table(GROUP)
        before = world.commits(GROUP)
        assert failure(world.copy(1, segment(0, "a"))) is TierFailure.UNUSABLE
        assert failure(world.claim(1, 5)) is TierFailure.UNUSABLE
        assert world.commits(GROUP) == before

    def test_6_a_topic_that_is_created_again_has_a_table_of_its_own(self, world: TierWorld) -> None:
        """Fluss 3483: a commit for a table that was dropped found the new one of that name."""
        recreated = Lineage(GROUP._replace(topic_id=bytes(range(1, 17))), 0)
        assert isinstance(world.copy(1, segment(0, "a")), RemoteSegment)
        assert world.last(1, 1, recreated) is None
        assert isinstance(world.copy(2, segment(0, "b", epoch=1, lineage=recreated)), RemoteSegment)
        assert isinstance(world.copy(1, segment(6, "c")), RemoteSegment)
        assert (len(world.shown(LINEAGE)), len(world.shown(recreated))) == (12, 6)
