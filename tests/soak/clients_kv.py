"""Clients of the key-value space over HTTP, at any node: gets, puts, compare-and-sets, deletes, transactions."""

from __future__ import annotations

import asyncio
import json
import random
from urllib.parse import urlsplit

from raftlake.sim.histories.kv import Change, Changed, Conflict, Get, Seen
from raftlake.sim.histories.linearizability import Outcome
from soak.http_calls import Answer, HttpCalls, NoAnswer, NotSent
from soak.record import Record

CALL_SECONDS = 5.0
REDIRECTS_MAX = 3
KEYS = 6
#: Keys have new names after so long, so that what is judged together stays small.
GENERATION_US = 20_000_000


class KvClient:
    def __init__(self, record: Record, name: str, seed: int, think_s: float) -> None:
        self._record = record
        self._name = name
        self._rng = random.Random(f"{seed} {name}")
        self._think_s = think_s
        self._calls = HttpCalls()
        self._versions: dict[str, int] = {}
        self._counter = 0

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self.step()
                await asyncio.sleep(self._rng.expovariate(1 / self._think_s))
        finally:
            self._calls.close()

    async def step(self) -> None:
        generation = self._record.now_us() // GENERATION_US
        first = f"g{generation}/k{self._rng.randrange(KEYS)}"
        match self._rng.choices(["get", "put", "cas", "delete", "txn"], [40, 20, 25, 3, 12])[0]:
            case "get":
                await self.get(first)
            case "put":
                await self._change(first, self._value(), None)
            case "cas":
                await self._change(first, self._value(), self._versions.get(first, 0))
            case "delete":
                await self._change(first, None, self._versions.get(first))
            case _:
                # Only these two keys are ever changed together, so that the others can be judged one by one.
                await self._txn(f"g{generation}/x", f"g{generation}/y")

    def _value(self) -> bytes:
        self._counter += 1
        return f"{self._name}-{self._counter}".encode()

    def _address(self) -> tuple[str, int]:
        host, _, port = self._rng.choice(list(self._record.nodes.links.addresses.values()))
        return host, port

    # --- operations ---

    async def get(self, key: str) -> bool:
        """A linearizable get at any node; whether it was answered."""
        invoked_us = self._record.now_us()
        try:
            answer = await self._calls.call(self._address(), "GET", f"/v1/kv/{key}", timeout_s=CALL_SECONDS)
        except (NotSent, NoAnswer):
            answer = None
        if answer is None or answer.status == 503:
            self._record.note_kv(self._name, "get", invoked_us, Outcome.FAILED, Get({key: None}))
            return False
        if answer.status not in (200, 404):
            self._surprise("GET", key, answer)
            return False
        seen = Seen(answer.body, _version(answer)) if answer.status == 200 else None
        self._versions[key] = seen.version or 0 if seen is not None else 0
        self._record.note_kv(self._name, "get", invoked_us, Outcome.OK, Get({key: seen}, answer.offset))
        return True

    async def _change(self, key: str, value: bytes | None, expects: int | None) -> None:
        headers = ""
        if expects is not None:
            headers = f'if-match: "{expects}"\r\n' if expects else "if-none-match: *\r\n"
            if value is None and not expects:
                headers, expects = "", None
        compares = {} if expects is None else {key: expects}
        invoked_us = self._record.now_us()
        method = "PUT" if value is not None else "DELETE"
        answer = await self._write(method, f"/v1/kv/{key}", value or b"", headers)
        result: Changed | Conflict | None = None
        if isinstance(answer, Answer) and answer.status == 200:
            result = Changed(_version(answer))
            self._versions[key] = result.version or 0 if value is not None else 0
        elif isinstance(answer, Answer):
            self._versions[key] = json.loads(answer.body)["version"]
            result = Conflict({key: self._versions[key]}, answer.offset)
        kind = "delete" if value is None else "put" if expects is None else "cas"
        self._note(kind, invoked_us, answer, Change({key: value}, compares, result))

    async def _txn(self, first: str, second: str) -> None:
        value = self._value()
        compares = {first: self._versions.get(first, 0)} if self._rng.randrange(3) else {}
        body = {
            "compare": [{"key": key, "version": version} for key, version in compares.items()],
            "ops": [{"put": {"key": key, "text": value.decode()}} for key in (first, second)],
        }
        invoked_us = self._record.now_us()
        answer = await self._write("POST", "/v1/txn", json.dumps(body).encode(), "content-type: application/json\r\n")
        result: Changed | Conflict | None = None
        if isinstance(answer, Answer) and answer.status == 200:
            result = Changed(_version(answer))
            self._versions[first] = self._versions[second] = result.version or 0
        elif isinstance(answer, Answer):
            current = {row["key"]: row["version"] for row in json.loads(answer.body)["failed"]}
            self._versions.update(current)
            result = Conflict(current, answer.offset)
        self._note("txn", invoked_us, answer, Change({first: value, second: value}, compares, result))
        if self._rng.randrange(2):
            await self.get(self._rng.choice([first, second]))

    def _note(self, kind: str, invoked_us: int, answer: Answer | Outcome, change: Change) -> None:
        outcome = Outcome.OK if isinstance(answer, Answer) else answer
        self._record.note_kv(self._name, kind, invoked_us, outcome, change)

    async def _write(self, method: str, path: str, body: bytes, headers: str) -> Answer | Outcome:
        """A 200 or 412, or what is known without: each redirect says that nothing happened where it came from."""
        address = self._address()
        for _ in range(REDIRECTS_MAX):
            try:
                answer = await self._calls.call(address, method, path, body=body, headers=headers, timeout_s=CALL_SECONDS)
            except NotSent:
                return Outcome.FAILED
            except NoAnswer:
                return Outcome.UNKNOWN
            match answer.status:
                case 200 | 412:
                    return answer
                case 503:
                    return Outcome.FAILED
                case 504:
                    return Outcome.UNKNOWN
                case 307:
                    target = urlsplit(answer.headers["location"])
                    assert target.hostname is not None and target.port is not None
                    address = (target.hostname, target.port)
                case _:
                    self._surprise(method, path, answer)
                    return Outcome.UNKNOWN
        return Outcome.FAILED

    def _surprise(self, method: str, path: str, answer: Answer) -> None:
        if b"stopping" not in answer.body:
            self._record.complaints.append(f"{method} {path} was answered {answer.status}: {answer.body[:200]!r}")


def _version(answer: Answer) -> int:
    return int(answer.headers["etag"].strip('"'))
