"""Bugs for what the owner of a checkpoint knows without asking the quorum."""

from __future__ import annotations

from tests.jvm_mutants.catalogue import JvmMutant

KNOWN = ("checkpoint.NewestBatchTest", "checkpoint.KnownBatchesTest", "checkpoint.OwnershipTest")
LOCAL = ("checkpoint.LocalFilesTest", "checkpoint.CheckpointContractTest")
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
    JvmMutant(
        "old-checksum-beside-a-new-file",
        "a session without the jar refuses a checkpoint that goes on: its checksum is of the file before",
        "checkpoint/LocalFile.java",
        "            Files.deleteIfExists(checksumOf(target));\n",
        "",
        LOCAL,
    ),
    JvmMutant(
        "checksum-of-a-deleted-file-stays",
        "a session without the jar refuses a file that was deleted and written again",
        "checkpoint/LocalFiles.java",
        "            Files.deleteIfExists(LocalFile.checksumOf(doomed));\n",
        "",
        LOCAL,
    ),
    JvmMutant(
        "two-drivers-take-one-name",
        "two drivers on one local checkpoint both write the same batch",
        "checkpoint/LocalFile.java",
        "            Files.createLink(target, draft);",
        "            Files.move(draft, target, StandardCopyOption.ATOMIC_MOVE);",
        LOCAL,
    ),
    JvmMutant(
        "end-of-a-buffer-is-lost",
        "a file of exactly one buffer more loses its end",
        "checkpoint/LocalFile.java",
        "            drain();\n            channel.force(true);",
        "            if (!buffer.hasRemaining()) {\n                drain();\n            }\n            channel.force(true);",
        LOCAL,
    ),
    JvmMutant(
        "set-file-system-is-passed-over",
        "who mounts something else as local files has checkpoints beside it",
        "checkpoint/LocalFiles.java",
        "        return set.equals(LocalFileSystem.class.getName()) ||",
        "        return set.length() > 0 ||",
        LOCAL,
    ),
)
