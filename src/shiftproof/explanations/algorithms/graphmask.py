"""GraphMask layer by layer: any message of any layer may be replaced by a vector that its layer has learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.dataset import Task
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.amortised import SHIFT, hard_concrete, train_on
from shiftproof.methods.weighted import WeightedModel
from shiftproof.nn import GNNEncoder, Wiring, reverse_edges, segment_mean, symmetrise
from shiftproof.nn.edge_structure import OnMessages
from shiftproof.ranges import Count, NonNegative, Positive, Seed, checked

# docs/papers/gmt.md#graphmask: how far the prediction may move for free, and the multiplier that makes it dear to move
# further
ALLOWANCE = 0.03
FIRST_MULTIPLIER, MULTIPLIER_LR, MULTIPLIER_RANGE = 0.55, 1e-2, (-2.0, 30.0)


@dataclass
class Recorded:
    """The node rows each layer started from and the messages it sent, of one pass that nothing was done to."""

    rows: dict[int, Tensor] = field(default_factory=dict)
    messages: dict[int, Tensor] = field(default_factory=dict)

    def at(self, layer: int, h: Tensor, wiring: Wiring) -> OnMessages:
        def keep(messages: Tensor) -> Tensor:
            self.rows[layer], self.messages[layer] = h, messages
            return messages

        return keep


@dataclass(frozen=True)
class Replaced:
    """Messages of which each gate lets its share through; a layer's baseline takes the place of the rest.

    .. math:: \\tilde m_e = z_e m_e + (1 - z_e) b
    """

    gates: Mapping[int, Tensor]
    baselines: Mapping[int, Tensor]

    def at(self, layer: int, h: Tensor, wiring: Wiring) -> OnMessages:
        gate = self.gates.get(layer)
        if gate is None:
            return lambda messages: messages
        baseline, share = self.baselines[layer], gate.unsqueeze(-1)
        return lambda messages: baseline + share * (messages - baseline)


@checked
class LayerGates(nn.Module):
    """For every layer of a frozen encoder, gates on its messages and what a shut gate sends instead.

    .. math:: \\min_{φ, b} \\max_η \\sum_l mean_e P(z^l_e > 0) + softplus(η)\\, [D(f(G) ‖ f(\\tilde G)) - β]_+, \\quad
        z^l_{uv} \\sim hard\\,concrete(MLP_l([h^l_u ‖ m^l_{uv} ‖ h^l_v]))

    Gates look at the pass of the whole graph. Layers are gated one after the other from the last to the first, each for
    an equal share of the epochs, those gated before staying so. An edge's score is the mean of its gates' chances over
    the layers, the share of them that need it: the largest would be 1 for all edges where a single layer keeps them
    all, as the first layer must on graphs without node features. Both directions are averaged
    (docs/papers/gmt.md#graphmask).

    A baseline still arrives once for each edge, so that layers which add messages up can go on counting neighbours.
    """

    def __init__(self, encoder: GNNEncoder, *, size: NonNegative = 1.0, allowance: NonNegative = ALLOWANCE) -> None:
        super().__init__()
        seen = _tried(encoder)
        self.size, self.allowance = size, allowance
        self.gates, self.baselines = nn.ModuleList(), nn.ParameterList()
        for layer in sorted(seen.messages):
            width, rows = seen.messages[layer].shape[-1], seen.rows[layer].shape[-1]
            joined = 2 * rows + width
            self.gates.append(
                nn.Sequential(nn.LayerNorm(joined), nn.Linear(joined, rows), nn.ReLU(), nn.Linear(rows, 1))
            )
            self.baselines.append(nn.Parameter(torch.zeros(width)))

    def forward(self, seen: Recorded, batch: GraphBatch) -> list[Tensor]:
        """The logits of all gates, a row of `[E]` for each layer."""
        src, dst = batch.edge_index[0], batch.edge_index[1]
        joined = (
            torch.cat([rows.index_select(0, src), seen.messages[layer], rows.index_select(0, dst)], -1)
            for layer, rows in sorted(seen.rows.items())
        )
        return [gate(told).squeeze(-1) for gate, told in zip(self.gates, joined, strict=True)]

    def replaced(self, gates: Mapping[int, Tensor]) -> Replaced:
        """What becomes of messages under given gates, `[E]` in [0, 1] for each layer that has any."""
        return Replaced(gates, dict(enumerate(self.baselines)))

    def layer_scores(self, model: WeightedModel, batch: GraphBatch) -> Tensor:
        """The chance of every message to be let through, `[layers, E]`, without any noise."""
        with torch.no_grad(), model.frozen():
            logits = self(watched(model, batch)[0], batch)
        return (torch.stack(logits) + SHIFT).sigmoid()

    def scores(self, model: WeightedModel, batch: GraphBatch) -> Tensor:
        """One score in [0, 1] for each edge."""
        shares = self.layer_scores(model, batch).mean(0)
        return symmetrise(shares, reverse_edges(batch.edge_index, batch.num_nodes))

    def terms(self, model: WeightedModel, batch: GraphBatch, first: int = 0) -> tuple[Tensor, Tensor]:
        """The expected share of open gates from layer `first` on, summed over layers, and how far predictions move."""
        with torch.no_grad():
            seen, whole = watched(model, batch)
        drawn = {layer: hard_concrete(logits) for layer, logits in enumerate(self(seen, batch)) if layer >= first}
        moved = model(batch, self.replaced({layer: gate for layer, (gate, _) in drawn.items()}))
        owner, graphs = batch.edge_batch, batch.num_graphs
        open_ = torch.stack([segment_mean(share, owner, graphs).mean() for _, share in drawn.values()]).sum()
        return open_, divergence(whole, moved, model.task_of(whole)).mean()

    def require_epochs(self, epochs: int) -> None:
        """So many epochs are enough for these gates."""
        depth = len(self.gates)
        if epochs < depth:
            raise ShiftproofError(
                f"{depth} layers are gated one after the other in at least {depth} epochs, not {epochs}"
            )

    @checked
    def fit(
        self,
        model: WeightedModel,
        graphs: GraphSet,
        *,
        epochs: Count = 100,
        lr: Positive = 1e-3,
        batch_size: Count = 128,
        seed: Seed = 0,
    ) -> LayerGates:
        """Train on graphs, whose labels are not looked at: the model's own predictions are what is to be kept."""
        self.require_epochs(epochs)
        depth = len(self.gates)
        multiplier = torch.tensor(FIRST_MULTIPLIER, device=graphs.device, requires_grad=True)
        steeper = torch.optim.RMSprop([multiplier], lr=MULTIPLIER_LR, maximize=True)
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)

        def step(epoch: int, batch: GraphBatch) -> None:
            first = depth - 1 - epoch * depth // epochs
            open_, moved = self.terms(model, batch, first)
            dear = F.softplus(multiplier) * (moved - self.allowance).relu()
            optimizer.zero_grad()
            steeper.zero_grad()
            (self.size * open_ + dear).backward()
            optimizer.step()
            steeper.step()
            with torch.no_grad():
                multiplier.clamp_(*MULTIPLIER_RANGE)

        train_on(self, model, graphs, step, epochs=epochs, batch_size=batch_size, seed=seed)
        return self

    def extra_repr(self) -> str:
        return f"size={self.size}, allowance={self.allowance}"


def layer_gates(
    model: WeightedModel,
    *,
    size: NonNegative | None = None,
    entropy: NonNegative | None = None,
    allowance: NonNegative = ALLOWANCE,
) -> LayerGates:
    """Untrained gates for the encoder of a model."""
    if model.encoder is None:
        name = type(model.source).__name__
        raise ShiftproofError(
            f"gates in every layer need a plain model on one of our graph encoders, not {name}; with layerwise=False "
            "each edge gets one gate"
        )
    if entropy:
        raise ShiftproofError("gates in every layer have no term of entropy; leave 'entropy' out")
    return LayerGates(model.encoder, size=1.0 if size is None else size, allowance=allowance)


def watched(model: WeightedModel, batch: GraphBatch) -> tuple[Recorded, Tensor]:
    """What goes on inside a model, and its logits."""
    seen = Recorded()
    return seen, model(batch, seen)


def divergence(logits: Tensor, moved: Tensor, task: Task) -> Tensor:
    """How far each graph's prediction has moved: `KL(before ‖ after)`, of a regression the squared step."""
    if task == "regression":
        step = (moved - logits).square()
        return step.flatten(1).sum(1) if step.dim() > 1 else step
    if task == "multiclass":
        return F.kl_div(moved.log_softmax(-1), logits.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    p = logits.sigmoid()
    bits = p * (F.logsigmoid(logits) - F.logsigmoid(moved))
    bits = bits + (1 - p) * (F.logsigmoid(-logits) - F.logsigmoid(-moved))
    return bits.flatten(1).mean(1) if bits.dim() > 1 else bits


def _tried(encoder: GNNEncoder) -> Recorded:
    """One edge sent through the encoder, to see how wide its messages are."""
    seen, was_training = Recorded(), encoder.training
    like = next(encoder.parameters())
    one = torch.zeros(2, dtype=torch.long, device=like.device)
    edge = None if encoder.edge_dim is None else like.new_zeros(1, encoder.edge_dim)
    with torch.no_grad():
        encoder.eval()(like.new_zeros(2, encoder.in_channels), torch.tensor([[0], [1]]).to(one), seen, edge, one, 1)
    encoder.train(was_training)
    return seen
