from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from conftest import needs_lab
from graphcal import CALIBRATORS, SCAR, Outputs
from graphcal.core import Calibration, FinalLayer
from graphcal.graphs import fingerprint
from small_outputs import SMALL, model_outputs, quick


def logits_for(graph: Data, classes: int = 4, seed: int = 1) -> torch.Tensor:
    return torch.randn(graph.num_nodes, classes, generator=torch.Generator().manual_seed(seed))


def with_(graph: Data, **changes) -> Data:
    new = graph.clone()
    for key, value in changes.items():
        new[key] = value
    return new


def test_from_logits_takes_lists_and_arrays():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    out = Outputs.from_logits([[1, 2], [3, 4]], data, weight=[[1.0, 0.0], [1.0, 2.0]])
    assert out.final.gram.tolist() == [[1, 1], [1, 5]]
    assert out.final.bias.tolist() == [0, 0]


@pytest.mark.parametrize("form", ["tensor", "numpy", "numbers", "list", "numpy numbers", "bytes"])
@pytest.mark.parametrize(
    "name", ["ts", "scar", "graph-scaling-keep", "auto", "ets", pytest.param("cagcn", marks=needs_lab)]
)
def test_nodes_to_fit_on_come_in_any_form(graph, name, form):
    mask = graph.val_mask
    forms = {
        "tensor": mask,
        "numpy": mask.numpy(),
        "numbers": mask.nonzero().flatten(),
        "list": mask.tolist(),
        "numpy numbers": mask.nonzero().flatten().numpy(),
        "bytes": mask.to(torch.uint8),
    }
    out = Outputs.from_logits(logits_for(graph), graph, weight=torch.eye(4))
    recipe = quick(name, **SMALL)
    assert torch.equal(recipe.fit(out, on=forms[form])(out), recipe.fit(out, on=mask)(out))


def test_masks_and_labels_of_the_graph_come_in_any_form(graph):
    loose = with_(
        graph,
        train_mask=graph.train_mask.nonzero().flatten(),
        val_mask=graph.val_mask.numpy(),
        y=graph.y[:, None],
    )
    out = Outputs.from_logits(logits_for(graph), loose)
    for key in ("train_mask", "val_mask", "test_mask", "y"):
        assert torch.equal(out.graph[key], graph[key])
    assert loose.y.dim() == 2  # what was given is not changed
    assert Outputs.from_logits(logits_for(graph), graph).graph is graph


def test_half_precision_is_taken_in_single(graph):
    for dtype in (torch.bfloat16, torch.float16):
        assert Outputs.from_logits(logits_for(graph).to(dtype), graph).logits.dtype == torch.float32
        assert Outputs(logits_for(graph).to(dtype), graph).logits.dtype == torch.float32


@pytest.mark.parametrize("name", CALIBRATORS.builtin)
def test_a_calibration_says_what_it_was_fitted_on(name):
    out = model_outputs()
    out.graph.class_names = ["a", "b", "c", "d"]
    fitted = quick(name, **SMALL).fit(out, on=out.graph.val_mask)
    facts = fitted.fitted_on
    assert (facts["fitting_nodes"], facts["nodes"], facts["edges"]) == (60, 150, out.graph.edge_index.shape[1])
    assert facts["fingerprint"] == fingerprint(out.graph)
    assert facts["class_names"] == ["a", "b", "c", "d"]
    assert fitted.num_classes == 4


def test_classes_in_another_order_are_refused():
    out = model_outputs()
    out.graph.class_names = ["a", "b", "c", "d"]
    fitted = CALIBRATORS["ts"]().fit(out, on=out.graph.val_mask)
    with pytest.raises(ValueError, match=r"fitted on the classes \['a', 'b', 'c', 'd'\], in this order"):
        fitted(replace(out, graph=with_(out.graph, class_names=["b", "a", "c", "d"])))


class TestBadInput:
    def test_nan_logits_name_the_row(self, graph):
        z = logits_for(graph)
        z[7, 2] = float("nan")
        with pytest.raises(ValueError, match=r"not finite in 1 of 150 rows \(first: row 7"):
            Outputs.from_logits(z, graph)

    def test_probabilities(self, graph):
        with pytest.raises(ValueError, match="these are probabilities"):
            Outputs.from_logits(logits_for(graph).softmax(-1), graph)

    @pytest.mark.parametrize("bad", [4, -2, -1])
    def test_labels_out_of_range(self, graph, bad):
        y = graph.y.clone()
        node = int(graph.val_mask.nonzero()[0])
        y[node] = bad
        with pytest.raises(ValueError, match=rf"labels must be 0..3.*node {node} has {bad}"):
            Outputs.from_logits(logits_for(graph), with_(graph, y=y))

    def test_unlabelled_nodes_outside_the_masks_are_fine(self, graph):
        y, test = graph.y.clone(), graph.test_mask.clone()
        node = int(test.nonzero()[0])
        y[node], test[node] = -1, False
        Outputs.from_logits(logits_for(graph), with_(graph, y=y, test_mask=test))

    def test_mask_of_wrong_length(self, graph):
        with pytest.raises(ValueError, match="val_mask has 149 entries, but there are 150 nodes"):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask[1:]))

    def test_a_mask_that_is_neither_boolean_nor_node_numbers(self, graph):
        with pytest.raises(
            ValueError, match="val_mask must be a boolean mask with one entry per node, or node numbers"
        ):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask.float()))
        with pytest.raises(
            ValueError, match="names 148 nodes more than once: a mask of zeros and ones is given as mask.bool"
        ):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask.long()))
        with pytest.raises(ValueError, match=r"choose one of the splits, val_mask\[:, 0\]"):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask[:, None].repeat(1, 10)))
        with pytest.raises(ValueError, match="names nodes 150..150, but there are nodes 0..149"):
            CALIBRATORS["ts"]().fit(Outputs.from_logits(logits_for(graph), graph), on=[150])

    def test_overlapping_masks(self, graph):
        with pytest.raises(ValueError, match="train_mask and val_mask share"):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask | graph.train_mask))

    def test_row_count(self, graph):
        with pytest.raises(ValueError, match="logits have 149 rows, but the graph has 150 nodes"):
            Outputs.from_logits(logits_for(graph)[1:], graph)

    def test_edges_out_of_range(self, graph):
        with pytest.raises(ValueError, match="edge_index names nodes"):
            Outputs.from_logits(logits_for(graph), with_(graph, edge_index=graph.edge_index + 2))

    def test_weight_of_another_model(self, graph):
        with pytest.raises(ValueError, match="weights for 5 classes, but the logits have 4"):
            Outputs.from_logits(logits_for(graph), graph, weight=torch.ones(5, 3))

    def test_bias_alone(self, graph):
        with pytest.raises(ValueError, match="bias was given without weight"):
            Outputs.from_logits(logits_for(graph), graph, bias=torch.ones(4))

    @pytest.mark.parametrize("name", ["none", "ts", "scar", "graph-scaling-keep"])
    def test_fit_on_nothing_wrong_length_training_nodes(self, graph, name):
        out = Outputs.from_logits(logits_for(graph), graph, weight=torch.ones(4, 3))
        recipe = CALIBRATORS[name]()
        with pytest.raises(ValueError, match="selects no node"):
            recipe.fit(out, torch.zeros(150, dtype=torch.bool))
        with pytest.raises(ValueError, match="has 149 entries"):
            recipe.fit(out, graph.val_mask[1:])
        with pytest.raises(ValueError, match="with train_mask"):
            recipe.fit(out, graph.train_mask)

    def test_scar_without_a_final_layer(self, graph):
        with pytest.raises(ValueError, match="SCAR needs the final layer"):
            SCAR().fit(Outputs.from_logits(logits_for(graph), graph), graph.val_mask)

    def test_no_labels(self, graph):
        bare = Data(edge_index=graph.edge_index, num_nodes=150)
        with pytest.raises(ValueError, match="no labels"):
            CALIBRATORS["ts"]().fit(Outputs.from_logits(logits_for(graph), bare), graph.val_mask)


def test_final_layer_stacks_to_a_gram():
    layer = FinalLayer.from_weight(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([1.0, 2.0]))
    assert layer.gram.tolist() == [[5, 6], [6, 9]]
    with pytest.raises(ValueError, match="final layer must be"):
        FinalLayer.from_weight(torch.ones(2, 2), torch.ones(3))


def test_outputs_move_to_another_precision(graph):
    out = Outputs.from_logits(logits_for(graph), graph, weight=torch.ones(4, 3)).to(torch.float64)
    assert out.logits.dtype == out.final.gram.dtype == torch.float64


def test_calibration_state_is_its_constructors_arguments():
    class Shift(Calibration):
        def forward(self, out):
            return (out.logits + self.by).log_softmax(-1)

    shift = Shift(by=torch.ones(2), note="hello")
    assert shift.settings == {"note": "hello"}
    assert list(shift.state_dict()) == ["by"]
    assert repr(shift).splitlines() == [
        "Calibration:  Shift, any number of classes",
        "Reads:        logits",
        "Parameters:   by [1, 1]",
        "Note:         hello",
    ]
    assert "<td>hello</td>" in shift._repr_html_()


def test_logits_of_another_number_of_classes_are_refused():
    out = model_outputs()
    other = Outputs(out.logits[:, :-1], Data(edge_index=out.graph.edge_index, num_nodes=out.num_nodes))
    calibration = CALIBRATORS["ts"]().fit(out, on=out.graph.val_mask)
    with pytest.raises(ValueError, match=f"fitted on {out.num_classes} classes, the logits have {out.num_classes - 1}"):
        calibration(other)
    assert calibration(out).shape == out.logits.shape
    calibration.num_classes = None  # as of older files, which did not say
    assert calibration(other).shape == other.logits.shape
