"""Lists of keys are judged by the log: order, completeness, the page, and what may come before another answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlake.kv.commands import Delete, Put, Txn, encode
from raftlake.kv.machine import Entry
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import Settings
from raftlake.sim.histories.listing import KvList, check_lists
from raftlake.sim.invariants import Violation
from raftlake.sim.oracle import MARK_PREFIX, Oracle
from raftlake.wire.batches import Record

HISTORIES = {
    "key/10": [(7, Entry(b"x", 7))],
    "key/2": [(5, Entry(b"a", 5)), (9, None)],
    "key/1": [(6, Entry(b"b", 6)), (8, Entry(b"c", 8))],
    "other": [(4, Entry(b"o", 4))],
}
TEN, ONE, TWO = ("key/10", Entry(b"x", 7)), ("key/1", Entry(b"c", 8)), ("key/2", Entry(b"a", 5))


def listed(
    *found: tuple[str, Entry], position: int = 9, limit: int = 9, after: str | None = None, more: bool = False
) -> KvList:
    return KvList(prefix="key/", after=after, limit=limit, found=found, has_more=more, position=position)


@pytest.mark.parametrize(
    "honest",
    [
        listed(ONE, TEN, TWO),
        listed(ONE, TEN, position=10),
        listed(("key/1", Entry(b"b", 6)), TWO, position=7),
        listed(position=5),
        listed(ONE, TEN, limit=2, more=True),
        listed(ONE, TEN, TWO, limit=3),
        listed(TEN, TWO, after="key/1"),
        listed(TWO, after="key/100"),
        listed(ONE, TEN, TWO, after="ke"),
        listed(after="other"),
    ],
)
def test_a_list_of_its_position_is_fine(honest: KvList) -> None:
    check_lists([honest], HISTORIES)


@pytest.mark.parametrize(
    "wrong",
    [
        listed(ONE, TWO, TEN),
        listed(ONE, TWO),
        listed(ONE, TEN),
        listed(ONE, TEN, TWO, position=10),
        listed(("key/1", Entry(b"b", 6)), TEN, TWO),
        listed(ONE, TEN, TWO, ("other", Entry(b"o", 4))),
        listed(ONE, TEN, TWO, more=True),
        listed(ONE, TEN, limit=2),
        listed(ONE, limit=2, more=True),
        listed(ONE, TEN, TWO, limit=2),
        listed(ONE, TEN, TWO, after="key/1"),
        listed(ONE, ONE, TEN, TWO),
    ],
)
def test_a_list_that_the_log_does_not_give_is_told(wrong: KvList) -> None:
    with pytest.raises(Violation, match="in order"):
        check_lists([listed(ONE, TEN, TWO), wrong], HISTORIES)


def test_a_page_says_nothing_of_the_keys_behind_it() -> None:
    page = listed(ONE, TEN, limit=2, more=True)
    assert [page.covers(key) for key in ("key/0", "key/1", "key/10", "key/2", "other")] == [True, True, True, False, False]
    whole = listed(TEN, TWO, after="key/1")
    assert [whole.covers(key) for key in ("key/1", "key/11", "key/9", "other")] == [False, True, True, False]
    assert not listed(limit=0, more=True).covers("key/0")


def test_a_list_counts_like_a_get_for_what_is_asked_after_it() -> None:
    oracle = Oracle(1)
    oracle.kv_list_answered(listed(position=7), 0, "node 1")
    assert oracle.kv_floor == 7
    oracle.kv_list_answered(listed(position=5), 0, "node 2")
    with pytest.raises(Violation, match="7 was acknowledged or read"):
        oracle.kv_list_answered(listed(position=6), oracle.kv_floor, "node 2")


def test_the_oracle_compares_lists_with_the_final_log() -> None:
    def records() -> list[Record]:
        mark = Put(MARK_PREFIX + "c", b"1")
        txns = [Txn(compares=(), ops=(mark, Put("key/1", b"a"))), Txn(compares=(), ops=(Delete("key/1"),))]
        return [Record(offset=5 + index, value=encode(txn)) for index, txn in enumerate(txns)]

    honest = Oracle(1)
    honest.kv_list_answered(listed(("key/1", Entry(b"a", 5)), position=6), 0, "node 1")
    honest.kv_list_answered(listed(position=7), 0, "node 1")
    honest.check_kv(records())
    oracle = Oracle(1)
    oracle.kv_list_answered(listed(position=6), 0, "node 1")
    with pytest.raises(Violation, match="in order"):
        oracle.check_kv(records())


def test_clients_list_pages_of_many_keys() -> None:
    cluster = Cluster(Settings(seed=3, safety_ms=8_000, producers=1, kv_clients=3, kv_keys=40, think_ms_mean=50))
    cluster.run()
    lists = cluster.oracle.kv_lists
    assert len(lists) > 50
    assert max(len(each.found) for each in lists) > 10
    assert any(each.has_more for each in lists) and any(each.after for each in lists)
    assert len({each.prefix for each in lists}) > 4
    assert any(len(each.found) > 2 and [key for key, _ in each.found] != _by_number(each) for each in lists)


def _by_number(each: KvList) -> list[str]:
    return sorted((key for key, _ in each.found), key=len)


def test_a_linearizable_list_is_part_of_the_history_and_a_stale_one_is_not() -> None:
    cluster = Cluster(Settings(seed=3, safety_ms=4_000, producers=1, kv_clients=1, kv_keys=4, think_ms_mean=50))
    floors: list[int] = []
    honest = cluster.oracle.kv_list_answered

    def watch(each: KvList, floor: int, where: str) -> None:
        floors.append(floor)
        honest(each, floor, where)

    cluster.oracle.kv_list_answered = watch  # type: ignore[method-assign]
    cluster.run()
    assert 0 in floors[5:] and max(floors) > 0
    wrong = Cluster(replace(cluster.settings, seed=4))
    told = wrong.shared.kv_history.got
    wrong.shared.kv_history.got = lambda client, asked, answered, key, entry: told(  # type: ignore[method-assign]
        client, asked, answered, key, entry and Entry(b"never", entry.version)
    )
    with pytest.raises(Violation, match="linearizable"):
        wrong.run()
