"""Planted bugs: the flusher, recovery, retention, snapshots and voter sets."""

from __future__ import annotations

from tests.mutants.plant import Mutant

STORAGE: tuple[Mutant, ...] = ()
