"""`RemoteTier.adopt` on a Delta table: the leader of an unclean election makes the table of a partition its own.

One commit ends the older incarnations, whose fences get an epoch that no leader has, and begins the new one with the rows of
the leader's history alone. It goes on top of exactly the version that it was made for: delta-rs takes it for no conflict that
OPTIMIZE rewrote the files which a commit removes.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.ports.peer_rpcs import GroupId
from raftlake.ports.tier import AdoptRequest, Lineage, TierFailure
from raftlake.tier.adoption_files import AdoptionWriter
from raftlake.tier.as_left import require_as_left
from raftlake.tier.commits import Action, add_action, commit_once, remove_action, require_newest
from raftlake.tier.failures import STORE_ERRORS, TierProblem
from raftlake.tier.schema import LAST_EPOCH, begin_app, end_app, epoch_app, newest_incarnation, recovery_app
from raftlake.tier.topic_table import TopicTable, never_shown

#: How often an adoption is planned again where its partition changes under its hands.
_ROUNDS_MAX = 5


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an adoption goes by."""

    #: The newest incarnation.
    newest: int
    leader_epoch: int | None
    end: int | None
    #: The incarnation that this recovery began.
    begun: int | None
    paths: frozenset[str]


class _Moved(TierProblem):
    """The partition is not as it was seen."""


def adopt_table(table: TopicTable, cluster_id: str, request: AdoptRequest) -> Lineage:
    """The lineage that the recovery began, now or in an earlier call. Raises TierProblem; a store's errors go through."""
    for _ in range(_ROUNDS_MAX):
        adopting = _Adopting(table, cluster_id, request)
        try:
            return adopting.run()
        except _Moved:
            table.refresh()
    raise TierProblem(TierFailure.UNKNOWN, f"{table.uri}: {request.group} changed {_ROUNDS_MAX} times meanwhile")


class _Adopting:
    """One try."""

    def __init__(self, table: TopicTable, cluster_id: str, request: AdoptRequest) -> None:
        self._table = table
        self._cluster_id = cluster_id
        self._request = request
        self._group: GroupId = request.group
        self._seen = self._look()

    def run(self) -> Lineage:
        newest, begun = self._seen.newest, self._seen.begun
        known = Lineage(self._group, newest)
        require_newest(self._table, self._cluster_id, known, self._request.leader_epoch)
        if begun is None:
            self._require_known()
            require_as_left(self._table, self._cluster_id, known)
            return self._begin()
        if begun != newest:
            what = f"incarnation {newest} has begun, after {begun} of the recovery {self._request.recovery}"
            raise TierProblem(TierFailure.FENCED, f"{self._table.uri}: {self._group}: {what}")
        self._fence(known)
        return known

    def _look(self) -> _Seen:
        table, group = self._table, self._group
        newest = newest_incarnation(table.transaction, self._cluster_id, group) or 0
        lineage = Lineage(group, newest)
        return _Seen(
            newest=newest,
            leader_epoch=table.transaction(epoch_app(self._cluster_id, lineage)),
            end=table.transaction(end_app(self._cluster_id, lineage)),
            begun=table.transaction(recovery_app(self._cluster_id, group, self._request.recovery)),
            paths=frozenset(file.path for file in table.files(group.partition)),
        )

    def _require_known(self) -> None:
        """TierProblem where the quorum's keys tell of copies, and the table never showed any: it is not the one."""
        known = [Lineage(self._group, incarnation) for incarnation in range(self._seen.newest + 1)]
        ends = [self._table.transaction(end_app(self._cluster_id, each)) for each in known]
        if self._request.is_continued and all(end is None for end in ends):
            raise never_shown(self._table.uri, self._group)

    def _require_unmoved(self) -> None:
        if self._look() != self._seen:
            raise _Moved(TierFailure.ELSEWHERE, f"{self._table.uri}: {self._group} changed meanwhile")

    def _fence(self, lineage: Lineage) -> None:
        """The incarnation has begun: only the leaders before this one are fenced."""
        epoch = self._request.leader_epoch

        def nothing() -> list[Action]:
            require_newest(self._table, self._cluster_id, lineage, epoch)
            return []

        commit_once(self._table, nothing, transactions={epoch_app(self._cluster_id, lineage): epoch})

    def _begin(self) -> Lineage:
        table = self._table
        writer = AdoptionWriter(table.store, table.uri, self._request, self._seen.newest, table.files(self._group.partition))
        adoption = writer.adoption

        def actions() -> list[Action]:
            self._require_unmoved()
            removals: list[Action] = [remove_action(file) for file in adoption.removed]
            return removals + [add_action(adoption.lineage, written) for written in adoption.added]

        try:
            writer.write()
            transactions = self._transactions(adoption.lineage, adoption.end_offset)
            commit_once(table, actions, transactions=transactions, retries_max=0)
        except (TierProblem, *STORE_ERRORS) as problem:
            if not isinstance(problem, TierProblem) or problem.error.failure is not TierFailure.UNKNOWN:
                table.store.discard(adoption.written)
            raise
        table.store.discard(adoption.returned)
        return adoption.lineage

    def _transactions(self, lineage: Lineage, end_offset: int) -> dict[str, int]:
        cluster_id = self._cluster_id
        older = [Lineage(self._group, incarnation) for incarnation in range(lineage.incarnation)]
        found = {epoch_app(cluster_id, each): LAST_EPOCH for each in older}
        found[epoch_app(cluster_id, lineage)] = self._request.leader_epoch
        found[recovery_app(cluster_id, self._group, self._request.recovery)] = lineage.incarnation
        if end_offset > 0:
            # The first copy goes on here.
            found[begin_app(cluster_id, lineage)] = found[end_app(cluster_id, lineage)] = end_offset - 1
        return found
