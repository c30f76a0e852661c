"""Logging of a node: one line per event on standard error, `time level logger message key=value ...`.

`event()` is how the runtime logs: a short message, then facts as key=value, quoted when they hold blanks. A line never contains
a line break, so that a hostile client id cannot forge one.
"""

from __future__ import annotations

import logging
import sys
import time

_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"


def configure_logging(level: int = logging.INFO) -> None:
    """Send the records of every logger to standard error. Replaces what an earlier call set up."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def event(logger: logging.Logger, level: int, message: str, **facts: object) -> None:
    """One line: `message key=value ...`, in the order given."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", " ".join([message, *(f"{key}={quote(value)}" for key, value in facts.items())]))


def quote(value: object) -> str:
    """The text of a fact: as it is when it is one plain word, else as a quoted string with escapes."""
    text = str(value)
    return text if text and text.isprintable() and not any(c in text for c in " \"'=") else repr(text)
