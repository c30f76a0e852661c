"""Planted bugs: the key space, the HTTP front, the client and the commands."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

KEYSPACE = "raftlake.kv.keyspace"
HTTP_KV = "raftlake.runtime.http.kv"
WATCH = "raftlake.runtime.http.watch"
CLIENT_KV = "raftlake.client.kv"
ANSWERS = "raftlake.client.kv_answers"
LANES = "raftlake.client.lanes"
SENDER = "raftlake.client.sender"

ORDER = ("property/test_kv_keyspace_order.py",)
BOUNDS = ("unit/kv/test_kv_bounds.py",)
VERSIONS = ("unit/runtime/test_runtime_http_kv_versions.py",)
WATCHES = ("unit/runtime/test_runtime_http_watch.py",)
BEGINS = ("unit/runtime/test_runtime_http_watch_begins.py",)
PRODUCE = ("unit/cli/test_cli_produce.py",)
OUTCOMES = ("unit/client/test_client_kv_answers.py",)
CANCELLED = ("unit/client/test_client_lanes_cancelled.py",)
SEQUENCES = ("unit/client/test_client_lanes_sequences.py",)


def mutant(name: str, source: str, module: str, before: str, after: str, places: tuple[str, ...]) -> Mutant:
    """A bug of one edit that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=(Edit(module, before, after),), by_tests=True, places=places)


KEY_SPACE = (
    mutant(
        "frozen-leaf-copied-as-if-sorted",
        "copy on write: a leaf that was never listed is out of order, and so is its copy",
        KEYSPACE,
        "is_sorted=self._is_sorted)",
        "is_sorted=True)",
        ORDER,
    ),
    mutant(
        "copied-leaf-forgets-its-last-key",
        "copy on write: a key below the last one makes a leaf unsorted",
        KEYSPACE,
        "return Leaf(self.rows.copy(), self._last, stamp",
        'return Leaf(self.rows.copy(), "", stamp',
        ORDER,
    ),
    mutant(
        "merged-leaf-ends-where-its-first-half-did",
        "B-trees: what is known of both halves holds for the merged leaf",
        KEYSPACE,
        'next(reversed(rows), "")',
        'next(reversed(first), "")',
        ORDER,
    ),
    mutant(
        "leaves-merged-unsorted",
        "B-trees: what is known of both halves holds for the merged leaf",
        KEYSPACE,
        "rows = {**self._leaves[index].sorted_rows(), **self._leaves[index + 1].sorted_rows()}",
        "rows = {**first, **second}",
        ORDER,
    ),
    mutant(
        "view-of-leaves-as-they-lie",
        "a snapshot is by key, also of leaves that nothing has listed",
        "raftlake.kv.frozen",
        "leaves.pop().sorted_rows().items()",
        "leaves.pop().rows.items()",
        BOUNDS,
    ),
    mutant(
        "page-begins-again-at-its-prefix",
        "off by one: a key may be the prefix itself",
        "raftlake.kv.machine",
        "after is None or after < prefix",
        "after is None or after <= prefix",
        BOUNDS,
    ),
    mutant(
        "largest-value-is-damage-in-a-snapshot",
        "off by one: the largest entry that a node takes comes back from its snapshot",
        "raftlake.kv.snapshot",
        "value_length > VALUE_BYTES_MAX",
        "value_length >= VALUE_BYTES_MAX",
        BOUNDS,
    ),
)

HTTP_FRONT = (
    mutant(
        "etag-of-the-last-change",
        "RFC 9110: an ETag is that of the representation, and with one key both are the same",
        HTTP_KV,
        "(etag(entry.version),), offset, hold)",
        "(etag(offset - 1),), offset, hold)",
        VERSIONS,
    ),
    mutant(
        "if-match-0-matches-absence",
        "RFC 9110 §13.1.1: If-Match never matches what does not exist",
        HTTP_KV,
        '"([1-9][0-9]{0,18})"',
        '"(0|[1-9][0-9]{0,18})"',
        VERSIONS,
    ),
    mutant(
        "if-match-compares-numbers",
        "RFC 9110 §8.8.3.2: entity-tags are compared byte by byte",
        HTTP_KV,
        '"([1-9][0-9]{0,18})"',
        '"0*([1-9][0-9]{0,18})"',
        VERSIONS,
    ),
    mutant(
        "tag-beyond-the-last-version-is-a-version",
        "off by one: 2^63 is the first number that no version has",
        HTTP_KV,
        "int(version[1]) >= 1 << 63:",
        "int(version[1]) > 1 << 63:",
        VERSIONS,
    ),
    mutant(
        "redirect-to-oneself",
        "a node that hands over leadership names itself until its successor is known",
        HTTP_KV,
        "leader_id not in (NO_LEADER, node.config.node_id)",
        "leader_id != NO_LEADER",
        VERSIONS,
    ),
    mutant(
        "reserved-key-in-the-second-operation",
        "the second of two",
        "raftlake.runtime.http.txn_body",
        "    if is_reserved(key):\n        raise HttpError(403, "
        'f"keys under /raftlake/ are written by the quorum alone: {key!r}")\n    if kind',
        "    if is_reserved(key) and index == 0:\n        raise HttpError(403, "
        'f"keys under /raftlake/ are written by the quorum alone: {key!r}")\n    if kind',
        ("unit/runtime/test_runtime_http_kv_bounds.py",),
    ),
    mutant(
        "watch-resumes-at-its-first-address",
        "WHATWG HTML §9.2: a reader that reconnects sends its old address and the id of the last event",
        WATCH,
        "if last_id else (query",
        'if last_id and "from" not in query else (query',
        WATCHES,
    ),
    mutant(
        "watch-from-now-misses-the-next-change",
        "off by one: the next change has the version that is the applied offset",
        WATCH,
        "default=machine.applied_offset - 1",
        "default=machine.applied_offset",
        WATCHES,
    ),
    mutant(
        "watch-begins-without-an-id",
        "WHATWG HTML §9.2: a reader that has seen no id reconnects without one, and misses what came between",
        WATCH,
        'watcher.cursor.mark(b"watch"))',
        'b": watch\\n\\n")',
        BEGINS,
    ),
    mutant(
        "watch-begins-with-the-id-of-what-follows",
        "the id that a watch begins with is that of what the reader has, not of what it is about to get",
        WATCH,
        'await self._send_piece(exchange, watcher.cursor.mark(b"watch"))',
        "taken = watcher.cursor.take(self._encodings) or b''\n"
        '            await self._send_piece(exchange, watcher.cursor.mark(b"watch") + taken)',
        BEGINS,
    ),
    mutant(
        "watch-begins-below-the-first-version",
        "WHATWG HTML §9.2.3: after an answer of 400 to the id that it was given, a reader asks no more",
        "raftlake.runtime.http.watch_cursor",
        "max(self.version, 0))",
        "self.version)",
        BEGINS,
    ),
    mutant(
        "watch-blames-the-address-for-the-header",
        "an error names what is wrong",
        WATCH,
        '({"Last-Event-ID": last_id}, "Last-Event-ID")',
        '({"from": last_id}, "from")',
        WATCHES,
    ),
    mutant(
        "cancelled-watch-goes-on",
        "CPython 86296 (bpo-42130): wait_for forgets a cancellation that comes as its future is done",
        WATCH,
        "        async with asyncio.timeout(self._stall_seconds):\n            await exchange.write_piece(piece)\n",
        "        await asyncio.wait_for(exchange.write_piece(piece), self._stall_seconds)\n",
        ("unit/runtime/test_runtime_http_front.py",),
    ),
    mutant(
        "watch-cuts-a-large-transaction",
        "the rest of a transaction has the version that the reader is taken to have",
        "raftlake.runtime.http.watch_cursor",
        "        if is_last:\n            self.version = change[1]\n",
        "        self.version = change[1]\n",
        ("unit/runtime/test_runtime_http_watch_cursor.py",),
    ),
)

CLIENT = (
    mutant(
        "internal-error-sent-again",
        "Jepsen: a write that may have happened is not retried, whatever the status of the answer",
        ANSWERS,
        "415, 421, 503,",
        "415, 421, 500, 503,",
        OUTCOMES,
    ),
    mutant(
        "bad-gateway-sent-again",
        "a proxy that lost the answer does not know what became of the request",
        ANSWERS,
        "if answer.status_code not in _NOT_PROPOSED or not _is_of_a_node(answer):",
        "if answer.status_code != 502 and (answer.status_code not in _NOT_PROPOSED or not _is_of_a_node(answer)):",
        OUTCOMES,
    ),
    mutant(
        "refusal-of-a-proxy-is-definite",
        "what stands between client and node may refuse what it has handed on",
        ANSWERS,
        "answer.status_code not in _NOT_PROPOSED or not _is_of_a_node(answer):",
        "answer.status_code not in _NOT_PROPOSED:",
        OUTCOMES,
    ),
    mutant(
        "any-error-as-json-is-a-nodes",
        "others say `error` in JSON too; the offset is what each answer of a node carries",
        ANSWERS,
        '"x-raftlake-offset" in answer.headers and isinstance(',
        "isinstance(",
        OUTCOMES,
    ),
    mutant(
        "status-that-no-node-gives-is-definite",
        "RFC 6585 §4: 429 is of limits, which nodes do not have",
        ANSWERS,
        "415, 421, 503,",
        "415, 421, 429, 503,",
        OUTCOMES,
    ),
    mutant(
        "conflict-with-any-version",
        "a 412 that names no version may be that of something else, after the write",
        ANSWERS,
        "type(name) is str and type(version) is int for",
        "type(name) is str for",
        OUTCOMES,
    ),
    mutant(
        "redirect-to-nowhere-ends-as-another-error",
        "a write that was sent and not answered by a node has an unknown outcome, whatever the status",
        CLIENT_KV,
        "raise unknown_write(method, path, str(error)) from error\n                        raise\n",
        "raise\n                        raise\n",
        OUTCOMES,
    ),
    mutant(
        "id-counts-before-its-event-is-whole",
        "WHATWG HTML §9.2.6: the last event ID changes as the event is dispatched, after its data",
        "raftlake.client.sse",
        "            self._id = value\n",
        "            self._id = self.last_id = value\n",
        ("unit/client/test_client_kv.py",),
    ),
    mutant(
        "lost-change-of-voters-is-a-refusal",
        "the second of two: a request that was lost may have been carried out, whatever a later one is told",
        "raftlake.client.voters",
        'RequestRejected(code, f"{what}: {message}"), is_lost)',
        'RequestRejected(code, f"{what}: {message}"), False)',
        ("unit/client/test_client_voters.py",),
    ),
    mutant(
        "unanswered-write-sent-again",
        "a time limit of the answer is none of the connection",
        CLIENT_KV,
        "except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:",
        "except (httpx.ConnectError, httpx.TimeoutException) as error:",
        OUTCOMES,
    ),
    mutant(
        "write-sent-with-no-time-left",
        "a refused write whose time ends during the pause is a refused write",
        CLIENT_KV,
        "                await backoff.pause(deadline)\n            # A write that no node",
        "                await backoff.pause(deadline)\n                continue\n            # A write that no node",
        OUTCOMES,
    ),
    mutant(
        "write-sent-again-in-less-time-than-an-answer-takes",
        "one more try makes an unknown outcome of a refusal: the write stays refused",
        CLIENT_KV,
        "if deadline.is_over() or (is_write and deadline.remaining_ms() < took_ms):",
        "if deadline.is_over():",
        OUTCOMES,
    ),
    mutant(
        "read-not-sent-again-in-less-time-than-an-answer-takes",
        "nothing is lost by a read without an answer",
        CLIENT_KV,
        "if deadline.is_over() or (is_write and deadline.remaining_ms() < took_ms):",
        "if deadline.is_over() or deadline.remaining_ms() < took_ms:",
        OUTCOMES,
    ),
    mutant(
        "first-redirect-waits",
        "the node that redirects has told who leads: there is nothing to wait for",
        CLIENT_KV,
        "was_redirected = False",
        "was_redirected = True",
        ("unit/client/test_client_kv.py",),
    ),
    mutant(
        "redirects-never-wait",
        "nodes that send one to each other during an election are asked thousands of times a second",
        CLIENT_KV,
        "goes_on_at_once, was_redirected = not was_redirected, True",
        "goes_on_at_once = True",
        ("unit/client/test_client_kv.py",),
    ),
    mutant(
        "cancelled-batch-leaves-a-gap",
        "KIP-98: what has a sequence is sent, also when its caller has gone",
        SENDER,
        "(pending.lane is None and pending.outcome.done())",
        "pending.outcome.done()",
        CANCELLED,
    ),
    mutant(
        "cancelled-batch-keeps-its-room",
        "a batch that was appended has its outcome, also when its caller has gone",
        SENDER,
        "        pending.lane.close(pending.number_in_lane)\n        if pending.outcome.done():  # Its caller was cancelled.\n"
        "            return\n",
        "        if pending.outcome.done():  # Its caller was cancelled.\n            return\n"
        "        pending.lane.close(pending.number_in_lane)\n",
        CANCELLED,
    ),
    mutant(
        "new-number-before-those-given-out",
        "KIP-98: sequences of one producer id follow one another, also when some of them are sent again",
        SENDER,
        "if self._has_unsent and (",
        "if False and (",
        SEQUENCES,
    ),
    mutant(
        "gap-stays-at-the-first-failure",
        "the second of two: a later failure may be that of an earlier batch",
        SENDER,
        "(self._gap is None or pending.number < self._gap[0])",
        "self._gap is None",
        SEQUENCES,
    ),
    mutant(
        "sequence-counts-batches",
        "KIP-98: a sequence numbers records",
        LANES,
        "(sequence + record_count)",
        "(sequence + 1)",
        SEQUENCES,
    ),
)

COMMANDS = (
    mutant(
        "unknown-outcome-exits-like-a-refusal",
        "scripts tell what was refused from what may have been carried out",
        "raftlake.cli.main",
        "return EXIT_UNKNOWN if isinstance(error, UnknownOutcome) else 1",
        "return 1",
        ("unit/cli/test_cli_kv.py",),
    ),
    mutant(
        "unknown-lines-exit-like-refused-ones",
        "the second of two: one line was refused, and of another it is not known",
        "raftlake.cli.produce",
        "is_unknown = any(isinstance(outcome, UnknownOutcome) for outcome in outcomes)",
        "is_unknown = all(isinstance(outcome, UnknownOutcome) for outcome in outcomes)",
        PRODUCE,
    ),
    mutant(
        "partition-missed-at-the-first-line",
        "an empty input shows what is wrong too",
        "raftlake.cli.topics",
        "require_partition(topic, partition, client.partitions(topic))",
        "client.partitions(topic)",
        PRODUCE,
    ),
    mutant(
        "data-of-a-folder-with-spaces-stays",
        "a command that is shown can be typed",
        "raftlake.quickstart.tour",
        "shlex.quote(str(directory))",
        "str(directory)",
        ("unit/quickstart/test_quickstart_tour.py",),
    ),
)

FRONT: tuple[Mutant, ...] = (*KEY_SPACE, *HTTP_FRONT, *CLIENT, *COMMANDS)
