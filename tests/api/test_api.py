"""Fit and predict in one call: how names, presets and settings come together, and what is said when they do not."""

import json

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import shiftproof as sp
from shiftproof.api.predicting import write_predictions
from shiftproof.data import Dataset, DomainSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods import ERM, IRM, DataShape, Method, Network
from shiftproof.training import Weighted

QUICK = {"epochs": 1, "widths": (4,)}


@pytest.fixture(scope="module")
def bits() -> Dataset:
    return sp.load("two-bit:per_env=40")


@pytest.fixture(scope="module")
def graphs() -> Dataset:
    return sp.load("spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3")


class Own(Method):
    """A method of the user's, not registered."""

    def __init__(self, shape: DataShape, *, width: int = 3) -> None:
        super().__init__(shape)
        self.layers = nn.Sequential(nn.Linear(shape.in_shape[0], width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, batch):
        return self.layers(batch.x).squeeze(-1)

    def losses(self, batch):
        return {"task": nn.functional.binary_cross_entropy_with_logits(self(batch), batch.y.float())}


class OwnNetwork(nn.Module):
    out_channels = 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, batch):
        return batch.x * self.scale


def test_a_method_is_a_name_a_class_or_an_instance(bits):
    by_name = sp.fit("irm", bits, **QUICK)
    by_class = sp.fit(IRM, bits, **QUICK)
    assert by_name.metrics == by_class.metrics
    assert by_name.config == by_class.config
    torch.manual_seed(0)
    built = IRM(DataShape.of(bits), network=Network(widths=(4,)))
    by_instance = sp.fit(built, bits, epochs=1)
    assert by_instance.metrics == by_name.metrics
    assert by_instance.config["own_method"]
    assert by_instance.method is built


def test_graphs_can_be_handed_in_as_they_are():
    g = torch.Generator().manual_seed(0)
    graphs = [
        Data(x=torch.randn(3, 2, generator=g), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([i % 2]))
        for i in range(20)
    ]
    run = sp.fit("erm", graphs, epochs=1, hidden=4)
    assert run.metrics["test"]["samples"] == 2
    assert run.logits(sp.load(graphs).test).shape == (2, 2)
    assert sp.predict(run, graphs).logits.shape == (20, 2)


def test_settings_reach_whom_they_concern_and_the_preset_fills_the_rest():
    data = sp.load("extrapolation:train_size=60,val_size=20,test_size=20")
    run = sp.fit("irm", data, penalty=3.0, widths=(5,), epochs=1, l2=0.1)
    assert run.method.weights["irm"] == 3.0
    assert run.method.featurizer.out_channels == 5
    training = run.config["training"]
    assert (training["epochs"], training["l2"]) == (1, 0.1)
    assert (training["batch_size"], training["anneal_steps"], training["rescale"]) == (256, 1500, True)
    assert run.selection == "last"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epoch": 3}, "unknown setting 'epoch' of 'irm' on 'two-bit'; did you mean 'epochs'?"),
        ({"penalti": 3}, "unknown setting 'penalti' of 'irm' on 'two-bit'; did you mean 'penalty'?"),
        ({"lr": "fast"}, "option 'lr' of 'irm' takes float, not 'fast'"),
        ({"estimator": "ful"}, "option 'estimator' of 'irm' takes full or halves or cross, not 'ful'; did you mean"),
        ({"environments": "drawn"}, "option 'environments' of 'irm' takes auto or given or random, not 'drawn'"),
        ({"optimizer": "adams"}, "option 'optimizer' of 'irm' takes adam or sgd, not 'adams'; did you mean 'adam'?"),
        (
            {"selection": "test"},
            "option 'selection' of 'irm' takes auto or val or last or stopped or oracle, not 'test'",
        ),
        (
            {"featurizer": "rnn"},
            "unknown network 'rnn'; did you mean 'cnn'; those of plain tensors are cnn, linear, mlp, resnet18, resn",
        ),
        ({"metric": "acuracy"}, "unknown metric 'acuracy'; did you mean 'accuracy'?"),
        ({"metric": "pearson"}, "metric 'pearson' does not fit a binary task"),
        ({"track": ("tets",)}, "unknown split to track 'tets'; did you mean 'test'?"),
        ({"epochs": -1}, "'epochs' of 'irm' is a whole number from 0, not -1"),
        ({"batch_size": 0}, "'batch_size' of 'irm' is a whole number from 1 or none, not 0"),
        ({"evaluate_every": 0}, "'evaluate_every' of 'irm' is a whole number from 1, not 0"),
        ({"patience": 0}, "'patience' of 'irm' is a whole number from 1 or none, not 0"),
        ({"lr": -1.0}, "'lr' of 'irm' is a number from 0, not -1.0"),
        ({"weight_decay": float("nan")}, "'weight_decay' of 'irm' is a number from 0, not nan"),
        ({"weights": {"irn": 3.0}}, "unknown loss term 'irn'; did you mean 'irm'?"),
        ({"epochs": 1e23}, "'epochs' of 'irm' is a whole number from 0 (at most 2147483647), not 1e+23"),
        ({"seed": 2**64}, "'seed' of fit is a whole number from 0 to 9223372036854775807, not 18446744073709551616"),
        ({"device": "gpu"}, "'gpu' is not a device; 'cpu', 'cuda' and 'auto' are"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_no_folder_is_taken(bits, tmp_path, settings, said):
    with pytest.raises(ShiftproofError) as caught:
        sp.fit("irm", bits, out=tmp_path / "run", **{**QUICK, **settings})
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_settings_of_a_network_that_is_there_already_are_refused(bits):
    with pytest.raises(ShiftproofError, match="unknown setting 'widths' of 'erm' on 'two-bit'"):
        sp.fit(ERM(DataShape.of(bits)), bits, widths=(4,))
    with pytest.raises(ShiftproofError, match="unknown setting 'widths' of 'erm' on 'two-bit'"):
        sp.fit("erm", bits, network=OwnNetwork(), widths=(4,))
    with pytest.raises(ShiftproofError, match="leave 'network' out"):
        sp.fit(ERM(DataShape.of(bits)), bits, network=Network())


def test_a_network_of_your_own_is_trained_and_must_be_handed_in_to_load(bits, tmp_path):
    run = sp.fit("irm", bits, network=OwnNetwork(), epochs=2, out=tmp_path)
    assert not torch.equal(run.method.featurizer.scale, torch.ones(2))
    with pytest.raises(ShiftproofError, match="this run used a network of your own; hand one to"):
        sp.Run.load(tmp_path)
    again = sp.Run.load(tmp_path, method=IRM(DataShape.of(bits), network=OwnNetwork()))
    assert torch.equal(again.logits(bits.test), run.logits(bits.test))
    handed = sp.Run.load(tmp_path, network=OwnNetwork())
    assert torch.equal(handed.logits(bits.test), run.logits(bits.test))


def test_a_described_network_is_kept_with_the_run(bits, tmp_path):
    sp.fit("erm", bits, network=Network(widths=(3,)), epochs=1, out=tmp_path)
    assert sp.Run.load(tmp_path).method.featurizer.out_channels == 3


def test_a_method_of_your_own_takes_its_own_settings(bits, tmp_path):
    run = sp.fit(Own, bits, width=5, epochs=1, out=tmp_path)
    assert run.method.layers[0].out_features == 5
    with pytest.raises(ShiftproofError, match=r"method 'Own' is not registered; hand it to Run\.load"):
        sp.Run.load(tmp_path)
    again = sp.Run.load(tmp_path, method=Own(DataShape.of(bits), width=5))
    assert torch.equal(again.logits(bits.test), run.logits(bits.test))
    with pytest.raises(ShiftproofError, match="unknown setting 'conv' of 'Own' on 'two-bit'"):
        sp.fit(Own, bits, conv="gcn")


def test_a_balance_of_your_own_weighs_the_terms(bits):
    torch.manual_seed(0)
    light = sp.fit("irm", bits, balance=Weighted({"irm": 0.0}), **QUICK)
    assert light.metrics == sp.fit("irm", bits, penalty=0.0, **QUICK).metrics
    recorded = light.config["training"]
    assert (recorded["balance"], recorded["weights"], recorded["anneal_steps"]) == ("weighted", {"irm": 0.0}, 0)


def test_predictions_need_samples_of_the_kind_the_run_was_trained_on(bits, graphs):
    run = sp.fit("erm", bits, **QUICK)
    assert torch.equal(sp.predict(run, bits).logits, run.logits(bits.test))
    assert torch.equal(sp.predict(run, bits, split="train").logits, run.logits(bits.train))
    with pytest.raises(ShiftproofError, match=r"trained on tensors with features \(2,\), not graphs with \(4,\)"):
        sp.predict(run, graphs)
    with pytest.raises(ShiftproofError, match="unknown split 'tset' of 'two-bit'; did you mean 'test'"):
        sp.predict(run, bits, split="tset")


def test_a_run_with_edge_features_refuses_graphs_without(graphs):
    with_ones = sp.load("spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3,edge_ones=True")
    run = sp.fit("erm", with_ones, epochs=1, hidden=4)
    with pytest.raises(ShiftproofError, match="trained with 1 edge features, these graphs have None"):
        sp.predict(run, graphs)


def test_environments_that_are_asked_for_must_be_there(graphs):
    with pytest.raises(ShiftproofError, match="environments='given' needs a data set with environments"):
        sp.fit("irm", graphs.with_splits(train=sp.load(graphs).train), environments="given", epochs=1)


def test_written_predictions_can_be_read_by_anyone(tmp_path):
    y = torch.tensor([[0.0, float("nan")], [1.0, 0.0], [0.0, 1.0]])
    data = Dataset({"train": DomainSet(torch.randn(3, 2), y)}, name="many", task="multilabel", metric="roc_auc")
    run = sp.fit("erm", data, **QUICK)
    write_predictions(run, data, tmp_path / "p.json", split="train")

    def refuse(text: str):
        raise AssertionError(f"{text} is not JSON")

    rows = json.loads((tmp_path / "p.json").read_text(), parse_constant=refuse)
    assert [(row["label_0"], row["label_1"]) for row in rows] == [(0.0, None), (1.0, 0.0), (0.0, 1.0)]
    assert set(rows[0]) == {"index", "label_0", "label_1", "probability_0", "probability_1", "confidence", "problem"}
