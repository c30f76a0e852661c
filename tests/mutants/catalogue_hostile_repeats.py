"""Planted bugs of a second look at hostile clients: names that are repeated, one line for all, and memory that ends."""

from __future__ import annotations

from tests.mutants.plant import Edit, Mutant

COMPRESSION = "raftlake.wire.compression"
SEARCHES = "raftlake.replica.time_searches"
CHECKS = "raftlake.replica.record_checks"
LATER = "raftlake.replica.later_turns"


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
        "unit/test_wire_compression.py",
        "unit/test_replica_time_searches.py",
    ),
    mutant(
        "job-aside-that-raises-stops-the-node",
        "a job's error was raised on the driver's thread, and whoever waited for the job got no answer",
        LATER,
        '        logger.exception("a job aside failed")\n        return None\n',
        "        raise\n",
        "unit/test_runtime_aside.py",
    ),
    mutant(
        "no-memory-for-a-check-ends-the-connection",
        "MemoryError at once, and not aside, ended the connection of an honest producer",
        CHECKS,
        "        except MemoryError as error:\n",
        "        except ZeroDivisionError as error:\n",
        "unit/test_replica_record_checks.py",
    ),
    mutant(
        "no-memory-for-a-search-ends-the-connection",
        "ListOffsets by time decompresses what is small at once",
        SEARCHES,
        "        except (PayloadTooLarge, MemoryError):\n",
        "        except PayloadTooLarge:\n",
        "unit/test_replica_time_searches.py",
    ),
)

HOSTILE_REPEATS = MEMORY
