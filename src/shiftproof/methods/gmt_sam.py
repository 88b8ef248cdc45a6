"""GMT-sam: an extractor trained by sampling subgraphs, then a classifier of its own on what the extractor keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape, Method, Network, Trains, as_network, variant
from shiftproof.methods.explanation import Explanation
from shiftproof.methods.gmt import GMTLin, GMTSimulated
from shiftproof.methods.gsat import GSAT, head_of, warn_of_collapse
from shiftproof.methods.how_trained import FirstStage, HowTrained
from shiftproof.nn import BernoulliSubgraph, GraphFeaturizer, decode
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Count, Fraction
from shiftproof.registry import options_of, register, with_options_of

ExtractorName = Literal["sampled", "soft", "linear"]
Decoding = Literal["normal", "min0", "max1", "min0max1"]

# docs/papers/gmt.md#gmt-sam, the nine of the paper: where the classifier starts, in which rounds weights act, what
# they become
DECODERS: dict[str, dict[str, str]] = {
    f"{init}-{rounds}-{decoding}": {
        "init": init,
        "placement": {"mul": "all", "lin": "first"}[rounds],
        "decoding": decoding,
    }
    for init, rounds, decoding in (
        ("new", "mul", "min0"),
        ("old", "mul", "min0"),
        ("new", "mul", "max1"),
        ("old", "mul", "max1"),
        ("old", "mul", "min0max1"),
        ("new", "mul", "normal"),
        ("old", "mul", "normal"),
        ("new", "lin", "normal"),
        ("old", "lin", "normal"),
    )
}


@register("gmt-sam", tags=("graphs",))
class GMTSam(Method):
    """Attention trained on sampled subgraphs, then frozen under a classifier that needs a single pass.

    .. math:: \\min_{f} R\\big(f(X, decode(α))\\big), \\qquad α = σ(g(G)) \\; \\text{fixed}

    Stage I (folder "extractor" of a run) trains a `GMTSimulated` extractor for `reference_epochs` epochs (None: as many
    as stage II); `extractor="soft"` trains GSAT instead, "linear" GMT-lin. Stage II trains a classifier that starts
    "new" or as the "old" one of stage I (`init`), with the extractor's α in "all" or the "first" round of messages
    (`placement`), after `decoding` with the share `ratio` on top (`shiftproof.nn.decode`). `DECODERS` names the nine
    choices of the paper. `freeze_mode="train"` computes the attention of training batches with dropout and lets batch
    statistics move, as the released code does; "eval" leaves the extractor alone. All other options are those of
    `gmt-simulated`.
    """

    @with_options_of(GMTSimulated)
    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | None = None,
        extractor: ExtractorName = "sampled",
        init: Literal["new", "old"] = "new",
        placement: Literal["all", "first"] = "all",
        decoding: Decoding = "min0",
        ratio: Fraction = 0.5,
        freeze_mode: Literal["train", "eval"] = "train",
        reference_epochs: Count | None = None,
        **options: Any,
    ) -> None:
        super().__init__(shape)
        if extractor != "sampled":  # nothing is drawn there
            drawing = options_of(GMTSimulated).keys() - options_of(GSAT).keys()
            options = {name: value for name, value in options.items() if name not in drawing}
        kinds: dict[str, type[GSAT]] = {"sampled": GMTSimulated, "soft": GSAT, "linear": GMTLin}
        self.extractor = kinds[extractor](shape, network=network, **options)
        self.extractor.requires_grad_(False)
        spec = as_network(network)
        self.featurizer = GraphFeaturizer(spec.encoder(shape.in_shape[0], shape.edge_dim), readout=spec.readout)
        self.head = head_of(spec, shape)
        self.init, self.decoding, self.ratio = init, decoding, ratio
        self.layers = None if placement == "all" else (0,)
        self.freeze_mode, self.reference_epochs = freeze_mode, reference_epochs
        self.epoch = 0

    @property
    def how_trained(self) -> HowTrained:
        return replace(
            super().how_trained,
            capturable=self.extractor.how_trained.capturable,
            selectable=self.selectable(self.epoch),
            ties_by_loss=True,
            first_stage=self.first_stage,
        )

    def first_stage(self) -> FirstStage:
        """The extractor, whose attention this classifier is given."""
        return FirstStage(self.extractor, "extractor", self.reference_epochs)

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        stage = self.first_stage()
        self.extractor.requires_grad_(True)
        trainer.fit_reference(stage.method, dataset, stage.name, epochs=stage.epochs)
        self.extractor.requires_grad_(False)
        if self.init == "old":
            self.featurizer.load_state_dict(self.extractor.featurizer.state_dict())
            self.head.load_state_dict(self.extractor.head.state_dict())

    def train(self, mode: bool = True) -> GMTSam:
        super().train(mode)
        if self.freeze_mode == "eval":
            self.extractor.eval()
        return self

    def start_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def selectable(self, epoch: int) -> bool:
        """Whether the epoch may be the one that is kept: as the extractor says."""
        return self.extractor.selectable(epoch)

    @torch.no_grad()
    def attention_logits(self, batch: GraphBatch) -> Tensor:
        """The frozen extractor's logits of attention."""
        return self.extractor.attention_logits(batch)

    def subgraph(self, batch: GraphBatch) -> BernoulliSubgraph:
        """The distribution over subgraphs that the extractor stands for."""
        return self.extractor.distribution(batch, self.attention_logits(batch))

    def classify(self, batch: GraphBatch, weight: Tensor) -> Tensor:
        """Logits of the second classifier from edge weights that are not decoded any more: `[E]` or `[E, t]`."""
        return self.extractor.flat(self.head(self.featurizer(batch, weight, self.layers)))

    def predict_from(self, batch: GraphBatch, logits: Tensor) -> Tensor:
        """The prediction that follows from given logits of attention."""
        weight = self.extractor.distribution(batch, logits).probs
        return self.classify(batch, decode(weight, batch.edge_batch, batch.num_graphs, self.decoding, self.ratio))

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.predict_from(batch, self.attention_logits(batch))

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        return {"task": sample_losses(self(batch), batch.y, self.shape.task).mean()}

    def explain(self, batch: GraphBatch) -> Explanation:
        """The chance that the extractor gives to each edge, before decoding."""
        was_training = self.training
        self.eval()
        with torch.no_grad():
            logits = self.attention_logits(batch)
            scores = self.extractor.distribution(batch, logits).probs
            predicted = self.predict_from(batch, logits)
        self.train(was_training)
        warn_of_collapse(scores, batch)
        nodes = logits.sigmoid() if self.extractor.attention_to == "node" else None
        return Explanation(batch, edge_scores=scores, node_scores=nodes, logits=predicted)


GSATMin0 = variant(
    GMTSam,
    "gsat-min0",
    "A control for GMT-sam: GSAT's extractor, then a classifier on the edges it scores highest.\n\n"
    "Stage I is plain GSAT; stage II, with its decoding, is GMT-sam's.",
    extractor="soft",
)
