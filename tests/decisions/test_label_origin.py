"""Labels of known origin: a flagged random arm or inclusion probabilities carry the promise, whatever chose the other labels."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import graphcal
from decisions.label_policies import (
    KINDS,
    POLICIES,
    arm_breaks,
    broken,
    chances,
    flagged,
    simulated,
    weighted_breaks,
)
from decisions.simulated_draws import broken_at_most
from graphcal.cli import app
from graphcal.decisions import Decision
from graphcal.decisions.bounds import labels_for_power, most_errors, realised_certified
from graphcal.decisions.masks import NotARandomDraw
from graphcal.decisions.thresholds import certified_by_chance, certified_by_draw, nested_sets
from graphcal.records import validate

# Simulations


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_certificates_hold_for_every_policy(kind, policy):
    rows, draws = simulated(kind), 1000
    for share, decided in (
        arm_breaks(rows, policy, draws),
        weighted_breaks(rows, policy, draws),
        weighted_breaks(rows, policy, draws, arm=0.1),
    ):
        assert share <= broken_at_most(0.05, draws)
        assert decided > 0.01


@pytest.mark.parametrize(("kind", "policy"), [("over-confident", "easy first"), ("hard hubs", "regions")])
def test_a_sample_of_the_certificates_holds(kind, policy):
    rows = simulated(kind)
    for share, decided in (arm_breaks(rows, policy, 60), weighted_breaks(rows, policy, 60)):
        assert share <= broken_at_most(0.05, 60)
        assert decided > 0.01


def test_all_labels_together_break_where_the_arm_holds():
    """Easy rows were labelled first: read as one random draw, the labels promise too much."""
    rows, naive = simulated("hard hubs"), []
    for i in range(60):
        certify, others = flagged(rows, "easy first", 600, 300, np.random.default_rng([7, i]), from_all=True)
        naive.append(broken(rows, 0.1, 0.05, certify | others)[0])
    assert np.mean(naive) > 0.3
    assert arm_breaks(rows, "easy first", 60)[0] <= 0.05


@pytest.mark.parametrize(("max_error", "true_share"), [(0.1, 0.25), (0.05, 0.5), (0.02, 0.25), (0.1, 0.75)])
def test_planned_labels_reach_their_power(max_error, true_share):
    """In a large zone, n random labels certify in 80 % of draws, and n - 15 % in clearly fewer."""
    n, rng, K, draws = labels_for_power(max_error, true_share=true_share), np.random.default_rng(0), 10**6, 4000

    def power(labels):
        e = rng.hypergeometric(round(true_share * max_error * K), K - round(true_share * max_error * K), labels, draws)
        return realised_certified(e, np.full(draws, K), np.full(draws, labels), max_error, 0.05).mean()

    assert power(n) >= 0.8 - 3.5 * np.sqrt(0.16 / draws)
    assert power(round(0.85 * n)) < power(n) - 0.02


def test_an_arm_inside_the_zone_certifies_far_more_often():
    rng, inside, outside = np.random.default_rng(0), [], []
    for _ in range(100):
        wrong = rng.random(6000) < np.where(np.arange(6000) < 1500, 0.025, 0.4)
        zone = np.arange(6000) < 1500
        for frame, results in ((zone, inside), (np.ones(6000, bool), outside)):
            certify = np.zeros(6000, bool)
            certify[rng.choice(np.flatnonzero(frame), 400, replace=False)] = True
            certify &= zone
            K, k, e = (np.array([m.sum()]) for m in (zone, certify, certify & wrong))
            results.append(realised_certified(e, K, k, 0.05, 0.05)[0])
    assert np.mean(inside) > 0.6
    assert np.mean(outside) < 0.4  # a quarter of the labels fall into the zone


# The tests of one set


def test_the_arm_counts_errors_of_other_labels_as_seen():
    """U is about all K rows: 40 errors of other labels leave U - e - 40 for the rest."""
    e, K, k = np.array([2]), np.array([1000]), np.array([200])
    most = int(most_errors(e, K, k, 0.05)[0])
    rest = 1000 - 200 - 300
    for wrong in (0, 10, 25):
        limit = (most - 2 - wrong) / rest
        args = (e, K, k)
        assert realised_certified(*args, limit + 1e-6, 0.05, 300, wrong)[0]
        assert not realised_certified(*args, limit - 1.01 / rest, 0.05, 300, wrong)[0]


def test_the_arm_certifies_only_what_both_frames_certify():
    """Other labels all right: the frame of all rows is the stricter one. All wrong: the frame of the rest is."""
    conf, certify = np.full(1000, 0.9), np.arange(1000) < 200
    others = (np.arange(1000) >= 200) & (np.arange(1000) < 500)
    for others_wrong in (False, True):
        wrong = np.zeros(1000, bool)
        wrong[:8] = True
        wrong[others] = others_wrong
        sets = nested_sets(conf, wrong, certify, np.ones(1000, bool), others=others)
        e, K, k = sets.wrong[0], sets.nodes[0], sets.labelled[0]
        for r in np.linspace(0.01, 0.2, 60):
            both = certified_by_draw(sets, r, 0.05)
            assert both == realised_certified(e, K - 300, k, r, 0.05) & realised_certified(
                e, K, k, r, 0.05, 300, 300 * others_wrong
            )


def test_small_chances_certify_nothing_and_the_risk_is_shared():
    rows = simulated("fraud")
    chance = np.full(3000, 0.3) + 1e-4 * np.arange(3000) / 3000
    drawn = np.random.default_rng(0).random(3000) < chance
    every = np.ones(3000, bool)
    sets = nested_sets(rows.conf, rows.wrong, drawn, every, inclusion=chance)
    assert certified_by_chance(sets, 0.1, 0.05)[50:].all()
    chance[np.argmax(rows.conf)] = 0.049
    sets = nested_sets(rows.conf, rows.wrong, drawn, every, inclusion=chance)
    assert not certified_by_chance(sets, 0.1, 0.05).any()


# decide


def table(policy="easy first", seed=0, arm=400, nodes=4000, from_all=True):
    rows = simulated("hard hubs", nodes, seed)
    drawn, others = flagged(rows, policy, 800, arm, np.random.default_rng(seed), from_all)
    log_probs = torch.from_numpy(np.stack([rows.conf, 1 - rows.conf], 1)).log()
    y = torch.from_numpy(np.where(drawn | others, rows.wrong.astype(int), -1))
    return rows, log_probs, y, drawn, others


@pytest.mark.parametrize("from_all", [True, False])
@pytest.mark.parametrize("policy", ["easy first", "uncertain first"])
def test_selected_labels_are_refused_and_a_flagged_arm_is_not(policy, from_all):
    rows, log_probs, y, drawn, others = table(policy, from_all=from_all)
    with pytest.raises(NotARandomDraw, match="random_arm"):
        graphcal.decide(log_probs, y, certify=drawn | others, max_error=0.1, random_draw=True)
    decision = graphcal.decide(log_probs, y, certify=drawn | others, random_arm=drawn, max_error=0.1)
    assert decision.guaranteed
    assert (decision.labels, decision.others, decision.bound) == (400, int(others.sum()), "random arm")
    assert decision.num_approved > 300
    assert not (decision.approved | decision.review)[torch.from_numpy(drawn | others)].any()
    assert rows.wrong[decision.approved.numpy()].mean() <= 0.1


def test_a_false_arm_is_refused():
    _, log_probs, y, drawn, others = table("easy first")
    with pytest.raises(NotARandomDraw, match="random arm"):
        graphcal.decide(log_probs, y, certify=drawn | others, random_arm=others, max_error=0.1)


def test_labels_of_an_arm_decide_nothing_but_the_certificate():
    """Flipping labels beside the arm moves neither the arm nor who is labelled; flipping the arm's changes what is certified."""
    _, log_probs, y, drawn, others = table("uncertain first")
    all_wrong = torch.where(torch.from_numpy(drawn), 1, y)
    decision = graphcal.decide(log_probs, all_wrong, certify=drawn | others, random_arm=drawn, max_error=0.1)
    assert decision.num_approved == 0


@pytest.mark.parametrize("arm", [False, True])
def test_known_chances_carry_the_promise(arm):
    rows = simulated("hard hubs", 4000)
    chance = chances(rows, "easy first")
    rng = np.random.default_rng(3)
    labelled, drawn = rng.random(4000) < chance, rng.random(4000) < 0.05
    log_probs = torch.from_numpy(np.stack([rows.conf, 1 - rows.conf], 1)).log()
    y = torch.from_numpy(rows.wrong.astype(int))
    total = 1 - (1 - chance) * 0.95
    more = {"certify": labelled | drawn, "random_arm": drawn} if arm else {"certify": labelled}
    decision = graphcal.decide(log_probs, y, inclusion=total if arm else chance, max_error=0.1, **more)
    assert decision.guaranteed
    assert decision.bound in ("known chances", "random arm") if arm else decision.bound == "known chances"
    assert decision.num_approved > 500
    assert rows.wrong[decision.approved.numpy()].mean() <= 0.1
    with pytest.raises(NotARandomDraw, match="stated chances"):
        graphcal.decide(log_probs, y, certify=labelled, inclusion=chance[::-1].copy(), max_error=0.1)


def test_a_stated_policy_is_a_draw_in_strata():
    """All rows above a score and a tenth of the others: rows labelled for certain tell nothing about the rest."""
    rows = simulated("citation", 6000)
    chance = np.where(rows.conf < 0.6, 1.0, 0.1)
    labelled = np.random.default_rng(5).random(6000) < chance
    log_probs = torch.from_numpy(np.stack([rows.conf, 1 - rows.conf], 1)).log()
    y = torch.from_numpy(np.where(labelled, rows.wrong.astype(int), -1))
    decision = graphcal.decide(log_probs, y, certify=labelled, inclusion=chance, max_error=0.15)
    assert decision.labels == int((labelled & (chance < 1)).sum())
    assert decision.num_approved > 1000
    with pytest.raises(ValueError, match="inclusion probability 1"):
        graphcal.decide(log_probs, y, certify=labelled & (rows.conf > 0.5), inclusion=chance, max_error=0.15)


def test_origins_that_do_not_go_together_are_refused():
    _, log_probs, y, drawn, others = table()
    labelled, chance = drawn | others, np.full(4000, 0.3)
    for more, match in (
        ({"random_arm": drawn, "promise": "average"}, "on average"),
        ({"inclusion": chance, "promise": "future"}, "future"),
        ({"random_arm": drawn, "strata": np.zeros(4000)}, "strata"),
        ({"inclusion": chance - 0.3}, "above 0"),
    ):
        with pytest.raises(ValueError, match=match):
            graphcal.decide(log_probs, y, certify=labelled, **more)
    with pytest.raises(ValueError, match="label the rest of it"):
        graphcal.decide(log_probs, y, certify=others, random_arm=drawn)
    with pytest.raises(ValueError, match="needs labels"):
        graphcal.decide(log_probs, y)


def test_a_model_fits_on_other_labels_and_certifies_with_the_arm():
    out = graphcal.example(3000)
    data = out.graph
    g = torch.Generator().manual_seed(0)
    arm = data.test_mask & (torch.rand(3000, generator=g) < 0.3)
    decision = graphcal.decide(out, graphcal.TemperatureScaling(), random_arm=arm, max_error=0.2)
    fitted = graphcal.TemperatureScaling().fit(out, on=data.val_mask)
    again = graphcal.decide(out, fitted, certify=data.val_mask | arm, random_arm=arm, max_error=0.2)
    assert decision.others == int(data.val_mask.sum())
    assert decision.labels == int(arm.sum())
    assert torch.equal(decision.approved, again.approved)
    with pytest.raises(ValueError, match="two jobs"):
        graphcal.decide(out, fitted, random_arm=data.val_mask, fitted=data.val_mask, certify=data.val_mask)


def test_a_decision_by_an_arm_saves_and_loads(tmp_path):
    _, log_probs, y, drawn, others = table("hubs first")
    decision = graphcal.decide(log_probs, y, certify=drawn | others, random_arm=drawn, max_error=0.1)
    again = Decision.load(decision.save(tmp_path / "d.json"))
    assert (again.others, again.bound, again.promise) == (decision.others, "random arm", decision.promise)
    old = decision.to_dict()
    for key in ("others", "bound"):
        old.pop(key)
    for key in ("random_arm", "known_chances"):
        old["promise"].pop(key)
    assert Decision.from_dict(old).bound == "random draw"


# Command line


def run(*args):
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, done.output


def test_the_command_line_reads_the_flag_and_the_chances(tmp_path):
    rows, _, y, drawn, others = table("easy first")
    label = np.where(y.numpy() >= 0, y.numpy(), np.nan).astype(float)
    columns = {"label": label, "prob_0": rows.conf, "prob_1": 1 - rows.conf, "drawn": drawn}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    base = ("decide", tmp_path / "p.parquet", "--max-error", "0.1", "-o", tmp_path / "d.parquet", "--json")
    code, text = run(*base)
    assert code == 2
    assert "not drawn at random" in text
    code, text = run(*base, "--random-arm", "drawn")
    assert code == 0
    record = json.loads(text)
    assert record["guarantee"]
    assert (record["labels"], record["others"], record["bound"]) == (400, int(others.sum()), "random arm")
    assert record["promise"]["random_arm"]
    saved = json.loads((tmp_path / "d.json").read_text())
    validate(saved, "decision", "d.json")
    states = np.array(pq.read_table(tmp_path / "d.parquet")["decision"].to_pylist())
    assert (states[drawn | others] == "labelled").all()
    assert (states == "auto").sum() == record["approved"]
    code, text = run(*base, "--random-arm", "prob_0", "--budget", "10")
    assert code == 2


def test_a_plan_names_the_zone_and_its_labels_certify_it(tmp_path):
    rng = np.random.default_rng(0)
    conf = 1 - 0.5 * rng.beta(0.4, 2.0, 20_000)
    wrong = rng.random(20_000) > conf
    pq.write_table(pa.table({"prob_0": conf, "prob_1": 1 - conf}), tmp_path / "p.parquet")
    code, text = run("plan", tmp_path / "p.parquet", "--max-error", "0.05", "--json")
    assert code == 0
    for row in json.loads(text)["plan"]:
        zone = conf >= row["min_score"]
        assert zone.sum() == row["rows"]
        assert (1 - conf[zone]).mean() == pytest.approx(row["true_error"], rel=0.01)
        assert row["labels"] == labels_for_power(0.05, true_share=row["true_error"] / 0.05)
    row = json.loads(run("plan", tmp_path / "p.parquet", "--max-error", "0.05", "--true-error", "0.025", "--json")[1])
    (row,) = row["plan"]
    drawn = np.zeros(20_000, bool)
    drawn[rng.choice(np.flatnonzero(conf >= row["min_score"]), 2 * row["labels"], replace=False)] = True
    columns = {
        "label": np.where(drawn, wrong, np.nan).astype(float),
        "prob_0": conf,
        "prob_1": 1 - conf,
        "drawn": drawn,
    }
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    base = ("decide", tmp_path / "p.parquet", "--random-arm", "drawn", "-o", tmp_path / "d.parquet", "--json")
    assert run(*base)[0] == 2  # drawn in the zone, not from all rows
    code, text = run(*base, "--min-score", row["min_score"])
    assert code == 0
    assert json.loads(text)["approved"] == row["rows"] - drawn.sum()
