"""Planted bugs in what a query believes: of a node that lags, of a topic that was created again, of a log that ends too early.
And in which transactions are those of an app."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

PLANNING = "pyspark_raftlake.planning"
READER = "pyspark_raftlake.reader"
LOG_VIEW = "pyspark_raftlake.log_view"
TOPIC_IDS = "pyspark_raftlake.topic_ids"
SOURCE = "pyspark_raftlake.source"
SINK_KEYS = "raftlake.client.sink_keys"
LEDGER = "pyspark_raftlake.ledger"
SINK_FACTS = "raftlake.cli.sink_facts"

RECREATED = ("connector/test_connector_recreated.py",)
IDS = ("connector/test_connector_topic_ids.py",)
LOST = ("connector/test_connector_data_loss.py",)
READ = ("connector/test_connector_reader.py",)
SWEPT = ("connector/test_connector_ledger.py",)
SHOWN = ("unit/cli/test_cli_sink_facts.py",)


def mutant(name: str, source: str, places: tuple[str, ...], *edits: Edit) -> Mutant:
    """A bug that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=edits, by_tests=True, places=places)


PLANNED = (
    mutant(
        "batch-that-waits-forgets-a-log-that-begins-anew",
        "the query goes on amid the new log, and its beginning is never read",
        RECREATED,
        Edit(
            PLANNING,
            "        if any(end < begin.get(partition, end) for",
            "        if False and any(end < begin.get(partition, end) for",
        ),
    ),
    mutant(
        "batch-without-news-is-not-waited-for",
        "minOffsetsPerTrigger has no effect where one partition has nothing new",
        RECREATED,
        Edit(PLANNING, "any(end < begin.get(partition, end) for", "any(end <= begin.get(partition, end) for"),
    ),
    mutant(
        "partition-that-one-node-does-not-know-is-gone",
        "it comes back at the next look, and is read from its beginning again",
        LOST,
        Edit(PLANNING, "for partition in self._view.present(absent)}", "for partition in ()}"),
    ),
    mutant(
        "partition-that-is-gone-is-held-for-present",
        "nobody hears of the data that is lost",
        LOST,
        Edit(LOG_VIEW, "for number in self._client.read_offset(topic, numbers))", "for number in numbers)"),
    ),
    mutant(
        "id-of-a-deleted-topic-is-believed-again",
        "a node that lags names it, and the new topic is read twice",
        RECREATED,
        Edit(TOPIC_IDS, "{**told, **self._known, **_ids_now(self._client.kv, news)}", "{**self._known, **told}"),
    ),
    mutant(
        "topic-that-a-lagging-node-does-not-list-is-not-asked-for",
        "a batch that Spark replays loses its rows",
        RECREATED,
        Edit(PLANNING, "        self._view.look_for(set(topics_of(end)) - self._topic_ids.keys())\n", ""),
    ),
    mutant(
        "available-now-is-what-the-deleted-topic-held",
        "a batch is to end behind the end of the new topic, and never does",
        RECREATED,
        Edit(PLANNING, "[partition for partition in assigned if partition.topic in recreated]", "[]"),
    ),
    mutant(
        "available-now-ends-where-the-query-stands",
        "a log that begins anew while the query is down is not noticed",
        RECREATED,
        Edit(
            PLANNING,
            "{partition: end for partition, end in ends.items() if end >= 0}",
            "{partition: max(end, start.get(partition, 0)) for partition, end in ends.items() if end >= 0}",
        ),
    ),
)

#: Topics that were created again, and nodes that lag behind that.
NAMED = (
    mutant(
        "topic-that-is-being-deleted-takes-an-older-id",
        "the topic that is made next under the name is not told from it",
        IDS,
        Edit(TOPIC_IDS, "{**told, **self._known, **_ids", "{**self._known, **told, **_ids"),
    ),
    mutant(
        "ids-are-asked-for-with-every-look",
        "each batch pays for a question whose answer is known",
        (*IDS, *RECREATED),
        Edit(TOPIC_IDS, " if self._known.get(topic) != topic_id]", "]"),
    ),
    mutant(
        "ids-of-the-first-page-alone",
        "a query of many topics believes a node that lags",
        IDS,
        Edit(TOPIC_IDS, "        if not page.more:\n", "        if page.more or not page.more:\n"),
    ),
    mutant(
        "seventeenth-topic-is-asked-for-alone",
        "a pattern over hundreds of topics asks hundreds of questions",
        IDS,
        Edit(TOPIC_IDS, "len(topics) > SINGLE_MAX", "len(topics) > SINGLE_MAX + 1"),
    ),
    mutant(
        "pattern-asks-for-the-ids-of-all-topics",
        "a query of one topic pays for those that others make and delete",
        RECREATED,
        Edit(LOG_VIEW, "self._hear_ids(matching)", "self._hear_ids(self._topics)"),
    ),
    mutant(
        "batch-that-goes-on-believes-a-node-that-lags",
        "a batch query with failOnDataLoss=false has no rows of a topic that was created again",
        RECREATED,
        Edit(SOURCE, "checks_ids=not self._options.fail_on_data_loss", "checks_ids=False"),
    ),
    mutant(
        "batch-has-the-start-of-the-topic-before",
        "the first rows of a topic that was created again amid the plan are missing silently",
        RECREATED,
        Edit(PLANNING, "options, topic_ids, tables, wanted)", "options, view.topic_ids(), tables, wanted)"),
    ),
    mutant(
        "first-batch-from-latest-passes-over-a-new-topic",
        "rows of a topic that was created again amid the start of the query are skipped",
        RECREATED,
        Edit(PLANNING, "self._late_bound & ends.keys() - self._restarts.keys()", "self._late_bound & ends.keys()"),
    ),
    mutant(
        "available-now-ends-at-a-node-that-lags",
        "Spark takes a batch without news for the end of the query, and rows are left unread",
        LOST,
        Edit(PLANNING, "max(start[partition], available.get(partition, 0))", "start[partition]"),
    ),
)

READING = (
    mutant(
        "range-of-a-topic-that-was-gone-is-read-by-its-name",
        "rows of a topic that was made since come in its place",
        RECREATED,
        Edit(READER, "        if self._task.topic_id is None:\n", "        if False:\n"),
    ),
    mutant(
        "node-that-does-not-answer-is-asked-for-ever",
        "the leader answers in its place with damage, and the sound node is never asked",
        READ,
        Edit(READER, "self._left |= {node_id, asked}", "self._left |= {node_id}"),
    ),
    mutant(
        "log-that-ends-before-the-range-is-waited-for",
        "a batch of a topic that was created again is never finished",
        READ,
        Edit(READER, "                if not self._reaches_beyond(position):\n", "                if False:\n"),
    ),
    mutant(
        "record-at-the-proven-end-is-waited-for",
        "the end is the offset behind the last record",
        READ,
        Edit(READER, "return ends[self._range.partition] > position", "return ends[self._range.partition] >= position"),
    ),
    mutant(
        "last-record-of-a-slow-node-is-lost",
        "a log that reaches one offset beyond has that record",
        READ,
        Edit(READER, "return ends[self._range.partition] > position", "return ends[self._range.partition] > position + 1"),
    ),
    mutant(
        "end-that-nobody-can-prove-is-a-loss",
        "rows are left out during an election",
        READ,
        Edit(
            READER,
            "            if is_outage(refused):\n                return True\n",
            "            if is_outage(refused):\n                return False\n",
        ),
    ),
)

NAMES = (
    mutant(
        "sweep-of-an-app-ends-the-transactions-of-another",
        "the transactions of `etl.daily` begin with the name of `etl`",
        SWEPT,
        Edit(LEDGER, " if keys.is_task_of(prefix, each.transactional_id)]", "]"),
    ),
    mutant(
        "app-with-a-number-in-its-name-is-another-ones",
        "`etl.1` ends with four numbers, and `etl` with three",
        SWEPT,
        Edit(SINK_KEYS, "{1,2}", "{1,3}"),
    ),
    mutant(
        "sink-shows-the-transactions-of-another",
        "`raftlake sinks` tells of what the app did not open",
        SHOWN,
        Edit(SINK_FACTS, " if keys.is_task_of(prefix, each.transactional_id))", ")"),
    ),
)

REVIEW_CONNECTOR = (*PLANNED, *NAMED, *READING, *NAMES)
