"""Numbered facts of docs/papers/pair.md#checked-facts, that concern the optimiser and its phases."""

import torch

import shiftproof as sp
from shiftproof.pareto import PAIR, FixedWeights, Pair
from shiftproof.training import Trainer, Weighted


def bits():
    return sp.load("two-bit:per_env=60")


QUICK = {"epochs": 8, "batch_size": None, "widths": (6, 6), "selection": "last", "l2": 1e-3}


def pair_run(data, epochs=8, **settings):
    chosen = {"preference": (1.0, 1e2, 1e3), "anneal_steps": 4, "balance_optimizer": "sgd", "balance_lr": 0.05}
    return sp.fit("irmx", data, balance="pair", **{**QUICK, "epochs": epochs, **chosen, **settings})


def test_pair_41_a_frozen_featurizer_keeps_every_bit_while_the_head_moves():
    data = sp.load("spmotif-struc:train_per_class=8,val_per_class=4,test_per_class=4")
    quick = {"batch_size": 8, "hidden": 6, "layers": 2, "selection": "last", "patience": None}  # has batch norm
    settings = {"preference": (1.0, 10.0, 10.0), "anneal_steps": 6, "balance_optimizer": "sgd", "balance_lr": 0.1}
    before, after, moving = (
        sp.fit("irmx", data, balance="pair", epochs=epochs, freeze_featurizer=frozen, **quick, **settings).method
        for epochs, frozen in ((2, True), (6, True), (6, False))
    )
    for name, tensor in before.featurizer.state_dict().items():
        assert torch.equal(tensor, after.featurizer.state_dict()[name]), name
    assert not torch.equal(before.head.weight, after.head.weight)
    assert any(not torch.equal(t, moving.featurizer.state_dict()[n]) for n, t in before.featurizer.state_dict().items())
    assert all(parameter.requires_grad for parameter in after.parameters())


def test_pair_42_all_gradients_are_the_heads_where_the_featurizer_is_frozen():
    head, everything = (pair_run(bits(), freeze_featurizer=True, parameters=p) for p in ("head", "all"))
    for a, b in zip(head.method.parameters(), everything.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_pair_43_the_first_phase_is_erm():
    pair = pair_run(bits(), epochs=4)
    erm = sp.fit("erm", bits(), **{**QUICK, "epochs": 4})
    for a, b in zip(pair.method.parameters(), erm.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert [record["balance"]["mode"] for record in pair.history] == [{"descent": 1.0}] * 4


def small_problem(seed: int = 0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)

    def losses():
        error = (model(x) - y).square()
        first, second = error[:20].mean(), error[20:].mean()
        return {"erm": (first + second) / 2, "size": model(x).square().mean(), "vrex": (first - second).square() / 2}

    return model, losses


def test_pair_44_a_restored_optimizer_goes_on_with_the_same_weights():
    preference = {"erm": 1.0, "size": 10.0, "vrex": 100.0}

    def made():
        model, losses = small_problem()
        return model, losses, PAIR(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), preference)

    model, losses, optimizer = made()
    for _ in range(5):
        optimizer.step(losses())
    weights, state = {k: v.clone() for k, v in model.state_dict().items()}, optimizer.state_dict()
    state = {**state, "inner": {**state["inner"], "state": {k: dict(v) for k, v in state["inner"]["state"].items()}}}
    state["inner"]["state"] = {
        k: {n: t.clone() for n, t in v.items()} for k, v in state["inner"]["state"].items()
    }  # the optimiser goes on with its own tensors
    whole = [optimizer.step(losses()).weights for _ in range(5)]
    model, losses, optimizer = made()
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    assert optimizer.steps == 5
    assert [optimizer.step(losses()).weights for _ in range(5)] == whole
    assert len({tuple(step.values()) for step in whole}) > 1


def test_pair_21_fixed_weights_give_the_gradients_of_the_plain_sum_bit_by_bit():
    ours, theirs = small_problem(), small_problem()
    fixed = [0.25, 0.5, 4.0]
    optimizer = PAIR(torch.optim.SGD(ours[0].parameters(), lr=0.1), balancer=FixedWeights(fixed))
    optimizer.step(ours[1]())
    plain = torch.optim.SGD(theirs[0].parameters(), lr=0.1)
    torch.stack([w * term for w, term in zip(fixed, theirs[1]().values(), strict=True)]).sum().backward()
    plain.step()
    for a, b in zip(ours[0].parameters(), theirs[0].parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
        assert torch.equal(a, b)


def test_pair_21_pair_with_the_preference_as_weights_is_the_weighted_balance():
    data, numbers = bits(), {"task": 0.5, "irm": 0.25, "vrex": 0.25}
    chosen = {"epochs": 3, "batch_size": None, "selection": "last", "widths": (5,)}
    fixed = sp.fit("irmx", data, balance=Pair(numbers, balance_solver="fixed"), **chosen)
    plain = sp.fit("irmx", data, balance=Weighted(numbers), **chosen)
    for a, b in zip(fixed.method.parameters(), plain.method.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    assert fixed.config["training"]["preference"] == numbers
    assert isinstance(Trainer(balance=Pair()).balance, Pair)
