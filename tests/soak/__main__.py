"""`make soak` (python -m tests.soak): node processes under faults and under clients whose whole history is judged.

Exit code 0: every answer can be explained by one correct log. 1: not; the history and the nodes' directories are kept and
named. Ctrl-C ends it early with the verdict so far.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from raftlake.client import AsyncClient
from soak.clients_kv import KvClient
from soak.clients_log import TOPIC, Consumer, FinalReader, IdempotentProducer, PlainProducer
from soak.network import INSIDE, can_unshare, enter_namespaces, make_links
from soak.nodes import Nodes
from soak.record import Record
from soak.schedule import Injector
from soak.verdict import Final, Verdict, judge, keep, summary, write_result

PARTITIONS = 2
PROGRESS_SECONDS = 10.0
#: After the last fault, the quorum must be whole again within this time.
CONVERGE_SECONDS = 60.0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--least-faults", type=int, default=0, help="go on until so many faults have struck")
    parser.add_argument("--least-operations", type=int, default=0, help="and until so many operations have succeeded")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the clients; drawn and shown without it")
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5))
    parser.add_argument("--links", choices=("auto", "namespaces", "proxies"), default="auto")
    parser.add_argument("--think-ms", type=float, default=25.0, help="mean pause of a client between two requests")
    parser.add_argument("--directory", type=Path, default=None, help="for the nodes' data; a temporary one without it")
    parser.add_argument("--result", type=Path, default=None, help="write a JSON file with the outcome")
    return parser.parse_args()


class Soak:
    def __init__(self, options: argparse.Namespace, directory: Path, kind: str) -> None:
        self._options = options
        self._directory = directory
        self._kind = kind
        self._links = make_links(kind, options.nodes)
        self.nodes = Nodes(directory, self._links, {"log.segment.bytes": str(1 << 20)})
        self.record = Record(PARTITIONS, self.nodes)
        self._injector = Injector(self.nodes, options.seed, self._say, self.record.now_us)
        self._stop = asyncio.Event()
        self._started = time.monotonic()
        self.finals: list[list[Final]] = []
        self._memory_mib = 0.0

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:7.1f} s  {text}", flush=True)

    async def run(self) -> Verdict:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, self._stop.set)
        for node_id in self.nodes.node_ids:
            self.nodes.start(node_id)
        for node_id in self.nodes.node_ids:
            await self.nodes.ready(node_id)
        servers = [f"{host}:{port}" for host, port, _ in self._links.addresses.values()]
        async with AsyncClient(servers, request_timeout_ms=20_000) as client:
            topic = await client.create_topic(TOPIC, PARTITIONS)
            await self._load(client, topic.topic_id)
            await self._converge()
            await self._read_everything(client, topic.topic_id)
        self.nodes.note_unasked_ends()
        return await self._judge()

    async def _load(self, client: AsyncClient, topic_id: bytes) -> None:
        """Clients and faults until the time is over."""
        seed, think_s = self._options.seed, self._options.think_ms / 1000
        clients = [
            *(KvClient(self.record, f"kv{n}", seed, think_s) for n in range(6)),
            *(IdempotentProducer(self.record, f"idem{n}", seed, 2 * think_s, client) for n in range(3)),
            *(PlainProducer(self.record, f"plain{n}", seed, 2 * think_s) for n in range(2)),
            *(Consumer(self.record, f"reader{n}", seed, think_s, topic_id) for n in range(3)),
        ]
        tasks = [asyncio.create_task(each.run(self._stop)) for each in clients]
        tasks += [asyncio.create_task(self._injector.run(self._stop)), asyncio.create_task(self._progress())]
        # Whatever goes wrong in one of them ends the run; `gather` raises it.
        all_of_them = asyncio.gather(*tasks)
        ended = asyncio.create_task(self._end_of_time())
        await asyncio.wait([all_of_them, ended], return_when=asyncio.FIRST_COMPLETED)
        self._stop.set()
        ended.cancel()
        await all_of_them

    async def _end_of_time(self) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), 60 * self._options.minutes)
        except TimeoutError:
            while not self._stop.is_set() and not self._is_enough():
                await asyncio.sleep(0.1)
            self._stop.set()

    def _is_enough(self) -> bool:
        """A busy machine gets less done in the same time."""
        succeeded = sum(count for name, count in self.record.counts.items() if name.endswith(" ok"))
        faults = sum(self._injector.counts.values())
        return faults >= self._options.least_faults and succeeded >= self._options.least_operations

    async def _progress(self) -> None:
        while not self._stop.is_set():
            try:
                await asyncio.wait_for(self._stop.wait(), PROGRESS_SECONDS)
            except TimeoutError:
                self._say(self._state())
            self._memory_mib = max([self._memory_mib, *self.nodes.memory_mib().values()])

    def _state(self) -> str:
        counts = self.record.counts
        outcomes = [
            f"{sum(n for key, n in counts.items() if key.endswith(end))}{end}" for end in (" ok", " failed", " unknown")
        ]
        lengths = [length / 1e6 for _, length in self.record.windows]
        return (
            f"{sum(self._injector.counts.values())} faults; operations: {', '.join(outcomes)}; no writes for over 0.5 s: "
            f"{len(lengths)} times, {sum(lengths):.1f} s in all, {max(lengths, default=0):.1f} s at most"
        )

    async def _converge(self) -> None:
        """Undo everything; every node must get ready, and writes and reads must work again."""
        self._links.heal()
        self.nodes.note_unasked_ends()
        for node_id in self.nodes.node_ids:
            self.nodes.signal(node_id, signal.SIGCONT)
            self.nodes.start(node_id)
        for node_id in self.nodes.node_ids:
            await self.nodes.ready(node_id)
        last = KvClient(self.record, "last", 0, 1.0)
        deadline = time.monotonic() + CONVERGE_SECONDS
        keys = dict.fromkeys(key for operation in self.record.kv for key in _keys(operation.action))
        for key in keys:
            while not await last.get(key):
                if time.monotonic() > deadline:
                    self.record.complaints.append(f"key {key} could not be read {CONVERGE_SECONDS:.0f} s after the last fault")
                    return
                await asyncio.sleep(0.1)

    async def _read_everything(self, client: AsyncClient, topic_id: bytes) -> None:
        ends = await client.read_offset(TOPIC)
        for partition in range(PARTITIONS):
            copies: list[Final] = []
            for node_id in self.nodes.node_ids:
                reader = FinalReader(self.record, f"final{node_id}", topic_id)
                try:
                    async with asyncio.timeout(CONVERGE_SECONDS):
                        copies.append(await reader.read_all(node_id, partition, ends[partition]))
                except TimeoutError:
                    self.record.complaints.append(f"node {node_id} did not catch up with {TOPIC}-{partition}")
                finally:
                    reader.close()
            self.finals.append(copies)

    async def _judge(self) -> Verdict:
        self._say("judging the history")
        operations = len(self.record.kv) + sum(map(len, self.record.logs))
        complaints = await asyncio.to_thread(judge, self.record, self.finals)
        complaints += self.nodes.complaints + self.nodes.logged_faults()
        return Verdict(complaints, operations, time.monotonic() - self._started)

    def report(self, verdict: Verdict) -> None:
        options = self._options
        facts = {"seed": options.seed, "nodes": options.nodes, "links": self._kind, "node MiB at most": round(self._memory_mib)}
        result = summary(self.record, self._injector.counts, self._injector.struck, verdict, facts)
        self._say(self._state())
        for name, value in result.items():
            if isinstance(value, list):
                for entry in value if name != "complaints" else ():
                    print(f"{name:>18}: {entry}")
            else:
                print(f"{name:>18}: {value}")
        for complaint in verdict.complaints:
            print(f"  WRONG: {complaint}")
        if options.result is not None:
            write_result(options.result, result)
        if not verdict.is_good:
            keep(self.record, self.finals, self._directory)
            print(f"the history and the nodes' data and logs are in {self._directory}")

    def close(self) -> None:
        self.nodes.close()
        self._links.close()


def _keys(action: object) -> list[str]:
    return list(getattr(action, "found", None) or getattr(action, "values", ()))


def main() -> int:
    options = parse_arguments()
    inside = os.environ.get(INSIDE) == "1"
    if options.links != "proxies" and not inside and (options.links == "namespaces" or can_unshare()):
        enter_namespaces(["-m", "tests.soak", *sys.argv[1:]])
    kind = "namespaces" if inside else "proxies"
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="raftlake-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(
        f"{options.nodes} nodes, links by {kind}, {options.minutes:g} minutes, seed {options.seed}, in {directory}", flush=True
    )
    soak = Soak(options, directory, kind)
    try:
        verdict = asyncio.run(soak.run())
        soak.report(verdict)
    except BaseException:
        keep(soak.record, soak.finals, directory)
        soak.nodes.note_unasked_ends()
        for complaint in soak.nodes.complaints + soak.nodes.logged_faults():
            print(f"  WRONG: {complaint}")
        print(f"the soak itself failed; what it recorded is in {directory}", flush=True)
        raise
    finally:
        soak.close()
    if verdict.is_good and options.directory is None:
        shutil.rmtree(directory)
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
