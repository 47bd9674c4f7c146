"""A table in a folder of results, set beside what stands there: a part adds its rows and takes none away.

    graphcal bench fair --only dataset=cora --publish results    # the rows of Cora; those of other graphs stay
    graphcal bench archive FOLDER --publish results              # p-values of the archive's rows, and its SHA-256
    graphcal bench pages results                                 # pages and figures anew, from the CSV files alone

A row that stands in the folder goes only for one with at least as many runs. The lines of a row that stays are the same in
every CSV file; the page is written anew from them, with the marks of NAME-tests.csv or the differences of NAME-against.csv.
Tables and lists can be put together so. A figure is published whole, and one that would lose a row is refused.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from graphcal.files import sha256_of, write_atomically
from graphcal.lab.bench import files
from graphcal.lab.bench.archive import csv_of_tests, plans_of
from graphcal.lab.bench.contents import axis_cells, table_blocks
from graphcal.lab.bench.document import Block, Command, Heading, markdown, paragraph
from graphcal.lab.bench.files import Place, parse_lines, place_of, read_lines, read_table
from graphcal.lab.bench.presets import preset_titles, read_preset
from graphcal.lab.bench.records import Store
from graphcal.lab.bench.release_pages import publish_releases
from graphcal.lab.bench.session import clock
from graphcal.lab.bench.tabulation import Row, Table

MADE = re.compile(r"^## How it was made\n\n(.+?)(?=\n\n## |\s*\Z)", re.MULTILINE | re.DOTALL)


def publish(table: Table, command: str, folder: Path) -> list[Path]:
    """The table for people, with the command that makes it, the time it took and the machine's shape; and its data."""
    if table.preset.kind == "releases":
        return publish_releases(table, _made(table, [], command, folder / f"{table.preset.name}.md"), folder)
    name, kept = table.preset.name, kept_rows(table, folder)
    whole = _put_together(table, kept)
    order, staying = _order(table), {_place(row) for row in kept}
    data = {f: _merged(folder / f, text, order, staying) for f, text in files.data_of(table).items()}
    if summary := files.csv_of_summary(whole):
        data[f"{name}-summary.csv"] = summary
    texts = {**_page(whole, _made(table, kept, command, folder / f"{name}.md")), **data}
    return [write_atomically(folder / file, text) for file, text in texts.items()]


def write_pages(folder: Path) -> list[Path]:
    """Write the page and the figure of every preset whose run files are in the folder anew, from these files.

    A page whose run files have other axes than the preset of today stays as it is.
    """
    heads = {name: read_lines(folder / f"{name}-runs.csv")[:1] for name in preset_titles()}
    names = [name for name, head in heads.items() if head and set(read_preset(name).axes) <= set(head[0])]
    texts = {file: text for name in names for file, text in page_of(folder, name).items()}
    return [write_atomically(folder / file, text) for file, text in texts.items()]


def page_of(folder: Path, name: str) -> dict[str, str]:
    """File name -> text, of the page of a preset and its figure, from the CSV files of a folder.

    Columns that the preset no longer has stay in the CSV files only.
    """
    return _page(read_table(folder, read_preset(name)), _made_before(folder / f"{name}.md"))


def _page(table: Table, how: Sequence[Block]) -> dict[str, str]:
    """File name -> text, of the page and its figure."""
    (title, *blocks), drawing = table_blocks(table), files.drawing_of(table)
    text = markdown([title, *drawing, *blocks, Heading(2, "How it was made"), *how])
    return {f"{table.preset.name}.md": text, **{figure.file: figure.svg for figure in drawing}}


def kept_rows(table: Table, folder: Path) -> list[Row]:
    """Rows that stand in the folder with more runs than here."""
    if table.preset.kind == "releases":  # lines are put together one by one
        return []
    preset, here = table.preset, {_place(row): row.runs for row in table.rows}
    kept = [row for row in read_table(folder, preset).rows if row.runs > here.get(_place(row), 0)]
    if not kept or preset.kind == "list" or (preset.kind == "table" and all(row.same_nodes for row in kept)):
        return kept
    why = f"a preset of the kind {preset.kind} is published whole"
    if preset.kind == "table":
        why = f"{preset.name}-tests.csv, which `graphcal bench archive` writes, does not say what their marks are"
    raise ValueError(
        f"{folder} has more runs of {preset.name} than are finished here ({', '.join(' '.join(_place(r)) for r in kept)}), and "
        f"{why}: nothing was written there. Finish these rows as well, or publish into another folder"
    )


def _place(row: Row) -> Place:
    return place_of(row.axis_values, list(row.axis_values))


def _order(table: Table) -> list[Place]:
    """All places of the preset."""
    return [tuple(map(str, values)) for values in itertools.product(*table.preset.axes.values())]


def _put_together(table: Table, kept: Sequence[Row]) -> Table:
    if not kept:
        return table
    rows = {_place(row): row for row in (*table.rows, *kept)}  # of the same place, the one that is kept
    together = tuple(rows[row_key] for row_key in _order(table) if row_key in rows)
    return Table(table.preset, together)


def _merged(file: Path, text: str, order: Sequence[Place], staying: Collection[Place]) -> str:
    """The new lines, and those of the file whose rows stay; row by row in this order. The axes are the first columns."""

    def row_key(line: dict[str, str]) -> Place:
        return tuple(line.values())[: len(order[0])]

    old = [line for line in read_lines(file) if row_key(line) in staying]
    if not old:
        return text
    new = [line for line in parse_lines(text) if row_key(line) not in staying]
    header = list((new or old)[0])
    lines = sorted([*old, *new], key=lambda line: order.index(row_key(line)))
    return files.csv_text(header, [[line.get(column, "") for column in header] for line in lines])


def _made(table: Table, kept: Sequence[Row], command: str, page: Path) -> list[Block]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = next((e.records[0].versions for row in table.rows for e in row.entries.values() if e.records), {})
    made = (
        f"Computing time: {clock(files.computing_seconds(table))} of one core. Machine: {os.cpu_count()} cores, "
        f"{memory:.0f} GB, {platform.machine()}, no GPU. "
        + ", ".join(f"{k} {v}" for k, v in versions.items())
        + _commit()
    )
    if not kept:
        return [Command(command), paragraph(made)]
    whole, staying = _put_together(table, kept), {_place(row) for row in kept}
    names = ", ".join(" ".join(axis_cells(whole, row)) for row in table.rows if row.runs and _place(row) not in staying)
    earlier = _made_before(page)
    if not names:  # nothing here is new
        return earlier
    before_that = paragraph("Earlier, the rows that are not named above:")
    return [Command(command), paragraph(f"Rows: {names}. {made}"), before_that, *earlier]


def _made_before(page: Path) -> list[Block]:
    """Read from an existing page how it was made."""
    before = MADE.search(page.read_text(encoding="utf-8")) if page.exists() else None
    return [
        Command(words.strip()) if words.startswith("    ") else paragraph(words)
        for words in (before[1].split("\n\n") if before else [])
    ]


def _commit() -> str:
    """The end of the sentence on versions: the commit of this code, where it is a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "."
    return f", commit {head.stdout.strip()}{' with changes' if changed.stdout else ''}."


def publish_archive(store: Store, file: Path, folder: Path) -> list[Path]:
    """NAME-tests.csv of every preset of a store that was packed into an archive, and the archive's line in archives.sha256.

    Rows that it does not have keep their lines, and the archives that have those rows theirs.
    """
    written, names = [], []
    for plan in plans_of(store):
        name, text = str(plan["preset"]), csv_of_tests(plan, store)
        axes, path = list(plan["rows"][0]["place"]), folder / f"{name}-tests.csv"
        here, there = (
            list(dict.fromkeys(place_of(line, axes) for line in lines))
            for lines in (parse_lines(text), read_lines(path))
        )
        published = [place_of(line, axes) for line in read_lines(folder / f"{name}-runs.csv")]
        staying = set(there) - set(here)
        if text:
            order = list(dict.fromkeys([*published, *there, *here]))
            written.append(write_atomically(path, _merged(path, text, order, staying)))
        names.append(f"{name}[{','.join(map('-'.join, here))}]" if staying else name)
    listed = folder / "archives.sha256"
    before = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    lines = _needed([*before, f"{sha256_of(file)}  {file.name}  {' '.join(names)}"], folder)
    return [*written, write_atomically(listed, "\n".join(lines) + "\n")]


def _needed(lines: Sequence[str], folder: Path) -> list[str]:
    """Archives, oldest first, that hold a row that no newer one has."""
    needed, newer = list[str](), set[tuple[str, str]]()
    for line in reversed(lines):
        rows = {row for entry in line.split()[2:] for row in _rows_of(entry, folder)}
        if rows - newer:
            needed.insert(0, line)
        newer |= rows
    return needed


def _rows_of(entry: str, folder: Path) -> set[tuple[str, str]]:
    """A preset by its name has all rows of its tests; one with rows behind it, ``fair[cora-20-gcn]``, has those."""
    name, _, rows = entry.rstrip("]").partition("[")
    if rows:
        return {(name, row) for row in rows.split(",")}
    lines = [list(line.items()) for line in read_lines(folder / f"{name}-tests.csv")]
    places = {tuple(itertools.takewhile(lambda column: column[0] != "metric", line)) for line in lines}
    return {(name, "-".join(value for _, value in row_key)) for row_key in places} or {(name, "")}
