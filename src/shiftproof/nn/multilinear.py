"""The subgraph multilinear extension: what a classifier says on average over random subgraphs.

.. math:: F(α) = \\sum_{S ⊆ E} f(G_S) \\prod_{e ∈ S} α_e \\prod_{e ∉ S} (1 - α_e) = E_{G_c \\sim Bern(α)}[f(G_c)]

A classifier here is a function from edge weights `[E, t]` to logits `[graphs, t, classes]` (or `[graphs, t]` where one
logit tells two classes apart), so that `t` subgraphs go through the network in one pass. `one_by_one` makes one of a
function that takes weights `[E]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shiftproof.errors import ShiftproofError, unknown
from shiftproof.nn.sampling import Draws, bernoulli_draws
from shiftproof.nn.segment import segment_count
from shiftproof.nn.stacking import networks, stacked

Classifier = Callable[[Tensor], Tensor]
Aggregate = Literal["logits", "probs"]
AGGREGATES = ("logits", "probs")
MOST_EDGES_EXACT = 16  # of one graph: 65,536 subgraphs


def one_by_one(classify: Callable[[Tensor], Tensor]) -> Classifier:
    """A classifier of weights `[E, t]` from one of weights `[E]`, by a loop over the samples."""

    def classify_all(weight: Tensor) -> Tensor:
        return torch.stack([classify(weight[:, i]) for i in range(weight.shape[1])], 1)

    return classify_all


def in_chunks(classify: Classifier, weight: Tensor, chunk: int | None, module: nn.Module | None = None) -> Tensor:
    """`classify(weight)`, at most `chunk` samples at a time.

    In training each chunk is computed once more for its gradient, so that memory is that of one chunk. `module` is the
    network inside: its running statistics are moved by the first computation only.
    """
    if chunk is None or chunk >= weight.shape[1]:
        return classify(weight)
    if chunk < 1:
        raise ShiftproofError(f"a chunk holds at least one sample, not {chunk}")
    if stacked() and torch.is_grad_enabled():
        raise ShiftproofError(f"only {chunk} of {weight.shape[1]} samples fit into memory for all networks of a stack")
    parts = weight.split(chunk, dim=1)
    if not torch.is_grad_enabled():
        return torch.cat([classify(part) for part in parts], 1)

    def contexts() -> tuple:
        return nullcontext(), _kept_statistics(module)

    return torch.cat([checkpoint(classify, part, use_reentrant=False, context_fn=contexts) for part in parts], 1)  # type: ignore[misc]


@contextmanager
def _kept_statistics(module: nn.Module | None) -> Iterator[None]:
    """Put the buffers of a network back as they were."""
    before = [] if module is None else [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:  # torch leaves by an exception once it has recomputed what it needs
        for buffer, value in before:
            buffer.data.copy_(value)  # unseen by autograd: no backward pass in training mode reads running statistics


def distribution(logits: Tensor, binary: bool) -> Tensor:
    """Class probabilities; one logit `z` of a binary task gives `(1 - σ(z), σ(z))` in a new last dimension."""
    return torch.stack([(-logits).sigmoid(), logits.sigmoid()], -1) if binary else logits.softmax(-1)


def mean_of_samples(logits: Tensor, aggregate: str, binary: bool) -> Tensor:
    """The logits of a whole from those of its `t` samples, `[graphs, t, ...] -> [graphs, ...]`.

    "logits": their mean; "probs": the logits whose probabilities are the mean of the samples' probabilities.
    """
    if aggregate == "logits":
        return logits.mean(1)
    if aggregate != "probs":
        raise unknown("aggregate", aggregate, AGGREGATES)
    if binary:
        sure, unsure = nn.functional.logsigmoid(logits), nn.functional.logsigmoid(-logits)
        return sure.logsumexp(1) - unsure.logsumexp(1)
    return logits.log_softmax(-1).logsumexp(1) - math.log(logits.shape[1])


def score_gradient(values: Tensor, log_chance: Tensor) -> Tensor:
    """The values `[graphs, t, ...]` of `t` draws, whose mean over the draws gets the gradient of its expectation.

    .. math:: ∇ E[f] ≈ \\tfrac1t \\sum_i \\Big(f_i - \\tfrac{1}{t-1} \\sum_{j ≠ i} f_j\\Big) ∇ \\log p(G_i)

    `log_chance` `[graphs, t]` says how likely each draw was. The other draws of a graph are what each is held against,
    which takes variance away and adds no bias; it takes independent draws, at least two of them.
    """
    count = values.shape[1]
    if count < 2:
        raise ShiftproofError(f"the score gradient holds a draw against others and takes at least two, not {count}")
    fixed = values.detach()
    better = fixed - (fixed.sum(1, keepdim=True) - fixed) / (count - 1)
    carried = log_chance - log_chance.detach()  # zero, with a gradient
    return values + better * carried.view(*carried.shape, *[1] * (values.dim() - 2))


def multilinear_extension(
    classify: Classifier,
    probs: Tensor,
    edge_batch: Tensor,
    num_graphs: int,
    *,
    method: Literal["auto", "exact", "monte_carlo"] = "auto",
    samples: int = 100,
    aggregate: Aggregate = "probs",
    binary: bool = False,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
    draws: Draws = "independent",
) -> Tensor:
    """The expected prediction of each graph when edge `e` is kept with chance `probs[e]`.

    With `aggregate="probs"` predictions are class probabilities `[graphs, classes]` (two columns for a `binary` task),
    with "logits" they are logits. "exact" goes through all subgraphs (at most 16 edges a graph) and is differentiable
    in `probs`; "monte_carlo" is the mean over `samples` draws, without bias; "auto" is exact where it can be. `draws`
    may spread the samples of each edge out ("antithetic", "stratified"), which mostly takes variance away. `weight` are
    draws of your own, `[E, t]`. `chunk` bounds how many samples are in memory at once.
    """
    if method not in ("auto", "exact", "monte_carlo"):
        raise unknown("method", method, ("auto", "exact", "monte_carlo"))
    if aggregate not in AGGREGATES:
        raise unknown("aggregate", aggregate, AGGREGATES)
    most = int(segment_count(edge_batch, num_graphs).max()) if len(edge_batch) else 0
    if method == "exact" and most > MOST_EDGES_EXACT:
        raise ShiftproofError(
            f"a graph of {most} edges has 2^{most} subgraphs; the exact extension takes at most {MOST_EDGES_EXACT}"
        )

    def values(drawn: Tensor) -> Tensor:
        logits = in_chunks(classify, drawn, chunk)
        return distribution(logits, binary) if aggregate == "probs" else logits

    if method == "exact" or (method == "auto" and most <= MOST_EDGES_EXACT and weight is None):
        return _exact(values, probs, edge_batch, num_graphs, most, chunk or 1024)
    if weight is None:
        weight = bernoulli_draws(probs, samples, draws, generator)
    return values(weight).mean(1)


def _exact(
    values: Callable[[Tensor], Tensor], probs: Tensor, edge_batch: Tensor, num_graphs: int, most: int, chunk: int
) -> Tensor:
    """All graphs side by side: bit `j` of a pattern says whether a graph's `j`-th edge is kept.

    A graph of fewer edges meets each of its subgraphs in several patterns; a chance of 1/2 for the edges it does not
    have makes up for that.
    """
    order = torch.sort(edge_batch, stable=True).indices
    counts = segment_count(edge_batch, num_graphs)
    place = torch.empty_like(order)
    start = (counts.cumsum(0) - counts).index_select(0, edge_batch.index_select(0, order))
    place[order] = torch.arange(len(order), device=order.device) - start
    chance = probs.new_full((num_graphs, most), 0.5).index_put((edge_batch, place), probs)
    total = None
    for patterns in torch.arange(2**most, device=probs.device).split(chunk):
        bits = (patterns.unsqueeze(0) >> torch.arange(most, device=probs.device).unsqueeze(1)) & 1  # [most, patterns]
        likely = torch.where(bits.bool(), chance.unsqueeze(-1), 1 - chance.unsqueeze(-1)).prod(1)
        found = values(bits.index_select(0, place).to(probs.dtype))
        part = (likely.view(*likely.shape, *[1] * (found.dim() - 2)) * found).sum(1)
        total = part if total is None else total + part
    assert total is not None
    return total


def multilinear_gap(
    classify: Classifier,
    probs: Tensor,
    edge_batch: Tensor,
    num_graphs: int,
    *,
    samples: int = 100,
    binary: bool = False,
    chunk: int | None = None,
    generator: torch.Generator | None = None,
    draws: Draws = "independent",
) -> Tensor:
    """How far the prediction on soft weights is from the mean prediction on random subgraphs, for each graph.

    .. math:: TV\\big(f(\\hat G_c),\\; E_{G_c \\sim Bern(α)}[f(G_c)]\\big) = \\tfrac12 \\sum_y |p_y - q_y|

    Exact where every graph has at most 16 edges, else from `samples` draws, whose noise adds to the gap.
    """
    with torch.no_grad():
        soft = distribution(classify(probs.unsqueeze(1)), binary).squeeze(1)
        options = {"samples": samples, "binary": binary, "chunk": chunk, "generator": generator}
        mean = multilinear_extension(classify, probs, edge_batch, num_graphs, draws=draws, **options)
        return (soft - mean).abs().sum(-1) / 2


def samples_within(
    memory: float, num_nodes: int, num_edges: int, width: int, layers: int, conv: str, held: str = "messages"
) -> int:
    """How many samples of a batch a training pass may hold in `memory` bytes, at least one.

    Counted are the rows of four bytes a number that the backward pass of an encoder needs or makes at its peak;
    `held` is what layers keep: all "messages", the "statistics" of nodes (PNA), or their "rows" alone. In a stack the
    memory is that of all its networks.
    """
    if conv == "pna" and held == "rows":
        each = (7 * layers + 8) * num_nodes
    elif conv == "pna" and held == "statistics":  # five of three parts, and their gradients in one layer
        each = (22 * layers + 40) * num_nodes
    elif conv == "pna":  # messages of three parts with their squares and extremes, for every edge
        each = layers * (30 * num_edges + 20 * num_nodes)
    elif conv in ("egnn", "dgcnn", "point-transformer"):  # messages of an MLP, for every edge of every layer
        each = layers * (8 * num_edges + 10 * num_nodes)
    else:
        each = (4 * layers + 4) * num_nodes + (0 if held == "rows" else 4 * num_edges)
    return max(1, int(memory // (4 * width * max(each, 1) * networks())))
