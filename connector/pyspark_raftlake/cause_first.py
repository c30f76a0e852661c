"""The cause of an error in front of the stack that led there.

A user sees what one of Spark's Python processes tells of an exception: the frames of Spark and of this package, and the cause
behind them. Whoever shows the beginning alone, as schedulers and notebooks do, shows no cause. Spark leaves the frames out
where its variable says so. Then the stack stands behind the cause, as a note of the exception.

The variable is set in a process of Spark's alone. Such a process ends with the error that it has told, so no function of the
user's is told of without its frames.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator

#: By this Spark's own setting `spark.sql.execution.pyspark.udf.hideTraceback.enabled` reaches its processes.
HIDE_STACK = "SPARK_HIDE_TRACEBACK"
#: What stands before the stack.
STACK = "\nWhere it was raised, in Python:\n"


@contextlib.contextmanager
def cause_first() -> Iterator[None]:
    """Around all that Spark calls, also as a decorator: what is raised keeps its type and its text."""
    try:
        yield
    except Exception as error:
        if _is_of_spark() and not _is_told(error):
            error.add_note(STACK + "".join(traceback.format_exception(error)))
            os.environ[HIDE_STACK] = "1"
        raise


def _is_told(error: Exception) -> bool:
    return any(note.startswith(STACK) for note in getattr(error, "__notes__", ()))


def _is_of_spark() -> bool:
    """Whether Spark has started this process for itself: its program is a module of Spark's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
