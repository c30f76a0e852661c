"""Planted bugs in what keeps producer ids without end from holding a node, filling it, or being taken for others."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

CARE = "raftlake.replica.producer_care"
HOSTING = "raftlake.replica.hosting.hosting"
PARTITION = "raftlake.replica.partition.partition"
POINTS = "raftlake.replica.partition.start_points"
SNAPSHOT_FILES = "raftlake.replica.partition.snapshot_files"
STATE = "raftlake.replica.partition.producer_state"

CARED = ("unit/replica/test_replica_producer_care.py",)
SLICED = ("unit/replica/test_replica_partition_start_points_slices.py",)
TWIN = ("property/test_replica_producer_twin.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


WORK = (
    mutant(
        "all-producers-written-at-a-roll",
        "240,000 producer ids held all nodes for 2.3 s whenever a segment began",
        POINTS,
        "        if self._in_slices is None or len(self.producers) <= SLICE_PRODUCERS:\n            if",
        "        if True:\n            if",
        SLICED,
    ),
    mutant(
        "all-producers-in-one-slice",
        "a slice of all is none",
        STATE,
        "        while found := list(islice(entries, SLICE_PRODUCERS)):\n            yield b",
        "        while found := list(entries):\n            yield b",
        CARED,
    ),
    mutant(
        "what-is-forgotten-goes-at-once",
        "a million ids that expire together would hold all nodes together",
        STATE,
        "            for _ in range(min(SLICE_PRODUCERS, len(self._changed))):\n",
        "            for _ in range(len(self._changed)):\n",
        CARED,
    ),
    mutant(
        "two-pieces-of-work-take-turns-without-a-pause",
        "all nodes write at about the same time",
        CARE,
        "        if len(self._waiting) == 1:\n            self._go_on()\n",
        "        self._go_on()\n",
        CARED,
    ),
    mutant(
        "tiny-batches-scrubbed-by-their-bytes",
        "4 MiB of tiny batches held the loop for 0.4 s each second",
        "raftlake.storage.scrub",
        "            cost += max(batch.size, BATCH_BYTES_MIN)\n",
        "            cost += batch.size\n",
        ("unit/storage/test_storage_scrub.py",),
    ),
)

CONTENT = (
    mutant(
        "held-producers-change-under-their-reader",
        "a point tells how things stood where its segment begins",
        STATE,
        "        if self._holds or self._changed:\n",
        "        if self._changed:\n",
        (*SLICED, *TWIN),
    ),
    mutant(
        "what-is-noted-and-not-written-goes-into-the-point",
        "a leader notes sequences before it writes: what stands behind the base is not below it",
        STATE,
        "                changed[producer_id] = rows\n        self._holds += 1\n",
        "        self._holds += 1\n",
        TWIN,
    ),
    mutant(
        "point-of-a-cut-log-finished",
        "a start believes any point below the end, and the log grows beyond the cut again",
        POINTS,
        "            self._saving.close()\n",
        "            pass\n",
        SLICED,
    ),
    mutant(
        "point-cancelled-at-the-base-of-a-segment-never-made",
        "a cut to the very base of a segment leaves the segment, and no header to pass",
        POINTS,
        "        if missing and missing[0] == log.end_offset:\n",
        "        if False:\n",
        (*SLICED, *TWIN),
    ),
    mutant(
        "trimmed-before-its-producers-are-told",
        "a follower that begins behind the snapshot appended a retry again",
        POINTS,
        "        if offset in points:\n",
        "        if True:\n",
        (*SLICED, *CARED, *TWIN),
    ),
    mutant(
        "only-the-first-record-of-producers-read",
        "a batch of more than 64 MiB is taken for damage, so that many producers have several",
        SNAPSHOT_FILES,
        "        elif index == len(producers) + 1 and",
        "        elif index == 1 and",
        CARED,
    ),
)

BOUND = (
    mutant(
        "producer-ids-without-number",
        "a client invents ids as it likes, each kept for a day",
        PARTITION,
        "            if pending.refuse is not None and not self._has_room_for(first):\n",
        "            if False:\n",
        CARED,
    ),
    mutant(
        "known-producers-refused-too",
        "who is known goes on, whoever else has come",
        STATE,
        "        return not self._tally.is_full or bool(self._rows(producer_id))\n",
        "        return not self._tally.is_full\n",
        CARED,
    ),
    mutant(
        "ids-counted-for-each-partition",
        "10,000 partitions have one memory",
        HOSTING,
        "tally=self._producers.tally, ",
        "tally=None, ",
        CARED,
    ),
    mutant(
        "ids-of-closed-partitions-counted",
        "a topic that is deleted gives back its ids",
        HOSTING,
        "        partition.close_facts()\n",
        "",
        CARED,
    ),
    mutant(
        "rebuilt-producers-counted-twice",
        "a cut reads them anew",
        POINTS,
        "        self.stop_saving()\n        self.producers.drop()\n",
        "        self.stop_saving()\n",
        (*SLICED, *TWIN),
    ),
    mutant(
        "ids-of-a-reading-that-met-damage-counted",
        "the log is opened anew then, and counts them again",
        POINTS,
        "        except (DamagedData, StorageError):\n            self.close()\n            raise\n",
        "        except (DamagedData, StorageError):\n            raise\n",
        SLICED,
    ),
)

HOSTILE_PRODUCERS: tuple[Mutant, ...] = (*WORK, *CONTENT, *BOUND)
