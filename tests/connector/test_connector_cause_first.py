"""What a process of Spark's tells of an exception: the cause first, then the stack; and what other processes tell."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest
from pyspark.serializers import read_int
from pyspark.util import handle_worker_exception

from pyspark_raftlake.cause_first import HIDE_STACK, cause_first
from pyspark_raftlake.errors import InvalidRow

CAUSE = "pyspark_raftlake.errors.InvalidRow: batch 7: column topic: null topic"


@pytest.fixture
def of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker, whose program is a module of Spark's."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    # Undone behind the test, also where it was not set before.
    monkeypatch.setenv(HIDE_STACK, "")
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")


@cause_first()
def outer() -> None:
    inner()


@cause_first()
def inner() -> None:
    raise InvalidRow("batch 7: column topic: null topic") from KeyError("deeper")


def rows() -> Iterator[int]:
    with cause_first():
        yield 1
        inner()


def told(error: BaseException) -> str:
    """What Spark's process writes to the JVM."""
    sent = io.BytesIO()
    handle_worker_exception(error, sent)
    sent.seek(0)
    read_int(sent)
    return sent.read(read_int(sent)).decode()


@pytest.mark.usefixtures("of_spark")
def test_the_cause_is_the_first_line_and_the_stack_follows_once() -> None:
    with pytest.raises(InvalidRow) as raised:
        outer()
    lines = told(raised.value).splitlines()
    assert lines[0] == CAUSE
    assert [line for line in lines if line.strip()][-1] == CAUSE
    assert "KeyError: 'deeper'" in lines and any(line.endswith("in inner") for line in lines)
    assert lines.count(CAUSE) == 2


@pytest.mark.usefixtures("of_spark")
def test_rows_that_come_one_by_one_end_so_too() -> None:
    found = rows()
    assert next(found) == 1
    with pytest.raises(InvalidRow) as raised:
        next(found)
    assert told(raised.value).startswith(CAUSE + "\n")


def test_a_process_of_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_STACK, raising=False)
    with pytest.raises(InvalidRow) as raised:
        outer()
    assert HIDE_STACK not in os.environ and not hasattr(raised.value, "__notes__")


@pytest.mark.usefixtures("of_spark")
def test_what_ends_well_changes_nothing() -> None:
    with cause_first():
        pass
    assert os.environ[HIDE_STACK] == ""
