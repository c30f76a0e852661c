"""Looks for one planted bug in simulated clusters; a process of its own. Prints what killed it as one line of JSON."""

from __future__ import annotations

import json
import sys
from itertools import count, islice

from tests.mutants.catalogue import find
from tests.mutants.plant import plant


def main(name: str, seeds: int) -> int:
    mutant = find(name)
    plant(mutant)
    # Only now: what this imports carries the bug.
    from raftlake.sim.faults import Settings
    from raftlake.sim.runner import judge, settle

    settle()

    def shows(settings: Settings) -> bool:
        is_operated = settings.operators > 0 and settings.damage_interval_ms > 0
        is_trimmed = settings.retention_bytes >= 0
        return mutant.theme in (None, settings.theme) and is_operated >= mutant.damaged_voters and is_trimmed >= mutant.trims

    chosen = (seed for seed in count(1) if shows(Settings.draw(seed)))
    for tried, seed in enumerate(islice(chosen, seeds), start=1):
        verdict = judge(seed)
        if verdict.outcome is None:
            sys.stdout.write(json.dumps({"seed": seed, "tried": tried, "violation": verdict.violation}) + "\n")
            return 0
    sys.stdout.write(json.dumps({"seed": None}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2])))
