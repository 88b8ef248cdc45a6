"""Supervised contrastive losses: draw the representations of one class together."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.errors import ShiftproofError, unknown

VARIANTS = ("mul", "var", "single", "cnc", "cncp", "cnc-original")
DENOMINATORS = ("all", "negatives")


def supervised_contrastive(
    z: Tensor,
    y: Tensor,
    *,
    temperature: float = 1.0,
    denominator: str = "all",
    variant: str = "mul",
    predicted: Tensor | None = None,
) -> Tensor:
    r"""How badly samples of one class (`y`, [n] integers) are told from the rest by their representations `z` ([n, d]).

    With rows of z normalised, :math:`S=zz^\top/\tau`, positives :math:`P(i)` and V the anchors that have some,

    .. math:: -\frac1{|V|}\sum_{i\in V}\frac1{|P(i)|}\sum_{j\in P(i)}\Big[S_{ij}-\log\sum_{a\in D(i)}e^{S_{ia}}\Big]

    - `"mul"`: positives are the others of the class, D(i) all others; CIGA's term;
    - `"var"`: the same, plus the variance over anchors of the inner mean;
    - `"single"`: the mean of :math:`S_{in}-S_{ip}`, with p the last sample of the class (the anchor itself, where it is
      the last) and n the last of another class;
    - `"cnc"` (Correct-N-Contrast on mini-batches): positives are those of the class that were predicted wrong, D(i)
      these and the samples of other classes that were predicted right; where the batch holds no positive (or no
      negative) at all, every other sample of the class (of the other classes) is one;
    - `"cncp"`: the same with all samples of other classes as negatives;
    - `"cnc-original"`: anchors were predicted right, positives share the class but not the prediction, negatives the
      prediction but not the class.

    `denominator="negatives"` (for `mul` and `var`) is the formula printed in the paper: D holds the one positive and
    the other classes (docs/papers/ciga.md#d5). The `cnc` variants need `predicted`, the stage-1 predictions. A batch
    without positives gives 0, connected to the graph.
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    if denominator not in DENOMINATORS:
        raise unknown("denominator", denominator, DENOMINATORS)
    if denominator == "negatives" and variant not in ("mul", "var"):
        raise ShiftproofError(f"denominator 'negatives' goes with variant 'mul' or 'var', not '{variant}'")
    if y.numel() != z.shape[0]:
        raise ShiftproofError(f"y must hold one class a sample: expected {z.shape[0]} labels, got {tuple(y.shape)}")
    y = y.reshape(-1)
    same = y.unsqueeze(1) == y.unsqueeze(0)
    if variant == "single":
        return _single(_similarity(z, temperature), same)
    others = ~torch.eye(y.shape[0], dtype=torch.bool, device=y.device)
    if variant in ("mul", "var"):
        positives = same & others
        similarity = _similarity(z, temperature)
        if denominator == "all":
            log_prob = similarity - _masked_logsumexp(similarity, others)
        else:
            log_prob = similarity - torch.logaddexp(similarity, _masked_logsumexp(similarity, ~same))
        return _over_anchors(log_prob, positives, variance=variant == "var")
    if predicted is None:
        raise ShiftproofError(f"variant '{variant}' needs predicted, the stage-1 prediction of every sample")
    predicted = predicted.reshape(-1)
    right = predicted == y
    if variant == "cnc-original":
        agree = predicted.unsqueeze(1) == predicted.unsqueeze(0)
        positives = same & ~agree & right.unsqueeze(1)
        return pair_contrast(z, positives, positives | (~same & agree), temperature=temperature)
    positives = same & others & ~right
    positives = torch.where(positives.any(), positives, same & others)
    negatives = ~same & right if variant == "cnc" else ~same
    negatives = torch.where(negatives.any(), negatives, ~same)
    return pair_contrast(z, positives, positives | negatives, temperature=temperature)


def pair_contrast(z: Tensor, positives: Tensor, candidates: Tensor, *, temperature: float = 1.0) -> Tensor:
    r"""The contrastive loss over pairs of your choice: positives P and candidates D are [n, n] masks, row i the anchor.

    .. math:: -\frac1{|V|}\sum_{i\in V}\frac1{|P(i)|}\sum_{j\in P(i)}\Big[S_{ij}-\log\sum_{a\in D(i)}e^{S_{ia}}\Big],
        \qquad V=\{i: P(i)\ne\emptyset\}

    An anchor with positives but without candidates has nothing to be told from and is left out.
    """
    similarity = _similarity(z, temperature)
    usable = positives & candidates.any(1, keepdim=True)
    return _over_anchors(similarity - _masked_logsumexp(similarity, candidates), usable)


def _similarity(z: Tensor, temperature: float) -> Tensor:
    z = F.normalize(z, dim=1)
    return z @ z.T / temperature


def _masked_logsumexp(values: Tensor, mask: Tensor) -> Tensor:
    """Row-wise log-sum-exp over the masked-in entries, [n, 1]; -inf, with gradient 0, for a row without any.

    (torch.logsumexp has a NaN gradient there, and a batch of one graph is such a row.)
    """
    kept = values.masked_fill(~mask, -torch.inf)
    some = mask.any(1, keepdim=True)
    top = torch.where(some, kept.detach().amax(1, keepdim=True), 0)
    total = (kept - top).exp().sum(1, keepdim=True)
    return torch.where(some, top + torch.where(some, total, 1).log(), -torch.inf)


def _over_anchors(log_prob: Tensor, positives: Tensor, variance: bool = False) -> Tensor:
    """Minus the mean over anchors of the mean over their positives, plus its population variance where asked for."""
    count = positives.sum(1)
    anchors = count > 0
    num_anchors = anchors.sum().clamp(min=1)
    inner = log_prob.masked_fill(~positives, 0).sum(1) / count.clamp(min=1)
    mean = inner.sum() / num_anchors
    if not variance:
        return -mean
    return -mean + (inner - mean).square().masked_fill(~anchors, 0).sum() / num_anchors


def _single(similarity: Tensor, same: Tensor) -> Tensor:
    n = same.shape[0]
    place = torch.arange(n, device=same.device)
    positive = torch.where(same, place, -1).amax(1)
    negative = torch.where(same, -1, place).amax(1)
    usable = negative >= 0
    margin = similarity[place, positive] - similarity[place, negative.clamp(min=0)]
    return -margin.masked_fill(~usable, 0).sum() / usable.sum().clamp(min=1)
