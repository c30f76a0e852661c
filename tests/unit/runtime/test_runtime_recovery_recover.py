"""Recovery from a lost majority: a plan first, nothing without the cluster's name, and killed anywhere it is finished later."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.batches import data_of, fill, read_all
from contract.file_faults import outcomes_of_kills, without_sync
from raftlake.cli import main as cli
from raftlake.cli import recover as cli_recover
from raftlake.errors import ConfigError, StorageError
from raftlake.kv.commands import decode, put
from raftlake.kv.keys import INCARNATION_KEY, PRODUCERS_NEXT_KEY, start_key
from raftlake.ports.peer_rpcs import GroupId
from raftlake.raft.types import NO_VOTERS, ElectionState, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey
from raftlake.raft.voters import VoterHistory
from raftlake.replica.config import METADATA_GROUP, Endpoint
from raftlake.replica.partition.snapshot_files import SnapshotMaker
from raftlake.replica.partition.start_points import LogFacts
from raftlake.replica.quorum import address_in
from raftlake.replica.reserved import PRODUCER_IDS_BLOCK, RecordStart, first_free_producer_id
from raftlake.replica.reserved_rules import ReservedRules
from raftlake.runtime.recovery.key_space import key_space
from raftlake.runtime.recovery.recover import EPOCHS_AHEAD, PENDING_NAME, Recovery, require_not_pending
from raftlake.storage import modes
from raftlake.storage.directory import FileLogDirectory
from raftlake.storage.election import FileElectionStore
from raftlake.storage.meta import format_directory, read_meta
from raftlake.wire.batches import decode_records
from raftlake.wire.ids import id_to_text
from recoverkit import ME, ORDERS, begin, command, make_survivor, recover


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_sync(monkeypatch)
    return make_survivor(tmp_path)


def tree(place: Path) -> dict[str, bytes]:
    ignored = (".index", ".timeindex", ".lock")
    return {
        str(path.relative_to(place)): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file() and not path.name.endswith(ignored)
    }


def test_the_dry_run_tells_and_changes_nothing(place: Path) -> None:
    before = tree(place)
    recovery = begin(place)
    facts = recovery.examine()
    recovery.close()
    assert tree(place) == before
    assert [(each.group, each.log_end, each.last_epoch, each.new_epoch) for each in facts] == [
        (ORDERS, 12, 4, 4 + EPOCHS_AHEAD),
        (METADATA_GROUP, 5, 4, 6 + EPOCHS_AHEAD),
    ], "the quorum's own log last"
    assert not recovery.is_resumed


def test_every_record_is_kept_and_this_node_alone_votes(place: Path) -> None:
    old = read_meta(place)
    directory_id = recover(place)
    meta = read_meta(place)
    assert meta.directory_id == directory_id != old.directory_id
    assert (meta.node_id, meta.cluster_id) == (ME, "mine")
    directory = FileLogDirectory(place, post=None)
    elections = FileElectionStore(place)
    for group, records, epoch in ((ORDERS, 12, 4), (METADATA_GROUP, 5, 6)):
        log = directory.open(group)
        assert elections.load(group) == ElectionState(Epoch(epoch + EPOCHS_AHEAD))
        assert list(log.epochs) == [(4, 0), (epoch + EPOCHS_AHEAD, records)]
        voters = VoterHistory(SimpleNamespace())  # type: ignore[arg-type]
        LogFacts(group, log, voters, log.start_offset).restore(0, with_voters=True)
        assert dict(voters.latest.voters) == {ME: ReplicaKey(ME, directory_id)}
        assert [(each.host, each.port) for each in voters.latest.endpoints[ME]] == [("127.0.0.1", 9093)]
        assert voters.kraft_version == 1
    (last,) = [record for record in decode_records(read_all(directory.open(METADATA_GROUP))) if record.offset == 7]
    (operation,) = decode(last.value or b"").ops
    assert operation.key == INCARNATION_KEY
    assert json.loads(operation.value)["epoch"] == 6 + EPOCHS_AHEAD  # type: ignore[union-attr]
    directory.close()
    require_not_pending(place)


def test_a_second_recovery_begins_a_later_epoch(place: Path) -> None:
    first, second = recover(place), recover(place)
    assert first != second
    directory = FileLogDirectory(place, post=None)
    assert directory.open(ORDERS).epochs[-1][0] == 4 + 2 * EPOCHS_AHEAD
    directory.close()


@pytest.mark.parametrize("confirmed", ["", "other", "Mine"])
def test_nothing_happens_without_the_clusters_name(place: Path, confirmed: str) -> None:
    before = tree(place)
    recovery = begin(place)
    with pytest.raises(ConfigError, match=r"expected is the id of this directory's cluster, mine; nothing was changed"):
        recovery.perform(recovery.examine(), confirmed)
    recovery.close()
    assert tree(place) == before


def test_a_kill_at_any_call_is_finished_by_the_next_recovery(place: Path, tmp_path: Path) -> None:
    number = itertools.count()

    def start() -> Recovery:
        copy = tmp_path / f"run-{next(number)}"
        shutil.copytree(place, copy)
        return begin(copy)

    def act(recovery: Recovery) -> None:
        recovery.perform(recovery.examine(), "mine")

    def look(recovery: Recovery) -> bool:
        copy = recovery.data_dir
        recovery._logs.abandon()
        was_pending = (copy / PENDING_NAME).exists()
        if was_pending:
            with pytest.raises(StorageError, match=r"was interrupted. Run it again"):
                require_not_pending(copy)
            planned = json.loads((copy / PENDING_NAME).read_bytes())
        directory_id = recover(copy)
        directory = FileLogDirectory(copy, post=None)
        elections = FileElectionStore(copy)
        for group in (ORDERS, METADATA_GROUP):
            log = directory.open(group)
            state = elections.load(group)
            assert state is not None and log.epochs[-1][0] == state.epoch
            voters = VoterHistory(SimpleNamespace())  # type: ignore[arg-type]
            LogFacts(group, log, voters, log.start_offset).restore(0, with_voters=True)
            assert dict(voters.latest.voters) == {ME: ReplicaKey(ME, directory_id)}
            if was_pending:
                assert state.epoch == next(each[3] for each in planned["groups"] if each[0] == group.topic)
        assert read_all(directory.open(ORDERS)).startswith(data_of(fill_of(12)))
        directory.close()
        if was_pending:
            assert next_producer_id(copy) == 5 * PRODUCER_IDS_BLOCK // 2
        require_not_pending(copy)
        return was_pending

    seen = outcomes_of_kills(start, act, look)
    assert len(seen) > 20
    assert True in seen


def next_producer_id(place: Path) -> int:
    directory = FileLogDirectory(place, post=None)
    entry = key_space(directory).get(PRODUCERS_NEXT_KEY)
    directory.close()
    return first_free_producer_id(entry)


@pytest.mark.parametrize(("known", "expected"), [(None, 2500), (b"2000", 4000), (b"4999", 5499), (b"spoilt", 5500)])
def test_half_of_the_producer_ids_that_the_lost_nodes_can_have_given_out_are_left_out(
    place: Path, known: bytes | None, expected: int
) -> None:
    if known is not None:
        command(place, put(PRODUCERS_NEXT_KEY, known))
    recover(place)
    assert next_producer_id(place) == expected


def take_blocks(place: Path, count: int) -> int:
    """As a node does, one command for each; the next free id."""
    free = next_producer_id(place)
    ends = [free + number * PRODUCER_IDS_BLOCK for number in range(1, count + 1)]
    command(place, *[put(PRODUCERS_NEXT_KEY, b"%d" % end) for end in ends])
    return ends[-1]


def test_each_of_three_recoveries_leaves_ids_for_the_next_one(place: Path, tmp_path: Path) -> None:
    """Of each quorum two nodes take blocks of which the third one does not know, and are lost."""
    command(place, *[put(f"/raftlake/nodes/{number}", b"{}") for number in range(160)])
    for number in range(3):
        take_blocks(place, 2)
        lost = tmp_path / f"lost-{number}"
        shutil.copytree(place, lost)
        given_out = take_blocks(lost, 20)
        recover(place)
        assert next_producer_id(place) >= given_out


def fill_of(count: int) -> list[Any]:
    class Log:
        end_offset = 0

        def append(self, chunks: list[bytes], spans: list[object]) -> None:
            self.end_offset += 1

    return fill(Log(), count, epoch=4)  # type: ignore[arg-type]


def test_a_damaged_plan_is_named(place: Path) -> None:
    for text in ("", "{}", '{"version":1}', '{"version":0,"directoryId":"x","groups":[]}'):
        (place / PENDING_NAME).write_text(text)
        with pytest.raises(StorageError, match=rf"{PENDING_NAME} is damaged.*Remove it"):
            begin(place)
        (place / PENDING_NAME).unlink()


def test_a_running_or_foreign_or_damaged_directory_is_refused(place: Path) -> None:
    running = FileLogDirectory(place, post=None)
    with pytest.raises(StorageError, match="is in use by process"):
        begin(place)
    running.close()
    with pytest.raises(StorageError, match=r"belongs to node.id=3"):
        begin(place, NodeId(2))
    path = place / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    recovery = begin(place)
    with pytest.raises(StorageError, match=rf"{path.name} is damaged at byte"):
        recovery.examine()
    recovery.close()
    shutil.rmtree(place / "__cluster_metadata-0")
    with pytest.raises(StorageError, match="nothing to recover from"):
        examine_once(place)


def examine_once(place: Path) -> None:
    recovery = begin(place)
    try:
        recovery.examine()
    finally:
        recovery.close()


def test_the_words(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recovery = begin(place)
    cli_recover.describe(recovery.examine(), "mine", is_resumed=True)
    recovery.close()
    said = capsys.readouterr().out
    assert "was interrupted" in said
    assert "orders-0" in said and "LogEnd" in said
    assert "acknowledged at or above LogEnd is lost" in said
    (orders,) = [line for line in said.splitlines() if line.startswith("orders-0")]
    assert orders.split() == ["orders-0", "0", "12", "4", "4", "unknown", "1004", "-"], "nothing here says what was committed"


class Terminal(io.StringIO):
    """What an operator types; at its end Ctrl-D."""

    def isatty(self) -> bool:
        return True


def run(monkeypatch: pytest.MonkeyPatch, place: Path, typed: str) -> int:
    """The exit code of the command without --confirm at a terminal."""
    monkeypatch.setattr(Recovery, "require_lost_majority", lambda recovery, settings: None)
    config = place.parent / "node.properties"
    config.write_text(
        f"node.id={ME}\nlog.dirs={place}\nlisteners=PLAINTEXT://127.0.0.1:9093\nquorum.voters={ME}@127.0.0.1:9093"
    )
    monkeypatch.setattr(sys, "argv", ["raftlake", "recover", "--config", str(config)])
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    return cli.run(cli.app)


@pytest.mark.parametrize("typed", ["", "\n", "other\n"])
def test_another_answer_and_ctrl_d_change_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    """Ctrl-D ended in a traceback."""
    before = tree(place)
    assert run(monkeypatch, place, typed) == 0, "as a run that asks nothing"
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[-1].endswith(f"raftlake recover --config {place.parent}/node.properties --confirm mine")
    assert "Nothing was changed" in said.out and tree(place) == before


def test_a_directory_without_a_cluster_id_is_refused_before_anything_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command advised `--confirm None`."""
    place = tmp_path / "new"
    format_directory(place, node_id=ME)
    directory = FileLogDirectory(place, post=None)
    fill(directory.open(METADATA_GROUP), 5, epoch=4)
    directory.close()
    assert run(monkeypatch, place, "None\n") == 1
    said = capsys.readouterr()
    assert said.err == f"raftlake: {place} belongs to no cluster yet; there is nothing to recover\n" and said.out == ""


def test_the_cluster_id_as_the_answer_recovers(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, place, "mine\n") == 0
    assert f"recovered: node {ME}" in capsys.readouterr().out


def test_root_is_refused_in_the_directory_of_another_user(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(modes, "owner_id", lambda path: 4711)
    before = tree(place)
    assert run(monkeypatch, place, "mine\n") == 1
    monkeypatch.setattr(sys, "argv", ["raftlake", "format", "--data-dir", str(place), "--node-id", str(ME)])
    assert cli.run(cli.app) == 1
    said = capsys.readouterr()
    assert (said.out, tree(place)) == ("", before)
    assert [line.startswith(f"raftlake: run as the owner of {place} (user ") for line in said.err.splitlines()] == [True] * 2


@pytest.mark.parametrize("controller", [None, 19093])
def test_the_survivor_votes_where_its_peers_reach_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, controller: int | None
) -> None:
    """With a listener for peers the command wrote the clients' address into the log, and told to set it."""
    monkeypatch.setattr(Recovery, "require_lost_majority", lambda recovery, settings: None)
    config = place.parent / "node.properties"
    peers = [] if controller is None else [f"controller.listener=CONTROLLER://127.0.0.1:{controller}"]
    voters = f"quorum.voters=1@127.0.0.1:19091,2@127.0.0.1:19092,3@127.0.0.1:{controller or 9093}"
    config.write_text("\n".join([f"node.id={ME}", f"log.dirs={place}", "listeners=PLAINTEXT://127.0.0.1:9093", voters, *peers]))
    result = CliRunner().invoke(cli.app, ["recover", "--config", str(config), "--confirm", "mine"])
    assert result.exit_code == 0, result.output
    address = Endpoint("127.0.0.1", controller or 9093)
    assert f"Set quorum.voters={ME}@{address} in {config}" in result.output
    directory = FileLogDirectory(place, post=None)
    try:
        log = directory.open(METADATA_GROUP)
        voters_in_log = VoterHistory(NO_VOTERS)
        LogFacts(METADATA_GROUP, log, voters_in_log, Offset(0), None).restore(0, with_voters=True)
        assert address_in(voters_in_log.latest, ME) == address
    finally:
        directory.close()


def test_what_retention_has_deleted_was_committed(place: Path) -> None:
    directory = FileLogDirectory(place, post=None)
    snapshot_id = OffsetAndEpoch(Offset(7), Epoch(4))
    writer = directory.snapshots.create(ORDERS, snapshot_id)
    SnapshotMaker(writer, snapshot_id, None, 0, 0).end()
    writer.freeze(lambda error: None)
    directory.close()
    recovery = begin(place)
    facts = {each.group: cli_recover.group_facts(each)["committedAtLeast"] for each in recovery.examine()}
    recovery.close()
    assert facts == {ORDERS: 7, METADATA_GROUP: None}


def test_an_offset_is_told_with_its_file(place: Path) -> None:
    directory = FileLogDirectory(place, post=None)
    assert directory.file_at(ORDERS, 7) == str(place / "orders-0" / f"{0:020d}.log")
    assert directory.file_at(GroupId("none", 0, bytes(16)), 7) == str(place / "none-0")
    directory.close()


def test_records_below_an_old_start_are_not_hidden_and_a_second_try_changes_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records up to 40 were deleted. The lost nodes had them, and this log ends at 12: its next records begin there."""
    key, other = (start_key(id_to_text(ORDERS.topic_id), index) for index in (0, 1))
    command(place, put(key, RecordStart(Offset(40)).encode()), put(other, RecordStart(Offset(3)).encode()))

    def starts() -> dict[int, int]:
        directory = FileLogDirectory(place, post=None)
        rules = key_space(directory).rules
        directory.close()
        assert isinstance(rules, ReservedRules)
        return {partition: start.offset for (_, partition), start in rules.starts.items()}

    unlink = Path.unlink

    def killed(path: Path, missing_ok: bool = False) -> None:
        if path.name == PENDING_NAME:
            raise OSError("killed")
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(StorageError):
            recover(place)
    assert starts() == {0: 12, 1: 0}
    recover(place)
    assert starts() == {0: 12, 1: 0}
