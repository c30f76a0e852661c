"""Lints what linters cannot: facts about the whole tree that are easy to break and hard to see in one file.

Reads source text only; runs in about a second. A rule that has to yield somewhere yields by name, in a
table here, with the reason.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = sorted([*(ROOT / "python").rglob("*.py"), *(ROOT / "connector").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_FILES = [path for path in TESTS if path.name.startswith("test_")]
MODULES = [path for path in PRODUCT if path.name not in ("__init__.py", "__main__.py")]
PACKAGES = [path for path in PRODUCT if path.name == "__init__.py"]

#: The docstring of a package.
PACKAGE_LINES_MIN, PACKAGE_LINES_MAX = 15, 40

#: Lines that two places of product code may have in common, one after the other.
COMMON_LINES_MAX = 12

#: `make check` reports files of more than 400 lines. A longer one than this fails, unless it stands in the table.
LINES_MAX = 600
#: Longer files: the length that each may have, and why it is one file. A number is only ever lowered.
LINES_MAX_OF: dict[str, tuple[int, str]] = {}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


def dotted(path: Path) -> str:
    """python/raftlake/raft/core.py -> raftlake.raft.core"""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:])


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def for_each(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Makes one test of a rule about a file: it holds for all of `paths`, or the failure names each that breaks it."""

    def make(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            hits: list[str] = []
            for path in paths:
                try:
                    rule(path)
                except AssertionError as broken:
                    hits.append(f"{relative(path)}: {broken}")
            assert not hits, "\n".join(hits)

        test.__doc__ = rule.__doc__
        return test

    return make


# --- every product module -------------------------------------------------------------------------------------------


@for_each(MODULES)
def test_a_module_says_what_it_owns(path: Path) -> None:
    """A header docstring; of more than one line when there is more than two screens of code."""
    header = ast.get_docstring(tree_of(path)) or ""
    assert header, "no module docstring"
    if len(text_of(path).splitlines()) > 120:
        assert len([line for line in header.splitlines() if line.strip()]) >= 2, (
            f"a module of this size needs more than: {header}"
        )


@for_each(PACKAGES)
def test_a_package_says_itself(path: Path) -> None:
    """15 to 40 lines in its `__init__.py`: purpose, reading order, callers, invariants. Each module and each package that lies
    directly in the package is named in backticks, `x` for x.py."""
    header = ast.get_docstring(tree_of(path)) or ""
    length = len(header.splitlines())
    assert PACKAGE_LINES_MIN <= length <= PACKAGE_LINES_MAX, f"its docstring has {length} lines"
    inside = {module.stem for module in path.parent.glob("*.py") if module != path}
    inside |= {package.parent.name for package in path.parent.glob("*/__init__.py")}
    left_out = inside - set(re.findall(r"`([^`\n]+)`", header))
    assert not left_out, f"its docstring does not name {sorted(left_out)}"


@for_each([path for path in PRODUCT if text_of(path).strip()])
def test_annotations_are_not_evaluated(path: Path) -> None:
    body = tree_of(path).body
    only_docstring = len(body) == 1 and isinstance(body[0], ast.Expr)
    assert only_docstring or "__future__.annotations" in imports_of(path), "from __future__ import annotations"


@functools.cache
def names_defined_in(path: Path) -> frozenset[str]:
    """Top-level classes, functions and constants of a module."""
    names: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return frozenset(names)


def test_the_exceptions_are_needed() -> None:
    """A table of exceptions only shrinks: what is no longer an exception has to go from it."""
    known = {relative(path) for path in [*PRODUCT, *TESTS]}
    assert set(LINES_MAX_OF) <= known
    for name, (allowed, reason) in LINES_MAX_OF.items():
        length = len(text_of(ROOT / name).splitlines())
        assert LINES_MAX < length <= allowed, f"{name} has {length} lines: lower or remove its entry ({allowed})"
        assert reason, f"{name}: say why it is one file"


@for_each([*PRODUCT, *TESTS])
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    length = len(text_of(path).splitlines())
    allowed, _ = LINES_MAX_OF.get(relative(path), (LINES_MAX, ""))
    assert length <= allowed, f"{length} lines: split it by concern, or say in LINES_MAX_OF why it is one file"


def contract(of: str) -> dict[str, list[str]]:
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (found,) = [one for one in contracts if of in one["name"]]
    return dict(found)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("The client knows", {"client", "errors", "kv.commands", "kv.keys", "kv.lenient_json", "kv.query_positions", "wire"}),
        ("The connector imports", {"arrow", "client", "errors", "tier.reader", "wire"}),
    ],
)
def test_an_import_contract_forbids_all_that_it_does_not_allow(name: str, allowed: set[str]) -> None:
    """A module that is added is forbidden, or the contract says otherwise."""
    home = ROOT / "python" / "raftlake"
    parts = {path.stem for path in home.iterdir() if not path.name.startswith("_")}
    for package in {name.partition(".")[0] for name in allowed if "." in name}:
        parts = parts - {package} | {f"{package}.{path.stem}" for path in (home / package).glob("[!_]*.py")}
    forbidden = {module.removeprefix("raftlake.") for module in contract(name)["forbidden_modules"]}
    assert forbidden == parts - allowed


# --- what must not be there -----------------------------------------------------------------------------------------

LEFT_UNDONE = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", "NotImplemented" + "Error", r"\bfor " + r"now\b"])
)
#: Paths that exist on one machine only.
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(work|farm|opt|root|home)/[\w.]")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".java", ".gradle", ".sh", ".yml", ".yaml", ""}


def text_files() -> list[Path]:
    hidden_but_ours = {".ci"}
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git"]
    for top in sorted(path for path in ROOT.iterdir() if path.is_dir()):
        if top.name in {"build", "dist", "benchmarks"} or (top.name.startswith(".") and top.name not in hidden_but_ours):
            continue
        found += [
            path
            for path in top.rglob("*")
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts
        ]
    return sorted(found)


def test_no_paths_of_one_machine() -> None:
    hits = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in text_files()
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert not hits, "\n".join(hits)


def test_nothing_is_left_undone() -> None:
    hits = [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in [*PRODUCT, *TESTS]
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if LEFT_UNDONE.search(line)
    ]
    assert not hits, "\n".join(hits)


def is_blind(handler: ast.ExceptHandler) -> bool:
    """Catches everything and does nothing with it."""
    catches_all = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )
    return catches_all and all(isinstance(statement, ast.Pass | ast.Continue) for statement in handler.body)


@for_each(PRODUCT)
def test_no_error_is_swallowed(path: Path) -> None:
    hits = [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, ast.ExceptHandler) and is_blind(node)]
    assert not hits, f"lines {hits}"


DETERMINISTIC = ("raft", "wire", "kv", "replica", "sim")


def calls_of(path: Path) -> list[tuple[str, int]]:
    return [(ast.unparse(node.func), node.lineno) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]


def iterates_a_set(node: ast.AST) -> bool:
    sources = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
    return any(
        isinstance(source, ast.Set | ast.SetComp)
        or (isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id in ("set", "frozenset"))
        for source in sources
    )


@for_each([path for path in PRODUCT if not set(DETERMINISTIC).isdisjoint(path.parts)])
def test_the_same_seed_gives_the_same_run(path: Path) -> None:
    """No order from hashes or addresses, no randomness but the injected one (KIP-595's core must replay byte for byte)."""
    banned = {
        "hash",
        "id",
        "uuid.uuid4",
        "uuid4",
        "random.random",
        "random.randint",
        "random.choice",
        "time.time",
        "os.urandom",
    }
    hits = [f"line {line}: {name}()" for name, line in calls_of(path) if name in banned]
    hits += [f"line {getattr(node, 'lineno', '?')}: iterates a set" for node in ast.walk(tree_of(path)) if iterates_a_set(node)]
    assert not hits, "\n".join(hits)


# --- the tests themselves -------------------------------------------------------------------------------------------


def test_test_files_have_names_of_their_own() -> None:
    seen: dict[str, Path] = {}
    for path in TEST_FILES:
        assert path.name not in seen, f"{relative(path)} and {relative(seen[path.name])}"
        seen[path.name] = path


@for_each(TEST_FILES)
def test_a_test_file_has_a_header(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "no module docstring"


@for_each([path for path in TESTS if not {"unit", "property", "trace", "kip"}.isdisjoint(path.parts)])
def test_fast_tests_do_not_wait_for_the_clock(path: Path) -> None:
    hits = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("time.sleep", "sleep", "asyncio.sleep")
        and ast.unparse(node.args[0]) != "0"  # gives the event loop a turn, waits for nothing
    ]
    assert not hits, f"sleeps in lines {hits}: inject the time, or wait for a condition"


@for_each(TESTS)
def test_a_skipped_test_says_why(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("mark.skip", "mark.skipif", "mark.xfail")):
            assert any(keyword.arg == "reason" for keyword in node.keywords), f"line {node.lineno}: no reason"


@for_each(TESTS)
def test_no_test_goes_quiet_for_want_of_a_package(path: Path) -> None:
    """`make setup` installs all that tests import. A whole file that skips itself proves nothing and looks green."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            assert not ast.unparse(node.func).endswith("importorskip"), f"line {node.lineno}: import the package"
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            assert "ImportError" not in ast.unparse(node.type), f"line {node.lineno}: let the import fail"
            assert "ModuleNotFoundError" not in ast.unparse(node.type), f"line {node.lineno}: let the import fail"
        elif isinstance(node, ast.Assign):
            assert "collect_ignore" not in ast.unparse(node.targets[0]), f"line {node.lineno}: a file that is not collected"


# --- documents and commands -----------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", text_of(ROOT / "Makefile"), flags=re.MULTILINE))


def documents() -> list[Path]:
    places = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted([*ROOT.glob("*.md"), *(path for place in places for path in place.rglob("*.md"))])


def test_documents_lie_in_every_part() -> None:
    assert {"README.md", "docs/mutants.md", "connector/README.md", "tests/kip/README.md"} <= {
        relative(path) for path in documents()
    }


def test_the_page_of_planted_bugs_names_tests_that_exist_and_is_counted_rightly() -> None:
    """The harness writes the page whole; a row that was added or taken out by hand makes its numbers wrong."""
    text = text_of(ROOT / "docs" / "mutants.md")
    rows = re.findall(r"^\| `[^`]+` \| (.+?) \| (\d*)(?:, none found it)? \|$", text, flags=re.MULTILINE)
    seeds = [int(seed or 0) for found_by, seed in rows if found_by.startswith("simulator")]
    tests = [found_by for found_by, _ in rows if not found_by.startswith("simulator")]
    for found_by in tests:
        file, test = re.fullmatch(r"`(.+\.py)::(\w+).*", found_by).groups()  # type: ignore[union-attr]
        assert test in names_defined_in(ROOT / "tests" / file), found_by
    average = sum(seeds) / len(seeds)
    counted = f"{len(rows)} bugs, {len(seeds)} found by the simulator after {average:.1f} seeds each, {len(tests)} by tests"
    assert counted in text, counted


@for_each(documents())
def test_documents_name_commands_that_exist(path: Path) -> None:
    named = set(re.findall(r"(?:^|[`$] ?)make ([a-z-]+)", text_of(path), flags=re.MULTILINE))
    assert named <= make_targets(), f"not in the Makefile: {sorted(named - make_targets())}"


@for_each(documents())
def test_python_in_documents_compiles(path: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", text_of(path), flags=re.MULTILINE | re.DOTALL):
        compile(block, relative(path), "exec")


@for_each(documents())
def test_links_in_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text_of(path)):
        assert (path.parent / target).exists(), target


def test_ci_runs_the_command_that_the_readme_shows() -> None:
    assert re.search(r"^make test$", text_of(ROOT / ".ci" / "run"), flags=re.MULTILINE)
    assert re.search(r"^(\$ )?make test\b", text_of(ROOT / "README.md"), flags=re.MULTILINE)


def test_every_make_target_is_explained() -> None:
    rules = set(re.findall(r"^([a-z-]+):(?!=)", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    assert rules == make_targets()


def test_each_kind_of_tests_is_where_make_looks_for_it() -> None:
    """Else a test of a slow kind would never run."""
    makefile = text_of(ROOT / "Makefile")
    places = dict(re.findall(r"^(OF_[A-Z]+) := (.*)$", makefile, flags=re.MULTILINE))
    commands = re.findall(r"\$\(PYTEST\) -q (.*) -m '?(\w+)", makefile)
    assert {kind for _, kind in commands} == {"sim", "process", "java", "spark", "s3", "clients", "cluster"}
    for told, kind in commands:
        directories = re.sub(r"\$\((OF_[A-Z]+)\)", lambda found: places[found[1]], told).split()
        here = [path for path in TEST_FILES if re.search(rf"\bmark\.{kind}\b", text_of(path))]
        lost = [relative(path) for path in here if not any(path.is_relative_to(ROOT / place) for place in directories)]
        assert here and not lost, f"make does not look at {lost} for {kind}"


def test_the_changelog_knows_the_version() -> None:
    version = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[?{re.escape(version)}\]?", text_of(ROOT / "CHANGELOG.md"), flags=re.MULTILINE)


def code_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of code with their numbers, without blanks around them: no import, docstring, comment or empty line."""
    left_out: set[int] = set()
    for node in ast.walk(tree_of(path)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, text_of(path).splitlines()), 1)
    return [(number, line) for number, line in lines if line and number not in left_out and not line.startswith("#")]


def repeats(places: dict[str, list[tuple[int, str]]], lines_max: int) -> list[str]:
    """Where more than `lines_max` lines of one place stand in another one, or in the same one further down, as well."""
    first: dict[tuple[str, ...], str] = {}
    hits: list[str] = []
    for name, lines in places.items():
        for at in range(len(lines) - lines_max):
            run = tuple(line for _, line in lines[at : at + lines_max + 1])
            here = f"{name}:{lines[at][0]}"
            if (known := first.setdefault(run, here)) != here:
                hits.append(f"{known} and {here}")
    return hits


def test_no_two_places_share_more_than_some_lines() -> None:
    told = repeats({relative(path): code_lines(path) for path in PRODUCT}, COMMON_LINES_MAX)
    assert not told, "\n".join(told)


def test_a_repeat_is_found_between_files_and_within_one() -> None:
    lines = list(enumerate("abcab", 1))
    assert repeats({"x": lines, "y": [(9, "b"), (10, "c")]}, 1) == ["x:1 and x:4", "x:2 and y:9"]
    assert repeats({"x": lines}, 2) == []
