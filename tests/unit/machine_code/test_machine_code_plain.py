"""Dataclasses written out behave as dataclasses do."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import pickle
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools.machine_code.plain import written_out

from raftlake.raft.value import value

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "raftlake"

SOURCE = '''"""Some – values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar


def none() -> None:
    return None


@dataclass(slots=True)
class Loose:
    """Says – something."""

    # Comments – stay.
    count: int
    name: str = "–"; size: int = 3  # and – this one
    seen: list[int] = field(default_factory=list)
    known: dict[int, str] = field(
        default_factory=dict,
    )

    def grow(self) -> None:
        """A method – as it was."""
        self.count += 1


@dataclass(frozen=True, slots=True, order=True)
class Ordered:
    first: int
    second: tuple[int, ...] = (1,
        2)


@value
class Named:
    kind: ClassVar[str] = "named"
    key: bytes
    #: Of the change.
    version: int = -1

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("no key")


@dataclass(slots=True, eq=False)
class Single:
    check: object = lambda seen: seen + 1


@value
class Empty:
    """Says nothing."""


@dataclass(frozen=True)
class Told:
    host: str

    def __str__(self) -> str:
        return self.host

    def __repr__(self) -> str:
        return f"<{self.host}>"


@dataclass(frozen=True)
class Secret:
    host: str
    password: str = field(default="–", repr=False)
    seen: list[int] = field(default_factory=list, compare=False)


def called(call: Callable[[], int] = lambda: 1, *, also: Callable[[], int] = lambda: 2) -> int:
    return call() + also()


class Holder:
    def __init__(self, call: Callable[[], int] = lambda: 3) -> None:
        self.called = call()
        self._thread = "a"
        self.request = "b"
        self.held: int | None = None

    def take(self, other: Holder) -> int | None:
        self.held = other.held = None
        held = None
        return held

    def end(self) -> str:
        del self.request
        return self._thread
'''


def module(name: str, text: str) -> ModuleType:
    made = sys.modules[name] = ModuleType(name)
    made.__dict__["value"] = value
    exec(compile(text, name, "exec", dont_inherit=True), made.__dict__)
    return made


PLAIN = written_out(SOURCE)
GIVEN, MADE = module("values_as_given", SOURCE), module("values_written_out", PLAIN)


def outcome(call: Any) -> Any:
    try:
        return call()
    except (TypeError, ValueError) as error:
        return type(error)


MAKERS = {
    "all given": lambda m: m.Loose(1, "a", 4, [1], {2: "b"}),
    "by keyword": lambda m: m.Loose(known={1: "a"}, count=2),
    "defaults": lambda m: m.Loose(1),
    "too few": lambda m: m.Loose(),
    "unknown": lambda m: m.Loose(1, colour=2),
    "no factory's value": lambda m: m.Loose(1, seen=[]),
    "ordered": lambda m: m.Ordered(1),
    "ordered, longer": lambda m: m.Ordered(1, (1, 2, 3)),
    "ordered, higher": lambda m: m.Ordered(2, ()),
    "named": lambda m: m.Named(key=b"a"),
    "named otherwise": lambda m: m.Named(key=b"a", version=7),
    "named by position": lambda m: m.Named(b"a"),
    "refused": lambda m: m.Named(key=b""),
    "empty": lambda m: m.Empty(),
    "empty by position": lambda m: m.Empty(1),
    "told": lambda m: m.Told("a"),
    "a secret": lambda m: m.Secret("a", "b"),
    "the same secret": lambda m: m.Secret("a", "b", [1]),
    "another secret": lambda m: m.Secret("a"),
    "replaced": lambda m: dataclasses.replace(m.Named(key=b"a"), version=3),
    "replaced by what is refused": lambda m: dataclasses.replace(m.Named(key=b"a"), key=b""),
    "replaced by the unknown": lambda m: dataclasses.replace(m.Ordered(1), third=3),
}


@pytest.mark.parametrize("name", MAKERS)
def test_values_are_made_and_told_alike(name: str) -> None:
    made, given = outcome(lambda: MAKERS[name](MADE)), outcome(lambda: MAKERS[name](GIVEN))
    if isinstance(given, type):
        assert made is given
    else:
        assert (repr(made), str(made)) == (repr(given), str(given))
        assert outcome(lambda: hash(made)) == outcome(lambda: hash(given))


@pytest.mark.parametrize("name", MAKERS)
def test_values_cross_processes_alike(name: str) -> None:
    given, made = outcome(lambda: MAKERS[name](GIVEN)), outcome(lambda: MAKERS[name](MADE))
    if not isinstance(given, type | GIVEN.Single):
        assert repr(pickle.loads(pickle.dumps(made))) == repr(given)
        assert pickle.loads(pickle.dumps(made)) == made


def test_values_compare_alike() -> None:
    makers = [make for make in MAKERS.values() if not isinstance(outcome(lambda make=make: make(GIVEN)), type)]
    for one, other in itertools.product(makers, makers):
        for compare in (
            lambda a, b: a == b,
            lambda a, b: a != b,
            lambda a, b: a < b,
            lambda a, b: a <= b,
            lambda a, b: a > b,
            lambda a, b: a >= b,
            lambda a, b: a == (1, (1, 2)),
        ):
            made = outcome(partial(compare, one(MADE), other(MADE)))
            assert made == outcome(partial(compare, one(GIVEN), other(GIVEN)))


def test_what_a_factory_makes_is_not_shared() -> None:
    one, other = MADE.Loose(1), MADE.Loose(1)
    one.seen.append(1)
    one.known[1] = "a"
    assert (other.seen, other.known) == ([], {})
    given: list[int] = []
    assert MADE.Loose(1, seen=given).seen is given


def test_what_is_no_field_stays() -> None:
    loose = MADE.Loose(1)
    loose.grow()
    assert loose.count == 2
    assert MADE.Named.kind == "named"
    assert MADE.Loose.__doc__ == "Says – something."
    assert MADE.Single().check(1) == 2
    assert MADE.Single() != MADE.Single()
    assert "# Comments – stay." in PLAIN
    assert "# and – this one" in PLAIN
    assert "    #: Of the change.\n" in PLAIN


def test_an_attribute_that_is_set_to_none_may_be_anything_behind_that() -> None:
    """mypy would take it for None until the end of the function, and compiled code would insist on that."""
    assert "self.held = other.held = _written_out_none()" in PLAIN
    assert "        held = None\n" in PLAIN
    holder, other = MADE.Holder(), MADE.Holder()
    holder.held = other.held = 1
    assert holder.take(other) is holder.held is other.held is None


def test_names_that_c_does_not_take_are_others() -> None:
    assert "self._thread_ = " in PLAIN
    assert "__deletable__ = ['request']" in PLAIN
    holder = MADE.Holder()
    assert holder.end() == "a"
    assert not hasattr(holder, "request")


def test_a_lambda_as_a_default_has_a_name() -> None:
    functions = [node for node in ast.walk(ast.parse(PLAIN)) if isinstance(node, ast.FunctionDef)]
    defaults = [default for node in functions for default in (*node.args.defaults, *node.args.kw_defaults)]
    assert not any(isinstance(default, ast.Lambda) for default in defaults)
    assert (MADE.called(), MADE.called(lambda: 5), MADE.called(also=lambda: 7), MADE.Holder().called) == (3, 7, 8, 3)


def test_a_field_with_words_of_its_own_is_refused() -> None:
    text = "from __future__ import annotations\n@dataclass\nclass A:\n    b: int = field(default=1, init=False)\n"
    with pytest.raises(ValueError, match=r"line 4: not a field that can be written out: b: int = field"):
        written_out(text)


def test_a_module_without_dataclasses_is_left_alone() -> None:
    text = '"""Nothing."""\n\nfrom __future__ import annotations\n\nA: int | None = None\n'
    assert written_out(text) == text


def test_no_dataclass_of_the_core_is_left() -> None:
    paths = sorted((PACKAGE / "raft").rglob("*.py"))
    decorated = 0
    for path in paths:
        text = path.read_text()
        decorated += text.count("\n@dataclass") + text.count("\n@value")
        classes = [node for node in ast.walk(ast.parse(written_out(text))) if isinstance(node, ast.ClassDef)]
        assert not any(node.decorator_list for node in classes), path
    assert decorated > 30
