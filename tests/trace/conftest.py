"""`pytest tests/trace --rewrite` writes what happens now into the traces; review the diff like code."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="rewrite the golden traces instead of comparing with them")


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    # A run from the repository root loads this file too late to know the option.
    return bool(request.config.getoption("--rewrite", default=False))
