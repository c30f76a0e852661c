"""Golden traces: each file is a story of commands and of everything that replicas said and did about them.

A command line, `----`, what it made happen, an empty line. Comments say what the story proves. The commands are those of
`raftkit.story` and `tierstory` and `recoverystory`; the output is the product's own one-line text (`raftlake.raft.trace`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from raftkit.story import Story
from recoverystory import RecoveryStory

#: Stories of cores alone, and in tier/ of whole nodes with a remote tier.
TRACES = sorted(Path(__file__).parent.rglob("*.txt"))


def story_of(path: Path) -> Story | RecoveryStory:
    return RecoveryStory() if path.parent.name == "tier" else Story()


def retell(text: str, story: Story | RecoveryStory) -> str:
    """The same file with the output that its commands have now."""
    lines: list[str] = []
    is_output = False
    for line in text.splitlines():
        if is_output:
            is_output = line != ""
            continue
        lines.append(line)
        if line == "----":
            is_output = True
            lines += [*story.perform(lines[-2]), ""]
    return "\n".join(lines).rstrip() + "\n"


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace(path: Path, is_rewriting: bool) -> None:
    told = path.read_text(encoding="utf-8")
    retold = retell(told, story_of(path))
    if is_rewriting:
        path.write_text(retold, encoding="utf-8")
    else:
        assert retold == told, "a trace changed; where the change is wanted: pytest tests/trace --rewrite"


def test_a_story_is_the_same_each_time() -> None:
    for path in TRACES:
        text = path.read_text(encoding="utf-8")
        assert retell(text, story_of(path)) == retell(text, story_of(path))
