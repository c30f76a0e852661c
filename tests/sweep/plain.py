"""Dataclasses written out as plain classes: what mypyc turns into C.

mypyc leaves the constructor and the comparisons of a dataclass to the interpreter, and it does not cope with `slots=True`, with
`ClassVar`, or with a decorator of our own. Written out, all of them are compiled. Only the copy that is compiled is changed; it
behaves as the source does, which the comparison of traces proves for each build.
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
PRELUDE = f"""
from dataclasses import make_dataclass as _written_out_dataclass
from typing import Any as _WrittenOutAny


def {NOTHING}() -> _WrittenOutAny:
    return None


def _written_out_fields(cls: _WrittenOutAny, names: list[str]) -> None:
    # For `dataclasses.replace`.
    cls.__dataclass_fields__ = _written_out_dataclass("_Fields", names).__dataclass_fields__

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
    """The source of a module without dataclasses."""
    edits: list[Edit] = []
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            edits += _class_edits(text, node)
        elif _forgets_attribute(node):
            assert isinstance(node, ast.Assign)
            edits.append(_edit(node.value, f"{NOTHING}()"))
    if edits:
        after = (_after_future_import(tree), 0)
        edits.append(Edit(after, after, PRELUDE))
    lines = [line.encode() for line in text.split("\n")]
    for edit in sorted(edits, key=lambda edit: edit.begin, reverse=True):
        (first, begin), (last, end) = edit.begin, edit.end
        lines[first - 1 : last] = (lines[first - 1][:begin] + edit.text.encode() + lines[last - 1][end:]).split(b"\n")
    return b"\n".join(lines).decode()


def _edit(node: ast.expr, text: str) -> Edit:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return Edit((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


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
    last = node.body[-1]
    assert last.end_lineno is not None and last.end_col_offset is not None
    end = (last.end_lineno, len(text.split("\n")[last.end_lineno - 1].encode()))
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
    default = factory = None
    if isinstance(statement.value, ast.Call) and _name(statement.value) == "field":
        words = {word.arg: ast.unparse(word.value) for word in statement.value.keywords}
        if set(words) != {"default_factory"}:
            raise ValueError(f"line {statement.lineno}: not a field that can be written out: {ast.unparse(statement)}")
        factory = words["default_factory"]
    elif statement.value is not None:
        default = ast.unparse(statement.value)
    return Field(statement.target.id, ast.unparse(statement.annotation), default, factory)


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
    mine, others = (f"({''.join(f'{whose}.{field.name}, ' for field in fields)})" for whose in ("self", "other"))
    refuse = [f"    if not isinstance(other, {name}):", "        return NotImplemented"]
    if options.get("eq", True):
        same = " and ".join(f"self.{field.name} == other.{field.name}" for field in fields) or "True"
        lines += ["def __eq__(self, other: object) -> bool:", *refuse, f"    return {same}"]
        if options.get("frozen") or options.get("unsafe_hash"):
            lines += ["def __hash__(self) -> int:", f"    return hash({mine})"]
    if options.get("order"):
        for word, sign in ORDERINGS.items():
            lines += [f"def __{word}__(self, other: object) -> bool:", *refuse, f"    return {mine} {sign} {others}"]
    if "__repr__" not in methods:
        told = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields)
        lines += ["def __repr__(self) -> str:", f'    return f"{name}({told})"']
    return lines
