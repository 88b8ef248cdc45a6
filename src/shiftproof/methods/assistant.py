"""The environment assistant: a plain model whose view of the training graphs stands in for their environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.data.dataset import Dataset, Split
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.methods.base import DataShape, Network, Trains
from shiftproof.methods.ciga import CIGA
from shiftproof.methods.erm import ERM
from shiftproof.methods.interpretable import ClassifierInput, InterpretableMethod
from shiftproof.nn import segment_count, segment_sum

AssistantModel = Literal["erm", "xgnn"]
AssistantSelection = Literal["val", "last", "train"]
SHIFT_TOLERANCE = 1e-4  # docs/papers/gala.md#proxies: of the squared sum of the centres' moves
STEPS_WITHOUT_WAITING = 25


@dataclass(frozen=True, eq=False)
class ProxyTable:
    """What stands in for the environment of each training sample, and whether the assistant predicted it right."""

    proxy: Tensor
    predicted: Tensor
    correct: Tensor
    representation: Tensor | None = None

    def __len__(self) -> int:
        return len(self.proxy)

    def diagnostics(self, dataset: Dataset) -> dict[str, dict[str, float]]:
        """Does the proxy follow the label, the base or the motif, and how strong are these where the assistant errs?

        One entry for the label, the environment and the columns `base` and `motif`, as far as the data have them:
        `nmi` and `agreement` with the proxy (under the best matching of ids), and the share of the samples where the
        column goes with the label, in all of them (`strength`), in those predicted right and in those predicted wrong.
        A group without samples has the strength NaN, and so has all of it where proxies were handed in and no assistant
        was trained. The entry "assistant" says how many were predicted right and wrong.
        """
        from sklearn.metrics import normalized_mutual_info_score  # takes most of a second to import

        split = dataset.train
        if len(split) != len(self):
            raise ShiftproofError(f"the proxies belong to {len(self)} training samples, the data have {len(split)}")
        y = split.y.reshape(-1).long().cpu()
        proxy, known = self.proxy.cpu(), (self.predicted >= 0).cpu()
        correct, wrong = self.correct.cpu() & known, ~self.correct.cpu() & known
        facts = {"label": y}
        facts |= {"environment": split.env.cpu()} if split.env is not None else {}
        facts |= {name: split.columns[name].long().cpu() for name in ("base", "motif") if name in split.columns}
        right, errors = float(correct.sum()), float(wrong.sum())
        told = {"assistant": {"accuracy": _share(correct[known]), "right": right, "wrong": errors}}
        for name, values in facts.items():
            goes_with = _matched(values, y)
            told[name] = {
                "nmi": float(normalized_mutual_info_score(values.numpy(), proxy.numpy())),
                "agreement": _share(_matched(proxy, values)),
                "strength": _share(goes_with),
                "strength_correct": _share(goes_with[correct]),
                "strength_incorrect": _share(goes_with[wrong]),
            }
        return told


def _matched(ids: Tensor, values: Tensor) -> Tensor:
    """Where the ids name the values, under the one-to-one matching that fits most samples."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = int(ids.max()) + 1, int(values.max()) + 1
    table = np.zeros((rows, columns))
    np.add.at(table, (ids.numpy(), values.numpy()), 1)
    best = torch.full((rows,), -1)
    chosen, named = linear_sum_assignment(-table)
    best[torch.from_numpy(chosen)] = torch.from_numpy(named)
    return best[ids] == values


def _share(flags: Tensor) -> float:
    return flags.double().mean().item()


@dataclass(frozen=True)
class EnvironmentAssistant:
    """A model trained by ERM, then frozen, meant to latch on to the dominant pattern (docs/papers/gala.md#assistant).

    `model`: "erm" is a plain GNN, "xgnn" the interpretable one with the share `ratio` of its edges and, for
    `contrast` above 0, CIGA's term to make it follow the dominant pattern further. `select` is which of its epochs is
    kept: the best on the validation split, the last (after the early stopping that the run itself has,
    docs/papers/gala.md#training), or the best on the training split. `epochs` are how many there are at most. An "xgnn"
    may be trained with another share of the edges, `trained_ratio`, than it is then
    looked at with (docs/papers/gala.md#d21).
    """

    model: AssistantModel = "erm"
    select: AssistantSelection = "val"
    epochs: int | None = None
    ratio: float = -1.0
    trained_ratio: float | None = None
    contrast: float = 0.0
    classifier_input: ClassifierInput = "raw"
    classifier_width: int | None = None

    def __post_init__(self) -> None:
        if self.model not in ("erm", "xgnn"):
            raise unknown("assistant", self.model, ("erm", "xgnn"))
        if self.select not in ("val", "last", "train"):
            raise unknown("assistant_select", self.select, ("val", "last", "train"))

    def fit(self, dataset: Dataset, trainer: Trains, network: Network | str | None = None) -> ERM | CIGA:
        """The trained assistant, in evaluation mode and without gradients."""
        shape = DataShape.of(dataset)
        if self.model == "erm":
            model: ERM | CIGA = ERM(shape, network=network)
        else:
            model = CIGA(
                shape,
                network=network,
                alpha=self.contrast,
                ratio=self.ratio if self.trained_ratio is None else self.trained_ratio,
                scorer_norm=True,
                classifier_input=self.classifier_input,
                classifier_width=self.classifier_width,
                contrast="rep",
            )
        judged = dataset.with_splits(val=dataset.train) if self.select == "train" else dataset
        last = "stopped" if "val" in dataset.splits else "last"
        selection = {"val": "auto", "last": last, "train": "val"}[self.select]
        trainer.fit_reference(model, judged, "assistant", epochs=self.epochs, selection=selection)  # type: ignore[arg-type]
        if isinstance(model, CIGA):
            model.ratio = self.ratio
        return model.eval().requires_grad_(False)

    def proxies(
        self, model: ERM | InterpretableMethod, split: Split, *, kind: str = "cluster", clusters: int = 3, seed: int = 0
    ) -> ProxyTable:
        """What a trained assistant says of a split: its label predictions or the clusters of its representations."""
        if kind not in ("label", "cluster"):
            raise unknown("proxy", kind, ("label", "cluster"))
        z, predicted = seen_by(model, split)
        correct = predicted == split.y.reshape(-1).long()
        proxy = predicted
        if kind == "cluster":
            generator = torch.Generator().manual_seed(seed)
            proxy = nearest_centre(z, cosine_kmeans(z, clusters, generator=generator))
        return ProxyTable(proxy, predicted, correct, z)


@torch.no_grad()
def seen_by(model: ERM | InterpretableMethod, split: Split) -> tuple[Tensor, Tensor]:
    """The vector and the predicted class of every sample."""
    parts = [_look(model, batch) for batch in split.batches(1024)]
    z, logits = (torch.cat(column) for column in zip(*parts, strict=True))
    return z, logits.argmax(-1) if logits.dim() == 2 else (logits > 0).long()


def _look(model: ERM | InterpretableMethod, batch: Any) -> tuple[Tensor, Tensor]:
    if isinstance(model, InterpretableMethod):
        z = model.represent(model.extract(batch).kept)
        return z, model.logits(z)
    z = model.featurizer(batch)
    return z, model.classify(z)


def cosine_kmeans(x: Tensor, clusters: int, *, generator: torch.Generator | None = None, steps: int = 100) -> Tensor:
    """The centres of k-means with cosine distance for the assignment and plain means for the centres, [K, d].

    They start at distinct random points, an empty cluster is moved to a random point, and the iteration ends when the
    squared sum of the centres' moves is below 1e-4 (docs/papers/gala.md#proxies) or after `steps`. Never more clusters
    than points. On a GPU, unless a generator is given, nothing waits for the device, so that a captured step can hold
    it; all steps are then taken, and there are at most 25 of them.
    """
    if clusters < 1:
        raise ShiftproofError(f"k-means needs at least one cluster, not {clusters}")
    count = min(clusters, len(x))
    if x.is_cuda and generator is None:
        return kmeans_without_waiting(x, count, min(steps, STEPS_WITHOUT_WAITING))
    centres = _random_points(x, count, generator)
    for _ in range(steps):
        moved = _moved(x, centres, _random_points(x, count, generator))
        shift = (moved - centres).norm(dim=1).sum().square()
        centres = moved
        if bool(shift < SHIFT_TOLERANCE):
            break
    return centres


def kmeans_without_waiting(x: Tensor, count: int, steps: int = STEPS_WITHOUT_WAITING) -> Tensor:
    """As `cosine_kmeans`, with random points drawn on the device and centres that stay where the other ends."""
    drawn = torch.rand(steps + 1, len(x), device=x.device).argsort(1)[:, :count]
    centres = x[drawn[0]]
    ended = torch.zeros((), dtype=torch.bool, device=x.device)
    for step in range(steps):
        moved = _moved(x, centres, x[drawn[step + 1]])
        shift = (moved - centres).norm(dim=1).sum().square()
        centres = torch.where(ended, centres, moved)
        ended = ended | (shift < SHIFT_TOLERANCE)
    return centres


def _random_points(x: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    return x[torch.randperm(len(x), generator=generator)[:count].to(x.device)]


def _moved(x: Tensor, centres: Tensor, spare: Tensor) -> Tensor:
    """The means of the points nearest to each centre; a centre without any moves to its spare point."""
    nearest = nearest_centre(x, centres)
    size = segment_count(nearest, len(centres), x.dtype).unsqueeze(1)
    return torch.where(size > 0, segment_sum(x, nearest, len(centres)) / size.clamp(min=1), spare)


def nearest_centre(x: Tensor, centres: Tensor) -> Tensor:
    """The centre with the largest cosine to each point."""
    return (F.normalize(x, dim=1) @ F.normalize(centres, dim=1).T).argmax(1)
