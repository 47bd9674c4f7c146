"""Initial weights: the stated law, and a generator per replica."""

import pytest
import torch

from graphcal.engine.inits import INITS, init_param
from graphcal.plugins import UnknownName

IN, OUT = 50, 20
LAWS = {  # deviation of the weight; largest size of the weight and of the bias, None: no bound
    "uniform": (OUT**-0.5 / 3**0.5, OUT**-0.5, OUT**-0.5),
    "glorot": ((2 / (IN + OUT)) ** 0.5, (6 / (IN + OUT)) ** 0.5, 0.0),
    "linear": (IN**-0.5 / 3**0.5, IN**-0.5, IN**-0.5),
    "xavier-normal": (1.414 * (2 / (IN + OUT)) ** 0.5, None, IN**-0.5),
}


def drawn(name, shape, bias=False, seeds=(0,)):
    return init_param(shape, IN, OUT, [torch.Generator().manual_seed(s) for s in seeds], name, bias).detach()


@pytest.mark.parametrize("name", LAWS)
def test_the_law(name):
    deviation, bound, bias_bound = LAWS[name]
    weight, bias = drawn(name, (400, 200))[0], drawn(name, (1, 4000), bias=True)[0]
    assert float(weight.std()) == pytest.approx(deviation, rel=0.02)
    assert abs(float(weight.mean())) < 0.02 * deviation
    assert bound is None or float(weight.abs().max()) <= bound
    assert float(bias.abs().max()) <= bias_bound


@pytest.mark.parametrize("name", list(INITS))
def test_a_replica_depends_on_its_own_generator_only(name):
    three = drawn(name, (6, 5), seeds=(4, 5, 6))
    assert three.shape == (3, 6, 5)
    assert torch.equal(three[1], drawn(name, (6, 5), seeds=(5,))[0])
    assert not torch.equal(three[0], three[1])


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(UnknownName, match="unknown init 'he'; choose among uniform, glorot, linear, xavier-normal"):
        drawn("he", (2, 2))
