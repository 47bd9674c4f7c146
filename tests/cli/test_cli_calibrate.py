"""`graphcal calibrate` writes one method, whole, before it prints anything; what it prints is a backtest."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import graphcal
from graphcal.cli import app, main

FILES = ["calibrated.parquet", "calibrator.safetensors", "report.html", "results.json"]


def invoke(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "300"})
    return (2, str(done.exception)) if isinstance(done.exception, ValueError) else (done.exit_code, done.output)


def write_predictions(folder: Path, names: tuple[str, ...] = ("a", "b", "c"), rows: int = 1500) -> None:
    """Over-confident logits of ``rows`` ids, and labels of two thirds of them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, len(names), rows)
    z = rng.standard_normal((rows, len(names)))
    z[np.arange(rows), y] += 2.5
    ids = [f"n{k}" for k in range(rows)]
    scores = {f"logit_{name}": 2.0 * z[:, k] for k, name in enumerate(names)}
    pq.write_table(pa.table({"id": ids, **scores}), folder / "p.parquet")
    labelled = rows * 2 // 3
    pq.write_table(
        pa.table({"id": ids[:labelled], "label": [names[k] for k in y[:labelled]]}), folder / "labels.parquet"
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_predictions(folder)
    return folder


@pytest.fixture(scope="module")
def ts_folder(tables: Path) -> Path:
    code, text = invoke(
        "calibrate", tables / "p.parquet", "--labels", tables / "labels.parquet", "--calibrator", "ts", "--out", tables / "ts"
    )  # fmt: skip
    assert code == 0, text
    return tables / "ts"


@pytest.mark.parametrize("calibrators", ["ts,histogram", "histogram,ts"])
def test_the_saved_calibrator_and_the_written_predictions_are_of_the_recommended_method(
    calibrators: str, tables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, text = invoke(
        "calibrate", tables / "p.parquet", "--labels", tables / "labels.parquet", "--calibrator", calibrators, "--out", out
    )  # fmt: skip
    assert code == 0, text
    record = json.loads((out / "results.json").read_text())
    nll = record["choice"]["held_out_nll"]
    assert record["chosen_method"] == min(nll, key=nll.get) == "ts"
    assert re.search(rf"Chosen method: +{record['chosen_method']} ", text)
    assert type(graphcal.restore(out / "calibrator.safetensors")).__name__ == "Temperature"
    code, text = invoke("score", out, tables / "p.parquet", "--out", tmp_path / "scored")
    assert code == 0, text
    scored = pq.read_table(next((tmp_path / "scored").glob("*.parquet")))
    written = pq.read_table(out / "calibrated.parquet")
    columns = [name for name in scored.column_names if re.fullmatch("calibrated_[^_]*_?[abc]", name)]
    assert len(columns) == 3
    for name in columns:
        assert np.allclose(scored[name].to_numpy(), written[name].to_numpy(), atol=1e-6)


def test_a_backtest_is_never_called_a_guarantee(tables: Path, tmp_path: Path) -> None:
    code, text = invoke(
        "calibrate", tables / "p.parquet", "--labels", tables / "labels.parquet", "--calibrator", "ts", "--out", tmp_path / "o"
    )  # fmt: skip
    assert code == 0
    assert invoke("report", tmp_path / "o", "--card", "-o", tmp_path / "README.md")[0] == 0
    record = json.loads((tmp_path / "o" / "results.json").read_text())
    page, card = (tmp_path / "o" / "report.html").read_text(), (tmp_path / "README.md").read_text()
    for shown in (text, page, card):
        assert "guarantee" not in shown.lower()
        assert "backtest" in shown.lower()
    for shown in (page, card):
        assert "Backtest with Temperature scaling: of 500 labelled test rows, 250 drawn at random certify" in shown
        assert "For unlabelled rows run: graphcal decide" in shown
    assert record["decision"]["guarantee"] is False
    assert all(method["decision"]["guarantee"] is False for method in record["methods"].values())
    assert text.split("Next:")[1].split("\n\n")[0].split() == [
        "graphcal",
        "decide",
        str(tmp_path / "o"),
    ]  # some rows are unlabelled


@pytest.mark.parametrize("name", ["[/x]", "[red]", ":warning:"])
def test_ids_and_classes_that_look_like_markup_are_printed_as_they_are(name: str, tmp_path: Path) -> None:
    write_predictions(tmp_path, (name, "b", "c"), rows=900)
    labels = pq.read_table(tmp_path / "labels.parquet")
    extra = pa.table({"id": [name], "label": ["b"]})  # has no prediction, so it is named in a note
    pq.write_table(pa.concat_tables([labels, extra]), tmp_path / "labels.parquet")
    predictions = tmp_path / f"p{name.replace('/', '')}.parquet"
    (tmp_path / "p.parquet").rename(predictions)
    out = tmp_path / "out"
    code, text = invoke(
        "calibrate", predictions, "--labels", tmp_path / "labels.parquet", "--calibrator", "ts", "--out", out
    )
    assert code == 0, text
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert name in text
    assert predictions.name in text
    decisions = tmp_path / "d.parquet"
    code, text = invoke("decide", out, "--class", name, "--min-precision", "0.5", "-o", decisions)
    assert code in (0, 1, 3), text
    assert name in text
    assert decisions.is_file()
    code, text = invoke("watch", out, out / "calibrated.parquet")
    assert code in (0, 1, 3), text


def test_files_are_saved_before_anything_is_printed(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Console, "print", closed)
    out = tmp_path / "out"
    CliRunner().invoke(
        app,
        ["calibrate", str(tables / "p.parquet"), "--labels", str(tables / "labels.parquet"), "--calibrator", "ts",
         "--out", str(out)],
    )  # fmt: skip
    assert sorted(path.name for path in out.iterdir()) == FILES


class Killed(BaseException):
    """Stands for SIGKILL between two files."""


@pytest.mark.slow_cases("2", "3", "4", "0")
@pytest.mark.parametrize("replaced", range(5))
def test_a_run_killed_between_two_files_is_noticed(
    replaced: int, ts_folder: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of one method beside the files of another: `report`, `decide`, `score` and `watch` name the odd file."""
    out = tmp_path / "out"
    out.mkdir()
    for file in ts_folder.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    names: list[str] = []
    replace = os.replace

    def counted(source: Path, target: Path) -> None:
        if Path(target).parent == out and not Path(target).name.startswith("."):
            if len(names) == replaced:
                raise Killed
            names.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", counted)
    args = ["--labels", str(tables / "labels.parquet"), "--calibrator", "histogram", "--out", str(out)]
    with contextlib.suppress(Killed):
        CliRunner().invoke(app, ["calibrate", str(tables / "p.parquet"), *args])
    monkeypatch.undo()
    assert names == ["calibrator.safetensors", "calibrated.parquet", "report.html", "results.json"][:replaced]
    readers = {
        "report": ("report", out, "-o", tmp_path / "page.html"),
        "card": ("report", out, "--card", "-o", tmp_path / "README.md"),
        "decide": ("decide", out, "--max-error", "0.2", "-o", tmp_path / "d.parquet"),
        "check": ("check", out),
        "score": ("score", out, tables / "p.parquet", "--out", tmp_path / "scored"),
        "watch": ("watch", out, out / "calibrated.parquet"),
    }
    for name, command in readers.items():
        code, text = invoke(*command)
        if 0 < replaced < 4:
            assert code == 2, name
            assert f"{out / 'calibrator.safetensors'} does not belong to {out / 'results.json'}" in text, name
        else:
            assert "does not belong" not in text, name
            assert code in (0, 1, 3), (name, text)


def test_a_fault_of_ours_is_no_answer(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`decide` answers by exit codes 0, 1 and 3: an unexpected error after the work must have another one."""

    def broken(*_: object) -> None:
        raise KeyError("not foreseen")

    monkeypatch.setattr(sys.modules["graphcal.cli.decide"], "_show", broken)
    args = [
        "graphcal",
        "decide",
        tables / "p.parquet",
        "--labels",
        tables / "labels.parquet",
        "-o",
        tmp_path / "d.parquet",
    ]
    monkeypatch.setattr(sys, "argv", [str(arg) for arg in args])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 70
    assert "not foreseen" in capsys.readouterr().err
    assert (tmp_path / "d.parquet").is_file()


def test_only_one_place_makes_consoles() -> None:
    """A console that reads markup would read it in names from files."""
    folder = Path(graphcal.__file__).parent / "cli"
    makers = {path.name for path in folder.glob("*.py") if re.search(r"(?<!plain_)\bConsole\(", path.read_text())}
    assert makers == {"console.py"}
