"""A tier worker that ends or stalls at a moment of its first copy: `python -m tier_faulty_worker SOCKET PIPE`.

The environment says where: RAFTLAKE_TEST_MOMENT is the name of a Moment, or STALL, and RAFTLAKE_TEST_FLAG a file that it makes
when it is there.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from raftlake.tier import worker
from raftlake.tier.store import OutputFile
from raftlake.tier.topic_table import TopicTable


def end(*_: Any) -> NoReturn:
    flag = Path(os.environ["RAFTLAKE_TEST_FLAG"])
    flag.write_text(str(os.getpid()))
    if os.environ["RAFTLAKE_TEST_MOMENT"] != "STALL":
        os.kill(os.getpid(), signal.SIGKILL)
    # As delta-rs does, which keeps the interpreter's lock.
    ctypes.PyDLL(None).pause()
    raise AssertionError("it stalls")


commit = TopicTable.commit


def end_before(table: TopicTable, call: str, adds: Any, *rest: Any) -> None:
    if adds:
        end()
    commit(table, call, adds, *rest)


def end_after(table: TopicTable, call: str, adds: Any, *rest: Any) -> None:
    commit(table, call, adds, *rest)
    if adds:
        end()


def main() -> None:
    match os.environ["RAFTLAKE_TEST_MOMENT"]:
        case "BEFORE_FILE":
            OutputFile.finish = end  # type: ignore[method-assign]
        case "AFTER_COMMIT":
            TopicTable.commit = end_after  # type: ignore[method-assign]
        case _:
            TopicTable.commit = end_before  # type: ignore[method-assign]
    worker.main()


if __name__ == "__main__":
    main()
