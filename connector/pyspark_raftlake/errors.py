"""Every error of the connector, worded in one place.

Options that cannot be used are `ConfigError`, as everywhere in raftlake. What only a running query meets has classes of its
own. Texts follow those of Spark's Kafka connector where users know them from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from pyspark_raftlake.offsets import OWN_TOPICS
from raftlake.errors import ConfigError, RaftlakeError

HOW_TO_GO_ON = (
    "Some data may have been lost because they are not available in raftlake any more; either the data was aged out by "
    "retention or the topic may have been deleted before all the data in the topic was processed. If you don't want your "
    'query to fail on such cases, set the source option "failOnDataLoss" to "false".'
)

#: What one line of an error may have.
LINE_CHARACTERS_MAX = 250
#: Columns of rows that an error lists.
COLUMNS_SHOWN_MAX = 10
#: Topics that an error lists, those with a similar name first.
TOPICS_SHOWN_MAX = 10


class QuorumUnavailable(RaftlakeError):
    """The quorum was away for longer than the query may wait."""

    def __init__(self, what: str, tries: int, waited_ms: float, cause: Exception, setting: str) -> None:
        count = f"{tries} {'try' if tries == 1 else 'tries'}, as '{setting}' says"
        told = f"the quorum could not be asked for {what} in {waited_ms / 1000:.0f} s ({count}): {cause}"
        super().__init__(told if len(told) <= LINE_CHARACTERS_MAX else told[: LINE_CHARACTERS_MAX - 1] + "…")


class SinkFenced(RaftlakeError):
    """A newer run of the query owns the sink, so nothing became visible."""

    def __init__(self, app: str, run: str, owner: str, batch: int | None = None) -> None:
        what = "nothing" if batch is None else f"nothing of batch {batch}"
        super().__init__(
            f"run {run} no longer owns the sink of {app}, and {what} became visible. The owner is {owner}. "
            "The run that wrote last goes on; to go on here instead, start the query here again"
        )


class SinkFailed(RaftlakeError):
    """A batch could not become visible, and did not."""


class DataLoss(RaftlakeError):
    """Offsets that the query has to read are not there any more, and `failOnDataLoss` is true."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. {HOW_TO_GO_ON}")


class IncompleteRange(RaftlakeError):
    """A planned range could not be read to its end; the task fails, and Spark tries it again."""


class LostRows(RaftlakeError):
    """A table does not show an offset any more that it has to hold: it begins later now, or somebody removed it."""

    def __init__(self, message: str, start: int | None) -> None:
        super().__init__(message)
        #: Where the table begins; None: it shows nothing of the partition.
        self.start = start


class InvalidRow(RaftlakeError):
    """A row that the sink was given cannot become a record."""


class InvalidSchema(RaftlakeError):
    """The columns of the rows do not suit the sink, or a schema was given to the source, which has a fixed one."""


class UnsupportedLimit(RaftlakeError):
    """Spark asks for a limit of a batch that the source does not know."""


class UnsupportedMode(RaftlakeError):
    """The query asks for an output mode that an append-only log does not have."""


# --- options -------------------------------------------------------------------------------------------------------------


def unknown_option(name: str, known: Iterable[str]) -> ConfigError:
    canonical = {option.lower(): option for option in known}
    close = get_close_matches(name.lower(), canonical, n=1, cutoff=0.6)
    hint = f"; did you mean '{canonical[close[0]]}'?" if close else ""
    return ConfigError(f"Unknown option '{name}' for raftlake{hint}")


def unsupported_option(name: str, reason: str) -> ConfigError:
    return ConfigError(f"Option '{name}' is not supported: {reason}")


def wrong_value(name: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"Option '{name}' is '{value}', expected {expected}")


def missing_servers() -> ConfigError:
    return ConfigError("Option 'kafka.bootstrap.servers' (or 'bootstrap.servers') must be specified for configuring raftlake")


def no_selection() -> ConfigError:
    return ConfigError(
        "One of the following options must be specified for raftlake source: subscribe, subscribePattern, assign"
    )


def exclusive_options(names: Iterable[str]) -> ConfigError:
    return ConfigError(f"Only one of the following options can be specified for raftlake: {', '.join(names)}")


# --- rows ----------------------------------------------------------------------------------------------------------------


def missing_value(given: Iterable[str], known: Iterable[str]) -> InvalidSchema:
    """`given`: the columns of the rows; `known`: those of the sink."""
    columns = list(given)
    shown = ", ".join(columns[:COLUMNS_SHOWN_MAX]) or "none"
    if len(columns) > COLUMNS_SHOWN_MAX:
        shown += f" and {len(columns) - COLUMNS_SHOWN_MAX} more"
    canonical = {column.lower(): column for column in columns}
    close = get_close_matches("value", canonical, n=1, cutoff=0.6)
    hint = f"; did you mean '{canonical[close[0]]}'?" if close else "."
    return InvalidSchema(
        f"Required attribute 'value' not found{hint} The columns of the rows: {shown}. Those of the sink: {', '.join(known)}"
    )


# --- tables --------------------------------------------------------------------------------------------------------------


def no_table(topic: str) -> ConfigError:
    return ConfigError(
        f"Option 'tier' is 'remote', and topic {topic!r} has no remote tier: the nodes have no tier.uri. "
        "Set the option 'tier.uri' to where its table is, or 'tier' to 'auto'"
    )


def no_table_beside_the_log(topic: str, uri: str | None) -> ConfigError:
    return ConfigError(
        f"Option 'tier.uri' is '{uri}', and topic {topic!r} has no remote tier: its log does not go on where a table ends. "
        "Set 'tier' to 'remote' to read its table alone, or leave 'tier.uri' out"
    )


def foreign_table(uri: str, topic: str) -> ConfigError:
    return ConfigError(f"the table at {uri} is not that of topic {topic!r}: it has another topic id")


def unreadable_table(uri: str, topic: str, reason: Exception, option_uri: str | None = None) -> ConfigError:
    """The error that names the option, and what to do; for a warning where nobody asked for the table."""
    cause = "it takes deltalake: pip install 'raftlake[spark]'" if isinstance(reason, ImportError) else str(reason)
    cannot = f"the table of topic {topic!r} at {uri} cannot be read here: {cause}"
    if option_uri is not None:
        return ConfigError(f"Option 'tier.uri' is '{option_uri}', and {cannot}")
    return ConfigError(
        f"{cannot}. The nodes serve its records unless 'tier' is 'remote'. Set the option 'tier.uri' where this machine sees "
        "the store under another path, and 'tier.storage.<option>' to what the store needs"
    )


# --- topics and offsets --------------------------------------------------------------------------------------------------


def missing_topics(missing: Iterable[str], existing: Iterable[str]) -> ConfigError:
    names = sorted(missing)
    found = sorted({topic for topic in existing if not topic.startswith(OWN_TOPICS)} - set(names))
    close = list(dict.fromkeys(topic for name in names for topic in get_close_matches(name, found, n=3, cutoff=0.6)))
    shown = [*close, *(topic for topic in found if topic not in close)][:TOPICS_SHOWN_MAX]
    listed = ", ".join(shown) or "none"
    if len(found) > len(shown):
        listed += f" and {len(found) - len(shown)} more"
    subject = f"Topic '{names[0]}' does not exist" if len(names) == 1 else f"Topics {', '.join(names)} do not exist"
    return ConfigError(f"{subject}; existing topics: {listed}")


def missing_partitions(option: str, missing: Iterable[object], count_by_topic: dict[str, int]) -> ConfigError:
    counts = ", ".join(f"{topic} has {count}" for topic, count in sorted(count_by_topic.items()))
    names = ", ".join(str(partition) for partition in missing)
    return ConfigError(f"Option '{option}' names partitions that do not exist: {names} (numbers of partitions: {counts})")


def incomplete_offsets(option: str, specified: Iterable[object], assigned: Iterable[object]) -> ConfigError:
    return _incomplete(f"If {option} contains specific offsets", " Use -1 for latest, -2 for earliest.", specified, assigned)


def incomplete_timestamps(option: str, specified: Iterable[object], assigned: Iterable[object]) -> ConfigError:
    return _incomplete(f"If {option} is given", "", specified, assigned)


def _incomplete(condition: str, hint: str, specified: Iterable[object], assigned: Iterable[object]) -> ConfigError:
    return ConfigError(
        f"{condition}, you must specify all TopicPartitions.{hint} "
        f"Specified: {', '.join(map(str, specified))}. Assigned: {', '.join(map(str, assigned))}"
    )


def no_longer_named(option: str, topics: Iterable[str]) -> str:
    """What is said of topics that a checkpoint has read, and the option of the restarted query does not name."""
    return (
        f"Option '{option}' was changed: it no longer names all of {', '.join(topics)}, which the checkpoint of this query has "
        "read. Their offsets would be dropped"
    )


def no_offset_for_timestamp(partition: object, timestamp_ms: int) -> ConfigError:
    return ConfigError(f"No offset matched from request of topic-partition {partition} and timestamp {timestamp_ms}.")


def start_time_after_end_time(start_ms: int, end_ms: int) -> ConfigError:
    return ConfigError(f"The starting timestamp {start_ms} is after the ending timestamp {end_ms}")


def end_before_start(partition: object, start: int, end: int) -> ConfigError:
    return ConfigError(f"The query's starting position of {partition} is offset {start}, after its ending position {end}")


def end_beyond_the_log(partition: object, end: int, log_end: int) -> ConfigError:
    return ConfigError(
        f"endingOffsets for {partition} is {end}, but the log ends at {log_end}. "
        'With the source option "failOnDataLoss" set to "false" the query ends there'
    )


def start_after_end(partition: object, start: int, end: int) -> ConfigError:
    return ConfigError(f"startingOffsets for {partition} is {start}, after its endingOffsets {end}")
