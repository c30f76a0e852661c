"""Planted bugs of a second look at hostile clients: texts and numbers, refusals and their reasons, logs, and full disks."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_repeats import mutant

TOLD = (
    mutant(
        "node-id-of-any-digits",
        "DescribeConfigs raised for broker ², and ended the connection",
        "raftlake.replica.apis.configs",
        "    return name.isascii() and name.isdigit() and",
        "    return name.isdigit() and",
        "unit/replica/test_replica_apis_cluster_describe.py",
    ),
    mutant(
        "node-id-in-any-spelling",
        "1, 01 and 001 are one node, whose settings were told for each",
        "raftlake.replica.apis.configs",
        ' and (name == "0" or name[0] != "0")',
        "",
        "unit/replica/test_replica_apis_cluster_describe.py",
    ),
    mutant(
        "refusal-of-the-leader-taken-for-no-leader",
        "CreateTopics at a follower said NOT_CONTROLLER beyond the limit of partitions",
        "raftlake.replica.kv.forwarding",
        "            if reply.error is ErrorCode.POLICY_VIOLATION:\n",
        "            if False:\n",
        "unit/replica/test_replica_kv_forwarding.py",
    ),
    mutant(
        "reason-of-the-leader-not-told",
        "a follower said that the leader refused, and not why",
        "raftlake.replica.kv.service",
        "ProposeReply(error=ErrorCode.POLICY_VIOLATION, message=for_clients(refusal))",
        "ProposeReply(error=ErrorCode.POLICY_VIOLATION)",
        "unit/replica/test_replica_kv_state_alone.py",
    ),
    mutant(
        "reason-of-the-leader-lost-on-the-wire",
        "nodes in one process pass on what no socket carries",
        "raftlake.runtime.peers.codec",
        "error_message=text)",
        "error_message=None)",
        "property/test_runtime_peers_codec.py",
    ),
    mutant(
        "promoted-observer-turned-away",
        "a node that became a voter lost its connections where clients had taken all places",
        "raftlake.runtime.admission",
        "            if not self._take_place(guest, place, standing) and guest.is_peer:\n"
        "                self._demote(guest, place)\n",
        "            if guest.is_peer:\n                self._demote(guest, place)\n            if guest in self._places:\n"
        "                self._take_place(guest, place, standing)\n",
        "unit/runtime/test_runtime_admission.py",
    ),
    mutant(
        "promoted-observer-in-its-own-way",
        "the last of a node's places was taken by the connection that asked for it",
        "raftlake.runtime.admission",
        ".keys() - {guest}\n",
        ".keys()\n",
        "unit/runtime/test_runtime_admission.py",
    ),
    mutant(
        "texts-judged-by-the-unicode-of-this-python",
        "two nodes with different Pythons decided differently about one committed key",
        "raftlake.kv.strict_json",
        " or _UNFIT.search(found):\n",
        " or not found.isprintable():\n",
        "unit/replica/test_replica_reserved.py",
    ),
    mutant(
        "control-characters-of-the-second-kind",
        "a host with U+0085 ends a line in a log",
        "raftlake.kv.strict_json",
        "\\x7f-\\x9f",
        "\\x7f",
        "unit/replica/test_replica_reserved.py",
    ),
    mutant(
        "logs-of-earlier-releases-refused",
        "gzip with bytes behind its end was taken, and readers of such a log stopped",
        "raftlake.wire.compression",
        "    if is_new and (stream.",
        "    if (stream.",
        "unit/wire/test_wire_compression.py",
    ),
    mutant(
        "new-gzip-with-bytes-behind-it-taken",
        "Java reads on in them, and librdkafka does not",
        "raftlake.replica.aside.record_checks",
        "payload, allowed, is_new=True)",
        "payload, allowed)",
        "unit/replica/test_replica_aside_record_checks.py",
    ),
)

LOGGED = (
    mutant(
        "broken-connection-logged-each-time",
        "each broken connection wrote a line of up to 32 KB",
        "raftlake.runtime.listener.listener",
        "        self._faults.note(now, ",
        "        RefusalLog(logger, logging.INFO).note(now, ",
        "unit/runtime/test_runtime_listener_connection.py",
    ),
    mutant(
        "facts-of-refusals-in-full-length",
        "a client id may have 32,767 bytes",
        "raftlake.runtime.refusal_log",
        "    return text if len(text) <= FACT_CHARACTERS_MAX else",
        "    return text if True else",
        "unit/runtime/test_runtime_refusal_log.py",
    ),
    mutant(
        "bug-logged-for-each-request",
        "a request that shows a bug wrote a traceback each time",
        "raftlake.runtime.listener.listener",
        "        self._bugs.note_bug(",
        "        RefusalLog(logger, logging.ERROR).note_bug(",
        "unit/runtime/test_runtime_listener_connection.py",
    ),
    mutant(
        "alarms-of-deleted-topics-stay",
        "a hundred of them were all alarms that are told, and the metrics of a node stayed red",
        "raftlake.replica.hosting.hosting",
        "            self._reports.forget(group)\n",
        "",
        "unit/replica/test_replica_reports.py",
    ),
)

FULL = (
    mutant(
        "election-line-without-room-left-torn",
        "a shorter line over a torn one was damage to the next start, and in both files a node that does not start",
        "raftlake.storage.election_journal",
        "            self._cut_back()\n",
        "",
        "unit/storage/test_storage_election_journal.py",
    ),
    mutant(
        "directory-of-others-stops-the-start",
        "one directory that NFS shows, and lets nobody read, kept a node from starting",
        "raftlake.storage.modes",
        "        if is_top:\n            raise\n",
        "        raise\n",
        "unit/storage/test_storage_modes.py",
    ),
    mutant(
        "data-directory-that-may-not-be-read",
        "what is not looked at is not empty",
        "raftlake.storage.modes",
        "        if is_top:\n            raise\n",
        "",
        "unit/storage/test_storage_modes.py",
    ),
    mutant(
        "deletion-without-room-stops-the-node",
        "a full disk is emptied by deletions, and one of them stopped the node",
        "raftlake.replica.hosting.queue",
        "        except DiskFull as full:\n            # A deletion moves",
        "        except ZeroDivisionError as full:\n            # A deletion moves",
        "unit/replica/test_replica_hosting_queue.py",
    ),
    mutant(
        "deletion-without-room-forgotten",
        "its directory stood there until the next start, and kept a topic of the same name from being opened",
        "raftlake.replica.hosting.queue",
        "            self._to_delete.extendleft(reversed(doomed))\n",
        "",
        "unit/replica/test_replica_hosting_queue.py",
    ),
    mutant(
        "no-room-for-the-intact-beginning-stops-the-node",
        "a node with a full disk stopped at the first damage, and at each start",
        "raftlake.storage.impairment",
        "            if error.errno not in NO_ROOM or self._segment is None:\n                raise\n",
        "            raise\n",
        "unit/storage/test_storage_impairment_full_disk.py",
    ),
    mutant(
        "half-a-copy-taken-for-the-intact-beginning",
        "what was written before the disk was full is no end of a batch",
        "raftlake.storage.impairment",
        "            os.ftruncate(target, 0)\n            self.position, self.offset = 0, self._segment\n",
        "            os.ftruncate(target, 0)\n            self.position = 0\n",
        "unit/storage/test_storage_impairment_full_disk.py",
    ),
    mutant(
        "damage-put-aside-into-another-directory-each-time",
        "what is tried again finds the files gone that it has moved",
        "raftlake.storage.impairment",
        "        if self._aside is None:\n            self._aside",
        "        if True:\n            self._aside",
        "unit/storage/test_storage_impairment_full_disk.py",
    ),
    mutant(
        "copy-put-aside-with-the-damage",
        "the second try took the copy for the segment that it was made of",
        "raftlake.storage.impairment",
        "        if fresh.exists():\n",
        "        if True:\n",
        "unit/storage/test_storage_impairment_full_disk.py",
    ),
)

HOSTILE_DETAILS = (*TOLD, *LOGGED, *FULL)
