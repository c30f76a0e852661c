"""Where DescribeConfigs says that a value comes from."""

from __future__ import annotations

from configkit import around
from raftlake.replica.configs.definitions import DEFINITIONS, ConfigType
from raftlake.replica.configs.described import Described, Source, Synonym, described


def one(name: str, configs: dict[str, str], **settings: int) -> Described:
    (found,) = [each for each in described(configs, around(**settings)) if each.name == name]
    return found


def test_a_value_comes_from_the_topic_then_the_node_then_nowhere() -> None:
    built_in = Synonym("retention.ms", "-1", Source.DEFAULT)
    of_node = Synonym("retention.ms", "50", Source.STATIC_BROKER)
    of_topic = Synonym("retention.ms", "7", Source.TOPIC)
    for configs, settings, synonyms in (
        ({}, {}, (built_in,)),
        ({}, {"retention_ms": 50}, (of_node, built_in)),
        ({"retention.ms": "7"}, {"retention_ms": 50}, (of_topic, of_node, built_in)),
        ({"retention.ms": "7"}, {}, (of_topic, built_in)),
    ):
        found = one("retention.ms", configs, **settings)
        assert found.synonyms == synonyms
        assert (found.value, found.source) == (synonyms[0].value, synonyms[0].source)


def test_a_setting_of_the_node_is_named_as_the_node_names_it() -> None:
    found = one("segment.bytes", {}, segment_bytes=50_000)
    assert found.synonyms[0] == Synonym("log.segment.bytes", "50000", Source.STATIC_BROKER)
    assert one("max.message.bytes", {}).synonyms == (Synonym("message.max.bytes", "8388608", Source.DEFAULT),)
    assert one("min.insync.replicas", {}).source is Source.DEFAULT


def test_all_configs_come_by_name_with_types_and_documentation() -> None:
    found = described({"color": "red"}, around())
    assert [each.name for each in found] == sorted([*DEFINITIONS, "color"])
    types = {each.name: each.type for each in found}
    assert types["cleanup.policy"] is ConfigType.LIST and types["retention.ms"] is ConfigType.LONG
    assert types["segment.bytes"] is ConfigType.INT
    assert all(each.documentation for each in found if each.name != "color")


def test_what_another_release_has_set_is_shown() -> None:
    assert one("color", {"color": "red"}).synonyms == (Synonym("color", "red", Source.TOPIC),)
