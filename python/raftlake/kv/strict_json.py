"""Reading JSON that may be anything: an object, or a refusal that says why, alike on all nodes and on every interpreter.

No bytes make `read_or_refuse` raise, and its result depends on them alone. Therefore no limit of the interpreter decides (depth
of nested JSON, digits of a number): limits of this module are reached first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from raftlake.errors import WireError

VALUE_BYTES_MAX = 64 * 1024
#: Opening brackets in one value, and so the depth of its nesting.
BRACKETS_MAX = 300
REASON_CHARACTERS_MAX = 300
INT_DIGITS_MAX = 19
#: What no text of a key's value may hold: control characters, ends of lines, what reverses the order of letters, halves of
#: pairs, and what will never be a character. Written out, because `isprintable` asks the Unicode version of its Python, and all
#: nodes have to decide alike.
_UNFIT = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF))
    + "]"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """An entry that means nothing, and why."""

    reason: str


_T = TypeVar("_T")


def read_or_refuse(read: Callable[[], _T]) -> _T | Refused:
    """What `read` returns, or why it raised KeyError (a field is missing), ValueError, TypeError or WireError."""
    try:
        return read()
    except KeyError as error:
        return Refused(f"{error.args[0]} is missing")
    except (ValueError, TypeError, WireError) as error:
        return Refused(str(error)[:REASON_CHARACTERS_MAX])


def json_object(value: bytes, bytes_max: int = VALUE_BYTES_MAX) -> dict[str, Any]:
    """The object that the bytes are as JSON, with whole numbers only. Raises ValueError."""
    if len(value) > bytes_max:
        raise ValueError(f"{len(value)} bytes, at most {bytes_max} are expected")
    if value.count(b"[") + value.count(b"{") > BRACKETS_MAX:
        raise ValueError(f"more than {BRACKETS_MAX} brackets")
    fields = json.loads(value.decode("utf-8"), parse_int=whole_number, parse_float=_no_number, parse_constant=_no_number)
    if type(fields) is not dict:
        raise ValueError("no JSON object")
    return fields


def whole_number(digits: str) -> int:
    """The number that decimal digits without a leading zero say. Raises ValueError."""
    if len(digits) > INT_DIGITS_MAX or not digits.isascii() or not digits.isdigit() or digits != str(int(digits)):
        raise ValueError(f"{digits[:INT_DIGITS_MAX]!r} is not a whole number")
    return int(digits)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:INT_DIGITS_MAX]} is not a whole number")


def integer(found: object, low: int, high: int) -> int:
    """`found` if it is a number in [low, high]. Raises ValueError."""
    # Python takes True for a number.
    if type(found) is not int or not low <= found <= high:
        raise ValueError(f"{str(found)[:INT_DIGITS_MAX]!r} is not a number from {low} to {high}")
    return found


def plain_text(found: object) -> str:
    """`found` if it is a text without control characters and the like. Raises ValueError."""
    if not isinstance(found, str) or _UNFIT.search(found):
        raise ValueError("a text is expected")
    return found


def items(found: object) -> list[Any]:
    """`found` if it is a list. Raises ValueError."""
    if not isinstance(found, list):
        raise ValueError("a list is expected")
    return found
