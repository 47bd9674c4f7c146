"""``graphcal bench``: a table or figure by preset, resumable, side by side with published numbers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from graphcal.cli.console import plain_console
from graphcal.lab.cli.arguments import complete_preset

if TYPE_CHECKING:
    from graphcal.lab.bench.session import Session


def bench(
    preset: str = typer.Argument(
        ...,
        autocompletion=complete_preset,
        help="A preset (`graphcal bench list`), a file of your own (mine.toml), or `status`, `archive`, `audit`, `pages`.",
    ),
    folder: Path = typer.Argument(
        None, help="With `status`, `archive` and `pages`: the folder. With `audit`: the archive."
    ),
    only: list[str] = typer.Option(
        [],
        metavar="AXIS=VALUE,...",
        help="Part of it: dataset=cora,citeseer or calibrator=ts (axes, method, calibrator, seed, split).",
    ),
    runs: int = typer.Option(None, min=1, metavar="N", help="Seeds or splits for each cell. Default: the preset's."),
    engine: str = typer.Option("process", metavar="NAME", help="process (a worker per core), serial, or ray."),
    workers: int = typer.Option(
        0, min=0, metavar="N", help="Workers of the process engine or of a local Ray. 0: one per core."
    ),
    address: str = typer.Option(None, metavar="ADDRESS", help="Address of a Ray cluster (with --engine ray)."),
    out: Path = typer.Option(
        Path("graphcal-bench"),
        metavar="FOLDER",
        help="Folder for records, models and tables. What is there is not done again.",
    ),
    resume: bool = typer.Option(
        True, metavar="", help="Keep what is finished; --no-resume begins anew in an empty folder."
    ),
    dry_run: bool = typer.Option(False, metavar="", help="Count the cells and estimate the time; compute nothing."),
    publish: Path = typer.Option(
        None,
        metavar="FOLDER",
        help="Also write the table here, with its command, time and machine. Rows that are there and not here stay.",
    ),
    against: Path = typer.Option(
        Path("results"), metavar="FOLDER", help="With `audit`: the folder of tables to hold the archive against."
    ),
) -> None:
    """Compute a benchmark table or figure beside the published numbers.

    graphcal bench list                                      # the presets
    graphcal bench table-gcn --only dataset=cora --runs 10
    graphcal bench table-gcn --dry-run
    graphcal bench status graphcal-bench
    graphcal bench archive graphcal-bench --publish results  # all predictions
    graphcal bench audit graphcal-bench/archive.zip          # every score again
    graphcal bench pages results                             # pages from CSV files

    Kill it at any moment and give the same command again: only the cells in flight are lost.
    """  # fmt: skip
    console = plain_console()
    if preset == "list":
        return _list(console)
    if preset == "status":
        return _status(folder or out, console)
    if preset == "archive":
        return _archive(folder or out, publish, console)
    if preset == "audit":
        return _audit(folder or out / "archive.zip", against, console)
    if preset == "pages":
        return _pages(folder or against, console)
    from graphcal.lab.bench.engines import engine_of
    from graphcal.lab.bench.session import Session

    executor = engine_of(engine, address, workers)
    session = Session.of(preset, out, ",".join(only), runs)
    if not resume and session.store.finished():
        raise ValueError(
            f"--no-resume: {out} already holds {len(session.store.finished())} finished cells; name another folder"
        )
    count = 1 if engine == "serial" else workers or _cores()
    if dry_run:
        return _estimate(session, count, console)
    for fault in session.quarantine_damaged().values():
        console.print(f"Damaged, computed again: {fault}", markup=False, highlight=False)
    session.remember()
    interrupted = _run(session, executor, count)
    parts = [f"graphcal bench {preset}", f"--only {','.join(only)}" if only else "", f"--runs {runs}" if runs else ""]
    _finish(session, publish, " ".join(filter(None, parts)), console)
    if interrupted:
        console.print("Interrupted. The same command goes on from here.")
        raise typer.Exit(130)
    if session.failed():
        raise typer.Exit(1)


def _cores() -> int:
    import os

    return os.cpu_count() or 1


def _list(console: Any) -> None:
    from graphcal.lab.bench.presets import preset_titles

    titles = preset_titles()
    if not titles:
        console.print(
            "No preset is installed. `graphcal bench FILE.toml` takes one of your own: see Bench in the documentation."
        )
        return
    width = max(map(len, titles))
    for name, title in titles.items():
        console.print(f"{name:{width}} {title}", highlight=False, soft_wrap=True, markup=False)


def _status(folder: Path, console: Any) -> None:
    from graphcal.lab.bench.session import status

    for state in status(folder):
        console.print(
            f"{state.preset}: {state.finished} of {state.cells} cells finished, {len(state.failed)} failed",
            markup=False,
        )
        for error in dict.fromkeys(state.failed.values()):
            console.print(f"  {error.splitlines()[0] if error else ''}", markup=False)


def _archive(folder: Path, publish: Path | None, console: Any) -> None:
    from graphcal.lab.bench.archive import write_archive
    from graphcal.lab.bench.publication import publish_archive
    from graphcal.lab.bench.records import Store

    file = folder / "archive.zip"
    digest = write_archive(folder, file)
    console.print(f"{file}: {file.stat().st_size / 2**20:.1f} MB, SHA-256 {digest}", highlight=False, soft_wrap=True)
    if publish is not None:
        for path in publish_archive(Store(folder), file, publish):
            console.print(str(path), highlight=False, markup=False)


def _audit(file: Path, against: Path, console: Any) -> None:
    from graphcal.lab.bench.archive import audit

    if not file.is_file():
        raise ValueError(f"{file} is no archive: `graphcal bench archive FOLDER` makes one")
    result = audit(file, against)
    console.print(f"{result.checked:,} numbers measured again, {len(result.wrong)} come out otherwise.")
    for line in result.wrong[:20]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if result.wrong:
        raise typer.Exit(1)


def _pages(folder: Path, console: Any) -> None:
    from graphcal.lab.bench.publication import write_pages

    for path in write_pages(folder):
        console.print(str(path), highlight=False, markup=False)


def _estimate(session: Session, workers: int, console: Any) -> None:
    from graphcal.lab.bench.records import jobs_of
    from graphcal.lab.bench.session import clock, guess

    todo, left = session.todo(), session.seconds_left()
    trainings = {group.key for cell in todo for group in cell.groups}
    new = [key for key in trainings if not session.store.cache_path(key).exists()]
    console.print(
        f"{session.preset.name}: {len(session.cells)} cells, {session.finished()} finished, {len(todo)} to do in "
        f"{len(jobs_of(todo))} jobs with {len(new)} trainings."
    )
    _unavailable(session, console)
    rough = " (a guess from the sizes of the graphs, better once a cell is finished)" if left is None else ""
    wall = clock((guess(todo, session.store) if left is None else left) / workers)
    console.print(f"Time on {workers} worker{'s' * (workers > 1)}: about {wall}{rough}")


def _unavailable(session: Session, console: Any) -> None:
    for name, why in session.unavailable.items():
        console.print(f"Not run: {name}. {session.preset.reasons.get(name, why.splitlines()[0])}", markup=False)


def _run(session: Session, engine: Any, workers: int) -> bool:
    """Compute what is left, showing how far it is; True when the user stopped it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from graphcal.lab.bench.session import clock

    console = plain_console(stderr=True)
    _unavailable(session, console)
    total, due = len(session.cells), [0.0]
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} cells")]
    columns += [TimeElapsedColumn(), TextColumn("{task.fields[left]}")]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(session.preset.name, total=total, completed=session.finished(), left="")

        def tick() -> None:
            began = time.monotonic()
            if began < due[0]:
                return
            left = session.seconds_left()
            failed = len(session.store.failed() & session.cells.keys())
            note = f"about {clock(None if left is None else left / workers)} left" + (
                f", {failed} failed" if failed else ""
            )
            bar.update(task, completed=session.finished(), left=note)
            now = time.monotonic()
            due[0] = now + max(1.0, 50 * (now - began))  # counting many thousand records must not slow the workers

        try:
            session.run(engine, tick)
        except KeyboardInterrupt:
            return True
        finally:
            bar.update(task, completed=session.finished(), left="")
    return False


def _finish(session: Session, publish: Path | None, command: str, console: Any) -> None:
    from graphcal.lab.bench.contents import agreement_words
    from graphcal.lab.bench.files import write_files
    from graphcal.lab.bench.publication import kept_rows
    from graphcal.lab.bench.publication import publish as publish_table

    table = session.table()
    written = write_files(table, session.store.folder)
    if publish is not None:
        kept = kept_rows(table, publish)
        written += publish_table(table, command, publish)
        if kept:
            rows = ", ".join(" ".join(map(str, row.axis_values.values())) for row in kept)
            console.print(f"Rows of {publish} that stay: {rows}", highlight=False, markup=False, soft_wrap=True)
    for path in written:
        console.print(str(path), highlight=False, markup=False)
    if words := agreement_words(table):
        console.print(words, highlight=False, soft_wrap=True)
    failed = session.failed()
    console.print(f"{session.finished()} of {len(session.cells)} cells finished, {len(failed)} failed.")
    for error in dict.fromkeys(failed.values()):
        console.print(f"  {error.splitlines()[0] if error else ''}", markup=False)
