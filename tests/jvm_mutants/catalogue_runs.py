"""Bugs in what the jar knows of runs that come and go, and of quorums that move: job groups of users, batches that come again,
commands beside a run, processes that live long."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

QUERY = ("query.QueryRunTest",)
RUNS = ("checkpoint.OwnershipsOfProcessTest",)
CHANGED = ("checkpoint.ChangedCheckpointTest",)
SYSTEM = ("RaftlakeFileSystemTest",)
BLOBS = ("fs.BlobTest",)
WRITERS = ("connector.write.SinkWriterFactoryTest",)
FOUND = ("connector.write.FoundKeySpaceTest",)
CLUSTER = ("log.ClusterTest",)
LOGS = ("log.KafkaLogsTest",)

RUNS_MUTANTS = (
    # --- the run of a thread ---
    JvmMutant(
        "job-group-of-a-user-is-taken-for-the-run",
        "a query that reads its own state takes its checkpoint from itself",
        "query/QueryRun.java",
        "active != null && (isItsThread || !isId(group))",
        "active != null && group == null",
        QUERY,
    ),
    JvmMutant(
        "job-group-that-looks-like-an-id-is-taken-for-the-run",
        "the same, where the user has made up a UUID",
        "query/QueryRun.java",
        "(isItsThread || !isId(group))",
        "!isId(group)",
        QUERY,
    ),
    JvmMutant(
        "thread-of-the-run-before-is-taken-for-one-of-the-new-run",
        "what is left of a run that was replaced writes on",
        "query/QueryRun.java",
        "(isItsThread || !isId(group))",
        "true",
        QUERY,
    ),
    JvmMutant(
        "thread-of-a-query-is-taken-for-that-of-every-query",
        "a thread that is left of an older run has the id of the new one",
        "query/QueryRun.java",
        "one.queryExecutionThread() == Thread.currentThread()",
        "one.queryExecutionThread() != Thread.currentThread()",
        QUERY,
    ),
    # --- what is kept of runs ---
    JvmMutant(
        "run-of-a-driver-is-forgotten-with-the-next-one",
        "a thread that is left of it takes the checkpoint from the new run",
        "checkpoint/OwnershipsOfProcess.java",
        "runs.size() > RUNS_KEPT",
        "runs.size() > 1",
        RUNS,
    ),
    JvmMutant(
        "last-run-kept-is-one-too-few",
        "the same, for the last but seven",
        "checkpoint/OwnershipsOfProcess.java",
        "runs.size() > RUNS_KEPT",
        "runs.size() >= RUNS_KEPT",
        RUNS,
    ),
    JvmMutant(
        "runs-of-a-driver-are-never-forgotten",
        "a driver that starts a query each minute grows",
        "checkpoint/OwnershipsOfProcess.java",
        "            runs.remove(runs.keySet().iterator().next());\n",
        "",
        RUNS,
    ),
    JvmMutant(
        "runs-of-all-checkpoints-push-one-another-out",
        "a driver with many queries forgets which run it is",
        "checkpoint/OwnershipsOfProcess.java",
        "drivers.computeIfAbsent(checkpoint, absent",
        'drivers.computeIfAbsent("", absent',
        RUNS,
    ),
    JvmMutant(
        "entries-of-tasks-that-are-over-stay",
        "an executor grows with each read of state",
        "checkpoint/OwnershipsOfProcess.java",
        "        tasks.values().removeIf(each -> each.refersTo(null));\n",
        "",
        RUNS,
    ),
    JvmMutant(
        "tasks-of-a-run-share-no-look",
        "each store of a task asks for the owner by itself",
        "checkpoint/OwnershipsOfProcess.java",
        "        if (known != null) {\n            return known;\n        }\n        tasks",
        "        tasks",
        RUNS,
    ),
    JvmMutant(
        "one-ownership-for-two-quorums",
        "a checkpoint of one quorum is taken for that of another",
        "checkpoint/OwnershipsOfProcess.java",
        'String checkpoint = quorum + " " + fresh.key();',
        "String checkpoint = fresh.key();",
        RUNS,
    ),
    # --- a command beside a run ---
    JvmMutant(
        "run-that-meets-a-mark-is-not-fenced",
        "a query goes on behind the batches that `raftlake checkpoints rewind` takes away",
        "checkpoint/CheckpointFiles.java",
        "            requireNotChanged(root.get());\n",
        "",
        CHANGED,
    ),
    JvmMutant(
        "every-other-query-is-taken-for-a-mark",
        "a query cannot write beside the checkpoint of another one",
        "checkpoint/CheckpointRoot.java",
        "return query.startsWith(MARKED);",
        "return true;",
        CHANGED,
    ),
    # --- a second quorum ---
    JvmMutant(
        "second-quorum-of-a-process-is-not-noticed",
        "checkpoints stay in the first one, and state goes to the second",
        "RaftlakeFileSystem.java",
        "if (Collections.disjoint(named, found.servers)) {",
        "if (false) {",
        SYSTEM,
    ),
    JvmMutant(
        "quorum-with-one-other-node-is-taken-for-another",
        "a session that is made while a node is down cannot use its checkpoints",
        "RaftlakeFileSystem.java",
        "if (Collections.disjoint(named, found.servers)) {",
        "if (!named.equals(found.servers)) {",
        SYSTEM,
    ),
    # --- orphans ---
    JvmMutant(
        "orphans-are-looked-for-once-in-the-life-of-a-process",
        "what crashes leave takes room for ever",
        "fs/Blobs.java",
        "        collectIfDue(pipeline);\n        String key",
        "        String key",
        BLOBS,
    ),
    JvmMutant(
        "orphans-are-looked-for-a-moment-later-each-hour",
        "a look waits for the file behind the one that is due",
        "fs/BlobCollector.java",
        "nowMs - last >= PAUSE_MS",
        "nowMs - last > PAUSE_MS",
        BLOBS,
    ),
    JvmMutant(
        "orphans-are-looked-for-with-each-file",
        "each large file lists all that was announced",
        "fs/BlobCollector.java",
        "last == null || nowMs - last >= PAUSE_MS ? now : last",
        "now",
        BLOBS,
    ),
    JvmMutant(
        "writer-removes-the-orphans",
        "a large file waits for the deletion of what other processes left",
        "fs/BlobCollector.java",
        "        thread.start();",
        "        thread.run();",
        BLOBS,
    ),
    JvmMutant(
        "look-for-orphans-keeps-the-process",
        "a driver does not end while a slow store removes orphans",
        "fs/BlobCollector.java",
        "        thread.setDaemon(true);\n",
        "",
        BLOBS,
    ),
    # --- a batch that comes again ---
    JvmMutant(
        "rows-of-a-batch-that-is-visible-are-not-read",
        "a query with state that was killed behind its sink's commit never starts again",
        "connector/write/SkippingWriter.java",
        "while (isOfStream && rows.hasNext())",
        "while (false && rows.hasNext())",
        WRITERS,
    ),
    JvmMutant(
        "one-row-of-a-batch-that-is-visible-is-read",
        "the same: state commits at the end of the rows",
        "connector/write/SkippingWriter.java",
        "while (isOfStream && rows.hasNext())",
        "if (isOfStream && rows.hasNext())",
        WRITERS,
    ),
    JvmMutant(
        "rows-of-a-write-that-happened-are-read-for-nobody",
        "a batch write of an app that comes again takes as long as the first",
        "connector/write/SkippingWriter.java",
        "while (isOfStream && rows.hasNext())",
        "while (rows.hasNext())",
        WRITERS,
    ),
    # --- nodes that move ---
    JvmMutant(
        "silent-listeners-are-kept",
        "the sink of a driver never finds nodes that have moved",
        "connector/write/FoundKeySpace.java",
        "            forget(space);\n",
        "",
        FOUND,
    ),
    JvmMutant(
        "listeners-without-an-outcome-are-kept",
        "the same, where the nodes went amid a commit",
        "connector/write/FoundKeySpace.java",
        "} catch (QuorumUnavailableException | UnknownOutcomeException silent) {",
        "} catch (QuorumUnavailableException silent) {",
        FOUND,
    ),
    JvmMutant(
        "given-addresses-are-forgotten-once-nodes-are-known",
        "a client never finds a quorum whose nodes have all moved",
        "log/Cluster.java",
        "        known.addAll(bootstrap);\n        List<InetSocketAddress> all",
        "        if (known.isEmpty()) {\n            known.addAll(bootstrap);\n        }\n        List<InetSocketAddress> all",
        CLUSTER,
    ),
    JvmMutant(
        "given-address-that-leads-nowhere-counts-as-a-node",
        "the word that a topic does not exist takes seconds",
        "log/Cluster.java",
        "!absent.isEmpty() && absent.containsAll(nodes);",
        "!absent.isEmpty() && absent.containsAll(all());",
        CLUSTER,
    ),
    JvmMutant(
        "name-is-looked-for-once-for-its-deletion",
        "DROP TABLE succeeds, and the topic stands",
        "log/KafkaLogs.java",
        "if (id != null || mayBeDone) {",
        "if (true) {",
        LOGS,
    ),
    JvmMutant(
        "topic-that-is-made-behind-a-deletion-goes-too",
        "DROP TABLE deletes the records of a topic that somebody made meanwhile",
        "log/KafkaLogs.java",
        "if (id != null || mayBeDone) {",
        "if (id != null || wasKnown) {",
        LOGS,
    ),
    JvmMutant(
        "deletion-without-an-answer-is-taken-for-none",
        "the same, where the answer to the deletion is lost",
        "log/KafkaLogs.java",
        "mayBeDone |= wasKnown || !deletions.areSound();",
        "mayBeDone |= wasKnown;",
        LOGS,
    ),
    JvmMutant(
        "confirmed-deletion-is-forgotten-with-the-next-one",
        "the same, where a follower lists the topic for a moment",
        "log/KafkaLogs.java",
        "mayBeDone |= wasKnown ||",
        "mayBeDone = wasKnown ||",
        LOGS,
    ),
    JvmMutant(
        "node-that-knows-no-later-topic-ends-a-deletion",
        "the same, where two nodes lag",
        "log/KafkaLogs.java",
        "mayStand = named.isPresent() || isFirst;",
        "mayStand = isFirst;",
        LOGS,
    ),
)
