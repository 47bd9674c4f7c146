"""Pack a benchmark folder into one file, and measure it again from that file.

    graphcal bench archive FOLDER --publish results       # ARCHIVE.zip, its SHA-256, and NAME-tests.csv with all p-values
    graphcal bench audit ARCHIVE.zip --against results    # measure again; anything that differs is named

    ARCHIVE.zip     plans/NAME.json            which cells stand in which row and column
                    records/KEY.json           what was measured
                    records/KEY.safetensors    log-probabilities and labels of the test nodes

Only finished cells of the plans are packed. The same records give the same bytes: names are sorted, times are not kept.

The audit checks the scores in the records and NAME-runs.csv against the archived log-probabilities, and NAME-tests.csv: each
method against the row's best by ECE, NLL and Brier score, p-values corrected by Holm over all pairs of the row. Scores on other
nodes, and those that need the graph (worst slices), cannot be measured again.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphcal.files import atomic_file, sha256_of
from graphcal.lab.bench.comparisons import best_of
from graphcal.lab.bench.files import FIRST
from graphcal.lab.bench.records import Store
from graphcal.metrics.scores import score

MEMBER = re.compile(r"plans/[\w.-]+\.json|records/[0-9a-f]{20}\.(json|safetensors)")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip file can say


def write_archive(folder: Path, file: Path) -> str:
    """Pack the finished cells of every plan of a folder; gives the SHA-256 of the file."""
    plans = sorted((folder / "plans").glob("*.json"))
    if not plans:
        raise ValueError(f"{folder} holds no benchmark: `graphcal bench PRESET --out {folder}` starts one")
    store = Store(folder)
    planned = {key for plan in plans for key in json.loads(plan.read_text(encoding="utf-8"))["cells"]}
    keys = sorted(planned & store.finished())
    paths = [*plans, *(path for key in keys for path in (store.record_path(key), store.nodes_path(key)))]
    with atomic_file(file) as out, zipfile.ZipFile(out, "w") as archive:
        for path in paths:
            member = zipfile.ZipInfo(path.relative_to(folder).as_posix(), EPOCH)
            archive.writestr(member, path.read_bytes(), zipfile.ZIP_LZMA)
    return sha256_of(file)


def read_archive(file: Path, folder: Path) -> Store:
    """Unpack into an empty folder; a member that does not belong is refused."""
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if not MEMBER.fullmatch(name):
                raise ValueError(f"{file}: {name!r} does not belong in an archive of a benchmark")
        archive.extractall(folder)
    return Store(folder)


TESTED = ("ece", "nll", "brier")
HEADER = ("metric", "method", "best", "difference", "p")
ROUNDING = 2e-6  # printed with six digits, and measured on another machine
P_ROUNDING = 0.01  # p-values are counted over draws: a last digit elsewhere moves a few


@dataclass
class Audit:
    """Result of an audit: count of recomputed numbers and list of differences."""

    checked: int = 0
    wrong: list[str] = field(default_factory=list)

    def hold(self, what: str, printed: float | None, measured: float, within: float = ROUNDING) -> None:
        self.checked += 1
        if printed is None or not abs(printed - measured) <= within:
            self.wrong.append(f"{what}: {printed} is printed, {measured:.6f} comes out")


def audit(file: Path, against: Path) -> Audit:
    """Everything the archive can say about the tables in a folder."""
    result = Audit()
    with tempfile.TemporaryDirectory() as folder:
        store = read_archive(file, Path(folder))
        listed = against / "archives.sha256"
        digests = listed.read_text(encoding="utf-8").split() if listed.exists() else []
        result.checked += 1
        if sha256_of(file) not in digests:
            result.wrong.append(f"{file.name}: its SHA-256 is not in {listed}")
        for plan in plans_of(store):
            check_records(plan, store, result)
            check_runs(plan, store, against / f"{plan['preset']}-runs.csv", result)
            check_tests(plan, store, against / f"{plan['preset']}-tests.csv", result)
    return result


def plans_of(store: Store) -> list[Mapping[str, Any]]:
    return [json.loads(p.read_text(encoding="utf-8")) for p in sorted((store.folder / "plans").glob("*.json"))]


def complete_rows(
    plan: Mapping[str, Any], store: Store
) -> Iterator[tuple[Mapping[str, Any], dict[str, Sequence[str]]]]:
    """Each row with the methods that finished every run."""
    done = store.finished()
    for row in plan["rows"]:
        yield row["place"], {m: keys for m, keys in row["methods"].items() if done.issuperset(keys)}


def measured_again(store: Store, key: str) -> dict[str, float]:
    log_probs, y = store.nodes(key)
    scores = score(log_probs, y, int(store.record(key).spec["bins"]))
    return {name: getattr(scores, name) for name in FIRST}


def check_records(plan: Mapping[str, Any], store: Store, result: Audit) -> None:
    for key in sorted(store.finished() & set(plan["cells"])):
        again, printed = measured_again(store, key), store.record(key).result["test"]
        for name, value in again.items():
            if (
                name in printed and value == value
            ):  # scores that a later version added, and those of nothing, are not there
                result.hold(f"record {key}, {name}", printed[name], value)


def check_runs(plan: Mapping[str, Any], store: Store, file: Path, result: Audit) -> None:
    """Every line of NAME-runs.csv that the archive has."""
    if not file.exists():
        result.wrong.append(f"{file} is not there")
        return
    with file.open(encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    axes = list(lines[0])[: list(lines[0]).index("method")]
    printed = {(*(line[a] for a in axes), line["method"], line["split"], line["seed"]): line for line in lines}
    for axis_values, methods in complete_rows(plan, store):
        for method, keys in methods.items():
            for key in keys:
                split, seed = store.record(key).spec["run"]
                line = printed.get((*(str(axis_values[a]) for a in axes), method, str(split), str(seed)))
                if line is None:
                    result.wrong.append(
                        f"{file.name}: no line for {dict(axis_values)}, {method}, split {split}, seed {seed}"
                    )
                    continue
                again = measured_again(store, key)
                for name in (name for name in FIRST if name in line):
                    result.hold(
                        f"{file.name}: {dict(axis_values)}, {method}, seed {seed}, {name}",
                        float(line[name]),
                        again[name],
                    )


def paired_tests(plan: Mapping[str, Any], store: Store) -> list[dict[str, str]]:
    """Each method of each row against the row's best, by every tested metric; p-values corrected for all pairs."""
    lines = []
    for axis_values, methods in complete_rows(plan, store):
        for metric in TESTED if len(methods) > 1 else ():
            best, others = best_of(methods, store, metric)
            where = {axis: str(value) for axis, value in axis_values.items()}
            for method, gap in others.items():
                values = (metric, method, best, f"{gap.value:.6f}", f"{gap.p:.6f}")
                lines.append({**where, **dict(zip(HEADER, values))})
    return lines


def check_tests(plan: Mapping[str, Any], store: Store, file: Path, result: Audit) -> None:
    if not file.exists():
        return
    with file.open(encoding="utf-8") as stream:
        printed = {
            tuple(v for k, v in line.items() if k not in ("difference", "p")): line for line in csv.DictReader(stream)
        }
    for line in paired_tests(plan, store):
        name = tuple(v for k, v in line.items() if k not in ("difference", "p"))
        there = printed.get(name)
        for column, within in (("difference", ROUNDING), ("p", P_ROUNDING)):
            value = float(there[column]) if there else None
            result.hold(f"{file.name}: {', '.join(name)}, {column}", value, float(line[column]), within)


def csv_of_tests(plan: Mapping[str, Any], store: Store) -> str:
    """NAME-tests.csv; empty where no row has two methods."""
    lines, text = paired_tests(plan, store), io.StringIO()
    if not lines:
        return ""
    axes = [key for key in lines[0] if key not in HEADER]
    writer = csv.DictWriter(text, [*axes, *HEADER], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
