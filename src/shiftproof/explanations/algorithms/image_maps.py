"""Where a model looks: Grad-CAM, saliency, integrated gradients, and how much of it falls on a region.

Every function takes `model`, a callable from inputs to logits, and `target`, the class of each sample: for a model with
one logit, 1 asks for the logit and 0 for minus the logit; None takes the predicted class.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import ShiftproofError

Model = Callable[[Tensor], Tensor]


def grad_cam(model: Model, layer: nn.Module, x: Tensor, target: Tensor | None = None) -> Tensor:
    r"""A map [n, h, w] between 0 and 1 of where a convolution speaks for the class.

    .. math:: a_k = \mathrm{mean}_{ij}\,\partial s/\partial A^k_{ij}, \qquad \mathrm{ReLU}\Big(\sum_k a_k A^k\Big)

    with the maps A of `layer`, brought to the size of the input and divided by each sample's largest value.
    """
    maps: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        maps.append(output)

    hook = layer.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            score = class_score(model(x.detach().requires_grad_(True)), target)
            if len(maps) != 1 or maps[0].dim() != 4:
                raise ShiftproofError("Grad-CAM needs a layer that gives maps [n, channels, h, w] once in a pass")
            (gradient,) = torch.autograd.grad(score.sum(), maps[0])
    finally:
        hook.remove()
    cam = (gradient.mean((2, 3), keepdim=True) * maps[0].detach()).sum(1, keepdim=True).relu()
    cam = F.interpolate(cam, size=x.shape[-2:], mode="bilinear", align_corners=False).squeeze(1)
    return cam / cam.amax((1, 2), keepdim=True).clamp(min=1e-12)


def saliency(model: Model, x: Tensor, target: Tensor | None = None) -> Tensor:
    r""":math:`|\partial s_y/\partial x|`; of images [n, c, h, w] the largest over channels, [n, h, w]."""
    with torch.enable_grad():
        inputs = x.detach().clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(class_score(model(inputs), target).sum(), inputs)
    return gradient.abs().amax(1) if x.dim() == 4 else gradient.abs()


def integrated_gradients(
    model: Model, x: Tensor, target: Tensor | None = None, *, baseline: Tensor | None = None, steps: int = 50
) -> Tensor:
    r"""What every input value contributes; the sum is the change of the score from the baseline (zeros if not given).

    .. math:: (x-x_0)\int_0^1 \partial s/\partial x\,(x_0+\tau(x-x_0))\,d\tau

    as a midpoint sum. Works on embeddings too: pass a `model` that starts from them.
    """
    start = torch.zeros_like(x) if baseline is None else baseline.expand_as(x)
    chosen = predicted(model(x).detach()) if target is None else target
    total = torch.zeros_like(x)
    for k in range(steps):
        with torch.enable_grad():
            point = (start + (k + 0.5) / steps * (x - start)).detach().requires_grad_(True)
            total += torch.autograd.grad(class_score(model(point), chosen).sum(), point)[0]
    return (x - start) * total / steps


def share_in_region(attribution: Tensor, region: Tensor) -> Tensor:
    """The share [n] of the positive attribution that lies inside a region ([n, h, w] or [h, w] of zeros and ones).

    0 where nothing is attributed at all.
    """
    mass = attribution.clamp(min=0)
    inside = (mass * region.to(mass)).flatten(1).sum(1)
    return inside / mass.flatten(1).sum(1).clamp(min=1e-12)


def class_score(logits: Tensor, target: Tensor | None) -> Tensor:
    """The score of each sample's class: its logit, or plus or minus the only one."""
    chosen = predicted(logits.detach()) if target is None else target.to(logits.device).long()
    if logits.dim() == 2 and logits.shape[1] > 1:
        return logits.gather(1, chosen.reshape(-1, 1)).squeeze(1)
    return logits.reshape(-1) * (2 * chosen.reshape(-1) - 1)


def predicted(logits: Tensor) -> Tensor:
    return logits.argmax(1) if logits.dim() == 2 and logits.shape[1] > 1 else (logits.reshape(-1) > 0).long()
