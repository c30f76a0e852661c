"""The facade for programs without an event loop: threads, forks, pickles."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from clientkit import HANG, FakeQuorum, produced
from clientkit_kv import Front, Silence, answer_all, kv_test
from raftlake.client import EARLIEST, AppendResult, AsyncClient, Client, Producer, loop_thread, sync
from raftlake.client.loop_thread import LoopThread
from raftlake.client.types import LOCAL_SERVERS, SERVERS_VARIABLES
from raftlake.errors import ConfigError, ErrorCode, RequestRejected, UnknownOutcome
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


def batch_of(value: bytes) -> bytearray:
    return build_batch([Record(value=value)], timestamp_ms=1)


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


def in_a_child(work: Callable[[], object]) -> str:
    """What a forked process says of `work`: its error, or nothing. It is ended by a signal where `work` never ends."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        told = ""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- the parent looks at it
            told = str(error)
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(read) as pipe:
        assert code == 0, "the child waits for ever"
        return pipe.read()


def test_what_was_made_before_a_fork_says_so_in_the_child(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        producer = client.producer()
        producer.append("t", b"v")
        stream = client.stream("t", start=EARLIEST)
        next(stream)
        assert "make a new one" in in_a_child(lambda: producer.append("t", b"w", timeout_ms=500))
        assert "make a new one" in in_a_child(lambda: producer.submit_batches("t", 0, []))
        assert "make a new one" in in_a_child(lambda: next(stream))
        assert in_a_child(lambda: stream.close()) == "", "to leave a loop is no error"  # type: ignore[attr-defined]
        assert in_a_child(lambda: client.producer().append("t", b"w")) == ""
        assert producer.append("t", b"x").offset == 2
        assert next(stream).value == b"w"


@pytest.mark.parametrize("use", [lambda client: client.partitions("t"), Client.close], ids=["call", "close"])
def test_a_fork_amid_the_first_call_of_another_thread_holds_no_lock_in_the_child(
    quorum: FakeQuorum, use: Callable[[Client], object]
) -> None:
    with Client(quorum.bootstrap) as client:
        holding, ending = threading.Event(), threading.Event()

        def hold() -> None:
            """As a first call does, until its thread runs."""
            with client._lock:
                holding.set()
                ending.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        holding.wait()
        try:
            assert in_a_child(lambda: use(client)) == ""
        finally:
            ending.set()
            holder.join()


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


# --- close() while other threads use the client ----------------------------------------------------------------------


class Caller:
    """A call in a thread of its own, and what it ends with."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._ended: list[object] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ended.append(self._call())
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            self._ended.append(error)

    def outcome(self) -> object:
        self._thread.join(10)
        assert self._ended, "the caller waits for ever"
        return self._ended[0]


def require_closed(outcome: object) -> None:
    assert isinstance(outcome, RuntimeError) and "closed" in str(outcome), outcome


def test_a_call_that_comes_while_the_thread_stops_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work is ended by then, and the loop runs still."""
    running = LoopThread(lambda: AsyncClient("127.0.0.1:1"))
    wind_up = loop_thread._wind_up
    callers: list[Caller] = []

    async def double(number: int) -> int:
        return 2 * number

    async def wound_up(client: AsyncClient) -> None:
        await wind_up(client)
        callers.append(Caller(lambda: running.call(double(2))))
        callers[0]._thread.join(1)

    monkeypatch.setattr(loop_thread, "_wind_up", wound_up)
    running.stop()
    require_closed(callers[0].outcome())
    with pytest.raises(RuntimeError, match="closed"):
        running.submit(double(2))
    running.stop()


def test_close_ends_every_thread_that_uses_the_client(quorum: FakeQuorum) -> None:
    for _ in range(5):
        client = Client(quorum.bootstrap)
        client.append("t", b"v")
        producer = client.producer()

        def follow(client: Client = client) -> None:
            for _ in client.stream("t", start=EARLIEST):
                pass

        def go_on(producer: Producer = producer) -> None:
            while True:
                with contextlib.suppress(RequestRejected, UnknownOutcome):
                    producer.append("t", b"v")

        callers = [Caller(follow), Caller(follow), Caller(go_on)]
        client.append("t", b"w")
        client.close()
        for caller in callers:
            require_closed(caller.outcome())


@pytest.mark.parametrize("use", ["append", "append_many", "append_each", "producer", "submit_batches"])
def test_an_append_that_was_sent_is_unknown_when_its_client_is_closed(quorum: FakeQuorum, use: str) -> None:
    client = Client(quorum.bootstrap)
    producer = client.producer()
    client.append("t", b"0")
    producer.append("t", b"0")
    sent = threading.Event()

    def hang(*_: object) -> object:
        sent.set()
        return HANG

    quorum.nodes[1].once(ApiKey.PRODUCE, hang)
    batch = build_batch([Record(value=b"v")], timestamp_ms=1)
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: client.append("t", b"v"),
        "append_many": lambda: client.append_many("t", [b"v"]),
        "append_each": lambda: client.append_each("t", [b"v"])[0],
        "producer": lambda: producer.append("t", b"v"),
        "submit_batches": lambda: producer.submit_batches("t", 0, [batch]).result(),
    }
    caller = Caller(uses[use])
    assert sent.wait(10)
    client.close()
    assert isinstance(caller.outcome(), UnknownOutcome)


def test_a_call_that_is_cut_off_says_that_the_client_is_closed() -> None:
    running = LoopThread(lambda: AsyncClient("127.0.0.1:1"))
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    caller = Caller(lambda: running.call(endless()))
    assert begun.wait(10)
    running.stop()
    require_closed(caller.outcome())


def test_a_write_of_a_key_that_was_sent_is_unknown_when_its_client_is_closed() -> None:
    async def test(client: AsyncClient, one: Front, two: Front) -> None:
        answer_all(one, two, Silence())
        writing = asyncio.create_task(client.kv.put("k", b"v"))
        while not one.requests + two.requests:
            await asyncio.sleep(0)
        await client.close()
        for _ in range(loop_thread._LAST_TURNS):
            await asyncio.sleep(0)
        assert writing.done(), "a Client cancels what has no outcome by then"
        assert isinstance(writing.exception(), UnknownOutcome)

    kv_test(test)


# --- the thread of the loop waits for nothing ------------------------------------------------------------------------


def test_a_stream_that_the_collector_finds_in_the_loops_thread_holds_it_up_for_nobody(quorum: FakeQuorum) -> None:
    client = Client(quorum.bootstrap)
    client.append("t", "v")
    gc.disable()
    try:
        stream = client.stream("t", start=EARLIEST)
        next(stream)
        kept: list[object] = [stream]
        kept.append(kept)  # As an error that is kept with its traceback.
        del stream, kept

        async def collect() -> None:
            gc.collect()

        running, _ = client._reach()
        collected = running.submit(collect())
        caller = Caller(lambda: client.append("t", "w", timeout_ms=5000))
        assert isinstance(caller.outcome(), AppendResult)
        assert collected.done()
    finally:
        gc.enable()
    client.close()


def test_a_stream_may_end_while_work_is_handed_over(quorum: FakeQuorum) -> None:
    """The collector comes at any time, also in a thread that hands work over. A callback of the loop waits for that thread."""
    with Client(quorum.bootstrap) as client:
        client.append("t", "v")
        producer = client.producer()
        producer.append("t", "w")
        stream = client.stream("t", start=EARLIEST)
        next(stream)
        running, _ = client._reach()
        reached = threading.Event()

        def callback() -> None:
            reached.set()
            producer.submit_batches("t", 0, [batch_of(b"x")])

        def close() -> None:
            with running._lock:
                running.loop.call_soon_threadsafe(callback)
                assert reached.wait(10)
                stream.close()  # type: ignore[attr-defined]

        assert Caller(close).outcome() is None
        assert isinstance(producer.append("t", "y"), AppendResult)


def test_a_finalizer_of_the_program_may_hand_work_over_while_work_is_handed_over(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        producer = client.producer()
        running, _ = client._reach()

        def submit() -> object:
            with running._lock:
                return producer.submit_batches("t", 0, [batch_of(b"v")])

        outcome = Caller(submit).outcome()
        assert isinstance(outcome, concurrent.futures.Future) and outcome.result(10)[0].offset == 0


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize("use", ["append", "close", "append and close"])
def test_a_finalizer_of_the_program_may_use_the_client_that_makes_its_thread(
    quorum: FakeQuorum, monkeypatch: pytest.MonkeyPatch, use: str, *, in_loop: bool
) -> None:
    """The collector runs it in any thread, also in the one that is made."""
    client = Client(quorum.bootstrap)
    made: list[LoopThread] = []

    def finalize() -> None:
        if "append" in use:
            client.append("t", "by the finalizer")
        if "close" in use:
            client.close()

    def make(make_client: Callable[[], AsyncClient]) -> LoopThread:
        def begin() -> AsyncClient:
            begun = make_client()
            if in_loop and is_first:
                finalize()
            return begun

        is_first = not made
        made.append(None)  # type: ignore[arg-type]
        place = len(made) - 1
        made[place] = LoopThread(begin)
        if is_first and not in_loop:
            finalize()
        return made[place]

    monkeypatch.setattr(sync, "LoopThread", make)
    outcome = Caller(lambda: client.append("t", "by the caller")).outcome()
    if "close" in use:
        require_closed(outcome)
    else:
        assert isinstance(outcome, AppendResult) and outcome.offset == 1
        client.close()
    assert len(made) == (2 if "append" in use else 1)
    assert not any(running._thread.is_alive() for running in made)


def test_of_many_first_calls_one_thread_is_left(quorum: FakeQuorum, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LoopThread] = []

    def make(make_client: Callable[[], AsyncClient]) -> LoopThread:
        together.wait(10)
        made.append(LoopThread(make_client))
        return made[-1]

    together = threading.Barrier(4)
    monkeypatch.setattr(sync, "LoopThread", make)
    client = Client(quorum.bootstrap)
    callers = [Caller(lambda: client.append("t", "x")) for _ in range(4)]
    assert all(isinstance(caller.outcome(), AppendResult) for caller in callers)
    assert len(made) == 4 and [running._thread.is_alive() for running in made].count(True) == 1
    client.close()
    assert not any(running._thread.is_alive() for running in made)


def test_a_stream_that_is_left_is_closed_on_its_loop(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        client.append("t", "v")
        stream = client.stream("t", start=EARLIEST)
        next(stream)
        running, _ = client._reach()

        async def others() -> int:
            """Tasks that fetch for the stream, and further ones."""
            return len(asyncio.all_tasks()) - 1

        assert running.call(others()) > 0
        stream.close()  # type: ignore[attr-defined]
        for _ in range(1000):
            if running.call(others()) == 0:
                return
        raise AssertionError("the stream fetches on, and nobody reads it")


def test_a_call_in_the_loops_thread_is_an_error_and_no_wait(quorum: FakeQuorum) -> None:
    """As in a callback of a Future."""
    with Client(quorum.bootstrap) as client:
        running, _ = client._reach()

        async def call() -> object:
            return client.append("t", "w")

        caller = Caller(lambda: running.call(call()))
        outcome = caller.outcome()
        assert isinstance(outcome, RuntimeError) and "wait for itself" in str(outcome)
        assert client.append("t", "x").offset == 0


def test_a_fork_in_the_loops_thread_has_no_such_thread_in_the_child(quorum: FakeQuorum) -> None:
    with Client(quorum.bootstrap) as client:
        running, _ = client._reach()

        async def forked() -> tuple[str, str]:
            return in_a_child(lambda: running.call(asyncio.sleep(0))), in_a_child(client.close)

        refused, closed = running.submit(forked()).result(30)
        assert "make a new one" in refused and closed == ""


def test_close_in_the_loops_thread_is_an_error_and_the_client_goes_on(quorum: FakeQuorum) -> None:
    client = Client(quorum.bootstrap)
    producer = client.producer()
    held = threading.Event()
    quorum.nodes[1].once(ApiKey.PRODUCE, lambda *_: held.wait(10) and None)
    told: concurrent.futures.Future[object] = concurrent.futures.Future()

    def callback(_: object) -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="wait for itself"):
                client.close()
        told.set_result(threading.current_thread())

    future = producer.submit_batches("t", 0, [batch_of(b"v")])
    future.add_done_callback(callback)
    held.set()
    assert told.result(10) is not threading.current_thread()
    assert client.append("t", "w").offset == 1
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.append("t", "x")


LEAVING = """
import asyncio, sys, threading
from clientkit import FakeQuorum
from raftlake.client import EARLIEST, Client

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
quorum = FakeQuorum(1)
quorum.add_topic("t")
asyncio.run_coroutine_threadsafe(quorum.__aenter__(), loop).result()
client = Client(quorum.bootstrap)
client.append("t", b"v")
stream = client.stream("t", start=EARLIEST)
assert next(stream).value == b"v"
"""


@pytest.mark.parametrize("last", ["", "client.close()", "held = [stream]; held.append(held)"], ids=["open", "closed", "cycle"])
def test_a_program_that_leaves_a_stream_in_a_global_variable_ends(last: str) -> None:
    """The interpreter ends the stream when threads run no more."""
    path = os.pathsep.join(sys.path)
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING + last],
        timeout=20,
        check=False,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
