"""Planted bugs in what a query believes: of a node that lags, of a topic that was created again, of a log that ends too early.
In which transactions are those of an app, and in batches that come again."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

PLANNING = "pyspark_raftlake.planning"
READER = "pyspark_raftlake.reader"
LOG_VIEW = "pyspark_raftlake.log_view"
TOPIC_IDS = "pyspark_raftlake.topic_ids"
SOURCE = "pyspark_raftlake.source"
TABLES = "pyspark_raftlake.tables"
ROUTING = "raftlake.client.routing"
READER_OF_CLIENT = "raftlake.client.reader"
AIO = "raftlake.client.aio"
SINK_KEYS = "raftlake.client.sink_keys"
LEDGER = "pyspark_raftlake.ledger"
SINK_FACTS = "raftlake.cli.sink_facts"

RECREATED = ("connector/test_connector_recreated.py",)
LAGGING = ("connector/test_connector_lagging_offsets.py",)
IDS = ("connector/test_connector_topic_ids.py",)
TABLED = ("connector/test_connector_tables.py",)
OFFSETS = ("unit/client/test_client_reader_ids.py",)
LOST = ("connector/test_connector_data_loss.py",)
READ = ("connector/test_connector_reader.py",)
SWEPT = ("connector/test_connector_ledger.py",)
SHOWN = ("unit/cli/test_cli_sink_facts.py",)
SINK = ("connector/test_connector_sink.py",)
FOREACH = ("connector/test_connector_foreach.py",)
ACTIVE = ("connector/test_connector_active_query.py",)
CONFIGURED = ("connector/test_connector_jvm.py",)


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
        Edit(LOG_VIEW, "                if topic not in self._untold:\n", "                if False:\n"),
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
        "topic-that-began-anew-where-the-query-stands-marks-no-place",
        "a first batch that is replayed passes its records over",
        RECREATED,
        Edit(
            PLANNING,
            "for partition, begin in moved.items() if partition.topic not in untold}\n        return held | self._restarts\n",
            "for partition, begin in begins.items() if partition.topic not in untold}\n"
            "        return held | {each: begin for each, begin in moved.items() if each.topic not in untold}\n",
        ),
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

#: Offsets of a topic that was deleted, whose leader has not heard of it.
ASKED = (
    mutant(
        "offsets-are-asked-for-by-name",
        "a query begins at the offset of a deleted topic, and leaves out the rows below",
        LAGGING,
        Edit(LOG_VIEW, "return ask(topic_id=self._ids.get(topic))", "return ask(topic_id=None)"),
    ),
    mutant(
        "partitions-are-those-of-the-topic-that-is-named",
        "partitions of the new topic are not read at a node that lags",
        LAGGING,
        Edit(LOG_VIEW, "if (topic_id := self._ids.get(topic)) != told:", "if (topic_id := self._ids.get(topic)) is None:"),
    ),
    mutant(
        "query-starts-without-a-topic-that-nobody-tells-of",
        "rows of a topic of a pattern that is read from its end come from its beginning",
        LAGGING,
        Edit(LOG_VIEW, "            self._untold[topic] = rejected\n", "            pass\n"),
    ),
    mutant(
        "topic-of-which-nothing-is-told-is-gone",
        "a query fails where all nodes that answer lag",
        LAGGING,
        Edit(
            LOG_VIEW,
            "                if rejected.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:\n                    continue\n",
            "                if rejected.code is not None:\n                    continue\n",
        ),
    ),
    mutant(
        "new-topic-is-known-before-its-beginning",
        "the query goes on amid the new topic, as it grows",
        LAGGING,
        Edit(PLANNING, "{topic: recreated[topic] for topic in untold & recreated.keys()}", "{}"),
    ),
    mutant(
        "added-partition-without-a-start-is-passed-over",
        "the rows of its first batch are left out",
        LAGGING,
        Edit(
            PLANNING,
            "        self._view.require_told(topics_of(partition for partition in added if partition not in earliest))\n",
            "",
        ),
    ),
    mutant(
        "end-that-was-not-proven-is-a-loss",
        "a query ends with a KeyError where its topic is deleted amid a plan",
        LAGGING,
        Edit(PLANNING, "proven.get(partition, start[partition]) < start", "proven.get(partition, ends[partition]) < start"),
    ),
    mutant(
        "available-now-forgets-the-topic-of-its-target",
        "a batch is to end behind the end of the new topic, and never does",
        LAGGING,
        Edit(PLANNING, "        self._note_ids()\n        self._target", "        self._target"),
    ),
    mutant(
        "start-hides-that-the-target-is-of-another-topic",
        "a batch is to end behind the end of the new topic, and never does",
        LAGGING,
        Edit(PLANNING, "{**self._view.topic_ids(), **self._topic_ids}", "{**self._topic_ids, **self._view.topic_ids()}"),
    ),
    mutant(
        "available-now-does-not-read-a-topic-at-whose-beginning-it-stands",
        "Spark takes a batch without news for the end of the query, and rows are left unread",
        LAGGING,
        Edit(PLANNING, "begins.items() if begin != start[partition]}", "begins.items()}"),
    ),
    mutant(
        "table-of-the-old-topic-is-taken-for-none",
        "a query of tables alone fails at a node that lags",
        TABLED,
        Edit(
            TABLES,
            "            if self._options.mode is Tier.REMOTE:\n                raise",
            "            if False:\n                raise",
        ),
    ),
    mutant(
        "copy-that-nobody-tells-of-is-none",
        "a query of tables alone reports the loss of all rows, while the store is away",
        TABLED,
        Edit(TABLES, " and self._options.mode is not Tier.REMOTE\n", "\n"),
    ),
    mutant(
        "offsets-of-any-topic-are-told-for-an-id",
        "a client believes the cache, which names a deleted topic",
        OFFSETS,
        Edit(
            ROUTING,
            "cluster.topic_with(topic_name, left, deadline, topic_id=topic_id)",
            "cluster.topic_with(topic_name, left, deadline)",
        ),
    ),
    mutant(
        "stable-offset-is-that-of-any-topic",
        "a linearizable query ends at an offset of another topic",
        OFFSETS,
        Edit(READER_OF_CLIENT, "wait_ms=0, topic_id=topic_id, timeout_ms", "wait_ms=0, timeout_ms"),
    ),
    mutant(
        "stream-begins-with-the-offsets-of-another-topic",
        "records of a topic that was created again are left out silently",
        OFFSETS,
        Edit(AIO, "isolation=isolation, topic_id=described.topic_id\n            )", "isolation=isolation\n            )"),
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

AGAIN = (
    mutant(
        "rows-of-a-batch-that-is-visible-are-not-read-in-python",
        "a query with state that was killed behind its sink's commit never starts again",
        SINK,
        Edit("pyspark_raftlake.sink_task", "        if place.query:\n", "        if False:\n"),
    ),
    mutant(
        "rows-of-a-write-that-happened-are-read-for-nobody-in-python",
        "a batch write of an app that comes again takes as long as the first",
        SINK,
        Edit("pyspark_raftlake.sink_task", "        if place.query:\n", "        if True:\n"),
    ),
    mutant(
        "state-that-a-function-leaves-is-not-read",
        "a query whose function leaves a batch out never starts again",
        FOREACH,
        Edit("pyspark_raftlake.foreach", "        active.read_unread(rows)\n", ""),
    ),
    mutant(
        "job-group-of-a-user-is-the-run-of-foreach-batch",
        "two drivers whose functions choose one group are not told apart",
        FOREACH,
        Edit("pyspark_raftlake.foreach", "active.run() or group", "group"),
    ),
    mutant(
        "tasks-of-foreach-batch-take-the-job-group-for-their-run",
        "a query whose function chooses a group is fenced by its own tasks, at each restart",
        SINK,
        Edit("pyspark_raftlake.sink_task", "_told(FOREACH_RUN) or _told(RUN_ID) if", "_told(RUN_ID) if"),
    ),
    mutant(
        "transactions-of-killed-tasks-of-a-stream-stay-open",
        "readers of what is committed wait for a quarter of an hour behind a query that failed",
        SINK,
        Edit(
            "pyspark_raftlake.sink",
            "    if standings:\n        standing = _newest",
            "    if False:\n        standing = _newest",
        ),
    ),
    mutant(
        "tasks-that-end-behind-an-abort-are-not-looked-for",
        "the same, where a task is killed a moment later",
        SINK,
        Edit(
            "pyspark_raftlake.sink",
            "        time.sleep(STRAGGLERS_S)\n        ledger.sweep(standing)\n",
            "        time.sleep(STRAGGLERS_S)\n",
        ),
    ),
    mutant(
        "run-of-a-function-stays-behind-it",
        "a write behind the query takes itself for one of its run",
        FOREACH,
        Edit("pyspark_raftlake.foreach", "            context.setLocalProperty(FOREACH_RUN, None)", "            pass"),
    ),
    mutant(
        "operator-with-one-partition-is-read-twice",
        "each batch of an aggregation without keys is computed twice",
        ACTIVE,
        Edit("pyspark_raftlake.active_query", "return 1 if output == 1 else int(", "return int("),
    ),
    mutant(
        "provider-without-ids-gets-the-format-with-ids",
        "every query with state of such a session ends at its start",
        CONFIGURED,
        Edit("pyspark_raftlake.jvm", "return chosen if has_ids else chosen | {_FORMAT}", "return chosen"),
    ),
    mutant(
        "partition-that-was-read-twice-counts-for-two",
        "a function that looks twice whether there are rows ends its query",
        ACTIVE,
        Edit(
            "pyspark_raftlake.active_query",
            "len(_committed(node)) < _partitions",
            "node.checkpointInfoAccumulator().value().size() < _partitions",
        ),
    ),
    mutant(
        "first-operator-alone-is-asked-for-its-state",
        "the same for queries with two operators with state",
        ACTIVE,
        Edit("pyspark_raftlake.active_query", "for index in range(children.size())", "for index in range(0)"),
    ),
    mutant(
        "state-without-ids-is-read-twice",
        "each batch that a function leaves out is computed for nothing",
        ACTIVE,
        Edit("pyspark_raftlake.active_query", "if has_ids and self", "if self"),
    ),
    mutant(
        "partition-that-comes-amid-a-plan-has-no-start",
        "a batch query over a topic that grows ends with a KeyError",
        ("connector/test_connector_planning.py",),
        Edit(PLANNING, "start.get(partition, until)", "start[partition]"),
    ),
    mutant(
        "partition-that-comes-amid-a-plan-is-read-in-part",
        "a batch query reads what came behind its start",
        ("connector/test_connector_planning.py",),
        Edit(PLANNING, "start.get(partition, until)", "start.get(partition, 0)"),
    ),
    mutant(
        "configure-overrides-what-the-user-chose",
        "transformWithState cannot be used in a session of configure",
        CONFIGURED,
        Edit("pyspark_raftlake.session", " if name not in left}", "}"),
    ),
    mutant(
        "configure-keeps-the-quorum-of-before",
        "a session asks the nodes of another quorum",
        CONFIGURED,
        Edit("pyspark_raftlake.session", "if name not in left}", "if name not in before}"),
    ),
)

REVIEW_CONNECTOR = (*AGAIN, *PLANNED, *NAMED, *ASKED, *READING, *NAMES)
