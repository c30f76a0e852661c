"""The diagram of roles in docs/protocol/elections.md, made from the table of legal moves.

`make fix` writes it there; `tests/unit/raft/test_raft_role_diagram.py` compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

from raftlake.raft.roles import Role
from raftlake.raft.transitions import ALLOWED, EPOCH_BUMP_REQUIRED

PAGE = Path(__file__).resolve().parent.parent / "docs/protocol/elections.md"
BEGIN = "<!-- Made from ALLOWED by `make fix`. What is changed by hand is lost. -->\n"
END = "<!-- End of what is made. -->\n"

Move = tuple[type[Role], type[Role]]


def diagram(
    allowed: Mapping[type[Role], Set[type[Role]]] = ALLOWED, only_with_a_higher_epoch: Set[Move] = EPOCH_BUMP_REQUIRED
) -> str:
    """A Mermaid flowchart: whole lines for moves within an epoch too, dotted ones for moves into a higher epoch only."""
    lines = ["```mermaid", "flowchart LR"]
    for old in allowed:
        for new in sorted(allowed[old], key=list(allowed).index):
            arrow = "-.->" if (old, new) in only_with_a_higher_epoch else "-->"
            lines.append(f"    {old.__name__} {arrow} {new.__name__}")
    return "\n".join([*lines, "```", ""])


def with_diagram(page: str) -> str:
    """The page with the present diagram between its marks. Raises ValueError when it has no marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{PAGE.name}: the marks around the diagram are missing")
    return before + BEGIN + diagram() + END + after


if __name__ == "__main__":
    text = PAGE.read_text()
    if (present := with_diagram(text)) != text:
        PAGE.write_text(present)
