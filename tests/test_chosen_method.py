"""One method is chosen: the saved calibrator, the verdict, the map, the card and the terminal are of the same one."""

import json
import random

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import graphcal
import graphcal.results as results_module
import graphcal.study as study
from graphcal.calibrate_table import calibrate_files
from graphcal.cli import app
from graphcal.records import schema, validate
from graphcal.reports import model_card
from graphcal.tables.reading import read_table

FAST = ("ts", "vs", "ms", "histogram", "isotonic", "none")


def table_file(path, rows=260, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, classes))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = [rng.choice(classes, p=row) for row in p]
    scores = {f"logit_{c}": 2 * z[:, c] + c for c in range(classes)}
    pq.write_table(pa.table({"id": np.arange(rows), "label": y, **scores}), path)
    return path


def orders(count=50):
    rng = random.Random(0)
    return [rng.sample(FAST, rng.randint(1, len(FAST))) for _ in range(count)]


@pytest.mark.slow
def test_saved_class_equals_recommended_class_for_every_order(tmp_path, monkeypatch):
    """A measurement and a cross-validation of the same predictions are computed once for all orders."""
    measure, validate_method, done = study.evaluate, results_module.held_out, {}

    def evaluate(log_probs, *args, before=None, **options):
        key = (log_probs[0].numpy().tobytes(), before is None)
        if key not in done:
            done[key] = measure(log_probs, *args, before=before, draws=20, **options)
        return done[key]

    def held_out(out, recipe, on, folds):
        if repr(recipe) not in done:
            done[repr(recipe)] = validate_method(out, recipe, on, folds)
        return done[repr(recipe)]

    monkeypatch.setattr(study, "evaluate", evaluate)
    monkeypatch.setattr(results_module, "held_out", held_out)
    table = read_table(table_file(tmp_path / "p.parquet"), kind="logits")
    classes, chosen_methods = {}, set()
    for number, names in enumerate(orders()):
        results = calibrate_files(table, calibrators=names)
        folder = tmp_path / str(number)
        results.save(folder)
        record = json.loads((folder / "results.json").read_text())
        method = record["chosen_method"]
        chosen_methods.add(method)
        out = classes.setdefault(method, type(results.calibration))
        assert type(graphcal.restore(folder / "calibrator.safetensors")) is out is type(results.calibration)
        nll = record["choice"]["held_out_nll"]
        given = set(names) - {"none"}
        assert method in (given or {"none"}) or nll[method] == min(nll.values())
        title = record["methods"][method]["title"]
        assert title in model_card(folder).split("\n# ")[1].split("\n")[0]
        if method != "none":
            assert title in record["verdict"]
        assert dict(results.summary)["Chosen method"].startswith(f"{method} (")
    assert len(chosen_methods) > 2
    assert len(set(classes.values())) == len(classes)


def test_results_are_frozen():
    results = results_module.Results
    with pytest.raises(TypeError):
        results()
    assert results.__dataclass_params__.frozen


def test_the_files_match_their_schemas(tmp_path):
    """By our validator and by jsonschema; no entry at the top or of a method is left undescribed."""
    path, folder = table_file(tmp_path / "p.parquet", rows=400), tmp_path / "out"
    run = CliRunner().invoke
    done = run(app, ["calibrate", str(path), "--calibrator", "ts", "--out", str(folder), "--kind", "logits"])
    assert done.exit_code == 0, done.output
    done = run(app, ["score", str(folder), str(path), "--out", str(tmp_path / "scored")])
    assert done.exit_code == 0, done.output
    run(app, ["decide", str(folder), "--certify", "0.5", "--max-error", "0.3", "-o", str(tmp_path / "d.parquet")])
    files = {
        "results": folder / "results.json",
        "decision": tmp_path / "d.json",
        "score": tmp_path / "scored" / "_score.json",
    }
    records = {name: json.loads(file.read_text()) for name, file in files.items()}
    for name, args in {
        "check": [str(folder)],
        "watch": [str(folder), str(tmp_path / "scored"), "--decision", str(tmp_path / "d.json")],
        "plan": ["--max-error", "0.05"],
    }.items():
        records[name] = json.loads(run(app, ["--quiet", name, *args, "--json"]).stdout)
    for name, record in records.items():
        validate(record, name, name)
        jsonschema.Draft202012Validator(schema(name)).validate(record)
        assert set(record) <= set(schema(name)["properties"]), name
        assert isinstance(record["schema"], int)
    broken = {**json.loads(files["decision"].read_text()), "threshold": "high"}
    with pytest.raises(ValueError, match=r"d\.json: threshold must be a number; got 'high'"):
        validate(broken, "decision", "d.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema("decision"))
