"""GALA: the invariant subgraph, also where the shortcut is stronger than the cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.assistant import AssistantModel, AssistantSelection, EnvironmentAssistant, ProxyTable
from shiftproof.methods.base import DataShape, Network, Trains
from shiftproof.methods.ciga import CIGA
from shiftproof.methods.how_trained import HowTrained
from shiftproof.methods.interpretable import Kept
from shiftproof.methods.upsampling import Upsampling, upsampled
from shiftproof.objectives import hinge, proxy_contrast
from shiftproof.ranges import Count, NonNegative, Positive, Whole
from shiftproof.registry import register, with_options_of


@register("gala", tags=("graphs",))
class GALA(CIGA):
    """An assistant shows where the shortcut leads; graphs of one class that it tells apart are drawn together.

    .. math:: R(f_c(\\hat G_c)) + α\\, L_{con}(h; y, a), \\qquad
        P(i)=\\{y_j=y_i, a_j≠a_i\\},\\; N(i)=\\{y_j≠y_i, a_j=a_i\\}

    Stage 0 trains the `assistant` ("erm" or "xgnn"; `assistant_select` is which epoch of it is kept: the best on the
    validation split, the "last" before it was stopped early, or the best on the training split; `assistant_ratio` is
    the share of edges with which an "xgnn" is trained, where it is not `ratio`). The proxy `a` is the
    `"cluster"` of its representation, the `"label"` it predicts, `"random"`, the name of a column of the training data
    (`"base"` on two-piece graphs is the oracle) or your own tensor of ids. `upsample` repeats the smaller of the groups
    that the assistant predicts right and wrong: a number of copies, "auto" or "off"; `upsample_in` says which terms
    count the copies, "all", only the "task" or only the "contrast". The contrast starts at epoch `terms_from`;
    `anchors="incorrect"` takes it over the wrongly predicted samples only; `beta` adds CIGA's hinge. `share_encoder`
    scores the edges by the classifier's own encoder. `proxy_table()` holds what the assistant found.
    """

    proxy: Tensor
    predicted: Tensor
    correct: Tensor

    @with_options_of(
        CIGA,
        without=("edge_scorer", "contrast_pool", "contrast_variant", "spurious", "hinge_normalize", "compat"),
        ratio=-1.0,
        scorer_norm=True,
        classifier_input="raw",
        contrast="rep",
    )
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        alpha: NonNegative = 1.0,
        beta: NonNegative = 0.0,
        assistant: AssistantModel = "erm",
        assistant_select: AssistantSelection = "val",
        assistant_contrast: NonNegative = 0.0,
        assistant_ratio: Kept | None = None,
        reference_epochs: Whole | None = None,
        proxy: str | Tensor = "cluster",
        clusters: Count = 3,
        anchors: Literal["all", "incorrect"] = "all",
        upsample: Upsampling = "auto",
        upsample_in: Literal["all", "task", "contrast"] = "all",
        terms_from: Whole = 0,
        denominator: Literal["pairs", "infonce"] = "pairs",
        temperature: Positive = 1.0,
        **options: Any,
    ) -> None:
        if shape.task not in ("multiclass", "binary"):
            raise ShiftproofError(f"GALA tells classes from proxies and takes no {shape.task} labels")
        if anchors not in ("all", "incorrect"):
            raise unknown("anchors", anchors, ("all", "incorrect"))
        if upsample_in not in ("all", "task", "contrast"):
            raise unknown("upsample_in", upsample_in, ("all", "task", "contrast"))
        super().__init__(shape, network=network, alpha=alpha, beta=beta, temperature=temperature, **options)
        self.network = network
        self.assistant = EnvironmentAssistant(
            model=assistant,
            select=assistant_select,
            epochs=reference_epochs,
            ratio=options["ratio"],
            trained_ratio=assistant_ratio,
            contrast=assistant_contrast,
            classifier_input=options["classifier_input"],
            classifier_width=options.get("classifier_width"),
        )
        self.proxy_source, self.clusters, self.anchors = proxy, clusters, anchors
        self.upsample: Upsampling = upsample
        self.upsample_in = upsample_in
        self.once: Tensor | None = None
        self.proxy_denominator, self.terms_from = denominator, terms_from
        self.full_weights = dict(self.weights)
        self.register_buffer("proxy", torch.zeros(shape.num_train, dtype=torch.long))
        self.register_buffer("predicted", torch.full((shape.num_train,), -1))
        self.register_buffer("correct", torch.zeros(shape.num_train, dtype=torch.bool))

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        train, kind = dataset.train, self.proxy_source
        # clusters=1 is the released commands' way of asking for label predictions (docs/papers/gala.md#proxies)
        seen = "label" if kind == "cluster" and self.clusters == 1 else kind
        asked = isinstance(seen, str) and seen in ("label", "cluster")
        contrasted = "contrast" in self.weights
        if (asked and contrasted) or self.upsample not in ("off", 0) or self.anchors == "incorrect":
            model = self.assistant.fit(dataset, trainer, self.network)
            shown = str(seen) if asked else "label"
            table = self.assistant.proxies(model, train, kind=shown, clusters=self.clusters, seed=trainer.seed)
            self.proxy.copy_(table.proxy)
            self.predicted.copy_(table.predicted)
            self.correct.copy_(table.correct)
        if contrasted and not asked:
            self.proxy.copy_(self._handed_in(train, trainer.seed))

    def _handed_in(self, train: Split, seed: int) -> Tensor:
        source = self.proxy_source
        if isinstance(source, Tensor):
            if source.shape != (len(train),) or source.is_floating_point():
                raise ShiftproofError(
                    f"'proxy' holds one whole number for each of the {len(train)} training samples, "
                    f"not {source.dtype} of shape {tuple(source.shape)}"
                )
            return source
        if source == "random":
            return torch.randint(self.clusters, (len(train),), generator=torch.Generator().manual_seed(seed))
        if source not in train.columns:
            raise unknown("proxy", source, ("cluster", "label", "random", *train.columns))
        return train.columns[source].long()

    def proxy_table(self) -> ProxyTable:
        """The proxies of the training samples; its `diagnostics(dataset)` says what they follow."""
        return ProxyTable(self.proxy, self.predicted, self.correct)

    @property
    def how_trained(self) -> HowTrained:
        samples = None if self.upsample == "off" else upsampled(self.correct, self.upsample)
        return replace(super().how_trained, samples=samples)

    def start_epoch(self, epoch: int) -> None:
        self.once = self._one_over_copies()
        later = {name: weight if epoch >= self.terms_from else 0.0 for name, weight in self.full_weights.items()}
        self.weights = {**later, "task": 1.0}

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        found = self.extract(batch)
        z = self.represent(found.kept)
        risk = self.risks(self.logits(z), batch)
        once = None if self.once is None else self.once.index_select(0, batch.index)
        terms = {"task": risk.mean() if once is None or self.upsample_in == "task" else _weighted_mean(risk, once)}
        if "contrast" in self.weights:
            terms["contrast"] = proxy_contrast(
                self._contrasted(z, found),
                batch.y.long(),
                self.proxy.index_select(0, batch.index),
                anchors=None if self.anchors == "all" else ~self.correct.index_select(0, batch.index),
                weight=once if self.upsample_in == "task" else None,
                temperature=self.temperature,
                denominator=self.proxy_denominator,
            )
        if "hinge" in self.weights:
            wrong = self.risks(self.logits(self._left_vector(batch, found), self.spurious_head), batch)
            terms["hinge"] = hinge(wrong, risk)
        return terms

    def _one_over_copies(self) -> Tensor | None:
        """One over the number of times each sample is in an epoch, where a term is not to count the copies."""
        if self.upsample_in == "all" or self.upsample == "off":
            return None
        return upsampled(self.correct, self.upsample).bincount(minlength=len(self.correct)).reciprocal()


def _weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum() / weight.sum()
