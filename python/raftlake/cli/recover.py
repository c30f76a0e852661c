"""`raftlake recover`: the words of it. What it does is in `runtime.recover`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftlake.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from raftlake.runtime.recovery.recover import GroupFacts

_COLUMNS = ["Group", "LogStart", "LogEnd", "RecordsEpoch", "LastEpoch", "CommittedAtLeast", "NewEpoch", "Damage"]


def recover(
    config: Annotated[Path, typer.Option(help="The settings of the surviving node, a properties file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given more than once.")
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="CLUSTER_ID", help="Do it, for this cluster. Without it nothing is changed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make this node a quorum by itself after a majority of the voters is lost for good. Says first what may be lost."""
    from raftlake.runtime.recovery.recover import Recovery
    from raftlake.runtime.settings.settings import load_settings
    from raftlake.storage.modes import require_owner

    loaded = load_settings(config, environ=os.environ, overrides=settings or [])
    require_owner(loaded.data_dir)
    address = loaded.peers[loaded.node_id]
    recovery = Recovery(loaded.data_dir, loaded.node_id, address, loaded.quorum_group)
    try:
        recovery.require_lost_majority(loaded)
        if confirm is not None:
            recovery.require_confirmed(confirm)
        facts = recovery.examine()
        if as_json and confirm is None:
            print_json([group_facts(each) for each in facts])
        if not as_json:
            describe(facts, str(recovery.meta.cluster_id), is_resumed=recovery.is_resumed)
        if confirm is None and sys.stdin.isatty() and not as_json:
            answer = ask("Type the cluster id to go on, anything else to leave all as it is: ")
            if answer == recovery.meta.cluster_id:
                confirm = answer
        if confirm is None:
            if not as_json:
                print(f"Nothing was changed. To do it: raftlake recover --config {config} --confirm {recovery.meta.cluster_id}")
            return
        directory_id = recovery.perform(facts, confirm)
    finally:
        recovery.close()
    from raftlake.wire.ids import id_to_text

    voter = f"{loaded.node_id}@{address}"
    if as_json:
        print_json({"directoryId": id_to_text(directory_id), "groups": [group_facts(each) for each in facts], "voters": voter})
    else:
        print(f"recovered: node {loaded.node_id} with directory id {id_to_text(directory_id)} is the only voter.")
        first = f"Set quorum.voters={voter} in {config}, start the node" if loaded.voters else "Start the node"
        print(f"{first}. Let the others join it with new, empty directories; keep their old ones until they have.")


def ask(question: str) -> str:
    """The line that the operator types. Ctrl-D is an empty line."""
    try:
        return input(question)
    except EOFError:
        # The cursor still stands behind the question.
        print()
        return ""


def describe(facts: list[GroupFacts], cluster_id: str, *, is_resumed: bool) -> None:
    """The dry run as text."""
    if is_resumed:
        print("A recovery of this directory was interrupted; it will be finished as it was planned.")
    rows = [["unknown" if value is None else str(value) for value in group_facts(each).values()] for each in facts]
    print_table(_COLUMNS, rows)
    for each in facts:
        if each.is_new_line:
            print(
                f"{each.group}: its epochs end at {each.election_epoch}, so it begins a new line of them at {each.new_epoch}."
            )
            print("Start no other node with its present directory again. Keep that, and give the node a new, empty one.")
    print(f"Cluster {cluster_id}. Of each group everything below LogEnd is kept, committed or not. What the lost nodes had")
    print("acknowledged at or above LogEnd is lost; this node cannot know how much that is. A record that was refused or timed")
    print("out may appear.")


def group_facts(each: GroupFacts) -> dict[str, object]:
    return {
        "group": str(each.group),
        "logStart": each.log_start,
        "logEnd": each.log_end,
        "recordsEpoch": each.last_epoch,
        "lastEpoch": max(each.last_epoch, each.election_epoch),
        "committedAtLeast": each.committed,
        "newEpoch": each.new_epoch,
        "damage": each.impaired or "-",
    }
