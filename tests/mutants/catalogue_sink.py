"""Planted bugs: the exactly-once sink, transactional producers, and outages that queries outlive."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

LEDGER = "pyspark_raftlake.ledger"
SINK = "pyspark_raftlake.sink"
TASK = "pyspark_raftlake.sink_task"
CLIENT = "raftlake.client"


def planted(name: str, source: str, module: str, before: str, after: str, *places: str) -> Mutant:
    edits = (Edit(module, before, after),)
    return Mutant(name=name, source=source, edits=edits, by_tests=True, places=tuple(f"{place}.py" for place in places))


LEDGER_TESTS = "connector/test_connector_ledger"
SINK_TESTS = "connector/test_connector_sink"
PATIENCE_TESTS = "connector/test_connector_patience"
FOREACH_TESTS = "connector/test_connector_foreach"
TRANSACTIONS_TESTS = "unit/client/test_client_transactions"

SINKS = (
    planted(
        "sink-repeated-batch-is-off-by-one",
        "Spark repeats the batch whose end it had not noted down: its number is that of the last one, and not a lower one",
        TASK,
        "    if standing.last_batch >= place.batch:\n",
        "    if standing.last_batch > place.batch:\n",
        SINK_TESTS,
    ),
    planted(
        "sink-next-batch-taken-for-the-last",
        "the batch behind the last one is new: to skip it loses its rows",
        TASK,
        "    if standing.last_batch >= place.batch:\n",
        "    if standing.last_batch + 1 >= place.batch:\n",
        SINK_TESTS,
    ),
    planted(
        "sink-commit-compares-no-owner",
        "a driver that was replaced meanwhile would commit beside the newer one",
        LEDGER,
        "        compare = {keys.owner_key(app): standing.owner_version, keys.batch_key(app): standing.batch_version}\n",
        "        compare = {keys.batch_key(app): standing.batch_version}\n",
        LEDGER_TESTS,
        SINK_TESTS,
    ),
    planted(
        "sink-commit-compares-no-batch",
        "a commit whose answer was lost would be counted twice, and one that comes late would go back",
        LEDGER,
        "        compare = {keys.owner_key(app): standing.owner_version, keys.batch_key(app): standing.batch_version}\n",
        "        compare = {keys.owner_key(app): standing.owner_version}\n",
        LEDGER_TESTS,
    ),
    planted(
        "sink-lost-answer-taken-for-a-takeover",
        "a commit that took effect before a newer run came is a success, though the owner is another one by now",
        LEDGER,
        "            if last == batch:\n                return True\n",
        "            if last == batch and owner_version == standing.owner_version:\n                return True\n",
        LEDGER_TESTS,
    ),
    planted(
        "sink-older-run-takes-over-again",
        "a run that was replaced is known by its name in the owner key, and may not come back",
        LEDGER,
        "            if owner_version and run in owner.before:\n",
        "            if owner_version and run in owner.before[:-1]:\n",
        LEDGER_TESTS,
    ),
    planted(
        "sink-ids-of-two-generations-are-one",
        "a task of the driver before would abort the transaction of the newer one's task",
        f"{CLIENT}.sink_keys",
        'return f"{app_transactions(app)}{generation % GENERATIONS}.{partition}.{attempt}"',
        'return f"{app_transactions(app)}{generation % 1}.{partition}.{attempt}"',
        LEDGER_TESTS,
        SINK_TESTS,
    ),
    planted(
        "sink-attempts-of-one-task-share-an-id",
        "a speculative attempt would abort the rows of the attempt that Spark has accepted",
        f"{CLIENT}.sink_keys",
        'return f"{app_transactions(app)}{generation % GENERATIONS}.{partition}.{attempt}"',
        'return f"{app_transactions(app)}{generation % GENERATIONS}.{partition}.0"',
        SINK_TESTS,
    ),
    planted(
        "sink-sweep-of-other-apps",
        "an app whose name begins with that of another one keeps its transactions",
        f"{CLIENT}.sink_keys",
        "return f\"{TRANSACTIONS}a.{quote(app, safe='')}.\"",
        "return f\"{TRANSACTIONS}a.{quote(app, safe='')}\"",
        LEDGER_TESTS,
    ),
    planted(
        "sink-sweep-stops-at-a-refusal",
        "one transaction that has ended meanwhile must not leave the others open",
        LEDGER,
        "                left = {producer_id: end for producer_id, end in left.items() if producer_id not in refused}\n"
        "                continue\n",
        "                return aborted\n",
        LEDGER_TESTS,
    ),
    planted(
        "sink-sweeps-before-its-commit",
        "an attempt that began beside the commit holds up all readers of what is committed until its time is over",
        SINK,
        "    aborted = ledger.sweep(standing)\n",
        "    aborted = 0\n",
        SINK_TESTS,
    ),
    planted(
        "sink-of-a-replaced-run-leaves-its-rows-open",
        "the newer run may have nothing to write: nobody else would abort them before their time is over",
        LEDGER,
        "        return self._abort(ends, {})\n",
        "        return 0\n",
        SINK_TESTS,
    ),
    planted(
        "sink-does-not-wait-for-the-partitions",
        "a read behind a write would miss its rows, since markers follow the commit",
        SINK,
        '    ledger.settle(message.transaction for message in written)\n    _log.info("batch',
        '    _log.info("batch',
        SINK_TESTS,
    ),
    planted(
        "sink-one-task-too-many",
        "the put of the batch is an operation of the commit, too",
        f"{CLIENT}.sink_keys",
        "TASKS_MAX = OPERATIONS_MAX - 1\n",
        "TASKS_MAX = OPERATIONS_MAX\n",
        LEDGER_TESTS,
    ),
    planted(
        "sink-job-takes-the-number-of-a-running-one",
        "a number is free when its write has ended and nobody can ask any more whether it has",
        LEDGER,
        "(DONE_AGE_MS_MAX if job.is_done else JOB_AGE_MS_MAX)",
        "(0 if job.is_done else JOB_AGE_MS_MAX)",
        LEDGER_TESTS,
    ),
    planted(
        "sink-failed-task-leaves-its-transaction",
        "an attempt that fails can abort what it has written itself",
        TASK,
        "    except BaseException:\n        for producer in made:\n",
        "    except BaseException:\n        for producer in made[1:]:\n",
        SINK_TESTS,
    ),
    planted(
        "once-second-caller-is-told-that-it-was-first",
        "of two that mark one batch, one is first",
        "pyspark_raftlake.foreach",
        "            if last >= self.batch:\n                return False\n",
        "            if last > self.batch:\n                return False\n",
        FOREACH_TESTS,
    ),
    planted(
        "patience-one-try-too-few",
        "numRetries counts the tries behind the first one",
        "pyspark_raftlake.patience",
        "    for retry in range(patience.retries_max + 1):\n",
        "    for retry in range(max(1, patience.retries_max)):\n",
        PATIENCE_TESTS,
    ),
    planted(
        "client-gives-up-in-an-outage",
        "the first contact decides whether an address may be wrong",
        f"{CLIENT}.types",
        "        return math.inf if was_reached else FIRST_CONTACT_MS\n",
        "        return FIRST_CONTACT_MS\n",
        "unit/client/test_client_cluster",
    ),
    planted(
        "transaction-goes-on-behind-a-gap",
        "a producer that asked for the next epoch after a failure would commit a part of its rows",
        f"{CLIENT}.transactions",
        "        if self._taken is not None:\n            raise",
        "        if self._taken is None and self._timeout_ms < 0:\n            raise",
        TRANSACTIONS_TESTS,
    ),
    planted(
        "transaction-list-of-a-node-that-was-replaced",
        "who does not coordinate any more says that nothing is open, and that by no error",
        f"{CLIENT}.transactions",
        "        self._address = None\n        listing",
        "        listing",
        TRANSACTIONS_TESTS,
    ),
)
