"""The `raftlake` command: puts the commands together and turns errors into one line and an exit code.

0 only on success, 1 for an error (one line on stderr that names what is wrong), 2 for wrong usage, 3 where a change may have
been carried out (the line says what to look at), 130 after Ctrl-C, 141 where the reader of the output has gone (`| head`), as
for any command that SIGPIPE ends. The commands are in `node` (local, format, serve, dump), `topics` (topics, produce,
consume), `kv`, `tier`, `checkpoints`, `sinks`, `transactions`, `lag`, `voters`, `recover`, `spark` (spark-conf) and `quorum`
(describe); each imports what it needs when it runs, so that `--help` is instant and a client needs no node code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from raftlake.cli import checkpoints as cli_checkpoints
from raftlake.cli import kv as cli_kv
from raftlake.cli import lag as cli_lag
from raftlake.cli import node as cli_node
from raftlake.cli import quorum as cli_quorum
from raftlake.cli import recover as cli_recover
from raftlake.cli import sinks as cli_sinks
from raftlake.cli import spark as cli_spark
from raftlake.cli import tier as cli_tier
from raftlake.cli import topics as cli_topics
from raftlake.cli import transactions as cli_transactions
from raftlake.cli import voters as cli_voters
from raftlake.cli.output import note
from raftlake.cli.streams import EXIT_BROKEN_PIPE, OutputClosed, give_up, open_streams
from raftlake.errors import InvalidInput, RaftlakeError, UnknownOutcome, one_line

EXIT_UNKNOWN = 3

app = typer.Typer(
    name="raftlake",
    help="A small Raft quorum: Kafka-protocol logs, linearizable state, a Spark connector.",
    epilog=f"Exit codes: 0 success, 1 error, 2 wrong usage, {EXIT_UNKNOWN} the outcome of a change is not known.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("local")(cli_node.local)
app.command("format")(cli_node.format_)
app.command("serve")(cli_node.serve)
app.command("dump")(cli_node.dump)
app.command("recover")(cli_recover.recover)
app.command("describe")(cli_quorum.describe)
app.add_typer(cli_topics.app, name="topics")
app.add_typer(cli_voters.app, name="voters")
app.command("produce")(cli_topics.produce)
app.command("consume")(cli_topics.consume)
app.add_typer(cli_kv.app, name="kv")
app.add_typer(cli_tier.app, name="tier")
app.add_typer(cli_checkpoints.app, name="checkpoints")
app.add_typer(cli_sinks.app, name="sinks")
app.add_typer(cli_transactions.app, name="transactions")
app.add_typer(cli_lag.app, name="lag")
app.command("spark-conf")(cli_spark.spark_conf)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"raftlake {version('raftlake')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("quickstart")
def quickstart(
    data_dir: Annotated[Path | None, typer.Option(help="Keep the data here (default: a temporary folder).")] = None,
    rows: Annotated[int | None, typer.Option(help="Replay only so many records of the data set.")] = None,
    state: Annotated[
        bool, typer.Option("--state", help="The second tour: a query whose checkpoint and state are in the quorum.")
    ] = False,
) -> None:
    """The tour: a quorum, real data through Spark, a killed leader, and a check that nothing was lost."""
    from raftlake.quickstart.state_tour import StateTour
    from raftlake.quickstart.tour import run

    raise typer.Exit(run(data_dir=data_dir, rows=rows, kind=StateTour if state else None))


def main() -> NoReturn:
    """The entry point of the `raftlake` script."""
    open_streams()
    exit_code = run(app)
    try:
        sys.stdout.flush()
    except RaftlakeError as error:
        give_up(1)
        exit_code = exit_code or failed(error)
    sys.exit(exit_code)


def run(commands: typer.Typer) -> int:
    """The exit code of the command that the arguments name."""
    try:
        # Not standalone: typer would print wrong usage itself, in a box of five lines.
        return int(commands(prog_name="raftlake", standalone_mode=False) or 0)
    except TyperException as error:
        if usage := wrong_usage(error):
            note(f"raftlake: {usage}")
        return int(error.exit_code)
    except UnicodeEncodeError as error:
        # An argument may be any bytes. Names and ids are sent as UTF-8.
        return failed(InvalidInput(f"{error.object!r} is not valid Unicode text"))
    except RaftlakeError as error:
        return failed(error)


def failed(error: RaftlakeError) -> int:
    """The exit code of a command that ended with this error; says what it is."""
    if isinstance(error, OutputClosed):
        return EXIT_BROKEN_PIPE
    note(f"raftlake: {one_line(error)}")
    return EXIT_UNKNOWN if isinstance(error, UnknownOutcome) else 1


def wrong_usage(error: TyperException) -> str:
    """One line: what is wrong, and the command whose help says more. Empty where that help has been shown instead."""
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if not message or context is None:
        return message
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} Try '{context.command_path} --help'"
