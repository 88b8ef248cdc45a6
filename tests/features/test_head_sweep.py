"""Heads trained together take the path each would take alone."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from shiftproof.errors import ShiftproofError
from shiftproof.features import HeadSetting, LinearHeadSweep
from shiftproof.features.sweep import OBJECTIVES, first_head
from shiftproof.objectives import (
    GroupWeights,
    clove_penalty,
    env_risks,
    fishr_penalty,
    iga_penalty,
    irm_penalty,
    irmx_penalty,
    sample_losses,
    vrex_penalty,
)


@dataclass
class Task:
    kind: str
    outputs: int
    n: int = 120
    d: int = 5

    def draw(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        h = torch.randn(self.n, self.d, generator=g, dtype=torch.float64)
        env = torch.randint(0, 3, (self.n,), generator=g)
        if self.kind == "regression":
            return h, h.sum(1) + torch.randn(self.n, generator=g, dtype=torch.float64), env
        return h, torch.randint(0, max(self.outputs, 2), (self.n,), generator=g), env


def alone(setting: HeadSetting, task: Task, h, y, env, *, steps, lr, l2, reduction) -> nn.Linear:
    """One head through autograd and the functions of `objectives`."""
    layer, envs = first_head(setting.seed, task.d, task.outputs).double(), 3
    adam = torch.optim.Adam(layer.parameters(), lr=lr)
    weights = GroupWeights(envs, step=setting.penalty).double()
    penalties = {
        "irm": lambda z, r: irm_penalty(z, y, env, envs, task.kind),
        "ib-irm": lambda z, r: irm_penalty(z, y, env, envs, task.kind),
        "vrex": lambda z, r: vrex_penalty(r),
        "irmx": lambda z, r: irmx_penalty(z, y, env, envs, task.kind),
        "clove": lambda z, r: clove_penalty(z, y, env, envs, task.kind),
        "iga": lambda z, r: iga_penalty(r, list(layer.parameters())),
        "fishr": lambda z, r: fishr_penalty(h, z, y, env, envs, task.kind, centred=False),
    }
    for _ in range(steps):
        z = layer(h).squeeze(1) if task.outputs == 1 else layer(h)
        losses = sample_losses(z, y, task.kind)
        risks, _ = env_risks(losses, env, envs)
        loss = l2 * sum(p.square().sum() for p in layer.parameters())
        if setting.objective == "erm":
            loss = loss + losses.mean()
        elif setting.objective == "groupdro":
            loss = loss + weights(risks)
        else:
            loss = loss + (risks.sum() if reduction == "sum" else risks.mean())
            loss = loss + setting.penalty * penalties[setting.objective](z, risks)
            loss = loss / max(1.0, setting.penalty)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return layer


TASKS = [Task("binary", 1), Task("multiclass", 4), Task("regression", 1)]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(
    "task", [Task("binary", 1), Task("multiclass", 4), Task("regression", 1)], ids=lambda t: t.kind
)
def test_heads_trained_together_are_those_trained_alone(task, reduction):
    h, y, env = task.draw()
    known = tuple(name for name in OBJECTIVES if task.kind != "regression" or name != "clove")
    chosen = {"lr": 1e-2, "l2": 1e-3, "reduction": reduction}
    swept = LinearHeadSweep(
        objectives=known, penalties=(0.5, 100.0), seeds=(0, 3), steps=(5, 15), clove_batch=None, block=32, **chosen
    ).fit(h, y, env, task=task.kind)
    assert len(swept.settings) == len(known) * 4
    for number, setting in enumerate(swept.settings):
        for place, steps in enumerate(swept.steps):
            ours, theirs = swept.head(number, place), alone(setting, task, h, y, env, steps=steps, **chosen)
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8, msg=f"{setting} after {steps}")


def test_a_head_does_not_depend_on_those_beside_it_even_where_batches_are_random():
    h, y, env = Task("binary", 1).draw()
    sweep = {"steps": 10, "clove_batch": 16}
    together = LinearHeadSweep(penalties=(1.0, 1e3), seeds=(0, 1), **sweep).fit(h, y, env)
    for number in (0, 5, 21, len(together.settings) - 1):
        single = LinearHeadSweep(settings=(together.settings[number],), **sweep).fit(h, y, env)
        torch.testing.assert_close(single.head(0).weight, together.head(number).weight, rtol=1e-9, atol=1e-12)


def test_settings_with_the_same_result_are_trained_once():
    h, y, env = Task("binary", 1).draw()
    swept = LinearHeadSweep(objectives=("erm", "irm", "ib-irm"), penalties=(1.0, 10.0), steps=2).fit(h, y, env)
    assert len(swept.settings) == 6
    assert swept.weight.shape[1] == 3
    assert torch.equal(swept.head(2).weight, swept.head(4).weight)


def test_accuracy_is_counted_by_environment():
    h, y, env = Task("multiclass", 4).draw()
    swept = LinearHeadSweep(objectives=("erm", "vrex"), penalties=(1.0,), steps=(1, 20)).fit(h, y, env)
    found = swept.accuracy(h, y, env)
    assert found.shape == (2, 2, 3)
    for step in (0, 1):
        for number in (0, 1):
            right = (swept.head(number, step)(h).argmax(1) == y).double()
            expected = torch.stack([right[env == e].mean() for e in range(3)])
            torch.testing.assert_close(found[step, number], expected)


def test_what_cannot_be_swept_is_one_sentence():
    h, y, env = Task("regression", 1).draw()
    with pytest.raises(ShiftproofError, match="the objective 'clove' calibrates classes"):
        LinearHeadSweep(objectives=("clove",)).fit(h, y, env, task="regression")
    with pytest.raises(ShiftproofError, match="unknown objective 'vrx'; did you mean 'vrex'"):
        LinearHeadSweep(objectives=("vrx",))
    with pytest.raises(ShiftproofError, match=r"takes features \[n, d\]"):
        LinearHeadSweep().fit(h[0], y, env)
