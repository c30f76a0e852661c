"""The `raftlake` command, and `python -m raftlake` for where its script is not on the path."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name, and end the process with its exit code."""
    # kio describes itself to hypothesis where that is installed: as much work as all that a command imports else.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    try:
        from raftlake.cli.main import main as command

        command()
    except KeyboardInterrupt:
        # Ctrl-C while modules are loaded: 128 and the number of the signal, as a shell says it.
        sys.exit(130)


if __name__ == "__main__":
    main()
