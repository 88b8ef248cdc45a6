"""GALA's contrast: same label but another proxy together, another label but the same proxy apart."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.errors import unknown
from shiftproof.objectives.contrastive import _masked_logsumexp, _over_anchors, _similarity

PROXY_DENOMINATORS = ("pairs", "infonce")


def proxy_pairs(y: Tensor, proxy: Tensor) -> tuple[Tensor, Tensor]:
    r"""Which samples an anchor is drawn to and which it is told from, two [n, n] masks.

    .. math:: P(i)=\{j: y_j=y_i, a_j\ne a_i\}, \qquad N(i)=\{j: y_j\ne y_i, a_j=a_i\}
    """
    same_label = y.reshape(-1, 1) == y.reshape(1, -1)
    same_proxy = proxy.reshape(-1, 1) == proxy.reshape(1, -1)
    return same_label & ~same_proxy, ~same_label & same_proxy


def proxy_contrast(
    z: Tensor,
    y: Tensor,
    proxy: Tensor,
    *,
    anchors: Tensor | None = None,
    weight: Tensor | None = None,
    temperature: float = 1.0,
    denominator: str = "pairs",
) -> Tensor:
    r"""How badly representations `z` ([n, d]) show the label `y` ([n]) rather than the proxy ([n] ids).

    .. math:: -\frac1{|V|}\sum_{i\in V}\frac1{|P(i)|}\sum_{p\in P(i)}
        \Big[s_{ip}-\log\sum_{j\in P(i)\cup N(i)}e^{s_{ij}}\Big], \qquad V=\{i: P(i)\ne\emptyset\}

    with the pairs of `proxy_pairs` and cosines s over the temperature. Where the batch holds no positive pair at all,
    every other sample of the class is one; where it holds no pair of either kind, the denominator runs over all others:
    both together are CIGA's term (docs/papers/gala.md#contrast). `anchors` ([n] mask, one-sided sampling) keeps some
    rows only and has no such fall-back. `weight` ([n], above 0) counts a sample that many times, as an anchor and as a
    partner, so that a third undoes three copies. `denominator="infonce"` is the printed formula: the one positive and
    all other classes.
    """
    if denominator not in PROXY_DENOMINATORS:
        raise unknown("denominator", denominator, PROXY_DENOMINATORS)
    positives, negatives = proxy_pairs(y, proxy)
    candidates = positives | negatives
    same = y.reshape(-1, 1) == y.reshape(1, -1)
    if anchors is None:
        others = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
        candidates = torch.where(candidates.any(), candidates, others)
        positives = torch.where(positives.any(), positives, same & others)
    else:
        positives = positives & anchors.reshape(-1, 1)
    similarity = _similarity(z, temperature)
    counted = similarity if weight is None else similarity + weight.log()
    if denominator == "pairs":
        positives = positives & candidates.any(1, keepdim=True)
        log_prob = similarity - _masked_logsumexp(counted, candidates)
    else:
        log_prob = similarity - torch.logaddexp(similarity, _masked_logsumexp(counted, ~same))
    return _over_anchors(log_prob, positives) if weight is None else _over_weighted(log_prob, positives, weight)


def _over_weighted(log_prob: Tensor, positives: Tensor, weight: Tensor) -> Tensor:
    """Minus the weighted mean over anchors of the weighted mean over their positives."""
    shares = positives * weight
    total = shares.sum(1)
    some = total > 0
    inner = (log_prob.masked_fill(~positives, 0) * shares).sum(1) / total.masked_fill(~some, 1)
    anchors = weight * some
    return -(inner * anchors).sum() / anchors.sum().masked_fill(~some.any(), 1)
