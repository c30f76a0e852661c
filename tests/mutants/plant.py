"""Planting a bug: a module is loaded with a few words of its source exchanged.

A mutant says which text of which module it replaces. When that text is not there exactly once, whoever changed the code has to
look at the mutant again, and planting fails loudly: a bug that was never planted cannot be found. Plant before the module is
imported; a process carries one mutant at most.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType


class TargetGone(Exception):
    """The text that a mutant replaces is not in its module, or not just once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """`before`, which stands in `module` exactly once, becomes `after`."""

    module: str
    before: str
    after: str

    def apply(self, source: str) -> str:
        found = source.count(self.before)
        if found != 1:
            raise TargetGone(f"{self.module}: found {found} times instead of once: {self.before!r}")
        return source.replace(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug."""

    name: str
    #: Where it comes from: an issue, a paper, a KIP.
    source: str
    edits: tuple[Edit, ...]
    #: Looked for by scenario tests alone: it breaks a rule that keeps clusters quick or quiet, and no promise to clients.
    by_tests: bool = False
    #: Looked for in runs of this theme (`sim.faults.Settings.theme`); it needs a dance that others rarely get to.
    theme: int | None = None
    #: Looked for in runs in which voters change and disks are damaged.
    damaged_voters: bool = False
    #: Looked for in runs in which retention deletes old segments.
    trims: bool = False
    #: Looked for in runs in which a topic is compacted.
    compacts: bool = False
    #: Patterns below `tests/`: the tests that look for it instead of the scenarios, for a bug outside the core and its driver.
    places: tuple[str, ...] = ()
    #: Expected to keep what looks for it from ever ending. Without this a time-out is no finding.
    hangs: bool = False


def source_of(module: str) -> str:
    """The source text of a module that is not imported for it."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and isinstance(spec.loader, SourceFileLoader) and spec.origin is not None
    return spec.loader.get_data(spec.origin).decode()


def check(mutant: Mutant) -> None:
    """Raise TargetGone unless every edit fits, also one after the other."""
    sources: dict[str, str] = {}
    for edit in mutant.edits:
        changed = edit.apply(sources.get(edit.module) or source_of(edit.module))
        compile(changed, edit.module, "exec", dont_inherit=True)
        sources[edit.module] = changed


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        for edit in self._edits:
            source = edit.apply(source)
        return compile(source, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._edits: dict[str, list[Edit]] = {}
        for edit in mutant.edits:
            self._edits.setdefault(edit.module, []).append(edit)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        edits = self._edits.get(fullname)
        if edits is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, edits)
        return spec


def plant(mutant: Mutant) -> None:
    """From now on this process imports the mutated modules."""
    for edit in mutant.edits:
        assert edit.module not in sys.modules, f"{edit.module} was imported before {mutant.name} was planted"
    sys.meta_path.insert(0, _Finder(mutant))
