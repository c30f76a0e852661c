"""What a node may import while it runs is in memory after its start, descriptors or not."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from descriptorkit import descriptors_left
from raftlake.runtime import preload
from raftlake.runtime.preload import LATE, SHARED, KeptModules, load_all
from raftlake.storage.descriptors import spares
from raftlake.wire import api
from raftlake.wire.api import API_TABLE, ApiKey, cold_versions

HOT = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.READ_OFFSET,
    ApiKey.FIND_QUORUM,
    ApiKey.WRITE_MARKERS,
}


#: What `raftlake.wire` imports of kio's schemas, for all messages.
OF_WIRE = ("kio.schema.errors", "kio.schema.index", "kio.schema.request_header", "kio.schema.response_header")


def is_of_messages(name: str) -> bool:
    return name.startswith("kio.schema.") and not name.startswith(OF_WIRE)


def forget_types() -> None:
    api.request_type.cache_clear()
    api.response_type.cache_clear()


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No message is imported in this process, nor what is imported late, and nothing is kept."""
    names = [name for name in sys.modules if is_of_messages(name) or name in LATE]
    imported = {name: sys.modules.pop(name) for name in names}
    monkeypatch.setattr(preload, "KEPT", KeptModules())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    forget_types()
    yield
    for name in [name for name in sys.modules if is_of_messages(name)]:
        del sys.modules[name]
    sys.modules.update(imported)
    forget_types()


def kept_and(module: str, tmp_path: Path, code: str = "value = 1") -> tuple[KeptModules, str, Path]:
    name = f"kept_{tmp_path.name}_{module}"
    file = tmp_path / f"{name}.py"
    file.write_text(code)
    kept = KeptModules()
    kept.keep(name, file)
    return kept, name, file


@pytest.fixture
def found_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`found_by(kept)`: Python asks there first; modules of the test are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield lambda kept: sys.meta_path.insert(0, kept)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_messages_are_read_a_little_at_a_time_and_none_runs(forgotten: None) -> None:
    steps = sum(1 for _ in load_all())
    versions = list(cold_versions())
    assert len(versions) == sum(each.version_max - each.version_min + 1 for each in API_TABLE.values() if each.key not in HOT)
    # A package for each API, and for each version a package with the request and the answer.
    assert steps == len(LATE + SHARED) + len({key for key, _ in versions}) + 3 * len(versions)
    assert [name for name in sys.modules if is_of_messages(name)] == ["kio.schema.types"]
    assert "encodings.idna" in sys.modules


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here")
def test_every_version_of_every_message_is_imported_without_a_descriptor(forgotten: None) -> None:
    for _ in load_all():
        pass
    with descriptors_left():
        for key, version in cold_versions():
            for kind in (api.request_type(key, version), api.response_type(key, version)):
                assert kind.__module__ in sys.modules and f".v{version}." in kind.__module__


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors are not listed here")
def test_what_finds_no_descriptor_at_the_start_takes_the_spares(forgotten: None) -> None:
    steps = load_all()
    taken = []
    for _ in range(len(LATE + SHARED) + 1):
        spares.keep()
        with descriptors_left():
            next(steps)
        taken.append(spares.count == 0)
    # The last one is the first module that is read and not run.
    assert taken == [name not in ("datetime", "uuid") for name in (*LATE, *SHARED, "a message")]


def test_a_second_start_in_one_process_asks_the_modules_once(forgotten: None) -> None:
    before = len(sys.meta_path)
    for _ in range(2):
        for _ in load_all():
            pass
    assert len(sys.meta_path) == before + 1


def test_a_kept_module_is_found_although_its_file_is_gone(tmp_path: Path, found_by: Any) -> None:
    kept, name, file = kept_and("whole", tmp_path)
    found_by(kept)
    file.unlink()
    module = importlib.import_module(name)
    assert (module.value, module.__file__, module.__package__) == (1, str(file), "")
    assert kept.find_spec(name) is None  # its code is needed no more


def test_a_kept_package_finds_what_lies_in_it(tmp_path: Path, found_by: Any) -> None:
    name = f"kept_{tmp_path.name}_package"
    (tmp_path / name).mkdir()
    kept = KeptModules()
    for module in ("__init__", "inner"):
        (tmp_path / name / f"{module}.py").write_text("from .inner import value" if module == "__init__" else "value = 2")
    kept.keep(name, tmp_path / name / "__init__.py")
    found_by(kept)
    package = importlib.import_module(name)
    assert package.value == 2 and package.__path__ == [str(tmp_path / name)]


def test_a_kept_module_that_fails_runs_again_at_the_next_import(tmp_path: Path, found_by: Any) -> None:
    kept, name, file = kept_and("failing", tmp_path, "import sys\nsys.kept_tries")
    found_by(kept)
    file.unlink()
    for _ in range(2):
        with pytest.raises(AttributeError, match="kept_tries"):
            importlib.import_module(name)
        assert name not in sys.modules


def test_an_imported_module_is_not_kept(tmp_path: Path) -> None:
    kept = KeptModules()
    kept.keep("json", Path(importlib.import_module("json").__file__ or ""))
    assert kept.find_spec("json") is None


def test_a_module_is_read_once(tmp_path: Path) -> None:
    kept, name, file = kept_and("once", tmp_path)
    file.unlink()
    kept.keep(name, file)
    assert kept.find_spec(name) is not None and kept.find_spec("json") is None
