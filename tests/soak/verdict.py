"""Judges what a soak recorded, and says it: on the screen, as JSON, and with everything kept when something is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raftlake.sim.histories.kv import check_key_value, check_positions
from raftlake.sim.histories.log import check_log
from soak.record import Record

Final = Mapping[int, bytes | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    complaints: list[str]
    operations: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.complaints


def judge(record: Record, finals: Sequence[Sequence[Final]]) -> list[str]:
    """Everything that is wrong. `finals` holds for each partition what each node holds in the end."""
    found = list(record.complaints)
    for partition, of_nodes in enumerate(finals):
        longest = max(of_nodes, key=len, default={})
        for index, final in enumerate(of_nodes):
            differing = [offset for offset, value in final.items() if longest.get(offset, b"nothing") != value]
            if differing:
                found.append(f"partition {partition}: copies differ at offsets {differing[:10]} (copy {index})")
        found += [f"partition {partition}: {complaint}" for complaint in check_log(record.logs[partition], longest)]
    found += check_positions(record.kv)
    for keys, verdict in check_key_value(record.kv):
        found.append(f"keys {', '.join(keys)}: {verdict}")
    return found


def longest_windows(record: Record, struck: Sequence[tuple[int, str]]) -> list[str]:
    """The longest times without an acknowledged write, with the faults that struck shortly before them or in them."""
    found = []
    for start_us, length_us in sorted(record.windows, key=lambda window: -window[1])[:5]:
        during = [text for at_us, text in struck if start_us - 1_000_000 <= at_us <= start_us + length_us]
        found.append(f"{start_us / 1e6:.1f} s, {length_us / 1e6:.1f} s long: {'; '.join(during) or 'no fault'}")
    return found


def summary(
    record: Record, faults: Counter[str], struck: Sequence[tuple[int, str]], verdict: Verdict, facts: Mapping[str, object]
) -> dict[str, object]:
    """What happened, as JSON values."""
    lengths = sorted(length for _, length in record.windows)
    return {
        **facts,
        "verdict": "linearizable" if verdict.is_good else "VIOLATED",
        "complaints": verdict.complaints,
        "operations": verdict.operations,
        "seconds": round(verdict.seconds, 1),
        "outcomes": dict(sorted(record.counts.items())),
        "faults": dict(sorted(faults.items())),
        "unavailable": {
            "windows over 0.5 s": len(lengths),
            "sum s": round(sum(lengths) / 1e6, 1),
            "median s": round(lengths[len(lengths) // 2] / 1e6, 2) if lengths else 0,
            "longest s": round(lengths[-1] / 1e6, 2) if lengths else 0,
        },
        "no writes at": longest_windows(record, struck),
    }


def keep(record: Record, finals: Sequence[Sequence[Final]], directory: Path) -> None:
    """Write the whole history beside the nodes' directories, one operation a line."""
    with (directory / "history-kv.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"{operation}\n" for operation in record.kv)
    for partition, operations in enumerate(record.logs):
        with (directory / f"history-log-{partition}.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{operation}\n" for operation in operations)
    for partition, of_nodes in enumerate(finals):
        for index, final in enumerate(of_nodes):
            lines = [f"{offset} {final[offset]!r}\n" for offset in sorted(final)]
            (directory / f"final-{partition}-copy-{index}.txt").write_text("".join(lines), encoding="utf-8")


def write_result(path: Path, result: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
