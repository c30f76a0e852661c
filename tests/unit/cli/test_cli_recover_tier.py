"""`raftlake recover` with Delta tables: a directory made from them, and a survivor that lacks what they show."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from contract.file_faults import without_sync
from contract.tier_contract import segment
from raftlake.cli import main as cli
from raftlake.cli.recover_from_tier import plan_facts
from raftlake.kv.commands import put
from raftlake.kv.keys import tier_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import Lineage, RemoteSegment
from raftlake.raft.types import Epoch
from raftlake.replica.config import METADATA_GROUP
from raftlake.runtime.recovery.from_tier import RestoredPartition, RestoredTopic, TierPlan
from raftlake.runtime.recovery.recover import EPOCHS_AHEAD, EPOCHS_SCATTERED, PENDING_NAME, Recovery
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.meta import read_meta
from raftlake.tier.calls import TierSettings
from raftlake.tier.delta_table import DeltaTier
from raftlake.tier.remote_segments import auxiliary_name
from raftlake.tier.schema import table_uri
from raftlake.tier.store import Store
from raftlake.wire.ids import id_to_text
from recoverkit import ME, ORDERS, command, facts, make_survivor, tiered

CLICKS = GroupId("clicks", 0, bytes(range(16, 32)))


class Place:
    """A node's settings, its data directory, and the tables of its cluster."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.data = root / "survivor"
        self.tier = TierSettings(uri=str(root / "tier"), cluster_id="mine")
        self.config = root / "node.properties"
        self._patch = monkeypatch
        #: How far above all others the epochs of the next recovery are.
        self.ahead = EPOCHS_AHEAD
        self.write()

    def write(self, *more: str, tier: bool = True) -> None:
        lines = [
            f"node.id={ME}",
            f"log.dirs={self.data}",
            "listeners=PLAINTEXT://127.0.0.1:9093",
            f"quorum.voters={ME}@127.0.0.1:9093",
            *([f"tier.uri={self.tier.uri}"] if tier else []),
            *more,
        ]
        self.config.write_text("\n".join(lines))

    def copy(self, group: GroupId, base: int, end: int, epoch: int, name: str) -> None:
        request = segment(base, name, epoch=epoch, count=end - base, lineage=Lineage(group, 0))
        assert isinstance(DeltaTier(self.tier).copy(request), RemoteSegment)

    def recover(self, *arguments: str) -> int:
        self._patch.setattr(sys, "argv", ["raftlake", "recover", "--config", str(self.config), *arguments])
        return cli.run(cli.app)

    def survive(self) -> None:
        """12 records in orders-0, all of epoch 4."""
        make_survivor(self.root)
        self.ahead = EPOCHS_AHEAD + crc32c(read_meta(self.data).directory_id) % EPOCHS_SCATTERED

    def epochs(self, group: GroupId) -> list[tuple[int, int]]:
        directory = FileLogDirectory(self.data, post=None)
        try:
            return [(epoch, offset) for epoch, offset in directory.open(group).epochs]
        finally:
            directory.close()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    without_sync(monkeypatch)
    # Whether a majority is lost is looked into elsewhere.
    monkeypatch.setattr(Recovery, "require_lost_majority", lambda recovery, settings: None)
    return Place(tmp_path, monkeypatch)


def tree(place: Path) -> dict[str, bytes]:
    ignored = (".index", ".timeindex", ".lock")
    found = sorted(path for path in place.rglob("*") if path.is_file() and not path.name.endswith(ignored))
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


# --- after the loss of all disks


def test_what_is_lost_is_told_before_anything_is_written(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.copy(ORDERS, 0, 12, 4, "a")
    place.copy(ORDERS._replace(partition=2), 0, 6, 5, "b")
    place.copy(CLICKS, 0, 3, 7, "c")
    assert place.recover("--from-tier") == 0
    said = capsys.readouterr()
    assert said.err == "" and not place.data.exists()
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[:5] == [
        ["Topic", "Partition", "Start", "End", "Records", "NewestRecord", "Producers"],
        ["clicks", "0", "0", "3", "3", "2023-11-14T22:13:20.002Z", "kept"],
        ["orders", "0", "0", "12", "12", "2023-11-14T22:13:20.011Z", "kept"],
        ["orders", "1", "0", "0", "0", "-", "-"],
        ["orders", "2", "0", "6", "6", "2023-11-14T22:13:20.005Z", "kept"],
    ]
    assert "every record at or above End of each partition, and every record of a topic that has no table" in said.out
    assert "the whole key-value space" in said.out
    last = said.out.splitlines()[-1]
    assert last == f"Nothing was changed. To do it: raftlake recover --from-tier --config {place.config} --confirm mine"


def test_a_directory_is_made_from_the_tables(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.copy(ORDERS, 0, 12, 4, "a")
    DeltaTier(place.tier).claim(Lineage(ORDERS, 0), Epoch(6))
    assert place.recover("--from-tier", "--confirm", "other") == 1
    assert "--confirm=other: expected is the id of the tables' cluster, mine; nothing was changed" in capsys.readouterr().err
    assert not place.data.exists()
    assert place.recover("--from-tier", "--partitions", "orders=2", "--confirm", "mine") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith(f"restored: node {ME} with directory id")
    assert said[-1].startswith(f"Set quorum.voters={ME}@127.0.0.1:9093 in {place.config}, start the node. Let the others join")
    assert read_meta(place.data).cluster_id == "mine" and not (place.data / PENDING_NAME).exists()
    assert place.epochs(ORDERS) == [(6 + EPOCHS_AHEAD, 12)]
    assert place.epochs(ORDERS._replace(partition=1)) == [(EPOCHS_AHEAD, 0)]
    assert place.recover("--from-tier", "--confirm", "mine") == 1
    assert "is not empty" in capsys.readouterr().err


def test_from_tier_as_json(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.copy(ORDERS, 0, 12, 4, "a")
    Store(table_uri(place.tier.uri, ORDERS), {}).discard([auxiliary_name("a")])
    rows = [
        {
            "topic": "orders",
            "partition": 0,
            "start": 0,
            "end": 12,
            "records": 12,
            "newestRecord": "2023-11-14T22:13:20.011Z",
            "producers": "forgotten",
        }
    ]
    assert place.recover("--from-tier", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"clusterId": "mine", "partitions": rows}
    assert place.recover("--from-tier") == 0
    assert "orders-0: its producers are forgotten" in capsys.readouterr().out
    assert place.recover("--from-tier", "--json", "--confirm", "mine") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["partitions"], done["voters"]) == (rows, f"{ME}@127.0.0.1:9093") and len(done["directoryId"]) == 22


def test_a_time_that_no_calendar_has_is_told_in_milliseconds() -> None:
    """A producer may give any."""
    times = {1_700_000_000_011: "2023-11-14T22:13:20.011Z", -1: None, 2**62: f"{2**62} ms"}
    for given, told in times.items():
        partition = RestoredPartition(facts(0, 0, 5, ((3, 0),)), None, timestamp_ms=given)
        topic = RestoredTopic(name="orders", topic_id=ORDERS.topic_id, table="t", partitions={0: partition})
        (row,) = plan_facts(TierPlan(cluster_id="mine", tier_uri="t", topics=[topic]))
        assert row["newestRecord"] == told


def test_one_of_several_clusters_is_picked(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.copy(ORDERS, 0, 12, 4, "a")
    place.tier = TierSettings(uri=place.tier.uri, cluster_id="theirs")
    place.copy(CLICKS, 0, 3, 4, "b")
    assert place.recover("--from-tier") == 1
    assert "several clusters, mine, theirs" in capsys.readouterr().err
    assert place.recover("--from-tier", "--cluster-id", "theirs") == 0
    said = capsys.readouterr().out
    assert "clicks" in said and "orders" not in said and said.rstrip().endswith("--cluster-id theirs --confirm theirs")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from-tier", "--unclean"], "--unclean is for a survivor"),
        (["--partitions", "orders=2"], "--partitions goes with --from-tier"),
        (["--cluster-id", "mine"], "--cluster-id goes with --from-tier"),
        (["--from-tier", "--partitions", "orders"], "--partitions orders: expected is TOPIC=N"),
        (["--from-tier", "--partitions", "=2"], "--partitions =2: expected is TOPIC=N"),
        (["--from-tier", "--partitions", "orders=-1"], "--partitions orders=-1: expected is TOPIC=N"),
    ],
)
def test_wrong_usage_is_one_line(place: Place, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    place.copy(ORDERS, 0, 12, 4, "a")
    assert place.recover(*arguments) == 2
    assert words in capsys.readouterr().err


def test_without_tables_there_is_one_line(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write(tier=False)
    assert place.recover("--from-tier") == 1
    assert f"--from-tier needs tier.uri, the place of the Delta tables: set it in {place.config}" in capsys.readouterr().err
    place.write()
    (place.root / "tier").mkdir()
    assert place.recover("--from-tier") == 1
    told = capsys.readouterr().err
    assert f"{place.tier.uri} has no table of a topic: is it the tier.uri of the nodes?" in told and told.count("\n") == 1


def test_a_store_that_does_not_answer_is_one_line(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write("tier.request.timeout.ms=1000", tier=False)
    settings = ["--set", "tier.uri=s3://none/here", "--from-tier"]
    place._patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    place._patch.setenv("AWS_ALLOW_HTTP", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        place._patch.setenv(name, "x")
    assert place.recover(*settings) == 1
    told = capsys.readouterr().err
    assert "s3://none/here" in told and told.count("\n") == 1 and not place.data.exists()


# --- a survivor


@pytest.fixture
def survivor(place: Place) -> Place:
    place.survive()
    return place


@pytest.mark.parametrize("end", [0, 6, 12])
def test_where_the_table_shows_no_more_nothing_changes(survivor: Place, end: int, capsys: pytest.CaptureFixture[str]) -> None:
    (survivor.root / "tier").mkdir()
    if end:
        survivor.copy(ORDERS, 0, end, 4, "a")
    assert survivor.recover() == 0
    said = capsys.readouterr().out
    assert said.rstrip().endswith(f"raftlake recover --config {survivor.config} --confirm mine") and "would leave" not in said
    assert survivor.recover("--confirm", "mine") == 0
    assert survivor.epochs(ORDERS) == [(4, 0), (4 + survivor.ahead, 12)]


def test_records_that_the_table_shows_are_not_given_up_without_a_word(
    survivor: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    survivor.copy(ORDERS, 0, 15, 4, "a")
    before = tree(survivor.data)
    lost = "orders-0: its table shows offsets up to 15, this log ends at 12: 3 records would leave the table"
    assert survivor.recover() == 0
    said = capsys.readouterr().out
    assert lost in said.splitlines() and "--from-tier" in said
    assert said.rstrip().endswith(f"raftlake recover --config {survivor.config} --unclean --confirm mine")
    assert survivor.recover("--confirm", "mine") == 1
    refused = capsys.readouterr()
    assert lost in refused.err and "Nothing was changed" in refused.err and refused.err.count("\n") == 1
    assert "`--unclean`" in refused.err and "`--from-tier`" in refused.err
    assert tree(survivor.data) == before
    assert survivor.recover("--unclean", "--confirm", "mine") == 0
    assert lost in capsys.readouterr().out.splitlines()
    assert survivor.epochs(ORDERS) == [(4, 0), (4 + survivor.ahead, 12)]


def test_another_history_at_the_same_offsets_is_found(survivor: Place, capsys: pytest.CaptureFixture[str]) -> None:
    survivor.copy(ORDERS, 0, 6, 4, "a")
    survivor.copy(ORDERS, 6, 9, 1_004, "b")
    assert survivor.recover("--confirm", "mine") == 1
    said = capsys.readouterr().err
    assert "orders-0: its table has other records than this log from offset 6 on: 3 records would leave the table" in said
    assert survivor.recover("--unclean", "--confirm", "mine") == 0
    assert survivor.epochs(ORDERS) == [(4, 0), (1_004 + survivor.ahead, 12)], "above the epoch of another recovery"
    assert survivor.epochs(METADATA_GROUP)[-1] == (1_004 + survivor.ahead, 5)


def test_a_table_of_a_topic_that_the_survivor_never_heard_of(survivor: Place, capsys: pytest.CaptureFixture[str]) -> None:
    survivor.copy(CLICKS, 0, 3, 4, "a")
    survivor.copy(ORDERS, 0, 15, 4, "b")
    assert survivor.recover("--confirm", "mine") == 1
    said = capsys.readouterr().err
    assert "orders-0: its table shows offsets up to 15" in said and "(and 1 more partition)" in said
    assert survivor.recover() == 0
    assert "clicks-0: its table shows 3 records, and this directory has no log of it" in capsys.readouterr().out.splitlines()


def test_tables_of_other_clusters_do_not_count(survivor: Place) -> None:
    survivor.tier = TierSettings(uri=survivor.tier.uri, cluster_id="theirs")
    survivor.copy(ORDERS, 0, 15, 9_000, "a")
    assert survivor.recover("--confirm", "mine") == 0
    assert survivor.epochs(ORDERS)[-1] == (4 + survivor.ahead, 12)


def test_a_store_that_cannot_be_read_needs_the_word_too(survivor: Place, capsys: pytest.CaptureFixture[str]) -> None:
    survivor.copy(ORDERS, 0, 6, 4, "a")
    Store(table_uri(survivor.tier.uri, ORDERS), {}).discard(["partition=0/a.parquet"])
    before = tree(survivor.data)
    assert survivor.recover("--confirm", "mine") == 1
    said = capsys.readouterr().err
    assert "the tables cannot be compared with this directory" in said and "partition=0/a.parquet is gone" in said
    assert tree(survivor.data) == before
    assert survivor.recover("--unclean", "--confirm", "mine") == 0
    assert survivor.epochs(ORDERS) == [(4, 0), (4 + survivor.ahead, 12)]


def test_a_directory_that_is_not_there_may_be_a_mount_that_is_missing(
    survivor: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was ever copied, as far as this node knows. The operator says so by making the directory."""
    before = tree(survivor.data)
    assert survivor.recover() == 0
    assert survivor.recover("--confirm", "mine") == 1
    said = capsys.readouterr()
    place = survivor.tier.uri
    for words in (f"there is no directory {place}", "not mounted", f"mkdir {place}"):
        assert words in said.out and words in said.err
    assert tree(survivor.data) == before
    Path(place).mkdir()
    assert survivor.recover("--confirm", "mine") == 0


@pytest.mark.parametrize("is_there", [False, True], ids=["no directory", "an empty mount point"])
def test_tables_of_which_this_node_knows_have_to_be_there(
    survivor: Place, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    command(survivor.data, put(tier_key(id_to_text(ORDERS.topic_id), 0), tiered(12)))
    if is_there:
        Path(survivor.tier.uri).mkdir()
    before = tree(survivor.data)
    missing = "orders-0: the quorum's keys tell of a table with the offsets 0 to 11"
    assert survivor.recover() == 0
    assert missing in capsys.readouterr().out
    assert survivor.recover("--confirm", "mine") == 1
    assert missing in (said := capsys.readouterr().err) and "mount the file system" in said and "Nothing was changed" in said
    assert survivor.recover("--json") == 0
    rows = {row["group"]: row["tableDiffers"] for row in json.loads(capsys.readouterr().out)}
    assert "mount the file system" in rows["orders-0"] and rows["__cluster_metadata-0"] == "-"
    assert tree(survivor.data) == before
    # With the table there is nothing to say.
    survivor.copy(ORDERS, 0, 12, 4, "a")
    assert survivor.recover("--confirm", "mine") == 0


def test_a_mounted_file_system_that_does_not_answer_needs_the_word(
    survivor: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat

    def stale(path: object, *rest: Any, **more: Any) -> os.stat_result:
        if str(path) == survivor.tier.uri:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return stat(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stale)
    assert survivor.recover("--confirm", "mine") == 1
    said = capsys.readouterr().err
    assert "cannot be compared" in said and os.strerror(errno.ESTALE) in said and "Traceback" not in said


def test_tables_that_are_lost_for_good_need_the_word(survivor: Place) -> None:
    command(survivor.data, put(tier_key(id_to_text(ORDERS.topic_id), 0), tiered(12)))
    Path(survivor.tier.uri).mkdir()
    assert survivor.recover("--unclean", "--confirm", "mine") == 0
    assert survivor.epochs(ORDERS) == [(4, 0), (4 + survivor.ahead, 12)]


def test_two_survivors_with_the_same_records_get_different_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables know nothing of the first recovery yet. Rows of one epoch at one offset are taken for the same record."""
    without_sync(monkeypatch)
    monkeypatch.setattr(Recovery, "require_lost_majority", lambda recovery, settings: None)
    found = set()
    for number in range(3):
        place = Place(tmp_path / str(number), monkeypatch)
        place.survive()
        (place.root / "tier").mkdir()
        assert place.recover() == 0 and place.recover("--confirm", "mine") == 0
        assert place.epochs(ORDERS)[-1] == (4 + place.ahead, 12)
        assert place.epochs(METADATA_GROUP)[-1] == (6 + place.ahead, 5)
        found.add(place.ahead)
    assert len(found) == 3 and all(EPOCHS_AHEAD <= each < EPOCHS_AHEAD + EPOCHS_SCATTERED for each in found)


def test_a_survivor_with_its_table_as_json(survivor: Place, capsys: pytest.CaptureFixture[str]) -> None:
    survivor.copy(ORDERS, 0, 15, 4, "a")
    survivor.copy(CLICKS, 0, 3, 4, "b")
    assert survivor.recover("--json") == 0
    rows: dict[str, dict[str, Any]] = {row["group"]: row for row in json.loads(capsys.readouterr().out)}
    told = {
        name: (row["tableStart"], row["tableEnd"], row["tableLeaving"], row["tableDiffers"] != "-")
        for name, row in rows.items()
    }
    assert told == {
        "orders-0": (0, 15, 3, True),
        "clicks-0": (0, 3, 3, True),
        "__cluster_metadata-0": (None, None, None, False),
    }
    assert rows["orders-0"]["logEnd"] == 12 and "logEnd" not in rows["clicks-0"]
    assert survivor.recover("--json", "--unclean", "--confirm", "mine") == 0
    assert [row["group"] for row in json.loads(capsys.readouterr().out)["groups"]] == list(rows)


def test_an_interrupted_recovery_is_finished_as_it_was_planned(survivor: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log holds records of the new epoch by then, which no table has to agree with."""
    survivor.copy(ORDERS, 0, 15, 4, "a")

    class Killed(BaseException):
        pass

    def kill(*told: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("raftlake.runtime.recovery.recover.write_meta", kill)
        with pytest.raises(Killed):
            survivor.recover("--unclean", "--confirm", "mine")
    assert (survivor.data / PENDING_NAME).exists()
    assert survivor.recover("--confirm", "mine") == 0
    assert survivor.epochs(ORDERS) == [(4, 0), (4 + survivor.ahead, 12)]


def test_the_help_says_where_unclean_elections_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["raftlake", "recover", "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.run(cli.app) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "An unclean election" in said and "It exists only here" in said and "--from-tier" in said


def test_without_a_tier_nothing_is_compared(survivor: Place) -> None:
    survivor.copy(ORDERS, 0, 15, 4, "a")
    survivor.write(tier=False)
    assert survivor.recover("--confirm", "mine") == 0
    assert survivor.epochs(ORDERS)[-1] == (4 + EPOCHS_AHEAD, 12)
