"""Bugs planted in what becomes of a table after an unclean election, and in directories that are made from tables."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

LINEAGE = "raftlake.tier.lineage"
ADOPTER = "raftlake.replica.tiering.adopter"
LED = "raftlake.replica.tiering.led"
GATE = "raftlake.replica.kv.tier_gate"
REBUILD = "raftlake.replica.tiering.rebuild"
REBUILT = ("unit/replica/test_replica_tiering_rebuild.py",)
PLANNED = ("unit/tier/test_tier_lineage.py",)
ADOPTED = ("unit/replica/test_replica_tiering_adopter.py",)

TIER_ADOPTION = (
    mutant(
        "cut-copy-kept-at-the-end-of-a-new-history",
        "a copy that is cut has no auxiliary state: a follower could never begin behind it",
        LINEAGE,
        "    while parts and parts[-1].end_offset < parts[-1].piece.end_offset and parts[-1].base_offset >= log_start:",
        "    while False:",
        PLANNED,
    ),
    mutant(
        "history-judged-by-its-offsets-alone",
        "KIP-405 scenario 5: offset 3 of epoch 1 is another record than offset 3 of epoch 0",
        LINEAGE,
        "if not is_inside or _epoch_at(epochs, base) != _epoch_at(piece.epochs, base):",
        "if not is_inside:",
        PLANNED,
    ),
    mutant(
        "uncommitted-copies-of-a-new-history",
        "a copy behind the high watermark of the new leader",
        LINEAGE,
        "base < min(piece.end_offset, end)",
        "base < piece.end_offset",
        PLANNED,
    ),
    mutant(
        "gap-before-the-log-of-a-new-history",
        "what does not lead to the log leaves a hole in the one offset space",
        LINEAGE,
        "run.base_offset <= offset <= run.end_offset), Range(offset, offset)",
        "True), Range(offset, offset)",
        PLANNED,
    ),
    mutant(
        "live-file-written-anew",
        "a superseded file that reaches farther takes the place of one that could stay",
        LINEAGE,
        "        staying = self._staying.get(offset)\n",
        "        staying = None\n",
        PLANNED,
    ),
    mutant(
        "file-reached-over-a-live-one",
        "a file goes on where the next live one begins, which is then written anew for its rest",
        LINEAGE,
        "min([within.end_offset, *self._bases[at : at + 1]])",
        "within.end_offset",
        PLANNED,
    ),
    mutant(
        "all-epochs-asked-for-each-file",
        "an adoption of a hundred thousand files in a history of a thousand epochs takes minutes more",
        LINEAGE,
        "epochs[first:behind])",
        "epochs)",
        PLANNED,
    ),
    mutant(
        "all-files-asked-for-each-file",
        "an adoption of a hundred thousand files takes minutes, and longer than the call may take",
        LINEAGE,
        "        at = bisect_right(self._bases, offset)\n",
        "        at = sum(base <= offset for base in sorted(one.base_offset for one, of in self._ranked if _stays(one, of)))\n",
        PLANNED,
    ),
    mutant(
        "copies-before-the-table-is-taken-over",
        "the new leader's copies come behind rows of another history",
        LED,
        "        if self.adopter.is_due:\n            self.adopter.go_on()\n            return\n",
        "        self.adopter.go_on()\n",
        ADOPTED,
    ),
    mutant(
        "keys-of-superseded-copies-kept",
        "a follower looks a copy up that the table does not show",
        ADOPTER,
        "for key, _ in self._segments() if key not in shown]",
        "for key, _ in self._segments() if False]",
        ADOPTED,
    ),
    mutant(
        "second-recovery-takes-nothing-over",
        "KIP-405 scenario 5 has two elections",
        ADOPTER,
        "standing.tiered.recovery != recovery_of(self._kv.machine)",
        "not standing.tiered.recovery and recovery_of(self._kv.machine) != ''",
        ADOPTED,
    ),
    mutant(
        "takeover-in-the-name-of-another-recovery",
        "a node that was left behind proposes keys of its own history",
        GATE,
        "    if wanted.recovery != recovery_of(machine):",
        "    if False:",
        ADOPTED,
    ),
    mutant(
        "takeover-of-the-same-incarnation",
        "leaders of before are not fenced",
        GATE,
        "return standing.incarnation if is_made_anew else standing.incarnation + 1",
        "return standing.incarnation",
        ADOPTED,
    ),
    mutant(
        "takeover-of-keys-made-anew-refused",
        "a partition whose spoilt key was made anew after a recovery is never copied again",
        GATE,
        "is_made_anew = standing.incarnation > 0 and not standing.recovery",
        "is_made_anew = False",
        ADOPTED,
    ),
    mutant(
        "keys-made-anew-over-a-copy-that-came-between",
        "a COPY_FINISHED between the read of the table and the new keys is lost",
        REBUILD,
        "Txn((Compare(self._key, version),), tuple(operations))",
        "Txn((), tuple(operations))",
        REBUILT,
    ),
    mutant(
        "keys-of-copies-that-are-not-there-stay",
        "spoilt keys are what the command is for",
        REBUILD,
        "        operations += [Delete(key) for key, _ in known if key not in shown]\n",
        "",
        REBUILT,
    ),
    mutant(
        "rebuilt-keys-forget-the-recovery",
        "the table of a sound partition is taken over again",
        REBUILD,
        'return known.recovery if isinstance(known, Tiered) else ""',
        'return ""',
        REBUILT,
    ),
    mutant(
        "keys-made-anew-by-any-node",
        "a follower cannot prove what a table shows: its proposal is refused, or a stale one is taken",
        "raftlake.runtime.http.tier",
        "if quorum is None or not quorum.is_serving:",
        "if quorum is None:",
        ("unit/runtime/test_runtime_http_tier.py",),
    ),
    mutant(
        "keys-made-anew-for-a-page-of-another-site",
        "a form that a browser sends by itself changes keys",
        "raftlake.runtime.http.tier",
        "        require_json(request)\n",
        "",
        ("unit/runtime/test_runtime_http_tier.py",),
    ),
)
