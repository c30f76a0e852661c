"""`raftlake recover --from-tier`: the words of it. What it does is in `runtime/recovery/from_tier.py`.

It reads the tables (`tier.inventory`), says what comes back and what is lost for good, and writes only with the cluster id.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from raftlake.cli.output import ask, print_json, print_table
from raftlake.errors import ConfigError

if TYPE_CHECKING:
    from raftlake.runtime.recovery.from_tier import TierPlan
    from raftlake.runtime.settings.settings import Settings
    from raftlake.tier.told import ToldTable

_COLUMNS = ["Topic", "Partition", "Start", "End", "Records", "NewestRecord", "Producers"]


def recover_from_tier(
    loaded: Settings,
    config: Path,
    *,
    partitions: Sequence[str],
    cluster_id: str | None,
    accept_changes: bool,
    confirm: str | None,
    as_json: bool,
) -> None:
    """Make a data directory from the tables. Says first what is lost."""
    from raftlake.replica.config import METADATA_GROUP
    from raftlake.runtime.recovery.from_tier import require_empty, restore
    from raftlake.runtime.recovery.tables import plan_of
    from raftlake.storage.modes import require_owner

    if loaded.tier is None:
        raise ConfigError(f"--from-tier needs tier.uri, the place of the Delta tables: set it in {config}")
    if loaded.quorum_group != METADATA_GROUP:
        raise ConfigError(f"--from-tier makes a metadata log, and the settings name {loaded.quorum_group} as the quorum's log")
    require_owner(loaded.data_dir)
    require_empty(loaded.data_dir)
    counts = _counts(partitions)
    plan = plan_of(read_tables_of(loaded, cluster_id, may_be_changed=accept_changes), loaded.tier.uri, counts)
    if confirm is not None and confirm != plan.cluster_id:
        raise ConfigError(
            f"--confirm={confirm}: expected is the id of the tables' cluster, {plan.cluster_id}; nothing was changed"
        )
    if as_json and confirm is None:
        print_json({"clusterId": plan.cluster_id, "partitions": plan_facts(plan)})
    if not as_json:
        describe(plan)
    if confirm is None and sys.stdin.isatty() and not as_json:
        answer = ask("Type the cluster id to go on, anything else to leave all as it is: ")
        confirm = answer if answer == plan.cluster_id else None
    if confirm is None:
        if not as_json:
            more = "".join(f" --partitions {each}" for each in partitions)
            picked = f" --cluster-id {cluster_id}" if cluster_id is not None else ""
            picked += " --accept-changes" if accept_changes else ""
            print(
                f"Nothing was changed. To do it: raftlake recover --from-tier --config {config}{more}{picked} --confirm "
                f"{plan.cluster_id}"
            )
        return
    address = loaded.peers[loaded.node_id]
    directory_id = restore(plan, loaded.data_dir, loaded.node_id, address)
    from raftlake.wire.ids import id_to_text

    voter = f"{loaded.node_id}@{address}"
    if as_json:
        print_json(
            {
                "clusterId": plan.cluster_id,
                "directoryId": id_to_text(directory_id),
                "partitions": plan_facts(plan),
                "voters": voter,
            }
        )
        return
    print(f"restored: node {loaded.node_id} with directory id {id_to_text(directory_id)} is the only voter.")
    first = f"Set quorum.voters={voter} in {config}, start the node" if loaded.voters else "Start the node"
    print(f"{first}. Let the others join it with new, empty directories. Never start a node with an old directory again.")


def read_tables_of(loaded: Settings, cluster_id: str | None, *, may_be_changed: bool) -> list[ToldTable]:
    """What the tables at `tier.uri` tell, of one cluster where it is given. Raises RaftlakeError: one line that names the
    store, the table or the file."""
    from raftlake.tier.calls import TierSettings
    from raftlake.tier.store_log import quiet

    quiet(os.environ)
    from raftlake.tier.inventory import read_tables

    assert loaded.tier is not None
    seconds = loaded.tier.request_timeout_ms / 1000
    settings = TierSettings(uri=loaded.tier.uri, cluster_id=cluster_id or "", request_seconds=seconds)
    return read_tables(settings, may_be_changed=may_be_changed)


def _counts(partitions: Sequence[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for each in partitions:
        topic, equals, count = each.rpartition("=")
        if not equals or not topic or not count.isascii() or not count.isdecimal():
            raise typer.BadParameter(f"--partitions {each}: expected is TOPIC=N")
        counts[topic] = int(count)
    return counts


def describe(plan: TierPlan) -> None:
    """What comes back, and what does not."""
    rows = [["-" if value is None else str(value) for value in facts.values()] for facts in plan_facts(plan)]
    print_table(_COLUMNS, rows)
    for group, partition in plan.groups():
        if partition.lacking:
            print(f"{group}: its producers are forgotten, so a retry from before may be appended again: {partition.lacking}")
    print(f"Cluster {plan.cluster_id}. Of each partition the records from Start up to the one before End stay, in its table.")
    print("Lost for good is all else:")
    print("- every record at or above End of each partition, and every record of a topic that has no table;")
    print("- the whole key-value space: all keys, with the checkpoints of streams in them, and the ids of producers;")
    print("- the settings of topics (retention and the like), and partitions behind the last one of a topic above: tell of")
    print("  these with --partitions TOPIC=N.")


def plan_facts(plan: TierPlan) -> list[dict[str, object]]:
    return [
        {
            "topic": group.topic,
            "partition": group.partition,
            "start": partition.facts.start_offset,
            "end": partition.facts.end_offset,
            "records": partition.facts.end_offset - partition.facts.start_offset,
            "newestRecord": _time(partition.timestamp_ms),
            "producers": _producers(partition.facts.end_offset, is_lacking=bool(partition.lacking)),
        }
        for group, partition in plan.groups()
    ]


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        told = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError):
        # A producer may give any time.
        return f"{timestamp_ms} ms"
    return told.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _producers(end_offset: int, *, is_lacking: bool) -> str | None:
    if is_lacking:
        return "forgotten"
    return "kept" if end_offset else None
