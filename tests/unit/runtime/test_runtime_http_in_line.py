"""HTTP requests whose work is dear: in line with that of all clients, and answered when their turn does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raftlake.kv.commands import Put, Txn
from raftlake.runtime.http import in_line as waiting
from raftlake.runtime.http import pages
from raftlake.runtime.work_line import WorkLine
from runtime_fakes import run, settle, until
from runtime_http_fakes import Front, http_front

JSON_BODY = {"content-type": "application/json"}


class Turns:
    """The loop of a line, whose turns the test takes. Each look at the clock takes a slice."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        loop: Any = self
        self.line = WorkLine(loop, self.now_us)
        self.us = 0

    def now_us(self) -> int:
        self.us += 10_000
        return self.us

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    async def take_all(self) -> int:
        """Turns until the line is empty; how many they were."""
        count = 0
        while self.line.count:
            self.calls.pop(0)()
            count += 1
            await asyncio.sleep(0)
        return count


def fill(on: Front, count: int) -> None:
    on.node.kv.apply(Txn((), tuple(Put(f"k{number:05d}", b"v") for number in range(count))))


def test_a_long_list_waits_in_line_and_everything_else_goes_on() -> None:
    async def main() -> None:
        turns = Turns()
        async with http_front(line=turns.line) as on:
            fill(on, 1000)
            long = [asyncio.create_task(on.client.get("/v1/kv")) for _ in range(3)]
            await until(lambda: turns.line.count == 3)
            assert (await on.client.get("/v1/kv/k00000")).status_code == 200
            assert len((await on.client.get("/v1/kv?limit=50")).json()["entries"]) == 50
            assert turns.line.count == 3
            assert await turns.take_all() > 3 * 60
            answers = [await each for each in long]
            assert [len(answer.json()["entries"]) for answer in answers] == [1000] * 3
            await until(lambda: on.front._answers.held == 0)

    run(main())


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_large_transaction_waits_in_line_and_a_small_one_does_not(size: int) -> None:
    async def main() -> None:
        turns = Turns()
        async with http_front(line=turns.line) as on:
            body = {"ops": [{"put": {"key": "k", "text": "x" * size}}]}
            asked = asyncio.create_task(on.client.post("/v1/txn", json=body))
            if size > 1000:
                await until(lambda: turns.line.count == 1)
                assert on.node.kv.proposed == []
                await turns.take_all()
            assert (await asked).status_code == 200 and on.node.kv.machine.size_of("k") > size

    run(main())


def test_what_a_client_sent_is_refused_as_it_would_be_without_a_line() -> None:
    async def main() -> None:
        async with http_front() as on:
            body = b'{"ops":[' + b"{}," * 30_000 + b"{}]}"
            answer = await on.client.post("/v1/txn", content=body, headers=JSON_BODY)
            assert (answer.status_code, "more parts" in answer.text) == (400, True)
            body = b'{"ops":[' + b"{}," * 900 + b"{}]}" + b" " * 5000
            answer = await on.client.post("/v1/txn", content=body, headers=JSON_BODY)
            assert (answer.status_code, "ops[0] must be" in answer.text) == (400, True)

    run(main())


def test_who_waits_too_long_is_told_so_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        turns = Turns()
        monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.01)
        async with http_front(line=turns.line) as on:
            fill(on, 1000)
            answer = await on.client.get("/v1/kv")
            assert answer.status_code == 503 and "retry-after" in answer.headers
            assert turns.line.count == 0 and on.front._answers.held == 0

    run(main())


def test_a_page_for_which_there_is_no_room_is_refused_before_it_is_built() -> None:
    async def main() -> None:
        async with http_front() as on:
            fill(on, 1000)
            with on.front._answers.hold(128 << 20):
                answer = await on.client.get("/v1/kv?values=true")
                assert (answer.status_code, "on their way" in answer.text) == (503, True)
                on.node.kv.apply(Txn((), (Put("large", bytes(1 << 20)),)))
                assert (await on.client.get("/v1/kv/large")).status_code == 503
            assert (await on.client.get("/v1/kv/large")).status_code == 200
            assert (await on.client.get("/v1/kv?values=true")).status_code == 200
            await until(lambda: on.front._answers.held == 0)

    run(main())


def test_the_work_of_a_client_that_has_gone_is_dropped() -> None:
    async def main() -> None:
        turns = Turns()
        async with http_front(line=turns.line) as on:
            fill(on, 1000)
            _, writer = await asyncio.open_connection(on.address.host, on.address.port)
            writer.write(b"GET /v1/kv HTTP/1.1\r\nhost: h\r\n\r\n")
            await until(lambda: turns.line.count == 1)
            writer.transport.abort()
            await until(lambda: on.front.connection_count == 0)
            assert await turns.take_all() == 1
            await settle()
            assert on.front._answers.held == 0

    run(main())


def test_a_page_that_is_given_up_amid_its_pieces_gives_its_room_back() -> None:
    async def main() -> None:
        turns = Turns()
        async with http_front(line=turns.line) as on:
            fill(on, 1000)
            asked = asyncio.create_task(on.client.get("/v1/kv"))
            await until(lambda: turns.line.count == 1)
            for _ in range(5):
                turns.calls.pop(0)()
            assert on.front._answers.held > 0
            on.front.close()
            await on.front.abandon()
            assert (await asked).status_code == 503
            assert on.front._answers.held == 0 and turns.line.count == 0

    run(main())


def test_a_bug_in_the_work_is_answered(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with http_front() as on:
            fill(on, 1000)
            monkeypatch.setattr(pages, "unpack", {}.__getitem__)
            assert (await on.client.get("/v1/kv")).status_code == 500

    run(main())
    assert "failed amid work of the line" in caplog.text
