"""The random numbers of dropout: the right generator, the right rate, and a mask that depends on nothing else."""

import pytest
import torch

from graphcal.lab.engine.layers import Dropout, kept_bytes, random_words, relu_dropout


def test_words_are_those_of_splitmix64():
    """The first outputs of the reference implementation started at 0."""
    words = random_words(torch.tensor([0]), torch.arange(1, 4))[0].tolist()
    assert [w % 2**64 for w in words] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("threshold", [1, 26, 127, 128, 129, 154, 205, 255])
def test_bytes_are_compared_eight_at_a_time(threshold):
    words = random_words(torch.tensor([7]), torch.arange(4096))
    assert torch.equal(kept_bytes(words, threshold).bool(), words.view(torch.uint8) >= threshold)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6, 0.8])
def test_rate_and_scale(p):
    mask = Dropout([0, 1], 3).mask(torch.arange(4000), 64, p, layer=1)  # (2, 4000, 64)
    rounded = round(256 * p) / 256
    assert mask.unique().tolist() == pytest.approx([0.0, 1 / (1 - rounded)])
    assert float((mask == 0).float().mean()) == pytest.approx(rounded, abs=4 * (0.25 / mask.numel()) ** 0.5)
    assert mask.mean(dim=(1, 2)).tolist() == pytest.approx([1, 1], abs=0.02)


def test_replicas_passes_layers_and_nodes_are_independent():
    nodes = torch.arange(2000)
    base = Dropout([0], 0).mask(nodes, 64, 0.5, layer=1)[0].flatten() - 1
    others = [
        Dropout([1], 0).mask(nodes, 64, 0.5, layer=1),
        Dropout([0], 1).mask(nodes, 64, 0.5, layer=1),
        Dropout([0], 0).mask(nodes, 64, 0.5, layer=2),
        Dropout([0], 0).mask(nodes + 2000, 64, 0.5, layer=1),
        Dropout([0], 0).mask(nodes, 64, 0.5, layer=1).roll(1, dims=2),
    ]
    for other in others:
        correlation = float((base * (other[0].flatten() - 1)).mean())
        assert abs(correlation) < 5 / base.numel() ** 0.5


def test_a_mask_does_not_depend_on_what_else_is_computed():
    whole = Dropout([4, 5, 6], 9).mask(torch.arange(100), 20, 0.3, layer=2)
    some = torch.tensor([7, 80, 3])
    assert torch.equal(Dropout([6], 9).mask(some, 20, 0.3, layer=2)[0], whole[2, some])


def test_relu_and_dropout_in_one_node():
    z, b = torch.randn(2, 30, 16, requires_grad=True), torch.randn(2, 1, 16, requires_grad=True)
    drop, nodes = Dropout([1, 2], 0), torch.arange(30)
    grad = torch.randn(2, 30, 16)
    relu_dropout(z, b, drop, nodes, 0.6, layer=1).backward(grad)
    mine = z.grad, b.grad
    z.grad = b.grad = None
    plain = drop((z + b).relu(), nodes, 0.6, layer=1)
    plain.backward(grad)
    assert torch.allclose(mine[0], z.grad, atol=1e-6)
    assert torch.allclose(mine[1], b.grad, atol=1e-5)
    assert torch.allclose(relu_dropout(z, b, drop, nodes, 0.6, layer=1), plain)
