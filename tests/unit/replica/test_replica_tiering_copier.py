"""One copier alone: the test gives the answers of the tier and of the quorum, in every order that can be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from copierkit import Keys, Tier, segment_of
from enginekit import ORDERS, Ground
from raftlake.kv.commands import Compare, Delete, Put, Txn
from raftlake.kv.keys import tier_key, tier_segment_key
from raftlake.ports.tier import LineageEnd, RemoteSegment, TierError, TierFailure
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.kv.outcomes import ProposeOutcome, ProposeStatus
from raftlake.replica.partition.partition import Partition, PendingAppend
from raftlake.replica.tiering.copier import Copier
from raftlake.replica.tiering.step import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS
from raftlake.tier.entries import SEGMENT_KEYS_MAX, Copying, Tiered, decode_segment, decode_tiered, encode_tiered
from raftlake.wire.batches import iterate_headers
from raftlake.wire.ids import id_to_text
from transactionkit import data_batch, marker_batch

TOPIC_ID = id_to_text(ORDERS.topic_id)
KEY = tier_key(TOPIC_ID, 0)
EPOCHS = ((Epoch(1), Offset(0)),)
LOST = TierError(TierFailure.UNKNOWN, "no answer")


class World:
    """A partition that node 1 leads, with a control record at 0, and the copier of it."""

    def __init__(self) -> None:
        self.ground = Ground()
        self.partition: Partition = self.ground.lead(ORDERS)
        self.keys, self.tier = Keys(), Tier()
        keys: Any = self.keys
        self.copier = Copier(self.ground.engine, keys, self.tier, self.partition)

    def close_segment(self, records: int = 2) -> None:
        self.ground.append(self.partition, *[b"x"] * records)
        self.partition.roll()

    def append(self, batch: bytearray) -> None:
        """One batch or marker, committed."""
        pending = PendingAppend(batch, tuple(iterate_headers(batch)), 1 << 40, lambda *_: None, True)
        self.partition.appending.append(pending)
        self.ground.append_waiting(self.partition)

    def go_on(self, later_ms: int = 0) -> None:
        self.ground.time.ms += later_ms
        self.ground.engine.begin_input()
        self.copier.go_on()

    def copy_one(self) -> RemoteSegment:
        """One whole round: announced, made, finished."""
        self.go_on()
        self.keys.commit()
        copied = self.tier.copied()
        self.keys.commit()
        return copied

    @property
    def tiered(self) -> Tiered | None:
        entry = self.keys.machine.get(KEY)
        found = None if entry is None else decode_tiered(entry.value)
        assert found is None or isinstance(found, Tiered)
        return found

    def announce_by_another(self, end_offset: int, base_offset: int = 0) -> Copying:
        """COPY_STARTED of node 2 stands."""
        copying = Copying(
            segment_id="other",
            base_offset=Offset(base_offset),
            end_offset=Offset(end_offset),
            leader_epoch=Epoch(0),
            node_id=NodeId(2),
        )
        before = self.tiered or Tiered(start_offset=Offset(0), end_offset=Offset(0))
        self.keys.apply(Txn((), (Put(KEY, encode_tiered(before.start(copying))),)))
        return copying


@pytest.fixture
def world() -> World:
    world = World()
    world.close_segment()
    return world


def copied_up_to(end_offset: int, segments: int) -> Tiered:
    """What the key says after so many copies of the kit's tier."""
    counts = {"segments": segments, "size": 100 * segments, "log_bytes": 10 * segments}
    return Tiered(topic="orders", start_offset=Offset(0), end_offset=Offset(end_offset), epochs=EPOCHS, **counts)


def shown(base_offset: int, end_offset: int) -> RemoteSegment:
    """A copy that another leader made."""
    return RemoteSegment(
        segment_id="other",
        base_offset=Offset(base_offset),
        end_offset=Offset(end_offset),
        leader_epoch=Epoch(0),
        epochs=((Epoch(1), Offset(base_offset)),),
        timestamp_ms_max=-1,
        log_bytes=1,
        size=40,
        crc=2,
        file="f",
    )


def test_a_closed_segment_is_announced_copied_and_finished(world: World) -> None:
    world.go_on()
    assert world.tier.copies == [], "nothing is copied before it is announced"
    announced = world.keys.commit()
    assert announced.compares == (Compare(KEY, 0),) and len(announced.ops) == 1
    tiered = world.tiered
    assert (
        tiered is not None and tiered.copying is not None and (tiered.copying.base_offset, tiered.copying.end_offset) == (0, 3)
    )
    (request, _), *others = world.tier.copies
    assert others == [] and world.keys.proposed == []
    assert (request.base_offset, request.end_offset, request.segment_id) == (0, 3, tiered.copying.segment_id)
    assert request.leader_epoch == world.partition.core.epoch and request.epochs == ((world.partition.core.epoch, 0),)
    data = b"".join(source for source in request.sources if isinstance(source, bytes))
    assert [header.base_offset for header in iterate_headers(data)] == [0, 1]
    copied = world.tier.copied()
    finished = world.keys.commit()
    assert [type(operation) for operation in finished.ops] == [Put, Put]
    assert world.tiered == copied_up_to(3, 1)
    entry = world.keys.machine.get(tier_segment_key(TOPIC_ID, 0, 0))
    assert entry is not None and decode_segment(entry.value) == copied
    assert not world.copier.is_busy and (world.keys.proposed, world.tier.copies) == ([], [])


def test_the_next_segment_follows_where_the_last_copy_ended(world: World) -> None:
    world.go_on()
    world.keys.commit()
    assert not world.tier.copies[0][0].is_continued
    world.tier.copied()
    world.keys.commit()
    world.close_segment(3)
    world.go_on()
    world.keys.commit()
    assert world.tier.copies[0][0].is_continued, "a table that knows of no copy is not the one"
    copied = world.tier.copied()
    world.keys.commit()
    assert (copied.base_offset, copied.end_offset) == (3, 6)
    assert world.tiered == copied_up_to(6, 2)


def test_segments_that_wait_are_copied_one_after_another_without_a_pause(world: World) -> None:
    world.close_segment(1)
    world.go_on()
    for end in (3, 4):
        world.keys.commit()
        assert world.tier.copied().end_offset == end
        world.keys.commit()
    assert world.keys.proposed == [] and world.tiered is not None and world.tiered.end_offset == 4


def test_the_open_segment_and_what_is_not_committed_are_not_copied() -> None:
    world = World()
    world.ground.append(world.partition, b"open")
    world.go_on()
    assert world.keys.proposed == []
    world.partition.roll()
    high_watermark, world.partition.high_watermark = world.partition.high_watermark, Offset(1)
    world.go_on()
    assert world.keys.proposed == []
    world.partition.high_watermark = high_watermark
    world.go_on()
    assert len(world.keys.proposed) == 1


def test_a_segment_with_an_open_transaction_is_not_copied() -> None:
    """KIP-405: the tier tells nobody which transactions were aborted behind its end."""
    world = World()

    def append(data: bytearray) -> None:
        headers = tuple(iterate_headers(data))
        world.partition.appending.append(PendingAppend(data, headers, 1 << 40, lambda error, offset: None, idempotent=True))
        world.ground.append_waiting(world.partition)
        world.partition.roll()

    append(data_batch(7, 0))
    world.close_segment()
    world.go_on()
    assert world.keys.proposed == [] and world.partition.last_stable_offset == 1 < world.partition.high_watermark
    append(marker_batch(7))
    for _ in range(3):
        world.copy_one()
    assert world.tiered is not None and world.tiered.end_offset == world.partition.high_watermark == 5


def test_a_segment_whose_end_no_replica_could_begin_at_is_copied_with_the_next(world: World) -> None:
    world.partition.log.start_points.delete([Offset(3)])
    world.go_on()
    assert world.keys.proposed == []
    world.close_segment(1)
    world.go_on()
    world.keys.commit()
    (request, _), *_ = world.tier.copies
    assert (request.base_offset, request.end_offset, len(request.sources)) == (0, 4, 2)


def test_a_call_without_an_answer_is_claimed_and_tried_anew_under_another_name(world: World) -> None:
    world.go_on()
    world.keys.commit()
    first = world.tier.fail_copy(LOST)
    world.go_on()
    assert world.tier.claims == [], "not at once"
    world.go_on(RETRY_BACKOFF_MS)
    assert [(lineage.group, epoch) for lineage, epoch, _ in world.tier.claims] == [(ORDERS, world.partition.core.epoch)]
    world.tier.claimed(LineageEnd(None))
    world.keys.commit()
    (request, _), *_ = world.tier.copies
    assert (request.base_offset, request.end_offset) == (0, 3) and request.segment_id != first.segment_id
    world.tier.copied()
    world.keys.commit()
    assert world.tiered is not None and world.tiered.segments == 1


def test_a_copy_that_is_shown_though_its_answer_was_lost_is_not_made_twice(world: World) -> None:
    world.go_on()
    world.keys.commit()
    copied = segment_of(world.tier.fail_copy(LOST))
    world.go_on(RETRY_BACKOFF_MS)
    world.tier.claimed(LineageEnd(copied))
    assert world.tier.copies == []
    world.keys.commit()
    assert world.tiered == copied_up_to(3, 1)


def test_the_copy_of_a_former_leader_is_finished_where_it_is_shown(world: World) -> None:
    """It may have ended elsewhere: segments of replicas differ."""
    world.announce_by_another(2)
    world.go_on()
    assert world.keys.proposed == [] and world.tier.copies == []
    world.tier.claimed(LineageEnd(shown(0, 1)))
    world.keys.commit()
    assert world.tiered is not None and (world.tiered.end_offset, world.tiered.size) == (1, 40)
    world.keys.commit()
    (request, _), *_ = world.tier.copies
    assert (request.base_offset, request.end_offset) == (1, 3), "the rest of the segment that it ended amid"


def test_a_table_that_ends_amid_a_batch_is_told_and_ends_no_node(world: World) -> None:
    world.announce_by_another(2)
    world.go_on()
    world.tier.claimed(LineageEnd(shown(0, 2)))
    world.keys.commit()
    world.keys.commit()
    assert world.tier.copies == [] and world.copier.error is not None
    assert "ends at 2, which is amid a batch here" in world.copier.error.reason


def test_the_copy_of_a_former_leader_is_replaced_where_it_is_not_shown(world: World) -> None:
    world.copy_one()
    world.close_segment()
    world.announce_by_another(4, base_offset=3)
    world.go_on()
    world.tier.claimed(LineageEnd(shown(0, 3)))
    world.keys.commit()
    assert world.tiered is not None and world.tiered.copying is not None
    assert (world.tiered.copying.node_id, world.tiered.copying.end_offset) == (1, 5)


def test_another_announcement_after_the_claim_is_claimed_too(world: World) -> None:
    world.announce_by_another(3)
    world.go_on()
    world.tier.claimed(LineageEnd(None))
    world.announce_by_another(2)
    world.keys.commit()
    assert len(world.tier.claims) == 1 and world.tier.copies == [], "its compare failed"


def test_a_table_that_shows_something_else_is_left_alone(world: World) -> None:
    world.announce_by_another(3)
    world.go_on()
    world.tier.claimed(LineageEnd(shown(5, 9)))
    assert world.keys.proposed == [] and world.copier.error is not None
    assert "says that the table ends at 0, and it ends at 9" in world.copier.error.reason
    assert "rebuild-metadata" in world.copier.error.reason


def test_a_table_that_shows_nothing_of_what_was_copied_is_not_to_be_believed(world: World) -> None:
    """An empty directory stood where the share was not mounted, and the advice was to make the keys anew from that."""
    world.copy_one()
    world.close_segment()
    world.announce_by_another(4, base_offset=3)
    world.go_on()
    world.tier.claimed(LineageEnd(None))
    assert world.copier.error is not None and world.copier.error.failure is TierFailure.UNUSABLE
    assert "tells of copies up to 3" in world.copier.error.reason and "Mount its share" in world.copier.error.reason


def test_a_spoilt_key_stops_the_copies_and_says_what_to_do(world: World) -> None:
    world.keys.apply(Txn((), (Put(KEY, b"garbage"),)))
    world.go_on()
    assert world.keys.proposed == [] and world.copier.error is not None and "rebuild-metadata" in world.copier.error.reason


def test_a_log_that_begins_above_the_copies_is_not_copied(world: World) -> None:
    world.keys.apply(Txn((), (Put(KEY, encode_tiered(Tiered(start_offset=Offset(0), end_offset=Offset(0)))),)))
    world.close_segment()
    world.partition.log.advance_start(Offset(3))
    world.go_on()
    assert world.keys.proposed == [] and world.copier.error is not None
    assert "the table ends at 0, and the log begins at 3" in world.copier.error.reason
    assert "raftlake tier undo" in world.copier.error.reason and "gone" not in world.copier.error.reason


@pytest.mark.parametrize("is_applied", [False, True])
def test_an_announcement_with_an_unknown_outcome_counts_when_it_stands(world: World, is_applied: bool) -> None:
    world.go_on()
    txn = world.keys.answer(ProposeStatus.UNKNOWN)
    if is_applied:
        world.keys.apply(txn)
    world.go_on(RETRY_BACKOFF_MS)
    assert (len(world.tier.copies), len(world.keys.proposed)) == ((1, 0) if is_applied else (0, 1))
    assert world.tier.claims == []


def test_a_finish_with_an_unknown_outcome_is_proposed_again_only_where_it_does_not_stand(world: World) -> None:
    world.go_on()
    world.keys.commit()
    world.tier.copied()
    finish = world.keys.answer(ProposeStatus.UNKNOWN)
    world.go_on(RETRY_BACKOFF_MS)
    assert len(world.keys.proposed) == 1
    world.keys.apply(finish)
    world.keys.commit()
    assert world.tiered is not None and (world.tiered.end_offset, world.tiered.segments) == (3, 1)
    world.close_segment(1)
    assert world.copy_one().base_offset == 3


def test_nothing_is_done_for_a_copier_that_was_closed(world: World) -> None:
    world.go_on()
    world.copier.close()
    world.keys.commit()
    world.go_on(RETRY_BACKOFF_MAX_MS)
    assert world.tier.copies == [] and world.keys.proposed == []


def test_a_failure_after_the_end_of_its_copier_is_not_told(world: World) -> None:
    """The next leader fences it off, which is no fault."""
    world.go_on()
    world.keys.commit()
    world.copier.close()
    world.tier.fail_copy(LOST)
    assert world.copier.error is None and world.copier.failures == 0


def test_a_copy_that_is_shown_after_the_end_of_its_copier_is_not_finished_by_it(world: World) -> None:
    world.go_on()
    world.keys.commit()
    world.copier.close()
    world.tier.copied()
    assert world.keys.proposed == []


def test_retries_come_ever_later_and_a_success_forgets_them(world: World) -> None:
    waits = []
    for _ in range(9):
        world.go_on()
        while world.keys.proposed:
            world.keys.commit()
        if world.tier.claims:
            world.tier.claimed(LOST)
        else:
            world.tier.fail_copy(LOST)
        wait = 0
        while not world.tier.claims and not world.tier.copies:
            wait += 100
            world.go_on(100)
        waits.append(wait)
    assert waits[0] == RETRY_BACKOFF_MS and waits[1] == 2 * RETRY_BACKOFF_MS and waits[-1] == RETRY_BACKOFF_MAX_MS
    assert world.copier.failures == 9 and world.copier.error == LOST
    world.tier.claimed(LineageEnd(None))
    world.keys.commit()
    world.tier.copied()
    assert world.copier.failures == 0 and world.copier.error is None


@pytest.mark.parametrize("error", [LOST, TierError(TierFailure.DAMAGED, "a batch is not as it was written")])
def test_a_copy_that_fails_each_time_is_told_also_where_claims_go_well(world: World, error: TierError) -> None:
    """A store may take small commits in time, and no file. Each claim is a commit: they come ever later."""
    since_ms, waits = world.ground.engine.clock.wall_ms(), []
    world.go_on()
    for _ in range(9):
        world.keys.commit()
        world.tier.fail_copy(error)
        wait = 0
        while not world.tier.claims:
            assert world.copier.error == error and world.copier.failing_since_ms == since_ms
            wait += 100
            world.go_on(100)
        waits.append(wait)
        world.tier.claimed(LineageEnd(None))
        assert world.copier.error == error, "the next copy is to tell"
    assert waits[0] == RETRY_BACKOFF_MS and waits[1] == 2 * RETRY_BACKOFF_MS and waits[-1] == RETRY_BACKOFF_MAX_MS
    assert world.copier.failures == 9
    world.keys.commit()
    world.tier.copied()
    assert world.copier.failures == 0 and world.copier.error is None


def test_the_newest_copies_keep_their_keys(world: World) -> None:
    for _ in range(SEGMENT_KEYS_MAX + 2):
        world.copy_one()
        world.close_segment(1)
    entries, _ = world.keys.machine.list(f"{KEY}/", None, 1000)
    bases = [int(key.rpartition("/")[2]) for key, _ in entries]
    count = SEGMENT_KEYS_MAX + 2
    assert bases == [0, *range(3, 2 + count)][-SEGMENT_KEYS_MAX:]
    assert world.tiered is not None and world.tiered.segments == count
    assert world.tiered.end_offset == 2 + count


def test_a_finish_drops_the_oldest_key_and_no_other(world: World) -> None:
    for _ in range(SEGMENT_KEYS_MAX):
        world.copy_one()
        world.close_segment(1)
    world.go_on()
    world.keys.commit()
    world.tier.copied()
    txn = world.keys.commit()
    assert [operation.key for operation in txn.ops if isinstance(operation, Delete)] == [tier_segment_key(TOPIC_ID, 0, 0)]


def test_an_announcement_that_the_log_does_not_fit_any_more_is_replaced_without_a_claim(world: World) -> None:
    """No call was made for it, so there is nothing to fence off: a claim is a commit."""
    world.go_on()
    announced, done = world.keys.proposed.pop()
    world.partition.log.start_points.delete([Offset(3)])
    done(world.keys.apply(announced))
    world.go_on()
    assert world.tier.copies == [] and world.tier.claims == [] and world.keys.proposed == []
    world.close_segment(1)
    world.go_on()
    world.keys.commit()
    (request, _), *_ = world.tier.copies
    assert (request.base_offset, request.end_offset) == (0, 4) and world.tier.claims == []


@pytest.mark.parametrize("read_back", [None, LOST])
def test_a_copy_of_the_past_is_never_finished_in_a_table_that_was_cut_short_to_its_start(
    world: World, read_back: TierError | None
) -> None:
    """RESTORE, then `rebuild-metadata`: the table ends where the last copy began. That copy is not in it any more."""
    first = world.copy_one()
    world.close_segment()
    world.go_on()
    world.keys.commit()
    gone = world.tier.copied(read_back)
    world.keys.commit()
    assert gone.base_offset == first.end_offset
    cut = replace(copied_up_to(first.end_offset, 1), checked_offset=first.end_offset)
    world.keys.apply(Txn((), (Put(KEY, encode_tiered(cut)), Delete(tier_segment_key(TOPIC_ID, 0, gone.base_offset)))))
    world.go_on()
    announced = world.keys.commit()
    assert len(announced.ops) == 1, "nothing is finished that no call has made since"
    assert world.tiered is not None and (world.tiered.end_offset, world.tiered.safe_offset) == (3, 3)
    again = world.tier.copied(None)
    world.keys.commit()
    assert again.base_offset == 3 and again.segment_id != gone.segment_id
    assert world.tiered.end_offset == world.tiered.safe_offset == 5


@pytest.mark.parametrize("is_read_back", [False, True])
def test_a_copy_is_not_finished_over_keys_that_were_made_anew_meanwhile(world: World, is_read_back: bool) -> None:
    """Others may have removed it between its call and the word of the operator: the table is asked again."""
    world.go_on()
    world.keys.commit()
    request, done = world.tier.copies.pop()
    done(segment_of(request))
    _, _, checked = world.tier.checks.pop()
    empty = Tiered(topic="orders", start_offset=Offset(0), end_offset=Offset(0))
    if is_read_back:
        checked(None)
        world.keys.proposed.clear()
    world.keys.apply(Txn((), (Put(KEY, encode_tiered(empty)),)))
    if is_read_back:
        world.copier._on_outcome(ProposeOutcome(ProposeStatus.UNKNOWN))
        world.go_on(RETRY_BACKOFF_MS)
    else:
        checked(None)
    announced = world.keys.commit()
    assert len(announced.ops) == 1 and world.tiered is not None and world.tiered.end_offset == 0


def test_a_copy_is_not_made_twice_under_one_name_after_its_key_was_held(world: World) -> None:
    """What the table shows by then is told by a claim."""
    world.go_on()
    world.keys.commit()
    request, done = world.tier.copies.pop()
    done(segment_of(request))
    assert world.tiered is not None
    world.keys.apply(Txn((), (Put(KEY, encode_tiered(replace(world.tiered, is_held=True))),)))
    _, _, checked = world.tier.checks.pop()
    checked(TierError(TierFailure.CHANGED, "removed"))
    assert world.tier.copies == [] and world.keys.proposed == []
    world.tier.claimed(LineageEnd(segment_of(request)))
    world.keys.commit()
    assert world.tiered.end_offset == 3 and world.tiered.safe_offset == 0 and world.tiered.is_held


def test_a_copy_tells_which_of_its_transactions_are_aborted(world: World) -> None:
    """Those with records in it: one that began before, one that ends behind it; not the committed one."""
    for batch in (data_batch(7, 0), data_batch(8, 0), data_batch(9, 0)):
        world.append(batch)
    world.partition.roll()
    world.append(marker_batch(8, commit=True))
    world.append(marker_batch(7))
    world.append(data_batch(8, 1))
    world.append(marker_batch(9))
    world.partition.roll()
    world.append(marker_batch(8))
    world.partition.roll()
    assert world.partition.last_stable_offset == world.partition.log.end_offset
    for told in ([], [7, 9], [7, 9, 8], [8]):
        world.go_on()
        world.keys.commit()
        request, _ = world.tier.copies[0]
        assert [each.producer_id for each in request.aborted] == told
        world.tier.copied()
        world.keys.commit()
