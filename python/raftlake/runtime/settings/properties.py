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
    for number, line in _logical_lines(text):
        where = f"{source}:{number}"
        key_end, value_start = _split(line)
        key = _unescape(line[:key_end], where)
        if not key:
            raise ConfigError(f"{where}: a line without a key: {line!r}; accepted is key=value")
        if key in values:
            raise ConfigError(f"{where}: {key} is set twice in this file; keep one of the two lines")
        values[key] = _unescape(line[value_start:], where)
    return values


def format_properties(values: Mapping[str, str]) -> str:
    """A file with these values, one line each, for names that need no escape."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in values.items())


def _escape(value: str) -> str:
    """What would end the line becomes \\u and four digits: more characters do for `splitlines` than for Java."""
    escaped = value.replace("\\", "\\\\")
    escaped = "".join(f"\\u{ord(end):04x}" if end.splitlines() == [""] else end for end in escaped)
    return "\\" + escaped if escaped[:1] in tuple(_BLANKS) else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Comment-free logical lines with the number of their first natural line."""
    pending: str | None = None
    first = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            first = number
            if not line or line[0] in "#!":
                continue
        if _ends_in_escape(line):
            pending = (pending or "") + line[:-1]
            continue
        yield first, (pending or "") + line
        pending = None
    if pending is not None:
        yield first, pending


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
