"""Planted bugs fit the code as it is, and planting one changes what is imported. `make mutants` proves that each is found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from tests.mutants.catalogue import MUTANTS, SAMPLE, find
from tests.mutants.plant import Edit, Mutant, TargetGone, check, plant

NAMES = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """Where this fails, the code under a mutant has changed: write the mutant anew for what stands there now."""
    check(mutant)


def test_mutants_have_names_and_sources_of_their_own() -> None:
    assert len(NAMES) == len(set(NAMES)) > 50
    assert all(mutant.source for mutant in MUTANTS)
    assert set(SAMPLE) < set(NAMES)
    with pytest.raises(LookupError, match="no mutant"):
        find("nonsense")


def test_planting_changes_the_module_that_is_imported_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_module.py").write_text("def answer():\n    return 41 + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    plant(Mutant(name="m", source="here", edits=(Edit("planted_module", "41 + 1", "41 - 1"),)))
    module = importlib.import_module("planted_module")
    assert module.answer() == 40
    del sys.modules["planted_module"]


@pytest.mark.parametrize("text", ["gone", "return"])
def test_a_target_that_is_not_there_once_is_told(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_module.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TargetGone, match="other_module"):
        check(Mutant(name="m", source="here", edits=(Edit("other_module", text, "x"),)))


def test_a_module_that_is_imported_already_cannot_be_planted() -> None:
    mutant = MUTANTS[0]
    importlib.import_module(mutant.edits[0].module)
    with pytest.raises(AssertionError, match="imported before"):
        plant(mutant)
