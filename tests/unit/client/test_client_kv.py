"""The key-value client against scripted HTTP fronts: redirects, conditions, refusals, unknown outcomes, watches."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from typing import Any

import pytest

from clientkit_kv import Answer, Front, answer_all, kv_test
from raftlake.client import AsyncClient, Client, Delete, EndTxn, KvConflict, KvEvent, Put
from raftlake.client.deadline import Backoff, Deadline
from raftlake.client.sse import ServerSentEvent, ServerSentEvents
from raftlake.client.sync_kv import Kv
from raftlake.errors import ErrorCode, InvalidInput, RequestRejected, UnknownOutcome


def test_get_put_delete_list() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(
            one,
            two,
            (200, {"etag": '"7"'}, b"value"),
            (404, {}, b'{"error":"no such key"}'),
            (200, {"etag": '"8"'}, b"{}"),
            (200, {"etag": '"9"'}, b"{}"),
            (200, {"x-raftlake-offset": "10"}, b'{"entries":[{"key":"a","version":3,"size":1,"value":"eA=="}],"more":true}'),
        )
        entry = await client.kv.get("a/ü.")
        assert entry is not None and (entry.value, entry.version, entry.size) == (b"value", 7, 5)
        assert await client.kv.get("absent", linearizable=False) is None
        assert await client.kv.put("k", b"v", create=True) == 8
        assert await client.kv.delete("k", if_version=8) == 9
        page = await client.kv.list("p", after="p1", limit=5, values=True)
        assert (page.entries[0].value, page.more, page.version) == (b"x", True, 9)
        requests = sorted([*one.requests, *two.requests])
        lines = [line for line, _, _ in requests]
        assert lines == sorted(
            [
                "GET /v1/kv/a%2F%C3%BC%2E?consistency=linearizable",
                "GET /v1/kv/absent?consistency=stale",
                "PUT /v1/kv/k",
                "DELETE /v1/kv/k",
                "GET /v1/kv?consistency=linearizable&prefix=p&limit=5&after=p1&values=true",
            ]
        )
        by_line = {line: (headers, body) for line, headers, body in requests}
        assert by_line["PUT /v1/kv/k"][0]["if-none-match"] == "*"
        assert by_line["PUT /v1/kv/k"][1] == b"v"
        assert by_line["DELETE /v1/kv/k"][0]["if-match"] == '"8"'

    kv_test(test)


def test_a_redirected_write_goes_to_the_leader_and_so_do_the_next_ones() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        to_two = {"location": f"http://127.0.0.1:{two.port}/v1/kv/k"}
        one.answers = [(307, to_two, b"")]
        two.answers = [(200, {"etag": f'"{n}"'}, b"{}") for n in (5, 6, 7)]
        versions = [await client.kv.put("k", b"v") for _ in range(3)]
        assert versions == [5, 6, 7]
        assert len(one.requests) <= 1

    kv_test(test)


def test_the_first_redirect_is_followed_at_once_and_each_other_one_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that send one to each other, as they may while they elect a leader."""
    pauses: list[Deadline | None] = []

    async def pause(_: Backoff, deadline: Deadline | None = None) -> None:
        pauses.append(deadline)

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        to_one, to_two = ((307, {"location": front.url + "/v1/kv/k"}, b"") for front in (one, two))
        done = (200, {"etag": '"5"'}, b"{}")
        one.answers, two.answers = [to_two, to_two, done], [to_one, to_one, done]
        monkeypatch.setattr(Backoff, "pause", pause)
        for expected in (3, 0):
            pauses.clear()
            assert await client.kv.put("k", b"v") == 5
            assert len(pauses) == expected
            one.answers, two.answers = [done], [done]

    kv_test(test)


def test_transactions_of_producers_end_in_a_transaction_and_a_refusal_names_the_producers() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        refused = [{"producer_id": 7, "reason": "the producer 7 has the epoch 2, not 1"}]
        told = {"error": "x", "succeeded": False, "failed": [], "refused": refused}
        both = {**told, "failed": [{"key": "k", "version": 3}]}
        answers = [(200, {"etag": '"5"'}, b"{}")] + [(412, {}, json.dumps(body).encode()) for body in (told, both)]
        answer_all(one, two, *answers)
        ops = [EndTxn(7, 1, True), Put("k", b"v"), EndTxn(8, 0, False)]
        assert await client.kv.txn({}, ops) == 5
        sent = json.loads([*one.requests, *two.requests][0][2])
        assert [op["end_txn"] for op in sent["ops"] if "end_txn" in op] == [
            {"producer_id": 7, "epoch": 1, "commit": True},
            {"producer_id": 8, "epoch": 0, "commit": False},
        ]
        for current in ({}, {"k": 3}):
            with pytest.raises(KvConflict, match="producer 7 has the epoch 2, not 1") as caught:
                await client.kv.txn({"k": 1}, ops)
            assert (caught.value.current, caught.value.refused) == (current, {7: refused[0]["reason"]})
            assert pickle.loads(pickle.dumps(caught.value)).refused == caught.value.refused

    kv_test(test)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("producer_id", (-5, 1, True)),
        ("producer_id", (1 << 63, 1, True)),
        ("producer_id", ("7", 1, True)),
        ("producer_id", (True, 1, True)),
        ("epoch", (7, -1, True)),
        ("epoch", (7, 32_768, True)),
        ("epoch", (7, 1.0, True)),
        ("commit", (7, 1, 1)),
        ("commit", (7, 1, "no")),
    ],
)
def test_an_end_that_no_producer_can_have_is_refused_before_it_is_sent(name: str, fields: Any) -> None:
    with pytest.raises(ValueError, match=rf"EndTxn: {name} .* is no"):
        EndTxn(*fields)


def test_an_end_says_what_it_was_given() -> None:
    with pytest.raises(ValueError, match="EndTxn: producer_id -5 is no number from 0 to 9223372036854775807"):
        EndTxn(-5, 0, True)
    assert EndTxn(2**63 - 1, 32_767, False) == EndTxn(producer_id=2**63 - 1, epoch=32_767, commit=False)


def test_a_failed_condition_names_the_versions_in_the_way() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        failed = json.dumps({"succeeded": False, "failed": [{"key": "a", "version": 4}, {"key": "b", "version": 0}]}).encode()
        answer_all(one, two, (412, {}, b'{"key":"k","version":3}'), (412, {}, failed))
        with pytest.raises(KvConflict) as caught:
            await client.kv.put("k", b"v", if_version=2)
        assert caught.value.current_version == 3
        with pytest.raises(KvConflict) as caught:
            await client.kv.txn({"a": 1, "b": 2}, [Put("c", b"\xff"), Delete("d")])
        told = [headers["content-type"] for line, headers, _ in [*one.requests, *two.requests] if line == "POST /v1/txn"]
        assert told == ["application/json"]
        assert caught.value.current == {"a": 4, "b": 0}
        body = json.loads([*one.requests, *two.requests][-1][2] or [*two.requests, *one.requests][-1][2])
        assert body == {
            "compare": [{"key": "a", "version": 1}, {"key": "b", "version": 2}],
            "ops": [{"put": {"key": "c", "value": base64.b64encode(b"\xff").decode()}}, {"delete": {"key": "d"}}],
        }

    kv_test(test)


def test_a_refused_write_is_tried_again_soon_when_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wait, pauses = asyncio.sleep, list[float]()

    def noting(seconds: float) -> object:
        pauses.append(seconds)
        return wait(seconds)

    monkeypatch.setattr(asyncio, "sleep", noting)

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (503, {"retry-after": "1"}, b'{"error":"no leader"}'), (200, {"etag": '"5"'}, b"{}"))
        assert await client.kv.put("k", b"v") == 5
        assert max(pauses) < 0.9

    kv_test(test)


def test_a_refused_write_is_not_tried_again_before_the_time_told() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (503, {"retry-after": "60"}, b'{"error":"overloaded"}'))
        with pytest.raises(RequestRejected, match="overloaded") as caught:
            await client.kv.put("k", b"v", timeout_ms=100)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert len(one.requests) + len(two.requests) == 1

    kv_test(test)


@pytest.mark.parametrize("answer", [(504, {}, b'{"error":"outcome unknown"}'), None])
def test_a_write_without_a_definite_answer_is_unknown_and_not_repeated(answer: Answer | None) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer)
        with pytest.raises(UnknownOutcome):
            await client.kv.put("k", b"v")
        assert len(one.requests) + len(two.requests) == 1

    kv_test(test)


def test_a_read_without_an_answer_is_asked_again() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, None, (504, {}, b"{}"), (200, {"etag": '"5"'}, b"v"))
        entry = await client.kv.get("k")
        assert entry is not None and entry.value == b"v"

    kv_test(test)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, ErrorCode.INVALID_REQUEST),
        (403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (421, ErrorCode.INVALID_REQUEST),
        (413, ErrorCode.MESSAGE_TOO_LARGE),
        (405, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusals_are_definite(status: int, code: ErrorCode) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (status, {}, b'{"error":"because"}'))
        with pytest.raises(RequestRejected, match="because") as caught:
            await client.kv.put("/raftlake/x", b"v")
        assert caught.value.code == code

    kv_test(test)


def test_a_watch_survives_a_break_inside_a_transaction() -> None:
    """The first stream ends between two changes of one transaction: each is handed out once, and nothing is lost."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        put_a = b'event: put\nid: 5\ndata: {"key":"a","version":5,"value":"eA=="}\n\n'
        put_b = b'event: put\ndata: {"key":"b","version":8,"value":"eQ=="}\n\n'
        delete_a = b'event: delete\nid: 8\ndata: {"key":"a","version":8}\n\n'
        put_c = b': heartbeat\nid: 11\n\nevent: put\nid: 12\ndata: {"key":"c","version":12,"value":""}\n\n'
        answer_all(one, two, put_a + put_b, put_b + delete_a, b": heartbeat\nid: 11\n\n", put_c)
        stream = client.kv.watch("", from_version=4)
        seen = [await anext(stream) for _ in range(4)]
        assert seen == [
            KvEvent(key="a", version=5, value=b"x"),
            KvEvent(key="b", version=8, value=b"y"),
            KvEvent(key="a", version=8, value=None),
            KvEvent(key="c", version=12, value=b""),
        ]
        await stream.aclose()  # type: ignore[attr-defined]
        starts = [line.rpartition("from=")[2] for line, _, _ in [*one.requests, *two.requests]]
        assert sorted(starts, key=int) == ["4", "5", "8", "11"]

    kv_test(test)


def test_a_watch_that_breaks_right_behind_its_last_id_hands_nothing_out_twice() -> None:
    """The versions are neighbours: the id is that of the change before the transaction that is cut."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        put_a = b'event: put\nid: 5\ndata: {"key":"a","version":5,"value":"eA=="}\n\n'
        put_b = b'event: put\ndata: {"key":"b","version":6,"value":"eQ=="}\n\n'
        put_c = b'event: put\nid: 6\ndata: {"key":"c","version":6,"value":"eQ=="}\n\n'
        put_d = b'event: put\nid: 7\ndata: {"key":"b","version":7,"value":"eQ=="}\n\n'
        answer_all(one, two, put_a + put_b, put_b, put_b + put_c, put_d)
        stream = client.kv.watch("", from_version=4)
        seen = [await anext(stream) for _ in range(4)]
        assert [(change.key, change.version) for change in seen] == [("a", 5), ("b", 6), ("c", 6), ("b", 7)]
        await stream.aclose()  # type: ignore[attr-defined]
        starts = [line.rpartition("from=")[2] for line, _, _ in [*one.requests, *two.requests]]
        assert sorted(starts, key=int) == ["4", "5", "5", "6"]

    kv_test(test)


def test_a_watch_does_not_go_back_with_a_node_that_lags() -> None:
    """Its heartbeats carry what it has applied, which may be less than the watch has seen elsewhere."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        put_a = b'event: put\nid: 9\ndata: {"key":"a","version":9,"value":""}\n\n'
        put_b = b'event: put\nid: 11\ndata: {"key":"b","version":11,"value":""}\n\n'
        answer_all(one, two, put_a, b": heartbeat\nid: 3\n\n", put_b)
        stream = client.kv.watch("", from_version=1)
        assert [(await anext(stream)).version for _ in range(2)] == [9, 11]
        await stream.aclose()  # type: ignore[attr-defined]
        starts = [line.rpartition("from=")[2] for line, _, _ in [*one.requests, *two.requests]]
        assert sorted(starts, key=int) == ["1", "9", "9"]

    kv_test(test)


def test_a_watch_from_now_resumes_at_the_offset_of_its_first_answer() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, b"", b'event: put\nid: 9\ndata: {"key":"a","version":9,"value":""}\n\n')
        stream = client.kv.watch("p/")
        assert (await anext(stream)).version == 9
        await stream.aclose()  # type: ignore[attr-defined]
        lines = sorted(line for line, _, _ in [*one.requests, *two.requests])
        assert lines == ["GET /v1/watch?prefix=p%2F", "GET /v1/watch?prefix=p%2F&from=7"]

    kv_test(test)


@pytest.mark.parametrize(
    "answer", [(410, {}, b'{"error":"gone"}'), b'event: compacted\ndata: {"error":"gone","from":1,"oldest":5}\n\n']
)
def test_a_watch_that_fell_behind_says_so(answer: Answer | bytes) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer)
        with pytest.raises(RequestRejected, match="gone") as caught:
            await anext(client.kv.watch("", from_version=1))
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    kv_test(test)


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_events_do_not_depend_on_how_the_bytes_are_cut(step: int) -> None:
    stream = b": hello\n\nevent: put\r\nid: 5\r\ndata: one\r\ndata:two\r\n\r\ndata: x\n\nid: 6\n\nevent: gone\n\ndata\n\n"
    events = ServerSentEvents()
    found = [event for start in range(0, len(stream), step) for event in events.feed(stream[start : start + step])]
    assert found == [ServerSentEvent("put", "one\ntwo"), ServerSentEvent("message", "x"), ServerSentEvent("message", "")]
    assert events.last_id == "6"


def test_the_id_of_an_event_counts_when_the_event_is_whole() -> None:
    """WHATWG HTML §9.2.6: the id goes into a buffer, and from there to the stream when a blank line ends the event."""
    events = ServerSentEvents()
    assert (events.feed(b": watch\nid: 4"), events.last_id) == ([], None)
    assert (events.feed(b"\n\nevent: put\nid: 5\n"), events.last_id) == ([], "4")
    assert (events.feed(b"data: one\n"), events.last_id) == ([], "4")
    assert (events.feed(b"\nid: 6\n"), events.last_id) == ([ServerSentEvent("put", "one")], "5")
    # Without one of its own, an event has the id of the one before.
    assert (events.feed(b"\ndata: two\n\n"), events.last_id) == ([ServerSentEvent("message", "two")], "6")


@pytest.mark.parametrize("cut", [1, 10, 11, 16, 17, 18, 40, 61, 62])
def test_a_watch_that_breaks_inside_an_event_gets_that_event_again(cut: int) -> None:
    """A large value comes in many pieces, and its id before it."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        start = b": watch\nid: 4\n\n"
        put = b'event: put\nid: 5\ndata: {"key":"a","version":5,"value":"eA=="}\n\n'
        answer_all(one, two, start + put[:cut], start + put)
        stream = client.kv.watch("", from_version=4)
        assert await anext(stream) == KvEvent(key="a", version=5, value=b"x")
        await stream.aclose()  # type: ignore[attr-defined]
        lines = [line for line, _, _ in [*one.requests, *two.requests]]
        assert lines == ["GET /v1/watch?prefix=&from=4"] * 2

    kv_test(test)


def test_where_a_watch_begins_is_no_event() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        put_a = b'event: put\nid: 9\ndata: {"key":"a","version":9,"value":""}\n\n'
        answer_all(one, two, b": watch\nid: 8\n\n", b": watch\nid: 8\n\n" + put_a)
        stream = client.kv.watch("p/")
        assert (await anext(stream)).version == 9
        await stream.aclose()  # type: ignore[attr-defined]
        lines = sorted(line for line, _, _ in [*one.requests, *two.requests])
        assert lines == ["GET /v1/watch?prefix=p%2F", "GET /v1/watch?prefix=p%2F&from=8"]

    kv_test(test)


def test_programs_without_an_event_loop_get_the_same() -> None:
    def work(bootstrap: list[str]) -> None:
        with Client(bootstrap) as client:
            assert isinstance(client.kv, Kv)
            assert client.kv.put("k", b"v") == 5
            entry = client.kv.get("k")
            assert entry is not None and entry.value == b"v"
            assert client.kv.list("p").version == 9
            assert client.kv.delete("k") == 6
            with pytest.raises(KvConflict):
                client.kv.txn({"k": 1}, [Put("k", b"w")])
            stream = client.kv.watch("", from_version=8)
            assert next(stream) == KvEvent(key="a", version=9, value=b"")
            stream.close()  # type: ignore[attr-defined]

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(
            one,
            two,
            (200, {"etag": '"5"'}, b"{}"),
            (200, {"etag": '"5"'}, b"v"),
            (200, {"x-raftlake-offset": "10"}, b'{"entries":[],"more":false}'),
            (200, {"etag": '"6"'}, b"{}"),
            (412, {}, b'{"failed":[{"key":"k","version":0}]}'),
            b'event: put\nid: 9\ndata: {"key":"a","version":9,"value":""}\n\n',
        )
        await asyncio.to_thread(work, [str(address) for address in client.config.bootstrap])

    kv_test(test)


def test_a_key_that_is_no_text_is_named_and_nothing_is_sent() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        nameless = (client.kv.put("\ud800", b""), client.kv.get("\ud800"), client.kv.delete("\ud800"))
        for asked in (*nameless, client.kv.list("\ud800"), client.kv.list(after="\ud800"), anext(client.kv.watch("\ud800"))):
            with pytest.raises(InvalidInput, match=r"'\\ud800' is not valid Unicode text"):
                await asked
        with pytest.raises(TypeError, match="key 5 is not a str"):
            await client.kv.put(5, b"")  # type: ignore[arg-type]
        assert one.requests == two.requests == []

    kv_test(test)
