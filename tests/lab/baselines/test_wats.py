"""The wavelets of WATS, and what it can see."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from conftest import random_graph
from graphcal.graphs import structure
from graphcal.lab.baselines import WATS
from graphcal.lab.baselines.wats import wavelets
from small_outputs import model_outputs


@pytest.fixture(scope="module")
def out():
    return model_outputs()


def test_wavelets_sum_to_the_heat_kernel(out):
    """With many terms the series is exp(-s L) itself, applied to log(1 + degree)."""
    facts = structure(out.graph)
    x = wavelets(facts, 30, 2.0, torch.double)
    a = facts.neighbours.to_dense().double()
    root = a.sum(1).clamp(min=1).rsqrt()
    laplacian = torch.eye(out.num_nodes, dtype=torch.double) - root[:, None] * a * root
    signal = a.sum(1).log1p()
    heat = torch.linalg.matrix_exp(-2.0 * laplacian) @ signal
    share = x.sum(-1)  # rows are divided by their l1 norm
    norm = torch.where(share != 0, heat / share, torch.ones_like(share))
    torch.testing.assert_close(share * norm, heat, atol=1e-9, rtol=1e-9)
    connected = signal > 0
    positive = norm[connected]  # l1 norms: the terms' absolute sum, so at least |heat|
    assert (positive >= heat[connected].abs() - 1e-9).all()
    few = wavelets(facts, 3, 2.0, torch.double)
    torch.testing.assert_close(few.abs().sum(-1)[connected], torch.ones(int(connected.sum()), dtype=torch.double))


def test_wats_tells_hubs_from_leaves():
    graph = random_graph(nodes=800, train=20, val=600)
    leaf = torch.arange(800)[torch.arange(800) % 8 > 0]
    rays = torch.stack([leaf, 8 * (leaf // 8)])  # a hundred stars of seven leaves
    graph.edge_index = torch.cat([rays, rays.flip(0)], 1)
    out = model_outputs(graph)
    hub = structure(graph).degree == 7
    truth = torch.where(hub, 3.0, 0.5)[:, None] * out.logits
    graph.y = torch.multinomial(truth.softmax(-1), 1, generator=torch.Generator().manual_seed(0)).squeeze(-1)
    temperature = WATS(lr=0.1, epochs=300, patience=300).fit(out, graph.val_mask).temperature(out)
    assert temperature[~hub].median() > 2 * temperature[hub].median()


def test_the_terms_of_wats_are_chebyshev_polynomials() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 0, 2], [1, 0, 2, 1, 3, 2, 0, 3, 2, 0]])
    graph = structure(Data(edge_index=edges, num_nodes=4))
    dense = np.zeros((4, 4))
    dense[edges[0], edges[1]] = 1.0
    degree = dense.sum(1)
    minus = -dense / np.sqrt(np.outer(degree, degree))
    terms = [np.log1p(degree)]
    terms.append(minus @ terms[0])
    terms.append(2 * minus @ terms[1] - terms[0])
    from scipy.special import ive

    weight = [ive(0, 0.7), -2 * ive(1, 0.7), 2 * ive(2, 0.7)]
    columns = np.stack([w * t for w, t in zip(weight, terms)], 1)
    expected = columns / np.abs(columns).sum(1, keepdims=True)
    torch.testing.assert_close(wavelets(graph, 2, 0.7, torch.double), torch.from_numpy(expected))
