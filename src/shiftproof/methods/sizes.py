"""Tensors whose size is known only once the training data have been seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def take_sizes(module: nn.Module, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Give the named parameters and buffers of a module the sizes of the tensors that are about to be loaded.

    A parameter stays the same object, so that an optimiser that already knows it goes on with the new size. Names with
    dots are of modules inside.
    """
    for name in names:
        inside, _, last = name.rpartition(".")
        owner = module.get_submodule(inside)
        own = getattr(owner, last)
        if name not in tensors or tensors[name].dim() != own.dim():
            continue  # whoever loads them will say what does not fit
        resized = torch.zeros(tensors[name].shape, dtype=own.dtype, device=own.device)
        if isinstance(own, nn.Parameter):
            own.data = resized
        else:
            setattr(owner, last, resized)
