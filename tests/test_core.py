import pytest
import torch
from torch_geometric.data import Data

from graphcal import CALIBRATORS, SCAR, Outputs
from graphcal.core import Calibration, FinalLayer


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

    def test_mask_of_indices(self, graph):
        with pytest.raises(ValueError, match="val_mask must be a boolean mask"):
            Outputs.from_logits(logits_for(graph), with_(graph, val_mask=graph.val_mask.nonzero().flatten()))

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

    @pytest.mark.parametrize("name", ["none", "ts", "scar", "graph-scar"])
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
    assert repr(shift) == "Shift(by=[1, 1], note='hello')"
