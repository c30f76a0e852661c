"""What another node may propose for the tier's keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from raftlake.kv.commands import ANY, Compare, Delete, Put, Txn, encode
from raftlake.kv.keys import tier_key, tier_segment_key
from raftlake.kv.machine import StateMachine
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.replica.kv.tier_gate import refusal_of_tier
from raftlake.tier.entries import Copying, Tiered, encode_segment, encode_tiered
from raftlake.wire.ids import id_to_text

TWO = NodeId(2)
TOPIC = id_to_text(bytes(range(16)))
KEY = tier_key(TOPIC, 0)
NOTHING = Tiered(start_offset=Offset(5), end_offset=Offset(5))
COPYING = Copying(segment_id="s", base_offset=Offset(5), end_offset=Offset(9), leader_epoch=Epoch(1), node_id=TWO)
SEGMENT = RemoteSegment(
    segment_id="s",
    base_offset=Offset(5),
    end_offset=Offset(9),
    leader_epoch=Epoch(1),
    epochs=((Epoch(1), Offset(5)),),
    timestamp_ms_max=-1,
    log_bytes=10,
    size=20,
    crc=3,
    file="f",
)
STARTED, FINISHED = NOTHING.start(COPYING), NOTHING.start(COPYING).finish(SEGMENT)
SHOWN = Put(tier_segment_key(TOPIC, 0, 5), encode_segment(SEGMENT))


def put(tiered: Tiered, key: str = KEY) -> Put:
    return Put(key, encode_tiered(tiered))


def refusal(
    *operations: Put | Delete, standing: Tiered | bytes | None, version: int | None = None, source: NodeId = TWO
) -> str | None:
    machine = StateMachine()
    if standing is not None:
        value = standing if isinstance(standing, bytes) else encode_tiered(standing)
        machine.apply(7, encode(Txn((), (Put(KEY, value),))))
    if version is None:
        version = 0 if standing is None else 7
    return refusal_of_tier(Txn((Compare(KEY, version),), operations), source, machine)


def test_the_first_copy_the_next_one_and_their_ends() -> None:
    assert refusal(put(STARTED), standing=None) is None
    assert refusal(put(STARTED), standing=NOTHING) is None
    assert refusal(put(STARTED), standing=replace(STARTED, copying=replace(COPYING, node_id=NodeId(1)))) is None
    assert refusal(put(FINISHED), SHOWN, standing=STARTED) is None
    assert refusal(put(FINISHED), SHOWN, Delete(tier_segment_key(TOPIC, 0, 1)), standing=STARTED) is None


def test_what_its_condition_will_refuse_passes() -> None:
    assert refusal(put(FINISHED), SHOWN, standing=STARTED, version=6) is None
    assert refusal(put(STARTED), standing=None, version=3) is None


WRONG: list[Callable[[], str | None]] = [
    lambda: refusal(put(STARTED), standing=None, source=NodeId(1)),
    lambda: refusal(put(replace(STARTED, size=7)), standing=None),
    lambda: refusal(put(replace(STARTED, segments=1)), standing=None),
    lambda: refusal(put(replace(STARTED, incarnation=1)), standing=None),
    lambda: refusal(put(replace(STARTED, start_offset=Offset(4))), standing=None),
    lambda: refusal(put(replace(STARTED, size=7)), standing=NOTHING),
    lambda: refusal(put(replace(STARTED, start_offset=Offset(4))), standing=NOTHING),
    lambda: refusal(put(STARTED), SHOWN, standing=NOTHING),
    lambda: refusal(put(FINISHED), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, standing=None),
    lambda: refusal(put(NOTHING), standing=STARTED),
    lambda: refusal(put(replace(FINISHED, size=21)), SHOWN, standing=STARTED),
    lambda: refusal(put(replace(FINISHED, end_offset=Offset(10))), SHOWN, standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, standing=FINISHED),
    lambda: refusal(put(FINISHED), Put(tier_segment_key(TOPIC, 0, 6), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), Put(tier_segment_key(TOPIC, 1, 5), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), Put(SHOWN.key, b"garbage"), standing=STARTED),
    lambda: refusal(put(FINISHED), Delete(SHOWN.key), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Put(tier_segment_key(TOPIC, 0, 9), SHOWN.value), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete(tier_segment_key(TOPIC, 1, 1)), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete("/users/key"), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete(f"{KEY}/1"), standing=STARTED),
    lambda: refusal(put(FINISHED), SHOWN, Delete("0" * 20), standing=STARTED),
    lambda: refusal(Put(KEY, b"garbage"), standing=STARTED),
    lambda: refusal(Delete(KEY), standing=STARTED),
    lambda: refusal(put(STARTED), standing=b"garbage"),
    lambda: refusal(put(STARTED), standing=NOTHING, version=ANY),
    lambda: refusal(put(STARTED, f"/raftlake/tier/{TOPIC}/00"), standing=None),
    lambda: refusal(put(STARTED, "/raftlake/tier/short/0"), standing=None),
    lambda: refusal(put(STARTED, tier_key(TOPIC, 1)), standing=None),
    lambda: refusal(put(STARTED, tier_segment_key(TOPIC, 0, 5)), standing=None),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_anything_else_is_refused(number: int) -> None:
    assert WRONG[number]() is not None
