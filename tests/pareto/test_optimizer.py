"""PAIR in a loop of one's own, and inside the trainer."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import shiftproof as sp
from shiftproof.api.fitting import accepted_settings
from shiftproof.cli import app
from shiftproof.errors import ShiftproofError
from shiftproof.pareto import PAIR, FixedWeights, MinNorm, Pair, PreferenceSolver, pair_aggregator
from shiftproof.pareto.optimizer import last_layer
from shiftproof.registry import methods, options_of
from shiftproof.training import Trainer, loop
from shiftproof.training.balance import described

PREFERENCE = {"erm": 1.0, "irm": 1e2, "vrex": 1e3}
GRAPHS = "spmotif-struc:train_per_class=6,val_per_class=3,test_per_class=3"


def problem(seed: int = 0):
    """A small network in double precision and three losses of it."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(30, 1, dtype=torch.float64)

    def losses():
        error = (model(x) - y).square()
        a, b = error[:15].mean(), error[15:].mean()
        return {"erm": (a + b) / 2, "irm": (model(x) * (model(x) - y)).mean().square(), "vrex": (a - b).square() / 2}

    return model, losses


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("parameters", ["head", "all"])
def test_the_step_is_that_of_the_solver_on_gradients_taken_one_by_one(parameters):
    model, losses = problem()
    chosen = list(model.parameters()) if parameters == "all" else list(model[2].parameters())
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(term, chosen, retain_graph=True)])
        for term in losses().values()
    ]
    gradients = torch.stack(rows).numpy()
    values = np.array([term.item() for term in losses().values()])
    wanted = PreferenceSolver(list(PREFERENCE.values()), compat="reference").weights(values, gradients @ gradients.T)
    other, other_losses = problem()
    torch.stack([w * t for w, t in zip(wanted.weights, other_losses().values(), strict=True)]).sum().backward()
    sgd(other).step()

    found = PAIR(sgd(model), PREFERENCE, parameters, compat="reference").step(losses())
    np.testing.assert_allclose(list(found.weights.values()), wanted.weights, atol=1e-12)
    assert found.mode == wanted.mode
    assert found.nonuniformity == pytest.approx(wanted.nonuniformity)
    assert found.loss == pytest.approx(wanted.weights @ values)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_comparing_heads_takes_one_pass_through_the_featurizer_and_comparing_all_takes_no_more_than_needed():
    class Counted(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            Counted.calls += 1
            return gradient

    body, head = nn.Linear(3, 4), nn.Linear(4, 1)
    x = torch.randn(8, 3)
    for parameters, passes in (("head", 1), ("all", 3)):
        inner = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.01)
        out = head(Counted.apply(body(x)))
        Counted.calls = 0
        PAIR(inner, PREFERENCE, parameters).step(
            {"erm": out.square().mean(), "irm": out.abs().mean(), "vrex": (out - 1).square().mean()}
        )
        assert Counted.calls == passes


def test_losses_may_come_in_any_order_and_names_are_checked():
    model, losses = problem()
    one, other = PAIR(sgd(model), PREFERENCE), problem()
    turned = PAIR(sgd(other[0]), PREFERENCE)
    assert one.step(losses()).weights == turned.step(dict(reversed(other[1]().items()))).weights
    with pytest.raises(ShiftproofError, match=r"unknown loss .* 'vrx'; did you mean 'vrex'"):
        one.step({"erm": torch.zeros(()), "irm": torch.zeros(()), "vrx": torch.zeros(())})
    with pytest.raises(ShiftproofError, match="has a loss 'vrex', which step"):
        one.step({"erm": torch.zeros(()), "irm": torch.zeros(())})


def test_the_first_phase_descends_on_the_first_loss_alone():
    model, losses = problem()
    plain, plain_losses = problem()
    optimizer, inner = PAIR(sgd(model), PREFERENCE, descent_steps=3), sgd(plain)
    for _ in range(3):
        assert optimizer.step(losses()).mode == "descent"
        inner.zero_grad()
        plain_losses()["erm"].backward()
        inner.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    assert optimizer.step(losses()).mode == "balance"
    assert optimizer.modes == {"descent": 3, "balance": 1}
    assert optimizer.fallback_rate == 0


def test_losses_become_balanced_and_what_happened_is_counted(caplog):
    model, losses = problem()
    optimizer = PAIR(torch.optim.SGD(model.parameters(), lr=0.01), {"erm": 1, "irm": 1e2, "vrex": 1e2}, "all")
    first = optimizer.step(losses())
    for _ in range(200):
        last = optimizer.step(losses())
    assert last.nonuniformity < 0.3 * first.nonuniformity
    assert sum(optimizer.modes.values()) == optimizer.steps == 201
    assert optimizer.last is last
    assert optimizer.fallback_rate == 0
    stuck = PAIR(sgd(model), balancer=NeverFound(list(PREFERENCE.values())))
    with caplog.at_level(logging.WARNING, "shiftproof.pareto"):
        stuck.step(losses())
    assert "no solution; the preference itself" in caplog.text
    assert stuck.fallback_rate == 1


class NeverFound(PreferenceSolver):
    def _solve(self, losses, gramian, a, mode):
        return None


def test_a_negative_estimate_is_turned_lifted_or_refused():
    model, losses = problem()
    turned = {**losses(), "irm": -losses()["irm"]}
    value = losses()["irm"].item()
    assert PAIR(sgd(model), PREFERENCE, negative_rate=0.5).step(turned).losses["irm"] == pytest.approx(0.5 * value)
    model, losses = problem()
    with pytest.raises(ShiftproofError, match=r"loss 'irm' is -.*; a preference needs losses that are not negative"):
        PAIR(sgd(model), PREFERENCE, negative="error").step({**losses(), "irm": -losses()["irm"]})


def test_other_balancers_take_the_place_of_the_preference():
    model, losses = problem()
    assert PAIR(sgd(model), balancer=MinNorm()).step(losses()).mode == "min-norm"
    with pytest.raises(ShiftproofError, match=r"either a preference, .*, or a balancer"):
        PAIR(sgd(model))


def test_the_head_is_the_last_matrix_and_what_follows_it():
    model, _ = problem()
    assert last_layer(list(model.parameters())) == list(model[2].parameters())
    with pytest.raises(ShiftproofError, match="unknown set of parameters 'haed'; did you mean 'head'"):
        PAIR(sgd(model), PREFERENCE, "haed")
    with pytest.raises(ShiftproofError, match="'parameters' is empty"):
        PAIR(sgd(model), PREFERENCE, [])


def test_torchjd_gets_the_same_weights():
    pytest.importorskip("torchjd")
    gradients = torch.tensor([[1, 0, 0.5], [-0.5, 1, 0], [0, -0.5, 1]])
    aggregator = pair_aggregator((1, 2, 4))
    with pytest.raises(ShiftproofError, match="set the weighting's 'losses'"):
        aggregator(gradients)
    aggregator.gramian_weighting.losses = torch.tensor([0.5, 0.25, 0.25])
    torch.testing.assert_close(aggregator(gradients), torch.tensor([0, 0.1725474, 0.8274526]) @ gradients)


def test_without_torchjd_the_sentence_names_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchjd.aggregation", None)
    with pytest.raises(ShiftproofError, match="PAIR as a TorchJD aggregator needs the package 'torchjd'"):
        pair_aggregator((1, 2))


QUICK = {"epochs": 3, "batch_size": 8, "hidden": 6, "layers": 2, "patience": None, "reference_epochs": 1}


@pytest.mark.parametrize("method", ["irmx", "ciga-v2", "gala", "gsat", "ib-irm", "composite"])
def test_every_method_with_several_terms_is_balanced(method):
    known = {name for group in accepted_settings(methods[method].make, "pair").values() for name in group}
    settings = {name: value for name, value in QUICK.items() if name in known}
    run = sp.fit(method, GRAPHS, balance="pair", anneal_steps=1, **settings)
    assert run.history[0]["balance"]["weights"].keys() == run.method.weights.keys()
    for record in run.history[1:]:
        assert sum(record["balance"]["weights"].values()) == pytest.approx(1)
        assert 0 <= record["balance"]["fallback_rate"] <= 1


def test_a_single_term_cannot_be_balanced_and_a_wrong_preference_shows_before_training():
    with pytest.raises(ShiftproofError, match="weighs loss terms against each other, and ERM has only one"):
        sp.fit("erm", "two-bit:per_env=20", balance="pair")
    with pytest.raises(ShiftproofError, match="a preference of 2 numbers does not fit the 3 terms task, irm, vrex"):
        sp.fit("irmx", "two-bit:per_env=20", balance="pair", preference=(1.0, 2.0))
    with pytest.raises(ShiftproofError, match="unknown loss term in the preference 'vrx'; did you mean 'vrex'"):
        sp.fit("irmx", "two-bit:per_env=20", balance=Pair({"task": 1, "irm": 1, "vrx": 1}))
    with pytest.raises(ShiftproofError, match="unknown balance 'pear'; did you mean 'pair'"):
        sp.fit("irmx", "two-bit:per_env=20", balance="pear")
    with pytest.raises(ShiftproofError, match="'balance_lr' needs a 'balance_optimizer'"):
        Pair(balance_lr=0.1)
    with pytest.raises(ShiftproofError, match="'balance_clip' of Pair is a number above 0 or none, not 0"):
        Pair(balance_clip=0)


def test_no_method_has_an_option_by_the_name_of_one_of_the_balance():
    ours = options_of(Pair).keys()
    for entry in methods:
        groups = accepted_settings(entry.make, "pair")
        assert not ours & {*groups["method"], *groups["network"], *groups["training"]}, entry.name


def test_the_preference_of_unknown_terms_is_measured_and_kept():
    balance = Pair()
    sp.fit("ciga-v2", GRAPHS, balance=balance, epochs=1, batch_size=8, hidden=6, layers=2)
    numbers = dict(zip(balance.names, balance.balancer.preference, strict=True))
    assert numbers.keys() == {"task", "contrast", "hinge"}
    assert numbers["contrast"] > numbers["task"]
    again = Pair()
    again.load_state_dict(json.loads(json.dumps(balance.state_dict())))
    np.testing.assert_array_equal(again.balancer.preference, balance.balancer.preference)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_a_balanced_step_is_no_longer_than_the_clip(clip):
    settings = {"epochs": 1, "batch_size": None, "widths": (6,), "balance_optimizer": "sgd", "balance_lr": 0.5}
    plain = sp.fit("irmx", "two-bit:per_env=50", balance="pair", seed=3, **settings).method
    begun = sp.fit("irmx", "two-bit:per_env=50", balance="pair", seed=3, **{**settings, "epochs": 0}).method
    clipped = sp.fit("irmx", "two-bit:per_env=50", balance="pair", seed=3, balance_clip=clip, **settings).method

    def moved(method):
        pairs = zip(method.parameters(), begun.parameters(), strict=True)
        return torch.cat([(p - q).detach().flatten() for p, q in pairs])

    whole, short = moved(plain), moved(clipped)
    expected = whole * min(1.0, 0.5 * clip / float(whole.norm()))
    torch.testing.assert_close(short, expected, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("done", [1, 2, 3, 4])
def test_a_stopped_run_goes_on_through_the_change_of_optimiser(tmp_path, monkeypatch, done):
    """Two steps an epoch, the second phase from step 4: the stop falls before, at and after the change."""
    settings = {"epochs": 5, "batch_size": 30, "widths": (6,), "seed": 1, "checkpoint_seconds": 0.0}
    settings |= {"balance": "pair", "anneal_steps": 4, "balance_optimizer": "sgd", "balance_lr": 0.05, "l2": 1e-3}
    whole = sp.fit("irmx", "two-bit:per_env=30", out=tmp_path / "whole", **settings)
    original = loop.Loop._train_epoch

    def one_epoch(self, stepper):
        if self.epoch == done:
            raise Killed
        original(self, stepper)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_train_epoch", one_epoch)
        with pytest.raises(Killed):
            sp.fit("irmx", "two-bit:per_env=30", out=tmp_path / "stopped", **settings)
    again = sp.fit("irmx", "two-bit:per_env=30", out=tmp_path / "stopped", resume=True, **settings)
    for name in ("metrics.json", "history.json", "config.json"):
        assert (again.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name
    for a, b in zip(again.method.parameters(), whole.method.parameters(), strict=True):
        assert torch.equal(a, b)
    assert json.loads((whole.folder / "config.json").read_text())["training"]["balance"] == "pair"


def test_a_balance_given_as_an_object_is_recorded_with_its_options():
    chosen = Pair({"task": 1.0, "irm": 10.0, "vrex": 100.0}, eps=0.1)
    run = sp.fit("irmx", "two-bit:per_env=20", balance=chosen, epochs=1, widths=(4,))
    recorded = run.config["training"]
    assert (recorded["balance"], recorded["eps"], recorded["parameters"]) == ("pair", 0.1, "head")
    assert recorded["preference"] == {"task": 1.0, "irm": 10.0, "vrex": 100.0}
    data = sp.load("two-bit:per_env=20")
    bare = Trainer(epochs=1, balance=chosen).fit(run.method, data)
    assert bare.config["training"]["preference"] == recorded["preference"]
    assert described(Pair()).keys() >= {"balance", "eps", "anneal_steps", "negative_rate"}


@pytest.mark.slow
def test_compiled_training_is_the_same():
    settings = {"epochs": 4, "batch_size": None, "widths": (6,), "anneal_steps": 2, "selection": "last"}
    plain, compiled = (
        sp.fit("irmx", "two-bit:per_env=50", balance="pair", compile=compile, device="cpu", **settings)
        for compile in (False, True)
    )
    for a, b in zip(plain.method.parameters(), compiled.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_command_takes_a_balance(tmp_path: Path):
    words = ["fit", "two-bit:per_env=20", "--method", "irmx", "--balance", "pair", "--set", "epochs=2"]
    words += ["--set", "preference=1,1e4,1e6", "--out", str(tmp_path), "--json", "--device", "cpu"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)[0]["variant"]["balance"] == "pair"
    config = json.loads((tmp_path / "irmx" / "seed-0" / "config.json").read_text())
    assert config["training"]["preference"] == [1, 1e4, 1e6]


def test_a_single_loss_has_all_the_weight():
    model, losses = problem()
    optimizer = PAIR(torch.optim.SGD(model.parameters(), lr=0.1), {"erm": 3.0})
    before = float(losses()["erm"].detach())
    assert optimizer.step({"erm": losses()["erm"]}).weights == {"erm": 1.0}
    assert float(losses()["erm"].detach()) < before


def test_a_frozen_head_leaves_the_layer_below_to_be_compared():
    model, losses = problem()
    model[2].requires_grad_(False)
    optimizer = PAIR(torch.optim.SGD(model.parameters(), lr=0.1), PREFERENCE)
    assert optimizer.step(losses()).mode in ("balance", "dominance")
    model[0].requires_grad_(False)
    with pytest.raises(ShiftproofError, match="all are frozen"):
        optimizer.step(losses())


def test_sparse_gradients_are_compared_too():
    table, head = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1)
    optimizer = PAIR(torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1), {"erm": 1, "b": 2}, "all")
    found = head(table(torch.tensor([0, 1])))
    assert set(optimizer.step({"erm": found.square().mean(), "b": (found - 1).square().mean()}).weights) == {"erm", "b"}


def test_losses_that_are_no_losses_are_one_sentence():
    model, losses = problem()
    optimizer = PAIR(torch.optim.SGD(model.parameters(), lr=0.1), PREFERENCE, descent_steps=1)
    for given, said in (
        (list(losses().values()), "by name"),
        (losses, "by name"),
        ({**losses(), "irm": 0.0}, "loss 'irm' is a float"),
        ({**losses(), "irm": losses()["irm"].expand(3)}, r"loss 'irm' has the shape \(3,\)"),
        ({name: torch.tensor(1.0) for name in PREFERENCE}, "loss 'erm' has no gradient"),
    ):
        with pytest.raises(ShiftproofError, match=said):
            optimizer.step(given)
    with pytest.raises(ShiftproofError, match="lacks 'balancer'"):
        optimizer.load_state_dict(optimizer.inner.state_dict())
    with pytest.raises(ShiftproofError, match="option 'preference' of PAIR is a mapping to"):
        PAIR(optimizer.inner, (1.0, 1e2, 1e3))
    with pytest.raises(ShiftproofError, match="without a closure, not LBFGS"):
        PAIR(torch.optim.LBFGS(model.parameters()), PREFERENCE)
    with pytest.raises(ShiftproofError, match="2 fixed weights do not fit 3 losses"):
        PAIR(optimizer.inner, balancer=FixedWeights([1.0, 2.0])).step(losses())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"preference": (1.0, 0.0, 1.0)}, "list of .a number above 0."),
        ({"preference": {"task": 1, "irm": "much", "vrex": 1}}, "mapping to .a number above 0."),
        ({"eps": -1.0}, "'eps'"),
        ({"balance_optimizer": "sgd", "balance_lr": -1.0}, "'balance_lr'"),
        ({"balance_momentum": -1.0}, "'balance_momentum'"),
        ({"negative_rate": -1.0}, "'negative_rate'"),
    ],
)
def test_a_balance_that_cannot_be_right_is_refused_before_anything_is_written(tmp_path, option, said):
    with pytest.raises(ShiftproofError, match=said):
        sp.fit("irmx", "two-bit:per_env=20", balance="pair", epochs=1, out=tmp_path / "run", **option)
    assert not (tmp_path / "run").exists()
