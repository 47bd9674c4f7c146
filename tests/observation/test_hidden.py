"""The representation that enters the final linear map: the same when a model is observed, served, sampled and exported."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric.nn import GCNConv, MedianAggregation
from torch_geometric.nn.models import GCN, GraphSAGE

import graphcal
from conftest import needs_lab
from five_models import BINARY, FIVE, GRAPH, WIDTH, XY, Hetero, made
from graphcal.observation import logits_and_hidden, observe
from graphcal.observation.calls import Call, tensor_call
from user_models import HEADS, build


@pytest.mark.parametrize("name", FIVE)
def test_five_models_are_observed_in_at_most_two_passes(name):
    model, data, args, passes, count = made(name)
    out = observe(model, data)
    assert out.final is not None
    assert len(count) == passes
    torch.testing.assert_close(out.hidden, model.enters(*args).detach())
    assert len(count) == passes


@pytest.mark.parametrize("name", FIVE)
def test_serving_sees_what_was_observed(name):
    model, data, args, _, count = made(name)
    out = observe(model, data)
    count.clear()
    with torch.no_grad():
        seen = logits_and_hidden(model, Call(args, {}), node_type="paper" if name.startswith("Hetero") else None)
    assert torch.equal(seen.logits, out.logits)
    assert torch.equal(seen.hidden, out.hidden)
    assert len(count) == 1
    assert seen.why_not == ""


def test_the_example_of_the_readme_takes_two_passes():
    data, count = graphcal.example().graph, []
    model = GCN(data.num_features, 16, 2, data.num_classes)
    model.register_forward_pre_hook(lambda *_: count.append(1))
    assert observe(model, data).final is not None
    assert len(count) == 2


@pytest.mark.parametrize("name", HEADS)
def test_every_head_that_is_seen_takes_at_most_two_passes(name, recwarn):
    model, count = build(HEADS[name]), []
    model.register_forward_pre_hook(lambda *_: count.append(1))
    out = observe(model, GRAPH)
    if any("was not seen in one forward pass" in str(warning.message) for warning in recwarn):
        assert name == "BatchNorm at the end"
        assert f"found it in {len(count)}" in str(recwarn[0].message)
    else:
        assert len(count) <= 2
    observed = len(count)
    h = out.final_representation
    assert len(count) == observed if h is out.hidden else len(count) > observed


@pytest.mark.slow_cases("one logit", "forward(data)", "TransformerConv(beta)")
@pytest.mark.parametrize("name", ["SAGE", "forward(data)", "TransformerConv(beta)", "one logit"])
def test_an_exported_program_gives_the_same_representation(name):
    model, data, _, _, _ = made(name)
    args = (data.x, data.edge_index)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x, edge_index):
            seen = logits_and_hidden(self.model, tensor_call(self.model, x, edge_index), traced=True)
            return seen.logits, seen.hidden

    sizes = {"x": {0: torch.export.Dim.DYNAMIC}, "edge_index": {1: torch.export.Dim.DYNAMIC}}
    program = torch.export.export(Both().eval(), args, dynamic_shapes=sizes).module()
    x, edge_index = args[0][:100], torch.randint(100, (2, 300), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits, hidden = program(x, edge_index)
        expected = logits_and_hidden(model, tensor_call(model, x, edge_index))
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(hidden, expected.hidden, atol=1e-5, rtol=1e-5)


def test_a_heterogeneous_model_is_not_exported():
    with pytest.raises(ValueError, match=r"Hetero.forward\(x_dict, edge_index_dict\)"):
        tensor_call(Hetero(), *XY)


class SeedsOnly(nn.Module):
    def __init__(self, inner) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index, batch_size=None):
        return self.inner(x, edge_index)[:batch_size]


@needs_lab
@pytest.mark.parametrize("seeds_only", [False, True])
def test_a_sampled_batch_gives_the_rows_of_its_nodes(seeds_only):
    data = graphcal.lab.synthetic(600, degree=12, seed=0)
    torch.manual_seed(0)
    inner = GraphSAGE(data.num_features, 16, 2, data.num_classes).eval()
    model = SeedsOnly(inner) if seeds_only else inner
    whole = observe(inner, data)
    loader = graphcal.lab.NeighborSampler(data, (-1, -1), batch_size=100, shuffle=True)
    call = (lambda m, b: m(b.x, b.edge_index, b.batch_size)) if seeds_only else None
    parts = observe(model, loader=loader, call=call)
    torch.testing.assert_close(parts.hidden, whole.hidden, atol=1e-5, rtol=1e-4)
    batch = next(iter(loader))
    given = {"batch_size": batch.batch_size} if seeds_only else {}
    with torch.no_grad():
        seen = logits_and_hidden(model, Call((batch.x, batch.edge_index), given))
    seeds, hidden = batch.n_id[: batch.batch_size], seen.hidden_of(int(batch.num_nodes))
    assert len(hidden) == len(seen.logits)
    torch.testing.assert_close(hidden[: batch.batch_size], whole.hidden[seeds], atol=1e-5, rtol=1e-4)


def test_layer_by_layer_gives_the_same_representation(monkeypatch):
    monkeypatch.setattr("graphcal.observation.batches.EDGES", 100)
    model = build(HEADS["models.GCN"])
    torch.testing.assert_close(observe(model, GRAPH, layerwise=True).hidden, observe(model, GRAPH).hidden)


@pytest.mark.slow
def test_a_compiled_model_is_seen_uncompiled():
    model = build(HEADS["models.GCN"])
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        seen = logits_and_hidden(compiled, Call(XY, {}))
        blind = logits_and_hidden(compiled, Call(XY, {}), hidden=False)
    assert torch.equal(seen.hidden, observe(model, GRAPH).hidden)
    assert blind.hidden is None
    assert "compiled" in blind.why_not


def test_a_model_without_a_linear_map_says_why():
    class Mean(nn.Module):
        def forward(self, x, edge_index):
            return x[:, :4] * 2

    seen = logits_and_hidden(Mean(), Call(XY, {}))
    assert seen.hidden is None
    assert "no linear map" in seen.why_not


def test_a_normed_weight_is_seen_as_it_is_used():
    model = build(lambda: nn.Sequential(weight_norm(nn.Linear(10, 4))))
    out = observe(model, GRAPH, call=lambda m, data: m(data.x))
    torch.testing.assert_close(out.final.weight, model[0].weight.detach())
    assert torch.equal(out.hidden, GRAPH.x)


def test_one_logit_through_a_relu_is_not_taken_for_linear():
    class Relu(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(10, 1, bias=False)

        def forward(self, x, edge_index):
            return 5 * self.last(x).relu()

    with pytest.warns(UserWarning, match="no final layer was found"):
        assert observe(build(Relu), BINARY).final is None


def test_a_median_of_one_logit_is_not_taken_for_linear():
    class Median(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.middle = nn.Linear(10, 1, bias=False), MedianAggregation()

        def forward(self, x, edge_index):
            return self.middle(self.last(x)[edge_index[0]], edge_index[1], dim_size=len(x))

    with pytest.warns(UserWarning, match="no final layer was found"):
        assert observe(build(Median), BINARY).final is None


def test_functions_that_cannot_be_followed_are_proved_like_others():
    @torch.jit.script
    def spread(z: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(z).index_add(0, edge_index[1], z[edge_index[0]]) + 1.0

    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = GCNConv(10, WIDTH), nn.Linear(WIDTH, 4, bias=False)

        def forward(self, x, edge_index):
            return spread(self.last(self.first(x, edge_index).relu()), edge_index)

    model = build(Scripted)
    out = observe(model, GRAPH)
    assert torch.equal(out.final.weight, model.last.weight)
    torch.testing.assert_close(out.final.bias, torch.ones(4), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(out.hidden, model.first(*XY).relu().detach())


def test_a_representation_that_does_not_give_the_logits_is_not_returned():
    out = observe(build(HEADS["nn.Linear"]), GRAPH)
    assert out.final_representation is not None
    assert graphcal.Outputs(out.logits + torch.rand(150, 1), GRAPH, out.final, out.hidden).final_representation is None
