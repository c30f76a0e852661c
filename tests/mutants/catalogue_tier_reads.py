"""Planted bugs in what reads, checks and deletes copies: rows that are not the log's, deletes of too much, late commits."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Mutant

DELTA = "raftlake.tier.delta_table"
READS = "raftlake.tier.table_reads"
BATCHES = "raftlake.tier.batch_reads"
FILES = "raftlake.tier.lineage_files"
FACTS = "raftlake.tier.lineage_facts"
LAST = "raftlake.tier.last_segment"
LEFT = "raftlake.tier.leftovers"
FILE = "raftlake.tier.segment_file"
PROCESS = "raftlake.runtime.tier_process"
CALLS = "raftlake.tier.calls"

CONTRACT = ("contract/test_tier_contract.py",)
DELETES = ("unit/tier/test_tier_delta_deletes.py",)
TABLES = ("unit/tier/test_tier_table_reads.py",)
RANGES = ("unit/tier/test_tier_lineage_files.py",)
WHOLE = ("unit/tier/test_tier_lineage_facts.py",)
SWEEPS = ("unit/tier/test_tier_leftovers.py",)
LANES = ("unit/runtime/test_runtime_tier_process.py",)

TIER_READS: tuple[Mutant, ...] = (
    mutant(
        "tier-delete-does-not-look-at-the-epoch",
        "retention of a leader that was deposed removes files",
        DELTA,
        "            self._require_mine(table, lineage, leader_epoch)\n            return [remove_action",
        "            return [remove_action",
        CONTRACT,
    ),
    mutant(
        "tier-delete-does-not-set-the-epoch",
        "the copy of an older leader comes behind a delete of a newer one",
        DELTA,
        "removals,\n                transactions={epoch_app(self._settings.cluster_id, lineage): leader_epoch},\n",
        "removals,\n                transactions={},\n",
        CONTRACT,
    ),
    mutant(
        "tier-delete-of-files-that-overlap-one-that-stays",
        "after OPTIMIZE a delete leaves a gap among the rows that stay",
        FILES,
        "    for numbers in groups_by_overlap(ranges):\n",
        "    for numbers in ([number] for number in range(len(before))):\n",
        RANGES,
    ),
    mutant(
        "tier-delete-takes-rows-behind-its-offset",
        "the newest record that a file of the oldest ones holds is not old",
        FILES,
        "(file.offset_max or 0) < until for file in group",
        "(file.offset_min or 0) < until for file in group",
        RANGES,
    ),
    mutant(
        "tier-delete-believes-that-its-commit-removed-all",
        "OPTIMIZE moved the rows while their files were removed: they stay for ever, and a drop leaves them readable",
        DELTA,
        "            listed = table.all_files()\n        if listed:\n",
        "            return\n        if listed:\n",
        DELETES,
    ),
    mutant(
        "tier-drop-without-fences",
        "Fluss 3483: a late commit made the table of a dropped topic again",
        DELTA,
        "                transactions=fences,\n",
        "                transactions={},\n",
        CONTRACT,
    ),
    mutant(
        "tier-read-does-not-compare-crcs",
        "a value that somebody updated in the table is served as the log's",
        BATCHES,
        " and header.crc != crc:\n",
        " and False:\n",
        TABLES,
    ),
    mutant(
        "tier-file-without-page-checksums",
        "a flipped byte in a compressed batch is served",
        FILE,
        "        write_page_checksum=True,\n",
        "        write_page_checksum=False,\n",
        TABLES,
    ),
    mutant(
        "tier-read-cuts-a-batch-where-a-piece-of-rows-ends",
        "a batch that goes on in the next file is given in two",
        BATCHES,
        "        first = together.num_rows if is_end else _last_batch(together)\n",
        "        first = together.num_rows\n",
        TABLES,
    ),
    mutant(
        "tier-read-begins-at-the-offset-and-not-at-its-batch",
        "a consumer asks for an offset amid a batch",
        BATCHES,
        "        self._batches = batches_of(store, uri, lineage, files, base, files.end, loader)\n",
        "        self._batches = batches_of(store, uri, lineage, files, offset, files.end, loader)\n",
        CONTRACT,
    ),
    mutant(
        "tier-read-goes-by-an-old-version-for-ever",
        "what retention removed is still served",
        READS,
        "if is_fresh or self._now() - view.seen_at >= VIEW_SECONDS:",
        "if is_fresh or view.listed is None:",
        TABLES,
    ),
    mutant(
        "tier-read-keeps-to-files-that-vacuum-removed",
        "a consumer that reads on after OPTIMIZE and VACUUM gets errors",
        READS,
        "                if view.version == seen:\n                    raise\n",
        "                raise\n",
        TABLES,
    ),
    mutant(
        "tier-check-does-not-read-the-file",
        "local segments are deleted while their copy is damaged",
        READS,
        "if (crc := store.checksum(segment.file)) != segment.crc:",
        "if (crc := segment.crc) != segment.crc:",
        CONTRACT,
    ),
    mutant(
        "tier-check-after-optimize-looks-at-the-ends-only",
        "rows of a copy that is in a rewritten file are not the log's, and the local segment is deleted",
        READS,
        "            self._check_rows(view, lineage, segment, copies)\n",
        "            copies.id_at(segment.base_offset)\n",
        TABLES,
    ),
    mutant(
        "tier-claim-tells-of-the-file-of-optimize",
        "a copy that OPTIMIZE rewrote before COPY_FINISHED is never read back right, and local retention stands still",
        LAST,
        "is_shown_by(lineage) and known.segment.end_offset - 1 == last_offset:",
        "is_shown_by(lineage) and known.segment.file == file.path:",
        CONTRACT,
    ),
    mutant(
        "tier-check-by-the-checksum-of-a-rewritten-file",
        "the checksum of a file of OPTIMIZE is that of what was there at the claim, and no proof of what was written",
        READS,
        "        if is_as_written and any(file.path",
        "        if any(file.path",
        TABLES,
    ),
    mutant(
        "tier-check-wants-the-file-that-a-claim-told",
        "a file beside a copy that was put back mends nothing: the check fails for ever",
        READS,
        "not _is_of_the_same_copy(known.segment, segment)",
        "known.segment != segment",
        TABLES,
    ),
    mutant(
        "tier-facts-take-epochs-from-statistics-of-several",
        "keys that are made anew lack an epoch: a follower of that epoch is judged wrong",
        FACTS,
        "    if file.epoch_min is not None and file.epoch_min == file.epoch_max and file.is_of(incarnation):\n",
        "    if file.epoch_min is not None:\n",
        CONTRACT,
    ),
    mutant(
        "tier-facts-of-another-incarnation-in-the-same-file",
        "after OPTIMIZE the end of one incarnation is that of another one",
        FILES,
        "        if file.has_range and file.is_of(incarnation):\n",
        "        if file.has_range:\n",
        WHOLE,
    ),
    mutant(
        "tier-sweep-takes-what-a-later-leader-needs",
        "a copy that is under way loses its auxiliary bytes",
        LEFT,
        "        if segment.leader_epoch <= leader_epoch and len(holding)",
        "        if len(holding)",
        SWEEPS,
    ),
    mutant(
        "tier-sweep-takes-what-optimize-put-together",
        "no follower can begin at the copies that OPTIMIZE put together",
        LEFT,
        " and len(holding) == 1 and not holding & {None, name}:\n",
        " and name not in holding:\n",
        SWEEPS,
    ),
    mutant(
        "tier-reader-waits-behind-copies",
        "a consumer of old records waits for minutes while a large segment is copied",
        PROCESS,
        "done: Callable[[bytes | TierError], None]) -> None:\n        self.readers.submit(request, done)\n",
        "done: Callable[[bytes | TierError], None]) -> None:\n        self.leaders.submit(request, done)\n",
        LANES,
    ),
    mutant(
        "tier-produce-takes-times-that-no-table-holds",
        "one record with an absurd time ends the copies of its partition for ever",
        "raftlake.replica.aside.record_checks",
        "        if headers is not None and self._is_tiered:\n",
        "        if headers is not None and self._is_tiered and inline is not None:\n",
        ("unit/replica/test_replica_aside_alone.py",),
    ),
    mutant(
        "tier-store-tries-longer-than-the-call-lasts",
        "the operator reads that nothing was answered, and not what the store said",
        CALLS,
        '        return {"retry_timeout": part, "timeout": part, **self.storage_options}\n',
        "        return dict(self.storage_options)\n",
        ("unit/tier/test_tier_calls.py",),
    ),
)
