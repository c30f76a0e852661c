"""Bugs for what the owner of a checkpoint knows without asking the quorum."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

KNOWN = ("checkpoint.NewestBatchTest", "checkpoint.KnownBatchesTest", "checkpoint.OwnershipTest")

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
        "return isLog && run.isOfDriver() ?",
        "return isLog ?",
        KNOWN,
    ),
)
