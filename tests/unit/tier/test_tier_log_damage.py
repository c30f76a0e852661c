"""A table whose log has a damaged commit: which file it is stands in the error."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from contract.file_faults import without_sync
from contract.tier_contract import failure, segment
from historykit import root_of
from raftlake.ports.tier import RemoteSegment, TierError, TierFailure
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.failures import TierProblem
from raftlake.tier.log_damage import unread_table
from raftlake.tier.reader import TopicHistory
from raftlake.tier.undo import Undo
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TierSettings:
    without_sync(monkeypatch)
    return local_settings(tmp_path)


@pytest.fixture
def log(settings: TierSettings) -> list[Path]:
    """The commits of a table with three copies, the oldest first."""
    tier = DeltaTier(settings)
    for name, offset in (("a", 0), ("b", 6), ("c", 12)):
        assert isinstance(tier.copy(segment(offset, name)), RemoteSegment)
    return sorted((Path(root_of(settings)) / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("at", [-1, -2])
@pytest.mark.parametrize("damage", [lambda content: content[:200], lambda content: b"\xff\xfe" + content])
def test_the_commit_is_named_and_all_goes_on_once_it_is_back(
    settings: TierSettings, log: list[Path], at: int, damage: object
) -> None:
    whole = log[at].read_bytes()
    assert callable(damage)
    log[at].write_bytes(damage(whole))
    answer = DeltaTier(settings).copy(segment(18, "d"))
    assert failure(answer) is TierFailure.UNUSABLE and isinstance(answer, TierError)
    told = [answer.reason]
    for reader in (TopicHistory, Undo):
        with pytest.raises(TierProblem) as caught:
            reader(str(root_of(settings)))
        told.append(str(caught.value))
    for reason in told:
        assert f"its commit _delta_log/{log[at].name} is damaged (Kernel error: Json error: " in reason
        assert reason.endswith("): put it back from a copy of the store")
        assert "<unknown>" not in reason
    log[at].write_bytes(whole)
    assert isinstance(DeltaTier(settings).copy(segment(18, "d")), RemoteSegment)


def test_where_each_commit_is_whole_the_error_stands_alone(settings: TierSettings, log: list[Path]) -> None:
    table = str(root_of(settings))
    problem = unread_table(DeltaError("Json error: of something else"), table, {})
    assert str(problem) == f"cannot read the table {table}: Json error: of something else"
    assert problem.error.failure is TierFailure.UNKNOWN
    (Path(table) / "_delta_log" / "00.json.tmp").write_bytes(b"{")
    assert "00.json" not in str(unread_table(DeltaError("Json error"), table, {}))
    assert DeltaTable(table).version() == 3
