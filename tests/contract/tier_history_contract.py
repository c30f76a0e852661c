"""What every remote tier must do with the history that it has: the guarantees 7 to 9 of `ports.RemoteTier`.

A test module derives `Test...` from `TierContract` and this class.
"""

from __future__ import annotations

from typing import Any

import pytest

from contract.tier_contract import GROUP, LINEAGE, TierWorld, bytes_of, data_batch, failure, request_for, segment
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import (
    CopyRequest,
    Lineage,
    LineageFacts,
    ReadRequest,
    RemoteFile,
    RemoteSegment,
    RemoteState,
    TierError,
    TierFailure,
)
from raftlake.raft.types import Epoch, Offset
from raftlake.wire.batches import Record, build_batch, decode_records, iterate_headers
from raftlake.wire.control import leader_change_batch

OTHER = Lineage(GROUP._replace(partition=3), 0)


def copied(world: TierWorld, *requests: CopyRequest) -> list[RemoteSegment]:
    made = [world.copy(1, request) for request in requests]
    assert all(isinstance(each, RemoteSegment) for each in made), made
    return [each for each in made if isinstance(each, RemoteSegment)]


def read(
    world: TierWorld, offset: int, end: int = 1 << 40, size: int = 1 << 20, lineage: Lineage = LINEAGE, node: int = 1
) -> bytes | TierError:
    request = ReadRequest(lineage=lineage, offset=Offset(offset), end_offset=Offset(end), size_max=size)
    answer = world.ask(lambda done: world.tier(node).read(request, done))
    assert isinstance(answer, bytes | TierError)
    return answer


def find(world: TierWorld, offset: int, lineage: Lineage = LINEAGE) -> RemoteState | TierError:
    answer = world.ask(lambda done: world.tier(1).find(lineage, Offset(offset), done))
    assert isinstance(answer, RemoteState | TierError)
    return answer


def check(world: TierWorld, segment: RemoteSegment, lineage: Lineage = LINEAGE) -> TierError | None:
    answer = world.ask(lambda done: world.tier(1).check(lineage, segment, done))
    assert answer is None or isinstance(answer, TierError)
    return answer


def delete(world: TierWorld, until: int, epoch: int = 5, lineage: Lineage = LINEAGE, node: int = 1) -> int | TierError:
    answer = world.ask(lambda done: world.tier(node).delete(lineage, Epoch(epoch), Offset(until), done))
    assert isinstance(answer, int | TierError)
    return answer


def drop(world: TierWorld, group: GroupId = GROUP, partitions: int = 4) -> TierError | None:
    answer = world.ask(lambda done: world.tier(2).drop(group, partitions, done))
    assert answer is None or isinstance(answer, TierError)
    return answer


def oldest(world: TierWorld, count: int, lineage: Lineage = LINEAGE) -> tuple[RemoteFile, ...]:
    answer = world.ask(lambda done: world.tier(1).oldest(lineage, count, done))
    assert isinstance(answer, tuple), answer
    return answer


def facts(world: TierWorld, of: Lineage | GroupId = LINEAGE) -> LineageFacts | TierError:
    answer = world.ask(lambda done: world.tier(1).facts(of, done))
    assert isinstance(answer, LineageFacts | TierError)
    return answer


def all_kinds() -> list[bytes]:
    """Batches of every kind, of which each has the bytes that it has again when it is made anew."""
    return [
        leader_change_batch(0, 3, 1_700_000_000_000, 1, (1, 2, 3), (1, 2)),
        data_batch(1, 3, producer_id=7, producer_epoch=1, base_sequence=0, transactional=True),
        data_batch(4, 3),
        leader_change_batch(7, 5, 1_700_000_000_009, 2, (1, 2, 3), (2, 3)),
        data_batch(8, 5, log_append_time=True),
        bytes(build_batch([Record(), Record(value=b"")], base_offset=11, leader_epoch=5, timestamp_ms=-1)),
    ]


class TierHistoryContract:
    """The suite. `world` is the fixture of `TierContract`."""

    # --- 7: read exactly -----------------------------------------------------------------------------------------------------

    def test_7_batches_come_back_as_the_log_had_them(self, world: TierWorld) -> None:
        batches = all_kinds()
        copied(world, request_for(b"".join(batches[:3]), "a"), request_for(b"".join(batches[3:]), "b"))
        assert read(world, 0) == b"".join(batches)
        # From the middle of a batch: the whole batch comes.
        for offset, first in ((0, 0), (1, 1), (2, 1), (3, 1), (6, 2), (7, 3), (9, 4), (12, 5)):
            assert read(world, offset) == b"".join(batches[first:])

    def test_7_compressed_batches_hold_the_same_records(self, world: TierWorld) -> None:
        batches = [data_batch(3 * n, 5, compression=codec) for n, codec in enumerate(("zstd", "gzip", "lz4", "snappy"))]
        copied(world, request_for(b"".join(batches), "a"))
        found = read(world, 4)
        assert isinstance(found, bytes)
        headers = list(iterate_headers(found))
        wanted = [next(iterate_headers(batch)) for batch in batches[1:]]
        assert [(each.base_offset, each.end_offset, each.attributes, each.leader_epoch) for each in headers] == [
            (each.base_offset, each.end_offset, each.attributes, each.leader_epoch) for each in wanted
        ]
        for header, batch in zip(headers, batches[1:], strict=True):
            piece = found[header.position : header.end_position]
            assert list(decode_records(piece)) == list(decode_records(batch))

    def test_7_an_answer_keeps_to_its_size_and_its_end_and_the_next_one_goes_on(self, world: TierWorld) -> None:
        batches = [data_batch(3 * n, 5) for n in range(8)]
        copied(world, *(request_for(b"".join(batches[n : n + 4]), f"s{n}") for n in (0, 4)))
        size = len(batches[0]) + len(batches[1])
        assert read(world, 0, size=size) == b"".join(batches[:2])
        assert read(world, 6, size=size - 1) == batches[2]
        # A batch that is larger than the answer may be comes alone.
        assert read(world, 9, size=1) == batches[3]
        assert read(world, 12, end=18) == b"".join(batches[4:6])
        assert read(world, 18, end=20) == b""
        assert read(world, 18, end=18) == b""
        assert read(world, 18) == b"".join(batches[6:])
        # And again, from elsewhere.
        assert read(world, 3, size=size) == b"".join(batches[1:3])

    def test_7_what_was_copied_since_the_last_read_is_there(self, world: TierWorld) -> None:
        first, second = segment(0, "a"), segment(6, "b")
        copied(world, first)
        assert read(world, 0) == bytes_of(first)
        assert failure(read(world, 6)) is TierFailure.ABSENT
        assert isinstance(world.copy(2, second), RemoteSegment)
        assert read(world, 6) == bytes_of(second)
        assert read(world, 3) == bytes_of(first)[len(bytes_of(first)) // 2 :] + bytes_of(second)

    def test_7_an_offset_that_no_copy_holds_is_absent(self, world: TierWorld) -> None:
        for answer in (read(world, 0), find(world, 0), facts(world), facts(world, GROUP)):
            assert failure(answer) is TierFailure.ABSENT
        assert oldest(world, 5) == ()
        copied(world, segment(90, "a"), segment(0, "o", lineage=OTHER))
        for offset in (0, 89, 96):
            assert failure(read(world, offset)) is TierFailure.ABSENT
            assert failure(find(world, offset)) is TierFailure.ABSENT
        # Another partition.
        lineage = Lineage(GROUP._replace(partition=1), 0)
        assert failure(read(world, 90, lineage=lineage)) is TierFailure.ABSENT
        assert failure(find(world, 90, lineage)) is TierFailure.ABSENT
        assert failure(facts(world, lineage)) is TierFailure.ABSENT

    def test_7_an_incarnation_does_not_read_rows_of_a_later_one(self, world: TierWorld) -> None:
        again = Lineage(GROUP, 1)
        first, second = segment(0, "a"), segment(6, "b", epoch=7, lineage=again)
        copied(world, first, second)
        assert read(world, 0) == bytes_of(first)
        assert read(world, 6, lineage=again) == bytes_of(second)
        assert failure(read(world, 6)) is TierFailure.ABSENT
        assert failure(find(world, 6)) is TierFailure.ABSENT
        found = facts(world, GROUP)
        assert isinstance(found, LineageFacts) and (found.lineage, found.end_offset) == (again, 12)

    def test_7_the_copy_that_holds_an_offset_and_what_lies_beside_it(self, world: TierWorld) -> None:
        requests = [request_for(data_batch(base, 5), f"s{base}", auxiliary=b"of %d" % base) for base in (0, 3, 6)]
        made = copied(world, *requests)
        for offset in range(9):
            assert find(world, offset) == RemoteState(made[offset // 3], b"of %d" % (offset // 3 * 3))

    def test_7_what_is_damaged_is_not_given(self, world: TierWorld) -> None:
        requests = [segment(6 * n, f"s{n}", count=6) for n in range(3)]
        made = copied(world, *requests)
        world.damage(LINEAGE, made[1])
        assert failure(read(world, 6)) is TierFailure.DAMAGED
        assert read(world, 0, end=6) == bytes_of(requests[0])
        assert read(world, 12) == bytes_of(requests[2])

    def test_7_the_facts_of_a_lineage(self, world: TierWorld) -> None:
        world.claim(1, 4)
        batches = [data_batch(3 * n, epoch) for n, epoch in enumerate((2, 2, 3, 3, 3, 6))]
        requests = [request_for(b"".join(batches[n : n + 3]), f"s{n}", 7) for n in (0, 3)]
        made = copied(world, *requests)
        found = facts(world)
        assert found == facts(world, GROUP)
        assert found == LineageFacts(
            lineage=LINEAGE,
            leader_epoch=Epoch(7),
            start_offset=Offset(0),
            end_offset=Offset(18),
            segments=2,
            size=sum(each.size for each in made),
            log_bytes=sum(map(len, batches)),
            epochs=((Epoch(2), Offset(0)), (Epoch(3), Offset(6)), (Epoch(6), Offset(15))),
            newest=tuple(made),
        )
        assert world.last(1, 9) == made[1]
        after = facts(world)
        assert isinstance(after, LineageFacts) and after.leader_epoch == 9

    def test_7_of_many_copies_the_newest_sixteen_are_told(self, world: TierWorld) -> None:
        made = copied(world, *(segment(3 * n, f"s{n:02}", count=3) for n in range(18)))
        found = facts(world)
        assert isinstance(found, LineageFacts)
        assert (found.segments, found.newest) == (18, tuple(made[-16:]))
        files = oldest(world, 3)
        assert files == tuple(
            RemoteFile(
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                timestamp_ms_max=each.timestamp_ms_max,
                size=each.size,
                log_bytes=each.log_bytes,
            )
            for each in made[:3]
        )
        assert len(oldest(world, 100)) == 18

    # --- 8: checked ----------------------------------------------------------------------------------------------------------

    def test_8_a_copy_that_is_as_it_was_written_is_right(self, world: TierWorld) -> None:
        made = copied(world, segment(0, "a"), segment(6, "b"))
        assert [check(world, each) for each in made] == [None, None]

    def test_8_one_byte_makes_a_copy_damaged(self, world: TierWorld) -> None:
        made = copied(world, segment(0, "a"), segment(6, "b"))
        world.damage(LINEAGE, made[1])
        assert check(world, made[0]) is None
        answer = check(world, made[1])
        assert failure(answer) is TierFailure.DAMAGED
        assert isinstance(answer, TierError) and made[1].file in answer.reason

    def test_8_a_copy_that_is_shown_no_more_is_absent(self, world: TierWorld) -> None:
        made = copied(world, segment(0, "a"), segment(6, "b"))
        assert delete(world, 6) == 6
        assert failure(check(world, made[0])) is TierFailure.ABSENT
        assert check(world, made[1]) is None
        assert failure(check(world, made[1], OTHER)) is TierFailure.ABSENT

    def test_8_a_copy_is_right_also_in_a_file_that_somebody_rewrote(self, world: TierWorld) -> None:
        """Delta's OPTIMIZE may come between a copy and its check. Local disks wait for the check."""
        batches = [data_batch(12, 5), data_batch(15, 5, compression="zstd")]
        made = copied(world, segment(0, "a"), segment(6, "b"), request_for(b"".join(batches), "c"))
        world.put_together(LINEAGE)
        assert [check(world, each) for each in made] == [None] * 3

    def test_8_a_claim_tells_of_a_copy_in_a_rewritten_file_what_a_check_finds_right(self, world: TierWorld) -> None:
        """The first leader is gone before it could say that the copy is finished."""
        made = copied(world, segment(0, "a"), segment(6, "b"))
        world.put_together(LINEAGE)
        last = world.last(2, 6)
        assert last == made[1] and check(world, last) is None
        copied(world, segment(12, "c", epoch=6))
        world.put_together(LINEAGE)
        assert check(world, last) is None

    @pytest.mark.parametrize("lost", [6, 8, 11])
    def test_8_a_rewritten_file_that_lacks_a_row_is_found(self, world: TierWorld, lost: int) -> None:
        made = copied(world, segment(0, "a"), segment(6, "b"), segment(12, "c"))
        world.put_together(LINEAGE)
        world.lose(LINEAGE, Offset(lost))
        assert failure(check(world, made[1])) is TierFailure.DAMAGED
        assert [check(world, made[n]) for n in (0, 2)] == [None, None]

    # --- 9: deleted whole ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("until", "start"), [(0, 0), (5, 0), (6, 6), (11, 6), (12, 12), (17, 12), (18, 18), (99, 18)])
    def test_9_files_go_whose_rows_all_lie_below(self, world: TierWorld, until: int, start: int) -> None:
        requests = [segment(base, f"s{base}") for base in (0, 6, 12)]
        other = segment(0, "o", lineage=OTHER)
        copied(world, *requests, other)
        for _ in range(2):
            # A repeated call answers the same.
            assert delete(world, until) == start
            assert [row[0] for row in world.shown(LINEAGE)] == list(range(start, 18))
        assert len(world.shown(OTHER)) == 6
        if start:
            assert failure(read(world, start - 1)) is TierFailure.ABSENT
            assert failure(find(world, start - 1)) is TierFailure.ABSENT
        assert read(world, start) == b"".join(map(bytes_of, requests[start // 6 :])) if start < 18 else True
        found = facts(world)
        assert isinstance(found, LineageFacts)
        assert (found.start_offset, found.end_offset, found.segments) == (start, 18, 3 - start // 6)
        assert [each.base_offset for each in oldest(world, 9)] == list(range(start, 18, 6))

    def test_9_a_copy_goes_on_where_the_last_one_ended_also_where_nothing_is_left(self, world: TierWorld) -> None:
        copied(world, segment(0, "a"))
        assert delete(world, 6) == 6
        assert world.shown(LINEAGE) == []
        assert failure(world.copy(1, segment(0, "again"))) is TierFailure.ELSEWHERE
        assert failure(world.copy(1, segment(9, "gap"))) is TierFailure.ELSEWHERE
        request = segment(6, "b")
        copied(world, request)
        assert read(world, 6) == bytes_of(request)
        assert delete(world, 6) == 6

    def test_9_of_a_lineage_without_a_copy_nothing_is_deleted(self, world: TierWorld) -> None:
        assert delete(world, 100) == 0
        assert isinstance(world.copy(1, segment(900, "a")), RemoteSegment)
        assert delete(world, 100) == 900

    def test_9_a_delete_is_fenced_and_fences(self, world: TierWorld) -> None:
        copied(world, segment(0, "a"), segment(6, "b"))
        assert world.last(2, 6) is not None
        assert failure(delete(world, 6, epoch=5)) is TierFailure.FENCED
        assert len(world.shown(LINEAGE)) == 12
        assert delete(world, 6, epoch=7, node=2) == 6
        assert failure(world.copy(1, segment(12, "c", epoch=6))) is TierFailure.FENCED
        assert failure(world.claim(1, 6)) is TierFailure.FENCED

    def test_9_a_late_copy_of_an_older_leader_does_not_come_behind_a_delete(self, world: TierWorld) -> None:
        copied(world, segment(0, "a"))
        arrive = world.delay(1, segment(6, "b"))
        assert delete(world, 6, epoch=6, node=2) == 6
        arrive()
        assert world.shown(LINEAGE) == []

    def test_9_a_topic_that_is_dropped_shows_nothing_any_more(self, world: TierWorld) -> None:
        copied(world, segment(0, "a"), segment(6, "b"), segment(0, "o", lineage=OTHER))
        arrive = world.delay(1, segment(12, "late"))
        for _ in range(2):
            assert drop(world) is None
            assert (world.shown(LINEAGE), world.shown(OTHER)) == ([], [])
        arrive()
        for lineage in (LINEAGE, OTHER, Lineage(GROUP._replace(partition=0), 0)):
            answers: list[Any] = [
                world.copy(1, segment(12, f"after{lineage.group.partition}", epoch=99, lineage=lineage)),
                world.claim(1, 100, lineage),
                delete(world, 50, epoch=100, lineage=lineage),
            ]
            assert [failure(answer) for answer in answers] == [TierFailure.FENCED] * 3
            assert world.shown(lineage) == []
        assert failure(read(world, 0)) is TierFailure.ABSENT

    def test_9_a_topic_that_never_had_a_copy_gets_none_after_its_drop(self, world: TierWorld) -> None:
        """Fluss 3483: a late commit made the table of a dropped topic again."""
        assert drop(world) is None
        assert failure(world.copy(1, segment(0, "a"))) is TierFailure.FENCED
        recreated = Lineage(GROUP._replace(topic_id=bytes(range(1, 17))), 0)
        assert isinstance(world.copy(1, segment(0, "b", lineage=recreated)), RemoteSegment)
        assert drop(world) is None
        assert len(world.shown(recreated)) == 6
