"""The paper's theorems on linearised GNNs, each as a function that computes both sides and says whether it holds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness.adjacency import Adjacency
from shiftproof.robustness.budget import Perturbation


@dataclass(frozen=True)
class Check:
    """A statement "left ≤ right" with its two sides, as found on the data at hand."""

    statement: str
    left: float
    right: float
    tolerance: float = 1e-9

    @property
    def holds(self) -> bool:
        return self.left <= self.right + self.tolerance


def simplex_features(y: Tensor, classes: int) -> Tensor:
    r"""Features that show the label: :math:`X_u = \frac{C}{C-1} e_{y_u} - \frac{1}{C-1}\mathbf 1`.

    Cosines are 1 within a class and -1/(C - 1) across; each row sums to 0.
    """
    if classes < 2:
        raise ShiftproofError(f"simplex features need 2 classes or more, not {classes}")
    codes = torch.nn.functional.one_hot(y, classes).double()
    return codes * classes / (classes - 1) - 1 / (classes - 1)


def linear_output(graph: NodeGraph, layers: int = 1, x: Tensor | None = None) -> Tensor:
    r"""What a linearised GNN hands its classifier: :math:`\hat A^k X` in double precision, loops counted."""
    propagate = Adjacency(graph.edge_index, graph.num_nodes).normalized(dtype=torch.float64)
    out = (graph.x if x is None else x).double()
    for _ in range(layers):
        out = propagate @ out
    return out


def attack_loss(graph: NodeGraph, theta: Tensor, targets: Tensor, labels: Tensor, layers: int = 1) -> float:
    r"""The attacker's loss :math:`-\mathrm{CE}` of :math:`\hat A^k X\Theta` on the targets: lower is more harm."""
    logits = linear_output(graph, layers) @ theta.double()
    return -float(torch.nn.functional.cross_entropy(logits[targets], labels))


def injection_beats_modification(
    graph: NodeGraph,
    modification: Perturbation,
    theta: Tensor,
    targets: Tensor,
    labels: Tensor,
    *,
    layers: int = 1,
    steps: int = 100,
    step: float = 0.05,
) -> Check:
    """Theorem 1: the nodes of the plural mapping, their features then optimised, harm at least as much as the edges.

    The features move by the gradient's sign within the box of the graph, widened to where the mapping starts, and the
    most harmful ones are kept, so that the check holds exactly as far as the mapping is exact.
    """
    from shiftproof.robustness.theory.mapping import matched_features, plural_mapping

    by_edges = attack_loss(modification.apply(graph), theta, targets, labels, layers)
    mapped = plural_mapping(graph, modification, layers=layers, targets=targets)
    start = matched_features(graph, modification, layers=layers, targets=targets)
    low, high = min(float(graph.x.min()), float(start.min())), max(float(graph.x.max()), float(start.max()))
    attacked = mapped.apply(graph)
    propagate = Adjacency(attacked.edge_index, attacked.num_nodes).normalized(dtype=torch.float64)
    best, features = math.inf, start
    for _ in range(steps + 1):
        features = features.detach().requires_grad_()
        out = torch.cat([graph.x.double(), features])
        for _ in range(layers):
            out = propagate @ out
        loss = -torch.nn.functional.cross_entropy((out @ theta.double())[targets], labels)
        best = min(best, float(loss.detach()))
        (grad,) = torch.autograd.grad(loss, features)
        features = (features - step * grad.sign()).clamp(low, high)
    return Check("loss of the injection ≤ loss of the modification", best, by_edges, tolerance=1e-6)


def margin_after_injection(graph: NodeGraph, node: int, injected: Tensor, degree: int) -> float:
    r"""The exact margin of a one-layer linear two-class model at `node` once a node is injected beside it.

    .. math:: m' = \sqrt{\tfrac{d}{d+1}}\,m_{neigh} + \tfrac{d}{d+1}\,m_{self} + \frac{X_{w0} - X_{w1}}{\sqrt{d_w(d+1)}}

    d counts the loop of the node before, :math:`d_w` = `degree` that of the injected one with its features `injected`.
    """
    x, d = graph.x.double(), float(graph.degree[node] + 1)
    own = float(x[node, 0] - x[node, 1]) / d
    whole = linear_output(graph, 1)[node]
    near = float(whole[0] - whole[1]) - own
    gain = float(injected[0] - injected[1]) / math.sqrt(degree * (d + 1))
    return math.sqrt(d / (d + 1)) * near + d / (d + 1) * own + gain


def toy_direction(influence: float, hao: float) -> Tensor:
    r"""Where sign-PGD moves the injected features in the two-class toy.

    .. math:: \mathrm{sign}(I_{uw}[-1,1]+\lambda[1,-1])

    It turns around, from away from the target to towards it, when :math:`\lambda` passes :math:`I_{uw}` (theorem 3).
    """
    return torch.sign(torch.tensor([hao - influence, influence - hao], dtype=torch.float64))


def toy_similarities(start: Tensor, influence: float, hao: float, *, steps: int = 50, step: float = 0.01) -> Tensor:
    """The cosine of the injected node with a target [1, -1] along sign-PGD in the two-class toy, box [-1, 1]."""
    target = torch.tensor([1.0, -1.0], dtype=torch.float64)
    direction, at, path = toy_direction(influence, hao), start.double(), []
    for _ in range(steps + 1):
        path.append(torch.cosine_similarity(at, target, dim=0))
        at = (at + step * direction).clamp(-1, 1)
    return torch.stack(path)


def strongest_injection(graph: NodeGraph, node: int, label: int, nodes: int, values: Tensor) -> float:
    """The least margin of `label` at `node` over all injections of up to `nodes` nodes with features on a grid.

    A one-layer linear two-class model; every injected node is joined to `node` alone. Tried one by one, for tiny grids:
    what more nodes can do is never less than what fewer can.
    """
    grid = [torch.tensor(pair, dtype=torch.float64) for pair in itertools.product(values.tolist(), repeat=2)]
    sign = 1 if label == 0 else -1
    best = math.inf
    for count in range(nodes + 1):
        for choice in itertools.combinations_with_replacement(grid, count):
            features = torch.stack(choice) if choice else graph.x.new_zeros(0, 2).double()
            edges = torch.stack([torch.arange(count), torch.full((count,), node)])
            out = linear_output(Perturbation(features=features.float(), edges=edges).apply(graph), 1)[node]
            best = min(best, sign * float(out[0] - out[1]))
    return best


def pruning_defends_mapping(
    graph: NodeGraph, modification: Perturbation, injection: Perturbation, target: int
) -> Check:
    """Theorem 2: under a defender that cuts edges of similarity up to the least of the clean graph, edges harm more.

    One layer, the identity for weights, features as in `simplex_features`; both attacked graphs lose the edges whose
    cosine does not exceed that of the least similar clean edge (clean edges below or at it stay, being the defender's
    own), and the loss of the injection is then not below that of the modification.
    """
    from shiftproof.robustness.homophily import edge_homophily

    floor = float(edge_homophily(graph).min())
    losses = []
    label = graph.y[target][None]
    for perturbation in (modification, injection):
        attacked = perturbation.apply(graph)
        kept = edge_homophily(attacked) > floor
        kept |= _of_clean(graph, attacked)
        pruned = NodeGraph.from_edges(attacked.x, attacked.edges[:, kept], attacked.y)
        theta = torch.eye(graph.num_features, dtype=torch.float64)
        losses.append(attack_loss(pruned, theta, torch.tensor([target]), label))
    return Check("loss of the modification ≤ loss of the injection, both pruned", losses[0], losses[1])


def _of_clean(graph: NodeGraph, attacked: NodeGraph) -> Tensor:
    inside = (attacked.edges < graph.num_nodes).all(0)
    found = torch.zeros_like(inside)
    found[inside] = graph.has_edges(attacked.edges[:, inside])
    return found
