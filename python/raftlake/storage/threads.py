"""Starting a thread where the process may have as many as it is allowed to have: the caller decides what happens instead."""

from __future__ import annotations

import threading
from collections.abc import Callable


def started(target: Callable[[], None], name: str) -> threading.Thread | None:
    """A daemon thread that runs `target`. None where the operating system gives the process no further thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
