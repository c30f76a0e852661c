"""Source as mypyc can compile it: dataclasses written out as plain classes, and names that C does not take.

mypyc leaves the constructor and the comparisons of a dataclass to the interpreter, and it does not cope with `slots=True`, with
`ClassVar`, or with a decorator of our own. Written out, all of them are compiled. An attribute gets an underscore in C, so
`_thread` would be a word of the language. A lambda as a default of a parameter gets a name, and a class says which attributes
it deletes. Only the copy that is compiled is changed; it behaves as the source does, which the comparison of traces and the
process tests prove.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

DECORATORS = ("dataclass", "value")
#: What `@value` stands for (`raftlake.raft.value`).
VALUE_OPTIONS = {"kw_only": True, "unsafe_hash": True}
#: A None that says nothing of the attribute it is assigned to: mypy takes `self.x = None` for the truth until the end of the
#: function, be there a call in between that sets it, and compiled code raises TypeError where that is not so.
NOTHING = "_written_out_none"
#: Attributes whose names with one more underscore are words of C, as gcc has them.
WORDS_OF_C = {"_alignof", "_asm", "_attribute", "_complex", "_const", "_extension", "_imag", "_inline", "_label", "_real",
              "_restrict", "_signed", "_thread", "_typeof", "_volatile"}  # fmt: skip
PRELUDE = f"""
from dataclasses import make_dataclass as _written_out_dataclass
from typing import Any as _WrittenOutAny


def {NOTHING}() -> _WrittenOutAny:
    return None


def _written_out_fields(cls: _WrittenOutAny, names: list[str]) -> None:
    # For `dataclasses.replace`.
    cls.__dataclass_fields__ = _written_out_dataclass("_Fields", names).__dataclass_fields__


def _written_out_made(cls: _WrittenOutAny, fields: dict[str, _WrittenOutAny]) -> _WrittenOutAny:
    return cls(**fields)

"""
ORDERINGS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Edit:
    """Text to put in place of what stands between two positions (line from 1, column in bytes)."""

    begin: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Field:
    name: str
    annotation: str
    default: str | None
    factory: str | None
    is_told: bool = True
    is_compared: bool = True

    @property
    def parameter(self) -> str:
        if self.factory is not None:
            return f"{self.name}: {self.annotation} | None = None"
        return f"{self.name}: {self.annotation}" + ("" if self.default is None else f" = {self.default}")

    @property
    def assignment(self) -> str:
        if self.factory is not None:
            return f"self.{self.name} = {self.factory}() if {self.name} is None else {self.name}"
        return f"self.{self.name} = {self.name}"


def written_out(text: str) -> str:
    """The source of a module without dataclasses, and without attributes that are words of C."""
    edits: list[Edit] = []
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            edits += _class_edits(text, node) + _deletable(text, node)
        elif _forgets_attribute(node):
            assert isinstance(node, ast.Assign)
            edits.append(_edit(node.value, f"{NOTHING}()"))
    defaults = _lambda_defaults(tree)
    if edits or defaults:
        after = (_after_future_import(tree), 0)
        hoisted = "".join(f"{_hoisted(node)} = {ast.unparse(node)}\n" for node in defaults)
        edits.append(Edit(after, after, PRELUDE + hoisted))
    edits += [_edit(node, _hoisted(node)) for node in defaults]
    edits += [_renamed(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in WORDS_OF_C]
    lines = [line.encode() for line in text.split("\n")]
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        (first, begin), (last, end) = edit.begin, edit.end
        lines[first - 1 : last] = (lines[first - 1][:begin] + edit.text.encode() + lines[last - 1][end:]).split(b"\n")
    return b"\n".join(lines).decode()


def _edit(node: ast.expr, text: str) -> Edit:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return Edit((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def _deletable(text: str, node: ast.ClassDef) -> list[Edit]:
    """mypyc wants to be told which attributes a `del self.attribute` takes away."""
    targets = [target for found in ast.walk(node) if isinstance(found, ast.Delete) for target in found.targets]
    names = sorted({target.attr for target in targets if isinstance(target, ast.Attribute) and _is_self(target.value)})
    if not names:
        return []
    end = _end(text, node)
    return [Edit(end, end, f"\n{' ' * (node.col_offset + 4)}__deletable__ = {names}")]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _end(text: str, node: ast.ClassDef) -> tuple[int, int]:
    """Behind the last line of a class."""
    last = node.body[-1]
    assert last.end_lineno is not None
    return (last.end_lineno, len(text.split("\n")[last.end_lineno - 1].encode()))


def _lambda_defaults(tree: ast.Module) -> list[ast.Lambda]:
    """Defaults of parameters: mypyc ends with an error of its own at a lambda there."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node for body in (tree.body, *(one.body for one in classes)) for node in body]
    arguments = [node.args for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    defaults = [node for one in arguments for node in (*one.defaults, *one.kw_defaults)]
    return [node for node in defaults if isinstance(node, ast.Lambda)]


def _hoisted(node: ast.Lambda) -> str:
    return f"_written_out_default_{node.lineno}_{node.col_offset}"


def _renamed(node: ast.Attribute) -> Edit:
    assert node.end_lineno is not None and node.end_col_offset is not None
    end = (node.end_lineno, node.end_col_offset)
    return Edit(end, end, "_")


def _forgets_attribute(node: ast.AST) -> bool:
    """`thing.attribute = None`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return False
    return node.value.value is None and all(isinstance(target, ast.Attribute) for target in node.targets)


def _after_future_import(tree: ast.Module) -> int:
    (future,) = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    return future.lineno + 1


def _class_edits(text: str, node: ast.ClassDef) -> list[Edit]:
    decorator = next((found for found in node.decorator_list if _name(found) in DECORATORS), None)
    if decorator is None:
        return []
    options: dict[str, Any] = dict(VALUE_OPTIONS) if _name(decorator) == "value" else {}
    if isinstance(decorator, ast.Call):
        options |= {str(word.arg): ast.literal_eval(word.value) for word in decorator.keywords}
    edits, fields, hoisted = [], [], ""
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or "ClassVar" in ast.unparse(statement.annotation):
            continue
        field = _field(statement)
        if field.default is not None and "lambda" in field.default:
            # mypyc has no lambda for a default.
            name = f"_{node.name}_{field.name}"
            hoisted += f"{name} = {field.default}\n"
            field = Field(field.name, field.annotation, name, None)
        fields.append(field)
        edits.append(_edit_field(statement, field))
    decorated = _edit(decorator, "")
    first, column = decorated.begin
    edits.append(Edit((first, column - 1), decorated.end, hoisted + "# Written out."))
    methods = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    end = _end(text, node)
    names = [field.name for field in fields]
    lines = [f"    {line}" for line in _methods(node.name, fields, options, methods)]
    lines.append(f"_written_out_fields({node.name}, {names})")
    edits.append(Edit(end, end, "".join("\n" + " " * node.col_offset + line for line in lines)))
    return edits


def _name(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.id if isinstance(called, ast.Name) else ""


def _field(statement: ast.AnnAssign) -> Field:
    assert isinstance(statement.target, ast.Name)
    words: dict[str | None, str] = {}
    if isinstance(statement.value, ast.Call) and _name(statement.value) == "field":
        words = {word.arg: ast.unparse(word.value) for word in statement.value.keywords}
        if not set(words) <= {"default", "default_factory", "repr", "compare"}:
            raise ValueError(f"line {statement.lineno}: not a field that can be written out: {ast.unparse(statement)}")
    elif statement.value is not None:
        words = {"default": ast.unparse(statement.value)}
    return Field(
        statement.target.id,
        ast.unparse(statement.annotation),
        words.get("default"),
        words.get("default_factory"),
        is_told=words.get("repr") != "False",
        is_compared=words.get("compare") != "False",
    )


def _edit_field(statement: ast.AnnAssign, field: Field) -> Edit:
    assert statement.end_lineno is not None and statement.end_col_offset is not None
    begin, end = (statement.lineno, statement.col_offset), (statement.end_lineno, statement.end_col_offset)
    return Edit(begin, end, f"{field.name}: {field.annotation}")


def _methods(name: str, fields: list[Field], options: dict[str, Any], methods: set[str]) -> list[str]:
    """The methods that `dataclass` would make."""
    by_name = "*, " if options.get("kw_only") and fields else ""
    parameters = ", ".join(["self", by_name + ", ".join(field.parameter for field in fields)] if fields else ["self"])
    lines = [f"def __init__({parameters}) -> None:", *(f"    {field.assignment}" for field in fields)]
    if "__post_init__" in methods:
        lines.append("    self.__post_init__()")
    if not fields:
        lines.append("    pass")
    compared = [field.name for field in fields if field.is_compared]
    mine, others = (f"({''.join(f'{whose}.{field}, ' for field in compared)})" for whose in ("self", "other"))
    refuse = [f"    if not isinstance(other, {name}):", "        return NotImplemented"]
    if options.get("eq", True):
        same = " and ".join(f"self.{field} == other.{field}" for field in compared) or "True"
        lines += ["def __eq__(self, other: object) -> bool:", *refuse, f"    return {same}"]
        if options.get("frozen") or options.get("unsafe_hash"):
            lines += ["def __hash__(self) -> int:", f"    return hash({mine})"]
    if options.get("order"):
        for word, sign in ORDERINGS.items():
            lines += [f"def __{word}__(self, other: object) -> bool:", *refuse, f"    return {mine} {sign} {others}"]
    # mypyc's classes cannot be pickled by themselves.
    given = ", ".join(f"{field.name!r}: self.{field.name}" for field in fields)
    lines += ["def __reduce__(self) -> _WrittenOutAny:", f"    return (_written_out_made, ({name}, {{{given}}}))"]
    if "__repr__" not in methods:
        told = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields if field.is_told)
        lines += ["def __repr__(self) -> str:", f'    return f"{name}({told})"']
    return lines
