"""GIB: the part of a graph that tells the label and as little else as possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape, Method, Network, as_network, make_head
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import GraphFeaturizer, lift_to_edges, segment_mean, segment_sum
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, NonNegative, Whole
from shiftproof.registry import register


@register("gib", tags=("graphs",))
class GIB(Method):
    """Graph information bottleneck: nodes are assigned to the part that matters or to the rest.

    .. math:: CE + 0.3\\, I_{DV}(\\hat G_c; G) + 5\\, ‖diag(\\overline{a^T A a}) - 1‖^2

    The mutual information is the Donsker-Varadhan bound of a critic that gets `inner_steps` steps of its own in every
    step. With `form="ciga"` the label is asked of the part and of the whole graph, which is half the sum of its nodes
    (docs/papers/ciga.md#gib), with `form="gmt"` of the part alone, and the graph is the mean of its nodes
    (docs/papers/gmt.md#gib). Known to be unstable; larger batches or fewer inner steps help.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        information: NonNegative = 0.3,
        connectivity: NonNegative = 5.0,
        inner_steps: Whole = 20,
        inner_patience: Count = 5,
        form: Literal["ciga", "gmt"] = "ciga",
    ) -> None:
        super().__init__(shape)
        spec = as_network(network)
        width = spec.hidden
        self.inner_steps, self.inner_patience, self.form = inner_steps, inner_patience, form
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout="sum")
        self.assign = nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, 2))
        self.critic = nn.Sequential(nn.Linear(2 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 1))
        self.head = make_head(width, shape.num_outputs, hidden=2 * width)
        self.weights = {"task": 1.0, "information": information, "connectivity": connectivity}
        for parameter in self.critic.parameters():
            parameter.requires_grad_(False)  # only its own inner steps move the critic

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, capturable=False)  # its sums over nodes know no padding

    def parts(self, batch: GraphBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The assignment of every node, the vector of the chosen part and that of the whole graph."""
        h = self.featurizer.nodes(batch)
        linked = torch.zeros(batch.num_nodes, dtype=h.dtype, device=h.device)
        linked.index_fill_(0, batch.edge_index.reshape(-1), 1.0)
        a = self.assign(h).softmax(-1) * linked.unsqueeze(1)
        chosen = segment_sum(a[:, :1] * h, batch.batch, batch.num_graphs).clamp(-100, 100)
        if self.form == "gmt":
            return a, chosen, segment_mean(h, batch.batch, batch.num_graphs)
        return a, chosen, 0.5 * segment_sum(linked.unsqueeze(1) * h, batch.batch, batch.num_graphs)

    def forward(self, batch: GraphBatch) -> Tensor:
        return self._logits(self.parts(batch)[1])

    def _logits(self, z: Tensor) -> Tensor:
        logits = self.head(z)
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        a, chosen, whole = self.parts(batch)
        if self.training:
            self._train_critic(chosen.detach(), whole.detach())
        asked = [chosen] if self.form == "gmt" else [whole, chosen]
        logits, labels = torch.cat([self._logits(z) for z in asked]), torch.cat([batch.y] * len(asked))
        return {
            "task": sample_losses(logits, labels, self.shape.task).mean(),
            "information": self.bound(chosen, whole),
            "connectivity": connectivity_loss(a, batch),
        }

    def bound(self, chosen: Tensor, whole: Tensor) -> Tensor:
        """The Donsker-Varadhan bound on the information between the chosen part and the graph."""
        shuffled = whole[torch.randperm(len(whole), device=whole.device)]
        joint = self.critic(torch.cat([whole, chosen], dim=1)).squeeze(1)
        apart = self.critic(torch.cat([shuffled, chosen], dim=1)).squeeze(1)
        return joint.mean() - (torch.logsumexp(apart, 0) - torch.log(torch.tensor(float(len(apart)))))

    def _train_critic(self, chosen: Tensor, whole: Tensor) -> None:
        parameters = list(self.critic.parameters())
        # a fresh optimiser for every outer step: nothing of it has to be kept in checkpoints
        optimizer = torch.optim.Adam(parameters, lr=1e-3, weight_decay=5e-5)
        best, waited = -torch.inf, 0
        with torch.enable_grad():
            for parameter in parameters:
                parameter.requires_grad_(True)
            for _ in range(self.inner_steps):
                value = self.bound(chosen, whole)
                optimizer.zero_grad()
                (-value).backward()
                optimizer.step()
                reached = float(value.detach())
                best, waited = (reached, 0) if reached > best else (best, waited + 1)
                if waited >= self.inner_patience:
                    break
            for parameter in parameters:
                parameter.requires_grad_(False)
                parameter.grad = None

    def explain(self, batch: GraphBatch) -> Explanation:
        """How surely each node, and both ends of each edge, belong to the part that matters."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            a, chosen, _ = self.parts(batch)
            logits = self._logits(chosen)
        self.train(was_training)
        scores = a[:, 0]
        return Explanation(batch, lift_to_edges(scores, batch.edge_index), scores, logits)


def connectivity_loss(a: Tensor, batch: GraphBatch) -> Tensor:
    """How far the two groups of nodes are from being two separate pieces: 0 when no edge joins them.

    .. math:: mean_g ‖diag(rows(a^T A a)) - (1, 1)‖^2 / 2

    `a^T A a` is a sum over edges, `Σ a_u a_v^T`, so no dense adjacency is built.
    """
    source, target = batch.edge_index
    pairs = a.index_select(0, source).unsqueeze(2) * a.index_select(0, target).unsqueeze(1)
    joined = segment_sum(pairs.flatten(1), batch.edge_batch, batch.num_graphs).view(-1, 2, 2)
    rows = joined / joined.abs().sum(2, keepdim=True).clamp(min=1e-12)
    return (torch.diagonal(rows, dim1=1, dim2=2) - 1).square().mean()
