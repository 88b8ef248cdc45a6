"""Featurizers that stand on others: torchvision's ResNets, the input itself for linear models, dropout on features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError, optional, unknown

RESNETS = ("resnet18", "resnet50")


class LinearFeaturizer(nn.Module):
    """The flattened input itself, so that the head is a linear model of it: bags of words, histograms, tables."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = self.out_channels = in_features

    def forward(self, batch: Any) -> Tensor:
        return (batch if isinstance(batch, Tensor) else batch.x).flatten(1)


class ResNetFeaturizer(nn.Module):
    """The 512 (ResNet-18) or 2,048 (ResNet-50) pooled features of an image, by torchvision's network.

    `weights` is a safetensors file of torchvision's names, such as those learned on ImageNet; the first layer is fitted
    to other numbers of channels than three by starting anew. `freeze_norm` keeps batch norm as it was loaded, as
    DomainBed does (docs/papers/pair.md#domainbed-network); it is left out where nothing was loaded.
    """

    def __init__(
        self, kind: str = "resnet18", in_channels: int = 3, *, weights: str | Path = "", freeze_norm: bool | None = None
    ) -> None:
        super().__init__()
        if kind not in RESNETS:
            raise unknown("ResNet", kind, RESNETS)
        models = optional("torchvision.models", "vision", f"the featurizer '{kind}'")
        network: Any = getattr(models, kind)(weights=None)
        self.out_channels = int(network.fc.in_features)
        network.fc = nn.Identity()
        if weights:
            _load(network, Path(weights))
        if in_channels != 3:
            old = network.conv1
            network.conv1 = nn.Conv2d(
                in_channels, old.out_channels, old.kernel_size, old.stride, old.padding, bias=False
            )
        self.network = network
        self.freeze_norm = bool(weights) if freeze_norm is None else freeze_norm

    def forward(self, batch: Any) -> Tensor:
        return self.network(batch if isinstance(batch, Tensor) else batch.x)

    def train(self, mode: bool = True) -> ResNetFeaturizer:
        super().train(mode)
        if self.freeze_norm:
            for part in self.network.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.eval()
        return self


class WithDropout(nn.Module):
    """A featurizer whose features are dropped at random while it is trained (docs/papers/pair.md#domainbed-network)."""

    def __init__(self, featurizer: nn.Module, dropout: float) -> None:
        super().__init__()
        self.featurizer, self.dropout = featurizer, nn.Dropout(dropout)
        self.out_channels = getattr(featurizer, "out_channels")  # noqa: B009 - every featurizer has one

    def forward(self, batch: Any) -> Tensor:
        return self.dropout(self.featurizer(batch))


def _load(network: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, torch.Tensor] = load_file(path)
    except (OSError, SafetensorError, ValueError) as problem:
        raise ShiftproofError(f"{path} is missing or not a safetensors file of a ResNet ({problem})") from None
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("fc.")}
    expected = network.state_dict()
    wrong = [name for name in expected if name not in kept or kept[name].shape != expected[name].shape]
    if wrong:
        raise ShiftproofError(f"{path} does not fit: '{wrong[0]}' is missing or of another shape")
    network.load_state_dict({name: kept[name] for name in expected})
