"""Bugs for what reviews of the jar found: rows of merged files, topics of others, nodes that lag, lost answers, threads that
end."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

TABLE_READER = ("connector.read.TableReaderTest",)
TABLES = ("connector.read.TablesTest",)
CATALOG = ("connector.RaftlakeCatalogTest",)
LOGS = ("log.KafkaLogsTest",)
IDS = ("connector.read.TopicIdsTest",)
LAGS = ("connector.read.StreamPlannerLagTest",)
VIEW = ("connector.read.LogViewTest",)
ABORTED = ("connector.write.AbortedWriteTest",)
DELETIONS = ("fs.LostDeletionsTest",)
SENDS = ("connector.write.LiveSendsTest",)
ROWS = ("connector.write.RoutedRowTest",)
STORE = ("state.StoreLogTest",)

REVIEW_JAR_MUTANTS = (
    # --- tables ---
    JvmMutant(
        "row-before-its-turn-is-passed-over",
        "rows of a file that OPTIMIZE has merged are missing, and nothing says so",
        "connector/read/TableReader.java",
        "if (offsets.getLong(row) != position) {",
        "position = Math.max(position, offsets.getLong(row));\n            if (offsets.getLong(row) != position) {",
        TABLE_READER,
    ),
    JvmMutant(
        "merged-file-is-read-once",
        "a file that OPTIMIZE has merged cannot be read",
        "connector/read/TableReader.java",
        "if (position == passStart) {",
        "if (position < file.end()) {",
        TABLE_READER,
    ),
    JvmMutant(
        "file-in-disorder-is-read-for-ever",
        "a task reads a file once for each of its rows",
        "connector/read/TableReader.java",
        "passes == PASSES_MAX) {",
        "passes < 0) {",
        TABLE_READER,
    ),
    JvmMutant(
        "passes-of-all-files-are-counted-together",
        "a task that reads many merged files leaves the table",
        "connector/read/TableReader.java",
        "            index++;\n            passes = 0;\n",
        "            index++;\n",
        TABLE_READER,
    ),
    JvmMutant(
        "store-without-classes-fails-the-query",
        "a query of a topic with a table in S3 fails where hadoop-aws is missing",
        "connector/read/Tables.java",
        "} catch (IOException | RuntimeException | LinkageError error) {\n            giveUp(topic, known, error);",
        "} catch (IOException error) {\n            giveUp(topic, known, error);",
        TABLES,
    ),
    JvmMutant(
        "stopped-query-goes-on-without-the-table",
        "a query that is stopped says that its table cannot be read",
        "connector/read/Tables.java",
        "private void giveUp(String topic, Known known, Throwable error) {\n        requireNoInterrupt(error);\n",
        "private void giveUp(String topic, Known known, Throwable error) {\n",
        TABLES,
    ),
    # --- topics of the catalog ---
    JvmMutant(
        "abort-deletes-by-name",
        "CREATE TABLE AS SELECT that fails deletes another topic of that name",
        "connector/RaftlakeCatalog.java",
        "logs().deleteTopic(created.topic());",
        "logs().deleteTopic(created.topic().name());",
        CATALOG,
    ),
    JvmMutant(
        "abort-deletes-what-it-may-not-have-made",
        "CREATE TABLE AS SELECT that fails deletes a topic that somebody else has made",
        "log/KafkaLogs.java",
        "new Created(topic, topic.id().equals(id))",
        "new Created(topic, true)",
        (*CATALOG, *LOGS),
    ),
    JvmMutant(
        "topic-of-another-is-taken-for-created",
        "two that create a table at once both believe that it is theirs",
        "log/KafkaLogs.java",
        "if (id == null && tries.areSound()) {",
        "if (id != null && tries.areSound()) {",
        (*CATALOG, *LOGS),
    ),
    JvmMutant(
        "catalog-connects-with-each-call",
        "a session with a catalog leaks connections",
        "connector/RaftlakeCatalog.java",
        "return Logs.of(new LogSettings(",
        "return new io.raftlake.spark.log.KafkaLogs(new LogSettings(",
        CATALOG,
    ),
    JvmMutant(
        "topic-that-a-lagging-node-does-not-list-is-not-deleted",
        "CREATE TABLE AS SELECT that fails leaves its topic",
        "log/KafkaLogs.java",
        "boolean mayStand = its != null;",
        "boolean mayStand = its != null && isListed(name, its, tries);",
        LOGS,
    ),
    JvmMutant(
        "deletion-that-a-lagging-node-does-not-know-is-done",
        "CREATE TABLE AS SELECT that fails leaves its topic",
        "log/KafkaLogs.java",
        "isListed(name, its, tries) || isFirst && !wasKnown;",
        "isListed(name, its, tries);",
        LOGS,
    ),
    # --- topics that are created again ---
    JvmMutant(
        "id-of-a-node-that-lags-is-believed",
        "a topic that was created again is read twice, or not at all",
        "connector/read/TopicIds.java",
        "known.putAll(now);",
        "known.putAll(told);",
        (*IDS, *LAGS),
    ),
    JvmMutant(
        "topic-that-is-being-deleted-takes-an-older-id",
        "the topic that is made next under the name is not told from it",
        "connector/read/TopicIds.java",
        "told.forEach(known::putIfAbsent);",
        "known.putAll(told);",
        IDS,
    ),
    JvmMutant(
        "ids-are-asked-for-with-every-look",
        "each batch pays for a question whose answer is known",
        "connector/read/TopicIds.java",
        ".filter(topic -> !told.get(topic).equals(known.get(topic)))",
        "",
        (*IDS, *VIEW),
    ),
    JvmMutant(
        "ids-of-the-first-page-alone",
        "a query of many topics believes a node that lags",
        "connector/read/TopicIds.java",
        "while (page.more()) {",
        "while (page.more() && page.entries().isEmpty()) {",
        IDS,
    ),
    JvmMutant(
        "pattern-asks-for-the-ids-of-all-topics",
        "a query of one topic pays for those that others make and delete",
        "connector/read/LogView.java",
        "hearIds(TopicPartition.topicsOf(partitionsOf(topics.keySet(), selection)));",
        "hearIds(topics.keySet());",
        VIEW,
    ),
    JvmMutant(
        "batch-has-the-start-of-the-topic-before",
        "the first rows of a topic that was created again amid the plan are missing silently",
        "connector/read/Planner.java",
        "return tasks(ranges, topicIds, wanted);",
        "return tasks(ranges, view.topicIds(), wanted);",
        LAGS,
    ),
    JvmMutant(
        "first-batch-from-latest-passes-over-a-new-topic",
        "rows of a topic that was created again amid the start of the query are skipped",
        "connector/read/StreamPlanner.java",
        "without(initial.lateBound(), restarts.keySet())",
        "initial.lateBound()",
        LAGS,
    ),
    JvmMutant(
        "available-now-ends-at-a-node-that-lags",
        "Spark takes a batch without news for the end of the query, and rows are left unread",
        "connector/read/StreamPlanner.java",
        "available.getOrDefault(partition, 0L)",
        "0L",
        LAGS,
    ),
    JvmMutant(
        "real-time-task-has-no-id-of-its-topic",
        "a query behind a restart fails, or leaves rows out, since a node that lags did not list the topic",
        "connector/read/StreamPlanner.java",
        "        lookForIds(latest.keySet());\n",
        "",
        LAGS,
    ),
    JvmMutant(
        "topic-that-begins-anew-is-noted-before-its-batch",
        "a crash amid the batch of real-time mode hides that the checkpoint is of the old topic",
        "connector/read/StreamPlanner.java",
        "!anew.contains(task.range().at().topic())",
        "!anew.contains(task.range().toString())",
        LAGS,
    ),
    # --- files ---
    JvmMutant(
        "refused-file-takes-the-blob-of-a-moved-one",
        "the content of a renamed file is gone, where the answer to its put was lost",
        "fs/FileWriter.java",
        "names.blobs().abandonRefused(intent);",
        "names.blobs().abandon(intent);",
        DELETIONS,
    ),
    JvmMutant(
        "refused-file-leaves-its-blob",
        "each file that another writer was faster with holds room for a day",
        "fs/Blobs.java",
        "            if (claim(space, intent)) {\n",
        "            if (!claim(space, intent)) {\n",
        DELETIONS,
    ),
    JvmMutant(
        "renamed-file-is-taken-for-deleted",
        "the content of a renamed file is gone, where the answer to a deletion was lost",
        "fs/Blobs.java",
        "return garbage.isEmpty() ? other :",
        "return garbage.size() < 9 ? other :",
        DELETIONS,
    ),
    JvmMutant(
        "renamed-target-is-taken-for-replaced",
        "the content of a renamed file is gone, where the answer to a rename was lost",
        "fs/Moves.java",
        "Blobs.witness(garbage, Witness.put(target.key(), from.value()))",
        "Witness.put(target.key(), from.value())",
        DELETIONS,
    ),
    JvmMutant(
        "lost-deletion-leaves-no-intent-of-its-own",
        "a deletion whose answer was lost is done again, to what was written since",
        "fs/Blobs.java",
        "Witness.put(garbage.get(0).key(), garbage.get(0).intent())",
        "space -> false",
        DELETIONS,
    ),
    # --- the sink ---
    JvmMutant(
        "interrupted-abort-is-given-up",
        "what a stopped query has opened holds readers until its time limit",
        "connector/write/AbortedWrite.java",
        "        }).awaitEnd();",
        "        }).cancel();",
        ABORTED,
    ),
    JvmMutant(
        "abort-does-not-look-again",
        "what tasks open that end late holds readers until its time limit",
        "connector/write/AbortedWrite.java",
        "                lookAgain.run();\n",
        "",
        ABORTED,
    ),
    JvmMutant(
        "error-ends-the-sending-thread-silently",
        "a task of the real-time sink waits for ever",
        "connector/write/LiveSends.java",
        "} catch (Throwable error) {",
        "} catch (Exception error) {",
        SENDS,
    ),
    JvmMutant(
        "added-partition-is-refused",
        "rows for a partition that was added are refused for minutes",
        "connector/write/RoutedRow.java",
        "if (given >= 0 && !rows.knows(given)) {",
        "if (given < 0) {",
        ROWS,
    ),
    JvmMutant(
        "old-look-decides-over-an-added-partition",
        "rows for a partition that was added are refused for minutes",
        "log/Transactions.java",
        "cluster.leader(added, tries(",
        "cluster.known(added.topic(), tries(",
        ROWS,
    ),
    # --- state ---
    JvmMutant(
        "commit-waits-with-the-monitor",
        "the first commit of a store waits for ever",
        "state/StoreLog.java",
        "    Changelog ensure() throws",
        "    synchronized Changelog ensure() throws",
        STORE,
    ),
    JvmMutant(
        "failed-open-keeps-what-was-read-ahead",
        "stores that cannot be opened take the room of what is read ahead, for ever",
        "QuorumStateStoreProvider.java",
        "            if (isOurs) {\n                log.loaded();\n            }\n            throw error;",
        "            throw error;",
        STORE,
    ),
)
