"""Names alone: which group a name or an id stands for, and why one stands for none."""

from __future__ import annotations

from enginekit import ORDERS, Ground
from raftlake.errors import ErrorCode
from raftlake.ports.peer_rpcs import GroupId
from raftlake.replica.config import METADATA_GROUP, METADATA_TOPIC
from raftlake.replica.names import NO_TOPIC_ID, Names
from raftlake.replica.reserved import Topic

OTHER_ID = b"x" * 16


def made() -> Names:
    return Names(Ground().engine.config)


def test_the_quorums_own_log_is_known_from_the_start_and_is_no_topic_for_clients() -> None:
    names = made()
    assert names.resolve_group(METADATA_TOPIC, 0) == METADATA_GROUP
    assert names.resolve_topic(METADATA_GROUP.topic_id) == METADATA_TOPIC
    assert names.topic(METADATA_TOPIC) is names.own and names.all() == []


def test_a_topic_is_known_by_name_and_id_until_it_is_removed() -> None:
    names, orders = made(), Topic("orders", ORDERS.topic_id, 2)
    names.add(orders)
    names.add(Topic("a", OTHER_ID, 1))
    assert [topic.name for topic in names.all()] == ["a", "orders"]
    assert names.group_of("orders", None, 0) == names.group_of(None, ORDERS.topic_id, 0) == ORDERS
    names.remove(orders)
    assert names.topic("orders") is None and names.by_id(ORDERS.topic_id) is None
    assert names.resolve_group("orders", 0) == GroupId("orders", 0, NO_TOPIC_ID)


def test_a_directory_makes_its_group_known_before_the_topics_key_does() -> None:
    names = made()
    names.found([ORDERS])
    assert names.resolve_group("orders", 0) == ORDERS
    assert names.resolve_topic(ORDERS.topic_id) == "orders"
    assert names.topic("orders") is None, "no key has been replayed"
    names.add(Topic("orders", OTHER_ID, 1))
    assert names.resolve_group("orders", 0).topic_id == OTHER_ID, "the key says which incarnation lives"


def test_a_directory_holds_one_incarnation() -> None:
    names, again = made(), GroupId("orders", 0, OTHER_ID)
    names.opened(ORDERS)
    assert names.is_taken(again) and not names.is_taken(ORDERS)
    assert names.has_directory(ORDERS) and not names.has_directory(again)
    assert names.directories() == [ORDERS]
    names.deleted(ORDERS)
    assert not names.is_taken(again) and names.directories() == []


def test_a_directory_that_was_made_is_known_unless_another_incarnation_has_it() -> None:
    names, again = made(), GroupId("orders", 0, OTHER_ID)
    names.opened(ORDERS)
    names.prepared([again, GroupId("a", 0, OTHER_ID)])
    assert names.has_directory(ORDERS) and names.is_taken(again)
    assert names.has_directory(GroupId("a", 0, OTHER_ID))
    names.deleted(ORDERS)
    names.prepared([again])
    names.opened(again)
    assert names.has_directory(again) and names.is_taken(ORDERS)


def test_a_name_of_another_incarnation_is_told_apart_from_an_unknown_name() -> None:
    names = made()
    names.add(Topic("orders", OTHER_ID, 1))
    assert names.why_unknown(ORDERS) is ErrorCode.UNKNOWN_TOPIC_ID
    assert names.why_unknown(GroupId("orders", 7, OTHER_ID)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert names.why_unknown(GroupId("none", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
