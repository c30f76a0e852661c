"""What the measures of `make bench` share: a result with its budget and its method, and what the machine is.

A result that has a peer is judged by its ratio (ours / peer), since the machine's mood is in both; it is the median of the
ratios of neighbouring rounds.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What the other system did in the same run, and the bound of ours / peer, if there is one."""

    name: str
    value: float
    ratio: float
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One number. `at_most` or `at_least` is its budget, `peer` may bring one too; without any it is only reported."""

    name: str
    value: float
    unit: str
    method: str
    at_most: float | None = None
    at_least: float | None = None
    peer: Peer | None = None
    #: What helps to understand the number: rounds, processor time per request, client's share.
    details: dict[str, object] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        met = _within(self.value, self.at_most, self.at_least)
        return met and (self.peer is None or _within(self.peer.ratio, self.peer.at_most, self.peer.at_least))

    @property
    def budget(self) -> str:
        parts = [_bound(self.at_most, self.at_least, f" {self.unit}")]
        if self.peer is not None:
            parts.append(_bound(self.peer.at_most, self.peer.at_least, f" x {self.peer.name}"))
        return " and ".join(part for part in parts if part)

    @property
    def verdict(self) -> str:
        return ("met" if self.is_met else "MISSED") if self.budget else ""


def _within(value: float, at_most: float | None, at_least: float | None) -> bool:
    return (at_most is None or value <= at_most) and (at_least is None or value >= at_least)


def _bound(at_most: float | None, at_least: float | None, unit: str) -> str:
    if at_most is not None:
        return f"<= {at_most:,.3g}{unit}" if at_most < 100 else f"<= {at_most:,.0f}{unit}"
    if at_least is None:
        return ""
    return f">= {at_least:,.3g}{unit}" if at_least < 100 else f">= {at_least:,.0f}{unit}"


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


@dataclass(slots=True)
class Rounds:
    """Ours and the peer's, one after the other, so that what the machine does meanwhile hits both."""

    ours: list[float] = field(default_factory=list)
    peers: list[float] = field(default_factory=list)

    def alternate(self, rounds: int, ours: Callable[[], float], peers: Callable[[], float]) -> Rounds:
        for number in range(rounds):
            # Who comes second finds a disk that still works for the first: take turns at that too.
            for is_ours in (number % 2 == 0, number % 2 == 1):
                (self.ours if is_ours else self.peers).append(ours() if is_ours else peers())
        return self

    def result(
        self,
        *,
        name: str,
        unit: str,
        method: str,
        peer: str,
        at_most: float | None = None,
        at_least: float | None = None,
        ratio_at_most: float | None = None,
        ratio_at_least: float | None = None,
        details: dict[str, object] | None = None,
    ) -> Result:
        ratio = median([mine / theirs for mine, theirs in zip(self.ours, self.peers, strict=True)])
        return Result(
            name=name,
            value=median(self.ours),
            unit=unit,
            method=f"{method}; median of {len(self.ours)} alternating rounds",
            at_most=at_most,
            at_least=at_least,
            peer=Peer(name=peer, value=median(self.peers), ratio=ratio, at_most=ratio_at_most, at_least=ratio_at_least),
            details={"ours": rounded(self.ours), "peer": rounded(self.peers), **(details or {})},
        )


def rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def describe_machine(directory: Path, versions: dict[str, str]) -> dict[str, object]:
    """What the numbers depend on. `directory` is where the nodes write."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.split()[1]) / (1 << 20), 1),
        "disk_fdatasync_p50_us": round(fdatasync_p50_us(directory)),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **versions},
    }


def fdatasync_p50_us(directory: Path, count: int = 500) -> float:
    """One KiB appended and synced, again and again: what the disk lets anybody do."""
    path = directory / "fdatasync"
    taken = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(count):
            began = time.perf_counter()
            os.write(descriptor, bytes(1024))
            os.fdatasync(descriptor)
            taken.append(1e6 * (time.perf_counter() - began))
    finally:
        os.close(descriptor)
        path.unlink()
    return median(taken)
