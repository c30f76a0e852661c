"""Planted bugs: the key space, the HTTP front and the client."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

KEYSPACE = "raftlake.kv.keyspace"
HTTP_KV = "raftlake.runtime.http_kv"
WATCH = "raftlake.runtime.http_watch"
CLIENT_KV = "raftlake.client.kv"
ANSWERS = "raftlake.client.kv_answers"
LANES = "raftlake.client.lanes"
SENDER = "raftlake.client.sender"

ORDER = ("property/test_kv_keyspace_order.py",)
BOUNDS = ("unit/test_kv_bounds.py",)
VERSIONS = ("unit/test_runtime_http_kv_versions.py",)
WATCHES = ("unit/test_runtime_http_watch.py",)
OUTCOMES = ("unit/test_client_kv_answers.py",)
CANCELLED = ("unit/test_client_lanes_cancelled.py",)
SEQUENCES = ("unit/test_client_lanes_sequences.py",)


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
        "(etag(entry.version),), offset)",
        "(etag(offset - 1),), offset)",
        VERSIONS,
    ),
    mutant(
        "if-match-0-matches-absence",
        "RFC 9110 §13.1.1: If-Match never matches what does not exist",
        HTTP_KV,
        "if int(version[1]) == ABSENT:",
        "if False:",
        VERSIONS,
    ),
    mutant(
        "redirect-to-oneself",
        "a node that hands over leadership names itself until its successor is known",
        HTTP_KV,
        "leader_id not in (NO_LEADER, self._node.config.node_id)",
        "leader_id != NO_LEADER",
        VERSIONS,
    ),
    mutant(
        "reserved-key-in-the-second-operation",
        "the second of two",
        HTTP_KV,
        "    if is_reserved(key):\n        raise HttpError(403, "
        'f"keys under /raftlake/ are written by the quorum alone: {key!r}")\n    if kind',
        "    if is_reserved(key) and index == 0:\n        raise HttpError(403, "
        'f"keys under /raftlake/ are written by the quorum alone: {key!r}")\n    if kind',
        ("unit/test_runtime_http_kv_bounds.py",),
    ),
    mutant(
        "watch-resumes-at-its-first-address",
        "WHATWG HTML §9.2: a reader that reconnects sends its old address and the id of the last event",
        WATCH,
        "    if last_id:\n",
        '    if last_id and "from" not in query:\n',
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
        "watch-cuts-a-large-transaction",
        "the rest of a transaction has the version that the reader is taken to have",
        WATCH,
        "if size > PIECE_BYTES and change.version != changes[index - 1].version:",
        "if size > PIECE_BYTES:",
        WATCHES,
    ),
)

CLIENT = (
    mutant(
        "internal-error-sent-again",
        "Jepsen: a write that may have happened is not retried, whatever the status of the answer",
        ANSWERS,
        "return status >= 500 or",
        "return status > 500 or",
        OUTCOMES,
    ),
    mutant(
        "bad-gateway-sent-again",
        "a proxy that lost the answer does not know what became of the request",
        ANSWERS,
        "return status >= 500 or",
        "return status in (500, 504) or",
        OUTCOMES,
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
        "            await backoff.pause(deadline)\n            if deadline.is_over():\n                raise self._timed_out(",
        "            if not deadline.is_over():\n                await backoff.pause(deadline)\n            else:\n"
        "                raise self._timed_out(",
        OUTCOMES,
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

FRONT: tuple[Mutant, ...] = (*KEY_SPACE, *HTTP_FRONT, *CLIENT)
