"""Which topic has a name now: the quorum is asked where an id is news, and a node that lags is not believed."""

from __future__ import annotations

import pytest

from connector.fakekeys import FakeKeys
from pyspark_raftlake.topic_ids import PREFIX, SINGLE_MAX, TopicIds
from raftlake.errors import ErrorCode, RequestRejected
from raftlake.kv.keys import TOPICS_PREFIX, topic_key

OLD, NEW, THIRD = (bytes([number]) * 16 for number in (1, 2, 3))


def ids_of(topics: dict[str, bytes]) -> tuple[FakeKeys, TopicIds]:
    keys = FakeKeys(topics=topics)
    return keys, TopicIds(keys)


def test_the_keys_are_those_of_the_nodes() -> None:
    assert PREFIX == TOPICS_PREFIX and topic_key("t") == PREFIX + "t"


@pytest.mark.parametrize("told", [OLD, NEW])
def test_the_first_id_is_that_of_the_quorum_whatever_a_node_tells(told: bytes) -> None:
    _, ids = ids_of({"t": NEW})
    assert ids.get("t") is None
    ids.hear({"t": told})
    assert ids.get("t") == NEW


def test_only_an_id_that_is_news_is_asked_for() -> None:
    keys, ids = ids_of({"t": NEW, "u": OLD})
    ids.hear({"t": NEW, "u": OLD})
    assert keys.topics_asked == [topic_key("t"), topic_key("u")]
    ids.hear({"t": NEW, "u": OLD})
    assert keys.topics_asked == [topic_key("t"), topic_key("u")]
    ids.hear({"t": OLD, "u": OLD})
    assert keys.topics_asked == [topic_key("t"), topic_key("u"), topic_key("t")]
    assert ids.get("t") == NEW, "the node lags"
    keys.topics["t"] = THIRD
    ids.hear({"t": THIRD})
    assert ids.get("t") == THIRD, "created again"


def test_a_topic_that_is_being_deleted_keeps_its_id() -> None:
    keys, ids = ids_of({"t": NEW})
    ids.hear({"t": NEW})
    del keys.topics["t"]
    ids.hear({"t": OLD})
    assert ids.get("t") == NEW
    ids.hear({"u": OLD})
    assert ids.get("u") == OLD, "a later one of the name is to be told from it"
    keys.topics["u"] = NEW
    ids.hear({"u": NEW})
    assert ids.get("u") == NEW


@pytest.mark.parametrize(("count", "questions"), [(SINGLE_MAX, SINGLE_MAX), (SINGLE_MAX + 1, 10)])
def test_many_topics_are_looked_up_in_one_list(count: int, questions: int) -> None:
    """The pages of the fake have two keys."""
    topics = {f"t{number:02}": bytes([number]) * 16 for number in range(1, 21)}
    keys, ids = ids_of(topics)
    told = dict.fromkeys(list(topics)[:count], bytes(16))
    ids.hear(told)
    assert {topic: ids.get(topic) for topic in told} == {topic: topics[topic] for topic in told}
    assert len(keys.topics_asked) == questions
    assert ids.get("t20") is None, "nobody has told of it"


def test_a_question_that_fails_leaves_what_was_known() -> None:
    keys, ids = ids_of({"t": NEW})
    ids.hear({"t": NEW})
    keys.topics_failures = [RequestRejected(ErrorCode.REQUEST_TIMED_OUT, "no answer")]
    with pytest.raises(RequestRejected, match="no answer"):
        ids.hear({"t": OLD})
    assert ids.get("t") == NEW
    ids.hear({"t": OLD})
    assert ids.get("t") == NEW


def test_nodes_are_believed_where_a_wrong_id_is_an_error() -> None:
    ids = TopicIds(None)
    ids.hear({"t": NEW})
    ids.hear({"t": OLD})
    assert ids.get("t") == OLD
