"""Post-hoc explainers as methods: a plain model is trained, then asked for its reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.amortised import MaskNetwork, Target
from shiftproof.explanations.algorithms.graphmask import ALLOWANCE, LayerGates, layer_gates
from shiftproof.explanations.algorithms.masks import gnnexplainer
from shiftproof.methods.base import DataShape, Method, Network, Trains, reference_model, width_of
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.weighted import WeightedModel, as_weighted
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, NonNegative, Positive
from shiftproof.registry import register, with_options_of


class PostHoc(Method):
    """A plain model whose predictions are explained by others.

    The model is ERM's, trained with the settings of the run; its best epoch is the one explained.
    """

    def __init__(self, shape: DataShape, *, network: Network | str | None = None) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError(f"{type(self).__name__} works on graphs, not on plain tensors")
        self.model = reference_model(shape, network)
        self.requires_grad_(False)  # everything is trained in `prepare`, nothing by the epochs of this run

    @property
    def explained(self) -> WeightedModel:
        return as_weighted(self.model)

    def weighted_logits(self, batch: GraphBatch, edge_weight: Tensor | None) -> Tensor:
        return self.explained(batch, edge_weight)

    def node_embeddings(self, batch: GraphBatch) -> Tensor:
        return self.explained.nodes(batch)

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        self.model.requires_grad_(True)
        trainer.fit_reference(self.model, dataset, "model")
        self.model.eval().requires_grad_(False)

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.model(batch)

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    def scores(self, batch: GraphBatch) -> Tensor:
        """One score an edge."""
        raise NotImplementedError(f"{type(self).__name__} must define scores(batch)")

    def explain(self, batch: GraphBatch) -> Explanation:
        """How much each edge was needed for the plain model's prediction."""
        scores = self.scores(batch)
        with torch.no_grad(), self.explained.frozen():
            return Explanation(batch, edge_scores=scores, logits=self.model(batch))


@register("gnnexplainer", tags=("graphs",))
class GNNExplainerMethod(PostHoc):
    """GNNExplainer on a plain GNN: for every graph a mask of edges that keeps the prediction.

    .. math:: \\min_M CE(f(G ⊙ σ(M)), \\hat y) + c_{size} \\sum_e σ(M_e) + c_{ent}\\, mean_e H(σ(M_e))

    `steps` and `mask_lr` are those of Adam on the mask, `size` and `entropy` the two weights.
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        steps: Count = 100,
        mask_lr: Positive = 0.1,
        size: NonNegative = 0.1,
        entropy: NonNegative = 1.0,
    ) -> None:
        super().__init__(shape, network=network)
        self.steps, self.mask_lr, self.size, self.entropy = steps, mask_lr, size, entropy

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, searches_explanations=True)

    def scores(self, batch: GraphBatch) -> Tensor:
        return gnnexplainer(
            self.explained, batch, steps=self.steps, lr=self.mask_lr, size=self.size, entropy=self.entropy
        )


class _Amortised(PostHoc):
    """A plain GNN and a network that is trained after it to mask its edges."""

    explainer: MaskNetwork | LayerGates

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        explainer_epochs: Count = 100,
        explainer_lr: Positive = 1e-3,
    ) -> None:
        super().__init__(shape, network=network)
        self.explainer_epochs, self.explainer_lr = explainer_epochs, explainer_lr

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        super().prepare(dataset, trainer)
        train = dataset.train
        assert isinstance(train, GraphSet)
        self.explainer.fit(self.explained, train, epochs=self.explainer_epochs, lr=self.explainer_lr, seed=trainer.seed)

    def scores(self, batch: GraphBatch) -> Tensor:
        return self.explainer.scores(self.explained, batch)


@register("pgexplainer", tags=("graphs",))
class PGExplainerMethod(_Amortised):
    """PGExplainer on a plain GNN: a network trained on all graphs says which edges lead to the label.

    .. math:: \\min_φ CE(f(G ⊙ m), y) + c_{size} \\sum_e m_e + c_{ent}\\, mean_e H(m_e), \\quad
        m_e \\sim concrete(MLP_φ([h_u ‖ h_v]), T_0 (T_1/T_0)^{epoch})

    `size` and `entropy` left out are 7.8e-5 and 0.01 (docs/papers/gmt.md#pgexplainer). `target="prediction"` explains
    what the model says instead of what is true.
    """

    @with_options_of(_Amortised)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        size: NonNegative | None = None,
        entropy: NonNegative | None = None,
        target: Target = "label",
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        width = width_of(self.model.featurizer)
        network_of_masks = MaskNetwork(width, "pgexplainer", size=size, entropy=entropy, target=target)
        self.explainer = network_of_masks.requires_grad_(False)


@register("graphmask", tags=("graphs",))
class GraphMaskMethod(_Amortised):
    """GraphMask on a plain GNN: gates that are open or shut, as few open as keep the prediction.

    .. math:: \\min_φ CE(f(G ⊙ m), \\hat y) + c_{size}\\, mean_e P(m_e > 0), \\quad
        m_e \\sim hard\\,concrete(MLP_φ([h_u ‖ h_v]))

    One gate an edge for all layers, as the published comparison has it. `layerwise` is GraphMask as its authors have
    it: a gate for each message of each layer, learned vectors in place of the messages shut out, and a multiplier that
    holds the prediction within `allowance`; an edge's score is then the mean over the layers. `size` left out is 1
    (docs/papers/gmt.md#graphmask).
    """

    @with_options_of(_Amortised)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        size: NonNegative | None = None,
        entropy: NonNegative | None = None,
        layerwise: bool = False,
        allowance: NonNegative = ALLOWANCE,
        **options: Any,
    ) -> None:
        super().__init__(shape, network=network, **options)
        if layerwise:
            gates = layer_gates(self.explained, size=size, entropy=entropy, allowance=allowance)
            gates.require_epochs(self.explainer_epochs)  # before a model is trained for them
            self.explainer = gates.requires_grad_(False)
        else:
            width = width_of(self.model.featurizer)
            self.explainer = MaskNetwork(width, "graphmask", size=size, entropy=entropy).requires_grad_(False)
