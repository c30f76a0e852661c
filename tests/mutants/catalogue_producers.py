"""Planted bugs: producer state, and the lists of keys that simulated clients ask for."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

PARTITION = "raftlake.replica.partition.partition"
STATE = "raftlake.replica.partition.producer_state"
START_POINTS = "raftlake.replica.partition.start_points"
KEYSPACE = "raftlake.kv.keyspace"
MACHINE = "raftlake.kv.machine"
RULES = "unit/replica/test_replica_partition_producer_state_rules.py"
TWIN = "property/test_replica_producer_twin.py"

SEQUENCES = (
    Mutant(
        name="sequences-wrap-one-too-early",
        source="KIP-98: the sequence after 2^31 - 1 is 0",
        edits=(
            Edit(
                STATE,
                "return (base_sequence + record_count - 1) % SEQUENCE_MODULUS",
                "return (base_sequence + record_count - 1) % (SEQUENCE_MODULUS - 1)",
            ),
        ),
    ),
    Mutant(
        name="sequence-behind-the-largest-is-not-zero",
        source="KIP-98: a batch may end exactly at 2^31 - 1",
        edits=(
            Edit(
                STATE,
                "expected = (last_sequence + 1) % SEQUENCE_MODULUS",
                "expected = last_sequence + 1",
            ),
        ),
    ),
    Mutant(
        name="wrapped-sequences-restored-negative",
        source="KIP-98: a batch of before the wrap is recognised after a restart",
        by_tests=True,
        places=(RULES,),
        edits=(
            Edit(
                STATE,
                "last_sequence = last_sequence_of(base_sequence, count)\n        for known",
                "last_sequence = base_sequence + count - 1\n        for known",
            ),
        ),
    ),
    Mutant(
        name="another-size-taken-for-a-repetition",
        source="KIP-98: a repetition has the first and the last sequence of what it repeats",
        edits=(
            Edit(
                STATE,
                "known_last == last_sequence and offset_delta == count - 1",
                "(known_last - offset_delta) % SEQUENCE_MODULUS == base_sequence",
            ),
        ),
    ),
    Mutant(
        name="last-first-sequence-appended-with-another-size",
        source="KIP-98: what begins where the last batch began is out of order",
        edits=(
            Edit(
                STATE,
                "            if repeated is not None:\n                return repeated\n            raise",
                "            if repeated is not None or base_sequence == last_sequence - rest[1]:\n"
                "                return repeated\n            raise",
            ),
            Edit(
                STATE,
                "known_epoch, last_sequence, *_ = _BATCH",
                "known_epoch, last_sequence, *rest = _BATCH",
            ),
        ),
    ),
    Mutant(
        name="unknown-producers-compared-without-the-wrap",
        source="a bug of ours: of two batches around the wrap an unknown producer began with the second one",
        edits=(Edit(STATE, "else not is_after(base_sequence, sent_back)", "else base_sequence <= sent_back"),),
    ),
    Mutant(
        name="sent-back-in-an-earlier-term",
        source="a bug of ours: a producer that a leader sent back began with its second batch in the leader's next term",
        by_tests=True,
        places=(RULES,),
        edits=(Edit(PARTITION, "        self.producers.forget_sent_back()\n", ""),),
    ),
)

EPOCHS = (
    Mutant(
        name="new-epoch-inherits-the-batches-of-the-old-one",
        source="KIP-360: the first batch of a new epoch repeats nothing, be its sequences those of an old one",
        by_tests=True,
        places=(RULES,),
        edits=(Edit(STATE, "        if _epoch(kept) == _epoch(rows):\n", "        if kept:\n"),),
    ),
    Mutant(
        name="new-epoch-goes-on-with-zero-alone",
        source="KIP-360: the second batch of a new epoch follows the first one",
        edits=(Edit(STATE, "        if epoch > known_epoch:\n", "        if epoch > known_epoch or epoch > 0:\n"),),
    ),
    Mutant(
        name="new-epoch-begins-anywhere",
        source="KIP-360: a new epoch begins with sequence 0",
        edits=(Edit(STATE, "            if base_sequence != 0:\n", "            if False:\n"),),
    ),
    Mutant(
        name="old-epochs-not-fenced",
        source="KIP-360: nothing of an older epoch is taken, and its producer is told so",
        edits=(Edit(STATE, "        if epoch < known_epoch:\n", "        if False:\n"),),
    ),
)

UNDO = (
    Mutant(
        name="start-point-tells-what-begins-at-it",
        source="KIP-98: a producer snapshot tells of what lies below its offset",
        edits=(Edit(STATE, "            if base_offset >= offset:\n", "            if base_offset > offset:\n"),),
    ),
    Mutant(
        name="what-begins-at-the-end-taken-for-written",
        source="a leader's first record is written after its first batches were noted",
        by_tests=True,
        places=(RULES, TWIN),
        edits=(
            Edit(STATE, "self._undo[-1][0] < end_offset", "self._undo[-1][0] <= end_offset"),
            Edit(
                STATE,
                "each for each in self._undo if each[0] >= end_offset",
                "each for each in self._undo if each[0] > end_offset",
            ),
        ),
    ),
    Mutant(
        name="written-one-record-further-than-the-log",
        source="a leader's first record is written after its first batches were noted",
        by_tests=True,
        places=("unit/replica/test_replica_partition_start_points.py", TWIN),
        edits=(
            Edit(
                START_POINTS,
                "        self.producers.settle(self._log.end_offset)\n\n    def _save_at",
                "        self.producers.settle(self._log.end_offset + 1)\n\n    def _save_at",
            ),
        ),
    ),
    Mutant(
        name="closed-rows-forget-nothing",
        source="simulator, seed 873000191: a snapshot of a compacted log closes what is open elsewhere",
        by_tests=True,
        places=("unit/replica/test_replica_partition_compacted.py",),
        edits=(Edit(START_POINTS, "self.has_forgotten or closed != bytes(self.packed)", "self.has_forgotten"),),
    ),
    Mutant(
        name="trimmed-log-without-a-point-forgets-nobody",
        source="what was before a log's start is unknown where no point and no snapshot tells of it (seed 812000852)",
        by_tests=True,
        places=("unit/replica/test_replica_partition_start_points.py",),
        edits=(
            Edit(
                START_POINTS,
                "        elif self._log.start_offset > 0:\n",
                "        elif self._log.start_offset < 0:\n",
            ),
        ),
    ),
    Mutant(
        name="start-points-above-the-end-believed",
        source="a crash takes the end of a log, and leaves the point that was saved there",
        edits=(Edit(START_POINTS, "not log.start_offset <= offset <= log.end_offset]", "not log.start_offset <= offset]"),),
    ),
)

LISTS = (
    Mutant(
        name="lists-in-the-order-of-creation",
        source="a list is in the order of its keys",
        edits=(
            Edit(
                KEYSPACE,
                "            self._last = key\n        else:\n            self._is_sorted = False\n",
                "            self._last = key\n",
            ),
        ),
    ),
    Mutant(
        name="lists-short-keys-first",
        source="a list is in the order of its keys, by code point",
        edits=(
            Edit(
                MACHINE,
                "            found.append((key, row))\n        return found, False\n",
                "            found.append((key, row))\n        found.sort(key=lambda row: len(row[0]))\n"
                "        return found, False\n",
            ),
        ),
    ),
    Mutant(
        name="list-repeats-the-key-that-it-follows",
        source="a page begins behind the last key of the page before it",
        edits=(
            Edit(
                MACHINE,
                "rows_from(prefix if after is None or from_prefix else after, inclusive=from_prefix)",
                "rows_from(prefix if after is None or from_prefix else after, inclusive=True)",
            ),
        ),
    ),
    Mutant(
        name="full-page-says-that-more-follows",
        source="a page says whether more follows it",
        edits=(
            Edit(
                MACHINE,
                "            found.append((key, row))\n        return found, False\n",
                "            found.append((key, row))\n        return found, len(found) == limit\n",
            ),
        ),
    ),
)

PRODUCERS: tuple[Mutant, ...] = (*SEQUENCES, *EPOCHS, *UNDO, *LISTS)
