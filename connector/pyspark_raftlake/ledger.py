"""Which batches of a sink are visible, and who may make the next one so: every change of the sink's keys.

`enter` makes the run of a task the owner of its app, or refuses a run that was replaced. `commit` is one command: all or
nothing of a batch becomes visible, if the owner and the last batch are those that the tasks found. After an unknown outcome the
same command is sent again: it compares the version of the batch, so it takes effect once. `sweep` aborts what nobody committed.

The run that comes last owns the app. A run is told from one that was replaced by the names in the owner key, and by no clock. A
run that was started first and writes first later is taken for the newer one. Then its batch numbers are old, and it writes
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_raftlake.errors import QuorumUnavailable, SinkFailed, SinkFenced
from pyspark_raftlake.option_names import BLOCK_TIMEOUT
from pyspark_raftlake.patience import is_outage
from raftlake.client import Delete, Put
from raftlake.client import sink_keys as keys
from raftlake.client.errors import KvConflict
from raftlake.client.sink_keys import TASKS_MAX, CommittedBatch, Driver, Job, Owner
from raftlake.client.types import EndTxn, OpenTransaction
from raftlake.errors import RaftlakeError, UnknownOutcome

if TYPE_CHECKING:
    from raftlake.client.types import KvEntry, KvPage

_log = logging.getLogger(__name__)

#: A job whose driver is gone leaves its number taken for so long, ms.
JOB_AGE_MS_MAX = 24 * 3600 * 1000
#: Whether a write has ended can be told for so long, ms.
DONE_AGE_MS_MAX = 5 * 60 * 1000
#: The version of a key that does not exist.
ABSENT = 0
#: One try of a command or a question, ms.
TRY_MS = 30_000
#: How long a writer waits for partitions to show what it has committed, ms.
SETTLE_MS_MAX = 5_000
_LOOKS_MAX = 100


class Keys(Protocol):
    """The part of `raftlake.client.Client.kv` that the ledger needs."""

    def get(self, key: str, *, timeout_ms: float | None = None) -> KvEntry | None: ...

    def list(
        self, prefix: str = "", *, after: str | None = None, values: bool = False, timeout_ms: float | None = None
    ) -> KvPage: ...

    def txn(
        self, compare: Mapping[str, int], ops: Sequence[Put | Delete | EndTxn], *, timeout_ms: float | None = None
    ) -> int: ...


class LedgerClient(Protocol):
    """The part of `raftlake.client.Client` that the ledger needs."""

    @property
    def kv(self) -> Keys: ...

    def open_transactions(self, prefix: str = "", *, timeout_ms: float | None = None) -> tuple[OpenTransaction, ...]: ...

    def settle_transactions(self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a task found when it began. Versions are 0 where the key is not there."""

    app: str
    run: str
    generation: int
    owner_version: int
    last_batch: int
    batch_version: int
    #: The last batch was planned anew, with other rows, since it became visible.
    is_replanned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNumber:
    """A batch write under way, and the version of its key."""

    job: str
    number: int
    version: int


def wall_ms() -> int:
    """ms since 1970, for what people read."""
    return time.time_ns() // 1_000_000


class Ledger:
    def __init__(self, client: LedgerClient, patience_ms: int, now_ms: Callable[[], int] | None = None) -> None:
        """`patience_ms`: how long an outage is waited for. `now_ms`: ms since 1970, for what people read."""
        self._client = client
        self._patience_ms = patience_ms
        self._now_ms = now_ms or wall_ms

    # --- apps ----------------------------------------------------------------------------------------------------------

    def enter(self, app: str, run: str, query: str, driver: Driver) -> Standing:
        """The standing of a run that owns the app from now on. SinkFenced for a run that was replaced."""
        for _ in range(_LOOKS_MAX):
            owner, owner_version, last, batch_version = self._look(app)
            if owner_version and owner.run == run:
                return Standing(
                    app=app,
                    run=run,
                    generation=owner.generation,
                    owner_version=owner_version,
                    last_batch=last.batch,
                    batch_version=batch_version,
                    is_replanned=last.is_replanned,
                )
            if owner_version and run in owner.before:
                raise SinkFenced(app, run, owner.describe())
            mine = owner.followed_by(run, query, driver, self._now_ms())
            version = self._put(keys.owner_key(app), owner_version, mine)
            if version and owner_version:
                _log.info("sink %s: run %s takes over from %s", app, run, owner.describe())
                self._sweep(keys.app_transactions(app), keys.owner_key(app), version)
        raise SinkFailed(f"other runs took the sink of {app} {_LOOKS_MAX} times while run {run} tried to")

    def _put(self, key: str, version: int, value: Owner | Job) -> int:
        """The new version of a key that has this one; 0 where the put did not happen, or where that is not known."""
        try:
            return self._client.kv.txn({key: version}, [Put(key, keys.encode(value))], timeout_ms=self._patience_ms)
        except (KvConflict, UnknownOutcome):
            return 0

    def commit(self, standing: Standing, batch: CommittedBatch, ends: Sequence[EndTxn]) -> bool:
        """Make a batch visible; False where it is visible already. SinkFenced: a newer run owns the app."""
        if len(ends) > TASKS_MAX:
            raise SinkFailed(
                f"batch {batch.batch} has rows of {len(ends)} tasks, and one commit takes {TASKS_MAX}: "
                f"call coalesce({TASKS_MAX}) or less before the write"
            )
        app = standing.app
        compare = {keys.owner_key(app): standing.owner_version, keys.batch_key(app): standing.batch_version}
        ops: list[Put | Delete | EndTxn] = [*ends, Put(keys.batch_key(app), keys.encode(batch))]

        def look() -> bool | None:
            """True where the command has taken effect, False where its batch was visible before, None where neither is."""
            owner, owner_version, last, _ = self._look(app)
            if last == batch:
                return True
            if owner_version != standing.owner_version:
                told = owner.describe() if owner_version else "nobody: its owner key was deleted"
                raise SinkFenced(app, standing.run, told, batch.batch)
            return False if last.batch >= batch.batch else None

        return self._decide(compare, ops, look, f"the commit of batch {batch.batch}")

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def claim_job(self, job: str, driver: Driver) -> JobNumber:
        """A number for a batch write that no other one has. One whose driver is gone is taken again after a day."""
        for _ in range(_LOOKS_MAX):
            taken = {entry.key: entry for entry in self.entries(keys.JOBS)}
            number = next(n for n in range(len(taken) + 1) if self._is_free(taken.get(keys.job_key(n))))
            key = keys.job_key(number)
            standing = taken.get(key)
            mine = Job(job=job, host=driver.host, pid=driver.pid, since_ms=self._now_ms())
            version = self._put(key, ABSENT if standing is None else standing.version, mine)
            if not version:
                # Another one was faster, or no answer told.
                found = self._client.kv.get(key, timeout_ms=self._patience_ms)
                version = found.version if found is not None and keys.decode_job(found.value) == mine else 0
            if version:
                self._sweep_ended(taken.values())
                return JobNumber(job=job, number=number, version=version)
        raise SinkFailed(f"other batch writes took a number {_LOOKS_MAX} times while this one tried to")

    def _sweep_ended(self, taken: Iterable[KvEntry]) -> None:
        """Abort what tasks of failed writes have opened behind the last look of their driver."""
        for entry in taken:
            if keys.decode_job(entry.value).is_done:
                number = int(entry.key.removeprefix(keys.JOBS))
                self._sweep(keys.job_transactions(number), entry.key, entry.version)

    def _is_free(self, entry: KvEntry | None) -> bool:
        if entry is None:
            return True
        job = keys.decode_job(entry.value)
        return self._now_ms() - job.since_ms > (DONE_AGE_MS_MAX if job.is_done else JOB_AGE_MS_MAX)

    def require_job(self, job: JobNumber) -> None:
        """SinkFailed where the write has ended, or its number was taken: its rows would never be visible."""
        found = self._client.kv.get(keys.job_key(job.number), timeout_ms=self._patience_ms)
        if found is None or found.version != job.version:
            raise SinkFailed(f"the batch write with the number {job.number} has ended, and this task began too late")

    def commit_job(self, job: JobNumber, ends: Sequence[EndTxn]) -> None:
        """Make all rows of a batch write visible. SinkFailed where they cannot be any more."""
        if len(ends) > TASKS_MAX:
            raise SinkFailed(
                f"the write has rows of {len(ends)} tasks, and one commit takes {TASKS_MAX}: "
                f"call coalesce({TASKS_MAX}) or less before it"
            )
        key = keys.job_key(job.number)
        self._sweep(keys.job_transactions(job.number), key, job.version, keep=ends)
        done = Job(job=job.job, since_ms=self._now_ms(), is_done=True)

        def look() -> bool | None:
            found = self._client.kv.get(key, timeout_ms=TRY_MS)
            if found is not None and found.version == job.version:
                return None
            if found is not None and keys.decode_job(found.value) == done:
                return True
            raise SinkFailed(f"somebody else ended the batch write with the number {job.number}: its rows are not visible")

        self._decide({key: job.version}, [*ends, Put(key, keys.encode(done))], look, "the commit of the write")

    def abort_job(self, job: JobNumber, ends: Iterable[EndTxn]) -> Callable[[], int] | None:
        """Give a batch write up, as far as the quorum can be told: no task of it begins any more, and what tasks have opened is
        aborted, also by those that were killed and told nothing. Returns a second look, for tasks that end behind this call;
        None where the write was not its caller's any more."""
        key = keys.job_key(job.number)
        self.give_up(ends)
        try:
            version = self._put(key, job.version, Job(job=job.job, since_ms=self._now_ms(), is_done=True))
        except RaftlakeError as error:
            _log.warning("the write with the number %d is left to its time limit: %s", job.number, error)
            return None
        if not version:
            return None

        def look() -> int:
            return self._sweep(keys.job_transactions(job.number), key, version)

        look()
        return look

    def settle(self, transactional_ids: Iterable[str]) -> None:
        """After a commit: wait for the partitions, so that whoever reads behind the write is shown its rows. The commit stands
        whatever becomes of this."""
        names = [name for name in transactional_ids if name]
        if not names:
            return
        try:
            is_told = self._client.settle_transactions(names, timeout_ms=SETTLE_MS_MAX)
        except RaftlakeError as error:
            _log.warning("what was committed may be shown a little later: %s", error)
            return
        if not is_told:
            _log.warning("what was committed is not shown by all partitions after %d ms", SETTLE_MS_MAX)

    # --- what nobody commits -------------------------------------------------------------------------------------------

    def sweep(self, standing: Standing) -> int:
        """Abort the open transactions of an app, which its owner does not need; how many. Only between two batches."""
        return self._sweep(keys.app_transactions(standing.app), keys.owner_key(standing.app), standing.owner_version)

    def _sweep(self, prefix: str, key: str, version: int, keep: Iterable[EndTxn] = ()) -> int:
        kept = {end.producer_id for end in keep}
        try:
            found = self._client.open_transactions(prefix, timeout_ms=TRY_MS)
        except RaftlakeError as error:
            _log.warning("open transactions of %s are left to their time limit: %s", prefix, error)
            return 0
        own = [each for each in found if keys.is_task_of(prefix, each.transactional_id)]
        return self.abort([each.end(commit=False) for each in own if each.producer_id not in kept], key, version)

    def abort(self, ends: Sequence[EndTxn], key: str, version: int) -> int:
        """Abort transactions while a key has a version, as far as the quorum can be told; how many. Others end by their time
        limits."""
        return self._abort(ends, {key: version})

    def give_up(self, ends: Iterable[EndTxn]) -> int:
        """Abort transactions of the caller's own tasks, which nobody else can commit; how many. A run that was replaced does so
        too: readers of what is committed would wait in front of its rows."""
        return self._abort(ends, {})

    def _abort(self, ends: Iterable[EndTxn], compare: Mapping[str, int]) -> int:
        left = {end.producer_id: EndTxn(end.producer_id, end.epoch, False) for end in ends}
        aborted = 0
        while left:
            some = dict(list(left.items())[:TASKS_MAX])
            refused = self._try(compare, list(some.values()))
            if refused is None:
                return aborted
            if refused:
                # Those have ended meanwhile.
                left = {producer_id: end for producer_id, end in left.items() if producer_id not in refused}
                continue
            aborted += len(some)
            left = {producer_id: end for producer_id, end in left.items() if producer_id not in some}
        return aborted

    def _try(self, compare: Mapping[str, int], ops: Sequence[Put | Delete | EndTxn]) -> Mapping[int, str] | None:
        """The producers whose transactions had ended, so that nothing happened; empty where all of it did; None: who knows."""
        try:
            self._client.kv.txn(compare, ops, timeout_ms=TRY_MS)
        except KvConflict as conflict:
            return conflict.refused if conflict.refused and not conflict.current else None
        except RaftlakeError as error:
            _log.warning("open transactions are left to their time limit: %s", error)
            return None
        return {}

    # --- commands and questions ----------------------------------------------------------------------------------------

    def entries(self, prefix: str) -> list[KvEntry]:
        """All keys below a prefix, with values."""
        found: list[KvEntry] = []
        after: str | None = None
        while True:
            page = self._client.kv.list(prefix, after=after, values=True, timeout_ms=self._patience_ms)
            found += page.entries
            if not page.more:
                return found
            after = page.last

    def _look(self, app: str) -> tuple[Owner, int, CommittedBatch, int]:
        """Owner and last batch of an app, each with its version (0: there is none)."""
        found = {entry.key: entry for entry in self.entries(keys.app_prefix(app))}
        owner, batch = found.get(keys.owner_key(app)), found.get(keys.batch_key(app))
        return (
            keys.decode_owner(None if owner is None else owner.value),
            ABSENT if owner is None else owner.version,
            keys.decode_batch(None if batch is None else batch.value),
            ABSENT if batch is None else batch.version,
        )

    def _decide(
        self,
        compare: Mapping[str, int],
        ops: Sequence[Put | Delete | EndTxn],
        look: Callable[[], bool | None],
        what: str,
    ) -> bool:
        """Send a command until its outcome is known. True: it has taken effect; False: its work was done before."""
        begun_at, tries = time.monotonic(), 0
        while True:
            tries += 1
            try:
                self._client.kv.txn(compare, ops, timeout_ms=min(TRY_MS, self._patience_ms))
                return True
            except KvConflict as conflict:
                decided = look()
                if decided is not None:
                    return decided
                if conflict.refused:
                    raise SinkFailed(_why_refused(what, conflict.refused)) from None
                failure: RaftlakeError = conflict
            except RaftlakeError as error:
                if not isinstance(error, UnknownOutcome) and not is_outage(error):
                    raise
                failure = error
            waited_ms = (time.monotonic() - begun_at) * 1000
            if waited_ms >= self._patience_ms:
                raise QuorumUnavailable(what, tries, waited_ms, failure, BLOCK_TIMEOUT)


def _why_refused(what: str, refused: Mapping[int, str]) -> str:
    reason = next(iter(refused.values()))
    return (
        f"{what}: the transactions of {len(refused)} tasks were aborted before ({reason}). Their time limit is "
        "'kafka.transaction.timeout.ms': it begins with a task's first row and has to last until the commit"
    )
