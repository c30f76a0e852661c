"""Planted bugs in what keeps the sum of dear requests from holding a node: the line, pages, bodies of transactions, watches."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant
from tests.mutants.plant import Edit, Mutant

LINE = "raftlake.runtime.work_line"
REQUEST = "raftlake.runtime.listener.request"
TURN = "raftlake.runtime.listener.turn"
CONNECTION = "raftlake.runtime.listener.connection"
PAGES = "raftlake.runtime.http.pages"
BODY = "raftlake.runtime.http.txn_body"
IN_LINE = "raftlake.runtime.http.in_line"
WATCH = "raftlake.runtime.http.watch"
CURSOR = "raftlake.runtime.http.watch_cursor"

LINED = ("unit/runtime/test_runtime_work_line.py",)
TURNED = ("unit/runtime/test_runtime_listener_turn.py",)
JUDGED = ("unit/runtime/test_runtime_listener_request.py",)
PAGED = ("unit/runtime/test_runtime_http_pages.py",)
PARSED = ("unit/runtime/test_runtime_http_txn_body.py",)
MOVED = ("unit/runtime/test_runtime_http_watch_cursor.py",)
CROWDED = ("unit/runtime/test_runtime_http_watch_crowd.py",)
AWAITED = ("unit/runtime/test_runtime_http_in_line.py",)

KAFKA = (
    mutant(
        "no-pause-after-dear-work",
        "300 connections with one request for Metadata each held the loop for 65 s: the pause is what others live on",
        LINE,
        "self._loop.call_later(max(took_us / 1e6, self._pause), self._go_on)",
        "self._loop.call_later(self._pause, self._go_on)",
        LINED,
    ),
    mutant(
        "dear-requests-of-one-turn-unbounded",
        "all that waits would be done in one turn of the loop",
        LINE,
        "while took_us < self._slice_us and (worker",
        "while (worker",
        LINED,
    ),
    mutant(
        "pipeline-served-in-one-turn",
        "one connection that pipelined 120 requests held the leader for 10.6 s and deposed it",
        CONNECTION,
        "                if waiting.is_dear:\n                    self._turn.has_come = False\n",
        "",
        TURNED,
    ),
    mutant(
        "dear-requests-decoded-as-they-come",
        "decoding takes a third of the time, outside of any turn",
        CONNECTION,
        "            if not self.is_peer:\n                self._waiting.append(DearFrame",
        "            if False:\n                self._waiting.append(DearFrame",
        TURNED,
    ),
    mutant(
        "late-answers-encoded-at-once",
        "an answer of 15,000 partitions is encoded when its last search is over, outside of any turn",
        CONNECTION,
        "if request.is_dear and request is not self._serving and not",
        "if False and not",
        TURNED,
    ),
    Mutant(
        name="nodes-wait-among-clients",
        source="what followers ask for would wait behind a crowd of clients, and with it every commit",
        edits=(
            Edit(
                CONNECTION,
                "            if not self.is_peer:\n                self._waiting.append(DearFrame",
                "            if True:\n                self._waiting.append(DearFrame",
            ),
            Edit(CONNECTION, "not (self.is_peer or self._turn.has_come)", "not self._turn.has_come"),
        ),
        by_tests=True,
        places=TURNED,
    ),
    mutant(
        "produce-waits-among-dear-requests",
        "appends have bounds of their own, and waiting for Metadata is not among them",
        REQUEST,
        "    {ApiKey.PRODUCE, ApiKey.VOTE,",
        "    {ApiKey.VOTE,",
        JUDGED,
    ),
    mutant(
        "crowd-of-small-requests-served-at-once",
        "64 KiB hold thousands of them, and each of a hundred connections may send as much in one turn",
        REQUEST,
        "(waiting >= AT_ONCE_MAX or len(frame) > dear_bytes)",
        "len(frame) > dear_bytes",
        TURNED,
    ),
    mutant(
        "metadata-of-all-topics-cheap",
        "its request has 30 bytes, its answer any number of partitions",
        "raftlake.runtime.listener.listener",
        "self._partitions_told(message) > DEAR_PARTITIONS",
        "False",
        TURNED,
    ),
    mutant(
        "work-done-for-clients-that-have-gone",
        "who connects, asks and goes, again and again, would fill the line with work for nobody",
        TURN,
        "if self.socket is not None and has_hung_up(self.socket.fileno()):",
        "if False:",
        TURNED,
    ),
    mutant(
        "no-end-of-the-wait-for-a-turn",
        "a connection in line is never idle, and its frame takes room of all",
        CONNECTION,
        "        if self._turn.is_overdue(now, self._limits.turn_seconds):\n",
        "        if False:\n",
        TURNED,
    ),
    mutant(
        "early-fetch-of-a-replica-forgiven-in-line",
        "what its sender knew as it sent it could no longer be told, and an answer it never had would prove it caught up",
        CONNECTION,
        "if self._has_fetch() if is_behind_fetch is None else is_behind_fetch:",
        "if self._has_fetch():",
        TURNED,
    ),
)

HTTP = (
    mutant(
        "room-for-a-page-asked-after-it-is-built",
        "100 requests for pages of 8 MiB took 604 MiB, where 128 MiB are the limit",
        PAGES,
        "        self._hold = self._answers.take(sum(self._bytes_max(name, row) for name, row in names))\n",
        "        self._hold = self._answers.take(0)\n",
        PAGED,
    ),
    mutant(
        "escapes-of-keys-not-reckoned-with",
        "a control character of a key takes six bytes in JSON, and others twelve",
        PAGES,
        "return _ROW_BYTES + escaped * len(name) + value",
        "return _ROW_BYTES + len(name) + value",
        PAGED,
    ),
    mutant(
        "room-of-a-page-never-settled",
        "what was reckoned with and not needed would be lost for good",
        PAGES,
        "        self._hold.settle(len(body))\n",
        "",
        PAGED,
    ),
    mutant(
        "room-of-a-dropped-page-kept",
        "requests whose clients go would use up the room of all answers",
        "raftlake.runtime.http.kv",
        "            page.drop()\n",
        "            pass\n",
        AWAITED,
    ),
    mutant(
        "long-lists-built-at-once",
        "300 lists of 10,000 keys held the loop for 6.1 s",
        PAGES,
        "        if more and len(names) < self._limit:\n            return None\n",
        "",
        PAGED,
    ),
    mutant(
        "parts-of-a-body-not-counted",
        "12 MiB of empty objects took 300 MiB, and 8 such bodies 4.4 s",
        BODY,
        "        if parts > PARTS_MAX:\n",
        "        if False:\n",
        PARSED,
    ),
    mutant(
        "escaped-quote-ends-a-string",
        "JSON within a value would be taken for the parts of a transaction",
        BODY,
        "is_in_string = quote < 0 or backslashes % 2 == 1",
        "is_in_string = quote < 0",
        PARSED,
    ),
    mutant(
        "backslashes-forgotten-between-looks",
        "a value with 64 KiB of them in the right place hides a million objects",
        BODY,
        "trailing + (backslashes if trailing == len(looked) else 0)",
        "trailing",
        PARSED,
    ),
    mutant(
        "any-encoding-of-json-taken",
        "in UTF-16 quotes and backslashes are no neighbours, so the count means nothing",
        BODY,
        'json.loads(str(body, "utf-8-sig"), object',
        "json.loads(body, object",
        PARSED,
    ),
    mutant(
        "no-end-of-a-wait-in-line-over-http",
        "a list that nobody waits for any more would still be built",
        IN_LINE,
        "        PATIENCE_SECONDS, waiter.set, unavailable",
        "        1e9, waiter.set, unavailable",
        AWAITED,
    ),
)

WATCHES = (
    mutant(
        "history-searched-to-its-end-at-once",
        "300 watches of a prefix that nobody has held the loop for 5.7 s",
        CURSOR,
        "        for _ in range(LOOKS_MAX):\n",
        "        for _ in range(1 << 30):\n",
        MOVED,
    ),
    mutant(
        "each-watcher-encodes-its-own",
        "100 watchers of one transaction of 7 MiB encoded 700 MiB",
        CURSOR,
        "        return self._kept.get((position, part))\n",
        "        return None\n",
        MOVED,
    ),
    mutant(
        "encodings-kept-for-good",
        "what all watchers share would grow to the whole history and beyond",
        CURSOR,
        "        while self._bytes > self._bytes_max:\n",
        "        while False:\n",
        MOVED,
    ),
    mutant(
        "encodings-outlive-their-history",
        "a restored state counts its positions anew: a watcher would be told another key's change",
        CURSOR,
        "            self._kept.clear()\n",
        "            pass\n",
        MOVED,
    ),
    mutant(
        "next-change-of-the-transaction-not-awaited",
        "the first of two changes carried the id, and a reader that resumes from it misses the second",
        CURSOR,
        "is_last = change is None or change[1] != found[1][1]",
        "is_last = True",
        MOVED,
    ),
    mutant(
        "dropped-changes-skipped",
        "a reader that fell behind is told so, and never led past a gap",
        CURSOR,
        "            history.after(self.version)\n            self._position = history.start\n",
        "            self._position = history.start\n",
        MOVED,
    ),
    mutant(
        "watchers-written-to-before-they-took-the-last-piece",
        "100 watches that do not read took 1.9 GiB",
        "raftlake.runtime.http.exchange",
        "        await self.connection.drain()\n\n    def end_stream",
        "\n    def end_stream",
        CROWDED,
    ),
    mutant(
        "pieces-of-watches-not-counted",
        "all other large answers have 128 MiB together",
        WATCH,
        '        hold.settle(len(piece or b""))\n',
        "        hold.release()\n",
        CROWDED,
    ),
    mutant(
        "watch-without-room-forgotten",
        "it would say heartbeats for ever, or nothing",
        WATCH,
        "        self._pending |= self._without_room\n",
        "",
        CROWDED,
    ),
    mutant(
        "heartbeat-amid-an-event",
        "what a reader takes for the rest of a value is a comment",
        WATCH,
        "                if watcher not in self._at_end:\n                    continue\n",
        "",
        CROWDED,
    ),
    mutant(
        "piece-replaced-by-a-heartbeat",
        "a change that came as a heartbeat was on its way was never told",
        WATCH,
        "                del self._at_end[watcher]\n",
        "",
        CROWDED,
    ),
)

HOSTILE_LINE = (*KAFKA, *HTTP, *WATCHES)
