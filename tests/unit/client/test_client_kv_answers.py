"""Which writes of the key-value client are sent again, and which end as unknown: after every kind of answer, for every kind of
write, and whatever came before it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import httpx
import pytest

from clientkit_kv import Answer, Box, Front, Raw, Silence, answer_all, kv_test
from raftlake.client import AsyncClient, Client, Delete, KvConflict, Put
from raftlake.client.deadline import Deadline
from raftlake.client.kv_answers import front_of, may_have_happened
from raftlake.errors import ErrorCode, RequestRejected, UnknownOutcome, WireError

Write = Callable[[AsyncClient], Awaitable[int]]

WRITES: dict[str, Write] = {
    "put": lambda client: client.kv.put("k", b"v"),
    "create": lambda client: client.kv.put("k", b"v", create=True),
    "cas": lambda client: client.kv.put("k", b"v", if_version=3),
    "delete": lambda client: client.kv.delete("k"),
    "delete_cas": lambda client: client.kv.delete("k", if_version=3),
    "txn": lambda client: client.kv.txn({"k": 0}, [Put("k", b"v"), Delete("l")]),
}
SYNC_WRITES: dict[str, Callable[[Client], int]] = {
    "put": lambda client: client.kv.put("k", b"v"),
    "create": lambda client: client.kv.put("k", b"v", create=True),
    "cas": lambda client: client.kv.put("k", b"v", if_version=3),
    "delete": lambda client: client.kv.delete("k"),
    "delete_cas": lambda client: client.kv.delete("k", if_version=3),
    "txn": lambda client: client.kv.txn({"k": 0}, [Put("k", b"v"), Delete("l")]),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)

#: What a second try of the same write would be told by a node that has applied the first.
CONFLICT: Answer = (412, {}, b'{"key":"k","version":5,"failed":[{"key":"k","version":5}]}')
DONE: Answer = (200, {"etag": '"5"'}, b"{}")
REFUSED: Answer = (503, {"retry-after": "1"}, b'{"error":"nothing changed"}')
ERROR = b'{"error":"slow down"}'
AMBIGUOUS: dict[str, Answer | Box | Raw | None] = {
    "500": (500, {}, b'{"error":"internal error"}'),
    "500 with Retry-After": (500, {"retry-after": "1"}, b'{"error":"internal error"}'),
    "502": Box(502, {}, b"<html>Bad Gateway</html>"),
    "503": Box(503, {}, b"<html>Service Unavailable</html>"),
    "503 with Retry-After": Box(503, {"retry-after": "1"}, b"<html>Service Unavailable</html>"),
    "503 with Retry-After and JSON": Box(503, {"retry-after": "1"}, ERROR),
    "503 with a node's offset": (503, {"retry-after": "1"}, b"<html>Service Unavailable</html>"),
    "504": (504, {}, b'{"error":"its outcome is unknown"}'),
    "504 with Retry-After": (504, {"retry-after": "1"}, b"{}"),
    "507": Box(507),
    "520": Box(520),
    "202": Box(202),
    "204": (204, {"etag": '"5"'}, b""),
    "200 without a version": (200, {}, b"{}"),
    "hangs up": None,
    "hangs up in the head": Raw(b"HTTP/1.1 200 OK\r\netag: "),
    "hangs up in the body": Raw(b'HTTP/1.1 200 OK\r\netag: "5"\r\ncontent-length: 9\r\n\r\n{}'),
    "no HTTP": Raw(b"\x00\x01\x02\r\n\r\n"),
    "garbled body": (200, {"etag": '"5"', "content-encoding": "gzip"}, b"no gzip"),
}
#: Answers that no node gives: of what stands between, or in a shape that is not a node's.
FOREIGN: list[Answer | Box] = [
    Box(301, {"location": "https://elsewhere/"}),
    (307, {}, b'{"error":"node 2 leads"}'),
    (307, {"location": "/login"}, ERROR),
    Box(308, {"location": "https://elsewhere/"}, ERROR),
    *(Box(status, {}, ERROR) for status in (400, 403, 404, 405, 408, 413, 429)),
    Box(404, {}, b"<html>Not Found</html>"),
    (401, {}, ERROR),
    (429, {"retry-after": "1"}, ERROR),
    (400, {}, b'{"error":null}'),
    (400, {}, b'["error"]'),
    (400, {}, b"[" * 100_000),
    (412, {}, b'{"error":"condition failed","key":"k","version":"q"}'),
    (412, {}, b'{"error":"condition failed","key":"k","version":"3"}'),
    (412, {}, b'{"error":"condition failed","key":"k","version":1.5}'),
    (412, {}, b'{"error":"condition failed","key":"k","version":true}'),
    (412, {}, b'{"error":"condition failed","key":"k","version":Infinity}'),
    (412, {}, b'{"error":"condition failed","key":5,"version":3}'),
    (412, {}, b'{"error":"condition failed","failed":[]}'),
    (412, {}, b'{"failed":[{"key":"a","version":1},{"key":"b","version":"q"}]}'),
    (412, {}, b'{"failed":[["key","version"]]}'),
    Box(412, {}, b"<html>Precondition Failed</html>"),
]
ambiguous = pytest.mark.parametrize("answer", AMBIGUOUS.values(), ids=AMBIGUOUS)


def asked(one: Front, two: Front) -> int:
    return len(one.requests) + len(two.requests)


@writes
@ambiguous
def test_a_write_that_may_have_happened_is_unknown_and_never_sent_again(
    write: Write, answer: Answer | Box | Raw | None
) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer, CONFLICT)
        with pytest.raises(UnknownOutcome, match="/v1/") as caught:
            await write(client)
        assert asked(one, two) == 1
        keys = "keys" if "/v1/txn" in str(caught.value) else "key"
        told = f"; its outcome is not known: it may have been carried out, or may still be; read the {keys}, then decide"
        assert str(caught.value).endswith(told)

    kv_test(test)


@writes
def test_an_answer_that_no_node_gives_says_nothing_of_a_write(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        for answer in FOREIGN:
            answer_all(one, two, answer, CONFLICT)
            with pytest.raises(UnknownOutcome, match=r"/v1/.*not known"):
                await write(client)
            assert one.answers == [CONFLICT], answer

    kv_test(test)


@writes
def test_a_write_without_an_answer_in_time_is_unknown_and_never_sent_again(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, Silence(), CONFLICT)
        with pytest.raises(UnknownOutcome, match="had no answer"):
            await write(client)
        assert asked(one, two) == 1

    kv_test(test, attempt_timeout_ms=100)


@pytest.mark.parametrize("kind", SYNC_WRITES)
@pytest.mark.parametrize("answer", [AMBIGUOUS["500"], AMBIGUOUS["502"], None], ids=["500", "502", "hangs up"])
def test_programs_without_an_event_loop_are_told_the_same(kind: str, answer: Answer | Box | Raw | None) -> None:
    def work(bootstrap: list[str]) -> None:
        with Client(bootstrap) as client, pytest.raises(UnknownOutcome):
            SYNC_WRITES[kind](client)

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, answer, CONFLICT)
        await asyncio.to_thread(work, [str(address) for address in client.config.bootstrap])
        assert asked(one, two) == 1

    kv_test(test)


@writes
@pytest.mark.parametrize("answer", [AMBIGUOUS["500"], AMBIGUOUS["502"], None], ids=["500", "502", "hangs up"])
def test_what_came_before_does_not_make_it_safe_to_send_again(write: Write, answer: Answer | Box | Raw | None) -> None:
    """The second write, which goes to the leader that is known; then one that was refused and redirected first."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, answer, CONFLICT)
        assert await write(client) == 5
        with pytest.raises(UnknownOutcome):
            await write(client)
        assert asked(one, two) == 2
        for front in (one, two):
            front.requests.clear()
        answer_all(one, two, REFUSED, (307, {"location": two.url + "/v1/kv/k"}, b""), answer, CONFLICT)
        with pytest.raises(UnknownOutcome):
            await write(client)
        assert asked(one, two) == 3

    kv_test(test)


@writes
def test_after_an_unknown_outcome_the_next_write_goes_on(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, (500, {}, b""), DONE)
        await write(client)
        with pytest.raises(UnknownOutcome):
            await write(client)
        assert await write(client) == 5

    kv_test(test)


@writes
def test_what_was_refused_before_it_was_proposed_is_sent_again_as_it_was(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        to_one, to_two = ((307, {"location": front.url + "/v1/kv/k"}, b"") for front in (one, two))
        answer_all(one, two, REFUSED, to_one, to_two, REFUSED, to_one, DONE)
        assert await write(client) == 5
        sent = [
            (line, {name: headers.get(name) for name in ("if-match", "if-none-match")}, body)
            for line, headers, body in [*one.requests, *two.requests]
        ]
        assert len(sent) == 6
        assert all(each == sent[0] for each in sent)

    kv_test(test)


def slow_answers(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    """Each answer takes so long from now on, by the client's clock of a request."""
    elapsed = itertools.count(0, milliseconds)
    monkeypatch.setattr(Deadline, "elapsed_ms", lambda _: float(next(elapsed)))


@writes
@pytest.mark.parametrize("refused", [REFUSED, (507, {"retry-after": "1"}, b'{"error":"nothing changed"}')], ids=["503", "507"])
def test_a_refused_write_stays_refused_where_one_more_try_takes_too_long(
    write: Write, refused: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal took as long as a request has. The next one would be cut off, and leave the outcome open."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, refused, DONE)
        await write(client)
        slow_answers(monkeypatch, 4_000)
        with pytest.raises(RequestRejected, match="nothing changed"):
            await write(client)
        assert asked(one, two) == 2

    kv_test(test, request_timeout_ms=4_000)


@writes
def test_a_write_that_was_redirected_too_late_was_not_accepted(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, (307, {"location": two.url + "/v1/kv/k"}, b""), DONE)
        await write(client)
        slow_answers(monkeypatch, 4_000)
        with pytest.raises(RequestRejected, match="redirected only"):
            await write(client)
        assert asked(one, two) == 2

    kv_test(test, request_timeout_ms=4_000)


def test_after_a_slow_refusal_a_write_with_time_left_and_every_read_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, DONE, REFUSED, DONE, REFUSED, (200, {"etag": '"5"'}, b"v"))
        await client.kv.put("k", b"v")
        slow_answers(monkeypatch, 4_000)
        assert await client.kv.put("k", b"v", timeout_ms=3_600_000) == 5
        entry = await client.kv.get("k")
        assert entry is not None and entry.value == b"v"

    kv_test(test, request_timeout_ms=4_000)


@writes
def test_a_front_that_refuses_connections_was_sent_nothing(write: Write) -> None:
    """First the leader that is known is gone; then one that a redirect names."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        two.answers = [(307, {"location": one.url + "/v1/kv/k"}, b""), DONE, DONE, DONE]
        one.answers = [DONE]
        while not one.requests:
            await write(client)
        await one.stop()
        two.requests.clear()
        two.answers = [DONE, (307, {"location": one.url + "/v1/kv/k"}, b""), DONE]
        assert await write(client) == 5
        assert await write(client) == 5
        assert len(two.requests) == 3

    kv_test(test)


@writes
def test_a_leader_that_refuses_is_not_asked_again_and_again(write: Write) -> None:
    """It took the last write, and hears of no leader now. The other node may."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        two.answers = [(307, {"location": one.url + "/v1/kv/k"}, b"")]
        one.answers = [DONE]
        await write(client)
        one.requests.clear()
        one.answers, two.answers = [REFUSED] * 3, [DONE]
        assert await write(client) == 5
        assert 1 <= len(one.requests) <= 2

    kv_test(test)


@writes
def test_a_conflict_is_one_only_where_nothing_was_sent_that_may_have_happened(write: Write) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, REFUSED, CONFLICT)
        with pytest.raises(KvConflict) as caught:
            await write(client)
        assert caught.value.current == {"k": 5}
        assert asked(one, two) == 2

    kv_test(test)


@writes
@pytest.mark.parametrize("status", [400, 403, 404, 405, 408, 413, 415, 421])
def test_a_refusal_is_definite_for_every_kind_of_write(write: Write, status: int) -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (status, {}, b'{"error":"because"}'), DONE)
        with pytest.raises(RequestRejected, match="because"):
            await write(client)
        assert asked(one, two) == 1

    kv_test(test)


@writes
def test_a_write_whose_time_is_over_while_it_waits_is_not_sent_again(write: Write) -> None:
    """Sent with no time left, it would have no answer, and a definite refusal would become an unknown outcome."""

    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, REFUSED, DONE)
        with pytest.raises(RequestRejected, match="nothing changed") as caught:
            await write(client)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert asked(one, two) == 1

    # Time for one question on a busy machine, and none for the pause behind it.
    kv_test(test, request_timeout_ms=1000, retry_backoff_ms=20_000, retry_backoff_ms_max=20_000)


def test_a_read_without_an_answer_in_time_is_asked_again() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, Silence(), (200, {"etag": '"5"'}, b"v"))
        entry = await client.kv.get("k")
        assert entry is not None and entry.value == b"v"

    kv_test(test, attempt_timeout_ms=100)


def test_a_read_is_asked_again_after_all_of_these() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        kinds = ("500", "502", "503", "504", "hangs up")
        broken = [answer for name, answer in AMBIGUOUS.items() if name.startswith(kinds)]
        answer_all(one, two, *broken, (200, {"etag": '"5"'}, b"v"))
        entry = await client.kv.get("k", timeout_ms=20_000)
        assert entry is not None and (entry.value, entry.version) == (b"v", 5)

    kv_test(test)


def test_a_list_that_there_is_not_is_refused() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (404, {}, b'{"error":"no key-value space"}'))
        with pytest.raises(RequestRejected, match="no key-value space"):
            await client.kv.list("p")

    kv_test(test)


def test_a_list_that_is_none_is_an_error_of_the_answer() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        for body in (b"{}", b"[]", b'{"entries":5,"more":false}', b'{"entries":["a"],"more":false}', b"<html>"):
            answer_all(one, two, (200, {}, body))
            with pytest.raises(WireError, match="/v1/kv"):
                await client.kv.list("p")

    kv_test(test)


def test_a_read_has_no_condition_that_could_fail() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, (412, {"etag": '"5"'}, ERROR))
        with pytest.raises(RequestRejected, match="412: slow down"):
            await client.kv.get("k")

    kv_test(test)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (201, {}, True),
        (299, {}, True),
        (300, {}, True),
        (400, {}, False),
        (401, {}, True),
        (404, {}, False),
        (408, {}, False),
        (410, {}, True),
        (413, {}, False),
        (415, {}, False),
        (421, {}, False),
        (429, {}, True),
        (499, {}, True),
        (500, {}, True),
        (502, {"retry-after": "1"}, True),
        (503, {}, True),
        (503, {"Retry-After": "1"}, False),
        (504, {"retry-after": "1"}, True),
        (507, {}, False),
        (507, {"retry-after": "1"}, False),
        (599, {}, True),
    ],
)
def test_after_which_answers_a_write_may_have_happened(status: int, headers: dict[str, str], expected: bool) -> None:
    request = httpx.Request("PUT", "http://h:1/v1/kv/k")
    offset = {"X-Raftlake-Offset": "8"}
    of_a_node = httpx.Response(status, headers={**headers, **offset}, content=ERROR, request=request)
    assert may_have_happened(of_a_node) is expected
    assert may_have_happened(httpx.Response(status, headers=headers, content=ERROR, request=request))
    assert may_have_happened(httpx.Response(status, headers={**headers, **offset}, content=b"{}", request=request))


@pytest.mark.parametrize("location", [None, "", "/v1/kv/k", "ftp://h/x", "http://", "http://h:port/"])
def test_a_redirect_to_nowhere_is_no_redirect(location: str | None) -> None:
    headers = {} if location is None else {"location": location}
    answer = httpx.Response(307, headers=headers, request=httpx.Request("PUT", "http://h:1/v1/kv/k"))
    with pytest.raises(WireError, match="http://h:1/v1/kv/k answered 307 without the leader's address"):
        front_of(answer)


@pytest.mark.parametrize("host", ["10.0.0.2:8092", "[::1]:8093", "h"])
def test_a_redirect_names_the_front_of_the_leader(host: str) -> None:
    answer = httpx.Response(307, headers={"location": f"http://{host}/v1/kv/a%2Fb?x=1"})
    assert front_of(answer) == f"http://{host}"
