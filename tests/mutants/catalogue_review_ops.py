"""Bugs planted where a review found some: recoveries, checkpoints that are renamed, and commands."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Edit, Mutant

RECOVER = "raftlake.runtime.recovery.recover"
FROM_TIER = "raftlake.runtime.recovery.from_tier"
CHANGES = "raftlake.checkpoints.changes"
STEPS = "raftlake.checkpoints.steps"
VOTERS = "raftlake.cli.voters"
SINK_FACTS = "raftlake.cli.sink_facts"
RECOVER_TESTS = ("unit/runtime/test_runtime_recovery_recover.py",)
FROM_TIER_TESTS = ("unit/runtime/test_runtime_recovery_from_tier.py",)
CHANGES_TESTS = ("unit/checkpoints/test_checkpoints_changes.py",)
SINKS_TESTS = ("unit/cli/test_cli_sinks.py",)
VOTERS_TESTS = ("unit/cli/test_cli_voters.py",)
OUTPUT_TESTS = ("unit/cli/test_cli_output.py",)

REVIEW_OPS = (
    mutant(
        "each-restoration-begins-at-the-same-offset",
        "the second restoration gave out the producer ids and the versions of keys of the first again",
        FROM_TIER,
        "    return Offset(METADATA_START + max(newest, now_s) * STEP)\n",
        "    return METADATA_START\n",
        FROM_TIER_TESTS,
    ),
    mutant(
        "restoration-begins-by-the-newest-epoch-alone",
        "the table that tells it was not taken over in between: the same start comes again",
        FROM_TIER,
        "max(newest, now_s) * STEP",
        "newest * STEP",
        FROM_TIER_TESTS,
    ),
    mutant(
        "restoration-begins-by-the-clock-alone",
        "the clock was put back: what was given out is given out again",
        FROM_TIER,
        "max(newest, now_s) * STEP",
        "now_s * STEP",
        FROM_TIER_TESTS,
    ),
    mutant(
        "restored-producer-ids-begin-in-the-middle",
        "a restoration's ids may go up to a block for each offset, which half of the next start is not above",
        FROM_TIER,
        "(PRODUCER_IDS_BLOCK * (begin - STEP // 2))",
        "(PRODUCER_IDS_BLOCK * (begin // 2))",
        FROM_TIER_TESTS,
    ),
    mutant(
        "survivor-goes-on-with-the-producer-ids-it-knows",
        "the lost nodes had taken the next block, and a new producer's first records were taken for repetitions",
        RECOVER,
        '        return {PRODUCERS_NEXT_KEY: b"%d" % next_id, **starts_within',
        "        return {**starts_within",
        RECOVER_TESTS,
    ),
    mutant(
        "recovery-leaves-no-producer-ids-to-the-next-one",
        "nodes that were lost behind the first recovery had given out ids of which the second one did not know",
        RECOVER,
        "        next_id = known + (PRODUCER_IDS_BLOCK * begin - known) // 2\n",
        "        next_id = PRODUCER_IDS_BLOCK * begin\n",
        RECOVER_TESTS,
    ),
    mutant(
        "restoration-leaves-no-producer-ids-to-a-recovery",
        "nodes that were lost later had given out ids of which the survivor did not know",
        FROM_TIER,
        "(PRODUCER_IDS_BLOCK * (begin - STEP // 2))",
        "(PRODUCER_IDS_BLOCK * begin)",
        FROM_TIER_TESTS,
    ),
    mutant(
        "plan-does-not-say-that-it-is-from-the-tier",
        "a restoration that was killed behind its plan was refused by every command",
        RECOVER,
        "        if self.made_from is not None:\n            fields[FROM_TIER] = self.made_from\n",
        "",
        FROM_TIER_TESTS,
    ),
    Mutant(
        name="directory-of-a-running-restoration-is-emptied",
        source="two commands at once: the logs of the first were deleted under it",
        edits=(
            Edit(FROM_TIER, "    lock = DirectoryLock(data_dir)\n", ""),
            Edit(FROM_TIER, "        lock.release()\n", "        pass\n"),
        ),
        by_tests=True,
        places=FROM_TIER_TESTS,
    ),
    mutant(
        "restorations-share-a-directory-between-their-steps",
        "the lock of the logs is let go and taken again on the way",
        FROM_TIER,
        "        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        FROM_TIER_TESTS,
    ),
    mutant(
        "restoration-does-not-look-again-under-its-lock",
        "the run before may have ended, and its directory holds records",
        FROM_TIER,
        "        # Another run may have ended since.\n        require_empty(data_dir)\n",
        "",
        FROM_TIER_TESTS,
    ),
    mutant(
        "half-written-marker-is-a-directory-in-use",
        "after a power loss between the marker and its rename the directory was `not empty`",
        FROM_TIER,
        " if name != PENDING_NAME + TEMPORARY_SUFFIX",
        "",
        FROM_TIER_TESTS,
    ),
    mutant(
        "target-of-a-rename-is-marked-alone",
        "a rename that was broken off then and given up left a place that nothing could be done with",
        CHANGES,
        "        marked_at |= dict.fromkeys(unmarked, put_marks(tools, writer, mark, unmarked))\n",
        "        for root, found in unmarked.items():\n"
        "            marked_at[root] = put_marks(tools, writer, mark, {root: found})\n",
        CHANGES_TESTS,
    ),
    mutant(
        "source-of-a-rename-is-deleted-behind-the-last-move",
        "the target keeps a mark that no command ends, and all files",
        STEPS,
        ' and mark.told.endswith(f" {tree.root}")',
        "",
        CHANGES_TESTS,
    ),
    mutant(
        "target-of-a-rename-is-deleted-with-files",
        "they are nowhere else",
        STEPS,
        " and set(tree.files) == {METADATA}",
        "",
        CHANGES_TESTS,
    ),
    mutant(
        "forgetting-of-a-sink-is-not-ended",
        "its keys were gone and its transactions open, and readers waited for their time-outs",
        "raftlake.cli.sinks",
        "        if not sink.version and not left:\n",
        "        if not sink.version:\n",
        SINKS_TESTS,
    ),
    mutant(
        "one-ended-transaction-keeps-the-others-open",
        "a command ends all of its transactions or none",
        SINK_FACTS,
        "            if len(rest) == len(ends):\n                raise\n",
        "            raise\n",
        SINKS_TESTS,
    ),
    mutant(
        "deleted-topic-fails-a-change-of-voters",
        "the change was made, and the command ended with UNKNOWN_TOPIC_OR_PARTITION",
        VOTERS,
        "        if refused.code not in RETRIABLE:\n            raise\n        return None\n",
        "        raise\n",
        VOTERS_TESTS,
    ),
    mutant(
        "error-behind-a-change-of-voters-hides-the-change",
        "who reads the error makes the change again",
        VOTERS,
        '        except RaftlakeError as error:\n            raise WrongState(\n                f"the change',
        '        except MemoryError as error:\n            raise WrongState(\n                f"the change',
        VOTERS_TESTS,
    ),
    mutant(
        "batch-with-a-wrong-crc-is-no-damage",
        "`raftlake dump` ended with 0, and a script took the file for intact",
        "raftlake.storage.dump",
        "    if not is_valid:\n        yield f",
        "    if not is_valid:\n        f",
        ("unit/storage/test_storage_dump.py", *OUTPUT_TESTS),
    ),
    mutant(
        "damaged-partition-metadata-is-printed-as-it-is",
        "whatever stood there was printed, and the exit code was 0",
        "raftlake.storage.dump",
        "        partition.read_topic_id(path.parent)\n",
        '        data = data.decode(errors="replace").encode("ascii", "replace")\n',
        ("unit/storage/test_storage_dump.py",),
    ),
    mutant(
        "argument-that-is-no-text-is-a-traceback",
        "a name in another encoding, given to any command",
        "raftlake.cli.main",
        "    except UnicodeEncodeError as error:\n",
        "    except MemoryError as error:\n",
        OUTPUT_TESTS,
    ),
    mutant(
        "path-that-is-no-text-cannot-be-printed",
        "the command ended with a traceback when all was done",
        "raftlake.cli.streams",
        'errors if before.errors == "strict" else before.errors',
        "before.errors",
        ("unit/cli/test_cli_streams.py",),
    ),
    mutant(
        "log-of-a-local-node-that-cannot-be-opened-is-a-traceback",
        "`raftlake local` in a directory with a node.log of somebody else",
        "raftlake.local",
        "    except OSError as error:\n        raise storage_error(",
        "    except MemoryError as error:\n        raise storage_error(",
        ("unit/local/test_local_refusals.py",),
    ),
    mutant(
        "name-that-no-file-can-have-is-a-traceback",
        "`raftlake checkpoints export` into a place that the system refuses",
        "raftlake.checkpoints.directory",
        "    except OSError as error:\n        raise _unreadable(path, error) from error\n    if not is_new:",
        "    except MemoryError as error:\n        raise _unreadable(path, error) from error\n    if not is_new:",
        ("unit/checkpoints/test_checkpoints_copies.py",),
    ),
)
