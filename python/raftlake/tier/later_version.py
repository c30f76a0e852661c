"""The version of a table that shows a partition up to an offset, where the newest one does not: for RESTORE.

Each copy's commit tells which offsets it shows. At that version the partition was as the tier left it, up to the copy's end.
"""

from __future__ import annotations

import json

from raftlake.ports.tier import Lineage
from raftlake.raft.types import Offset
from raftlake.tier.foreign_commits import parse_commit
from raftlake.tier.remote_segments import SEGMENT_KEY, from_json
from raftlake.tier.topic_table import TopicTable, commit_name

#: How far back it is looked for.
_WALK_MAX = 1_000


def version_that_reaches(table: TopicTable, lineage: Lineage, reach: Offset) -> int | None:
    """The newest one before others changed the table. None where no commit that is still there tells of one."""
    before = table.version + 1
    for version in range(table.version, max(table.version - _WALK_MAX, -1), -1):
        content = table.store.read(commit_name(version))
        if content is None:
            return None
        if _shown_end(content, lineage) >= reach:
            return before - 1
        if not parse_commit(version, content).is_ours:
            before = version
    return None


def _shown_end(content: bytes, lineage: Lineage) -> int:
    """Where the copy ends that a commit shows of a lineage; -1 where it shows none."""
    for line in content.splitlines():
        facts = json.loads(line).get("commitInfo", {}).get(SEGMENT_KEY)
        named = None if facts is None else from_json(facts)
        if named is not None and named.belongs_to(lineage):
            return named.segment.end_offset
    return -1
