"""The command line. A command is a few lines that call the library; torch is imported when a command runs."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
import typer.core

from graphcal import __version__
from graphcal.cli.alerts import alerts
from graphcal.cli.calibrate import calibrate
from graphcal.cli.check import check
from graphcal.cli.console import QUIET
from graphcal.cli.count import count
from graphcal.cli.decide import decide
from graphcal.cli.methods import methods
from graphcal.cli.plan import plan
from graphcal.cli.report import report
from graphcal.cli.score import score
from graphcal.cli.watch import watch
from graphcal.plugins import announced


class Commands(typer.core.TyperGroup):
    """The commands of this package; those of the laboratory and of plug-ins are imported when another name is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._import_the_rest()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            self._import_the_rest()
        return super().get_command(ctx, cmd_name)

    def _import_the_rest(self) -> None:
        rest = typer.Typer(pretty_exceptions_enable=False)
        points = [point for name, point in announced("command").items() if name not in self.commands]
        for point in points:
            panel = "Laboratory" if point.module.startswith("graphcal.lab.") else "Plug-ins"
            rest.command(point.name, rich_help_panel=panel)(point.load())
        if points:
            self.commands.update(typer.main.get_group(rest).commands)


app = typer.Typer(
    name="graphcal",
    cls=Commands,
    help="Honest confidence for graph neural networks: measure, calibrate, decide.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (calibrate, score, check, decide, alerts, count, plan, watch, report, methods):
    app.command()(command)


SOFTWARE_ERROR = 70  # EX_SOFTWARE of sysexits.h


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphcal {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    quiet: bool = typer.Option(
        False, "--quiet", "-q", metavar="", help="Print errors and JSON only (graphcal -q score ...)."
    ),
) -> None:
    before = QUIET.set(quiet)
    context.call_on_close(lambda: QUIET.reset(before))


def main() -> None:
    """The console entry point: bad input is one clear line and exit code 2, a fault of ours a traceback and 70."""
    try:
        app()
    except BrokenPipeError:  # whoever read our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (ValueError, OSError) as error:
        typer.secho(f"graphcal: {error}", fg="red", err=True)
        sys.exit(2)
    except Exception:  # exit codes 1 and 3 are answers of `check`, `decide` and `watch`
        traceback.print_exc()
        sys.exit(SOFTWARE_ERROR)
    except KeyboardInterrupt:
        typer.secho("graphcal: interrupted", fg="red", err=True)
        sys.exit(130)
