import numpy as np
import torch

import graphcal
from graphcal.graphs import sparse_csr
from graphcal.observation.batches import GraphParts


def test_a_part_has_all_that_is_known_of_its_nodes_and_edges():
    data = graphcal.example(400).graph
    data.node_ids = np.arange(400) * 10
    data.edge_attr = torch.arange(data.num_edges)[:, None]
    nodes = torch.tensor([7, 3, *data.edge_index[:, 0].tolist()])
    part = GraphParts(data).among(nodes)
    assert torch.equal(part.y, data.y[nodes])
    assert part.node_ids.tolist() == (10 * nodes).tolist()
    assert torch.equal(nodes[part.edge_index], data.edge_index[:, part.edge_attr[:, 0]])
    among = torch.isin(data.edge_index, nodes).all(0)
    assert part.num_edges == int(among.sum()) > 0
    assert part.num_classes == data.num_classes


def test_sparse_features_come_out_as_rows():
    data = graphcal.example(400).graph
    plain = data.x
    with sparse_csr():
        data.x = data.x.to_sparse_csr()
    nodes = torch.tensor([5, 2])
    assert torch.equal(GraphParts(data).among(nodes).x, plain[nodes])
