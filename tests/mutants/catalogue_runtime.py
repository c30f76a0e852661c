"""Planted bugs: sockets, processes, and what happens as they come and go."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

RUNTIME: tuple[Mutant, ...] = (
    Mutant(
        name="only-open-connections-are-in-touch",
        source="our own: a leader that stops would not tell a peer that has closed its idle connection",
        by_tests=True,
        places=("unit/runtime/test_runtime_peers_network.py",),
        edits=(
            Edit(
                "raftlake.runtime.peers.network",
                "        return self._connection is not None or self._connecting is not None\n",
                "        return self._connection is not None\n",
            ),
        ),
    ),
    Mutant(
        name="a-leader-that-stops-looks-at-open-connections-alone",
        source="our own: a leader that stops would not tell a peer that has closed its idle connection",
        by_tests=True,
        places=("unit/runtime/test_runtime_server.py",),
        edits=(Edit("raftlake.runtime.server", "self._network.peers_in_touch()", "self._network.connected_peers()"),),
    ),
    Mutant(
        name="outgoing-connections-get-the-ports-of-nodes",
        source="our own: a node of a local quorum that was killed found its port taken by some program's connection",
        by_tests=True,
        places=("unit/runtime/test_runtime_free_ports.py", "unit/local/test_local_directories.py"),
        edits=(Edit("raftlake.runtime.free_ports", "range(FIRST, _outgoing_first())", "range(0)"),),
    ),
)
