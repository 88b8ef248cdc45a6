"""DomainBed's and WILDS' methods: what each of them minimises, and batches drawn from every domain."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import shiftproof as sp
from shiftproof.data import Dataset, DomainSet
from shiftproof.data.domains import DomainBatch
from shiftproof.errors import ShiftproofError
from shiftproof.methods import CDANN, DANN, LISA, Fish, Fishr
from shiftproof.methods.adversary import reversed_gradient
from shiftproof.methods.base import DataShape, HowTrained, Network
from shiftproof.methods.lisa import cutmix, label_groups, partners
from shiftproof.objectives import coral_penalty, fishr_penalty

SHAPE = DataShape("tensors", "multiclass", 3, (4,), None, 3, 24)
SMALL = Network(widths=(5,))


def batch_of(n: int = 24, seed: int = 0) -> DomainBatch:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=rng)
    return DomainBatch(torch.randn(n, 4, generator=rng), y, torch.arange(n) % 3, torch.arange(n))


def built(kind, **options):
    torch.manual_seed(0)
    method = kind(SHAPE, network=SMALL, **options)
    method.environment.copy_(torch.arange(24) % 3)
    return method


def moved(method, terms) -> dict[str, bool]:
    """Which parts of a method get a gradient from the sum of its terms."""
    method.zero_grad()
    torch.stack(list(terms.values())).sum().backward()
    parts = ("featurizer", "head", "discriminator")
    return {
        part: any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in getattr(method, part).parameters())
        for part in parts
    }


def test_dann_moves_the_discriminator_and_the_rest_in_turn():
    method, batch = built(DANN, discriminator_steps=2), batch_of()
    alone = {"featurizer": False, "head": False, "discriminator": True}
    rest = {"featurizer": True, "head": True, "discriminator": False}
    turns = [moved(method, method.losses(batch)) for _ in range(6)]
    assert turns == [alone, alone, rest] * 2
    method.start_epoch(1)
    assert moved(method, method.losses(batch)) == alone
    both = built(DANN, discriminator_steps=0)
    assert all(moved(both, both.losses(batch)).values())


@pytest.mark.parametrize("kind", [DANN, CDANN])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_generators_gradient_is_that_of_the_risk_minus_the_discriminators_loss(kind, penalty):
    method, batch = built(kind, strength=0.7, gradient_penalty=penalty), batch_of()
    method.turn = method.discriminator_steps  # the next step is the generator's
    terms = method.losses(batch)
    weights = list(method.featurizer.parameters())
    found = torch.autograd.grad(terms["task"] + terms["domain"], weights, retain_graph=True)
    features = method.featurizer(batch)
    loss = method._domain(features, batch, method.env(batch))
    torch.testing.assert_close(loss, terms["domain"])
    risk = torch.nn.functional.cross_entropy(method.classify(features), batch.y, reduction="none")
    wanted = torch.autograd.grad(method.risk(risk, method.env(batch)) - 0.7 * loss, weights)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_a_discriminator_that_knows_nothing_has_the_loss_of_a_guess():
    method = built(DANN)
    for parameter in method.discriminator.layers[-1].parameters():
        nn.init.zeros_(parameter)
    assert method.losses(batch_of())["domain"].item() == pytest.approx(math.log(3))
    balanced = built(CDANN)
    for parameter in balanced.discriminator.layers[-1].parameters():
        nn.init.zeros_(parameter)
    assert balanced.losses(batch_of())["domain"].item() == pytest.approx(math.log(3))


def test_weight_decay_of_the_discriminator_is_a_term_of_its_own_loss():
    plain, decayed = built(DANN), built(DANN, discriminator_decay=0.1)
    squares = sum(p.square().sum().item() for p in plain.discriminator.parameters())
    difference = (decayed.losses(batch_of())["domain"] - plain.losses(batch_of())["domain"]).item()
    assert difference == pytest.approx(0.05 * squares, rel=1e-4)


def test_the_reversed_gradient_is_minus_its_strength():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = reversed_gradient(x, 3.0)
    assert torch.equal(y, x)
    (y * torch.tensor([1.0, 5.0])).sum().backward()
    assert x.grad.tolist() == [-3.0, -15.0]


def test_fishr_without_smoothing_is_the_mean_of_the_penalty():
    method, batch = built(Fishr, smoothing=0.0), batch_of()
    features = method.featurizer(batch)
    logits = method.classify(features)
    whole = fishr_penalty(features, logits, batch.y, method.env(batch), 3, "multiclass")
    entries = method.average[0].numel()
    torch.testing.assert_close(method.losses(batch)["fishr"], whole / (3 * entries))


def test_smoothing_steadies_fishr_and_leaves_its_gradient_as_large():
    batch = batch_of()
    slopes = []
    for smoothing in (0.0, 0.9):
        method = built(Fishr, smoothing=smoothing)
        weights = list(method.head.parameters())
        first = method.losses(batch)["fishr"]
        slopes.append(torch.autograd.grad(first, weights)[0])
        assert bool(method.average.abs().sum() > 0)
    torch.testing.assert_close(slopes[0], slopes[1])  # the average starts at zero
    kept = method.average.clone()
    only_first = batch_of()
    method.environment.zero_()
    method.losses(only_first)
    assert torch.equal(method.average[1:], kept[1:])  # absent environments keep their average


def test_coral_is_the_penalty_of_the_features():
    method, batch = built(sp.methods.CORAL, penalty=2.0), batch_of()
    wanted = coral_penalty(method.featurizer(batch), method.env(batch), 3)
    torch.testing.assert_close(method.losses(batch)["coral"], wanted)
    assert method.weights == {"task": 1.0, "coral": 2.0}


def test_fish_goes_a_share_of_the_way_that_the_steps_went():
    method = built(Fish, meta_lr=0.5)
    before = copy.deepcopy(method.state_dict())
    method.start_epoch(0)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(1.0)
    method.after_domains(3)
    for name, parameter in method.named_parameters():
        torch.testing.assert_close(parameter, before[name] + 0.5)
    divided = built(Fish, meta_lr=0.6, per_domain=True)
    start = copy.deepcopy(divided.state_dict())
    divided.start_epoch(0)
    with torch.no_grad():
        for parameter in divided.parameters():
            parameter.add_(1.0)
    divided.after_domains(3)
    for name, parameter in divided.named_parameters():
        torch.testing.assert_close(parameter, start[name] + 0.2)


def domains(n: int = 60) -> Dataset:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(n, 4, generator=rng)
    env = (torch.arange(n) % 10).clamp(max=2)  # sizes 6, 6 and 48
    samples = DomainSet(x, (x[:, 0] > 0).long(), env)
    return Dataset({"train": samples, "val": samples, "test": samples}, name="made")


class Watching(sp.Method):
    """Plain training that writes down the environments of each batch."""

    seen: list[list[int]]

    def __init__(self, shape: DataShape) -> None:
        super().__init__(shape)
        self.layer = nn.Linear(4, 2)
        self.seen = []

    def forward(self, batch):
        return self.layer(batch.x)

    def losses(self, batch):
        self.seen.append(batch.env.bincount(minlength=3).tolist())
        return {"task": nn.functional.cross_entropy(self(batch), batch.y)}


def test_the_trainer_draws_batches_from_every_domain():
    data = domains()
    method = Watching(DataShape.of(data))
    chosen = {"epochs": 2, "batch_size": 4, "domains_per_batch": "all", "selection": "last"}
    run = sp.fit(method, data, steps_per_epoch=7, **chosen)
    assert method.seen == [[4, 4, 4]] * 14
    assert [record["steps"] for record in run.history] == [7, 7]
    two = Watching(DataShape.of(data))
    sp.fit(two, data, steps_per_epoch=5, **{**chosen, "domains_per_batch": 2})
    assert all(sorted(counts) == [0, 4, 4] for counts in two.seen)
    with pytest.raises(ShiftproofError, match="counts batches of 'domains_per_batch'"):
        sp.fit("erm", data, steps_per_epoch=5)
    bare = data.with_splits(train=DomainSet(data.train.x, data.train.y))
    with pytest.raises(ShiftproofError, match="needs environments"):
        sp.fit("erm", bare, domains_per_batch="all", epochs=1)


def test_fish_is_trained_on_one_domain_after_another_and_returns_to_sgd_at_full_rate():
    """With a meta rate of 1 Fish is plain steps on the domains in turn."""

    class Turns(Watching):
        rounds = 0

        @property
        def how_trained(self) -> HowTrained:
            return replace(super().how_trained, after_domains=self.after_domains)

        def after_domains(self, count: int) -> None:
            assert count == 3
            self.rounds += 1

    data = domains()
    method = Turns(DataShape.of(data))
    sp.fit(method, data, epochs=1, batch_size=4, steps_per_epoch=5, domains_per_batch="all", selection="last")
    assert method.rounds == 5
    assert all(sorted(counts) == [0, 0, 4] for counts in method.seen)
    for start in range(0, 15, 3):
        assert [sum(column) for column in zip(*method.seen[start : start + 3], strict=True)] == [4, 4, 4]
    chosen = {"epochs": 2, "batch_size": 4, "widths": (3,), "optimizer": "sgd", "lr": 0.1, "selection": "last"}
    whole = sp.fit("fish", data, meta_lr=1.0, **chosen).method.state_dict()
    half = sp.fit("fish", data, meta_lr=0.5, **chosen).method.state_dict()
    torch.manual_seed(0)
    begun = Fish(DataShape.of(data), network=Network(widths=(3,))).state_dict()
    name = "head.weight"
    assert (half[name] - begun[name]).norm() < (whole[name] - begun[name]).norm()


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("name", ["dann", "fish", "fishr", "lisa"])
def test_a_run_over_domains_is_resumed_to_the_same_result(name, tmp_path, monkeypatch):
    data = domains()
    chosen = {"batch_size": 4, "domains_per_batch": 2, "steps_per_epoch": 4, "widths": (3,), "selection": "last"}
    chosen |= {"epochs": 4, "checkpoint_seconds": 0.0}
    whole = sp.fit(name, data, **chosen)
    kind = type(whole.method)
    begin = kind.start_epoch

    def killed(self, epoch):
        if epoch == 2:
            raise Killed
        begin(self, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "start_epoch", killed)
        with pytest.raises(Killed):
            sp.fit(name, data, out=tmp_path, **chosen)
    again = sp.fit(name, data, out=tmp_path, resume=True, **chosen).method.state_dict()
    assert all(torch.equal(tensor, again[key]) for key, tensor in whole.method.state_dict().items())


def test_partners_share_the_one_and_differ_in_the_other():
    rng = torch.Generator().manual_seed(0)
    y, env = torch.randint(0, 4, (200,), generator=rng), torch.randint(0, 3, (200,), generator=rng)
    other = partners(y, env)
    assert bool((y[other] == y).all())
    assert bool((env[other] != env).all())
    drawn = torch.stack([partners(y, env)[0] for _ in range(300)])
    able = ((y == y[0]) & (env != env[0])).nonzero().squeeze(1)
    assert set(drawn.tolist()) == set(able.tolist())  # every one of them can be drawn
    alone = partners(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    assert alone.tolist() == [0, 2, 1]


def test_labels_group_as_their_task_says():
    assert label_groups(torch.tensor([2, 0, 2]), "multiclass").tolist() == [2, 0, 2]
    bits = torch.tensor([[1.0, 0.0], [float("nan"), 1.0], [1.0, 0.0]])
    rows = label_groups(bits, "multilabel")
    assert rows[0] == rows[2] != rows[1]
    tenths = label_groups(torch.randperm(100).float(), "regression")
    assert tenths.bincount().tolist() == [10] * 10


def test_a_pasted_rectangle_has_the_size_of_the_partners_share():
    first, second = torch.zeros(200, 1, 16, 16), torch.ones(200, 1, 16, 16)
    share = torch.full((200,), 0.75)
    mixed, kept = cutmix(first, second, share)
    torch.testing.assert_close(mixed.mean((1, 2, 3)), 1 - kept)
    assert float(kept.min()) >= 0.75 - 0.1  # a rectangle at the border is smaller, never much larger
    whole, all_of_it = cutmix(first, second, torch.ones(200))
    assert float(whole.sum()) == 0
    assert bool((all_of_it == 1).all())


def test_lisa_takes_labels_in_proportion_and_refuses_what_cannot_be_mixed():
    method = built(LISA, intra_label=1.0)
    assert method.mix == "inputs"
    share = torch.tensor([0.25])
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    loss = method._soft_loss(logits, torch.tensor([0]), torch.tensor([2]), share)
    soft = torch.tensor([[0.25, 0.0, 0.75]])
    torch.testing.assert_close(loss, nn.functional.cross_entropy(logits, soft))
    with pytest.raises(ShiftproofError, match="needs images"):
        built(LISA, mix="cutmix")
    graphs = DataShape("graphs", "multiclass", 3, (4,), None, 2, 24)
    assert LISA(graphs).mix == "features"
    with pytest.raises(ShiftproofError, match="cannot be interpolated"):
        LISA(graphs, mix="inputs")
    images = DataShape("tensors", "multiclass", 3, (3, 8, 8), None, 2, 24)
    assert LISA(images, network=Network("cnn")).mix == "cutmix"


def test_coral_unlearns_a_feature_that_gives_the_environment_away():
    """Plain training keeps it."""
    rng = torch.Generator().manual_seed(0)
    env = torch.arange(400) % 2
    y = (torch.rand(400, generator=rng) < 0.5).long()
    x = torch.stack([2.0 * y - 1 + 0.5 * torch.randn(400, generator=rng), 4.0 * env - 2], 1)
    samples = DomainSet(x, y, env)
    data = Dataset({"train": samples, "test": samples}, name="made")
    gaps = {}
    for method, own in {"erm": {}, "coral": {"penalty": 10.0}}.items():
        chosen = {"epochs": 20, "widths": (8,), "batch_size": 32, "domains_per_batch": "all", "lr": 0.01}
        run = sp.fit(method, data, selection="last", **chosen, **own)
        with torch.no_grad():
            features = run.method.featurizer(data.train)
        gaps[method] = float((features[env == 0].mean(0) - features[env == 1].mean(0)).square().mean())
        assert run.metrics["test"]["accuracy"] > 0.9
    assert gaps["coral"] < 0.2 * gaps["erm"]
