"""Planted bugs in how a node gets by with few file descriptors, and in what odd numbers, names and files bring about."""

from __future__ import annotations

from tests.mutants.catalogue_hostile_work import mutant

DESCRIPTORS = "raftlake.storage.descriptors"
FILES = "raftlake.storage.files"
SHARES = "raftlake.runtime.descriptor_shares"
ADMISSION = "raftlake.runtime.admission"
DRIVER = "raftlake.runtime.driver"
FRONT = "raftlake.runtime.http.front"
EXCHANGE = "raftlake.runtime.http.exchange"

KEPT = ("unit/storage/test_storage_descriptors.py",)
SHARED = ("unit/runtime/test_runtime_descriptor_shares.py",)
ADMITTED = ("unit/runtime/test_runtime_admission.py",)
DRIVEN = ("unit/runtime/test_runtime_driver.py",)
REPLICA = ("unit/replica/test_replica_too_many_files.py",)
FAULTS = ("unit/runtime/test_runtime_http_front_faults.py",)
PRELOADED = ("unit/runtime/test_runtime_preload.py",)
SERVERS = ("unit/client/test_client_cluster.py",)


STORAGE = (
    mutant(
        "soft-limit-left-as-it-was",
        "a shell gives 1,024 of the 524,288 that it might",
        "raftlake.runtime.server",
        "    raise_limit()\n",
        "",
        SHARED,
    ),
    mutant(
        "limit-asked-for-once",
        "macOS names no hard limit and takes no more than 10,240",
        DESCRIPTORS,
        "            wanted //= 2\n",
        "            break\n",
        KEPT,
    ),
    mutant(
        "spares-kept-for-ever",
        "a recovery point without a descriptor ended the node",
        DESCRIPTORS,
        "    spares.give_up()\n    return call()\n",
        "    return call()\n",
        KEPT,
    ),
    mutant(
        "spares-not-taken-back",
        "the second crowd finds none",
        "raftlake.storage.directory",
        "        if spares.count < SPARES and not spares.keep():\n            self._pool.shrink(SPARES)\n",
        "",
        KEPT,
    ),
    mutant(
        "logs-give-nothing-back",
        "spares are not found again while logs hold all that is left",
        "raftlake.storage.directory",
        "            self._pool.shrink(SPARES)\n",
        "            pass\n",
        KEPT,
    ),
    mutant(
        "unsynced-file-closed-unsynced",
        "a write-back error would be lost with its descriptor",
        FILES,
        "            victim.settle()\n",
        "            victim.unsynced = False\n",
        KEPT,
    ),
    mutant(
        "failed-sync-of-a-closed-file-forgotten",
        "the next sync succeeds, and the records are not there",
        FILES,
        "        if self._lost is not None:\n            raise self._lost\n",
        "",
        KEPT,
    ),
    mutant(
        "too-many-files-taken-for-a-failed-disk",
        "two of three nodes ended for good at Too many open files",
        FILES,
        '    if error.errno in NO_DESCRIPTORS and doing != "sync":\n',
        '    if error.errno == 0 and doing != "sync":\n',
        KEPT,
    ),
    mutant(
        "sync-without-descriptor-tried-again",
        "what a failed sync was to write may be lost",
        FILES,
        'if error.errno in NO_DESCRIPTORS and doing != "sync":',
        "if error.errno in NO_DESCRIPTORS:",
        KEPT,
    ),
)


SHARES_OF_ALL = (
    mutant(
        "connections-may-take-all-descriptors",
        "1,100 idle connections of 1,024 descriptors",
        SHARES,
        "connections = min(wanted, left // 2 // listeners)",
        "connections = wanted",
        SHARED,
    ),
    mutant(
        "each-listener-takes-the-share-of-all",
        "the HTTP front had as many again",
        SHARES,
        "left // 2 // listeners",
        "left // 2",
        SHARED,
    ),
    mutant(
        "files-take-what-connections-have",
        "segments of logs stayed open as far as the limit went",
        SHARES,
        "min(left - listeners * connections, DESCRIPTORS_MAX)",
        "min(left, DESCRIPTORS_MAX)",
        SHARED,
    ),
    mutant(
        "limit-that-holds-not-told-to-listeners",
        "what is said in the log and what is done are two things",
        SHARES,
        "        return replace(settings, connections_max=self.connections)\n",
        "        return replace(settings)\n",
        SHARED,
    ),
    mutant(
        "connections-of-nodes-without-end",
        "pending ones and claimers come on top of the clients",
        ADMISSION,
        "        if len(self._places) >= self._guests_max:\n",
        "        if False:\n",
        ADMITTED,
    ),
    mutant(
        "clients-take-what-nodes-hold",
        "both together are more than the process has",
        ADMISSION,
        "is_full = self._clients >= self._connections_max or len(self._places) >= self._guests_max",
        "is_full = self._clients >= self._connections_max",
        ADMITTED,
    ),
    mutant(
        "accept-without-descriptor-stops-the-node",
        "asyncio tells the loop's handler, which took it for a broken invariant",
        DRIVER,
        '        if "socket" in context and isinstance(exception, OSError) and exception.errno in NO_DESCRIPTORS:\n',
        "        if False:\n",
        DRIVEN,
    ),
    mutant(
        "any-error-of-a-listening-socket-passed-over",
        "a listener that is dead for good would be noticed by nobody",
        DRIVER,
        "isinstance(exception, OSError) and exception.errno in NO_DESCRIPTORS:\n            # asyncio",
        "isinstance(exception, OSError):\n            # asyncio",
        DRIVEN,
    ),
    mutant(
        "answers-imported-late",
        "EndQuorumEpoch was imported amid a turn, without a descriptor",
        "raftlake.runtime.preload",
        '("__init__", "request", "response")',
        '("__init__", "request")',
        PRELOADED,
    ),
    mutant(
        "codecs-imported-without-the-spares",
        "the first import at a start that finds no descriptor",
        "raftlake.runtime.preload",
        "        spared(partial(importlib.import_module, name))\n",
        "        importlib.import_module(name)\n",
        PRELOADED,
    ),
    mutant(
        "imports-without-spares",
        "a crowd that is there before the node",
        "raftlake.runtime.preload",
        "        spared(partial(KEPT.keep, name, file))\n",
        "        KEPT.keep(name, file)\n",
        PRELOADED,
    ),
    mutant(
        "kept-modules-asked-last",
        "directories are read first, which takes descriptors",
        "raftlake.runtime.preload",
        "sys.meta_path.insert(0, finder)",
        "sys.meta_path.append(finder)",
        PRELOADED,
    ),
    mutant(
        "packages-of-apis-not-kept",
        "a message that nobody has spoken yet, without a descriptor",
        "raftlake.runtime.preload",
        '            yield _module(root, message, "__init__")\n',
        "",
        PRELOADED,
    ),
    mutant(
        "kept-code-dropped-before-it-ran",
        "an import that failed, once more",
        "raftlake.runtime.preload",
        "        exec(code, module.__dict__)\n        del self._kept[module.__name__]\n",
        "        del self._kept[module.__name__]\n        exec(code, module.__dict__)\n",
        PRELOADED,
    ),
    mutant(
        "kept-finder-put-in-twice",
        "two nodes of one process",
        "raftlake.runtime.preload",
        "    if finder not in sys.meta_path:\n",
        "    if True:\n",
        PRELOADED,
    ),
    mutant(
        "imported-modules-kept",
        "memory for code that never runs again",
        "raftlake.runtime.preload",
        "if name in sys.modules or name in self._kept:",
        "if name in self._kept:",
        PRELOADED,
    ),
)


WAITING = (
    mutant(
        "read-without-descriptor-stops-the-node",
        "a follower's Fetch",
        "raftlake.replica.disk.findings",
        "        except TooManyFiles as error:\n            self.on_too_many(error)\n",
        "",
        REPLICA,
    ),
    mutant(
        "consumer-without-descriptor-stops-the-node",
        "a consumer's Fetch",
        "raftlake.replica.apis.shown_records",
        "    except TooManyFiles as too_many:\n        node.findings.on_too_many(too_many)\n",
        "",
        REPLICA,
    ),
    mutant(
        "ballast-given-up-for-a-descriptor",
        "it makes room on a disk that has room",
        "raftlake.replica.disk.watch",
        "        if not isinstance(error, TooManyFiles):\n            self._engine.logs.give_up_ballast()\n",
        "        self._engine.logs.give_up_ballast()\n",
        REPLICA,
    ),
    mutant(
        "commands-not-applied-after-a-read-failed",
        "nothing else would make an idle node go on",
        "raftlake.replica.kv.service",
        "            self._behind = (partition, high_watermark)\n            self._go_on_later()\n\n    def _apply_to",
        "\n    def _apply_to",
        REPLICA,
    ),
    mutant(
        "request-without-descriptor-stops-the-node",
        "a connection is enough to lose",
        "raftlake.runtime.listener.listener",
        "        except TooManyFiles as error:\n"
        "            # It was only read for this request. The client asks again.\n"
        "            self.note_fault(connection, error)\n"
        "            connection.abort()\n",
        "",
        ("unit/runtime/test_runtime_listener.py",),
    ),
)


ODD_INPUT = (
    mutant(
        "content-length-of-5000-digits-parsed",
        "int() of more than 4,300 digits is a ValueError: 500 and a traceback",
        "raftlake.runtime.http.base",
        "        if len(declared) > NUMBER_DIGITS_MAX:\n",
        "        if len(declared) > 10_000:\n",
        FAULTS,
    ),
    mutant(
        "content-length-of-19-digits-refused",
        "zeros in front are allowed",
        "raftlake.runtime.http.base",
        "        if len(declared) > NUMBER_DIGITS_MAX:\n",
        "        if len(declared) >= NUMBER_DIGITS_MAX:\n",
        FAULTS,
    ),
    mutant(
        "traceback-for-each-request",
        "a thousand a second fill a disk",
        FRONT,
        "        self._bugs.note_bug(asyncio.get_running_loop().time(), doing, error)\n",
        '        logger.error("%s", doing, exc_info=error)\n',
        FAULTS,
    ),
    mutant(
        "http-front-without-descriptor-stops-the-node",
        "a 503 is enough",
        FRONT,
        "        except TooManyFiles as error:\n"
        '            self._refusals.note(asyncio.get_running_loop().time(), "refusing request", reason=error)\n'
        "            return unavailable(error.for_clients).response()\n",
        "",
        FAULTS,
    ),
    mutant(
        "chunks-for-http-1-0",
        "such a client takes the sizes for content",
        EXCHANGE,
        '        self._is_chunked = self.request.version != "1.0"\n',
        "",
        FAULTS,
    ),
    mutant(
        "no-chunks-for-http-1-1",
        "a client could not tell an end from a broken connection",
        EXCHANGE,
        '        self._is_chunked = self.request.version != "1.0"\n',
        "        self._is_chunked = False\n",
        FAULTS,
    ),
    mutant(
        "two-ports-taken-for-a-host",
        "-b 127.0.0.1:22:33 asked for the host 127.0.0.1:22",
        "raftlake.client.types",
        "            ip_address(host)\n",
        "            host.partition(':')\n",
        SERVERS,
    ),
    mutant(
        "made-up-address-ends-the-command",
        "UnicodeError: label too long, from a node's answer",
        "raftlake.client.connection",
        "    except (UnicodeError, OverflowError) as error:\n",
        "    except OverflowError as error:\n",
        SERVERS,
    ),
    mutant(
        "partitions-beyond-32-bits-encoded",
        "TypeError: topics create --partitions 99999999999",
        "raftlake.client.admin",
        "        if not -PARTITIONS_MAX <= partitions <= PARTITIONS_MAX:\n",
        "        if partitions < -PARTITIONS_MAX:\n",
        ("unit/client/test_client_admin.py",),
    ),
    mutant(
        "empty-file-dumped-in-silence",
        "nobody knows whether it was read",
        "raftlake.storage.dump",
        "    if line is None:\n",
        "    if line == '':\n",
        ("unit/storage/test_storage_dump.py",),
    ),
)


HOSTILE_DESCRIPTORS = (*STORAGE, *SHARES_OF_ALL, *WAITING, *ODD_INPUT)
