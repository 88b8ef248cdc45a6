"""Linear heads for many objectives, penalties and seeds, trained together on cached features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Split, Task
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.features.head_gradients import HeadGradients, Samples
from shiftproof.training.capture import capture_if_possible
from shiftproof.training.optimizers import LeanAdam

OBJECTIVES = ("erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr", "groupdro")
CPU_BLOCK = 2048  # rows whose logits for a few hundred heads stay in the cache
EVALUATION_BLOCK = 8192


@dataclass(frozen=True)
class HeadSetting:
    """One head of a sweep. `penalty` is the weight of the penalty, for "groupdro" the rate of its weights."""

    objective: str
    penalty: float
    seed: int

    @property
    def trained_as(self) -> HeadSetting:
        """The setting with the same result: ERM has no penalty, and with fixed features IB-IRM is IRM."""
        if self.objective == "erm":
            return HeadSetting("erm", 0.0, self.seed)
        return HeadSetting("irm", self.penalty, self.seed) if self.objective == "ib-irm" else self


@dataclass(frozen=True, eq=False)
class HeadSweep:
    """Trained heads: `weight` [steps, heads, C, d] and `bias` [steps, heads, C] of `settings` after each of `steps`."""

    settings: tuple[HeadSetting, ...]
    steps: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    place: tuple[int, ...] = ()  # where each setting's weights stand: settings with the same result share them

    def head(self, number: int, step: int = -1) -> nn.Linear:
        """One head as a linear layer; `step` counts within `steps`, the last by default."""
        weight, bias = self.weight[step, self.place[number]], self.bias[step, self.place[number]]
        layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device, dtype=weight.dtype)
        layer.load_state_dict({"weight": weight, "bias": bias})
        return layer

    @torch.no_grad()
    def accuracy(self, features: Tensor, y: Tensor, env: Tensor | None = None) -> Tensor:
        """The accuracy of every head in every environment, [steps, heads, environments]."""
        env = torch.zeros(len(y), dtype=torch.long, device=y.device) if env is None else env.long()
        envs = int(env.max()) + 1
        steps, heads, outputs, d = self.weight.shape
        weight = self.weight.permute(3, 0, 1, 2).reshape(d, -1)
        right = torch.zeros(envs, steps * heads, dtype=torch.float64, device=features.device)
        for start in range(0, len(y), EVALUATION_BLOCK):
            rows = slice(start, start + EVALUATION_BLOCK)
            z = torch.addmm(self.bias.reshape(-1), features[rows], weight).view(-1, steps * heads, outputs)
            label = y[rows].reshape(-1, 1)
            hit = (z.squeeze(-1) > 0) == (label > 0.5) if outputs == 1 else z.argmax(-1) == label
            right.index_add_(0, env[rows], hit.to(right.dtype))
        counts = torch.bincount(env, minlength=envs).clamp(min=1).to(right.dtype)
        found = (right / counts.unsqueeze(1)).T.reshape(steps, heads, envs)
        return found[:, list(self.place)]


@dataclass(kw_only=True)
class LinearHeadSweep:
    r"""Train a linear head for every objective, penalty and seed at once on features that do not change.

    .. math:: \Big(\sum_e R_e + \lambda_2\lVert\theta\rVert^2 + \lambda P\Big)\big/\max(1,\lambda)

    The heads are the columns of one matrix: a step is one product for the logits and one for the gradients, whatever
    the number of heads, and each head's path is the one it would take alone. Full batch, Adam.

    - `steps`: how long, or several numbers: the heads after each of them are kept.
    - `l2`: for all objectives, or by objective. `reduction`: "sum" or "mean" of the environments' risks; ERM always
      minimises the mean over all samples. `rescale` divides a loss by its penalty where that is above 1.
    - `clove_batch`: CLOvE's calibration error is taken on one random mini-batch of this size an environment and step,
      as in the released code; None takes all samples.
    - `start`: "xavier" with zero biases, or torch's own "default". Seeds differ in nothing but this.
    - `replay`: on a GPU a step is captured once and replayed, and no step waits for the host.

    >>> import torch
    >>> from shiftproof.features import LinearHeadSweep
    >>> h, y, env = torch.randn(60, 4), torch.arange(60) % 2, torch.arange(60) // 30
    >>> swept = LinearHeadSweep(objectives=("erm", "irm"), penalties=(1.0, 10.0), seeds=(0, 1), steps=5).fit(h, y, env)
    >>> len(swept.settings), tuple(swept.accuracy(h, y, env).shape)
    (8, (1, 8, 2))
    """

    objectives: tuple[str, ...] = ("erm", "irm", "vrex", "irmx", "ib-irm", "clove", "iga", "fishr")
    penalties: tuple[float, ...] = (1e1, 1e2, 1e3, 1e4, 1e5)
    seeds: tuple[int, ...] = (0,)
    steps: int | tuple[int, ...] = 1000
    lr: float = 1e-3
    l2: float | Mapping[str, float] = 0.0
    reduction: Literal["sum", "mean"] = "sum"
    rescale: bool = True
    clove_batch: int | None = 512
    start: Literal["xavier", "default"] = "xavier"
    block: int | None = None
    replay: bool = True
    settings: tuple[HeadSetting, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for objective in {*self.objectives, *(s.objective for s in self.settings)}:
            if objective not in OBJECTIVES:
                raise unknown("objective", objective, OBJECTIVES)
        if self.reduction not in ("sum", "mean"):
            raise unknown("reduction", self.reduction, ("sum", "mean"))

    def fit(
        self,
        features: Tensor,
        y: Tensor,
        env: Tensor | None = None,
        *,
        task: Task | None = None,
        num_outputs: int | None = None,
    ) -> HeadSweep:
        """Train on features [n, d], labels and environments; task and logits follow from the labels if not given.

        Two classes without a task are a binary one, with one logit.
        """
        if features.dim() != 2 or len(features) != len(y):
            raise ShiftproofError(f"a sweep takes features [n, d], got {tuple(features.shape)} for {len(y)} labels")
        if task == "multilabel":
            raise ShiftproofError("heads are swept for a binary, multiclass or regression task, not 'multilabel'")
        linear = task == "regression"
        if linear and "clove" in (*self.objectives, *(s.objective for s in self.settings)):
            raise ShiftproofError("the objective 'clove' calibrates classes, and the task is 'regression'")
        classes = 1 if linear else int(y.max()) + 1
        outputs = num_outputs or (1 if task == "binary" or (task is None and classes <= 2) else classes)
        env = torch.zeros(len(y), dtype=torch.long, device=features.device) if env is None else env
        settings = self.settings or tuple(
            HeadSetting(*chosen) for chosen in product(self.objectives, self.penalties, self.seeds)
        )
        unique = sorted(
            {s.trained_as for s in settings}, key=lambda s: (OBJECTIVES.index(s.objective), s.penalty, s.seed)
        )
        weight, bias = self._begin(unique, features, outputs)
        gradients, scale, l2 = self._gradients(unique, Samples.of(features, y, env, outputs, linear), outputs, linear)
        wanted = sorted({self.steps} if isinstance(self.steps, int) else set(self.steps))
        kept_weight, kept_bias = [], []
        adam = LeanAdam([weight, bias], lr=self.lr)
        shrink = (2 * l2).view(-1, 1)

        def move() -> Tensor:
            grad, grad_bias = gradients(weight, bias)
            weight.grad = grad.addcmul_(shrink, weight).div_(scale.view(-1, 1))
            bias.grad = grad_bias.addcmul_(shrink, bias).div_(scale.view(-1, 1))
            adam.step()
            return bias.grad

        with torch.no_grad():
            captured = None
            if self._replays(features):
                moved = [weight, bias, *gradients.state]
                captured = capture_if_possible(move, "a step of these heads", tensors=moved, optimizer=adam)
            for step in range(1, wanted[-1] + 1):
                gradients.draw()
                if captured is None:
                    move()
                else:
                    captured()
                if step in wanted:
                    kept_weight.append(weight.detach().permute(1, 2, 0).clone())
                    kept_bias.append(bias.detach().clone())
        place = tuple(unique.index(s.trained_as) for s in settings)
        return HeadSweep(settings, tuple(wanted), torch.stack(kept_weight), torch.stack(kept_bias), place)

    def _replays(self, features: Tensor) -> bool:
        return self.replay and features.device.type == "cuda"

    def _begin(self, unique: list[HeadSetting], features: Tensor, outputs: int) -> tuple[nn.Parameter, nn.Parameter]:
        """The starting weights, [d, heads, C], equal for equal seeds."""
        layers = {seed: first_head(seed, features.shape[1], outputs, self.start) for seed in {s.seed for s in unique}}
        weight = torch.stack([layers[s.seed].weight.detach() for s in unique])
        bias = torch.stack([layers[s.seed].bias.detach() for s in unique])
        return (
            nn.Parameter(weight.permute(2, 0, 1).contiguous().to(features)),
            nn.Parameter(bias.to(features)),
        )

    def _gradients(
        self, unique: list[HeadSetting], samples: Samples, outputs: int, linear: bool
    ) -> tuple[HeadGradients, Tensor, Tensor]:
        """The gradients of all heads, and what each head's loss is divided by and its L2 factor."""
        names = [s.objective for s in unique]
        heads = {name: slice(names.index(name), names.index(name) + names.count(name)) for name in dict.fromkeys(names)}
        n, envs = len(samples.h), samples.envs
        each = samples.h.new_full((envs,), 1.0 if self.reduction == "sum" else 1 / envs)
        pooled = samples.h.new_tensor([samples.count(env) / n for env in range(envs)])
        penalty = samples.h.new_tensor([s.penalty for s in unique])
        l2 = [self.l2 if isinstance(self.l2, (int, float)) else self.l2.get(name, 0.0) for name in names]
        plain = torch.tensor([name in ("erm", "groupdro") for name in names], device=penalty.device)
        scale = torch.where(plain | (not self.rescale), torch.ones_like(penalty), penalty.clamp(min=1))
        block = self.block or (CPU_BLOCK if samples.h.device.type == "cpu" else n)
        made = HeadGradients(
            samples,
            heads,
            penalty,
            {name: pooled if name == "erm" else each for name in heads},
            outputs,
            block,
            self.clove_batch,
            linear,
        )
        return made, scale, samples.h.new_tensor(l2)


def first_head(seed: int, features: int, outputs: int, start: str = "xavier") -> nn.Linear:
    """The untrained head of a seed, as every objective of a sweep begins."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        layer = nn.Linear(features, outputs)
        if start == "xavier":
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return layer


@torch.no_grad()
def cache_features(featurizer: nn.Module, split: Split, *, by_batch: bool | None = None, size: int = 4096) -> Tensor:
    """The features of every sample of a split, in evaluation mode, [n, d]; graphs are passed as batches."""
    from shiftproof.data.graphs import GraphSet

    whole = isinstance(split, GraphSet) if by_batch is None else by_batch
    mode = featurizer.training
    featurizer.eval()
    found = torch.cat([featurizer(batch if whole else batch.x) for batch in split.batches(size)])
    featurizer.train(mode)
    return found
