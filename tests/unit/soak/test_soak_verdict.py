"""The soak's judge: it finds what is wrong in each kind of record that a soak keeps, and its schedule comes from its seed."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace
from typing import Any

from raftlake.sim.histories.kv import Change, Changed, Get, Seen
from raftlake.sim.histories.linearizability import Outcome
from raftlake.sim.histories.log import Append
from soak.record import Record
from soak.schedule import KINDS, draw
from soak.verdict import judge


def recorded() -> Record:
    nodes: Any = SimpleNamespace(incarnation={1: 1})
    record = Record(1, nodes)
    record.note_kv("a", "put", 0, Outcome.OK, Change({"k": b"v"}, {}, Changed(5)))
    record.note_log("a", "plain append", 0, 0, Outcome.OK, Append((b"x",), 1))
    return record


FINAL: dict[int, bytes | None] = {0: None, 1: b"x"}


def test_a_good_record_has_no_complaints() -> None:
    assert judge(recorded(), [[FINAL, FINAL]]) == []


def test_each_part_is_judged() -> None:
    lost = recorded()
    assert any("lost" in text for text in judge(lost, [[{0: None, 1: None}]]))
    assert any("copies differ" in text for text in judge(recorded(), [[FINAL, {0: None, 1: b"y"}]]))
    stale = recorded()
    stale.note_kv("b", "get", stale.now_us() + 1, Outcome.OK, Get({"k": None}))
    assert any("keys k" in text for text in judge(stale, [[FINAL]]))
    behind = recorded()
    behind.note_kv("b", "get", behind.now_us() + 1, Outcome.OK, Get({"other": None}, position=3))
    assert any("stands at 3" in text for text in judge(behind, [[FINAL]]))
    ghost = recorded()
    ghost.note_kv("b", "get", 0, Outcome.OK, Get({"k": Seen(b"ghost", 9)}))
    assert judge(ghost, [[FINAL]])
    surprised = recorded()
    surprised.complaints.append("an answer that no node may give")
    assert judge(surprised, [[FINAL]]) == ["an answer that no node may give"]


def test_the_same_seed_draws_the_same_faults_and_the_first_ones_are_of_every_kind() -> None:
    first = list(islice(draw(1), 40))
    assert first == list(islice(draw(1), 40))
    assert first != list(islice(draw(2), 40))
    assert {fault.kind for fault in first[: len(KINDS)]} == set(KINDS)
