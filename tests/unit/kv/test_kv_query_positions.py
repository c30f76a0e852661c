"""What sources say of how far their queries are: keys, values of any kind, and what several sources say together."""

from __future__ import annotations

import json

import pytest

from raftlake.kv import query_positions as positions
from raftlake.kv.query_positions import SourcePosition, Sources, Standing

ID = "00" * 15 + "01"


def standings(*rows: tuple[str, int, SourcePosition | bytes]) -> list[Standing]:
    sources = Sources()
    for key, version, value in rows:
        sources.take(key, version, value if isinstance(value, bytes) else positions.encode(value))
    return list(sources.standings())


def at(run: str = "r", **offsets: int) -> SourcePosition:
    """Of partition 0 of some topics."""
    return SourcePosition(offsets={topic: {0: offset} for topic, offset in offsets.items()}, run=run)


def told(found: list[Standing]) -> list[tuple[str, str, int, int]]:
    return [each[:4] for each in found]


def key(query: str, reads: str = "subscribe t", number: int = 0) -> str:
    return positions.position_key(query, reads, number)


def test_keys_are_apart_whatever_queries_and_topics_are_called() -> None:
    assert positions.position_key("q/1", "subscribe t") == "/sources/q%2F1/positions/a731a4f915475a69"
    assert key("q", number=1) == key("q") + ".1" != key("q", "subscribe u")
    assert positions.query_of(key("q/1")) == "q/1"
    # A topic may be called like the folder of positions.
    found = standings(
        (positions.topic_key("q/1", "positions"), 3, b'{"topic_id":"%s"}' % ID.encode()),
        (key("q/1"), 4, at(positions=7)),
    )
    assert told(found) == [("q/1", "positions", 0, 7)] and found[0].topic_id == ID


def test_a_value_is_read_as_it_was_written() -> None:
    position = SourcePosition(
        offsets={"b": {10: 2**63 - 1, 9: 0}, "a": {0: 1}},
        batch_ms=1,
        seen_ms=2,
        run="r",
        writer="w",
        generation=3,
        name="n",
        reads="x" * 300,
        host="h",
        pid=4,
    )
    read = positions.decode(positions.encode(position))
    assert read is not None and read.reads == "x" * 200
    assert SourcePosition(**{name: getattr(read, name) for name in read.__slots__} | {"reads": position.reads}) == position


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"offsets":[]}',
        b'{"offsets":{"t":7}}',
        b'{"offsets":{"t":{"x":1}}}',
        b'{"offsets":{"t":{"-1":1}}}',
        '{"offsets":{"t":{"²":1}}}'.encode(),
        b'{"offsets":{"t":{"0":-1}}}',
        b'{"offsets":{"t":{"0":true}}}',
        b'{"offsets":{"t":{"0":1.5}}}',
        b'{"offsets":{"t":{"0":9223372036854775808}}}',
        b'{"offsets":{"t":{"0":' + b"9" * 5000 + b"}}}",
        b'{"offsets":{"\\ud800":{"0":1}}}',
        b'{"offsets":{"t":{"0":1}},"name":"' + b"x" * positions.BYTES_MAX + b'"}',
    ],
)
def test_what_is_no_position_hinders_nobody(value: bytes) -> None:
    assert positions.decode(value) is None
    assert told(standings((key("a"), 3, value), (key("b"), 4, at(t=1)))) == [("b", "t", 0, 1)]


def test_members_of_other_kinds_are_as_good_as_none() -> None:
    facts = {"offsets": {"t": {"0": 1}}, "batch_ms": "x", "seen_ms": -1, "run": 7, "name": "\ud800n", "pid": True, "more": {}}
    read = positions.decode(json.dumps(facts).encode())
    assert read == SourcePosition(offsets={"t": {0: 1}}, name="?n")
    for wrong in (b'{"topic_id":7}', b'{"topic_id":"%s"}' % (b"Z" * 32), b'{"topic_id":"00"}', b"no"):
        assert positions.decode_topic_id(wrong) is None


def test_of_two_sources_of_a_run_the_one_that_is_farther_behind_counts() -> None:
    for first, second in ((5, 9), (9, 5)):
        found = standings((key("q"), 20, at(t=first, u=1)), (key("q", number=1), 21, at(t=second)))
        assert told(found) == [("q", "t", 0, 5), ("q", "u", 0, 1)]


def test_what_an_earlier_run_has_read_otherwise_does_not_count() -> None:
    """`subscribe` was changed: the source of before stands there, and is older by its version. No clock says so."""
    old, new = at("run-1", t=5, gone=3), at("run-2", t=9, new=1)
    for rows in ([(key("q"), 20, old), (key("q", "b"), 21, new)], [(key("q", "b"), 21, new), (key("q"), 20, old)]):
        assert told(standings(*rows)) == [("q", "gone", 0, 3), ("q", "new", 0, 1), ("q", "t", 0, 9)]
    # The newest key of a run tells how new the run is.
    rows = [(key("q"), 20, at("run-2", t=9)), (key("q", "b"), 21, at("run-1", t=5)), (key("q", "c"), 22, at("run-2", u=1))]
    for order in (rows, rows[::-1]):
        assert told(standings(*order)) == [("q", "t", 0, 9), ("q", "u", 0, 1)]


def test_values_are_read_again_where_versions_changed_and_keys_that_went_are_forgotten() -> None:
    sources = Sources()
    for version, value, expected in ((3, at(t=1), 1), (3, at(t=2), 1), (4, at(t=2), 2)):
        sources.begin()
        sources.take(key("q"), version, positions.encode(value))
        assert [each.offset for each in sources.standings()] == [expected]
    sources.begin()
    assert not list(sources.standings())
