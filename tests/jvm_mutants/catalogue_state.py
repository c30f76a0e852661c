"""Bugs for the changelogs of state: in their layout, pieces, attempts, places, trimming, topics, and in what is collected."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

LOG = ("state.ChangelogTest",)
TOPICS = ("state.StateTopicsTest",)
COLLECTOR = ("state.StateCollectorTest",)
PROVIDER = ("state.QuorumStateTest",)
FINDING = ("state.StoreLogTest",)

STATE_MUTANTS = (
    JvmMutant(
        "place-is-one-too-early",
        "the trailer of the batch before is read as a change",
        "state/Trailer.java",
        "return new Piece(offset - changes, offset);",
        "return new Piece(offset - changes - 1, offset);",
        LOG,
    ),
    JvmMutant(
        "piece-counts-before-the-last",
        "half of a version is loaded after a task died",
        "state/Changelog.java",
        "        if (!trailer.isLast() || trailer.id() == null) {",
        "        if (trailer.id() == null) {",
        LOG,
    ),
    JvmMutant(
        "pieces-before-the-last-are-lost",
        "of a large version only the end is loaded elsewhere",
        "state/Trailer.java",
        "List<Piece> all = new ArrayList<>(earlier);",
        "List<Piece> all = new ArrayList<>();",
        LOG,
    ),
    JvmMutant(
        "full-piece-takes-one-more",
        "a batch that is larger than a topic takes",
        "state/Changelog.java",
        "if (!records.isEmpty() && bytes + more > pieceBytes) {",
        "if (!records.isEmpty() && bytes > pieceBytes) {",
        LOG,
    ),
    JvmMutant(
        "second-piece-keeps-the-bytes-of-the-first",
        "behind the first piece each change is a piece",
        "state/Changelog.java",
        "            records = new ArrayList<>();\n            bytes = 0;\n",
        "            records = new ArrayList<>();\n",
        LOG,
    ),
    JvmMutant(
        "any-attempt-of-the-version",
        "what a zombie wrote is loaded",
        "state/Changelog.java",
        "            return places.containsKey(name);",
        "            places.keySet().stream().filter(one -> one.version() == name.version()).findAny()\n"
        "                    .ifPresent(one -> places.put(name, places.get(one)));\n"
        "            return places.containsKey(name);",
        LOG,
    ),
    JvmMutant(
        "arrays-are-spark-s",
        "changes are sent as Spark's next row",
        "state/Change.java",
        "return LogRecord.of(key.clone(), value.clone());",
        "return LogRecord.of(key, value);",
        LOG,
    ),
    JvmMutant(
        "trim-takes-the-first-that-is-kept",
        "the oldest retained snapshot cannot be replayed from",
        "state/Changelog.java",
        "if (batch == null || batch.version() >= keep) {",
        "if (batch == null || batch.version() > keep) {",
        LOG,
    ),
    JvmMutant(
        "trim-jumps-over-what-is-kept",
        "a version that lies before older ones goes with them",
        "state/Changelog.java",
        "if (batch == null || batch.version() >= keep) {\n                break;",
        "if (batch == null || batch.version() >= keep && bound + 6 >= end) {\n                break;",
        LOG,
    ),
    JvmMutant(
        "second-store-in-the-same-topic",
        "the stores of a join overwrite each other",
        "state/StateTopics.java",
        "for (char c : store.storeName().toCharArray()) {",
        "for (char c : store.storeName().substring(0, 0).toCharArray()) {",
        TOPICS,
    ),
    JvmMutant(
        "state-of-the-query-before",
        "a checkpoint that was made anew reads the state of the deleted one",
        "state/StateTopics.java",
        "if (before.isPresent() && before.get().query().equals(checkpoint.query())) {",
        "if (before.isPresent()) {",
        TOPICS,
    ),
    JvmMutant(
        "key-is-made-unfenced",
        "an older run makes topics beside those of the newer one",
        "state/StateTopics.java",
        "            checkpoint.fence().addTo(txn);\n",
        "",
        TOPICS,
    ),
    JvmMutant(
        "state-stays-behind",
        "a renamed checkpoint has lost its state",
        "fs/Moves.java",
        "            addState(txn, source, target);\n",
        "",
        COLLECTOR,
    ),
    JvmMutant(
        "garbage-by-a-stale-list",
        "topics of a checkpoint that was renamed meanwhile are deleted",
        "state/StateCollector.java",
        "new Txn().comparePrefix(StateTopics.ROOT, asOf).put(MARK, mark);",
        "new Txn().put(MARK, mark);",
        COLLECTOR,
    ),
    JvmMutant(
        "retained-versions-need-nothing",
        "a query cannot be rewound to a batch that Spark retains",
        "state/LoggedFileManager.java",
        "boolean isEnough = snapshots[0] <= newest - versionsToRetain + 1;",
        "boolean isEnough = snapshots[0] <= newest;",
        PROVIDER,
    ),
    # --- what is read ahead of a load ---
    JvmMutant(
        "read-ahead-begins-with-the-snapshot",
        "what a snapshot has already takes the room of the changes behind it",
        "state/Changelog.java",
        "                .skip(1)\n",
        "",
        LOG,
    ),
    JvmMutant(
        "read-ahead-begins-with-the-last-piece",
        "a large version is fetched twice",
        "state/Changelog.java",
        ".orElse(trailer.piecesAt(offset).get(0).first());",
        ".orElse(trailer.pieceAt(offset).first());",
        LOG,
    ),
    JvmMutant(
        "read-ahead-of-what-is-unfinished",
        "a load behind a dead task waits as if nothing had been read",
        "state/Changelog.java",
        "            return trailer.isLast();",
        "            return true;",
        LOG,
    ),
    JvmMutant(
        "trailer-lets-go-of-the-changes",
        "the changes that were read ahead are fetched again",
        "state/Changelog.java",
        "await(offset, 1).get(0) : held",
        "record(offset) : held",
        LOG,
    ),
    JvmMutant(
        "nothing-is-read-ahead",
        "a load waits for one answer after the other",
        "QuorumStateStoreProvider.java",
        "            log.openAhead();\n",
        "",
        FINDING,
    ),
    JvmMutant(
        "look-ahead-finds-nothing-for-good",
        "a store that was opened too early says that a version was never committed",
        "state/StoreLog.java",
        "                if (found.isPresent()) {\n                    return found;\n                }\n            } catch",
        "                return found;\n            } catch",
        FINDING,
    ),
    JvmMutant(
        "look-ahead-fails-for-good",
        "a load fails by an outage that is over",
        "state/StoreLog.java",
        "            } catch (IOException failed) {\n",
        "            } catch (IOException failed) {\n                if (failed != null) {\n                    throw failed;\n"
        "                }\n",
        FINDING,
    ),
    JvmMutant(
        "half-of-a-store-is-open",
        "a load behind a failed look ends with a NullPointerException",
        "state/StoreLog.java",
        "            files = fileSystem.files();\n",
        "            checkpoint = around;\n            files = fileSystem.files();\n",
        FINDING,
    ),
)
