"""Planted bugs in what a node that waits for its own command is brought (`FetchServer.hasten`)."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

FRONT = "raftlake.replica.front"
SERVER = "raftlake.replica.replication.fetch_server"
ROUNDS = "unit/replica/test_replica_replication_fetch_server_fetcher.py"
PROPOSALS = "unit/replica/test_replica_kv_forwarding.py"
AT_FRONT = "unit/replica/test_replica_front_alone.py"

HASTENED = (
    Mutant(
        name="nobody-hastens-a-command",
        source="a transaction's first batch took 25 ms at a node that a majority can do without",
        edits=(Edit(FRONT, "self._fetch_server.hasten(self._engine.config.quorum_group, rpc.source)", "pass"),),
        by_tests=True,
        places=(AT_FRONT, PROPOSALS),
    ),
    Mutant(
        name="refused-command-is-hastened",
        source="a refusal leaves nothing to wait for, and a round to each costs the leader",
        edits=(Edit(FRONT, " and answer.error is ErrorCode.NONE", ""),),
        by_tests=True,
        places=(AT_FRONT,),
    ),
    Mutant(
        name="hastened-amid-the-step",
        source="amid the step that commits, the core has not yet let the replica's fetch go",
        edits=(
            Edit(
                SERVER,
                "self._engine.timers.schedule(self._engine.now_ms, lambda: self._hasten(group, replica_id))",
                "self._hasten(group, replica_id)",
            ),
        ),
        by_tests=True,
        places=(PROPOSALS,),
    ),
    Mutant(
        name="hastened-replica-that-has-all",
        source="a round without news costs both nodes",
        edits=(Edit(SERVER, "            if group not in session.parked:\n", "            if True:\n"),),
        by_tests=True,
        places=(ROUNDS,),
    ),
    Mutant(
        name="hastened-are-all-replicas",
        source="the others gather high watermarks until records come",
        edits=(
            Edit(
                SERVER,
                "        for session in self.sessions.of(replica_id):\n            # One",
                "        for session in self.sessions.all():\n            # One",
            ),
        ),
        by_tests=True,
        places=(ROUNDS,),
    ),
)
