"""What delta-rs writes to stderr by itself. For processes of ours alone: a program of somebody else sets the levels itself.

delta-rs reads the levels once, when it is imported.
"""

from __future__ import annotations

from collections.abc import MutableMapping

VARIABLE = "RUST_LOG"
#: Its own is `warn`. The search for credentials then tells each place that has none, in lines of a thousand letters; the error
#: that comes of it says the same in one.
LEVELS = "warn,aws_config=error"


def quiet(environ: MutableMapping[str, str]) -> None:
    """Let delta-rs tell what its errors do not. Nothing changes where the variable is set. Called before the import."""
    environ.setdefault(VARIABLE, LEVELS)
