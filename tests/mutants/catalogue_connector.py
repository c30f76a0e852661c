"""Planted bugs: the connector and the wire codecs."""

from __future__ import annotations

from tests.mutants.plant import Mutant

CONNECTOR: tuple[Mutant, ...] = ()
