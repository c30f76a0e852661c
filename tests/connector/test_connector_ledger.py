"""Which batches of a sink are visible: owners, commits that come once more, answers that get lost, what nobody commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from connector.fakekeys import FakeKeys, away
from pyspark_raftlake import ledger as ledgers
from pyspark_raftlake.errors import QuorumUnavailable, SinkFailed, SinkFenced
from pyspark_raftlake.ledger import JobNumber, Ledger, Standing
from raftlake.client import sink_keys as keys
from raftlake.client.sink_keys import TASKS_MAX, CommittedBatch, Driver
from raftlake.client.types import EndTxn
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.commands import Put

HERE = Driver(host="host-1", pid=17)
APP = "query-1"


def ledger_on(space: FakeKeys, now_ms: Callable[[], int] = lambda: 5_000, patience_ms: int = 60_000) -> Ledger:
    return Ledger(space, patience_ms, now_ms)


def batch(number: int, run: str = "run-1", at_ms: int = 5_000) -> CommittedBatch:
    return CommittedBatch(batch=number, run=run, rows=3, tasks=2, at_ms=at_ms, topics={"t": 3})


def last(space: FakeKeys) -> int:
    return keys.decode_batch(space.entries[keys.batch_key(APP)][0]).batch


def entered(space: FakeKeys, run: str = "run-1") -> Standing:
    return ledger_on(space).enter(APP, run, APP, HERE)


def begun(space: FakeKeys, standing: Standing, *tasks: int, attempt: int = 0) -> list[EndTxn]:
    return [space.begin(keys.app_transactional_id(APP, standing.generation, task, attempt)) for task in tasks]


def test_all_of_a_batch_becomes_visible_by_one_command() -> None:
    space = FakeKeys()
    standing = entered(space)
    assert (standing.last_batch, standing.generation) == (-1, 1)
    ends = begun(space, standing, 0, 1)
    assert ledger_on(space).commit(standing, batch(0), ends)
    assert set(space.states().values()) == {"Committed"}
    assert [len(command) for command in space.commands] == [1, 3]
    after = entered(space)
    assert (after.last_batch, after.owner_version) == (0, standing.owner_version)
    assert after.batch_version > standing.batch_version
    facts = json.loads(space.entries[keys.batch_key(APP)][0])
    assert facts == {"batch": 0, "run": "run-1", "rows": 3, "tasks": 2, "at_ms": 5000, "topics": {"t": 3}}


def test_a_batch_is_visible_once_whatever_answers_are_lost() -> None:
    for outcomes in (["lost after"], ["lost before"], ["lost before", "lost after"], [away(), "lost after", away()]):
        space = FakeKeys()
        standing = entered(space)
        ends = begun(space, standing, 0, 1)
        space.outcomes = list(outcomes)
        assert ledger_on(space).commit(standing, batch(0), ends)
        assert last(space) == 0
        puts = [op for command in space.commands for op in command if isinstance(op, Put) and "batch" in op.key]
        assert len(puts) <= len(outcomes) + 1
        assert set(space.states().values()) == {"Committed"}


def test_a_batch_that_spark_has_planned_anew_is_told_until_the_next_one_is_committed() -> None:
    """The connector in Java notes it, in real-time mode."""
    space = FakeKeys()
    ledger_on(space).commit(entered(space), batch(3), [])
    assert not entered(space).is_replanned
    value, version = space.entries[keys.batch_key(APP)]
    space.entries[keys.batch_key(APP)] = (json.dumps({**json.loads(value), "is_replanned": True}).encode(), version)
    standing = entered(space)
    assert standing.is_replanned and standing.last_batch == 3
    assert ledger_on(space).commit(standing, batch(4), [])
    assert not entered(space).is_replanned


def test_a_commit_that_comes_for_a_batch_that_is_visible_changes_nothing() -> None:
    """Its tasks began before the batch was committed, by the same run."""
    space = FakeKeys()
    standing = entered(space)
    assert ledger_on(space).commit(standing, batch(3), begun(space, standing, 0))
    late = space.begin(keys.app_transactional_id(APP, 1, 0, 1))
    assert not ledger_on(space).commit(standing, batch(3, at_ms=6_000), [late])
    assert not ledger_on(space).commit(standing, batch(2, at_ms=6_000), [late])
    assert last(space) == 3
    assert space.states()[keys.app_transactional_id(APP, 1, 0, 1)] == "Ongoing"


def test_the_newer_run_owns_the_sink_and_the_older_one_is_told_by_whom() -> None:
    space = FakeKeys()
    older = entered(space, "run-1")
    ends = begun(space, older, 0)
    newer = ledger_on(space).enter(APP, "run-2", APP, Driver(host="host-2", pid=99))
    assert newer.generation == 2
    told = r"run run-1 no longer owns the sink of query-1, and nothing of batch 0 .*run-2 on host host-2 \(process 99, since"
    with pytest.raises(SinkFenced, match=told):
        ledger_on(space).commit(older, batch(0), ends)
    with pytest.raises(SinkFenced, match=r"run run-1 .* The owner is run run-2"):
        entered(space, "run-1")
    assert entered(space, "run-2") == newer
    assert keys.batch_key(APP) not in space.entries


def test_rows_that_an_older_run_wrote_behind_the_sweep_of_the_newer_one_do_not_count() -> None:
    """Neither do its batches without rows: they would take the number of the newer run's batch."""
    for tasks in ((0, 1), ()):
        space = FakeKeys()
        older = entered(space, "run-1")
        entered(space, "run-2")
        ends = begun(space, older, *tasks)
        with pytest.raises(SinkFenced, match="owner is run run-2"):
            ledger_on(space).commit(older, batch(0), ends)
        assert keys.batch_key(APP) not in space.entries
        assert "Committed" not in space.states().values()


def test_a_takeover_amid_the_commit_fences_it() -> None:
    space = FakeKeys()
    older = entered(space)
    ends = begun(space, older, 0)
    space.before_txn = [lambda: space.before_txn.clear() or entered(space, "run-2")]
    with pytest.raises(SinkFenced, match="owner is run run-2"):
        ledger_on(space).commit(older, batch(0), ends)
    assert set(space.states().values()) == {"Aborted"}


def test_a_commit_that_took_effect_before_the_takeover_is_no_failure() -> None:
    space = FakeKeys()
    older = entered(space)
    ends = begun(space, older, 0)
    space.outcomes = ["lost after"]
    space.before_txn = [lambda: None, lambda: space.before_txn.clear() or entered(space, "run-2")]
    assert ledger_on(space).commit(older, batch(0), ends)


def test_the_run_that_takes_over_aborts_what_nobody_committed() -> None:
    space = FakeKeys()
    older = entered(space)
    begun(space, older, 0, 1)
    foreign = space.begin(keys.app_transactional_id("query-11", 1, 0, 0))
    newer = entered(space, "run-2")
    assert sorted(space.states().values()) == ["Aborted", "Aborted", "Ongoing"]
    assert foreign.producer_id == 1002
    # The ids of the newer run are others: a task of the older one does not fence it.
    ids = {keys.app_transactional_id(APP, each.generation, 0, 0) for each in (older, newer)}
    assert len(ids) == 2


def test_a_sweep_between_two_batches_aborts_lost_attempts_while_the_run_is_the_owner() -> None:
    space = FakeKeys()
    standing = entered(space)
    assert ledger_on(space).commit(standing, batch(0), begun(space, standing, 0))
    begun(space, standing, 0, 1, attempt=1)
    assert ledger_on(space).sweep(standing) == 2
    assert sorted(space.states().values()) == ["Aborted", "Aborted", "Committed"]
    entered(space, "run-2")
    begun(space, standing, 5)
    assert ledger_on(space).sweep(standing) == 0
    assert space.states()[keys.app_transactional_id(APP, 1, 5, 0)] == "Ongoing"


@pytest.mark.parametrize("other", ["query.daily", "query.1", "query.", "query.1.2"])
def test_a_sweep_leaves_the_transactions_of_apps_whose_names_begin_so(other: str) -> None:
    space = FakeKeys()
    ledger = ledger_on(space)
    standing = ledger.enter("query", "run-1", "q", HERE)
    own, foreign = (keys.app_transactional_id(app, 3, 0, 12) for app in ("query", other))
    for name in (own, foreign):
        space.begin(name)
    assert ledger.sweep(standing) == 1
    assert space.states() == {own: "Aborted", foreign: "Ongoing"}


def test_a_sweep_goes_on_past_a_transaction_that_ends_meanwhile() -> None:
    space = FakeKeys()
    standing = entered(space)
    begun(space, standing, 0, 1)
    space.before_txn = [lambda: space.time_out(keys.app_transactional_id(APP, 1, 0, 0))]
    assert ledger_on(space).sweep(standing) == 1
    assert set(space.states().values()) == {"Aborted"}


def test_a_transaction_whose_time_was_over_makes_nothing_visible() -> None:
    space = FakeKeys()
    standing = entered(space)
    ends = begun(space, standing, 0, 1)
    space.time_out(keys.app_transactional_id(APP, 1, 1, 0))
    with pytest.raises(SinkFailed, match=r"1 tasks were aborted before .*kafka\.transaction\.timeout\.ms"):
        ledger_on(space).commit(standing, batch(0), ends)
    assert "Committed" not in space.states().values()
    assert keys.batch_key(APP) not in space.entries


def test_more_tasks_than_a_commit_takes_are_refused_before_anything_happens() -> None:
    space = FakeKeys()
    standing = entered(space)
    most = begun(space, standing, *range(TASKS_MAX))
    with pytest.raises(SinkFailed, match=r"rows of 1024 tasks, .* coalesce\(1023\)"):
        ledger_on(space).commit(standing, batch(0), [*most, EndTxn(1, 0, True)])
    assert ledger_on(space).commit(standing, batch(0), most)


def test_an_outage_of_the_commit_ends_in_one_error_when_patience_is_over() -> None:
    space = FakeKeys()
    standing = entered(space)
    space.outcomes = [away(), away()]
    with pytest.raises(
        QuorumUnavailable, match=r"the commit of batch 0 .*1 try, as 'kafka.max.block.ms' says.*not accepted in time"
    ):
        ledger_on(space, patience_ms=0).commit(standing, batch(0), begun(space, standing, 0))
    space.outcomes = [RequestRejected(ErrorCode.POLICY_VIOLATION, "507: no room")]
    with pytest.raises(RequestRejected, match="no room"):
        ledger_on(space).commit(standing, batch(0), [])


def test_a_put_of_the_owner_without_an_answer_is_looked_up() -> None:
    for outcome in ("lost before", "lost after"):
        space = FakeKeys(outcomes=[outcome])
        standing = entered(space)
        assert (standing.generation, space.entries[keys.owner_key(APP)][1]) == (1, standing.owner_version)


def test_two_runs_that_begin_at_once_agree_on_the_owner() -> None:
    space = FakeKeys()
    space.before_txn = [lambda: space.before_txn.clear() or entered(space, "run-2")]
    standing = entered(space, "run-1")
    assert standing.generation == 2
    with pytest.raises(SinkFenced, match="owner is run run-1"):
        entered(space, "run-2")


def test_names_of_apps_are_apart() -> None:
    space = FakeKeys()
    for name in ("a/b", "a", "a%2Fb", "a/owner"):
        ledger_on(space).enter(name, "run-1", name, HERE)
    assert len(space.entries) == 4
    assert [keys.decode_owner(value).query for value, _ in space.entries.values()] == ["a/b", "a", "a%2Fb", "a/owner"]


def test_runs_of_before_are_remembered_up_to_a_bound() -> None:
    space = FakeKeys()
    for number in range(keys.BEFORE_MAX + 3):
        entered(space, f"run-{number}")
    owner = keys.decode_owner(space.entries[keys.owner_key(APP)][0])
    assert len(owner.before) == keys.BEFORE_MAX
    assert owner.before[-1] == f"run-{keys.BEFORE_MAX + 1}"
    assert "" not in owner.before


def test_whatever_stands_in_a_key_is_read() -> None:
    for value in (None, b"", b"no json", b"[" * 100_000, b"[1]", b'{"run":7,"before":"x","batch":true,"topics":[]}'):
        assert keys.decode_owner(value).run == ""
        assert keys.decode_batch(value).batch == -1
        assert not keys.decode_job(value).is_done


@pytest.mark.parametrize(
    ("told", "known"),
    [(-1, 0), (0, 0), (keys.TIME_MS_MAX, keys.TIME_MS_MAX), (keys.TIME_MS_MAX + 1, 0), (10**400, 0), (1.5, 0), (None, 0)],
)
def test_a_time_in_a_key_is_one_that_can_be_shown(told: object, known: int) -> None:
    value = json.dumps({"run": "r", "since_ms": told, "at_ms": told}).encode()
    assert (keys.decode_owner(value).since_ms, keys.decode_batch(value).at_ms, keys.decode_job(value).since_ms) == (known,) * 3
    year = 9999 if known else 1970
    assert f"run r on host  (process 0, since {year}-" in keys.decode_owner(value).describe()


def test_rows_of_a_topic_that_are_no_number_are_none() -> None:
    topics = json.loads('{"a": 3, "b": null, "c": "x", "d": [], "e": 1.5, "f": true}')
    assert keys.decode_batch(json.dumps({"batch": 1, "topics": topics}).encode()).topics == {**dict.fromkeys(topics, 0), "a": 3}


# --- batch writes -----------------------------------------------------------------------------------------------------------


def job_ends(space: FakeKeys, job: JobNumber, *tasks: int) -> list[EndTxn]:
    return [space.begin(keys.job_transactional_id(job.number, task, 0)) for task in tasks]


def test_a_batch_write_becomes_visible_at_once_and_leaves_its_number() -> None:
    space = FakeKeys()
    job, other = (ledger_on(space).claim_job(name, HERE) for name in ("a", "b"))
    assert (job.number, other.number) == (0, 1)
    lost = space.begin(keys.job_transactional_id(0, 1, 1))
    ends = job_ends(space, job, 0, 1)
    ledger_on(space).require_job(job)
    ledger_on(space).commit_job(job, ends)
    assert sorted(space.states().values()) == ["Aborted", "Committed", "Committed"]
    assert lost.producer_id == 1000
    with pytest.raises(SinkFailed, match="began too late"):
        ledger_on(space).require_job(job)
    ages: Any = ((ledgers.DONE_AGE_MS_MAX, 2), (ledgers.DONE_AGE_MS_MAX + 1, 0), (ledgers.JOB_AGE_MS_MAX + 1, 0))
    for age_ms, number in ages:
        later = FakeKeys(entries=dict(space.entries), version=space.version)
        assert ledger_on(later, lambda age_ms=age_ms: 5_000 + age_ms).claim_job("c", HERE).number == number  # type: ignore[misc]


@pytest.mark.parametrize("outcome", ["lost before", "lost after"])
def test_a_batch_write_without_an_answer_is_visible_once(outcome: str) -> None:
    space = FakeKeys(outcomes=[outcome])
    job = ledger_on(space).claim_job("a", HERE)
    ends = job_ends(space, job, 0)
    space.outcomes = [outcome]
    ledger_on(space).commit_job(job, ends)
    assert set(space.states().values()) == {"Committed"}


def test_a_batch_write_that_somebody_ended_is_not_called_visible() -> None:
    space = FakeKeys()
    job = ledger_on(space).claim_job("a", HERE)
    ends = job_ends(space, job, 0)
    del space.entries[keys.job_key(0)]
    with pytest.raises(SinkFailed, match="somebody else ended the batch write with the number 0"):
        ledger_on(space).commit_job(job, ends)
    assert "Committed" not in space.states().values()
    with pytest.raises(SinkFailed, match=r"rows of 1024 tasks"):
        ledger_on(space).commit_job(job, [EndTxn(number, 0, True) for number in range(TASKS_MAX + 1)])


def test_a_batch_write_that_is_given_up_leaves_nothing_open() -> None:
    space = FakeKeys()
    job = ledger_on(space).claim_job("a", HERE)
    told = job_ends(space, job, 0, 1)
    # A task that was killed tells nothing, and one opens its transaction behind the driver's first look.
    space.begin(keys.job_transactional_id(0, 2, 0))
    other = keys.job_transactional_id(1, 0, 0)
    space.begin(other)
    look_again = ledger_on(space).abort_job(job, told)
    assert keys.decode_job(space.entries[keys.job_key(0)][0]).is_done
    space.begin(keys.job_transactional_id(0, 3, 0))
    assert look_again is not None and look_again() == 1
    states = space.states()
    assert states.pop(other) == "Ongoing"
    assert list(states.values()) == ["Aborted"] * 4


def test_the_next_batch_write_ends_what_a_failed_one_opened_late() -> None:
    space = FakeKeys()
    failed, running = (ledger_on(space).claim_job(name, HERE) for name in ("a", "b"))
    ledger_on(space).abort_job(failed, [])
    late, needed = (keys.job_transactional_id(number, 0, 0) for number in (failed.number, running.number))
    space.begin(late)
    space.begin(needed)
    assert ledger_on(space).claim_job("c", HERE).number == 2
    assert space.states() == {late: "Aborted", needed: "Ongoing"}


def test_a_batch_write_whose_number_was_taken_ends_only_what_its_tasks_told() -> None:
    space = FakeKeys()
    job = ledger_on(space).claim_job("a", HERE)
    told = job_ends(space, job, 0)
    later = ledger_on(space, lambda: 5_000 + ledgers.JOB_AGE_MS_MAX + 1).claim_job("b", HERE)
    job_ends(space, later, 1)
    assert later.number == job.number
    assert ledger_on(space).abort_job(job, told) is None
    assert list(space.states().values()) == ["Aborted", "Ongoing"]
