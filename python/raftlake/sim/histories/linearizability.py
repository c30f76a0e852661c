"""Is there an order of these operations that one correct copy of the object could have gone through, in real time?

Owns the search (Wing and Gong's, with Lowe's memo of configurations already seen) over the histories that clients recorded. A
*known* operation was answered and took effect between its invocation and its return. An *optional* one was never answered: it
took effect at some time after its invocation, however late, or never. What failed for sure is not given to the search.

Refuses to know what operations mean: a `Model` steps them. Pure: times are whole numbers of any unit and only their
order counts; operations whose times are equal overlap.

What keeps it fast: an operation that leaves the state as it is (a read that fits) is taken as soon as it may, because that can
never close another way; of those whose place among themselves is known only the next one is tried; and optional ones with
equal actions are interchangeable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

A = TypeVar("A")
S = TypeVar("S")
A_contra = TypeVar("A_contra", contravariant=True)

#: Configurations after which the search gives up and says so.
CONFIGURATIONS_MAX = 2_000_000
_NONE = -1
#: Bits of a counter of optional operations of one kind.
_BITS = 20


class Outcome(Enum):
    """What a client knows of the operation that it asked for."""

    OK = "ok"
    #: Certainly without effect.
    FAILED = "failed"
    #: Without an answer: it may take effect at any later time, or never.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[A]):
    """One call of one client. `action` holds what was asked and, with outcome OK, what was answered.

    `returned_at` is the time of the answer; for an unknown operation it is the time at which its client gave up and counts
    for nothing.
    """

    client: str
    invoked_at: int
    returned_at: int
    outcome: Outcome
    action: A

    def __str__(self) -> str:
        return f"[{self.invoked_at}..{self.returned_at}] {self.client} {self.outcome.value}: {self.action}"


class Model(Protocol[S, A_contra]):
    """A sequential object. States are values: hashable and never changed."""

    def initial(self) -> S: ...

    def step(self, state: S, action: A_contra, number: int) -> S | None:
        """The state after `action`, the same object when nothing changes, None when it could not have been answered like that.
        `number` is the operation's own."""

    def rank(self, action: A_contra) -> int | None:
        """Where the answer itself says that the action stands (None: it does not). `step` refuses ranks that do not ascend."""

    def must_be_seen(self, optional: A_contra, following: A_contra) -> bool:
        """Whether an optional action directly before `following` can matter. False drops this way of the search."""


class Finding(Enum):
    LINEARIZABLE = "linearizable"
    NOT_LINEARIZABLE = "not linearizable"
    #: The search was given up: too many configurations.
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Verdict(Generic[S, A]):
    """`state` and `stuck` tell of the farthest that the search came: the operations there that nothing could follow."""

    finding: Finding
    configurations: int
    state: S
    stuck: tuple[Operation[A], ...] = ()

    @property
    def is_linearizable(self) -> bool:
        return self.finding is Finding.LINEARIZABLE

    def __str__(self) -> str:
        lines = [f"{self.finding.value} after {self.configurations} configurations"]
        if not self.is_linearizable:
            lines += [f"  state {self.state}, and then none of", *(f"    {operation}" for operation in self.stuck)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Configuration(Generic[S]):
    """The known operations before `first` are taken, and those whose bit (relative to `first`) is set in `mask`; of the
    optional ones `taken` counts how many of each kind. `last` is the kind of the optional one that was taken last, if nothing
    followed it yet. `ranked` counts the operations with a rank that are taken."""

    first: int
    mask: int
    taken: int
    last: int
    ranked: int
    state: S


class _Search(Generic[S, A]):
    def __init__(self, model: Model[S, A], known: Sequence[Operation[A]], optional: Sequence[Operation[A]]) -> None:
        self._model = model
        self._known = sorted(known, key=lambda operation: operation.invoked_at)
        #: Optional ones with equal actions, the earliest first.
        self._kinds: list[list[Operation[A]]] = []
        for operation in sorted(optional, key=lambda operation: operation.invoked_at):
            same = next((kind for kind in self._kinds if kind[0].action == operation.action), None)
            if same is None:
                self._kinds.append([operation])
            else:
                same.append(operation)
        self._numbers = [len(known) + sum(map(len, self._kinds[:index])) for index in range(len(self._kinds))]
        self._invoked = [operation.invoked_at for operation in self._known]
        self._returned = [operation.returned_at for operation in self._known]
        self._ranks = [model.rank(operation.action) for operation in self._known]
        #: The operations with a rank, by rank; after them one that never comes.
        self._ranked = [index for _, index in sorted((rank, i) for i, rank in enumerate(self._ranks) if rank is not None)]
        self._ranked.append(_NONE)

    def run(self, configurations_max: int) -> Verdict[S, A]:
        count = len(self._known)
        start = self._settle(_Configuration(0, 0, 0, _NONE, 0, self._model.initial()))
        deepest, depth = start, start.first + start.mask.bit_count()
        seen = {start}
        ways = [self._ways(start)]
        is_done = start.first == count
        while ways and not is_done and len(seen) < configurations_max:
            way = next(ways[-1], None)
            if way is None:
                ways.pop()
                continue
            configuration = self._settle(way)
            is_done = configuration.first == count
            if configuration in seen:
                continue
            seen.add(configuration)
            ways.append(self._ways(configuration))
            if configuration.first + configuration.mask.bit_count() > depth:
                deepest, depth = configuration, configuration.first + configuration.mask.bit_count()
        if is_done:
            return Verdict(Finding.LINEARIZABLE, len(seen), deepest.state)
        finding = Finding.UNDECIDED if ways else Finding.NOT_LINEARIZABLE
        stuck = tuple(self._known[index] for index in self._candidates(deepest)[0])
        return Verdict(finding, len(seen), deepest.state, stuck)

    def _candidates(self, configuration: _Configuration[S]) -> tuple[list[int], int]:
        """The known operations that may come next: all that were invoked before the first return of any that is not taken. And
        the time of that return."""
        invoked, returned, mask = self._invoked, self._returned, configuration.mask
        found: list[int] = []
        index, count = configuration.first, len(invoked)
        horizon = returned[index] if index < count else 0
        while index < count and invoked[index] <= horizon:
            if not mask & 1:
                found.append(index)
                if returned[index] < horizon:
                    horizon = returned[index]
            mask >>= 1
            index += 1
        return found, horizon

    def _settle(self, configuration: _Configuration[S]) -> _Configuration[S]:
        """Take everything that changes nothing."""
        model, known = self._model, self._known
        while True:
            state = configuration.state
            fitting = 0
            for index in self._candidates(configuration)[0]:
                action = known[index].action
                is_next = self._ranks[index] is None and self._may_follow(configuration.last, action)
                if is_next and model.step(state, action, index) is state:
                    fitting |= 1 << (index - configuration.first)
            if not fitting:
                return configuration
            configuration = self._take(configuration, fitting, 0, state)

    @staticmethod
    def _take(configuration: _Configuration[S], bits: int, ranked: int, state: S) -> _Configuration[S]:
        mask = configuration.mask | bits
        ones = (~mask & (mask + 1)).bit_length() - 1
        ranked += configuration.ranked
        return _Configuration(configuration.first + ones, mask >> ones, configuration.taken, _NONE, ranked, state)

    def _may_follow(self, last: int, action: A) -> bool:
        return last == _NONE or self._model.must_be_seen(self._kinds[last][0].action, action)

    def _ways(self, configuration: _Configuration[S]) -> Iterator[_Configuration[S]]:
        """Every configuration that one more operation leads to."""
        model, state = self._model, configuration.state
        candidates, horizon = self._candidates(configuration)
        next_ranked = self._ranked[configuration.ranked]
        for index in candidates:
            action, has_rank = self._known[index].action, self._ranks[index] is not None
            if (has_rank and index != next_ranked) or not self._may_follow(configuration.last, action):
                continue
            following = model.step(state, action, index)
            if following is not None:
                yield self._take(configuration, 1 << (index - configuration.first), has_rank, following)
        for kind, operations in enumerate(self._kinds):
            if operations[0].invoked_at > horizon:
                break
            count = configuration.taken >> kind * _BITS & ((1 << _BITS) - 1)
            if count == len(operations) or operations[count].invoked_at > horizon:
                continue
            action = operations[count].action
            if not self._may_follow(configuration.last, action):
                continue
            following = model.step(state, action, self._numbers[kind] + count)
            if following is not None and following is not state:
                taken = configuration.taken + (1 << kind * _BITS)
                yield _Configuration(configuration.first, configuration.mask, taken, kind, configuration.ranked, following)


def search(
    model: Model[S, A],
    known: Sequence[Operation[A]],
    optional: Sequence[Operation[A]] = (),
    *,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> Verdict[S, A]:
    """Whether an order exists that takes all of `known` and any of `optional`, respects real time, and that `model` can
    follow."""
    return _Search(model, known, optional).run(configurations_max)
