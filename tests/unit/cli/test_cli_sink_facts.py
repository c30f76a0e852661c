"""What the keys of sinks say, over several pages of the key space."""

from __future__ import annotations

from typing import Any

import pytest

from connector.fakekeys import FakeKeys
from raftlake.cli import sink_facts
from raftlake.client import sink_keys as keys
from raftlake.kv.commands import Put

OWNER = keys.Owner(run="run-1", query="q", host="host-1", pid=17, since_ms=1_000, generation=3, before=())
BATCH = keys.CommittedBatch(batch=41, run="run-1", rows=7, tasks=2, at_ms=2_000, topics={"t": 7})


@pytest.fixture
def space() -> Any:
    space = FakeKeys()
    for app in ("a", "a/b", "c"):
        space.txn({}, [Put(keys.owner_key(app), keys.encode(OWNER))])
        space.txn({}, [Put(keys.batch_key(app), keys.encode(BATCH))])
    return space


def test_all_sinks_are_found_over_pages_with_the_newest_version_of_their_keys(space: Any) -> None:
    assert space.page_entries < len(space.entries)
    found = sink_facts.find(space)
    assert [(sink.app, sink.last.batch, sink.owner.run) for sink in found] == [
        ("a", 41, "run-1"),
        ("a/b", 41, "run-1"),
        ("c", 41, "run-1"),
    ]
    assert [sink.version for sink in found] == [space.get(keys.batch_key(sink.app)).version for sink in found]


def test_a_sink_has_the_keys_and_transactions_of_its_own_app_alone(space: Any) -> None:
    for app in ("a", "a/b", "a.b", "a.1"):
        space.begin(keys.app_transactional_id(app, 3, 0, 1))
    sink = sink_facts.require(space, "a")
    assert [key for key in space.entries if key.startswith(sink.prefix)] == [keys.owner_key("a"), keys.batch_key("a")]
    (left,) = sink_facts.open_transactions(space, "a")
    assert left.transactional_id == keys.app_transactional_id("a", 3, 0, 1)


def test_a_sink_without_an_owner_or_a_batch_is_one_all_the_same(space: Any) -> None:
    del space.entries[keys.owner_key("c")]
    assert sink_facts.require(space, "c").owner.run == ""
    space.txn({}, [Put(keys.owner_key("d"), keys.encode(OWNER))])
    assert sink_facts.require(space, "d").last.batch == -1
    with pytest.raises(sink_facts.SinkMissing, match="no sink has the app 'a/'; `raftlake sinks list` names them"):
        sink_facts.require(space, "a/")
