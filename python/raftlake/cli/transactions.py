"""`raftlake transactions`: which transactions of producers are under way, which hang, and an end to one.

Readers of what is committed wait where the oldest open transaction of a partition begins. A transaction hangs where no
coordinator will end it; the nodes say how that can be (`client/transaction_admin.py`).
"""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftlake.cli.output import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_MS_DEFAULT,
    AsJson,
    BootstrapServer,
    TimeoutMs,
    connect,
    print_json,
    print_table,
)
from raftlake.errors import RequestRejected, UnknownOutcome, WrongState, one_line, printable, unknown_outcome

if TYPE_CHECKING:
    from raftlake.client import HangingTransaction, TransactionDescription

app = typer.Typer(help="Transactions of producers: what is open, what hangs, and an end to it.", no_args_is_help=True)

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="The transactional.id of the producer.")]


@app.command("list")
def list_(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only transactional ids that begin so.")] = "",
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the transactions that are under way, the oldest first: producer, state, age, time limit, partitions."""
    with connect(bootstrap_server, timeout_ms) as client:
        found = client.transactions(prefix)
    if as_json:
        print_json([_facts(each) for each in found])
        return
    rows = [
        [
            each.transactional_id,
            f"{each.producer_id}/{each.epoch}",
            each.state,
            _age(each.started_ms),
            _seconds(each.timeout_ms),
            _places(each),
        ]
        for each in found
    ]
    print_table(["Id", "Producer", "State", "Age", "Limit", "Partitions"], rows)


@app.command("describe")
def describe(
    name: TransactionalId,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Describe a transactional id: producer, state, age and partitions. Exit code 1 where there is no such id."""
    with connect(bootstrap_server, timeout_ms) as client:
        found = client.describe_transaction(name)
    if as_json:
        print_json(_facts(found))
        return
    rows = [
        ["producer", f"{found.producer_id}, epoch {found.epoch}"],
        ["state", found.state],
        ["age", _age(found.started_ms)],
        ["time limit", _seconds(found.timeout_ms)],
        ["partitions", _places(found)],
    ]
    print_table(["Transactional id", printable(name)], rows)


@app.command("abort")
def abort(
    name: TransactionalId,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Abort the open transaction of an id, in all of its partitions; its producer is fenced. Exit code 1 where none is open."""
    from raftlake.client.errors import NoReachableNode

    with connect(bootstrap_server, timeout_ms) as client:
        found = client.describe_transaction(name)
        if not found.is_open:
            raise WrongState(f"nothing was changed: {name!r} has no open transaction, its state is {found.state}")
        who = f"{printable(name)}, producer {found.producer_id} epoch {found.epoch}"
        try:
            client.kv.txn({}, [found.end(commit=False)])
        except UnknownOutcome as error:
            raise _unknown_abort(who, found, error) from None
        try:
            is_settled = client.settle_transactions([name])
            where = "all partitions know it" if is_settled else "some partitions do not know it yet"
        except (RequestRejected, NoReachableNode) as error:
            # The abort itself is decided.
            is_settled = False
            where = f"whether all partitions know it could not be asked ({one_line(error)}); they learn of it by themselves"
    if as_json:
        print_json(_facts(found) | {"isSettled": is_settled})
    else:
        print(f"aborted {who}: {where}")


def _unknown_abort(who: str, found: TransactionDescription, error: UnknownOutcome) -> UnknownOutcome:
    """The error of an abort that no answer decides. Who aborts again ends what is open then, which may be a later one."""
    told, _, _ = str(error).partition("; its outcome is not known")
    look = f"`raftlake transactions describe {shlex.quote(found.transactional_id)}`"
    then = (
        f"look at it with {look}. While it says epoch {found.epoch} and Ongoing, abort again: of one epoch this does no harm. "
        "With CompleteAbort, or with a later epoch, this transaction is over; a later epoch that is Ongoing is another one"
    )
    return unknown_outcome(f"the abort of {who} was not answered ({told})", then)


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only there (default: all topics).")] = None,
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition, and that no coordinator will end there."""
    found: list[HangingTransaction] = []
    with connect(bootstrap_server, timeout_ms) as client:
        for each in client.topics() if topic is None else [client.describe_topic(topic)]:
            found += client.hanging_transactions(each.name, [part.partition for part in each.partitions])
    if as_json:
        print_json([_hanging_facts(each) for each in found])
        return
    rows = [
        [
            each.topic,
            str(each.partition),
            str(each.start_offset),
            f"{each.producer_id}/{each.epoch}",
            _age(each.last_written_ms),
        ]
        for each in found
    ]
    print_table(["Topic", "Partition", "Offset", "Producer", "Written"], rows)


@app.command("abort-hanging")
def abort_hanging(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="As find-hanging prints it.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="As find-hanging prints it.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Where the transaction begins.")],
    bootstrap_server: BootstrapServer = BOOTSTRAP_DEFAULT,
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Abort a transaction that hangs, in its one partition. Exit code 1 where none hangs at that offset."""
    with connect(bootstrap_server, timeout_ms) as client:
        found = {each.start_offset: each for each in client.hanging_transactions(topic, [partition])}.get(offset)
        if found is None:
            raise WrongState(f"nothing was changed: in {topic}-{partition} no transaction hangs that begins at offset {offset}")
        client.abort_hanging(found)
    if as_json:
        print_json(_hanging_facts(found))
    else:
        print(f"aborted the transaction of producer {found.producer_id} epoch {found.epoch} in {topic}-{partition}")


def _facts(found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactionalId": found.transactional_id,
        "producerId": found.producer_id,
        "epoch": found.epoch,
        "state": found.state,
        "startedMs": found.started_ms,
        "timeoutMs": found.timeout_ms,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in found.partitions],
    }


def _hanging_facts(found: HangingTransaction) -> dict[str, Any]:
    words = {name: name.split("_") for name in asdict(found)}
    return {first + "".join(map(str.title, rest)): getattr(found, name) for name, (first, *rest) in words.items()}


def _places(found: TransactionDescription) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in found.partitions) or "-"


def _age(since_ms: int) -> str:
    """By the clocks of two machines."""
    return "-" if since_ms < 0 else _seconds(max(0, round(time.time() * 1000) - since_ms))


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.0f} s"
