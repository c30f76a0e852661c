"""Attacks are made against processes that the tests of one module share; each test gets them besieged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from siegekit import Siege

from raftlake import LocalQuorum


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """A quorum that is never attacked, measured beside those that are."""
    with LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("twin")) as quorum:
        yield quorum


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory, twin: LocalQuorum) -> Iterator[Siege]:
    """Three nodes with the settings that a user gets, and their measures before the first attack of the module."""
    with LocalQuorum(nodes=3, data_dir=tmp_path_factory.mktemp("besieged")) as quorum:
        yield Siege.of(quorum, twin)
