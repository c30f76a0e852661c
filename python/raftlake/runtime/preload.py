"""Brings into memory, at a node's start, what it may import while it runs.

An import opens files. Where a process has no descriptor left it fails, and so does what it is amid of: a turn, which cannot be
done by half. The messages of the Kafka protocol are a module for each version, and no client speaks most of them. To run all of
these modules takes nearly as long as all other imports of a node. So their code alone is read, in slices, beside the first
election. A module runs when its version is first spoken.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kio import schema
from kio.schema.index import api_key_map

from raftlake.storage.descriptors import spared
from raftlake.wire.api import cold_versions

#: Of the standard library, where it imports when it is called.
LATE = ("encodings.idna", "encodings.utf_8_sig")
#: What messages import, beside what this package imports for all of them.
SHARED = ("datetime", "uuid", "kio.schema.types")


class KeptModules:
    """Modules whose code is in memory, as a finder of `sys.meta_path` and as their loader. Python finds others as ever."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Path, CodeType]] = {}

    def keep(self, name: str, file: Path) -> None:
        """Read the code of a module that is not imported yet, compiled or not. A package is kept by its `__init__.py`."""
        if name in sys.modules or name in self._kept:
            return
        code = SourceFileLoader(name, str(file)).get_code(name)
        if code is not None:
            self._kept[name] = file, code

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Python asks here before it looks into directories."""
        if name not in self._kept:
            return None
        file, _ = self._kept[name]
        below = [str(file.parent)] if file.stem == "__init__" else None
        loader: Any = self
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=below)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: one of Python's own kind."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run it. Its code is kept where it fails."""
        _, code = self._kept[module.__name__]
        exec(code, module.__dict__)
        del self._kept[module.__name__]


#: Those of this process.
KEPT = KeptModules()


def load_all() -> Generator[None, None, None]:
    """One module at each step."""
    for name in LATE + SHARED:
        spared(partial(importlib.import_module, name))
        yield
    finder: Any = KEPT
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    for name, file in message_modules():
        spared(partial(KEPT.keep, name, file))
        yield


def message_modules() -> Iterator[tuple[str, Path]]:
    """The names and files of the modules of all messages that are kio's, and of their packages."""
    root = Path(schema.__path__[0])
    packages: set[str] = set()
    for key, version in cold_versions():
        message = api_key_map[key]
        if message not in packages:
            packages.add(message)
            yield _module(root, message, "__init__")
        for module in ("__init__", "request", "response"):
            yield _module(root, message, f"v{version}", module)


def _module(root: Path, *parts: str) -> tuple[str, Path]:
    named = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join((schema.__name__, *named)), root.joinpath(*parts).with_suffix(".py")
