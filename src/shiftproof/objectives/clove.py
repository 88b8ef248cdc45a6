"""CLOvE: calibrated in every environment."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError
from shiftproof.objectives.risks import as_columns


def mmce(confidence: Tensor, correct: Tensor, width: float = 0.4) -> Tensor:
    r"""Maximum mean calibration error of confidences ([n], in [0, 1]) against correctness ([n], 0 or 1).

    .. math:: \frac1{n^2}\sum_{ij}(c_i-r_i)(c_j-r_j)\,e^{-|r_i-r_j|/\text{width}}

    Never negative, and 0 when every confidence equals its correctness. No gradient flows through `correct`.
    """
    correct = correct.detach().to(confidence.dtype)
    return _kernel_energy((correct - confidence).unsqueeze(0), confidence, width).squeeze(0) / confidence.numel() ** 2


def clove_penalty(logits: Tensor, y: Tensor, env: Tensor, num_envs: int, task: str) -> Tensor:
    r"""Sum over environments of their calibration error, for a binary or multiclass task.

    .. math:: \sum_e \mathrm{MMCE}_e, \qquad r_i = \max_k \hat p_{ik},\quad c_i = 1[\hat y_i = y_i]
    """
    if task not in ("binary", "multiclass"):
        raise ShiftproofError(f"clove_penalty calibrates the task 'binary' or 'multiclass', got '{task}'")
    z, y = as_columns(logits, y, task)
    if task == "binary":
        confidence, correct = z.abs().sigmoid().squeeze(1), ((z > 0) == (y > 0.5)).squeeze(1)
    else:
        confidence, correct = z.softmax(1).amax(1), z.argmax(1) == y
    member = env == torch.arange(num_envs, device=env.device).unsqueeze(1)
    counts = member.sum(1).clamp(min=1).to(confidence.dtype)
    # a sample of another environment has residual 0 and drops out of the double sum
    residual = (correct.to(confidence.dtype) - confidence) * member
    return (_kernel_energy(residual, confidence, 0.4) / counts.square()).sum()


def _kernel_energy(residual: Tensor, confidence: Tensor, width: float) -> Tensor:
    r""":math:`\sum_{ij} d_i d_j e^{-|r_i-r_j|/width}` for each row d of `residual` ([E, n]), in n log n.

    In ascending order of r the kernel of a pair i < j is :math:`e^{r_i/width}\,e^{-r_j/width}`, so the double sum is
    one running sum: a full batch of ColoredMNIST (25,000 samples) needs no mini-batches and no n-by-n matrix.
    """
    if width < 0.01:
        raise ShiftproofError(f"width must be at least 0.01, where the kernel stays finite; got {width}")
    r, order = confidence.sort()
    d = residual[:, order]
    # confidences lie in [0, 1]: centred, the exponents stay within 1/(2 width)
    rising = ((r - 0.5) / width).exp()
    before = torch.cat([torch.zeros_like(d[:, :1]), (d * rising).cumsum(1)[:, :-1]], 1)
    # the kernel is positive definite: below zero there is only rounding, which PAIR's solver would refuse
    return (d.square() + 2 * d * before / rising).sum(1).clamp(min=0)
