"""Options: parsed once, refused by name. Includes the vocabulary in option_names and the words in errors."""

from __future__ import annotations

import pickle

import pytest

from pyspark_raftlake import errors, option_names
from pyspark_raftlake.offsets import OWN_TOPICS, AtOffsets, AtTimestamp, AtTimestamps, Earliest, Latest, TopicPartition
from pyspark_raftlake.options import (
    Assign,
    Consistency,
    Quorum,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Tier,
    TierOptions,
    parse_sink_options,
    parse_source_options,
)
from pyspark_raftlake.tables import TablePiece, TablePlace
from raftlake.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def source(**options: str) -> SourceOptions:
    return parse_source_options({**SERVERS, "subscribe": "t", **options})


def refused(**options: str) -> str:
    with pytest.raises(ConfigError) as raised:
        source(**options)
    return str(raised.value)


@pytest.fixture(autouse=True)
def no_default_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(option_names.SERVERS_ENVIRONMENT, raising=False)


def test_the_defaults() -> None:
    options = source()
    assert options.quorum == Quorum(bootstrap_servers="a:1,b:2", client_id="pyspark-raftlake")
    assert options.selection == Subscribe(("t",))
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.consistency is Consistency.COMMITTED
    assert options.for_stream().starting == Latest()
    assert (options.for_batch().starting, options.for_batch().ending) == (Earliest(), Latest())


def test_names_are_case_insensitive_and_values_are_trimmed() -> None:
    options = parse_source_options(
        {"KAFKA.Bootstrap.Servers": " a:1 ", "SUBSCRIBE": " t , u ,", "MaxOffsetsPerTrigger": " 5", "FAILONDATALOSS": "False"}
    )
    assert options.quorum.bootstrap_servers == "a:1"
    assert options.selection == Subscribe(("t", "u"))
    assert options.offsets_per_trigger_max == 5
    assert not options.fail_on_data_loss


def test_options_cross_to_executors_by_pickle() -> None:
    options = source(startingOffsets='{"t":{"0":1,"1":-2}}', consistency="linearizable", includeHeaders="true")
    assert pickle.loads(pickle.dumps(options)) == options


# --- where the quorum is -----------------------------------------------------------------------------------------------------


def test_the_short_name_of_the_servers() -> None:
    assert parse_source_options({"bootstrap.servers": "c:3", "subscribe": "t"}).quorum.bootstrap_servers == "c:3"


def test_two_different_quorums_are_refused() -> None:
    assert "Only one of" in refused(**{"bootstrap.servers": "c:3"})
    assert source(**{"bootstrap.servers": "a:1,b:2"}).quorum.bootstrap_servers == "a:1,b:2"


def test_no_quorum_is_refused_unless_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'kafka.bootstrap.servers' .* must be specified"):
        parse_source_options({"subscribe": "t"})
    monkeypatch.setenv(option_names.SERVERS_ENVIRONMENT, "d:4")
    assert parse_source_options({"subscribe": "t"}).quorum.bootstrap_servers == "d:4"


def test_servers_must_be_addresses() -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not host:port"):
        parse_source_options({"kafka.bootstrap.servers": "nonsense", "subscribe": "t"})


# --- what to read ------------------------------------------------------------------------------------------------------------


def test_the_ways_to_select() -> None:
    assert parse_source_options({**SERVERS, "assign": '{"t":[1,0]}'}).selection == Assign((T0, T1))
    pattern = parse_source_options({**SERVERS, "subscribePattern": "ev.*"}).selection
    assert isinstance(pattern, SubscribePattern)
    assert [topic for topic in ("events", "ev", "old-events", "prev") if pattern.matches(topic)] == ["events", "ev"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (".*", ["orders", "__raftlake", "__others"]),
        ("__.*", ["__raftlake", "__others"]),
        ("__raftlake-.*", ["__raftlake-state-a", "__raftlake-blobs"]),
        ("__raftlake.*", ["__raftlake"]),
    ],
)
def test_topics_that_raftlake_keeps_for_itself_match_only_what_begins_as_they_do(pattern: str, matches: list[str]) -> None:
    """Else a stateful query of all topics reads the changes of its own state, and changes it again, for ever."""
    topics = ("orders", "__raftlake", "__others", "__raftlake-state-a", "__raftlake-blobs")
    assert [topic for topic in topics if SubscribePattern(pattern).matches(topic)] == matches
    assert [topic for topic in topics if SubscribePattern(pattern).names(TopicPartition(topic, 0))] == matches


def test_the_topics_that_raftlake_keeps_for_itself_begin_alike() -> None:
    from raftlake.checkpoints import changes, log_blobs

    assert changes.CHANGELOG_TOPICS.startswith(OWN_TOPICS) and log_blobs.TOPIC.startswith(OWN_TOPICS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "One of the following options must be specified"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "Only one of the following options can be specified"),
        ({"subscribe": " , "}, "topics separated by commas"),
        ({"assign": "{}"}, "partitions by topic"),
        ({"assign": "t"}, "Expected e.g."),
        ({"subscribePattern": "("}, "a regular expression"),
        ({"subscribePattern": ""}, "a regular expression"),
    ],
)
def test_no_selection_or_a_wrong_one(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_source_options({**SERVERS, **options})


# --- where to begin and to end -----------------------------------------------------------------------------------------------


def test_positions() -> None:
    assert source(startingOffsets="EARLIEST").starting == Earliest()
    assert source(startingOffsets="latest").starting == Latest()
    assert source(startingOffsets='{"t":{"0":3,"1":-1}}').starting == AtOffsets({T0: 3, T1: -1})
    assert source(startingTimestamp="1700000000000").starting == AtTimestamp(1_700_000_000_000)
    assert source(startingOffsetsByTimestamp='{"t":{"0":5}}').starting == AtTimestamps({T0: 5})
    assert source(endingOffsets='{"t":{"0":3}}').ending == AtOffsets({T0: 3})
    assert source(endingTimestamp="7").ending == AtTimestamp(7)


def test_wrong_positions() -> None:
    assert "'beginning'" in refused(startingOffsets="beginning")
    assert "milliseconds since 1970" in refused(startingTimestamp="yesterday")
    assert "milliseconds since 1970" in refused(startingOffsetsByTimestamp='{"t":{"0":-1}}')
    assert "does not read: u" in refused(startingOffsets='{"u":{"0":1}}')
    assert "Only one of" in refused(startingOffsets="earliest", startingTimestamp="5")
    assert "startingOffsetsByTimestampStrategy" in refused(startingOffsetsByTimestampStrategy="guess")


def test_offsets_of_partitions_that_are_not_assigned() -> None:
    with pytest.raises(ConfigError, match="does not read: t-1"):
        parse_source_options({**SERVERS, "assign": '{"t":[0]}', "startingOffsets": '{"t":{"0":1,"1":1}}'})
    with pytest.raises(ConfigError, match="does not read: other"):
        parse_source_options({**SERVERS, "subscribePattern": "t.*", "startingOffsets": '{"other":{"0":1}}'})


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="ending offset not valid in streaming queries"):
        source(endingOffsets="latest").for_stream()
    with pytest.raises(ConfigError, match="ending timestamp not valid in streaming queries"):
        source(endingTimestamp="5").for_stream()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
        ({"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":5}}'}, "the same partitions"),
        ({"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'}, "after its endingOffsets"),
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "starting timestamp 9 is after the ending timestamp 5"),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"t":{"0":9,"1":5}}'},
            "starting timestamp 9 is after the ending timestamp 5",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":1,"1":6}}', "endingTimestamp": "5"},
            "starting timestamp 6 is after the ending timestamp 5",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":8}}', "endingOffsetsByTimestamp": '{"t":{"0":7}}'},
            "starting timestamp 8 is after the ending timestamp 7",
        ),
    ],
)
def test_what_a_batch_query_cannot_have(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        source(**options).for_batch()


def test_timestamps_of_a_batch_query_may_meet() -> None:
    source(startingTimestamp="5", endingTimestamp="5").for_batch()
    source(startingOffsetsByTimestamp='{"t":{"0":5}}', endingOffsetsByTimestamp='{"t":{"0":5}}').for_batch()


# --- the rest ----------------------------------------------------------------------------------------------------------------


def test_numbers_flags_and_durations() -> None:
    options = source(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20", maxTriggerDelay="90s", minPartitions="4")
    assert (options.offsets_per_trigger_min, options.offsets_per_trigger_max) == (10, 20)
    assert options.trigger_delay_ms_max == 90_000
    assert options.partitions_min == 4
    assert source().trigger_delay_ms_max == 15 * 60_000
    assert "maxOffsetsPerTrigger" in refused(maxOffsetsPerTrigger="0")
    assert "minPartitions" in refused(minPartitions="-1")
    assert "true or false" in refused(failOnDataLoss="yes")
    assert "a duration" in refused(maxTriggerDelay="soon")
    assert "higher than the maxOffsetsPerTrigger" in refused(minOffsetsPerTrigger="21", maxOffsetsPerTrigger="20")


def test_unknown_options_are_named_with_the_likely_one() -> None:
    assert refused(startingOffset="earliest") == "Unknown option 'startingOffset' for raftlake; did you mean 'startingOffsets'?"
    assert "did you mean 'maxOffsetsPerTrigger'" in refused(maxoffsetpertrigger="1")
    assert "did you mean 'kafka.isolation.level'" in refused(**{"kafka.isolationlevel": "read_committed"})
    assert refused(zzz="1") == "Unknown option 'zzz' for raftlake"


def test_settings_of_kafka_clients() -> None:
    assert source(**{"kafka.group.id": "g", "kafka.max.poll.records": "1", "kafka.acks": "0", "groupIdPrefix": "x"}) == source()
    assert source(**{"kafka.client.id": "me"}).quorum.client_id == "me"
    assert "auto.offset.reset" in refused(**{"kafka.auto.offset.reset": "latest"})
    assert "startingOffsets" in refused(**{"kafka.auto.offset.reset": "latest"})
    assert "PLAINTEXT only" in refused(**{"kafka.security.protocol": "SSL"})
    assert "PLAINTEXT only" in refused(**{"kafka.sasl.jaas.config": "x"})
    assert source(**{"kafka.security.protocol": "plaintext", "kafka.isolation.level": "read_committed"}) == source()
    assert source().reads_committed
    assert not source(**{"kafka.isolation.level": "read_uncommitted"}).reads_committed
    assert "read_committed" in refused(**{"kafka.isolation.level": "serializable"})


def test_consistency_and_tier() -> None:
    assert source(consistency="Linearizable").consistency is Consistency.LINEARIZABLE
    assert "committed, linearizable" in refused(consistency="strong")
    assert source(tier="auto") == source()
    assert [source(tier=mode).tier.mode for mode in ("Auto", "local", "REMOTE")] == [Tier.AUTO, Tier.LOCAL, Tier.REMOTE]
    assert "auto, local, remote" in refused(tier="cold")


def test_where_the_tables_are_and_how_their_store_is_reached() -> None:
    assert source().tier == TierOptions() and not source().tier.is_strict
    tier = source(**{"tier.uri": "s3://b/h", "tier.storage.AWS_ACCESS_KEY_ID": "me", "Tier.Storage.aws_region": "eu"}).tier
    assert (tier.uri, tier.storage) == ("s3://b/h", (("aws_access_key_id", "me"), ("aws_region", "eu")))
    assert tier.is_strict and source(tier="remote").tier.is_strict
    assert "tier.uri" in refused(**{"tier.uri": " "})
    assert "Unknown option 'tier.storage.'" in refused(**{"tier.storage.": "x"})
    assert "did you mean 'tier.uri'" in refused(**{"tier.ur": "x"})
    with pytest.raises(ConfigError, match=r"Unknown option 'tier.storage.x'"):
        parse_sink_options({**SERVERS, "tier.storage.x": "y"})


def test_secrets_of_a_store_are_in_no_text_of_the_options() -> None:
    options = source(**{"tier.storage.aws_secret_access_key": "s3cr3t"})
    place = TablePlace(uri="/t", storage=options.tier.storage)
    piece = TablePiece(place=place)
    assert "s3cr3t" not in f"{options} {place} {piece!r}" and dict(place.storage) == {"aws_secret_access_key": "s3cr3t"}


@pytest.mark.parametrize("uri", ["s3://me:s3cr3t@b/h", "az://c/h?sig=s3cr3t"])
def test_a_secret_in_a_place_is_refused_and_not_repeated(uri: str) -> None:
    said = refused(**{"tier.uri": uri})
    assert "tier.storage.<option>" in said and "s3cr3t" not in said


def test_sink_options() -> None:
    options = parse_sink_options({**SERVERS, "topic": " out ", "kafka.compression.type": "zstd", "checkpointLocation": "c"})
    assert (options.topic, options.compression) == ("out", "zstd")
    assert parse_sink_options(SERVERS).topic is None
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": " "}, "the name of a topic"),
        ({"topik": "t"}, "did you mean 'topic'"),
        ({"subscribe": "t"}, "Unknown option 'subscribe'"),
        ({"kafka.compression.type": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"realTimeDelivery": "once"}, "one of exactly-once, at-least-once"),
        ({"kafka.transactional.id": "x"}, "names the transactions"),
        ({"kafka.partitioner.class": "x"}, "partition column"),
    ],
)
def test_wrong_sink_options(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_sink_options({**SERVERS, **options})


def test_the_vocabulary_does_not_contradict_itself() -> None:
    refused_names = set(option_names.REFUSED_CLIENT_SETTINGS)
    assert not refused_names & set(option_names.CLIENT_SETTINGS_WITHOUT_EFFECT)
    assert not refused_names & set(option_names.CLIENT_SETTINGS)
    assert all(name == name.lower() for name in refused_names)


def test_missing_topics_are_named_with_what_exists() -> None:
    assert str(errors.missing_topics(["b"], ["a", "c"])) == "Topic 'b' does not exist; existing topics: a, c"
    assert str(errors.missing_topics(["b", "a"], [])) == "Topics a, b do not exist; existing topics: none"
    assert str(errors.missing_topics(["b"], ["a", "__raftlake-blobs"])) == "Topic 'b' does not exist; existing topics: a"
    assert str(errors.missing_topics(["b"], ["a", "b"])) == "Topic 'b' does not exist; existing topics: a", "it is gone by now"


def test_of_many_topics_the_closest_are_named_first_and_the_others_counted() -> None:
    existing = [f"a{number:03}" for number in range(500)] + ["flights", "flights-2013", "zoo"]
    told = str(errors.missing_topics(["fligths"], existing))
    assert told.startswith("Topic 'fligths' does not exist; existing topics: flights, flights-2013, a000, ")
    assert told.endswith("a007 and 493 more")
    assert len(told) < 200
