"""The diagram of roles is that of the table which the core obeys."""

from __future__ import annotations

import pytest
from tests.role_diagram import BEGIN, END, PAGE, diagram, with_diagram

from raftlake.raft.roles import Candidate, Leader, Resigned


def test_the_page_shows_the_present_table() -> None:
    page = PAGE.read_text()
    assert with_diagram(page) == page, "make fix writes it anew"


def test_each_move_is_a_line_and_one_that_needs_a_higher_epoch_is_dotted() -> None:
    allowed = {Candidate: {Leader}, Leader: {Resigned, Candidate}, Resigned: set[type]()}
    drawn = diagram(allowed, {(Leader, Candidate)})
    assert drawn.splitlines()[2:-1] == ["    Candidate --> Leader", "    Leader -.-> Candidate", "    Leader --> Resigned"]


def test_what_stands_around_the_diagram_stays() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n"
    assert with_diagram(page) == f"before\n{BEGIN}{diagram()}{END}after\n"
    with pytest.raises(ValueError, match="marks"):
        with_diagram("no marks")
