"""The mark of a change that takes several transactions: it stands in the place of Spark's file `metadata`.

Spark takes the `id` of that file for a UUID, and starts no query where it is none; its error shows the text. So nobody reads a
checkpoint that is half changed. The mark names the command that ends the work, and keeps what `metadata` was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from raftlake.checkpoints.layout import query_of
from raftlake.kv.lenient_json import facts_of, text_of

#: Java shows a text that is no UUID only up to this length.
_ID_CHARS_MAX = 36
RENAME = "rename"
#: What stands in the place of an id begins so.
MARKED = "broken off: "


@dataclass(frozen=True, slots=True)
class Mark:
    """`doing` is the name of a command, as in `rewind`; `told` is the whole command. `before` is what `metadata` was, empty
    where it was not there. `query` is the id of the query that the checkpoint is going to have."""

    doing: str
    told: str
    query: str
    before: str = ""

    @property
    def shown(self) -> str:
        """What stands in the place of the query's id."""
        return f"{MARKED}{self.doing}, repeat it"[:_ID_CHARS_MAX]

    def encode(self) -> bytes:
        facts = {"id": self.shown, "doing": self.doing, "told": self.told, "query": self.query, "before": self.before}
        return json.dumps(facts, ensure_ascii=False).encode()

    @staticmethod
    def decode(metadata: bytes) -> Mark | None:
        """None where the content is no mark."""
        facts = facts_of(metadata)
        if not isinstance(facts.get("doing"), str):
            return None
        return Mark(*(text_of(facts, name) for name in ("doing", "told", "query", "before")))

    @property
    def holds_the_only_copy(self) -> bool:
        """Whether files that are nowhere else lie where the mark stands, while other files of the checkpoint lie elsewhere."""
        return self.doing == RENAME

    def told_of(self, place: object) -> str:
        """What somebody is told who wants to do something else there."""
        other = "" if self.holds_the_only_copy else ", or delete the checkpoint"
        return f"{place} is being changed: `{self.told}` was broken off, or still runs. Repeat it{other}"

    def is_of(self, told: str) -> bool:
        """Whether the command `told` goes on with this work."""
        return self.told == told


def uuid_of(metadata: bytes) -> str | None:
    """The id of the query in `metadata`; None where it is none that Spark takes."""
    found = query_of(metadata)
    try:
        return None if found is None else str(UUID(found))
    except ValueError:
        return None
