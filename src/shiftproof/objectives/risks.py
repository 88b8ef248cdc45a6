"""Losses of samples, risks of environments."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.objectives.segments import env_means, full_precision, mean_over_present

TASKS = ("multiclass", "binary", "multilabel", "regression")


def as_columns(logits: Tensor, y: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Logits as [n, C] and labels to match ([n] classes for multiclass, else [n, C]); shapes that cannot fit raise.

    An [n] prediction against an [n, 1] label would broadcast to n-by-n without a word, so both are aligned here.
    """
    if task not in TASKS:
        raise unknown("task", task, TASKS)
    logits = full_precision(logits)
    if task == "multiclass":
        if logits.dim() != 2 or y.numel() != logits.shape[0]:
            raise ShiftproofError(
                f"task 'multiclass' needs logits [n, C] and labels [n], got {tuple(logits.shape)} and {tuple(y.shape)}"
            )
        return logits, y.reshape(-1).long()
    if task == "multilabel":
        if logits.dim() != 2 or y.shape != logits.shape:
            raise ShiftproofError(
                f"task 'multilabel' needs logits and labels [n, C], got {tuple(logits.shape)} and {tuple(y.shape)}"
            )
        return logits, y.to(logits.dtype)
    if logits.numel() != logits.shape[0] or y.numel() != logits.shape[0]:
        raise ShiftproofError(
            f"task '{task}' needs one logit and one label a sample, got {tuple(logits.shape)} and {tuple(y.shape)}"
        )
    return logits.reshape(-1, 1), y.reshape(-1, 1).to(logits.dtype)


def _known(y: Tensor) -> tuple[Tensor, Tensor]:
    """Labels with 0 in place of NaN, and each label's weight in the mean over the known ones of its row."""
    known = ~y.isnan()
    weight = known.to(y.dtype) / known.sum(1, keepdim=True).clamp(min=1)
    # a NaN times a zero weight is NaN again, so it has to go before the loss is formed
    return y.masked_fill(~known, 0), weight


def sample_losses(logits: Tensor, y: Tensor, task: str) -> Tensor:
    r"""The loss of every sample, [n].

    ============ ==================================================================================
    task          loss of sample i
    ============ ==================================================================================
    multiclass    :math:`-\log\operatorname{softmax}(z_i)_{y_i}`; logits [n, C], integer labels
    binary        :math:`-y_i\log\sigma(z_i)-(1-y_i)\log\sigma(-z_i)`; logits [n] or [n, 1], labels 0 or 1
    multilabel    mean of the binary loss over the known (not NaN) columns; a row with none has loss 0
    regression    :math:`(z_i-y_i)^2`, without the half
    ============ ==================================================================================
    """
    z, y = as_columns(logits, y, task)
    if task == "multiclass":
        return F.cross_entropy(z, y, reduction="none")
    if task == "regression":
        return (z - y).square().squeeze(1)
    if task == "binary":
        return F.binary_cross_entropy_with_logits(z, y, reduction="none").squeeze(1)
    y, weight = _known(y)
    return (F.binary_cross_entropy_with_logits(z, y, reduction="none") * weight).sum(1)


def logit_gradients(logits: Tensor, y: Tensor, task: str) -> Tensor:
    r"""Gradient of every sample's loss in its own logits, [n, C], in closed form and itself differentiable.

    .. math:: \partial\ell_i/\partial z_i =
        \operatorname{softmax}(z_i)-\mathrm{onehot}(y_i),\quad \sigma(z_i)-y_i,\quad 2(z_i-y_i)

    for multiclass, binary and multilabel (there over the known columns, divided by their number), and regression.
    IRM's dummy gradient and Fishr's head gradients are products with it, so neither needs double back-propagation.
    """
    z, y = as_columns(logits, y, task)
    if task == "multiclass":
        p = z.softmax(1)
        return p - torch.zeros_like(p).scatter(1, y.unsqueeze(1), 1.0)
    if task == "regression":
        return 2 * (z - y)
    if task == "binary":
        return z.sigmoid() - y
    y, weight = _known(y)
    return (z.sigmoid() - y) * weight


def env_risks(losses: Tensor, env: Tensor, num_envs: int) -> tuple[Tensor, Tensor]:
    r"""Mean loss in each environment and its number of samples, `(risks[E], counts[E])`.

    .. math:: R_e = \frac1{n_e}\sum_{i:\,e_i=e}\ell_i

    An environment without samples has risk 0 and count 0; pass the counts on to the penalties, which leave it out.
    """
    return env_means(losses, env, num_envs)


def mean_risk(
    losses: Tensor, env: Tensor | None = None, num_envs: int | None = None, reduction: str = "mean"
) -> Tensor:
    r"""Mean over the present environments of their risks, so that a small environment counts as much as a large one.

    .. math:: \frac{1}{|\mathcal E|}\sum_{e\in\mathcal E} R_e

    `reduction="sum"` leaves out the division: the ERM term of the released ColoredMNIST baselines
    (docs/papers/pair.md#objectives). Without `env` the batch is one environment.
    """
    if reduction not in ("mean", "sum"):
        raise unknown("reduction", reduction, ("mean", "sum"))
    if env is None:
        return losses.mean()
    if num_envs is None:
        raise ShiftproofError("mean_risk needs num_envs, the number of environments, when env is given")
    risks, counts = env_risks(losses, env, num_envs)
    return risks.sum() if reduction == "sum" else mean_over_present(risks, counts)
