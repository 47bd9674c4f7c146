import torch

import graphcal as gc
from graphcal.lab.engine.dropout import Dropout
from graphcal.lab.engine.receptive import full_graph
from graphcal.lab.engine.sampled_fields import SampledFields
from graphcal.lab.models import GCN, GraphSAGE, ModelConfig
from graphcal.lab.models.replicas import graph_input


def model_and_graph(backbone, data):
    config = ModelConfig(data.num_features, 16, data.num_classes, dropout=0.5, input_dropout=0.0, init="glorot")
    return backbone.build(config, [torch.Generator().manual_seed(0)]), graph_input(
        backbone, data.x, data.edge_index, 0.0
    )


def test_with_all_neighbours_the_seeds_have_the_outputs_of_the_whole_graph():
    data = gc.lab.synthetic(400, seed=0)
    seeds = torch.tensor([5, 3, 399, 17])
    for backbone in (GCN(), GCN(layers=3), GraphSAGE(), gc.lab.BACKBONES["gat"](), gc.lab.BACKBONES["mlp"]()):
        model, graph = model_and_graph(backbone, data)
        with torch.no_grad():
            whole = model(full_graph(graph, model.depth))[0]
            part = model(SampledFields(graph, (-1,) * model.depth).field(seeds, key=0))[0]
        torch.testing.assert_close(part, whole[seeds], rtol=1e-4, atol=1e-5)


def test_the_sampled_product_is_unbiased():
    """The mean over many samples of one hop is the product with the whole matrix: degrees are those of the whole graph."""
    data = gc.lab.synthetic(400, degree=20, seed=1)
    seeds = torch.arange(40)
    for backbone in (GCN(), GraphSAGE()):
        _, graph = model_and_graph(backbone, data)
        fields = SampledFields(graph, (4,))
        h = torch.randn(1, 400, 3, generator=torch.Generator().manual_seed(0))
        draws = [fields.field(seeds, key) for key in range(600)]
        mean = torch.stack([(f.hops[0] @ h[:, f.nodes[0]])[0] for f in draws]).mean(0)
        exact = torch.from_numpy(graph.operator[:40] @ h[0].numpy())
        assert (mean - exact).abs().max() < 0.15
        assert max(int(f.hops[0].offsets.diff().max()) for f in draws) <= 5  # four neighbours and itself


def test_a_node_is_computed_alike_in_every_batch_with_dropout_too():
    data = gc.lab.synthetic(400, degree=20, seed=2)
    model, graph = model_and_graph(GraphSAGE(), data)
    fields = SampledFields(graph, (3, 3))
    with torch.no_grad():
        together = model(fields.field(torch.arange(8), key=5), Dropout([1], 0))[0]
        alone = model(fields.field(torch.tensor([6]), key=5), Dropout([1], 0))[0]
    torch.testing.assert_close(alone[0], together[6], rtol=1e-4, atol=1e-5)
