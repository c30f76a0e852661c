"""Planted bugs in the calls of a client: what is closed or forked meanwhile, what calls share, a topic that is created again,
and who answers at the port of a node."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

LOOP_THREAD = "raftlake.client.loop_thread"
BLOCKING = "raftlake.client.blocking"
SYNC = "raftlake.client.sync"
CLUSTER = "raftlake.client.cluster"
SENDER = "raftlake.client.sender"
PRODUCER = "raftlake.client.producer"
LANES = "raftlake.client.lanes"
SHARED = "raftlake.client.shared_work"
KV = "raftlake.client.kv"
ALARM = "raftlake.client.deadline"

THREADS = ("unit/client/test_client_sync.py",)
ALARMS = ("unit/client/test_client_deadline.py",)
RECREATED = ("unit/client/test_client_recreated.py",)
WORK = ("unit/client/test_client_shared_work.py",)
DEADLINES = ("unit/client/test_client_shared_deadlines.py",)
CALLS = ("unit/client/test_client_producer_calls.py",)
STRANGERS = ("unit/client/test_client_kv_strangers.py",)
CONNECTIONS = ("unit/client/test_client_connection_pool.py",)


def mutant(name: str, source: str, places: tuple[str, ...], *edits: Edit, hangs: bool = False) -> Mutant:
    """A bug that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=edits, by_tests=True, places=places, hangs=hangs)


WRITES_LONG = "httpx.Timeout(attempt_s, connect=connect_s, write=sending_s + attempt_s)"
READS_LONG = "httpx.Timeout(attempt_s, connect=connect_s, read=sending_s + attempt_s)"
LEAVES = """        try:
            yield item
        except GeneratorExit:
            try:
                running.call(_left(iterator))
            except RuntimeError:
                pass
            raise
"""
LEFT = """async def _left(iterator: Any) -> None:
    await iterator.aclose()


async def _next("""
#: A stream that its reader leaves waits until it is closed on the loop.
WAITS_WHEN_LEFT = (Edit(BLOCKING, "        yield item\n", LEAVES), Edit(BLOCKING, "async def _next(", LEFT))

CLOSED_MEANWHILE = (
    mutant(
        "work-taken-by-a-thread-that-stops",
        "its caller waits for ever: the loop ends before the work begins",
        THREADS,
        Edit(LOOP_THREAD, "            if not self._is_stopped:\n", "            if True:\n"),
    ),
    mutant(
        "sent-append-cancelled-with-its-client",
        "its outcome is unknown, and a cancelled call says nothing of what was sent",
        THREADS,
        Edit(LOOP_THREAD, "    for _ in range(_LAST_TURNS):\n", "    for _ in range(0):\n"),
    ),
    mutant(
        "cut-off-call-says-cancelled",
        "an ordinary program cancels nothing: its client was closed",
        THREADS,
        Edit(
            LOOP_THREAD,
            "            if self._is_stopped:\n                raise _closed_error()",
            "            if False:\n                raise _closed_error()",
        ),
    ),
    mutant(
        "collected-stream-waits-for-its-own-thread",
        "the garbage collector runs in any thread, in that of the loop too",
        THREADS,
        *WAITS_WHEN_LEFT,
        Edit(LOOP_THREAD, "        if self.is_current:\n", "        if False:\n"),
        hangs=True,
    ),
    mutant(
        "left-stream-waits-for-its-loop",
        "the interpreter exits, or another thread of the program holds what the loop waits for",
        THREADS,
        *WAITS_WHEN_LEFT,
        hangs=True,
    ),
    mutant(
        "left-stream-fetches-on",
        "nobody reads it any more",
        THREADS,
        Edit(
            BLOCKING,
            "    iterator = running.call(start())\n",
            "    iterator = running.call(start())\n    _LEFT.append(iterator)\n",
        ),
        Edit(BLOCKING, "#: Arguments that the loop may read as they are.\n", "_LEFT: list[Any] = []\n"),
    ),
    mutant(
        "client-closed-in-its-own-thread-is-forgotten",
        "the thread and its connections are left behind, and nobody can end them",
        THREADS,
        Edit(SYNC, "            running.require_other_thread()\n", "            pass\n"),
    ),
    mutant(
        "forked-child-taken-for-the-clients-own-thread",
        "a callback forks: the child is told of a wait for itself, and cannot close the client",
        THREADS,
        Edit(LOOP_THREAD, " and self.process_id == os.getpid()\n", "\n"),
    ),
    mutant(
        "lock-that-a-collected-stream-cannot-take",
        "the garbage collector runs at any time, also while work is handed over",
        THREADS,
        Edit(LOOP_THREAD, "threading.RLock()", "threading.Lock()"),
        hangs=True,
    ),
    mutant(
        "work-taken-by-the-copy-of-a-thread",
        "a fork copies no thread: its work is done by nobody",
        THREADS,
        Edit(LOOP_THREAD, "if self.process_id != os.getpid():", "if False:"),
    ),
    mutant(
        "thread-is-made-under-a-lock",
        "a finalizer of the program that runs in the new thread waits for the lock, and its maker for that thread",
        THREADS,
        Edit(
            SYNC,
            "        made = LoopThread(lambda: AsyncClient(self._bootstrap_servers, **self._settings))\n"
            "        with self._lock:\n",
            "        with self._lock:\n"
            "            made = LoopThread(lambda: AsyncClient(self._bootstrap_servers, **self._settings))\n",
        ),
        hangs=True,
    ),
    mutant(
        "client-closed-amid-its-first-call-goes-on",
        "its thread and its connections are left behind, and nobody can end them",
        THREADS,
        Edit(SYNC, "if not self._is_closed and self._of_this_process() is None:", "if self._of_this_process() is None:"),
    ),
    mutant(
        "first-thread-of-a-client-is-forgotten",
        "it and its connections are left behind, and nobody can end them",
        THREADS,
        Edit(SYNC, "if not self._is_closed and self._of_this_process() is None:", "if not self._is_closed:"),
    ),
    mutant(
        "second-thread-of-a-client-is-left-behind",
        "it runs until the process ends",
        THREADS,
        Edit(SYNC, "        made.stop()\n", ""),
    ),
    mutant(
        "alarm-asks-its-handle-for-the-time",
        "uvloop's handle of a time that is over does not know it: an append that was told as failed was made",
        ALARMS + DEADLINES,
        Edit(ALARM, "if self._handle is None or at < self._at:", "if self._handle is None or at < self._handle.when():"),
    ),
    mutant(
        "alarm-goes-off-early",
        "uvloop rings half a millisecond before the time",
        ALARMS,
        Edit(ALARM, "        if loop.time() < self._at:\n", "        if False:\n"),
    ),
    mutant(
        "alarm-keeps-its-first-time",
        "a later batch with less time waits for the one before",
        ALARMS + DEADLINES,
        Edit(ALARM, "if self._handle is None or at < self._at:", "if self._handle is None:"),
    ),
    mutant(
        "alarm-takes-its-last-time",
        "an earlier batch with less time waits for the one behind it",
        ALARMS,
        Edit(ALARM, "if self._handle is None or at < self._at:", "if True:"),
    ),
    mutant(
        "alarm-that-was-set-again-rings-twice",
        "the first handle goes on",
        ALARMS,
        Edit(ALARM, "            self.cancel()\n            self._at = at\n", "            self._at = at\n"),
    ),
    mutant(
        "alarm-that-rang-cannot-be-set-again",
        "a batch of later waits for ever",
        ALARMS,
        Edit(ALARM, "        self._handle = None\n        self._ring()\n", "        self._ring()\n"),
        hangs=True,
    ),
    mutant(
        "shared-work-is-given-up-early",
        "the loop ended the pause before the time: who has minutes left was told of a time that is over",
        WORK,
        Edit(
            SHARED,
            "            while not running.done():\n"
            "                if deadline.is_over():\n                    raise TimeoutError\n",
            "            if not running.done():\n",
        ),
        Edit(
            SHARED,
            "timeout=deadline.remaining_ms() / 1000)\n",
            "timeout=deadline.remaining_ms() / 1000)\n"
            "                if not running.done():\n                    raise TimeoutError\n",
        ),
    ),
    mutant(
        "lock-of-the-parent-in-a-forked-child",
        "a fork copies a lock as it is, and not the thread that holds it",
        THREADS,
        Edit(SYNC, "setdefault(os.getpid(), threading.RLock())", "setdefault(0, threading.RLock())"),
    ),
    mutant(
        "append-by-a-producer-that-was-closed",
        "close gives up what is not sent yet, also what still looks for its topic",
        CALLS,
        Edit(PRODUCER, "        if self._is_closed:\n", "        if False:\n"),
    ),
)

CREATED_AGAIN = (
    mutant(
        "leader-of-a-deleted-topic",
        "its epochs are higher than those of the new topic, so it would be believed for good",
        RECREATED,
        Edit(CLUSTER, "if known is None or known.topic_id != topic_id:", "if known is None:"),
    ),
    mutant(
        "stream-goes-on-in-another-topic",
        "an offset of the old topic means other records in the new one",
        RECREATED,
        Edit("raftlake.client.aio", "topic_id=described.topic_id,", "topic_id=None,"),
    ),
    mutant(
        "stream-bound-to-a-topic-that-was",
        "what is cached may be the topic before, so a stream asks which one there is",
        RECREATED,
        Edit("raftlake.client.aio", "self._deadline(None), is_retry=True)", "self._deadline(None))"),
    ),
)

TOGETHER = (
    mutant(
        "call-ends-with-the-time-of-another",
        "who joins the work of another caller may have more time",
        WORK + DEADLINES,
        Edit(SHARED, "if deadline.is_over() or not its_deadline.is_over():", "if True:"),
    ),
    mutant(
        "callers-without-a-node-fail-one-after-the-other",
        "each begins the search anew that has just failed",
        WORK + DEADLINES,
        Edit(SHARED, "if deadline.is_over() or not its_deadline.is_over():", "if deadline.is_over():"),
    ),
    mutant(
        "outage-ends-with-the-time-of-an-older-operation",
        "who shares its request has met the outage just now",
        DEADLINES,
        Edit(CLUSTER, "elapsed_ms = (self.now() - began_at) * 1000", "elapsed_ms = deadline.elapsed_ms()"),
    ),
    mutant(
        "call-waits-for-the-time-of-another",
        "who joins the work of another caller may have less time",
        WORK + DEADLINES,
        Edit(SHARED, "timeout=deadline.remaining_ms() / 1000", "timeout=None"),
        hangs=True,
    ),
    mutant(
        "batch-waits-for-the-time-of-another",
        "batches of one partition wait for the leader together, and each in its own time",
        DEADLINES,
        Edit(SENDER, "            self._alarm.set(deadline.at)\n", "            pass\n"),
    ),
    mutant(
        "batches-end-with-the-time-of-the-first",
        "those that came later have time left",
        DEADLINES,
        Edit(SENDER, "if error is not None and deadline is not None and deadline.is_over():", "if False:"),
    ),
    mutant(
        "lanes-given-up-for-want-of-time",
        "without an id in time there may be one later",
        DEADLINES,
        Edit(SENDER, "            if not deadline.is_over():\n", "            if True:\n"),
    ),
    mutant(
        "producer-id-not-kept",
        "the n-th lane of every partition shares the n-th id",
        DEADLINES,
        Edit(LANES, "        if index in self._shared:\n", "        if False:\n"),
    ),
    mutant(
        "batches-sent-before-all-are-built",
        "a call that raises tells of no batch, so none may be under way",
        CALLS,
        Edit(
            PRODUCER,
            "counted = [(batch, parse_header(batch).last_offset_delta + 1) for batch in batches]",
            "counted = ((batch, parse_header(batch).last_offset_delta + 1) for batch in batches)",
        ),
        Edit(
            PRODUCER,
            "owned = [(batch if isinstance(batch, bytearray) else bytearray(batch), count) for batch, count in counted]",
            "owned = ((batch if isinstance(batch, bytearray) else bytearray(batch), count) for batch, count in counted)",
        ),
    ),
    mutant(
        "records-sent-before-all-are-built",
        "the same for records that the client makes into batches",
        CALLS,
        Edit(
            PRODUCER,
            "self._built([record for _, record in batch]))\n            for",
            "[record for _, record in batch])\n            for",
        ),
        Edit(
            PRODUCER,
            "submit(batch, len(places), deadline))",
            "submit(self._built(batch), len(places), deadline))",
        ),
    ),
)

STRANGE_FRONTS = (
    mutant(
        "stranger-believed-that-a-key-does-not-exist",
        "another server may have the port of a node that is down",
        STRANGERS,
        Edit(KV, "if not is_write and not has_offset(answer):", "if False:"),
    ),
    mutant(
        "watch-ends-at-a-stranger",
        "the other nodes know the changes",
        STRANGERS,
        Edit(KV, "                    if not has_offset(answer):\n", "                    if False:\n"),
    ),
    mutant(
        "answer-awaited-for-as-long-as-it-drips",
        "the time limits of an HTTP client begin anew with each byte",
        STRANGERS,
        Edit(KV, "first_at + len(body) / BYTES_PER_S_MIN", "first_at + len(body)"),
    ),
    mutant(
        "large-answer-has-the-time-of-a-small-one",
        "a page of values over a slow link was begun anew until the time was over",
        STRANGERS,
        Edit(KV, "first_at + len(body) / BYTES_PER_S_MIN", "first_at"),
    ),
    mutant(
        "large-write-has-the-time-of-a-small-one",
        "its outcome is unknown, though the node has it only in part",
        STRANGERS,
        Edit(KV, 'sending_s = min(len(arguments.get("content") or b"") / BYTES_PER_S_MIN, left_s)', "sending_s = 0.0"),
    ),
    mutant(
        "answer-to-a-large-write-is-not-waited-for",
        "what is written is in the system's buffers, and not at the node",
        STRANGERS,
        Edit(KV, "httpx.Timeout(sending_s + attempt_s, connect=connect_s)", WRITES_LONG),
    ),
    mutant(
        "large-body-is-written-in-the-time-of-a-small-one",
        "it is one piece, and the system's buffers take a part of it",
        STRANGERS,
        Edit(KV, "httpx.Timeout(sending_s + attempt_s, connect=connect_s)", READS_LONG),
    ),
    mutant(
        "write-without-a-whole-answer-sent-again",
        "it was sent, and may have happened",
        STRANGERS,
        Edit(
            KV,
            "except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)",
            "except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, TimeoutError)",
        ),
    ),
    mutant(
        "refused-connection-left-open",
        "a client tries again, and each try would keep a connection of the node",
        CONNECTIONS,
        Edit("raftlake.client.connection", "        connection.close(error.reason)\n", ""),
    ),
)

REVIEW_CLIENT_CALLS: tuple[Mutant, ...] = (*CLOSED_MEANWHILE, *CREATED_AGAIN, *TOGETHER, *STRANGE_FRONTS)
