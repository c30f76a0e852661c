"""The quorum's keys against the table: the same copies, also while copies go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from historykit import END, SEGMENTS, at_rest, fill, keys_of, rewrite, root_of, told, verify, with_value
from raftlake.kv.strict_json import Refused
from raftlake.ports.tier import RemoteSegment
from raftlake.raft.types import Epoch, NodeId, Offset
from raftlake.tier.calls import TierSettings
from raftlake.tier.entries import Copying, Deleting, PartitionKeys, Tiered
from raftlake.tier.findings import Finding, Findings, Kind
from raftlake.tier.key_checks import Shown, check_keys
from raftlake.tier.verify import QuorumKeys
from tierkit import local_settings


@pytest.fixture
def settings(tmp_path: Path) -> TierSettings:
    return local_settings(tmp_path)


def whats(findings: Sequence[Finding]) -> str:
    return "; ".join(finding.what for finding in findings)


def test_keys_that_agree_are_no_finding_before_and_after_optimize(settings: TierSettings) -> None:
    keys = at_rest(keys_of(fill(settings)))
    assert verify(settings, keys) == []
    DeltaTable(root_of(settings)).optimize.z_order(["timestamp"])
    assert verify(settings, keys) == []


def test_the_newest_segments_are_enough(settings: TierSettings) -> None:
    keys = keys_of(fill(settings))
    few = PartitionKeys(keys.tiered, dict(list(keys.segments.items())[-2:]))
    assert verify(settings, at_rest(few)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start_offset": Offset(1)}, "first offset: the quorum's key says 1, and the table shows 0"),
        ({"segments": 5}, "number of copies: the quorum's key says 5, and the table shows 4"),
        ({"size": 7}, "bytes: the quorum's key says 7, and the table shows"),
        ({"incarnation": 1}, "incarnation: the quorum's key says 1, and the table shows 0"),
        ({"end_offset": Offset(22)}, f"the table ends at 22, and it ends at {END}"),
        ({"end_offset": Offset(END + 1)}, f"the table ends at {END + 1}, and it ends at {END}"),
    ],
)
def test_a_key_that_says_something_else_is_found(settings: TierSettings, change: dict[str, int], words: str) -> None:
    keys = keys_of(fill(settings))
    assert isinstance(keys.tiered, Tiered)
    wrong = PartitionKeys(replace(keys.tiered, **change), keys.segments)  # type: ignore[arg-type]
    (finding,) = verify(settings, at_rest(wrong))
    assert finding.kind is Kind.KEYS and words in finding.what and "rebuild-metadata" in finding.line()
    assert "verify again" not in finding.what


def test_a_table_that_a_recovery_takes_over_may_be_ahead_of_its_key(settings: TierSettings) -> None:
    keys = keys_of(fill(settings))
    assert isinstance(keys.tiered, Tiered)
    before = PartitionKeys(replace(keys.tiered, incarnation=-1), keys.segments)
    (finding,) = verify(settings, at_rest(before))
    assert "says -1, and the table shows 0 (right after a recovery: verify again)" in finding.what


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"size": 7}, Kind.FILE, "the quorum's key says 7 bytes"),
        ({"crc": 7}, Kind.FILE, "with the checksum 0x00000007"),
        ({"segment_id": "other"}, Kind.KEYS, "the offsets 13 to 21, and the table shows no row of it"),
        ({"end_offset": Offset(20)}, Kind.KEYS, "the offsets 13 to 19, and the table shows 13 to 21"),
        (
            {"epochs": ((Epoch(5), Offset(13)),)},
            Kind.KEYS,
            "the epochs 5 from 13 on, and the rows have 5 from 13 on, 8 from 19 on",
        ),
    ],
)
def test_a_key_of_a_copy_that_says_something_else_is_found(
    settings: TierSettings, change: dict[str, int], kind: Kind, words: str
) -> None:
    made = fill(settings)
    keys = keys_of(made)
    segments = {**keys.segments, 13: replace(made[2], **change)}  # type: ignore[arg-type]
    (finding,) = verify(settings, at_rest(PartitionKeys(keys.tiered, segments)))
    assert (finding.kind, finding.offset, finding.file) == (kind, 13, "partition=2/p2s2.parquet") and words in finding.what


def test_an_epoch_that_somebody_raised_is_found_by_the_key(settings: TierSettings) -> None:
    """A CRC does not cover the epoch, and epochs ascend here all the same."""
    keys = keys_of(fill(settings))

    def change(rows: object) -> object:
        for offset in (22, 23, 24):
            rows = with_value(rows, "leader_epoch", offset, 9)
        return rows

    rewrite(settings, change)
    # Nothing but that the table was changed, since one of its batches is compressed.
    assert [finding.kind for finding in verify(settings)] == [Kind.CHANGED]
    assert "the epochs 8 from 22 on, and the rows have 9 from 22 on" in whats(verify(settings, at_rest(keys)))


def test_keys_that_cannot_be_read_are_told(settings: TierSettings) -> None:
    keys = keys_of(fill(settings))
    bad = Refused("no JSON object")
    assert whats(verify(settings, at_rest(PartitionKeys(bad)))) == "the quorum's key cannot be read: no JSON object"
    some = PartitionKeys(keys.tiered, {**keys.segments, 7: bad})
    (finding,) = verify(settings, at_rest(some))
    assert finding.offset == 7 and "key of this copy cannot be read: no JSON object" in finding.what


def test_rows_without_a_key_and_a_key_without_rows(settings: TierSettings) -> None:
    keys = keys_of(fill(settings))
    nothing = PartitionKeys()
    (finding,) = verify(settings, at_rest(nothing))
    assert "no key of it, and the table shows rows" in finding.what
    (finding,) = verify(settings, QuorumKeys({2: keys, 5: keys}, {2: keys, 5: keys}))
    assert finding.partition == 5 and f"offsets up to {END} are copied, there is no row" in finding.what
    begun = PartitionKeys(Tiered(start_offset=Offset(3), end_offset=Offset(3)))
    assert verify(settings, QuorumKeys({2: keys}, {2: keys, 5: begun})) == []


def test_a_lost_file_is_told_once(settings: TierSettings) -> None:
    """What the keys say of it besides is no other fault."""
    keys = keys_of(fill(settings))
    for number in range(len(SEGMENTS)):
        path = root_of(settings) / f"partition=2/p2s{number}.parquet"
        content = path.read_bytes()
        path.unlink()
        assert told(verify(settings, at_rest(keys))) == [("file", SEGMENTS[number][0][0])]
        path.write_bytes(content)


def tiered(end: int, copying: tuple[int, int] | None = None) -> PartitionKeys:
    way = None
    if copying is not None:
        way = Copying(
            segment_id="x",
            base_offset=Offset(copying[0]),
            end_offset=Offset(copying[1]),
            leader_epoch=Epoch(3),
            node_id=NodeId(1),
        )
    return PartitionKeys(Tiered(start_offset=Offset(0), end_offset=Offset(end), segments=1, copying=way))


def shown(end: int) -> Shown:
    return Shown(incarnation=0, start=0, end=end, segments=1, size=0, files={}, spans={})


@pytest.mark.parametrize(
    ("before", "after", "end", "is_well"),
    [
        (tiered(10), tiered(10), 10, True),
        # Between a copy and its COPY_FINISHED.
        (tiered(10, (10, 20)), tiered(10, (10, 20)), 20, True),
        (tiered(10), tiered(10, (10, 20)), 20, True),
        # The copy that was under way is finished, and its successor not begun.
        (tiered(10, (10, 20)), tiered(20), 20, True),
        (tiered(10), tiered(30), 20, True),
        (PartitionKeys(), tiered(30), 20, True),
        (tiered(10), tiered(10), 20, False),
        (tiered(10), tiered(10), 5, False),
        (tiered(10, (10, 20)), tiered(10, (10, 20)), 15, False),
        (tiered(10), tiered(30), 40, False),
        (tiered(10), tiered(30), 9, False),
    ],
)
def test_copies_that_go_on_are_no_fault(before: PartitionKeys, after: PartitionKeys, end: int, is_well: bool) -> None:
    findings = Findings("t", 0)
    check_keys(findings, before, after, shown(end))
    assert (list(findings) == []) is is_well


def test_a_copy_that_the_table_did_not_show_yet_is_not_missed() -> None:
    segment = RemoteSegment(
        segment_id="late",
        base_offset=Offset(10),
        end_offset=Offset(20),
        leader_epoch=Epoch(3),
        epochs=((Epoch(3), Offset(10)),),
        timestamp_ms_max=1,
        log_bytes=1,
        size=1,
        crc=1,
        file="partition=0/late.parquet",
    )
    findings = Findings("t", 0)
    after = PartitionKeys(tiered(20).tiered, {10: segment})
    check_keys(findings, tiered(10), after, shown(10))
    assert list(findings) == []


DELETING = Deleting(leader_epoch=Epoch(8), node_id=NodeId(1))


@pytest.mark.parametrize("seen", [(0, 1), (1, 1), (1, 2), (0, 2)])
def test_while_old_files_are_removed_the_table_may_begin_before_the_keys(settings: TierSettings, seen: tuple[int, int]) -> None:
    """The table still shows the copies below 13. Their keys stand until DELETE_FINISHED."""
    keys = keys_of(fill(settings))
    assert isinstance(keys.tiered, Tiered)
    removing = keys.tiered.start_deleting(Offset(13), DELETING)
    states = (keys.tiered, removing, replace(removing, deleting=None, segments=2, size=5))
    before, after = (PartitionKeys(states[index], keys.segments) for index in seen)
    assert verify(settings, QuorumKeys({2: before}, {2: after})) == []


def test_a_table_that_begins_behind_the_keys_has_lost_something(settings: TierSettings) -> None:
    keys = keys_of(fill(settings))
    assert isinstance(keys.tiered, Tiered)
    before = replace(keys.tiered, start_offset=Offset(0), deleting=DELETING)
    shown = Shown(incarnation=0, start=13, end=END, segments=2, size=5, files={}, spans={})
    findings = Findings("t", 2)
    check_keys(findings, PartitionKeys(before), PartitionKeys(before), shown)
    assert "first offset: the quorum's key says 0, and the table shows 13" in whats(list(findings))


@pytest.mark.parametrize(("start", "is_found"), [(0, True), (4, False)])
def test_a_rewritten_file_may_begin_before_the_keys_start_and_not_behind_it(start: int, is_found: bool) -> None:
    """It goes as a whole when the last of its rows has ended."""
    tiered = Tiered(start_offset=Offset(start), end_offset=Offset(9), segments=2, size=5)
    keys = PartitionKeys(tiered)
    for size in (None, 5):
        findings = Findings("t", 2)
        check_keys(findings, keys, keys, Shown(incarnation=0, start=2, end=9, segments=None, size=size, files={}, spans={}))
        assert bool(list(findings)) is (is_found or size is not None)


# --- where another program has changed the table ---------------------------------------------------------------------------


def test_keys_are_not_to_be_made_anew_from_a_table_that_others_have_changed(settings: TierSettings) -> None:
    """Whoever goes by the last line would give up the rows that RESTORE has taken out."""
    keys = at_rest(keys_of(fill(settings)))
    DeltaTable(root_of(settings)).restore(2)
    (finding,) = verify(settings, keys)
    assert finding.kind is Kind.END
    assert "raftlake tier undo" in finding.line() and "rebuild-metadata" not in finding.line()


def test_what_the_keys_alone_tell_of_a_change_is_told_with_what_takes_it_back(settings: TierSettings) -> None:
    """The first files are gone: what is left is one run, and the tier's last commit tells its end."""
    keys = at_rest(keys_of(fill(settings)))
    DeltaTable(root_of(settings)).delete(f'"offset" < {SEGMENTS[1][0][0]}')
    (finding,) = [each for each in verify(settings, keys) if each.kind is not Kind.GAP]
    assert finding.kind is Kind.CHANGED and "DELETE" in finding.what and "first offset" in finding.what
    assert "raftlake tier undo" in finding.line() and "rebuild-metadata" not in finding.line()
