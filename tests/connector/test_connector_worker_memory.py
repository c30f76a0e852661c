"""The collector and a worker's modules."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from connector.fakelog import FakeQuorum
from pyspark_raftlake import sink, sink_task, source, worker_memory
from pyspark_raftlake.options import parse_sink_options, parse_source_options
from pyspark_raftlake.sink import BatchWriter
from pyspark_raftlake.source import BatchReader, DefaultSource
from pyspark_raftlake.worker_memory import settle

SERVERS = {"kafka.bootstrap.servers": "a:1"}


@pytest.fixture(autouse=True)
def unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "_settled_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_modules_are_looked_at_no_more() -> None:
    settle()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 1_000


def test_garbage_of_before_is_collected_first() -> None:
    gone = weakref.ref(Knot())
    settle()
    assert gone() is None


def test_garbage_of_a_later_task_is_collected_as_ever() -> None:
    settle()
    gone = weakref.ref(Knot())
    settle()
    assert gone() is not None, "the second call has nothing to do"
    gc.collect()
    assert gone() is None


def test_modules_that_are_loaded_later_are_settled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    frozen = gc.get_freeze_count()
    late = types.ModuleType("loaded_later")
    late.content = [[] for _ in range(1_000)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "loaded_later", late)
    settle()
    assert gc.get_freeze_count() >= frozen + 1_000


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> FakeQuorum:
    made = FakeQuorum(t=1)
    made.set_bounds("t", (0, 10))
    for module in (source, sink, sink_task):
        monkeypatch.setattr(module, "client_of", lambda _: made)
    return made


@pytest.mark.usefixtures("quorum")
def test_reading_settles_the_worker() -> None:
    reader = BatchReader(parse_source_options({**SERVERS, "subscribe": "t"}).for_batch())
    reader.read(reader.partitions()[0])
    assert gc.get_freeze_count() > 10_000


@pytest.mark.usefixtures("quorum")
def test_writing_settles_the_worker() -> None:
    schema = StructType().add("value", "binary")
    BatchWriter(parse_sink_options({**SERVERS, "topic": "t"}), schema, overwrite=False).write(iter(()))
    assert gc.get_freeze_count() > 10_000


@pytest.mark.usefixtures("quorum")
def test_so_does_what_the_driver_asks_for_with_every_batch() -> None:
    DefaultSource({**SERVERS, "topic": "t"}).streamWriter(StructType().add("value", "binary"), overwrite=False)
    assert gc.get_freeze_count() > 10_000
