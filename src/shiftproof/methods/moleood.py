"""MoleOOD: infer environments by how well a model that knows them does, then hold over all of them."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch
from shiftproof.data.readers.fragments import brics_fragments
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import Batch, DataShape, Method, Network, Trains, as_network, width_of
from shiftproof.methods.erm import ERM
from shiftproof.nn import GraphFeaturizer, pool, segment_softmax, segment_sum
from shiftproof.objectives import env_risks, mean_over_present, sample_losses
from shiftproof.ranges import Count, NonNegative, Whole
from shiftproof.registry import register

Prior = Literal["uniform", "gaussian"]


class EnvironmentInference(Method):
    """Stage 1: a classifier of environments and a predictor that is told the environment.

    .. math:: mean_i \\sum_e q_{ie} ℓ_{ie} + KL(q ‖ prior), \\qquad
        q_i = softmax(W_q [h_i; y_i]),\\; ℓ_{ie} = ℓ(W_p [h_i; E_e], y_i)

    Both read one encoder, or `second` is the predictor's own.
    """

    prior: Tensor

    def __init__(
        self,
        shape: DataShape,
        featurizer: nn.Module,
        clusters: Count,
        prior: Prior,
        mean_kl: bool,
        second: nn.Module | None = None,
    ) -> None:
        super().__init__(shape)
        width = width_of(featurizer)
        labels = shape.num_outputs if shape.task == "multilabel" else 1
        self.featurizer, self.second = featurizer, second
        self.domain = nn.Linear(width + labels, clusters)
        self.conditional = nn.Linear(2 * width, shape.num_outputs)
        self.environments = nn.Parameter(torch.zeros(clusters, width))
        self.mean_kl = mean_kl
        self.weights = {"task": 1.0, "divergence": 1.0}
        self.register_buffer("prior", prior_over(clusters, prior))

    def forward(self, batch: Batch) -> Tensor:
        """The logits of the predictor that is told the environment, averaged by the prior."""
        logits = (self._conditional_logits(self.views(batch)[1]) * self.prior.view(1, -1, 1)).sum(1)
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def views(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the classifier of environments and the predictor see of each sample."""
        h = self.featurizer(batch)
        return h, h if self.second is None else self.second(batch)

    def _conditional_logits(self, h: Tensor) -> Tensor:
        count = len(self.environments)
        told = self.environments.unsqueeze(0).expand(len(h), -1, -1)
        return self.conditional(torch.cat([h.unsqueeze(1).expand(-1, count, -1), told], dim=-1))

    def conditional_losses(self, h: Tensor, y: Tensor) -> Tensor:
        """The loss of every sample under every environment, [n, K]."""
        logits = self._conditional_logits(h)
        count = logits.shape[1]
        flat = sample_losses(logits.flatten(0, 1), y.repeat_interleave(count, dim=0), self.shape.task)
        return flat.view(len(h), count)

    def log_domain(self, h: Tensor, y: Tensor) -> Tensor:
        """The logarithm of q, [n, K]."""
        labels = y.to(h.dtype).reshape(len(h), -1).nan_to_num()
        return self.domain(torch.cat([h, labels], dim=1)).log_softmax(1)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        h, seen = self.views(batch)
        log_q = self.log_domain(h, batch.y)
        divergence = (log_q.exp() * (log_q - self.prior.log())).sum(1)
        return {
            "task": (log_q.exp() * self.conditional_losses(seen, batch.y)).sum(1).mean(),
            "divergence": divergence.mean() if self.mean_kl else divergence.sum(),
        }


class SubstructureFeaturizer(nn.Module):
    """A molecule by its fragments: each is read alone, and the whole says how much each of them counts.

    .. math:: out = \\sum_f a_f h_f, \\qquad a = softmax_f ⟨W_q h_G, W_k h_f⟩ / \\sqrt d

    Fragments are those of BRICS (docs/papers/gala.md#moleood: the authors' main model attends over substructures).
    """

    def __init__(self, whole: GraphFeaturizer, part: GraphFeaturizer) -> None:
        super().__init__()
        self.whole, self.part, self.out_channels = whole, part, whole.out_channels
        self.query = nn.Linear(self.out_channels, self.out_channels)
        self.key = nn.Linear(self.out_channels, self.out_channels)

    def forward(self, batch: GraphBatch) -> Tensor:
        fragment, owner = brics_fragments(batch)
        inside = fragment[batch.edge_index[0]] == fragment[batch.edge_index[1]]
        attr = None if batch.edge_attr is None else batch.edge_attr[inside]
        alone = batch.replace(edge_index=batch.edge_index[:, inside], edge_attr=attr, edge_truth=None, edge_columns={})
        h = pool(self.part.nodes(alone), fragment, len(owner), self.part.readout)
        asked = self.query(self.whole(batch)).index_select(0, owner)
        score = (asked * self.key(h)).sum(1) / self.out_channels**0.5
        share = segment_softmax(score, owner, batch.num_graphs)
        return segment_sum(share.unsqueeze(1) * h, owner, batch.num_graphs)


@register("moleood", tags=("graphs",))
class MoleOOD(ERM):
    """Infer environments, then learn what predicts equally well in all of them and wherever they are unknown.

    .. math:: mean_e\\, mean_{i: e_i=e} ℓ_i + ω\\, mean_i \\big|ℓ_i - \\sum_e prior_e ℓ_{i|e}\\big|,
        \\quad e_i = argmax_e q_{ie}

    Stage 0 trains `reference_epochs` epochs of the inference of `clusters` environments on the encoder that the main
    model goes on with (docs/papers/gala.md#moleood: "as used"); with `share_encoder=False` the classifier of
    environments, the predictor that is told them and the main model have an encoder each, as the authors have it. With
    `substructures="brics"` the main model looks at the fragments of molecules (needs RDKit). The divergence of the
    inference is summed over the batch as in the authors' code, unless `divergence="mean"`.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        penalty: NonNegative = 1.0,
        clusters: Count = 3,
        prior: Prior = "uniform",
        divergence: Literal["sum", "mean"] = "sum",
        share_encoder: bool = True,
        substructures: Literal["none", "brics"] = "none",
        reference_epochs: Whole = 20,
    ) -> None:
        if shape.kind != "graphs":
            raise ShiftproofError("MoleOOD works on graphs, not on plain tensors")
        super().__init__(shape, network=_by_fragments(network, shape) if substructures == "brics" else network)
        if divergence not in ("sum", "mean"):
            raise unknown("divergence", divergence, ("sum", "mean"))
        self.clusters, self.reference_epochs = clusters, reference_epochs

        def another() -> nn.Module:
            return copy.deepcopy(network) if isinstance(network, nn.Module) else as_network(network).build(shape)

        shared = self.featurizer.whole if isinstance(self.featurizer, SubstructureFeaturizer) else self.featurizer
        first, second = (shared, None) if share_encoder else (another(), another())
        self.inference = EnvironmentInference(shape, first, clusters, prior, divergence == "mean", second)
        self.weights = {"task": 1.0, "conditional": penalty}

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        trainer.fit_reference(self.inference, dataset, "inference", epochs=self.reference_epochs, selection="last")

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        risk = sample_losses(self(batch), batch.y, self.shape.task)
        env, expected = self._inferred(batch)
        risks, counts = env_risks(risk, env, self.clusters)
        return {
            "task": mean_over_present(risks, counts),
            "conditional": (risk - expected).abs().mean(),
        }

    @torch.no_grad()
    def _inferred(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """The environment of every sample, and its loss averaged over all environments; no batch statistics move."""
        was_training = self.training
        self.inference.eval()
        h, seen = self.inference.views(batch)
        self.inference.train(was_training)
        expected = self.inference.conditional_losses(seen, batch.y) @ self.inference.prior
        return self.inference.log_domain(h, batch.y).argmax(1), expected


def _by_fragments(network: Network | str | nn.Module | None, shape: DataShape) -> SubstructureFeaturizer:
    if isinstance(network, nn.Module):
        raise ShiftproofError("substructures='brics' builds its own networks; leave out 'network'")
    spec = as_network(network)
    whole, part = (
        GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout) for _ in range(2)
    )
    return SubstructureFeaturizer(whole, part)


def prior_over(count: int, kind: str) -> Tensor:
    """Equal chances, or those of the bins of a standard normal cut at three deviations."""
    if kind == "uniform":
        return torch.full((count,), 1 / count)
    if kind != "gaussian":
        raise unknown("prior", kind, ("uniform", "gaussian"))
    mass = torch.special.ndtr(torch.linspace(-3, 3, count + 1)).diff()
    return mass / mass.sum()
