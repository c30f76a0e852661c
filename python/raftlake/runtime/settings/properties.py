"""The java properties syntax of `node.properties`, read as `java.util.Properties.load` reads it, and written to be read so.

Owns: logical lines (a trailing backslash joins the next line, its leading blanks dropped), comments (`#`, `!`), the
separators `=`, `:` and blank, and the escapes (backslash t, n, r, f, or u with four hexadecimal digits; any other escaped
character stands for itself).
Knows no setting. Stricter than Java: a key may stand only once, and a broken escape is refused. Files are UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raftlake.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, source: str) -> dict[str, str]:
    """The keys and values of `text`; `source` names it in errors. Raises `ConfigError` with the line number."""
    values: dict[str, str] = {}
    for number, _, line in _logical_lines(text):
        where = f"{source}:{number}"
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], where)
        if not key:
            raise ConfigError(f"{where}: a line without a key: {line!r}; accepted is key=value")
        if key in values:
            raise ConfigError(f"{where}: {key} is set twice in this file; keep one of the two lines")
        values[key] = _unescape(line[value_start:], where)
    return values


def edit_properties(text: str, changes: Mapping[str, str | None]) -> str:
    """`text` with these values: a key keeps its place, a new one comes behind, and None takes one out. All other lines stay,
    comments too, and so does a line that has its value already. `text` must be one that `parse_properties` takes."""
    lines = text.splitlines()
    new = {key: value for key, value in changes.items() if value is not None}
    for first, last, line in reversed(list(_logical_lines(text))):
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], "")
        if key in changes and _unescape(line[value_start:], "") != changes[key]:
            value = changes[key]
            lines[first - 1 : last] = [] if value is None else format_properties({key: value}).splitlines()
        new.pop(key, None)
    if not new and lines == text.splitlines():
        return text
    if lines and _ends_in_escape(lines[-1]):
        lines.append("")  # What follows would be its continuation.
    return "".join(f"{line}\n" for line in lines) + format_properties(new)


def format_properties(values: Mapping[str, str]) -> str:
    """A file with these values, one line each, for names that need no escape."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in values.items())


def _escape(value: str) -> str:
    """What would end the line becomes \\u and four digits: more characters do for `splitlines` than for Java."""
    escaped = value.replace("\\", "\\\\")
    escaped = "".join(f"\\u{ord(end):04x}" if end.splitlines() == [""] else end for end in escaped)
    return "\\" + escaped if escaped[:1] in tuple(_BLANKS) else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Comment-free logical lines with the numbers of their first and their last natural line."""
    pending: str | None = None
    first = number = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            first = number
            if not line or line[0] in "#!":
                continue
        if _ends_in_escape(line):
            pending = (pending or "") + line[:-1]
            continue
        yield first, number, (pending or "") + line
        pending = None
    if pending is not None:
        yield first, number, pending


def _ends_in_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value starts."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key_end = min(position, len(line))
    value_start = key_end
    while value_start < len(line) and line[value_start] in _BLANKS:
        value_start += 1
    if value_start < len(line) and line[value_start] in "=:":
        value_start += 1
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
    return key_end, value_start


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escape = text[position]
        position += 1
        if escape != "u":
            out.append(_ESCAPES.get(escape, escape))
            continue
        digits = text[position : position + 4]
        if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise ConfigError(f"{where}: \\u{digits} is no character; accepted is \\u and four hexadecimal digits")
        out.append(chr(int(digits, 16)))
        position += 4
    return "".join(out)
