"""Planted bugs: the key space, the HTTP front and the client."""

from __future__ import annotations

from tests.mutants.plant import Mutant

FRONT: tuple[Mutant, ...] = ()
