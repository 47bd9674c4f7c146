"""results.json is checked when it is read: its structure, and the files that belong to it."""

import copy
import json
import random

import pytest
from fuzz_inputs import broken_tree

from graphcal.files import sha256_of
from graphcal.records import read_results
from graphcal.reports import model_card, report
from sample_results import sample_results


@pytest.fixture(scope="module")
def small():
    """A record with everything in it and short lists, so that a random change meets an entry that is read."""
    record = copy.deepcopy(sample_results())
    record["methods"] = {name: record["methods"][name] for name in ("none", "scar")}
    for method in record["methods"].values():
        for key in ("changed", "slices"):
            method[key] = method.get(key, [])[:1]
        method["binnings"] = {method["bins"]: {"ece": 0.1}}
        curve = method["decision"]["curve"]
        method["decision"]["curve"] = {k: v[:3] if isinstance(v, list) else v for k, v in curve.items()}
        method["histogram"] = []
        for value in method.values():
            if isinstance(value, dict) and "values" in value:
                value["values"] = value["values"][:2]
    record["map"] |= {"data": "", "names": {}}
    return record


@pytest.mark.slow
def test_a_changed_record_is_shown_or_refused_by_the_name_of_its_file(small, tmp_path):
    """One to three places of the JSON are changed: page and card raise ValueError with the name of the file, or nothing."""
    path, rng, messages = tmp_path / "results.json", random.Random(0), []
    for number in range(900):
        path.write_text(json.dumps(broken_tree(small, rng)), encoding="utf-8")
        try:
            (report if number % 3 == 0 else model_card)(tmp_path)
        except ValueError as error:  # another class of error fails the test
            messages.append(str(error))
    assert 100 < len(messages) < 800  # the changes are felt, and most of the entries are optional
    assert all(message.startswith(str(path)) for message in messages)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["methods"]["scar"].update(ece="low"), r"methods\.scar\.ece must be a number.*got 'low'"),
        (lambda r: r["methods"]["scar"]["nll"].update(mean=[1]), r"methods\.scar\.nll must be a number"),
        (lambda r: r["methods"]["scar"].update(ece_interval=[0.1]), r"scar\.ece_interval must be a list of 2"),
        (lambda r: r["methods"]["scar"]["decision"].pop("labels"), r"decision\.labels must be a number; got nothing"),
        (lambda r: r["methods"]["scar"]["decision"]["curve"].update(total=0), r"curve\.total must be a count above 0"),
        (lambda r: r["methods"]["scar"].update(ece=10**400), r"methods\.scar\.ece must be a number"),
        (lambda r: r["nodes"].update(train="60"), r"nodes\.train must be a number; got '60'"),
        (lambda r: r.update(seeds=3), "seeds must be a list; got 3"),
        (lambda r: r.update(chosen_method="isotonic"), "chosen_method is 'isotonic', which is not among its methods"),
        (lambda r: r["map"].update(after="isotonic"), r"map\.after is 'isotonic', which is not among its methods"),
        (lambda r: r.update(schema=99), r"schema 99; this graphcal reads 3\. .*update graphcal"),
        (lambda r: r.update(dataset="\ud800"), "not results"),
    ],
)
def test_an_entry_of_the_wrong_type_is_named(change, message, small, tmp_path):
    record = copy.deepcopy(small)
    change(record)
    (tmp_path / "results.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=message) as refused:
        read_results(tmp_path)
    assert str(refused.value).startswith(str(tmp_path / "results.json"))


def test_the_files_of_a_folder_belong_to_its_results(small, tmp_path):
    for name in ("calibrator.safetensors", "calibrated.parquet"):
        (tmp_path / name).write_text(name)
    files = {name: sha256_of(tmp_path / name) for name in ("calibrator.safetensors", "calibrated.parquet")}
    (tmp_path / "results.json").write_text(json.dumps({**small, "files": files}))
    assert read_results(tmp_path)["files"] == files
    (tmp_path / "calibrated.parquet").unlink()  # results may travel without the others
    assert read_results(tmp_path)
    (tmp_path / "calibrator.safetensors").write_text("of another run")
    with pytest.raises(ValueError, match=r"calibrator\.safetensors does not belong to .*results\.json"):
        read_results(tmp_path / "results.json")


def test_a_name_outside_the_folder_is_not_opened(small, tmp_path):
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps({**small, "files": {"../secret": "0" * 64}}))
    assert read_results(folder)
