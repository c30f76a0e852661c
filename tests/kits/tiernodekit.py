"""A node's side of the tier on the test's thread, with real worker processes."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contract.tier_contract import LINEAGE
from raftlake.ports.tier import CopyRequest, LineageEnd, RemoteSegment, TierError
from raftlake.raft.types import Epoch
from raftlake.runtime.tier_process import TierProcess, WorkerProcess
from raftlake.tier.calls import TierSettings

#: For an answer that has to come; nothing depends on its size.
PATIENCE_SECONDS = 120.0


class Node:
    """A node's side, on the test's thread."""

    def __init__(self, settings: TierSettings, timeout_seconds: float = PATIENCE_SECONDS, module: str | None = None) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.workers: list[WorkerProcess] = []
        #: The first worker is of this module, later ones are real.
        self.module = module
        self.tier = TierProcess(lambda: settings, timeout_seconds=timeout_seconds, post=self.posted.put, start=self.start)

    def start(self, settings: TierSettings) -> WorkerProcess:
        module, self.module = self.module, None
        self.workers.append(WorkerProcess(settings) if module is None else WorkerProcess(settings, module))
        return self.workers[-1]

    def ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        begin(answers.append)
        while not answers:
            self.posted.get(timeout=PATIENCE_SECONDS)()
        return answers[0]

    def copy(self, request: CopyRequest) -> RemoteSegment | TierError:
        return self.ask(lambda done: self.tier.copy(request, done))  # type: ignore[no-any-return]

    def claim(self, epoch: int) -> LineageEnd | TierError:
        return self.ask(lambda done: self.tier.claim(LINEAGE, Epoch(epoch), done))  # type: ignore[no-any-return]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
