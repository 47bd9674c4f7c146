"""A promise is checked once; a decision is printed, saved, loaded and applied to new rows."""

import json

import pytest
import torch

from graphcal.decisions import Decision, Promise, decide


def honest(nodes=4000, seed=0):
    g = torch.Generator().manual_seed(seed)
    conf = 1 - 0.5 * torch.rand(nodes, generator=g, dtype=torch.double) ** 3
    y = (torch.rand(nodes, generator=g, dtype=torch.double) > conf).long()
    return torch.stack([conf, 1 - conf], dim=1).log(), y, torch.arange(nodes) < 500


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"max_error": 5}, "max_error"),
        ({"max_error": 0.0}, "max_error"),
        ({"certainty": 0.4}, "certainty"),
        ({"certainty": 1.0}, "certainty"),
        ({"kind": "always"}, "pool, future, average"),
        ({"kind": "average", "stratified": True}, "simple random draw"),
    ],
)
def test_a_promise_that_cannot_be_made_is_refused(terms, message):
    with pytest.raises(ValueError, match=message):
        Promise(**terms)


@pytest.mark.parametrize(
    "terms", [{}, {"positive": "b", "names": ["a", "b"], "max_error": 0.6}, {"promise": "average"}]
)
def test_a_loaded_decision_approves_the_same_rows(terms, tmp_path):
    log_probs, y, certify = honest()
    decision = decide(log_probs, y, certify=certify, random_draw=True, **terms)
    again = Decision.load(decision.save(tmp_path / "decision.json"))
    assert again.to_dict() == decision.to_dict()
    assert again.sentence == decision.sentence
    assert str(again) == str(decision)
    new = honest(seed=1)[0]
    score = new.exp().max(1).values if decision.positive is None else new[:, decision.positive].exp()
    expected = score >= decision.threshold if decision.threshold is not None else torch.zeros(4000, dtype=torch.bool)
    assert torch.equal(again.apply(new), expected)
    assert torch.equal(again.apply(log_probs) & ~certify, decision.approved)


def test_apply_refuses_what_it_cannot_know(tmp_path):
    log_probs, y, certify = honest()
    held = torch.arange(4000) % 3 == 0
    decision = Decision.load(decide(log_probs, y, certify=certify, held=held).save(tmp_path / "d.json"))
    with pytest.raises(ValueError, match="held"):
        decision.apply(log_probs)
    assert not (decision.apply(log_probs, held) & held).any()
    with pytest.raises(ValueError, match="2 classes, got 3"):
        decision.apply(torch.zeros(4, 3).log_softmax(1), held[:4])


def test_nothing_is_approved_without_a_threshold():
    log_probs, y, _ = honest()
    decision = decide(log_probs, y, certify=torch.arange(4000) < 60)
    assert decision.threshold is None
    assert not decision.apply(log_probs).any()


@pytest.mark.parametrize("content", ["{}", "[]", '{"schema": 2}', "no json"])
def test_a_file_that_is_no_decision_is_named(content, tmp_path):
    (tmp_path / "d.json").write_text(content)
    with pytest.raises(ValueError, match=r"d\.json"):
        Decision.load(tmp_path / "d.json")


def test_a_decision_prints_short_lines_and_escaped_html():
    log_probs, y, certify = honest()
    names = ["<b>", "fine"]
    decision = decide(log_probs, y, certify=certify, positive="<b>", names=names, max_error=0.2)
    lines = str(decision).splitlines()
    assert 5 <= len(lines) <= 9
    assert all(len(line) <= 80 for line in lines)
    assert f"{decision.num_approved:,} of 3,500 nodes" in lines[0]
    assert "<b>" not in decision._repr_html_()
    assert "&lt;b&gt;" in decision._repr_html_()
    assert "guarantee" not in str(decision)
    assert json.dumps(decision.to_dict())
