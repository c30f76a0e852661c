"""Tables of these tests lie on a local path, and lose no power."""

from __future__ import annotations

import pytest

from contract.file_faults import without_sync


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sync(monkeypatch)
