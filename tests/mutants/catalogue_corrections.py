"""Planted bugs: what a comparison with Kafka's own Raft corrected."""

from __future__ import annotations

from tests.mutants.plant import Mutant

CORRECTIONS: tuple[Mutant, ...] = ()
