"""Which topic a streaming query has read under a name, over its restarts: a key in the quorum for each query and topic.

A checkpoint has offsets by the names of topics. A topic that was deleted and created again while the query was down has another
id, and its offsets mean other records. Spark tells the id of the query to its tasks alone, so the first tasks of each run look.

The key `/sources/<query id>/<topic>` has the JSON `{"topic_id": "<32 hexadecimal digits>"}`.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from pyspark_raftlake.data_loss import report_data_loss

if TYPE_CHECKING:
    from raftlake.client.types import KvEntry


class Note(Enum):
    """What a task does with the key of its topic."""

    #: Nothing: an earlier task of this run has looked.
    NONE = "none"
    #: The topic is to be the one that the query read before.
    CHECK = "check"
    #: The run itself has found that the topic was created again, and goes on with the new one.
    REPLACE = "replace"


class Keys(Protocol):
    """The part of `raftlake.client.Client.kv` that is needed here."""

    def get(self, key: str) -> KvEntry | None: ...

    def put(self, key: str, value: bytes, *, if_version: int | None = None) -> int: ...


def note_topic(kv: Keys, query: str, topic: str, topic_id: bytes, note: Note, *, fail: bool) -> None:
    """Look, and write down what is not there yet. DataLoss where the query has read another topic of this name. Without `fail`
    that is a warning, and the new topic is written down."""
    # Only now: who merely looks the format up needs no client.
    from raftlake.client.errors import KvConflict

    if note is Note.NONE:
        return
    key = f"/sources/{quote(query, safe='')}/{quote(topic, safe='')}"
    found = kv.get(key)
    known = None if found is None else _id_in(found.value)
    if known == topic_id:
        return
    if known is not None and note is Note.CHECK:
        report_data_loss(
            f"Topic {topic} was deleted and created again while the query was down: the offsets of its checkpoint are those of "
            f"the topic {known.hex()}, and the topic is {topic_id.hex()} now",
            fail=fail,
        )
    try:
        value = json.dumps({"topic_id": topic_id.hex()}).encode()
        kv.put(key, value, if_version=0 if found is None else found.version)
    except KvConflict:
        # Another task of this batch was faster, with the same id.
        return


def _id_in(value: bytes | None) -> bytes | None:
    try:
        return bytes.fromhex(json.loads(value or b"")["topic_id"])
    except (ValueError, KeyError, TypeError):
        return None
