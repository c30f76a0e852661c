"""Planted bugs in what clients meet while something else changes: a search by time that pauses, a batch that is refused unread,
a marker for a producer that nobody knows. And in work that goes on after a failure."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

SEARCHES = "raftlake.replica.aside.time_searches"
RESTORE = "raftlake.replica.kv.restore"
PRODUCE = "raftlake.replica.apis.produce"
CHECKS = "raftlake.replica.aside.record_checks"
MARKERS = "raftlake.replica.transactions.markers"
CARE = "raftlake.replica.producer_care"

PAUSED = ("unit/replica/test_replica_aside_time_searches_pausing.py",)
RESTORED = ("unit/replica/test_replica_kv_restore.py",)
REFUSED = ("unit/replica/test_replica_apis_produce_refused_first.py",)
MARKED = ("unit/replica/test_replica_transactions_markers.py",)
CARED = ("unit/replica/test_replica_producer_care.py",)


def mutant(name: str, source: str, places: tuple[str, ...], *edits: Edit) -> Mutant:
    """A bug that the tests in `places` look for."""
    return Mutant(name=name, source=source, edits=edits, by_tests=True, places=places)


CHANGED_MEANWHILE = (
    mutant(
        "paused-search-reads-below-the-log-start",
        "a read in front of the log's start ends the node",
        PAUSED,
        Edit(SEARCHES, "serving is not partition or offset < partition.log.start_offset", "serving is not partition"),
    ),
    mutant(
        "paused-search-given-up-at-the-log-start",
        "what begins with the log is still there",
        PAUSED,
        Edit(SEARCHES, "offset < partition.log.start_offset", "offset <= partition.log.start_offset"),
    ),
    mutant(
        "paused-search-goes-on-in-a-partition-that-was",
        "a topic is deleted, or a log is closed, between two turns",
        PAUSED,
        Edit(SEARCHES, "    serving = question.serving()\n", "    serving: Partition | ErrorCode = partition\n"),
    ),
    mutant(
        "paused-search-takes-a-group-begun-anew-for-the-same",
        "the partition that was asked is closed, though another one leads in its place",
        PAUSED,
        Edit(SEARCHES, "serving is not partition or offset", "offset"),
    ),
    mutant(
        "segments-without-a-descriptor-are-none",
        "a client is told that no record has the time",
        PAUSED,
        Edit(
            SEARCHES,
            "            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)\n        for segment",
            "            return NOTHING\n        for segment",
        ),
    ),
)

FOR_A_MOMENT = (
    mutant(
        "restoration-ends-for-want-of-a-descriptor",
        "the lack passes, and the file is well",
        RESTORED,
        Edit(
            RESTORE,
            "        except TooManyFiles as error:\n",
            "        except BlockingIOError as error:  # type: ignore[assignment]\n",
        ),
    ),
    mutant(
        "restoration-without-a-descriptor-is-not-tried-again",
        "nothing else wakes it: the node applies nothing any more",
        RESTORED,
        Edit(RESTORE, "            self._later(NO_FILE_INTERVAL_MS)\n", ""),
    ),
    mutant(
        "restoration-without-a-descriptor-tries-without-a-pause",
        "whoever has too many files open is to close some meanwhile",
        RESTORED,
        Edit(RESTORE, "            self._later(NO_FILE_INTERVAL_MS)\n", "            self._later(SLICE_INTERVAL_MS)\n"),
    ),
    mutant(
        "work-that-failed-stays-at-the-head-of-the-line",
        "what is to be done with producer ids waits for ever",
        CARED,
        Edit(CARE, "        waiting, is_over = self._waiting, True\n", "        waiting, is_over = self._waiting, False\n"),
        Edit(
            CARE,
            "            is_over = False\n        except StopIteration:\n            pass\n",
            "        except StopIteration:\n            is_over = True\n",
        ),
    ),
    mutant(
        "look-for-idle-ids-under-way-after-it-failed",
        "no id is ever forgotten again",
        CARED,
        Edit(
            CARE,
            "        finally:\n            self._is_expiring = False\n",
            "        except StopAsyncIteration:\n            pass\n        self._is_expiring = False\n",
        ),
    ),
)

REFUSED_UNREAD = (
    mutant(
        "batch-refused-before-the-topic-is-known-is-overtaken",
        "the batch behind it is taken, and it is out of order when it comes again",
        REFUSED,
        Edit(PRODUCE, "        _send_back(partition, checked[0])\n", ""),
    ),
    mutant(
        "batch-refused-unread-is-overtaken",
        "the same where too much waits, or memory lacks",
        REFUSED,
        Edit(PRODUCE, "            _send_back(partition, first_of_idempotent(records))\n", "            pass\n"),
    ),
    mutant(
        "batch-checked-too-late-is-overtaken",
        "clients repeat it as one that was refused",
        REFUSED,
        Edit(PRODUCE, "COMES_AGAIN = (NO_ROOM, ErrorCode.REQUEST_TIMED_OUT)", "COMES_AGAIN = (NO_ROOM,)"),
    ),
    mutant(
        "what-never-comes-again-is-waited-for",
        "a batch that is refused for good holds its producer up",
        REFUSED,
        Edit(PRODUCE, "if checked.code in COMES_AGAIN and not is_elsewhere:", "if not is_elsewhere:"),
    ),
    mutant(
        "batch-refused-by-who-leads-no-more-is-waited-for",
        "it comes again elsewhere",
        REFUSED,
        Edit(PRODUCE, "if checked.code in COMES_AGAIN and not is_elsewhere:", "if checked.code in COMES_AGAIN:"),
    ),
    mutant(
        "header-of-a-damaged-batch-believed",
        "a sequence number from far away holds a producer up for ever",
        REFUSED,
        Edit(CHECKS, "        (header,) = validate(records, count_max=1)\n", "        header = parse_header(records)\n"),
    ),
    mutant(
        "sequence-of-a-batch-that-nobody-looked-at-believed",
        "a sequence number below 0 is none",
        REFUSED,
        Edit(CHECKS, "        _require_clients(header)\n    except", "    except"),
    ),
    mutant(
        "clients-markers-beyond-the-bound",
        "a request names a thousand producers that nobody knows, and each is remembered",
        MARKED,
        Edit(MARKERS, "if not partition.producers.has_room_for(marker.producer_id) and is_needed", "if False and is_needed"),
    ),
    mutant(
        "marker-that-ends-nothing-refused-for-want-of-room",
        "it is not written, so nothing is remembered",
        MARKED,
        Edit(MARKERS, " and is_needed(partition.producers, marker):", ":"),
    ),
)

REVIEW_CLIENTS = (*CHANGED_MEANWHILE, *FOR_A_MOMENT, *REFUSED_UNREAD)
