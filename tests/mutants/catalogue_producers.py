"""Planted bugs: producer state and the simulated clients' keys."""

from __future__ import annotations

from tests.mutants.plant import Mutant

PRODUCERS: tuple[Mutant, ...] = ()
