"""Bugs planted in what nodes tell of one another: who is in sync, who is gone, and when the first leaders are there."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

IN_SYNC = "raftlake.replica.replication.in_sync"
SESSIONS = "raftlake.replica.replication.fetch_sessions"
FIRST_LEADERS = "raftlake.replica.hosting.first_leaders"
TOLD = "unit/replica/test_replica_replication_in_sync.py"
LEADERS = "unit/replica/test_replica_hosting_first_leaders.py"

KILLED = "kafka-topics --under-replicated-partitions printed nothing eight seconds after kill -9"
EARLY = "CreateTopics was answered before the partitions had leaders, and rskafka hung"

IN_SYNC_BUGS = (
    Mutant(
        name="idle-replicas-count-as-lagging",
        source=KILLED,
        edits=(Edit(IN_SYNC, "return max(progress.caught_up_at_ms, covered_ms)", "return progress.caught_up_at_ms"),),
        by_tests=True,
        places=(TOLD,),
    ),
    Mutant(
        name="who-fetches-counts-as-in-sync",
        source=KILLED,
        edits=(Edit(IN_SYNC, "        if progress.end_offset < core.log_end:\n", "        if False:\n"),),
        by_tests=True,
        places=(TOLD,),
    ),
    Mutant(
        name="new-leader-takes-the-dead-for-in-sync",
        source=KILLED,
        edits=(Edit(IN_SYNC, "lagged = self._lagged_before(group)", "lagged = ()"),),
        by_tests=True,
        places=(TOLD,),
    ),
    Mutant(
        name="leader-that-resigned-forgets-who-lagged",
        source=KILLED,
        edits=(
            Edit(
                IN_SYNC,
                "            if core.hears_leader:\n                # Before",
                "            if True:\n                # Before",
            ),
        ),
        by_tests=True,
        places=(TOLD,),
    ),
    Mutant(
        name="node-that-is-heard-counts-as-gone",
        source="a node that the leader of the metadata log does not hear may lead partitions, and clients need its address",
        edits=(Edit(IN_SYNC, "for node_id in self._gone if not self._hears(node_id))", "for node_id in self._gone)"),),
        by_tests=True,
        places=(TOLD,),
    ),
    Mutant(
        name="report-in-every-answer",
        source="while all is well nothing is said: a report in each answer would cost each round of each replica",
        edits=(Edit(SESSIONS, "        self.told_report = report\n", ""),),
        by_tests=True,
        places=(TOLD, "unit/replica/test_replica_replication_fetch_sessions.py"),
    ),
    Mutant(
        name="first-leaders-looked-at-once",
        source=EARLY,
        edits=(
            Edit(
                FIRST_LEADERS,
                "        if not waiting.without:\n            waiting.without = [group for",
                "        if False:\n            waiting.without = [group for",
            ),
        ),
        by_tests=True,
        places=(LEADERS,),
    ),
    Mutant(
        name="creation-of-a-deleted-topic-waits-on",
        source="a topic that another client deletes meanwhile never gets leaders",
        edits=(
            Edit(FIRST_LEADERS, "        if current is None or current.topic_id != topic.topic_id:\n", "        if False:\n"),
        ),
        by_tests=True,
        places=(LEADERS,),
    ),
    Mutant(
        name="observer-that-lost-its-leader-waits-for-news",
        source="seed 1060000199: an observer called the quorum leaderless until the next record",
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "        if self._unheard:\n            self._confirm_unheard()\n",
                "        self._unheard.clear()\n",
            ),
        ),
        by_tests=True,
        places=(TOLD, "unit/replica/test_replica_replication_fetcher_forgotten.py"),
    ),
    Mutant(
        name="observer-that-asked-another-voter-waits-for-news",
        source="seed 1130016276: it came back to the same leader, and heard of it with the next record alone",
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "        if not self._engine.partitions[group].core.hears_leader:\n            self._unheard[group] = None\n",
                "",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_replication_fetcher_forgotten.py",),
    ),
    Mutant(
        name="observer-that-doubts-an-answer-waits-for-news",
        source="the second of two: the connection was lost in the millisecond of the answer",
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "            if partition is None or partition.core.hears_leader:\n",
                "            if True:\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_replication_fetcher_forgotten.py",),
    ),
    Mutant(
        name="topics-of-the-connectors-match-patterns",
        source="a consumer of '.*' reads the changes of states",
        edits=(
            Edit(
                "raftlake.replica.apis.cluster",
                "topic.name == METADATA_TOPIC or topic.name.startswith(INTERNAL_PREFIX)",
                "topic.name == METADATA_TOPIC",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_apis_cluster_describe.py",),
    ),
    Mutant(
        name="lost-groups-told-before-their-own-round-is-answered",
        source="an answer to a round from before says nothing of a group that asks anew",
        edits=(
            Edit(
                "raftlake.replica.replication.fetcher",
                "        is_asked_anew = group in self._wanted or group in self._unproven\n",
                "        is_asked_anew = False\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_replication_fetcher_forgotten.py",),
    ),
    Mutant(
        name="voters-met-behind-the-first-round",
        source="the first groups of a node that joined asked a voter without an address, and again half a second later",
        edits=(
            Edit(
                "raftlake.replica.turn.turn",
                "                self._voter_changes.meet_voters()\n                self._fetch_server.send_answers()\n"
                "                self._control.send_all()\n                self._fetchers.send_rounds()\n",
                "                self._fetch_server.send_answers()\n"
                "                self._control.send_all()\n                self._fetchers.send_rounds()\n"
                "                self._voter_changes.meet_voters()\n",
            ),
        ),
        by_tests=True,
        places=("unit/replica/test_replica_turn.py", "unit/replica/test_replica_apis_voters_changes.py"),
    ),
)
