"""Which nodes an attack aims at."""

from __future__ import annotations

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, kind_of

EXTREMES, MIDDLE = 200, 400  # docs/papers/hao.md#targets: 200 lowest margins, 200 highest, 400 between


def check_targets(graph: NodeGraph, targets: Tensor | None = None, *, isolated: bool = False) -> Tensor:
    """The nodes to attack: the test nodes where none are given; those given are looked through.

    A node that is named though it has no neighbour is an error unless `isolated` lets it pass: it has no neighbourhood
    that an attack could leave unlike it. Among the test nodes such nodes stay, because accuracy counts them.
    """
    if targets is None:
        if not len(graph.test):
            raise ShiftproofError(f"{graph.name} has no test nodes: name the targets of the attack")
        return graph.test
    try:
        targets = torch.as_tensor(targets, device=graph.device)
    except (TypeError, ValueError, RuntimeError):
        raise ShiftproofError(f"targets are a list of one or more node numbers, not {kind_of(targets)}") from None
    if targets.ndim != 1 or targets.is_floating_point() or not len(targets):
        raise ShiftproofError(f"targets are a list of one or more node numbers, not {list(targets.shape)}")
    targets = targets.nonzero()[:, 0] if targets.dtype == torch.bool else targets.long()
    if not len(targets) or int(targets.min()) < 0 or int(targets.max()) >= graph.num_nodes:
        raise ShiftproofError(f"targets are one or more of the nodes 0 to {graph.num_nodes - 1} of {graph.name}")
    if len(torch.unique(targets)) < len(targets):
        raise ShiftproofError("a target is named twice")
    alone = graph.degree[targets] == 0
    if bool(alone.any()) and not isolated:
        raise ShiftproofError(
            f"target {int(targets[alone][0])} of {graph.name} has no neighbour; leave such nodes out, or let them pass "
            f"with isolated=True"
        )
    return targets


def select_targets(
    graph: NodeGraph,
    log_probs: Tensor,
    *,
    extremes: int = EXTREMES,
    middle: int = MIDDLE,
    strict: bool = True,
    seed: int = 0,
) -> Tensor:
    """Test nodes for a targeted attack, by the surrogate's margin between its two likeliest classes.

    Of the test nodes that the surrogate classifies rightly: the `extremes` of lowest and as many of highest margin, and
    `middle` others at random. `strict=False` gives what the published experiments did: the places among the rightly
    classified nodes are looked up in the list of all test nodes, so that the targets are nearly arbitrary
    (docs/papers/hao.md#d11).
    """
    test = graph.test
    if log_probs.shape[0] < graph.num_nodes or log_probs.ndim != 2 or log_probs.shape[1] < 2:
        raise ShiftproofError(
            f"log_probs are a table [{graph.num_nodes}, {graph.num_classes}], not {list(log_probs.shape)}"
        )
    rows = log_probs.detach()[test]
    right = test[rows.argmax(1) == graph.y[test]]
    wanted = 2 * extremes + middle
    if len(right) < wanted:
        raise ShiftproofError(
            f"{len(right)} test nodes of {graph.name} are classified rightly, and {wanted} targets are asked for: "
            f"lower 'extremes' or 'middle'"
        )
    top = log_probs.detach()[right].topk(2, dim=1).values
    order = torch.argsort(top[:, 0] - top[:, 1], stable=True)
    between = order[extremes : len(order) - extremes]
    drawn = torch.from_numpy(stream(seed).permutation(len(between))[:middle]).to(order.device)
    places = torch.cat([order[:extremes], order[len(order) - extremes :], between[drawn]])
    return right[places] if strict else test[places]
