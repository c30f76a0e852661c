"""The contract of the remote tier on Delta tables of a local path, without the worker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.file_faults import without_sync
from contract.tier_adoption_contract import TierAdoptionContract
from contract.tier_contract import TierContract
from contract.tier_foreign_contract import TierForeignContract
from contract.tier_history_contract import TierHistoryContract
from contract.tier_search_contract import TierSearchContract
from tierkit import DeltaWorld, local_settings


class TestDeltaTier(TierContract, TierHistoryContract, TierSearchContract, TierAdoptionContract, TierForeignContract):
    """Nodes are DeltaTiers in this process."""

    def make_world(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaWorld:
        without_sync(monkeypatch)
        return DeltaWorld(local_settings(place))
