"""Options as texts: known names only, looked up without regard to case, and read as numbers, flags, times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark_raftlake import errors
from pyspark_raftlake import option_names as names

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class RawOptions:
    """Options by lower-case name, all of them known; values without surrounding blanks."""

    def __init__(
        self, raw: Mapping[str, str], meaningful: Sequence[str], without_effect: Sequence[str], prefix: str | None = None
    ) -> None:
        """Any option is known whose name begins with `prefix`."""
        self._values = {name.lower(): value.strip() for name, value in raw.items()}
        known = (*meaningful, *without_effect, *names.CLIENT_SETTINGS, *names.CLIENT_SETTINGS_WITHOUT_EFFECT)
        known_lower = {name.lower() for name in known}
        for name in raw:
            lower = name.lower()
            if lower in names.REFUSED_CLIENT_SETTINGS:
                raise errors.unsupported_option(lower, names.REFUSED_CLIENT_SETTINGS[lower])
            if lower.startswith(names.REFUSED_PREFIXES):
                raise errors.unsupported_option(lower, names.NO_SECURITY)
            if lower not in known_lower and (prefix is None or not lower.startswith(prefix) or lower == prefix):
                raise errors.unknown_option(name, known)
        if (self.get(names.SECURITY_PROTOCOL) or "PLAINTEXT").upper() != "PLAINTEXT":
            raise errors.unsupported_option(names.SECURITY_PROTOCOL, names.NO_SECURITY)

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def given(self, candidates: Sequence[str]) -> list[str]:
        return [name for name in candidates if name.lower() in self._values]

    def behind(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """The options whose names begin with a prefix, without it, by name."""
        found = {name.removeprefix(prefix): value for name, value in self._values.items() if name.startswith(prefix)}
        return tuple(sorted(found.items()))

    def only_one(self, candidates: Sequence[str]) -> str | None:
        """The one option that is given of several that exclude one another."""
        given = self.given(candidates)
        if len(given) > 1:
            raise errors.exclusive_options(given)
        return given[0] if given else None

    def require(self, name: str) -> str:
        return self._values[name.lower()]

    def positive(self, name: str) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) == 0:
            raise errors.wrong_value(name, value, "a whole number above 0")
        return int(value)

    def count(self, name: str, default: int) -> int:
        """A whole number, 0 included."""
        value = self.get(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit():
            raise errors.wrong_value(name, value, "a whole number, 0 or above")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise errors.wrong_value(name, value, "true or false")
        return value.lower() == "true"

    def choice(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self._values.get(name.lower(), default)
        if value.lower() not in allowed:
            raise errors.wrong_value(name, value, f"one of {', '.join(allowed)}")
        return value.lower()

    def timestamp_ms(self, name: str) -> int:
        value = self.require(name)
        if not value.isascii() or not value.isdigit():
            raise errors.wrong_value(name, value, "milliseconds since 1970")
        return int(value)

    def duration_ms(self, name: str, default_ms: int) -> int:
        value = self.get(name)
        if value is None:
            return default_ms
        parts = _DURATION.fullmatch(value.lower())
        if parts is None:
            raise errors.wrong_value(name, value, "a duration such as 15m or 500ms")
        return int(parts[1]) * _UNIT_MS[parts[2] or "ms"]
