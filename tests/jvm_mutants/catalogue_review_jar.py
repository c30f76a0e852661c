"""Bugs for what a review of the jar found: rows of merged files, topics of others, lost deletions, threads that end."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

TABLE_READER = ("connector.read.TableReaderTest",)
TABLES = ("connector.read.TablesTest",)
CATALOG = ("connector.RaftlakeCatalogTest",)
LOGS = ("log.KafkaLogsTest",)
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
    # --- files ---
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
