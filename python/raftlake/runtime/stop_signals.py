"""The signals that ask a process of ours to stop in good order."""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, which a closed terminal sends, unless the process was started with it ignored (nohup)."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT) if is_ignored else (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
