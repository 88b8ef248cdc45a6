"""LISA: training on mixtures of two samples that share the label or the environment, and not the other."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Batch, DataShape, Network
from shiftproof.methods.environments import EnvironmentMethod, Environments
from shiftproof.objectives import sample_losses
from shiftproof.ranges import Fraction, Positive
from shiftproof.registry import register

Mixed = Literal["auto", "inputs", "cutmix", "features"]
LABEL_BINS = 10  # of a number to regress: samples in the same tenth of the batch count as of the same label


@register("lisa", tags=("graphs", "tensors", "nodes"))
class LISA(EnvironmentMethod):
    """LISA: interpolate samples that have the label in common and not the environment, or the reverse.

    .. math:: \\tilde x = \\lambda x_i + (1-\\lambda) x_j,\\quad \\tilde y = \\lambda y_i + (1-\\lambda) y_j,\\qquad
        \\lambda \\sim \\mathrm{Beta}(\\alpha, \\alpha)

    The share `intra_label` of the samples gets a partner of the same label from another environment, the others one of
    the same environment with another label; a sample without a partner in the batch stays as it is. `mix`: "inputs"
    interpolates them, "cutmix" pastes a rectangle of the partner's image, "features" interpolates what the network has
    made of them; "auto" is "cutmix" for images, "features" for graphs and "inputs" otherwise. `concentration` is
    :math:`\\alpha` (2, docs/papers/pair.md#penalties-on-wilds).
    """

    def __init__(
        self,
        shape: DataShape,
        *,
        network: Network | str | nn.Module | None = None,
        intra_label: Fraction = 0.5,
        concentration: Positive = 2.0,
        mix: Mixed = "auto",
        environments: Environments = "auto",
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__(shape, network=network, environments=environments, reduction=reduction)
        images = shape.kind == "tensors" and len(shape.in_shape) == 3
        if mix == "auto":
            mix = "features" if shape.kind != "tensors" else ("cutmix" if images else "inputs")
        if mix == "cutmix" and not images:
            raise ShiftproofError(f"mix='cutmix' needs images [channels, height, width], not {shape.in_shape}")
        if mix == "inputs" and shape.kind != "tensors":
            raise ShiftproofError("graphs cannot be interpolated; take mix='features'")
        self.intra_label, self.concentration, self.mix = intra_label, concentration, mix

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        other = self.partners_of(batch)
        share = _beta(self.concentration, len(other), other.device)
        if self.mix == "cutmix":
            mixed, share = cutmix(batch.x, batch.x[other], share)
            logits = self(batch.replace(x=mixed))
        elif self.mix == "inputs":
            logits = self(batch.replace(x=interpolated(batch.x, batch.x[other], share)))
        else:
            features = self.featurizer(batch)
            logits = self.classify(interpolated(features, features[other], share))
        return {"task": self._soft_loss(logits, batch.y, batch.y[other], share)}

    def partners_of(self, batch: Batch) -> Tensor:
        """The sample that each one is mixed with: of its label from another environment, or the other way round."""
        env, labels = self.env(batch), label_groups(batch.y, self.shape.task)
        same_label = torch.rand(len(env), device=env.device) < self.intra_label
        return torch.where(same_label, partners(labels, env), partners(env, labels))

    def _soft_loss(self, logits: Tensor, y: Tensor, other: Tensor, share: Tensor) -> Tensor:
        task = self.shape.task
        if task == "regression":
            return sample_losses(logits, interpolated(y, other, share), task).mean()
        # cross-entropy is linear in the label: the loss of the mixture is the mixture of the losses
        return (share * sample_losses(logits, y, task) + (1 - share) * sample_losses(logits, other, task)).mean()


def partners(same: Tensor, different: Tensor) -> Tensor:
    """For every sample a random other one with an equal `same` and another `different`; itself where there is none.

    Sorted by both, the samples of one `same` are a block, and those to be left out a block within it: the partner is
    drawn by its place in what remains, without a table of pairs.
    """
    n = len(same)
    order = torch.argsort(same * (different.max() + 1) + different)
    block, inner = same[order], (same * (different.max() + 1) + different)[order]
    place = torch.arange(n, device=same.device)
    start, end = _block_ends(block)
    inner_start, inner_end = _block_ends(inner)
    others = (end - start) - (inner_end - inner_start)
    drawn = start + (torch.rand(n, device=same.device) * others).long().clamp(max=(others - 1).clamp(min=0))
    drawn = torch.where(drawn >= inner_start, drawn + (inner_end - inner_start), drawn)
    found = torch.where(others > 0, drawn, place)
    return torch.empty_like(order).scatter(0, order, order[found])


def _block_ends(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """For every place of an ordered vector where its run of equal values begins and ends."""
    return torch.searchsorted(ordered, ordered), torch.searchsorted(ordered, ordered, right=True)


def label_groups(y: Tensor, task: str) -> Tensor:
    """Numbers that are equal for samples of the same label: classes, rows of bits, or tenths of the batch's values."""
    if task in ("multiclass", "binary"):
        return y.reshape(-1).long()
    if task == "multilabel":
        return y.nan_to_num(2.0).unique(dim=0, return_inverse=True)[1]
    flat = y.reshape(len(y), -1)[:, 0]
    return flat.argsort().argsort() * LABEL_BINS // max(len(flat), 1)


def interpolated(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """The share of the first and the rest of the second, sample by sample."""
    share = share.view(-1, *[1] * (first.dim() - 1)).to(first.dtype)
    return share * first + (1 - share) * second


def cutmix(first: Tensor, second: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Images [n, c, h, w] with a random rectangle of the second each, and the share of pixels the first keeps."""
    n, _, height, width = first.shape
    side = (1 - share).sqrt().unsqueeze(1)
    centre = torch.rand(n, 2, device=first.device)
    inside = []
    for axis, length in enumerate((height, width)):
        at = torch.arange(length, device=first.device) + 0.5
        inside.append((at - centre[:, axis : axis + 1] * length).abs() < side * length / 2)
    pasted = inside[0].unsqueeze(2) & inside[1].unsqueeze(1)
    return torch.where(pasted.unsqueeze(1), second, first), 1 - pasted.float().mean((1, 2))


def _beta(concentration: float, n: int, device: torch.device) -> Tensor:
    alpha = torch.tensor(concentration, device=device)
    return torch.distributions.Beta(alpha, alpha, validate_args=False).sample((n,))
