"""Transactions of producers that end over HTTP, together with keys: what the body may say, and what a refusal names."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from raftlake.kv.commands import EndTxn, Put, Txn, encode
from raftlake.kv.machine import StateMachine
from raftlake.replica import transaction_entry
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.replica.transaction_entry import Transaction, TransactionState, transaction_key
from raftlake.runtime.http.kv import CONDITION_FAILED, END_REFUSED
from runtime_fakes import run
from runtime_http_fakes import Front, http_front

ONGOING = Transaction(transactional_id="a", producer_id=7, epoch=2, timeout_ms=1_000, state=TransactionState.ONGOING)


def fronted(test: Callable[[Front], Awaitable[None]]) -> None:
    """Over keys with two ongoing transactions, of the producers 7 and 8."""

    async def main() -> None:
        async with http_front() as on:
            machine = StateMachine(rules=ReservedRules)
            rows = (ONGOING, replace(ONGOING, transactional_id="b", producer_id=8))
            puts = tuple(Put(transaction_key(row.transactional_id), transaction_entry.encode(row)) for row in rows)
            machine.apply(1, encode(Txn((), puts)))
            on.node.kv.machine = machine
            await test(on)

    run(main())


def end(producer_id: int, epoch: int = 2, commit: bool = True) -> dict[str, Any]:
    return {"end_txn": {"producer_id": producer_id, "epoch": epoch, "commit": commit}}


def states(on: Front) -> list[str]:
    rules = on.node.kv.machine.rules
    assert isinstance(rules, ReservedRules)
    return [found.state.value for found in rules.transactions.by_key.values()]


def test_ends_happen_with_what_stands_beside_them() -> None:
    async def test(on: Front) -> None:
        body = {
            "compare": [{"key": "p", "version": 0}],
            "ops": [end(7), {"put": {"key": "p", "text": "1"}}, end(8, commit=False)],
        }
        done = await on.client.post("/v1/txn", json=body)
        assert (done.status_code, done.json()) == (200, {"succeeded": True, "version": 2})
        assert on.node.kv.proposed[-1].ops == (EndTxn(7, 2, True), Put("p", b"1"), EndTxn(8, 2, False))
        assert states(on) == ["PrepareCommit", "PrepareAbort"]
        again = await on.client.post("/v1/txn", json={"ops": [end(7)]})
        assert again.status_code == 200

    fronted(test)


def test_a_refusal_names_each_producer_and_the_reason_and_nothing_happens() -> None:
    async def test(on: Front) -> None:
        put = {"put": {"key": "p", "text": "1"}}
        refused = await on.client.post("/v1/txn", json={"ops": [put, end(7), end(8, epoch=1), end(9)]})
        assert refused.status_code == 412
        assert refused.json() == {
            "error": END_REFUSED,
            "succeeded": False,
            "failed": [],
            "refused": [
                {"producer_id": 8, "reason": "the producer 8 has the epoch 2, not 1"},
                {"producer_id": 9, "reason": "no transactional id has the producer id 9"},
            ],
        }
        both = await on.client.post("/v1/txn", json={"compare": [{"key": "p", "version": 5}], "ops": [end(9)]})
        told = both.json()
        assert (told["error"], told["failed"]) == (CONDITION_FAILED, [{"key": "p", "version": 0}])
        assert [row["producer_id"] for row in told["refused"]] == [9]
        assert (states(on), on.node.kv.machine.get("p")) == (["Ongoing", "Ongoing"], None)

    fronted(test)


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"end_txn": {}}, "end_txn takes a producer_id"),
        ({"end_txn": []}, "end_txn takes a producer_id"),
        ({"end_txn": {"producer_id": 7, "epoch": 2}}, "end_txn takes a producer_id"),
        ({"end_txn": {"producer_id": 7, "epoch": 2, "commit": True, "key": "k"}}, "end_txn takes a producer_id"),
        (end("7"), "are whole numbers"),  # type: ignore[arg-type]
        (end(True), "are whole numbers"),
        (end(7, epoch=1.0), "are whole numbers"),  # type: ignore[arg-type]
        (end(7, commit=1), "are whole numbers"),  # type: ignore[arg-type]
        (end(-1), "no producer has the id -1"),
        (end(7, epoch=32_768), "no producer has the id 7 and the epoch 32768"),
        (end(1 << 63), "no producer has the id"),
    ],
)
def test_a_wrong_end_names_its_place(op: dict[str, Any], message: str) -> None:
    async def test(on: Front) -> None:
        answer = await on.client.post(
            "/v1/txn", content=json.dumps({"ops": [op]}), headers={"content-type": "application/json"}
        )
        told = answer.json()["error"]
        assert (answer.status_code, told.startswith("ops[0]: "), message in told) == (400, True, True), told
        assert on.node.kv.proposed == []

    fronted(test)


def test_a_producer_ends_once_in_a_transaction() -> None:
    async def test(on: Front) -> None:
        answer = await on.client.post("/v1/txn", json={"ops": [end(7), end(7, commit=False)]})
        assert (answer.status_code, "twice" in answer.json()["error"]) == (400, True)

    fronted(test)
