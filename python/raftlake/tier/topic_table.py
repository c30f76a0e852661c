"""The Delta table of one topic in the hands of one process: opened or created, kept up to date, committed to.

A table that is at the path is used only where it is that of this topic (`schema.difference`). One that was there and is gone
is not created anew: a table that begins in the middle would look whole.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import TierFailure
from raftlake.tier.calls import TierSettings
from raftlake.tier.commit_watch import CommitWatch
from raftlake.tier.failures import STORE_ERRORS, TierProblem, problem_of
from raftlake.tier.foreign_commits import CALL_KEY, CLEAN_KEY
from raftlake.tier.log_damage import unread_table
from raftlake.tier.schema import PARTITION_COLUMNS, delta_schema, difference, table_properties, table_uri
from raftlake.tier.store import NAME_BYTES_MAX, Store, fits
from raftlake.tier.table_files import TableFile, files_of, list_files

#: How often delta-rs itself goes behind a commit of another lineage.
RETRIES_MAX = 20
#: What to do about a table that is gone. Its share may only be not mounted.
PUT_BACK = (
    "mount its share, or put it back: copies then go on by themselves. Only where it is lost for good, delete and create the "
    "topic: that gives up every record that only the table has"
)


def commit_name(version: int) -> str:
    """The file of a commit."""
    return f"_delta_log/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """The file of a checkpoint, where a version has one."""
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def never_shown(uri: str, group: GroupId) -> TierProblem:
    """A table that knows of no copy of a partition, where the quorum's keys tell of some."""
    return TierProblem(
        TierFailure.UNUSABLE,
        f"the table at {uri} never showed a row of {group}, and the quorum's keys tell of copies: the table that has them is "
        f"gone: {PUT_BACK}",
    )


class TopicTable:
    """One table. Every method but `refresh` speaks of what the last `refresh` has seen."""

    def __init__(self, settings: TierSettings, group: GroupId, *, may_create: bool = True) -> None:
        self._settings = settings
        self._options = settings.options()
        self._group = group
        self.uri = table_uri(settings.uri, group)
        self._table: DeltaTable | None = None
        self._store: Store | None = None
        self._may_create = may_create
        self._was_seen = False
        #: The content of the newest commit that was seen. Where it is another one, the table is another one.
        self._newest: bytes | None = None
        self._watch = CommitWatch()

    @property
    def table(self) -> DeltaTable:
        assert self._table is not None, "refresh first"
        return self._table

    @property
    def store(self) -> Store:
        assert self._store is not None, "refresh first"
        return self._store

    @property
    def version(self) -> int:
        return self.table.version()

    def refresh(self) -> None:
        """See the newest commits; create the table where there never was one and it may be. Raises TierProblem."""
        if not fits(self.uri):
            room = NAME_BYTES_MAX - len(posixpath.basename(self.uri)) + len(self._group.topic)
            what = f"a topic's name has at most {room} characters on a local path: copy it to a topic with a shorter name"
            raise TierProblem(TierFailure.UNUSABLE, f"there is no table of topic {self._group.topic[:32]}…: {what}")
        try:
            if self._table is not None and (self._newest is None or self._commit_content() != self._newest):
                self._table = None
            if self._table is None:
                self._table = self._open()
                self._store = Store(self.uri, self._options)
                self._watch = CommitWatch()
            else:
                self._table.update_incremental()
            found = difference(self._table, self._settings.cluster_id, self._group)
            self._newest = self._commit_content()
        except STORE_ERRORS as error:
            self._table = None
            raise unread_table(error, self.uri, self._options) from error
        if found is not None:
            self._table = None
            raise TierProblem(
                TierFailure.UNUSABLE,
                f"the table at {self.uri} is not ours for topic {self._group.topic}: {found}",
            )

    def _commit_content(self) -> bytes | None:
        return self.store.read(commit_name(self.version))

    def watch(self) -> CommitWatch:
        """What its commits tell of other programs, up to this version."""
        newest, version = self._newest, self.version
        self._watch.look(version, lambda number: newest if number == version else self.store.read(commit_name(number)))
        return self._watch

    def _open(self) -> DeltaTable:
        try:
            table = DeltaTable(self.uri, storage_options=self._options)
        except TableNotFoundError as error:
            if self._was_seen:
                raise TierProblem(TierFailure.UNUSABLE, f"the table at {self.uri} is gone: {PUT_BACK}") from error
            if not self._may_create:
                raise TierProblem(TierFailure.ABSENT, f"there is no table at {self.uri}") from error
            table = self._create()
        self._was_seen = True
        return table

    def _create(self) -> DeltaTable:
        try:
            DeltaTable.create(
                self.uri,
                delta_schema(),
                mode="error",
                partition_by=PARTITION_COLUMNS,
                name=self._group.topic,
                description=f"Records of the topic {self._group.topic}, written by raftlake",
                configuration=table_properties(self._settings.cluster_id, self._group),
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except STORE_ERRORS as error:
            # Another node may have created it at the same time.
            try:
                return DeltaTable(self.uri, storage_options=self._options)
            except STORE_ERRORS:
                raise problem_of(error, "create the table", self.uri) from error
        Store(self.uri, self._options).sync([commit_name(0)])
        return DeltaTable(self.uri, storage_options=self._options)

    def transaction(self, app: str) -> int | None:
        """The version that a `txn` of this application id was last set to."""
        return self.table.transaction_version(app)

    def commit(
        self,
        call: str,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        metadata: Mapping[str, str],
        retries_max: int = RETRIES_MAX,
    ) -> None:
        """Commit on top of what was seen. delta-rs goes behind commits that others made since then, unless they set one of the
        same transactions. Raises one of STORE_ERRORS, also after a commit that is in the table: `commit_of` tells."""
        clean_to = self._watch.clean_to
        known = {} if clean_to is None else {CLEAN_KEY: str(clean_to)}
        self.table.create_write_transaction(
            list(actions),
            mode="append",
            schema=self.table.schema(),
            partition_by=PARTITION_COLUMNS,
            commit_properties=CommitProperties(
                custom_metadata={CALL_KEY: call, **known, **metadata},
                max_commit_retries=retries_max,
                app_transactions=[Transaction(app, version) for app, version in transactions.items()],
            ),
        )

    def commit_of(self, call: str, after: int) -> int | None:
        """The version of the commit that a call has made, among those after a version; None where it has made none. A commit
        that cannot be read may be it: OSError."""
        for version in range(after + 1, self.version + 1):
            content = self.store.read(commit_name(version))
            if content is None:
                raise FileNotFoundError(f"{self.uri}/{commit_name(version)} is gone")
            for line in content.splitlines():
                if json.loads(line).get("commitInfo", {}).get(CALL_KEY) == call:
                    return version
        return None

    def sync(self, after: int) -> None:
        """Make the commits after a version durable on a local path, and the checkpoints that came with them."""
        versions = range(after + 1, self.version + 1)
        self.store.sync(
            [commit_name(version) for version in versions],
            where_there=["_delta_log/_last_checkpoint", *(checkpoint_name(version) for version in versions)],
        )

    def files(self, partition: int) -> list[TableFile]:
        """The files of a partition, those of the largest offsets first; before them those that do not say."""
        files = files_of(list_files(self.table), partition)
        return sorted(files, key=lambda file: (file.offset_max is not None, -(file.offset_max or 0)))

    def all_files(self) -> list[TableFile]:
        """The files of all partitions."""
        listed = list_files(self.table)
        return [file for partition in listed["partition"].unique().to_pylist() for file in files_of(listed, partition)]
