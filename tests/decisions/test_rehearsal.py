import torch

from graphcal.decisions.rehearsal import rehearsal_sentence, rehearse


def honest(nodes):
    g = torch.Generator().manual_seed(0)
    conf = 1 - 0.5 * torch.rand(nodes, generator=g, dtype=torch.double) ** 3
    y = (torch.rand(nodes, generator=g, dtype=torch.double) > conf).long()
    return torch.stack([conf, 1 - conf], 1).log(), y


def test_half_of_the_nodes_at_most_500_certify_and_the_rest_is_decided():
    log_probs, y = honest(4000)
    nodes = torch.arange(4000) >= 1000
    found = rehearse(log_probs, y, nodes)
    assert found["labels"] == 500
    assert found["nodes"] == 2500
    assert found["guarantee"] is False  # these nodes have labels already
    assert 0 < found["errors"] <= found["errors_at_most"]
    assert rehearse(log_probs, y, nodes) == found
    assert rehearse(log_probs, y, nodes, seed=1) != found
    small = rehearse(log_probs, y, torch.arange(4000) < 600)
    assert small["labels"] == 300
    said = rehearsal_sentence("TS", found, "rows")
    share = f"{found['approved']:,} ({100 * found['approved'] / 2500:.0f} %)"
    assert said.startswith("Backtest with TS: of 3,000 labelled test rows, 500 drawn at random certify")
    assert f"{share} of the others would be decided with at most 5 % errors" in said
    assert f"{found['errors']:,} of them are in fact wrong" in said
    assert said.endswith("For unlabelled rows run: graphcal decide.")
    assert "guarantee" not in said


def test_where_nothing_is_decided_the_target_that_would_do_is_named():
    g = torch.Generator().manual_seed(0)
    conf = 0.8 + 0.05 * torch.rand(2000, generator=g, dtype=torch.double)
    y = (torch.rand(2000, generator=g, dtype=torch.double) > conf).long()
    found = rehearse(torch.stack([conf, 1 - conf], 1).log(), y, torch.ones(2000, dtype=torch.bool))
    assert found["approved"] == 0
    said = rehearsal_sentence("TS", found)
    target = next(t for t, n in zip(found["curve"]["targets"], found["curve"]["decided"]) if n)
    assert 0.1 < target < 0.3
    assert "none of the others would be decided with at most 5 % errors" in said
    assert f"with a target of {100 * target:g} %" in said
    assert "guarantee" not in said


def test_too_few_nodes_rehearse_nothing():
    log_probs, y = honest(100)
    assert rehearse(log_probs, y, torch.ones(100, dtype=torch.bool)) is None
    assert rehearse(log_probs, y, torch.zeros(100, dtype=torch.bool)) is None
