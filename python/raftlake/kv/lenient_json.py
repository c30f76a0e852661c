"""Reading JSON that anybody may have written into a key of users: what is missing or of another kind is empty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def facts_of(value: bytes | None) -> dict[str, Any]:
    """The members of an object; none where the value is no object."""
    try:
        facts = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def text_of(facts: Mapping[str, Any], name: str) -> str:
    """Without halves of characters: no output takes them. Empty where it is no text."""
    found = facts.get(name)
    return found.encode(errors="replace").decode() if isinstance(found, str) else ""


def number_of(facts: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A whole number of any size; true and false are none."""
    found = facts.get(name)
    return found if type(found) is int else default
