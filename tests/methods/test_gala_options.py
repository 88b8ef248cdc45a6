"""Options of GALA and of the methods beside it that are not the default: each does what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.methods import EIIL, GALA, GIL, XGNN, DataShape, DisC, MoleOOD, Network
from shiftproof.methods.assistant import seen_by as seen_by_assistant
from shiftproof.methods.upsampling import upsampled
from shiftproof.objectives import proxy_contrast
from shiftproof.presets import PROTOCOLS
from shiftproof.training import Trainer

SMALL = {"train_per_class": 12, "val_per_class": 4, "test_per_class": 4}
NETWORK = Network(layers=2, hidden=8)
QUICK = {"layers": 2, "hidden": 8, "epochs": 2, "batch_size": 16}


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return sp.load("two-piece", **SMALL)


def built(make, data: sp.Dataset, **options):
    torch.manual_seed(0)
    return make(DataShape.of(data), network=NETWORK, **options)


def moved(before: nn.Module, parameters: dict[str, Tensor]) -> set[str]:
    return {name for name, p in before.named_parameters() if not torch.equal(p, parameters[name])}


def test_a_weight_of_a_third_undoes_three_copies() -> None:
    g = torch.Generator().manual_seed(0)
    z, y, proxy = torch.randn(12, 5, generator=g).double(), torch.arange(12) % 3, torch.arange(12) // 3 % 2
    tripled = torch.cat([torch.arange(12), torch.arange(4).repeat(2)])
    weight = tripled.bincount().double().reciprocal()[tripled]
    for denominator in ("pairs", "infonce"):
        once = proxy_contrast(z, y, proxy, denominator=denominator)
        thrice = proxy_contrast(z[tripled], y[tripled], proxy[tripled], denominator=denominator)
        again = proxy_contrast(z[tripled], y[tripled], proxy[tripled], denominator=denominator, weight=weight)
        torch.testing.assert_close(again, once)
        assert abs(float(thrice - once)) > 1e-3
    lonely = proxy_contrast(z[:3], y[:3], torch.zeros(3), weight=torch.ones(3))
    assert float(lonely) == 0


@pytest.mark.parametrize("where", ["task", "contrast"])
def test_copies_count_in_the_named_term_only(data, where) -> None:
    options = {"upsample": 3, "upsample_in": where, "proxy": "base", "alpha": 2.0}
    method, plain = built(GALA, data, **options), built(GALA, data, proxy="base", upsample="off")
    correct = torch.arange(36) >= 6
    for one in (method, plain):
        one.proxy.copy_(data.train.columns["base"])
        one.correct.copy_(correct)
        one.start_epoch(0)
        one.eval()  # running statistics: what a sample looks like does not follow the copies
    single, several = data.train.whole(), data.train.batch(upsampled(correct, 3))
    expected, repeated, got = plain.losses(single), plain.losses(several), method.losses(several)
    other = "contrast" if where == "task" else "task"
    torch.testing.assert_close(got[where], repeated[where])
    torch.testing.assert_close(got[other], expected[other])
    assert not torch.allclose(repeated[other], expected[other], atol=1e-5)


def test_a_shared_encoder_is_one_network_that_the_scorer_does_not_train(data) -> None:
    method = built(GALA, data, share_encoder=True, scorer_norm=False, upsample="off")
    assert method.featurizer is method.classifier
    own = sum(p.numel() for p in built(GALA, data, scorer_norm=False, upsample="off").parameters())
    encoder = sum(p.numel() for p in method.classifier.parameters())
    assert sum(p.numel() for p in method.parameters()) == own - encoder
    found = method.extract(data.train.whole())
    assert not found.h.requires_grad
    assert found.scores.requires_grad
    with pytest.raises(ShiftproofError, match="share_encoder=True needs classifier_input='raw'"):
        built(XGNN, data, share_encoder=True)


def test_a_shared_encoder_trains_saves_and_loads(data, tmp_path) -> None:
    chosen = {"share_encoder": True, "scorer_norm": False, "proxy": "base", "upsample": "off"}
    run = sp.fit("gala", data, out=tmp_path, **chosen, **QUICK)
    assert torch.equal(sp.Run.load(tmp_path).logits(data.test), run.logits(data.test))


def test_the_last_assistant_is_the_one_that_early_stopping_left(data, tmp_path) -> None:
    """The assistant is trained by the rules of the run; `last` keeps what is there when it stops."""
    common = {**QUICK, "epochs": 30, "patience": 1, "warmup": 2, "lr": 0.05, "proxy": "label", "upsample": "off"}
    told = {}
    for select in ("last", "val"):
        sp.fit("gala", data, assistant_select=select, out=tmp_path / select, **common)
        told[select] = json.loads((tmp_path / select / "assistant" / "metrics.json").read_text())
    assert told["last"]["epochs"] == told["val"]["epochs"] < 30
    assert told["last"]["selected_epoch"] == told["last"]["epochs"] - 1
    assert told["val"]["selected_epoch"] < told["val"]["epochs"] - 1


def test_an_assistant_trained_with_a_quarter_of_the_edges_is_looked_at_with_all(data, monkeypatch) -> None:
    """As the released commands of EC50-Assay and EC50-Scaffold have it (docs/papers/gala.md#d21)."""
    trained, seen, kept = [], [], Trainer.fit_reference
    looked = seen_by_assistant

    def fit_reference(self, model, *given, **how):
        trained.append(model.ratio)
        return kept(self, model, *given, **how)

    def seen_by(model, split):
        batch = split.batch(torch.arange(len(split)))
        seen.append((model.ratio, float(model.extract(batch).keep.double().mean())))
        return looked(model, split)

    monkeypatch.setattr(Trainer, "fit_reference", fit_reference)
    monkeypatch.setattr("shiftproof.methods.assistant.seen_by", seen_by)
    for ratio in ({}, {"assistant_ratio": 0.25}, {"assistant_ratio": 0.25, "ratio": 0.5}):
        sp.fit("gala", data, seed=1, assistant="xgnn", reference_epochs=3, **ratio, **QUICK)
    assert trained == [-1.0, 0.25, 0.25]
    assert [ratio for ratio, _ in seen[:3]] == [-1.0, -1.0, 0.5]
    assert [kept > 0.9 for _, kept in seen[:3]] == [True, True, False]


def test_the_released_assistants_of_ec50_have_the_ratio_of_their_commands() -> None:
    said = {
        domain: PROTOCOLS["gala"][f"drugood-ec50-{domain}"].settings("gala").get("assistant_ratio")
        for domain in ("assay", "scaffold", "size")
    }
    assert said == {"assay": 0.25, "scaffold": 0.25, "size": None}


def test_stopped_needs_a_validation_split(data) -> None:
    alone = replace(data, splits={"train": data.train, "test": data.test})
    with pytest.raises(ShiftproofError, match="selection 'stopped' needs a split 'val'"):
        sp.fit("erm", alone, selection="stopped", **QUICK)


def test_disc_with_swap_exchanges_left_overs_from_its_epoch_on(data) -> None:
    method = built(DisC, data, swap=True, swap_from=2, swap_penalty=10.0, penalty=0.5)
    assert method.weights == {"task": 1.0, "bias": 0.5, "swapped_task": 0.0, "swapped_bias": 0.0}
    method.start_epoch(2)
    assert method.weights == {"task": 1.0, "bias": 0.5, "swapped_task": 10.0, "swapped_bias": 5.0}
    batch = data.train.whole()
    logits = method(batch)
    assert logits.shape == (36, 3)
    torch.testing.assert_close(method.eval().explain(batch).logits, method(batch))
    sp.fit("disc", data, swap=True, swap_from=1, **QUICK)


def test_disc_with_swap_lets_each_head_move_its_own_half_only(data) -> None:
    method = built(DisC, data, swap=True)
    c, s = torch.randn(5, 8, requires_grad=True), torch.randn(5, 8, requires_grad=True)
    causal, biased = method._judge(c, s)
    for logits, own, other in ((causal, c, s), (biased, s, c)):
        mine, theirs = torch.autograd.grad(logits.sum(), (own, other), allow_unused=True)
        assert bool(mine.any())
        assert theirs is None


def test_disc_takes_the_exchanged_labels_for_the_exchanged_left_overs(data, monkeypatch) -> None:
    """With the identity for a permutation the exchanged terms are the plain ones."""
    method, batch = built(DisC, data, swap=True), data.train.whole()
    monkeypatch.setattr("shiftproof.methods.disc.torch.randperm", lambda n, device: torch.arange(n, device=device))
    terms = method.losses(batch)
    torch.testing.assert_close(terms["swapped_task"], terms["task"])
    torch.testing.assert_close(terms["swapped_bias"], terms["bias"])
    backwards = lambda n, device: torch.arange(n - 1, -1, -1, device=device)  # noqa: E731
    monkeypatch.setattr("shiftproof.methods.disc.torch.randperm", backwards)
    exchanged = method.losses(batch)
    # the causal half never sees a gradient of s, but its value does follow it
    assert not torch.equal(exchanged["swapped_task"], terms["task"])
    assert not torch.equal(exchanged["swapped_bias"], terms["bias"])


def test_disc_weighs_every_sample_alike_until_its_terms_begin(data) -> None:
    method, batch = built(DisC, data, terms_from=2, penalty=0.5), data.train.whole()
    assert method.weights == {"task": 1.0, "bias": 0.0}
    plain = method.risks(method(batch), batch).mean()
    torch.testing.assert_close(method.losses(batch)["task"], plain)
    method.start_epoch(2)
    assert method.weights == {"task": 1.0, "bias": 0.5}
    assert bool(method.losses(batch)["task"] < plain), "every weight lies below 1"
    assert method.how_trained.capturable
    assert not built(DisC, data, terms_from=2, penalty=0.0).how_trained.capturable, "no weight tells of the change"
    assert built(DisC, data, swap=True, swap_from=1, terms_from=3).later["swapped_task"][0] == 3


def test_eiil_as_released_needs_no_reference_and_splits_by_chance(data, monkeypatch) -> None:
    method, batch = built(EIIL, data, compat="reference"), data.train.whole()
    seen: list[Tensor] = []
    penalise = sp.methods.eiil.irm_penalty

    def watched(logits: Tensor, y: Tensor, env: Tensor, *rest, **options) -> Tensor:
        seen.append(env)
        assert options["estimator"] == "cross"
        return penalise(logits, y, env, *rest, **options)

    monkeypatch.setattr("shiftproof.methods.eiil.irm_penalty", watched)
    monkeypatch.setattr(Trainer, "fit_reference", lambda *_, **__: pytest.fail("no reference model is trained"))
    method.prepare(data, Trainer(epochs=1, device="cpu"))
    torch.manual_seed(5)
    terms = method.losses(batch)
    torch.manual_seed(5)
    by_chance = torch.randn(len(batch.y)) > 0
    assert float((seen[0].bool() == by_chance).double().mean()) > 0.9, "20 steps move hardly any sample"
    torch.testing.assert_close(terms["task"], nn.functional.cross_entropy(method(batch), batch.y))
    method.losses(batch)
    assert not torch.equal(seen[0], seen[1]), "every batch draws anew"
    assert not method.how_trained.capturable
    with pytest.raises(ShiftproofError, match="compat"):
        built(EIIL, data, compat="released")


def test_gil_finds_environments_once_an_epoch_from_what_it_saw(data) -> None:
    method, batch = built(GIL, data, cluster_every="epoch"), data.train.whole()
    method.start_epoch(0)
    method.losses(batch)
    seen = method.seen.clone()
    assert bool(seen.any(1).all())
    method.start_epoch(1)
    env = method.environment.clone()
    assert len(env.unique()) > 1
    some = data.train.batch(torch.tensor([3, 30, 7]))
    assert torch.equal(method._environments(torch.zeros(3, 8), some), env[some.index])
    assert not torch.equal(method.seen[some.index], seen[some.index])
    sp.fit("gil", data, cluster_every="epoch", **QUICK)


def test_gil_is_captured_only_where_its_weights_tell_of_every_change(data) -> None:
    assert built(GIL, data).how_trained.capturable
    assert built(GIL, data, terms_from=3).how_trained.capturable
    assert not built(GIL, data, cluster_every="epoch").how_trained.capturable
    assert not built(GIL, data, penalty=0.0, terms_from=3).how_trained.capturable


def test_gil_can_compare_the_gradients_of_all_networks(data, monkeypatch) -> None:
    env = torch.arange(36) % 3
    monkeypatch.setattr("shiftproof.methods.gil.nearest_centre", lambda *_: env)
    batch, penalties = data.train.whole(), {}
    for part in ("head", "all"):
        method = built(GIL, data, gradients_of=part)
        penalties[part] = method.losses(batch)["gradients"]
        penalties[part].backward()
        assert any(bool(p.grad.any()) for p in method.featurizer.parameters() if p.grad is not None)
    rows = []
    for e in range(3):
        risk = method.risks(method(batch), batch)[env == e].mean()
        grads = torch.autograd.grad(risk, list(method.parameters()), allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.flatten() for g in grads]))
    rows = torch.stack(rows)
    expected = (rows - rows.mean(0)).square().sum(1).mean()
    torch.testing.assert_close(penalties["all"].detach(), expected, rtol=1e-3, atol=1e-6)
    assert bool(penalties["all"] > penalties["head"])


def test_moleood_with_an_encoder_each_infers_without_touching_the_main_one(data) -> None:
    method = built(MoleOOD, data, share_encoder=False)
    encoders = (method.featurizer, method.inference.featurizer, method.inference.second)
    assert len({id(encoder) for encoder in encoders}) == 3
    before = {name: p.clone() for name, p in method.named_parameters()}
    method.reference_epochs = 1
    method.prepare(data, Trainer(epochs=1, device="cpu"))
    changed = moved(method, before)
    assert not any(name.startswith(("featurizer", "head")) for name in changed)
    assert any(name.startswith("inference.featurizer") for name in changed)
    assert any(name.startswith("inference.second") for name in changed)
    method.train()
    first = method._inferred(data.train.whole())
    with torch.no_grad():
        for p in method.featurizer.parameters():
            p.add_(1.0)
    for ours, theirs in zip(first, method._inferred(data.train.whole()), strict=True):
        assert torch.equal(ours, theirs), "the inference does not drift with the main model"
    assert method.inference.training


@pytest.mark.parametrize("oracle", [sp.methods.Oracle, sp.methods.OracleXGNN])
def test_the_oracles_of_two_piece_graphs_are_trained_without_the_shortcut(oracle) -> None:
    data = sp.load("two-piece", b=0.95, train_per_class=200, val_per_class=100, test_per_class=5)
    arranged = oracle.arrange(data, seed=3)

    def strength(split: sp.data.GraphSet, piece: str) -> float:
        return float((split.columns[piece] == split.y).double().mean())

    assert {name: len(split) for name, split in arranged.splits.items()} == {"train": 600, "val": 300, "test": 15}
    assert strength(data.train, "base") > 0.9
    assert strength(arranged.train, "base") == pytest.approx(1 / 3, abs=0.06)
    assert strength(arranged.val, "base") == pytest.approx(1 / 3, abs=0.08)
    assert strength(arranged.train, "motif") == pytest.approx(1 - 0.4 / 3, abs=0.05)
    assert arranged.test is data.test


def test_the_interpretable_oracle_has_the_network_of_xgnn() -> None:
    data = sp.load("two-piece", train_per_class=4, val_per_class=2, test_per_class=2)
    ours, theirs = (sp.fit(name, data, epochs=1).config for name in ("oracle-xgnn", "xgnn"))
    assert (ours["network"], ours["options"]) == (theirs["network"], theirs["options"])
    assert ours["options"]["scorer_norm"]


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("gala", {"upsample_in": "hinge"}, "option 'upsample_in' of 'gala' takes"),
        ("gil", {"cluster_every": "step"}, "option 'cluster_every' of 'gil' takes"),
        ("gil", {"gradients_of": "tail"}, "option 'gradients_of' of 'gil' takes"),
    ],
)
def test_values_that_are_not_there_are_refused(data, method, options, sentence) -> None:
    with pytest.raises(ShiftproofError, match=sentence):
        sp.fit(method, data, **options, **QUICK)
