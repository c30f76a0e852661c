"""Which topic has a name now. Another id under the same name is another topic, whose offsets mean other records.

Topics reach the nodes one after another: a node that lags names the id of a topic that was deleted since. No order in which ids
were heard tells the older one. So the quorum is asked, where an id is news: its key `/raftlake/topics/<name>` has the JSON
`{"id": "<base64url>", ...}`, and reads of keys are linearizable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from raftlake.client.types import KvEntry, KvPage

PREFIX = "/raftlake/topics/"
#: More topics than these are looked up in a list of all topics.
SINGLE_MAX = 16


class Keys(Protocol):
    """The part of `raftlake.client.Client.kv` that is needed here."""

    def get(self, key: str) -> KvEntry | None: ...

    def list(self, prefix: str = "", *, after: str | None = None, values: bool = False) -> KvPage: ...


class KeyClient(Protocol):
    @property
    def kv(self) -> Keys: ...


class TopicIds:
    """The ids of a query's topics."""

    def __init__(self, client: KeyClient | None) -> None:
        """Without a client the nodes are believed."""
        self._client = client
        self._known: dict[str, bytes] = {}

    def hear(self, told: Mapping[str, bytes]) -> None:
        """What a node says of topics. A topic without a key is being deleted: it keeps the id that is known."""
        news = [topic for topic, topic_id in told.items() if self._known.get(topic) != topic_id]
        if self._client is None:
            self._known |= told
        elif news:
            self._known = {**told, **self._known, **_ids_now(self._client.kv, news)}

    def get(self, topic: str) -> bytes | None:
        return self._known.get(topic)


def _ids_now(keys: Keys, topics: Sequence[str]) -> dict[str, bytes]:
    """The ids of those that exist."""
    # Only now: who merely looks the format up needs no wire.
    from raftlake.wire.ids import id_from_text

    wanted = {PREFIX + topic for topic in topics}
    entries = _all(keys) if len(topics) > SINGLE_MAX else (keys.get(key) for key in sorted(wanted))
    return {
        entry.key.removeprefix(PREFIX): id_from_text(json.loads(entry.value or b"")["id"])
        for entry in entries
        if entry is not None and entry.key in wanted
    }


def _all(keys: Keys) -> Iterator[KvEntry]:
    after: str | None = None
    while True:
        page = keys.list(PREFIX, after=after, values=True)
        yield from page.entries
        if not page.more:
            return
        after = page.last
