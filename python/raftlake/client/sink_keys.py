"""The keys of the exactly-once sink, and the names of its transactions. Pure. Sinks in other languages share this layout.

| key | value, JSON |
|---|---|
| `/sinks/apps/<app>/owner` | who may commit: `run`, `query`, `host`, `pid`, `since_ms` (as in the owner key of a checkpoint), `generation` (a number, one more with each owner), `before` (the runs that were owners, oldest first, 32 at most) |
| `/sinks/apps/<app>/batch` | what was committed last: `batch`, `run`, `rows`, `tasks`, `at_ms`, `topics` (rows by topic); `is_replanned` where Spark has planned the batch anew since, with other rows |
| `/sinks/jobs/<number>` | a batch write: `job`, `host`, `pid`, `since_ms`, and `is_done` once it has ended |
| `/sinks/once/<app>/<name>` | the last batch of which a side effect was done: `batch`, `at_ms`, `by` (a name of the try) |

`<app>` is the id of a streaming query, or the `txnAppId` of a batch write, percent-encoded. Members of a value that are not known
are kept by nobody and hinder nobody. Times are ms since 1970.

A task writes under the transactional id `raftlake-sink.a.<app>.<generation modulo 4>.<partition>.<attempt>`, or
`raftlake-sink.j.<number>.<partition>.<attempt>` without an app. So the ids of one app are a bounded number. Two attempts of one
task have two ids: neither fences the other. Tasks of the owner before have other ids than those of the owner.

The commit of a batch is one command: it compares the versions of owner and batch, ends the transactions of the tasks whose
messages Spark has accepted, and puts the batch. A job's commit compares its key, ends the transactions and says that it is done.
A number is taken again five minutes later, or a day after its driver has gone.
"""  # noqa: E501 -- a row of a table

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from raftlake.kv.commands import OPERATIONS_MAX
from raftlake.kv.lenient_json import facts_of, number_of, text_of

ROOT = "/sinks/"
APPS = ROOT + "apps/"
JOBS = ROOT + "jobs/"
ONCE = ROOT + "once/"
TRANSACTIONS = "raftlake-sink."
#: Transactions that one commit can end; beside them it puts the batch.
TASKS_MAX = OPERATIONS_MAX - 1
#: The ids of so many owners are apart.
GENERATIONS = 4
#: Runs that are remembered as owners of before.
BEFORE_MAX = 32
#: What a task's transactional id ends with: perhaps a generation, then the partition and the attempt.
_TASK = re.compile(r"[0-9]+(\.[0-9]+){1,2}")
#: The end of the year 9999, as no date is later.
TIME_MS_MAX = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The process that plans a query."""

    host: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The run that may commit batches of an app; no run where nobody was an owner yet."""

    run: str = ""
    query: str = ""
    host: str = ""
    pid: int = 0
    since_ms: int = 0
    generation: int = 0
    before: tuple[str, ...] = ()

    def followed_by(self, run: str, query: str, driver: Driver, now_ms: int) -> Owner:
        """The next owner."""
        return Owner(
            run=run,
            query=query,
            host=driver.host,
            pid=driver.pid,
            since_ms=now_ms,
            generation=self.generation + 1,
            before=tuple(each for each in (*self.before, self.run) if each)[-BEFORE_MAX:],
        )

    def describe(self) -> str:
        """For texts of errors."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since_ms / 1000))
        return f"run {self.run} on host {self.host} (process {self.pid}, since {since})"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The newest batch of an app that is visible."""

    batch: int
    run: str = ""
    rows: int = 0
    tasks: int = 0
    at_ms: int = 0
    topics: Mapping[str, int] = field(default_factory=dict)
    #: Spark has planned the batch anew since, with other rows.
    is_replanned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A batch write, since it began or, when it is done, since it ended."""

    job: str
    host: str = ""
    pid: int = 0
    since_ms: int = 0
    is_done: bool = False


def encode(value: Owner | CommittedBatch | Job) -> bytes:
    facts = asdict(value)
    if facts.get("is_replanned") is False:
        del facts["is_replanned"]
    return json.dumps(facts, separators=(",", ":")).encode()


def time_of(facts: Mapping[str, Any], name: str) -> int:
    """A time in ms since 1970; 0 for one that no text of a time can show."""
    found = number_of(facts, name)
    return found if 0 <= found <= TIME_MS_MAX else 0


def decode_owner(value: bytes | None) -> Owner:
    """What is not there is empty: whatever stands in the key is an owner, and not this run."""
    facts = facts_of(value)
    before = facts.get("before")
    return Owner(
        run=text_of(facts, "run"),
        query=text_of(facts, "query"),
        host=text_of(facts, "host"),
        pid=number_of(facts, "pid"),
        since_ms=time_of(facts, "since_ms"),
        generation=number_of(facts, "generation"),
        before=tuple(map(str, before)) if isinstance(before, list) else (),
    )


def decode_batch(value: bytes | None) -> CommittedBatch:
    """Batch -1 where the key tells none."""
    facts = facts_of(value)
    topics = facts.get("topics")
    return CommittedBatch(
        batch=number_of(facts, "batch", -1),
        run=text_of(facts, "run"),
        rows=number_of(facts, "rows"),
        tasks=number_of(facts, "tasks"),
        at_ms=time_of(facts, "at_ms"),
        topics={name: number_of(topics, name) for name in topics} if isinstance(topics, dict) else {},
        is_replanned=facts.get("is_replanned") is True,
    )


def decode_job(value: bytes | None) -> Job:
    facts = facts_of(value)
    return Job(
        job=text_of(facts, "job"),
        host=text_of(facts, "host"),
        pid=number_of(facts, "pid"),
        since_ms=time_of(facts, "since_ms"),
        is_done=facts.get("is_done") is True,
    )


def app_prefix(app: str) -> str:
    """What the keys of an app begin with."""
    return f"{APPS}{quote(app, safe='')}/"


def app_of(name: str) -> str:
    """The app whose name stands so in keys."""
    return unquote(name)


def owner_key(app: str) -> str:
    return app_prefix(app) + "owner"


def batch_key(app: str) -> str:
    return app_prefix(app) + "batch"


def once_key(app: str, name: str) -> str:
    return f"{ONCE}{quote(app, safe='')}/{quote(name, safe='')}"


def app_transactions(app: str) -> str:
    """What the transactional ids of an app begin with."""
    return f"{TRANSACTIONS}a.{quote(app, safe='')}."


def app_transactional_id(app: str, generation: int, partition: int, attempt: int) -> str:
    return f"{app_transactions(app)}{generation % GENERATIONS}.{partition}.{attempt}"


def is_task_of(prefix: str, transactional_id: str) -> bool:
    """Whether an id that begins so is of this app or batch write. Those of the app `etl.daily` begin as those of `etl` do."""
    return transactional_id.startswith(prefix) and _TASK.fullmatch(transactional_id, len(prefix)) is not None


def job_key(number: int) -> str:
    return f"{JOBS}{number}"


def job_transactions(number: int) -> str:
    return f"{TRANSACTIONS}j.{number}."


def job_transactional_id(number: int, partition: int, attempt: int) -> str:
    return f"{job_transactions(number)}{partition}.{attempt}"
