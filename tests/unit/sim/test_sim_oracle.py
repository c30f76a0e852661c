"""The client oracle accepts honest histories and tells every broken promise; an unknown write may be anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from raftlake.kv.commands import ABSENT, Compare, Delete, Put, Txn, encode
from raftlake.kv.keys import STARTS_PREFIX, TOPICS_PREFIX
from raftlake.kv.machine import Entry, TxnResult
from raftlake.raft.types import NodeId
from raftlake.replica.reserved import Topic
from raftlake.sim.invariants import Violation
from raftlake.sim.oracle import MARK_PREFIX, Oracle, Shown, replay
from raftlake.wire.batches import Record
from raftlake.wire.ids import id_to_text


def log_of(*values: bytes, start: int = 1) -> list[Record]:
    return [Record(offset=start + index, value=value) for index, value in enumerate(values)]


def oracle_with(*batches: tuple[bytes, ...], acknowledged: Sequence[int | None]) -> Oracle:
    """One idempotent producer's batches; `acknowledged` are their offsets, None where the answer never came."""
    oracle = Oracle(1)
    sequence = 0
    for values, offset in zip(batches, acknowledged, strict=True):
        append = oracle.append_sent(0, "p", sequence, values)
        sequence += len(values)
        if offset is not None:
            oracle.append_acknowledged(append, offset)
    return oracle


# --- appends --------------------------------------------------------------------------------------------------------


def test_acknowledged_appends_at_their_offsets_are_fine() -> None:
    oracle_with((b"a", b"b"), (b"c",), acknowledged=[1, 3]).check_partition(0, log_of(b"a", b"b", b"c"))


@pytest.mark.parametrize(
    "records",
    [log_of(b"a", b"b"), log_of(b"a", b"b", b"x"), log_of(b"a", b"c", b"b"), log_of(b"a", b"b", b"c", b"c")],
    ids=["lost", "replaced", "reordered", "doubled"],
)
def test_an_acknowledged_append_that_is_lost_moved_or_doubled_is_told(records: list[Record]) -> None:
    with pytest.raises(Violation):
        oracle_with((b"a", b"b"), (b"c",), acknowledged=[1, 3]).check_partition(0, records)


@pytest.mark.parametrize("records", [log_of(b"a"), log_of(b"a", b"b", b"c")], ids=["absent", "present"])
def test_an_unknown_append_may_be_there_or_not(records: list[Record]) -> None:
    oracle_with((b"a",), (b"b", b"c"), acknowledged=[1, None]).check_partition(0, records)


def test_an_unknown_append_may_not_be_there_twice_or_in_part() -> None:
    oracle = oracle_with((b"a", b"b"), acknowledged=[None])
    with pytest.raises(Violation, match="twice"):
        oracle.check_partition(0, log_of(b"a", b"b", b"a", b"b"))
    with pytest.raises(Violation, match="whole or absent"):
        oracle.check_partition(0, log_of(b"a"))


def test_a_refused_append_must_be_absent() -> None:
    oracle = Oracle(1)
    oracle.append_refused(oracle.append_sent(0, "p", 0, (b"a",)))
    oracle.check_partition(0, [])
    with pytest.raises(Violation, match="refused"):
        oracle.check_partition(0, log_of(b"a"))


def test_what_nobody_sent_is_told() -> None:
    with pytest.raises(Violation, match="no client sent"):
        Oracle(1).check_partition(0, log_of(b"ghost"))


def test_an_idempotent_producers_order_is_kept_a_plain_ones_need_not_be() -> None:
    for keeps_order in (True, False):
        oracle = Oracle(1)
        oracle.append_sent(0, "p", 0, (b"a",), keeps_order=keeps_order)
        oracle.append_sent(0, "p", 1, (b"b",), keeps_order=keeps_order)
        if keeps_order:
            with pytest.raises(Violation, match="order"):
                oracle.check_partition(0, log_of(b"b", b"a"))
        else:
            oracle.check_partition(0, log_of(b"b", b"a"))


def test_an_acknowledgement_without_an_offset_is_told() -> None:
    with pytest.raises(Violation, match="has an offset"):
        oracle_with((b"a",), acknowledged=[-1])


# --- reads of a partition -------------------------------------------------------------------------------------------


def test_a_read_must_cover_what_was_acknowledged_or_read_before_it_was_asked() -> None:
    oracle = oracle_with((b"a", b"b"), acknowledged=[1])
    floor = oracle.floor(0)
    assert floor == 3
    oracle.append_acknowledged(oracle.append_sent(0, "p", 2, (b"c",)), 3)
    oracle.read_answered(0, floor, 3, "node 1")
    with pytest.raises(Violation, match="covers all"):
        oracle.read_answered(0, oracle.floor(0), 3, "node 1")
    oracle.read_answered(0, oracle.floor(0), 9, "node 2")
    with pytest.raises(Violation, match="9 was acknowledged or read"):
        oracle.read_answered(0, oracle.floor(0), 8, "node 1")


def test_the_newest_leader_must_list_all_that_was_acknowledged() -> None:
    oracle = oracle_with((b"a", b"b"), acknowledged=[1])
    oracle.latest_answered(0, oracle.floor(0), 3, "node 1")
    with pytest.raises(Violation, match="in its own epoch"):
        oracle.latest_answered(0, oracle.floor(0), 2, "node 1")


def test_a_node_must_have_reached_what_it_proved() -> None:
    Oracle(1).consumed_after_read(0, 5, 5, "node 1")
    with pytest.raises(Violation, match="reached"):
        Oracle(1).consumed_after_read(0, 5, 4, "node 1")


def shown(node_id: int, incarnation: int, high_watermark: int, *, epoch: int = 5, leads: bool = False) -> Shown:
    return Shown(
        node_id=NodeId(node_id),
        incarnation=incarnation,
        partition=0,
        epoch=epoch,
        leads=leads,
        high_watermark=high_watermark,
    )


def test_a_high_watermark_that_goes_back_is_told_a_restarted_nodes_may_be_lower() -> None:
    oracle = Oracle(1)
    oracle.high_watermark_seen(shown(1, 1, 7), 0)
    oracle.high_watermark_seen(shown(1, 2, 3), 0)
    oracle.high_watermark_seen(shown(2, 1, 5), 0)
    with pytest.raises(Violation, match="7 was shown before"):
        oracle.high_watermark_seen(shown(1, 1, 6), 0)


def test_a_leader_shows_at_least_what_was_shown_up_to_its_epoch() -> None:
    oracle = Oracle(1)
    oracle.high_watermark_seen(shown(1, 1, 7, epoch=5, leads=True), 0)
    oracle.high_watermark_seen(shown(3, 1, 9, epoch=7), 0)
    # A follower that is behind, and a leader that does not know yet of epoch 7.
    oracle.high_watermark_seen(shown(2, 1, 6, epoch=6), 0)
    oracle.high_watermark_seen(shown(2, 1, 7, epoch=6, leads=True), 0)
    with pytest.raises(Violation, match="9 was shown before"):
        oracle.high_watermark_seen(shown(4, 1, 8, epoch=7, leads=True), 0)


def test_a_high_watermark_below_the_position_asked_for_is_told() -> None:
    Oracle(1).high_watermark_seen(shown(1, 1, 7), 7)
    with pytest.raises(Violation, match="below the position"):
        Oracle(1).high_watermark_seen(shown(1, 1, 7), 8)


def test_a_consumed_record_must_be_committed_and_stay() -> None:
    oracle = oracle_with((b"a",), acknowledged=[1])
    oracle.record_seen(0, 1, b"a", 2)
    with pytest.raises(Violation, match="committed records only"):
        oracle.record_seen(0, 2, b"b", 2)
    with pytest.raises(Violation, match="once seen stays"):
        oracle.record_seen(0, 1, b"z", 2)
    oracle.append_sent(0, "p", 1, (b"b",))
    oracle.record_seen(0, 2, b"b", 3)
    with pytest.raises(Violation, match="was seen"):
        oracle.check_partition(0, log_of(b"a"))


# --- key-value space ------------------------------------------------------------------------------------------------


def put(mark: bytes, key: str = "k", compares: tuple[Compare, ...] = ()) -> Txn:
    return Txn(compares=compares, ops=(Put(MARK_PREFIX + "c", mark), Put(key, mark)))


def metadata_log(*txns: Txn, start: int = 5) -> list[Record]:
    return [Record(offset=start + index, value=encode(txn)) for index, txn in enumerate(txns)]


def done(offset: int, succeeded: bool = True, current: tuple[tuple[str, int], ...] = ()) -> TxnResult:
    return TxnResult(succeeded, offset, current)


def test_an_honest_key_value_history_is_fine() -> None:
    oracle = Oracle(1)
    first, second, third = put(b"1"), put(b"2", compares=(Compare("k", ABSENT),)), put(b"3")
    oracle.kv_write_answered(b"1", first, done(5), oracle.kv_floor)
    oracle.kv_write_answered(b"2", second, done(6, False, (("k", 5),)), oracle.kv_floor)
    oracle.kv_read_answered("k", Entry(b"1", 5), 7, oracle.kv_floor, "node 1")
    oracle.kv_read_answered("other", None, 7, oracle.kv_floor, "node 1")
    oracle.kv_write_answered(b"3", third, done(7), oracle.kv_floor)
    oracle.check_kv(metadata_log(first, second, third))


def test_a_get_that_misses_an_acknowledged_change_is_told() -> None:
    oracle = Oracle(1)
    oracle.kv_write_answered(b"1", put(b"1"), done(5), oracle.kv_floor)
    with pytest.raises(Violation, match="6 was acknowledged"):
        oracle.kv_read_answered("k", None, 5, oracle.kv_floor, "node 2")


def test_a_get_that_was_asked_before_the_answer_may_miss_the_change() -> None:
    oracle = Oracle(1)
    floor = oracle.kv_floor
    oracle.kv_write_answered(b"1", put(b"1"), done(5), oracle.kv_floor)
    oracle.kv_read_answered("k", None, 5, floor, "node 2")
    oracle.check_kv(metadata_log(put(b"1")))


def test_a_get_after_a_get_never_goes_back() -> None:
    oracle = Oracle(1)
    oracle.kv_read_answered("k", None, 9, oracle.kv_floor, "node 1")
    with pytest.raises(Violation):
        oracle.kv_read_answered("k", None, 8, oracle.kv_floor, "node 2")


def test_a_change_before_one_that_was_acknowledged_earlier_is_told() -> None:
    oracle = Oracle(1)
    oracle.kv_write_answered(b"1", put(b"1"), done(5), oracle.kv_floor)
    with pytest.raises(Violation, match="stands at 4"):
        oracle.kv_write_answered(b"2", put(b"2"), done(4), oracle.kv_floor)


@pytest.mark.parametrize(
    "tell",
    [
        lambda oracle: oracle.kv_write_answered(b"1", put(b"1"), done(6), 0),
        lambda oracle: oracle.kv_write_answered(b"1", put(b"1"), done(5, False), 0),
        lambda oracle: oracle.kv_write_answered(b"lost", put(b"lost"), done(5), 0),
        lambda oracle: oracle.kv_write_refused(b"1"),
        lambda oracle: oracle.kv_read_answered("k", Entry(b"0", 4), 6, 0, "node 1"),
        lambda oracle: oracle.kv_read_answered("k", None, 6, 0, "node 1"),
        lambda oracle: oracle.kv_read_answered("k", Entry(b"1", 5), 5, 0, "node 1"),
    ],
    ids=["other version", "other result", "lost", "refused", "invented value", "missing value", "value of the future"],
)
def test_an_answer_that_the_log_does_not_give_is_told(tell: Callable[[Oracle], None]) -> None:
    oracle = Oracle(1)
    tell(oracle)
    with pytest.raises(Violation):
        oracle.check_kv(metadata_log(put(b"1")))


def test_an_unknown_change_may_be_there_or_not_but_not_twice() -> None:
    Oracle(1).check_kv(metadata_log(put(b"1")))
    Oracle(1).check_kv([])
    with pytest.raises(Violation, match="applied twice"):
        Oracle(1).check_kv(metadata_log(put(b"1"), put(b"1")))


def test_a_replay_knows_what_the_rules_of_a_reserved_key_make_of_a_change() -> None:
    """Seed 1130001634: deletions of records up to 38 and to 23 were committed in this order, and the value stayed at 38."""
    topic_id = bytes(range(16))
    topic = Put(TOPICS_PREFIX + "t", Topic("t", topic_id, 1, {}).encode())
    key = f"{STARTS_PREFIX}{id_to_text(topic_id)}/0"
    starts = [Put(key, b'{"offset":%d,"recovery":""}' % offset) for offset in (38, 23)]
    _, _, histories = replay(metadata_log(*(Txn((), (each,)) for each in (topic, *starts))))
    assert [(at, entry and entry.value) for at, entry in histories[key]] == [(6, starts[0].value), (7, starts[0].value)]
    assert [entry and entry.version for _, entry in histories[key]] == [6, 7]


def test_a_replay_knows_deletions() -> None:
    delete = Txn(compares=(), ops=(Put(MARK_PREFIX + "c", b"2"), Delete("k")))
    results, marks, histories = replay(metadata_log(put(b"1"), delete))
    assert marks == {b"1": 5, b"2": 6}
    assert results[6] == done(6)
    assert histories["k"] == [(5, Entry(b"1", 5)), (6, None)]


def test_a_transaction_that_lost_its_conditions_on_the_way_is_told() -> None:
    oracle = Oracle(1)
    asked = Txn(compares=(Compare("k", ABSENT),), ops=put(b"1").ops)
    oracle.kv_write_sent(b"1", asked)
    oracle.check_kv(metadata_log(asked))
    with pytest.raises(Violation, match="what clients sent"):
        oracle.check_kv(metadata_log(put(b"1")))
