"""The two-layer CNN of the feature-learning theory, trained by ERM and IRMv1 with closed-form gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.domains import DomainSet
from shiftproof.data.generated.two_patch import two_patch
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.segment import segment_count, segment_sum

Activation = Literal["identity", "tanh", "softplus", "relu", "square"]
_ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "relu": torch.relu,
    "square": torch.square,
}


class PatchCNN(nn.Module):
    r"""A network of `2 * width` filters of which the second layer is fixed.

    .. math:: f(x) = \sum_{j=\pm1} \frac{j}{m}\sum_{r=1}^m \big[\psi(w_{j,r}^T x_1) + \psi(w_{j,r}^T x_2)\big]

    `weight` is [2, width, d], the filters of j = 1 first, drawn from :math:`N(0, \sigma_0^2)`.
    """

    def __init__(
        self,
        d: int,
        width: int = 10,
        *,
        activation: Activation = "identity",
        scale: float = 0.01,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            raise unknown("activation", activation, _ACTIVATIONS)
        self.activation = activation
        self.weight = nn.Parameter(scale * torch.randn(2, width, d, generator=generator, dtype=dtype))
        self.register_buffer("start", self.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Logits of samples [n, 2, d]."""
        hidden = _ACTIVATIONS[self.activation](torch.einsum("npd,jrd->njrp", x.to(self.weight), self.weight))
        positive, negative = hidden.sum(3).mean(2).unbind(1)
        return positive - negative

    def effective(self) -> Tensor:
        r"""For the linear activation, :math:`u = \sum_j \frac jm\sum_r w_{j,r}`: the logit is :math:`u^T(x_1+x_2)`."""
        return self.weight[0].mean(0) - self.weight[1].mean(0)

    def feature_terms(self) -> tuple[Tensor, Tensor]:
        r"""How far every filter has learned the two features: :math:`\langle w_{j,r}, j v_1\rangle` and
        :math:`\langle w_{j,r}, j v_2\rangle`, each [2, width].
        """
        sign = self.weight.new_tensor([1.0, -1.0]).view(2, 1)
        return sign * self.weight[..., 0].detach(), sign * self.weight[..., 1].detach()

    @torch.no_grad()
    def decompose(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""Invariant, spurious and noise coefficients of the filters since the start.

        .. math:: w_{j,r}(t) = w_{j,r}(0) + j\gamma^{inv}v_1 + j\gamma^{spu}v_2
                  + \sum_i \rho_{j,r,i}\lVert\xi_i\rVert^{-2}\xi_i

        for noise patches [n, d]: [2, width], [2, width] and [2, width, n] (least squares where it is not unique).
        """
        moved = self.weight - self.start  # type: ignore[operator]
        sign = moved.new_tensor([1.0, -1.0]).view(2, 1)
        basis = noise.to(moved) / noise.to(moved).square().sum(1, keepdim=True)
        rest = moved[..., 2:].reshape(-1, moved.shape[-1] - 2)
        rho = torch.linalg.lstsq(basis[:, 2:].T, rest.T, driver="gelsd" if rest.device.type == "cpu" else None).solution
        return sign * moved[..., 0], sign * moved[..., 1], rho.T.reshape(*moved.shape[:2], -1)


@dataclass(frozen=True, eq=False)
class PatchSamples:
    """Two-patch samples in double precision: patches [n, 2, d], their sums [n, d], signs, environments and counts."""

    x: Tensor
    summed: Tensor
    sign: Tensor
    env: Tensor
    counts: Tensor

    @classmethod
    def of(cls, data: DomainSet) -> PatchSamples:
        if data.env is None or "sign" not in data.columns:
            raise ShiftproofError("two-patch samples have environments and a column 'sign'; load them as 'two-patch'")
        x = data.x.double()
        return cls(
            x, x.sum(1), data.columns["sign"].double(), data.env, segment_count(data.env, data.num_envs, x.dtype)
        )

    def means(self, values: Tensor) -> Tensor:
        """The mean of values in each environment."""
        return segment_sum(values, self.env, len(self.counts)) / self.counts


def scale_gradients(logits: Tensor, samples: PatchSamples) -> Tensor:
    r"""IRMv1's scalar gradient in each environment for labels of -1 and 1.

    .. math:: C^e = \frac1{n_e}\sum_i \ell'(y_i\hat y_i)\,y_i\hat y_i = \frac{d}{ds}L_e(s f)\big|_{s=1}
    """
    margin = samples.sign * logits
    return samples.means(-torch.sigmoid(-margin) * margin)


def irm_gradient(model: PatchCNN, samples: PatchSamples, penalty: float) -> Tensor:
    r"""The gradient of :math:`\sum_e L_e + \lambda\sum_e (C^e)^2` in the filters, for the linear activation.

    .. math:: \nabla_{w_{j,r}} = \sum_e\frac{j}{n_e m}\sum_i\big[(1+2\lambda C^e)\,\ell'_i y_i
              + 2\lambda C^e\,\ell''_i\hat y_i\big](x_{i,1}+x_{i,2})

    One product with the summed patches; all filters of one sign share it.
    """
    logits = samples.summed @ model.effective().detach()
    first = -torch.sigmoid(-samples.sign * logits)
    second = -first * (1 + first)
    pull = 2 * penalty * samples.means(first * samples.sign * logits)
    weight = (1 + pull)[samples.env] * first * samples.sign + pull[samples.env] * second * logits
    shared = (weight / samples.counts[samples.env]) @ samples.summed / model.weight.shape[1]
    return torch.stack([shared, -shared]).unsqueeze(1).expand_as(model.weight)


@dataclass(frozen=True, eq=False)
class FeatureHistory:
    """What was recorded before every step and after the last: one row a record.

    `scale` are the :math:`C^e`, `invariant` and `spurious` the mean inner products of the filters with the two
    features, `train` and `test` accuracies. `pretrained` is the number of ERM steps that come first.
    """

    scale: Tensor
    invariant: Tensor
    spurious: Tensor
    train: Tensor
    test: Tensor
    pretrained: int
    model: PatchCNN


def simulate_feature_learning(
    *,
    alpha: float = 0.25,
    betas: Sequence[float] = (0.1, 0.2),
    per_env: int = 2500,
    d: int = 20,
    noise: float = 0.01,
    width: int = 10,
    activation: Activation = "identity",
    scale: float = 0.01,
    penalty: float = 1e8,
    erm_steps: int = 1000,
    irm_steps: int = 1000,
    erm_step: float = 1.0,
    irm_step: float | None = None,
    seed: int = 0,
) -> FeatureHistory:
    r"""Gradient descent on two-patch data: first ERM, then IRMv1 with the step :math:`\eta/\lambda`.

    `erm_steps=0` starts IRMv1 from scratch. Width, dimension and steps are our choice
    (docs/papers/feat.md#two-patch-data); IRMv1 is stable up to a step of about :math:`20/\lambda`.
    """
    data = two_patch(alpha, tuple(betas), per_env, d, noise, seed)
    train, test = (PatchSamples.of(part) for part in (data.train, data.test))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    model = PatchCNN(d, width, activation=activation, scale=scale, generator=generator)
    sizes = [erm_step] * erm_steps + [irm_step or erm_step / penalty] * irm_steps
    records = []
    for t in range(len(sizes) + 1):
        with torch.no_grad():
            logits = [_logits(model, part) for part in (train, test)]
        inv, spu = (term.mean() for term in model.feature_terms())
        right = [(z * part.sign > 0).double().mean() for z, part in zip(logits, (train, test), strict=True)]
        records.append((scale_gradients(logits[0], train), inv, spu, *right))
        if t < len(sizes):
            gradient = _gradient(model, train, penalty if t >= erm_steps else 0.0)
            with torch.no_grad():
                model.weight.sub_(gradient, alpha=sizes[t])
    columns = [torch.stack(column) for column in zip(*records, strict=True)]
    return FeatureHistory(*columns, pretrained=erm_steps, model=model)


def _logits(model: PatchCNN, samples: PatchSamples) -> Tensor:
    return samples.summed @ model.effective() if model.activation == "identity" else model(samples.x)


def _gradient(model: PatchCNN, samples: PatchSamples, penalty: float) -> Tensor:
    if model.activation == "identity":
        return irm_gradient(model, samples, penalty)
    logits = model(samples.x)
    risks = samples.means(F.softplus(-samples.sign * logits))
    loss = risks.sum() + penalty * scale_gradients(logits, samples).square().sum()
    return torch.autograd.grad(loss, model.weight)[0]
