"""The contract of the remote tier on Delta tables of a local path, without the worker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.file_faults import without_sync
from contract.tier_contract import TierContract
from tierkit import DeltaWorld, local_settings


class TestDeltaTier(TierContract):
    """Nodes are DeltaTiers in this process."""

    def make_world(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaWorld:
        without_sync(monkeypatch)
        return DeltaWorld(local_settings(place))
