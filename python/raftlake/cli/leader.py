"""A note for the user who waits for a command: after a few seconds it looks for a leader, and says when there is none.

The command goes on waiting until its own time is up, since a leader may come any moment. Owns the judgement: somebody leads
when a node that answers names a leader that answers and says so itself; a node that has lost its leader may go on naming it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from raftlake.replica.config import Endpoint
    from raftlake.runtime.recovery.probe import Answer

LOOK_AFTER_SECONDS = 3.0
PROBE_SECONDS = 1.5
PROBE_THREADS = 16
_ADVICE = (
    "Changes and linearizable reads wait until a majority of the voters runs. Start the missing nodes; where a majority is "
    "lost for good, one of them can go on alone: raftlake recover --help"
)


class LeaderWatch:
    """Looks once, while its `with` block runs, and not before `after_seconds`."""

    def __init__(self, bootstrap_server: str, tell: Callable[[str], None], after_seconds: float = LOOK_AFTER_SECONDS) -> None:
        self._bootstrap_server = bootstrap_server
        self._tell = tell
        self._after_seconds = after_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._is_over.set()

    def _run(self) -> None:
        if self._is_over.wait(self._after_seconds):
            return
        from raftlake.runtime.settings.parsing import parse_servers

        text = why_nobody_leads(*look(parse_servers("--bootstrap-server", self._bootstrap_server)))
        if text is not None and not self._is_over.is_set():
            self._tell(text)


def look(bootstrap: Sequence[Endpoint]) -> tuple[dict[Endpoint, Answer | None], dict[int, Endpoint]]:
    """What the nodes at `bootstrap` say, and those that they name; and where each node is."""
    from concurrent.futures import ThreadPoolExecutor

    answers: dict[Endpoint, Answer | None] = {}
    nodes: dict[int, Endpoint] = {}
    places = list(bootstrap)
    with ThreadPoolExecutor(PROBE_THREADS) as threads:
        while places:
            answers.update(zip(places, threads.map(_ask, places), strict=True))
            for place in places:
                answer = answers[place]
                nodes.update({} if answer is None else answer.nodes)
            places = [place for place in nodes.values() if place not in answers]
    return answers, nodes


def _ask(place: Endpoint) -> Answer | None:
    """What the node says to clients. A listener for peers tells no leader to anybody, which says nothing of the quorum."""
    from raftlake.runtime.recovery.probe import ask, served_apis
    from raftlake.wire.api import ApiKey

    answer = ask(place, PROBE_SECONDS)
    if answer is None or answer.nodes:
        return answer
    served = served_apis(place, PROBE_SECONDS)
    return None if served is not None and ApiKey.METADATA not in served else answer


def why_nobody_leads(answers: Mapping[Endpoint, Answer | None], nodes: Mapping[int, Endpoint]) -> str | None:
    """What to tell; None where a node leads, or where no node answers, which the command says by itself."""
    heard = {place: answer for place, answer in answers.items() if answer is not None}
    if not heard:
        return None
    for answer in heard.values():
        if answer.leader_id >= 0:
            place = nodes.get(answer.leader_id)
            if place is None or (place in heard and heard[place].leader_id == answer.leader_id):
                return None
    names = {place: f"node {node_id} ({place})" for node_id, place in sorted(nodes.items())}
    places = [*names, *(place for place in answers if place not in names)]
    alive = [names.get(place, str(place)) for place in places if place in heard]
    silent = [names.get(place, str(place)) for place in places if place not in heard]
    missing = f"; no answer: {', '.join(silent)}" if silent else ""
    return f"no node leads the quorum (answered: {', '.join(alive)}{missing}). {_ADVICE}"
