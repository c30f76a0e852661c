"""`raftlake recover`: the words of it. What it does is in `runtime/recovery/recover.py`.

With `tier.uri` it reads the Delta tables first (`tier.inventory`). Where they show records that this node lacks, it refuses
without `--unclean`: no unclean election happens elsewhere. `--from-tier` goes to `recover_from_tier`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftlake.cli.output import AsJson, ask, print_json, print_table
from raftlake.errors import RaftlakeError, WrongState, one_line

if TYPE_CHECKING:
    from raftlake.ports.peer_rpcs import GroupId
    from raftlake.runtime.recovery.comparison import Comparison, Shown
    from raftlake.runtime.recovery.recover import GroupFacts, Recovery
    from raftlake.runtime.settings.settings import Settings

_COLUMNS = ["Group", "LogStart", "LogEnd", "RecordsEpoch", "LastEpoch", "CommittedAtLeast", "NewEpoch", "Damage"]
#: Where tables show what this node lacks.
_WAYS = (
    "`--unclean` takes this node's history all the same: the records leave the tables. `--from-tier`, with a new data "
    "directory, takes what the tables show, and loses what is behind it and all keys"
)


def recover(
    config: Annotated[Path, typer.Option(help="The settings of the surviving node, a properties file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be given more than once.")
    ] = None,
    confirm: Annotated[
        str | None, typer.Option(metavar="CLUSTER_ID", help="Do it, for this cluster. Without it nothing is changed.")
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="An unclean election: also where Delta tables show records that this node lacks. It exists only here.",
        ),
    ] = False,
    from_tier: Annotated[
        bool, typer.Option("--from-tier", help="All disks are lost: make a new directory from the Delta tables at tier.uri.")
    ] = False,
    partitions: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="With --from-tier: a topic had more partitions than its table shows."),
    ] = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", metavar="CLUSTER_ID", help="With --from-tier: of several clusters there, this one."),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="With --from-tier: take tables as they are that other programs have changed."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make this node a quorum by itself after a majority of the voters is lost for good. Says first what may be lost."""
    from raftlake.runtime.settings.settings import load_settings

    if unclean and from_tier:
        raise typer.BadParameter("--unclean is for a survivor, and --from-tier for the loss of all disks")
    only_from_tier = {
        "--partitions": bool(partitions),
        "--cluster-id": cluster_id is not None,
        "--accept-changes": accept_changes,
    }
    if not from_tier and any(only_from_tier.values()):
        raise typer.BadParameter(f"{next(name for name, given in only_from_tier.items() if given)} goes with --from-tier")
    loaded = load_settings(config, environ=os.environ, overrides=settings or [])
    if from_tier:
        from raftlake.cli.recover_from_tier import recover_from_tier

        recover_from_tier(
            loaded,
            config,
            partitions=partitions or [],
            cluster_id=cluster_id,
            accept_changes=accept_changes,
            confirm=confirm,
            as_json=as_json,
        )
        return
    _recover_survivor(loaded, config, confirm, unclean=unclean, as_json=as_json)


def _recover_survivor(loaded: Settings, config: Path, confirm: str | None, *, unclean: bool, as_json: bool) -> None:
    from raftlake.runtime.recovery.recover import Recovery
    from raftlake.storage.modes import require_owner

    require_owner(loaded.data_dir)
    address = loaded.peers[loaded.node_id]
    recovery = Recovery(loaded.data_dir, loaded.node_id, address, loaded.quorum_group)
    try:
        recovery.require_lost_majority(loaded)
        recovery.require_cluster()
        if confirm is not None:
            recovery.require_confirmed(confirm)
        tables = _tables(loaded, recovery)
        facts = recovery.examine(tables)
        unknown = tables.unknown([each.group for each in facts])
        losses = losses_of(facts, tables, unknown)
        if confirm is not None and losses and not unclean:
            raise WrongState(f"{losses[0]}{_more(len(losses) - 1)}. Nothing was changed. {_WAYS}")
        if as_json and confirm is None:
            print_json(all_facts(facts, tables, unknown))
        if not as_json:
            describe(facts, str(recovery.meta.cluster_id), is_resumed=recovery.is_resumed)
            describe_losses(losses, unclean=unclean)
        may_ask = not losses or unclean
        if confirm is None and may_ask and sys.stdin.isatty() and not as_json:
            answer = ask("Type the cluster id to go on, anything else to leave all as it is: ")
            if answer == recovery.meta.cluster_id:
                confirm = answer
        if confirm is None:
            if not as_json:
                more = " --unclean" if losses else ""
                print(
                    f"Nothing was changed. To do it: raftlake recover --config {config}{more} --confirm "
                    f"{recovery.meta.cluster_id}"
                )
            return
        directory_id = recovery.perform(facts, confirm)
    finally:
        recovery.close()
    from raftlake.wire.ids import id_to_text

    voter = f"{loaded.node_id}@{address}"
    if as_json:
        groups = all_facts(facts, tables, unknown)
        print_json({"directoryId": id_to_text(directory_id), "groups": groups, "voters": voter})
    else:
        print(f"recovered: node {loaded.node_id} with directory id {id_to_text(directory_id)} is the only voter.")
        first = f"Set quorum.voters={voter} in {config}, start the node" if loaded.voters else "Start the node"
        print(f"{first}. Let the others join it with new, empty directories; keep their old ones until they have.")


def _tables(loaded: Settings, recovery: Recovery) -> Comparison:
    """What the tables show. An interrupted recovery is finished as it was planned."""
    from raftlake.runtime.recovery.comparison import NO_TABLES, absent, comparison_of, unread

    if loaded.tier is None or recovery.is_resumed or recovery.meta.cluster_id is None:
        return NO_TABLES
    from raftlake.cli.recover_from_tier import read_tables_of
    from raftlake.tier.store import local_path

    uri, copied = loaded.tier.uri, recovery.copied()
    place = local_path(uri)
    try:
        if place is not None and not place.exists():
            return comparison_of([], copied, uri) if copied else absent(uri)
        return comparison_of(read_tables_of(loaded, recovery.meta.cluster_id, may_be_changed=True), copied, uri)
    except RaftlakeError as error:
        return unread(one_line(error))
    except OSError as error:
        # A mounted file system may not answer.
        return unread(str(error))


def losses_of(facts: Sequence[GroupFacts], tables: Comparison, unknown: Mapping[GroupId, Shown]) -> list[str]:
    """Why this recovery would be an unclean election, line by line. None where it would not."""
    if tables.failure is not None:
        return [f"the tables cannot be compared with this directory: {tables.failure}"]
    shown = {each.group: each.table for each in facts if each.table is not None} | dict(unknown)
    missing = [f"{group}: {reason}" for group, reason in tables.missing.items()]
    return missing + [f"{group}: {each.reason}" for group, each in shown.items() if each.reason]


def _more(count: int) -> str:
    return "" if not count else f" (and {count} more {'partition' if count == 1 else 'partitions'})"


def describe_losses(losses: Sequence[str], *, unclean: bool) -> None:
    """What the tables show and this node lacks."""
    for line in losses:
        print(line)
    if losses:
        print("With --unclean these records leave the tables; their files stay beside them." if unclean else _WAYS)


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


def all_facts(facts: Sequence[GroupFacts], tables: Comparison, unknown: Mapping[GroupId, Shown]) -> list[dict[str, object]]:
    """For JSON: the groups with their tables, and those that only tables know."""
    rows = [group_facts(each) | table_facts(each.group, each.table, tables) for each in facts]
    without_log = {group: None for group in tables.missing if group not in {each.group for each in facts}}
    others = without_log | dict(unknown)
    return rows + [{"group": str(group)} | table_facts(group, shown, tables) for group, shown in others.items()]


def table_facts(group: GroupId, shown: Shown | None, tables: Comparison) -> dict[str, object]:
    if shown is None:
        why = tables.failure or tables.missing.get(group, "-")
        return {"tableStart": None, "tableEnd": None, "tableLeaving": None, "tableDiffers": why}
    return {
        "tableStart": shown.start_offset,
        "tableEnd": shown.end_offset,
        "tableLeaving": shown.leaving,
        "tableDiffers": shown.reason or "-",
    }


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
