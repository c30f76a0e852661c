"""Planted bugs of a second look at hostile clients: names that are repeated, one line for all, and memory that ends."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

COMPRESSION = "raftlake.wire.compression"
SEARCHES = "raftlake.replica.aside.time_searches"
CHECKS = "raftlake.replica.aside.record_checks"
CLUSTER = "raftlake.replica.apis.cluster"
FETCH = "raftlake.replica.apis.fetch"
LINE = "raftlake.replica.aside.check_line"
LATER = "raftlake.replica.aside.later_turns"


def mutant(name: str, source: str, module: str, before: str, after: str, *places: str) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


MEMORY = (
    mutant(
        "no-memory-taken-for-a-failed-disk",
        "mmap says OSError: a payload that decompressed to 60 MiB stopped a node that was short of memory",
        COMPRESSION,
        "    except OSError as error:\n        raise MemoryError(",
        "    except ZeroDivisionError as error:\n        raise MemoryError(",
        "unit/wire/test_wire_compression.py",
        "unit/replica/test_replica_aside_time_searches.py",
    ),
    mutant(
        "job-aside-that-raises-stops-the-node",
        "a job's error was raised on the driver's thread, and whoever waited for the job got no answer",
        LATER,
        '        logger.exception("a job aside failed")\n        return None\n',
        "        raise\n",
        "unit/runtime/test_runtime_aside.py",
    ),
    mutant(
        "no-memory-for-a-check-ends-the-connection",
        "MemoryError at once, and not aside, ended the connection of an honest producer",
        CHECKS,
        "        except MemoryError as error:\n",
        "        except ZeroDivisionError as error:\n",
        "unit/replica/test_replica_aside_record_checks.py",
    ),
    mutant(
        "no-memory-for-a-search-ends-the-connection",
        "ListOffsets by time decompresses what is small at once",
        SEARCHES,
        "        except (PayloadTooLarge, MemoryError):\n",
        "        except PayloadTooLarge:\n",
        "unit/replica/test_replica_aside_time_searches.py",
    ),
)

REPEATED = ("unit/replica/test_replica_apis_repeats.py",)

NAMES = (
    mutant(
        "metadata-answers-each-mention",
        "256 KiB that named one topic of 100 partitions 85,883 times asked for 360 MB, and 27 s of the loop",
        CLUSTER,
        "asked_for = once(request.topics, _name_or_id)",
        "asked_for = request.topics",
        *REPEATED,
    ),
    mutant(
        "metadata-answers-an-id-for-each-name",
        "who asks by id may write any name beside it",
        CLUSTER,
        '    return topic_id if any(topic_id) else asked.name or ""\n',
        "    return asked.name or topic_id\n",
        *REPEATED,
    ),
    mutant(
        "configs-told-for-each-mention",
        "64 KiB that named one node 16,000 times took a second",
        "raftlake.replica.apis.configs",
        "        found[key] = (first, None",
        "        found[len(found), resource.resource_name] = (first, None",
        *REPEATED,
    ),
    mutant(
        "second-mention-of-a-resource-forgotten",
        "what is told once is all that was asked for",
        "raftlake.replica.apis.configs",
        "        found[key] = (first, None",
        "        found[key] = found.get(key) or (first, None",
        *REPEATED,
    ),
    mutant(
        "quorum-described-for-each-mention",
        "each mention of a partition was answered with all voters and observers",
        CLUSTER,
        "    return {name: list(indexes) for name, indexes in asked.items()}\n",
        "    return {name: [part.partition_index for topic in request.topics if topic.topic_name == name "
        "for part in topic.partitions] for name in asked}\n",
        *REPEATED,
    ),
    mutant(
        "repetitions-passed-on",
        "a question that is passed on has to fit into what another node takes",
        CLUSTER,
        "DescribeRpc(request=_about_one(request))",
        "DescribeRpc(request=request)",
        *REPEATED,
    ),
    mutant(
        "deletion-proposed-for-each-mention",
        "a request of 128 KiB that names one topic again and again filled the metadata log with deletions",
        "raftlake.replica.apis.topics",
        "        if times[_name_or_id(name, topic_id)] > 1:\n",
        "        if False:\n",
        *REPEATED,
    ),
    mutant(
        "deletion-by-name-and-by-id-proposed-twice",
        "one of both is told that the topic was replaced meanwhile",
        "raftlake.replica.apis.topics",
        "        under_way.add(topic.name)\n",
        "",
        *REPEATED,
    ),
    mutant(
        "find-quorum-of-any-size",
        "FindQuorum is decoded by hand, and the bound of cold requests was looked at for the others only",
        "raftlake.wire.api",
        "        if allowed is not None and len(view) > allowed:\n",
        "        if allowed is not None and hot is None and len(view) > allowed:\n",
        "unit/wire/test_wire_api.py",
    ),
)

FETCHED = ("unit/replica/test_replica_apis_fetch_work.py",)

PARKED = (
    mutant(
        "partition-fetched-as-often-as-it-is-named",
        "one Fetch registered 16,384 waiters at one partition",
        FETCH,
        "    if len({group for of_topic in groups for group in of_topic}) < sum(map(len, groups)):\n",
        "    if False:\n",
        *FETCHED,
    ),
    mutant(
        "partition-fetched-once-in-each-topic-entry",
        "a topic may stand in a Fetch twice",
        FETCH,
        "    if len({group for of_topic in groups for group in of_topic}) < sum(map(len, groups)):\n",
        "    if any(len(set(of_topic)) < len(of_topic) for of_topic in groups):\n",
        *FETCHED,
    ),
    mutant(
        "pausing-fetch-called-for-each-move",
        "twenty connections made each move of a high watermark call 330,000 waiters",
        FETCH,
        "            return True\n        self._stop_watching()\n        self._seen",
        "            return True\n        self._seen",
        *FETCHED,
    ),
    mutant(
        "move-amid-a-pause-forgotten",
        "a consumer waited for its time to be over, though what it waits for was there",
        FETCH,
        "        if self._watermarks() == self._seen:\n",
        "        if True:\n",
        *FETCHED,
    ),
    mutant(
        "fetches-in-vain-do-not-share-the-time",
        "a look at 16,384 partitions takes 80 ms, and each of twenty connections looked every 160 ms",
        FETCH,
        "len(self._seen) * self._parked.in_vain // ",
        "len(self._seen) // ",
        *FETCHED,
    ),
    mutant(
        "parked-fetches-without-end",
        "a Fetch that waits holds 8 MiB, and each connection may have one",
        FETCH,
        "        while self._size > PARKED_MAX:\n",
        "        while False:\n",
        *FETCHED,
    ),
    mutant(
        "smallest-parked-fetch-pays",
        "seven connections would let no honest consumer wait",
        FETCH,
        "            max(self._sizes, ",
        "            min(self._sizes, ",
        *FETCHED,
    ),
    mutant(
        "answered-fetch-counts-as-parked",
        "after 100,000 partitions no consumer would wait any more",
        FETCH,
        "        self._size -= self._sizes.pop(fetch, 0)\n",
        "        self._sizes.pop(fetch, 0)\n",
        *FETCHED,
    ),
    mutant(
        "empty-topics-park-for-nothing",
        "131,071 topics without a partition were held for a minute",
        FETCH,
        "    return sum(max(1, len(topic.partitions)) for",
        "    return sum(len(topic.partitions) for",
        *FETCHED,
    ),
)

WAITED = ("unit/replica/test_replica_aside_check_line.py",)

TURNS = (
    mutant(
        "done-checks-wake-no-connection",
        "with a stuck disk a producer stood at 15 requests of 32, because only answers started the next",
        LINE,
        "        connection.on_check_done()\n",
        "",
        *WAITED,
    ),
    mutant(
        "connection-not-woken-by-done-checks",
        "with a stuck disk a producer stood at 15 requests of 32, because only answers started the next",
        "raftlake.runtime.listener.connection",
        "        self._client.connection.on_check_done = self._start_what_waits\n",
        "",
        "unit/runtime/test_runtime_listener_connection.py",
    ),
    mutant(
        "connection-told-before-its-append",
        "what it starts then overtakes the append whose check was just done",
        LINE,
        "        check.done(checked)\n        connection.on_check_done()\n",
        "        connection.on_check_done()\n        check.done(checked)\n",
        *WAITED,
    ),
    mutant(
        "one-line-for-all-connections",
        "256 bombs of 592 bytes made every other producer of the partition wait for 24 s",
        LINE,
        "        return bool(self._under_way) and (asker.connection, group) in self._under_way\n",
        "        return any(group == each for _, each in self._under_way)\n",
        *WAITED,
    ),
    mutant(
        "connection-served-to-its-end",
        "a connection with bombs would have the thread for itself until they are all done",
        LINE,
        "            self._lines[connection] = line\n",
        "            self._lines = {connection: line, **self._lines}\n",
        *WAITED,
    ),
    mutant(
        "late-check-done-all-the-same",
        "its producer has given up, and those behind it wait for nothing",
        LINE,
        "if self._engine.now_ms > asker.deadline_ms or (",
        "if (",
        *WAITED,
    ),
    mutant(
        "check-at-its-deadline-left-undone",
        "a producer with a timeout of 0 could send nothing large",
        LINE,
        "if self._engine.now_ms > asker.deadline_ms or (",
        "if self._engine.now_ms >= asker.deadline_ms or (",
        *WAITED,
    ),
    mutant(
        "check-for-a-connection-that-is-gone",
        "who comes, sends bombs and goes is bounded by nothing",
        LINE,
        " or (asker.waits and asker.connection.is_gone):",
        ":",
        *WAITED,
    ),
    mutant(
        "records-without-acks-lost-with-their-connection",
        "a producer with acks=0 may go as soon as it has written",
        LINE,
        "(asker.waits and asker.connection.is_gone)",
        "asker.connection.is_gone",
        *WAITED,
    ),
    mutant(
        "checks-of-a-connection-not-counted-down",
        "after eight large requests its connection would start one at a time for ever",
        LINE,
        "        connection.checks_aside -= 1\n",
        "",
        *WAITED,
    ),
    mutant(
        "waiting-checks-without-end",
        "what connections that are gone have sent is counted by no listener",
        LINE,
        "        if self._submitted and self._bytes + size > WAITING_BYTES_MAX:\n",
        "        if False:\n",
        *WAITED,
    ),
    mutant(
        "any-number-of-checks-of-a-connection",
        "a connection starts 256 requests, and each may decompress to 16 MiB",
        "raftlake.runtime.listener.connection",
        "            and self._client.connection.checks_aside < self._limits.checks_aside_max\n",
        "",
        "unit/runtime/test_runtime_listener_connection.py",
    ),
    mutant(
        "connection-forgotten-with-another-client-id",
        "each request with another client id would stand in a line of its own",
        "raftlake.runtime.listener.connection",
        "            self._client = replace(self._client, client_id=client_id)\n",
        "            self._client = ClientContext(client_id, self.host, self._router.use)\n",
        "unit/runtime/test_runtime_listener_connection.py",
    ),
)

HOSTILE_REPEATS = (*MEMORY, *NAMES, *PARKED, *TURNS)
