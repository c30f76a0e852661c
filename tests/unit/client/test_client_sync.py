"""The facade for programs without an event loop: threads, forks, pickles."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
from collections.abc import Iterator

import pytest

from clientkit import FakeQuorum, produced
from raftlake.client import EARLIEST, AppendResult, AsyncClient, Client
from raftlake.client.loop_thread import LoopThread
from raftlake.client.types import LOCAL_SERVERS, SERVERS_VARIABLES
from raftlake.errors import ConfigError, ErrorCode, RequestRejected
from raftlake.wire.api import ApiKey
from raftlake.wire.batches import Record, build_batch


@pytest.fixture
def quorum() -> Iterator[FakeQuorum]:
    """A scripted quorum in a loop of its own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    fake = FakeQuorum(1)
    fake.add_topic("t")
    asyncio.run_coroutine_threadsafe(fake.__aenter__(), loop).result()
    yield fake
    asyncio.run_coroutine_threadsafe(fake.__aexit__(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_everything_an_ordinary_program_needs(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        assert client.append("t", b"one", key=b"k").offset == 0
        assert [result.count for result in client.append_many("t", ["two", "three"])] == [2]
        assert [record.value for record in client.read("t", 0, 1)] == [b"two", b"three"]
        assert client.list_offsets("t", {0: EARLIEST}) == {0: 0}
        assert client.read_offset("t") == {0: 3}
        assert client.partitions("t") == [0]
        assert client.create_topic("u", 2).name == "u"
        assert client.describe_cluster().cluster_id == "fake"
        producer = client.producer()
        futures = [producer.submit_batches("t", 0, [build_batch([Record(value=b"%d" % n)], timestamp_ms=1)]) for n in range(8)]
        assert [future.result()[0].offset for future in futures] == list(range(3, 11))
        producer.close()
        producer.close()
        with pytest.raises(RequestRejected, match="closed"):
            producer.append_many("t", [b"late"])
        stream = client.stream("t", start={0: 9})
        assert [next(stream).value for _ in range(2)] == [b"6", b"7"]
        stream.close()  # type: ignore[attr-defined]
        with pytest.raises(RequestRejected):
            client.append("t", b"x", partition=5)
    with pytest.raises(RuntimeError, match="closed"):
        client.append("t", b"after")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_without_a_word_the_environment_names_the_nodes(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert [str(address) for address in kind().config.bootstrap] == LOCAL_SERVERS.split(",")
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "a:1,b:2")
    assert [str(address) for address in kind().config.bootstrap] == ["a:1", "b:2"]
    assert [str(address) for address in kind("c:3").config.bootstrap] == ["c:3"]
    with pytest.raises(ConfigError):
        kind("")


def test_a_pickled_client_keeps_the_nodes_of_its_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "a:1")
    pickled = pickle.dumps(Client())
    monkeypatch.setenv("RAFTLAKE_BOOTSTRAP_SERVERS", "b:2")
    assert [str(address) for address in pickle.loads(pickled).config.bootstrap] == ["a:1"]


def test_threads_share_one_client(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        threads = [threading.Thread(target=lambda: [client.append("t", b"x") for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.read_offset("t") == {0: 80}


def test_a_pickled_client_works_elsewhere(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap, client_id="mine") as client:
        client.append("t", b"x")
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.config.client_id == "mine"
            assert copy.append("t", b"y").offset == 1


def test_a_forked_process_makes_its_own_connections(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        client.append("t", b"parent")
        child = os.fork()
        if child == 0:
            # The child must not run the parent's clean-up: whatever happens, its exit code says so.
            code = 2
            try:
                code = 0 if client.append("t", b"child").offset == 1 else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.append("t", b"parent again").offset == 2


def test_work_on_the_loop_thread_ends_with_its_result_or_its_error() -> None:
    async def double(number: int) -> int:
        return 2 * number

    async def fail() -> None:
        raise ValueError("from the loop")

    running = LoopThread(lambda: AsyncClient("127.0.0.1:1"))
    try:
        assert running.call(double(4)) == 8
        with pytest.raises(ValueError, match="from the loop"):
            running.call(fail())
        assert running.submit(double(5)).result() == 10
    finally:
        running.stop()
    assert running.loop.is_closed()


def test_a_stream_that_is_left_after_its_client_was_closed_ends_in_silence(quorum: FakeQuorum) -> None:
    """A reader that breaks off ends the client first and drops the stream later; warnings are errors here."""
    with Client(quorum.bootstrap) as client:
        client.append("t", "v")
        stream = client.stream("t", start=EARLIEST)
        assert next(stream).value == b"v"
    stream.close()
    del stream
    gc.collect()


def test_what_became_of_each_record_is_told_in_its_place(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        large = bytes(600_000)
        fetched = quorum.nodes[1]
        client.append("t", "first")
        fetched.once(ApiKey.PRODUCE, lambda *_: None)
        fetched.once(ApiKey.PRODUCE, lambda *_: produced("t", 0, ErrorCode.MESSAGE_TOO_LARGE))
        outcomes = client.append_each("t", [(None, b"a"), (None, large), (None, b"b")])
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [None, ErrorCode.MESSAGE_TOO_LARGE, None]
        assert isinstance(outcomes[0], AppendResult) and outcomes[0].count == 1
