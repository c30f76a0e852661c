"""`raftlake tier undo`: take back what other programs have done to the table of a topic."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from raftlake.cli.output import ask
from raftlake.errors import MachineError, RaftlakeError, WrongState
from raftlake.tier.store_log import quiet

#: Files that are named one by one.
_NAMED_MAX = 10


def undo(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A topic's table: a directory, or s3://...")],
    is_agreed: Annotated[bool, typer.Option("--yes", help="Take it back without asking.")] = False,
) -> None:
    """Take back what other programs have done to a table: their files go, removed ones come back, all copies stay."""
    quiet(os.environ)
    try:
        from raftlake.tier.undo import Undo
    except ModuleNotFoundError as error:
        raise MachineError(f"the tier needs the package {error.name}: pip install 'raftlake[tier]'") from error
    try:
        work = Undo(table)
    except WrongState as error:
        if has_tables(table):
            names = f"`raftlake tier verify --tier-uri {table}` names those that are changed"
            raise WrongState(f"{error}, and there are tables below it: give one of them: {names}") from error
        raise
    plan = work.plan()
    if not plan:
        print("nothing to take back: no commit of another program has changed rows since the tier last found all well")
        return
    print(f"{work.uri}:")
    for each in plan:
        print(f"partition {each.partition}, changed since {each.commit}:")
        _name("goes", each.goes)
        _name("comes back", each.comes)
    if not is_agreed and sys.stdin.isatty():
        is_agreed = ask("Type yes to take it back, anything else to leave all as it is: ").strip() == "yes"
    if not is_agreed:
        raise WrongState("nothing was changed: --yes takes it back")
    work.run()
    print("taken back: the leaders go on by themselves. `raftlake tier verify` reads the table")


def has_tables(uri: str) -> bool:
    """Whether this is a place of tables, as far as it can be read."""
    from raftlake.tier.reader import tables_at
    from raftlake.wire.ids import table_of

    try:
        return any(table_of(below) is not None for below in tables_at(uri))
    except RaftlakeError:
        return False


def _name(what: str, files: tuple[str, ...]) -> None:
    for path in files[:_NAMED_MAX]:
        print(f"  {what}: {path}")
    if len(files) > _NAMED_MAX:
        print(f"  {what}: {len(files) - _NAMED_MAX} more files")
