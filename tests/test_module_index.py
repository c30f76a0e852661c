"""Every product module has a test file that is about it: by its name, or by tests/module_index.py."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from module_index import TESTED_IN
from test_repository import MODULES, PRODUCT, ROOT, TEST_FILES, TESTS, dotted, for_each, imports_of, names_defined_in, relative

HELPERS = sorted(path for path in set(TESTS) - set(TEST_FILES) if path.name != "conftest.py")


def words(name: str) -> list[str]:
    return name.split("_") if name else []


@functools.cache
def subject(module: Path) -> tuple[list[str], list[str]]:
    """The words for its packages, and its own. A module with the name of its package has the words of the package."""
    top, *packages, name = dotted(module).split(".")
    before = ["connector"] if top == "pyspark_raftlake" else []
    # The handlers are the core's: their tests are those of raft.
    before += [word for package in packages if package != "handlers" for word in words(package)]
    named = words(name)
    return (before[: -len(named)] if before[-len(named) :] == named else before), named


@functools.cache
def longer_names(module: Path) -> list[list[str]]:
    """Of the modules beside it that have more words."""
    package, named = subject(module)
    beside = [about + own for about, own in (subject(other) for other in MODULES if other.parent == module.parent)]
    return [full[len(package) :] for full in beside if len(full) > len(package) + len(named)]


def is_named_after(test: Path, module: Path) -> bool:
    """test_<package>_<module>, also with more words behind or between, such as those of a second module. Words that are the
    name of a longer module are about that one."""
    package, named = subject(module)
    told = words(test.stem.removeprefix("test_"))
    if told[: len(package)] != package:
        return False
    rest = told[len(package) :]
    for start in range(len(rest) if package else 1):
        is_longer = any(rest[start : start + len(other)] == other for other in longer_names(module))
        if rest[start : start + len(named)] == named and not is_longer:
            return True
    return False


def reaches(test: Path, module: Path) -> bool:
    """A test file, or a helper that it imports, imports the module, or what another module shows of it."""
    told = told_in(test)
    return dotted(module) in told or not told.isdisjoint(shown(module))


@functools.cache
def told_in(test: Path) -> set[str]:
    """What a test file and the helpers that it imports import."""
    return set(imports_of(test)) | {name for helper in HELPERS if is_imported(helper, test) for name in imports_of(helper)}


@functools.cache
def importers() -> dict[str, set[str]]:
    """By the full name of a thing, the names under which the modules that import it show it to others."""
    found: dict[str, set[str]] = {}
    for path in PRODUCT:
        for name in imports_of(path):
            found.setdefault(name, set()).add(f"{dotted(path).removesuffix('.__init__')}.{name.rsplit('.', 1)[-1]}")
    return found


@functools.cache
def shown(module: Path) -> set[str]:
    """What other modules show of this one: pkg/__init__.py and pkg/facade.py, in which `from pkg.module import Name` stands."""
    names = (f"{dotted(module)}.{name}" for name in names_defined_in(module))
    return set().union(*(importers().get(name, set()) for name in names))


def is_imported(helper: Path, test: Path) -> bool:
    name = ".".join(helper.relative_to(ROOT / "tests").with_suffix("").parts).removeprefix("kits.")
    return name in imports_of(test) or f"tests.{name}" in imports_of(test)


@for_each(MODULES)
def test_a_module_has_its_own_tests(path: Path) -> None:
    """Being run by the way proves little: a test file is named after the module, or the index names the one that is about it.
    Who changes the module then knows what to run."""
    named = [relative(test) for test in TEST_FILES if is_named_after(test, path)]
    indexed = TESTED_IN.get(dotted(path))
    if indexed is None:
        assert named, f"no test file is named after {dotted(path)}, nor is one in tests/module_index.py"
        return
    assert not named, f"{named} are named after {dotted(path)}: take it out of tests/module_index.py"
    test = ROOT / "tests" / indexed
    assert test in TEST_FILES, f"{indexed} is no test file"
    is_run_as_a_command = path.parent.name == "cli" and test.parent.name == "process"
    assert is_run_as_a_command or reaches(test, path), f"{indexed} does not touch {dotted(path)}"


def test_the_index_is_of_modules_that_exist() -> None:
    assert set(TESTED_IN) <= {dotted(path) for path in MODULES}


@pytest.mark.parametrize(
    ("test", "module", "is_named"),
    [
        ("test_raft_vote.py", "raft/handlers/vote.py", True),
        ("test_raft_fetch_response.py", "raft/handlers/fetch_response.py", True),
        ("test_raft_fetch_response.py", "raft/handlers/fetch.py", False),
        ("test_replica_replication_fetch_server_fetcher.py", "replica/replication/fetcher.py", True),
        ("test_replica_replication_fetch_server_fetcher.py", "replica/replication/fetch_server.py", True),
        ("test_replica_apis_topics_producers.py", "replica/apis/producers.py", True),
        ("test_errors.py", "errors.py", True),
        ("test_runtime_http_kv.py", "runtime/http/kv.py", True),
        ("test_sim_faults_drawn.py", "sim/faults/faults.py", True),
        # About another package, or the words of the module in another order or apart.
        ("test_wire_kafka_raft_voters.py", "raft/handlers/voters.py", False),
        ("test_contract_errors.py", "errors.py", False),
        ("test_replica_server_fetch.py", "replica/replication/fetch_server.py", False),
        ("test_replica_fetch_of_a_server.py", "replica/replication/fetch_server.py", False),
    ],
)
def test_what_the_name_of_a_test_file_says(test: str, module: str, is_named: bool) -> None:
    assert is_named_after(ROOT / "tests" / test, ROOT / "python" / "raftlake" / module) == is_named
