"""Clients that deal with ranges of keys: what they reach, that other runs stay as they were, and that wrong nodes are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raftlake.kv.commands import DeletePrefix, Put, Txn, encode
from raftlake.kv.keyspace import KeySpace
from raftlake.kv.machine import Entry, StateMachine
from raftlake.sim.clients.kv_ranges import RangeKvClient
from raftlake.sim.cluster import Cluster
from raftlake.sim.faults.faults import RANGED_ONE_IN, Settings
from raftlake.sim.histories.listing import KvList, check_lists
from raftlake.sim.invariants.base import Violation
from raftlake.sim.oracle import MARK_PREFIX, Oracle, replay
from raftlake.wire.batches import Record

RANGED = Settings(seed=3, safety_ms=15_000, producers=1, kv_clients=3, kv_range_percent=60, think_ms_mean=50)


def test_clients_reach_what_ranges_can_do() -> None:
    cluster = Cluster(RANGED)
    cluster.run()
    writes = [write.result for write in cluster.oracle.kv_writes]
    ranges = [result.ranges for result in writes if result.ranges is not None]
    assert sum(each.deleted for each in ranges) > 10
    assert sum(1 for each in ranges if each.newest) > 10
    assert sum(1 for write in cluster.oracle.kv_writes if write.txn.prefix_compares and write.result.succeeded) > 10
    lists = [each for each in cluster.oracle.kv_lists if each.delimiter]
    assert sum(1 for each in lists if each.prefixes) > 10 and any(each.after and each.prefixes for each in lists)
    assert any(each.has_more for each in lists)
    history = cluster.shared.kv_history.operations
    assert any(getattr(each.action, "below", None) for each in history)
    assert any(getattr(each.action, "deleted", None) for each in history)


def test_one_seed_in_four_has_them_and_all_else_is_drawn_as_before() -> None:
    drawn = [Settings.draw(seed) for seed in range(1, 401)]
    found = [settings for settings in drawn if settings.kv_range_percent]
    assert abs(len(found) - len(drawn) / RANGED_ONE_IN) < 25
    assert {settings.kv_range_percent for settings in found} == {10, 30, 60}
    quiet = Cluster(replace(RANGED, kv_range_percent=0))
    assert not any(isinstance(client, RangeKvClient) for client in quiet.clients)


def looks_at_the_first_key_alone(space: KeySpace, prefix: str, looks_max: int) -> tuple[int, int, bool]:
    newest, looks, _ = HONEST_NEWEST(space, prefix, 1)
    return newest, looks, False


def leaves_the_last_key(space: KeySpace, prefix: str) -> list[str]:
    keys = [key for _, found in space._below(prefix) for key in found][:-1]
    for key in keys:
        space.delete(key)
    return keys


def gives_a_prefix_for_each_deep_key(space: KeySpace, prefix: str, after: str | None, delimiter: str) -> Any:
    for name, row in HONEST_NAMES(space, prefix, after, delimiter):
        yield name, row
        if row is None:
            yield name, row


HONEST_NEWEST, HONEST_NAMES = KeySpace.newest_below, KeySpace.names_from


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("newest_below", looks_at_the_first_key_alone),
        ("delete_below", leaves_the_last_key),
        ("names_from", gives_a_prefix_for_each_deep_key),
    ],
)
def test_a_node_that_is_wrong_about_ranges_is_found(
    name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the replay of the log has the same bug."""
    monkeypatch.setattr(KeySpace, name, bug)
    assert any(breaks_a_promise(seed) for seed in range(3, 9))


def breaks_a_promise(seed: int) -> bool:
    try:
        Cluster(replace(RANGED, seed=seed)).run()
    except Violation:
        return True
    return False


def test_the_replay_deletes_a_range_key_by_key() -> None:
    txns = [Txn((), (Put(MARK_PREFIX + "c", b"1"), Put("d/a", b"a"), Put("d/b", b"b"))), Txn((), (DeletePrefix("d/"),))]
    records = [Record(offset=5 + index, value=encode(txn)) for index, txn in enumerate(txns)]
    _, _, histories = replay(records)
    assert histories["d/a"] == [(5, Entry(b"a", 5)), (6, None)] and histories["d/b"][-1] == (6, None)
    assert histories[MARK_PREFIX + "c"][-1][1] is not None
    oracle = Oracle(1)
    oracle.kv_read_answered("d/a", Entry(b"a", 5), 7, 0, "node 1")
    with pytest.raises(Violation, match="a get returns the state of its position"):
        oracle.check_kv(records)


HISTORIES: dict[str, list[tuple[int, Entry | None]]] = {
    "a": [(1, Entry(b"1", 1))],
    "b/": [(2, Entry(b"2", 2))],
    "b/x": [(3, Entry(b"3", 3)), (5, None)],
    "c/x": [(4, Entry(b"4", 4)), (6, None)],
    "d": [(5, Entry(b"5", 5))],
}


def told(*found: str, prefixes: tuple[str, ...], position: int, more: bool = False, limit: int = 9, **given: Any) -> KvList:
    entries = tuple((key, HISTORIES[key][0][1]) for key in found)
    return KvList(
        prefix=given.get("prefix", ""), after=given.get("after"), limit=limit, found=entries,  # type: ignore[arg-type]
        has_more=more, position=position, delimiter="/", prefixes=prefixes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "is_right"),
    [
        (told("a", "d", prefixes=("b/", "c/"), position=6), True),
        (told("a", "d", prefixes=("b/",), position=7), True),
        (told("a", prefixes=("b/",), position=6, more=True, limit=2), True),
        (told("d", prefixes=("c/",), position=6, after="b/"), True),
        (told("d", prefixes=("c/",), position=6, after="b/w"), True),
        (told("b/", prefixes=(), position=6, prefix="b/"), True),
        (told("a", "d", prefixes=("b/", "c/"), position=7), False),
        (told("a", "d", prefixes=("b/", "b/", "c/"), position=6), False),
        (told("a", "d", prefixes=("b/",), position=6), False),
        (told("a", prefixes=("b/",), position=6, limit=2), False),
        (told("d", prefixes=("b/", "c/"), position=6, after="b/"), False),
    ],
)
def test_a_list_up_to_a_delimiter_is_judged_by_the_log(listed: KvList, is_right: bool) -> None:
    if is_right:
        check_lists([listed], HISTORIES)
        return
    with pytest.raises(Violation, match="in order"):
        check_lists([listed], HISTORIES)


def test_a_page_of_names_says_nothing_of_those_behind_it() -> None:
    page = told("a", prefixes=("b/",), position=6, more=True, limit=2)
    assert [page.covers(name) for name in ("a", "b", "b/", "c/", "d")] == [True, True, True, False, False]
    assert StateMachine().names("", None, 1, "/") == ([], False)
