"""SET, DELETE, APPEND, SUBTRACT, and all configs at once: what a topic has afterwards, and what is refused."""

from __future__ import annotations

import pytest

from configkit import around
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.replica.configs.changes import Change, Operation, altered, replaced, require_once, require_same_log

SET, DELETE, APPEND, SUBTRACT = Operation
BEFORE = {"retention.ms": "5", "segment.bytes": "20000"}


def test_changes_leave_what_they_do_not_name() -> None:
    after = altered(BEFORE, [Change("retention.ms", SET, "9"), Change("retention.bytes", SET, " 1 ")], around())
    assert after == {"retention.ms": "9", "segment.bytes": "20000", "retention.bytes": "1"}
    assert altered(after, [Change("retention.ms", DELETE), Change("max.message.bytes", DELETE)], around()) == {
        "segment.bytes": "20000",
        "retention.bytes": "1",
    }
    assert BEFORE == {"retention.ms": "5", "segment.bytes": "20000"}
    assert altered(BEFORE, [], around()) == BEFORE


def test_all_at_once_leaves_nothing_else() -> None:
    assert replaced([("retention.ms", "+9"), ("cleanup.policy", "delete")], around()) == {
        "cleanup.policy": "delete",
        "retention.ms": "9",
    }
    assert replaced([], around()) == {}


@pytest.mark.parametrize(
    ("operation", "value", "after"),
    [
        (APPEND, "delete", "delete"),
        (APPEND, "", "delete"),
        (APPEND, "compact", "compact,delete"),
        (SUBTRACT, "compact", "delete"),
        (SUBTRACT, "", "delete"),
    ],
)
@pytest.mark.parametrize("before", [{}, {"cleanup.policy": "delete"}])
def test_a_list_is_changed_by_its_entries(before: dict[str, str], operation: Operation, value: str, after: str) -> None:
    """What the topic does not say stands as the default."""
    assert altered(before, [Change("cleanup.policy", operation, value)], around()) == {"cleanup.policy": after}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change("cleanup.policy", APPEND, "keep"), "accepted is delete, compact"),
        (Change("cleanup.policy", SUBTRACT, "delete"), "accepted is delete"),
        (Change("retention.ms", APPEND, "1"), "Can't APPEND to key retention.ms because its type is not LIST."),
        (Change("retention.ms", SUBTRACT, "1"), "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        (Change("color", SET, "red"), "color is not known here"),
        (Change("color", APPEND, "red"), "color is not known here"),
        (Change("color\nred", SET, "red"), r"topic config 'color\\nred' is not known here"),
        (Change("color\nred", DELETE), r"topic config 'color\\nred' is not known here"),
        (Change("segment.ms", SET, "1\n2"), r"topic config segment.ms='1\\n2': accepted is a number"),
        (Change("color", DELETE), "color is not known here"),
        (Change("retention.ms", SET, "-5"), "retention.ms=-5: accepted is"),
    ],
)
def test_a_change_that_is_refused(change: Change, why: str) -> None:
    with pytest.raises(RequestRejected, match=why) as caught:
        altered(BEFORE, [Change("retention.bytes", SET, "1"), change], around())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_what_another_release_has_set_stays_and_can_be_deleted() -> None:
    before = {"color": "red", "retention.ms": "soon"}
    assert altered(before, [Change("segment.ms", SET, "5")], around()) == {**before, "segment.ms": "5"}
    assert altered(before, [Change("color", DELETE)], around()) == {"retention.ms": "soon"}
    with pytest.raises(RequestRejected, match="color is not known here"):
        altered(before, [Change("color", SET, "blue")], around())
    assert altered(before, [Change("local.retention.ms", SET, "5")], around(is_tiered=True))["local.retention.ms"] == "5"


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ([("retention.ms", "1"), ("retention.ms", "1")], "Error due to duplicate config keys: retention.ms$"),
        ([("segment.ms", "1"), ("color\nred", "1"), ("color\nred", "2")], r"duplicate config keys: 'color\\nred'$"),
        ([("color\nred", None)], r"Null value not supported for : 'color\\nred'$"),
        ([("retention.ms", "1"), ("segment.ms", None)], "Null value not supported for : segment.ms"),
    ],
)
def test_a_name_comes_once_and_with_a_value(configs: list[tuple[str, str | None]], why: str) -> None:
    with pytest.raises(RequestRejected, match=why) as caught:
        require_once(configs)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


# --- local retention and the whole ---

LOCAL, WHOLE = "local.retention.ms", "retention.ms"


@pytest.mark.parametrize("value", ["-2", "60"])
def test_without_a_tier_local_disks_keep_all(value: str) -> None:
    assert replaced([(LOCAL, value), (WHOLE, "60")], around())[LOCAL] == value


@pytest.mark.parametrize("value", ["-1", "0", "59", "61"])
def test_without_a_tier_no_other_local_retention_is_accepted(value: str) -> None:
    with pytest.raises(RequestRejected, match="no remote tier") as caught:
        replaced([(LOCAL, value), (WHOLE, "60")], around())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("local", "whole", "fits"), [("59", "60", True), ("61", "60", False), ("-1", "60", False), ("9", "-1", True)]
)
@pytest.mark.parametrize("last", [LOCAL, WHOLE])
def test_with_a_tier_nothing_stays_longer_here_than_in_all(local: str, whole: str, fits: bool, last: str) -> None:
    """Whichever of the two is changed last."""
    both = {LOCAL: local, WHOLE: whole}
    before = {name: value for name, value in both.items() if name != last}
    changes = [Change(last, SET, both[last])]
    tiered = around(is_tiered=True)
    if fits:
        assert altered(before, changes, tiered) == both
        return
    with pytest.raises(RequestRejected, match=f"{LOCAL}={local}: it is more than {WHOLE}={whole}"):
        altered(before, changes, tiered)


def test_the_nodes_retention_counts_where_the_topic_has_none() -> None:
    with pytest.raises(RequestRejected, match="it is more than retention\\.ms=50"):
        altered({}, [Change(LOCAL, SET, "60")], around(is_tiered=True, retention_ms=50))
    with pytest.raises(RequestRejected, match="it is more than retention\\.ms=50"):
        altered({LOCAL: "60", WHOLE: "70"}, [Change(WHOLE, DELETE)], around(is_tiered=True, retention_ms=50))


def test_a_change_of_something_else_is_not_refused_for_it() -> None:
    """The tier is gone since; the topic's limit can be changed all the same."""
    before = {LOCAL: "5", WHOLE: "60"}
    assert altered(before, [Change("segment.ms", SET, "7")], around()) == {**before, "segment.ms": "7"}
    assert altered(before, [Change(LOCAL, DELETE)], around()) == {WHOLE: "60"}


# --- compacted topics and the remote tier ------------------------------------------------------------------------------------

PLAIN, COMPACTED, BOTH = {}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(("before", "after"), [(PLAIN, COMPACTED), (BOTH, {"cleanup.policy": "delete"}), (COMPACTED, PLAIN)])
def test_with_a_tier_a_topic_stays_compacted_or_uncompacted(before: dict[str, str], after: dict[str, str]) -> None:
    with pytest.raises(
        RequestRejected, match=r"topic config cleanup\.policy=.*: this node copies topics to a remote tier"
    ) as caught:
        require_same_log(before, after, around(is_tiered=True))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert f"cleanup.policy={after.get('cleanup.policy', 'delete')}:" in caught.value.message
    require_same_log(before, after, around())


@pytest.mark.parametrize(("before", "after"), [(COMPACTED, BOTH), (BOTH, COMPACTED), (PLAIN, {"cleanup.policy": "delete"})])
def test_with_a_tier_other_changes_of_the_policy_are_taken(before: dict[str, str], after: dict[str, str]) -> None:
    require_same_log(before, after, around(is_tiered=True))
