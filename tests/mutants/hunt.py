"""Looks for one planted bug in simulated clusters; a process of its own. Prints what killed it as one line of JSON.

With `--unharmed` nothing is planted: the same kind of runs, which must break nothing, and the time that they take.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import count, islice

from tests.mutants.catalogue import find
from tests.mutants.plant import plant


def main(name: str, seeds: int, is_planted: bool) -> int:
    mutant = find(name)
    if is_planted:
        plant(mutant)
    # Only now: what this imports carries the bug.
    from raftlake.sim.faults.faults import Settings
    from raftlake.sim.runner import judge, settle

    settle()

    def shows(settings: Settings) -> bool:
        is_operated = settings.operators > 0 and settings.damage_interval_ms > 0
        is_trimmed = settings.retention_bytes >= 0
        is_compacted = settings.keyed_producers > 0
        has_all = is_operated >= mutant.damaged_voters and is_trimmed >= mutant.trims and is_compacted >= mutant.compacts
        return mutant.theme in (None, settings.theme) and has_all

    began = time.monotonic()
    found: dict[str, object] = {"seed": None}
    chosen = (seed for seed in count(1) if shows(Settings.draw(seed)))
    for tried, seed in enumerate(islice(chosen, seeds), start=1):
        verdict = judge(seed)
        if verdict.outcome is None:
            found = {"seed": seed, "tried": tried, "violation": verdict.violation}
            break
    sys.stdout.write(json.dumps({**found, "seconds": time.monotonic() - began}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), "--unharmed" not in sys.argv[3:]))
