"""A streaming query over a quorum in memory: plans batches in the order in which Spark asks for them."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from connector.fakelog import FakeQuorum
from pyspark_raftlake.log_view import LogView
from pyspark_raftlake.offsets import TopicPartition
from pyspark_raftlake.options import SourceOptions, Tier, parse_source_options
from pyspark_raftlake.planning import LOOK_AGE_MS_MAX, StreamPlanner

ALL = ReadAllAvailable()


def options_of(**options: str) -> SourceOptions:
    selection = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "t"}
    return parse_source_options({"kafka.bootstrap.servers": "a:1", **selection, **options})


def view_of(quorum: FakeQuorum, options: SourceOptions) -> LogView:
    is_local = options.tier.mode is Tier.LOCAL
    return LogView(quorum, options.selection, options.consistency, is_local=is_local, reads_committed=options.reads_committed)


class Query:
    """One run of a streaming query over a fake quorum; `restart` begins another run from the same checkpoint."""

    def __init__(self, quorum: FakeQuorum, **options: str) -> None:
        self.quorum = quorum
        self.options = options_of(**options).for_stream()
        self.now_ms = 0.0
        self.end: dict[TopicPartition, int] | None = None
        self.restart()

    def restart(self) -> None:
        view = view_of(self.quorum, self.options)
        self.planner = StreamPlanner(view, self.options, now_ms=lambda: self.now_ms)

    def start_available_now(self) -> None:
        self.restart()
        self.planner.prepare_available_now()

    def batch(self, limit: ReadLimit | None = None) -> list[str]:
        """Plan the next batch as Spark does, a second after the last one, and return its ranges."""
        self.now_ms += LOOK_AGE_MS_MAX
        start = dict(self.planner.initial_offsets()) if self.end is None else self.end
        self.end = dict(self.planner.plan_end(start, self.planner.default_limit() if limit is None else limit))
        return self.ranges(start, self.end)

    def ranges(self, start: Any, end: Any) -> list[str]:
        return [str(task.range) for task in self.planner.plan_tasks(start, end)]
