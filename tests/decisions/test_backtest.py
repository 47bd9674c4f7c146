import torch

from graphcal.decisions import backtest


def honest(nodes):
    g = torch.Generator().manual_seed(0)
    conf = 1 - 0.5 * torch.rand(nodes, generator=g, dtype=torch.double) ** 3
    y = (torch.rand(nodes, generator=g, dtype=torch.double) > conf).long()
    return torch.stack([conf, 1 - conf], 1).log(), y


def test_half_of_the_nodes_at_most_500_certify_and_the_rest_is_decided():
    log_probs, y = honest(4000)
    nodes = torch.arange(4000) >= 1000
    trial = backtest(log_probs, y, nodes)
    assert (trial.decision.labels, trial.decision.nodes) == (500, 2500)
    assert not trial.decision.guaranteed  # these nodes have labels already
    assert 0 < trial.errors <= trial.decision.errors_at_most
    assert trial.errors == int((y[trial.decision.approved] != 0).sum())
    assert backtest(log_probs, y, nodes).to_dict() == trial.to_dict()
    assert backtest(log_probs, y, nodes, seed=1).to_dict() != trial.to_dict()
    assert backtest(log_probs, y, torch.arange(4000) < 600).decision.labels == 300


def test_where_nothing_is_decided_the_target_that_would_do_is_named():
    g = torch.Generator().manual_seed(0)
    conf = 0.8 + 0.05 * torch.rand(2000, generator=g, dtype=torch.double)
    y = (torch.rand(2000, generator=g, dtype=torch.double) > conf).long()
    trial = backtest(torch.stack([conf, 1 - conf], 1).log(), y, torch.ones(2000, dtype=torch.bool))
    assert trial.decision.num_approved == 0
    target, count = trial.to_dict()["next_target"]
    assert 0.1 < target < 0.3
    assert (target, count) == next((t, n) for t, n in zip(trial.curve.targets, trial.curve.decided) if n)


def test_too_few_nodes_give_no_backtest():
    log_probs, y = honest(100)
    assert backtest(log_probs, y, torch.ones(100, dtype=torch.bool)) is None
    assert backtest(log_probs, y, torch.zeros(100, dtype=torch.bool)) is None
