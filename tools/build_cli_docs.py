"""Write docs/cli.md from the commands themselves: python tools/build_cli_docs.py"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer

from graphcal.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """# Command line

<!-- Written by tools/build_cli_docs.py from the commands. Change their help, not this page. -->

`graphcal COMMAND --help` shows the same in the terminal; `python -m graphcal` is the same program. Names are completed in your
shell after `graphcal --install-completion`. Commands that print numbers take `--json`. Exit codes: 0 done, 2 bad input or usage,
70 a fault of graphcal (with a traceback), 130 interrupted; `check`, `decide` and `watch` answer by codes of their own, which
their help lists. `NO_COLOR=1` is honoured.
"""


def page() -> str:
    group: Any = typer.main.get_command(app)
    names = group.list_commands(None)
    return "\n\n".join([HEAD.rstrip(), *(section(name, group.commands[name]) for name in names)]) + "\n"


def section(name: str, command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    head, _, rest = text.partition("\n\n")
    parts = [f"## {name}", f"```console\ngraphcal {name} {usage(command)}\n```", head.replace("\n", " ")]
    if rest.strip():
        parts.append(f"```text\n{rest.strip()}\n```")
    rows = [f"| {_name(one)} | {_help(one)} | {_default(one)} |" for one in command.params if one.name != "help"]
    return "\n\n".join([*parts, "\n".join(["| argument | what | default |", "|---|---|---|", *rows])])


def usage(command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    return " ".join([*(a.name.upper() if a.required else f"[{a.name.upper()}]" for a in arguments), "[OPTIONS]"])


def _name(one: Any) -> str:
    return f"`{one.name.upper()}`" if one.param_type_name == "argument" else f"`{max(one.opts, key=len)}`"


def _help(one: Any) -> str:
    return " ".join((one.help or "").split()).replace("|", "\\|")


def _default(one: Any) -> str:
    empty = one.default is None or one.default is False or one.default in ("", [])
    return "required" if one.required else "" if empty else f"`{one.default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
