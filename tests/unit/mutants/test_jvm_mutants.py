"""The bugs that are planted in the jar: each fits the sources as they are, and has tests that are there."""

from __future__ import annotations

import pytest
from tests.jvm_mutants.__main__ import ALL
from tests.jvm_mutants.catalogue import PACKAGE, TEST, JvmMutant


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_it_can_be_planted(mutant: JvmMutant) -> None:
    assert mutant.mutated() != mutant.path.read_text(encoding="utf-8")
    for name in mutant.tests:
        assert (TEST / PACKAGE / f"{name.replace('.', '/')}.java").exists(), name


def test_names_are_given_once() -> None:
    names = [mutant.name for mutant in ALL]
    assert len(set(names)) == len(names)
