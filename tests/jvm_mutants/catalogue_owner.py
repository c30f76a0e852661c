"""Bugs for what the owner of a checkpoint knows without asking the quorum."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

KNOWN = ("checkpoint.NewestBatchTest", "checkpoint.KnownBatchesTest", "checkpoint.OwnershipTest")
WRITTEN = ("checkpoint.WrittenFilesTest", "checkpoint.KnownBatchesTest")

OWNER_MUTANTS = (
    JvmMutant(
        "newest-batch-is-absent",
        "a driver writes a batch again that is there, and its query ends by an error that tells of a second one",
        "checkpoint/NewestBatch.java",
        "isListed && number(name) > newest",
        "isListed && number(name) >= newest",
        KNOWN,
    ),
    JvmMutant(
        "list-hides-a-file-that-came-meanwhile",
        "a batch that was created during the list is said to be absent",
        "checkpoint/NewestBatch.java",
        "        names.forEach(this::created);\n",
        "        newest = NONE;\n        names.forEach(this::created);\n",
        KNOWN,
    ),
    JvmMutant(
        "nothing-is-known-to-be-there",
        "before its first list a driver takes every batch of the run before for absent",
        "checkpoint/NewestBatch.java",
        "isListed && number(name) > newest",
        "number(name) > newest",
        KNOWN,
    ),
    JvmMutant(
        "own-batch-is-forgotten",
        "a driver says that the batch it just wrote is absent",
        "checkpoint/CheckpointFiles.java",
        "newest.created(file.getName())",
        'newest.created("")',
        KNOWN,
    ),
    JvmMutant(
        "directories-of-state-are-logs",
        "a directory of state that tasks made is said to be absent",
        "checkpoint/Ownership.java",
        "boolean isLog = root.path().equals(directory.getParent()) && LOGS.contains(directory.getName());",
        "boolean isLog = LOGS.contains(directory.getName());",
        KNOWN,
    ),
    JvmMutant(
        "tasks-know-too",
        "a task takes a file that the driver wrote for absent",
        "checkpoint/Ownership.java",
        "return (isLog || isLogOfSource(directory)) && run.isOfDriver()",
        "return isLog || isLogOfSource(directory)",
        KNOWN,
    ),
    JvmMutant(
        "refused-file-is-kept",
        "a driver reads back a batch that the quorum refused",
        "checkpoint/WrittenFiles.java",
        "            copy = null;\n            out.close();\n",
        "            put(file, whole.toByteArray());\n            out.close();\n",
        WRITTEN,
    ),
    JvmMutant(
        "deleted-file-is-kept",
        "a driver finds a batch of a source that it deleted",
        "checkpoint/CheckpointFiles.java",
        "            written.forget(whole(given));\n",
        "",
        WRITTEN,
    ),
    JvmMutant(
        "files-of-offsets-are-kept",
        "a batch that a user took away is still there for the driver",
        "checkpoint/CheckpointFiles.java",
        "return fenced != null && fenced.ownership().isLogOfSource(file.getParent());",
        "return fenced != null;",
        WRITTEN,
    ),
    JvmMutant(
        "cancelled-file-is-kept",
        "a driver reads back a batch that it cancelled",
        "checkpoint/WrittenFiles.java",
        "            copy = null;\n            return ((Abortable) out).abort();",
        "            return ((Abortable) out).abort();",
        WRITTEN,
    ),
)
