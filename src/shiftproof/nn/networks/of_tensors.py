"""Networks of plain tensors: an MLP, the input itself, a small CNN, ResNets."""

from __future__ import annotations

import math

from torch import nn

from shiftproof.data.shape import DataShape
from shiftproof.errors import ShiftproofError
from shiftproof.nn.dense import MLPFeaturizer, SmallCNN
from shiftproof.nn.networks.messages import Width
from shiftproof.nn.vision import LinearFeaturizer, ResNetFeaturizer, WithDropout
from shiftproof.ranges import BelowOne
from shiftproof.registry import register


@register("mlp", "networks", tags=("tensors", "nodes"))
def mlp(shape: DataShape, *, widths: tuple[Width, ...] = (256, 256), dropout: BelowOne = 0.0) -> nn.Module:
    """A linear layer and a ReLU for each of `widths`, started as in the ColoredMNIST experiments."""
    return _dropped(MLPFeaturizer(math.prod(shape.in_shape), widths=tuple(widths)), dropout)


@register("linear", "networks", tags=("tensors",))
def linear(shape: DataShape, *, dropout: BelowOne = 0.0) -> nn.Module:
    """The input itself, so that the model is linear in it."""
    return _dropped(LinearFeaturizer(math.prod(shape.in_shape)), dropout)


@register("cnn", "networks", tags=("tensors",))
def cnn(shape: DataShape, *, dropout: BelowOne = 0.0) -> nn.Module:
    """Four convolutions for small images, as DomainBed has them."""
    return _dropped(SmallCNN(_channels("cnn", shape)), dropout)


@register("resnet18", "networks", tags=("tensors",))
def resnet18(shape: DataShape, *, pretrained: str = "", dropout: BelowOne = 0.0) -> nn.Module:
    """ResNet-18 for images, started from the safetensors file `pretrained` where there is one."""
    return _dropped(ResNetFeaturizer("resnet18", _channels("resnet18", shape), weights=pretrained), dropout)


@register("resnet50", "networks", tags=("tensors",))
def resnet50(shape: DataShape, *, pretrained: str = "", dropout: BelowOne = 0.0) -> nn.Module:
    """ResNet-50 for images, started from the safetensors file `pretrained` where there is one."""
    return _dropped(ResNetFeaturizer("resnet50", _channels("resnet50", shape), weights=pretrained), dropout)


def _channels(name: str, shape: DataShape) -> int:
    if len(shape.in_shape) != 3:
        raise ShiftproofError(f"the network '{name}' needs images [channels, height, width], not {shape.in_shape}")
    return shape.in_shape[0]


def _dropped(featurizer: nn.Module, dropout: float) -> nn.Module:
    return WithDropout(featurizer, dropout) if dropout > 0 else featurizer
