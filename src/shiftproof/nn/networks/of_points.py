"""Networks of point clouds: graphs whose nodes have a place in space."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from torch import nn

from shiftproof.data.shape import DataShape
from shiftproof.nn.networks.messages import BatchNorm, GraphNetwork, Layers, Readout, Style, Width, Zero
from shiftproof.nn.points import PointEncoder, PointHead
from shiftproof.ranges import BelowOne, Positive, Range, Whole
from shiftproof.registry import register, with_options_of


class PointNetwork(GraphNetwork):
    """What the networks of points have in common: their options and the classifier on top."""

    conv = ""

    def __init__(
        self,
        shape: DataShape,
        *,
        hidden: Width = 32,
        layers: Layers = 3,
        readout: Readout = "mean",
        dropout: BelowOne = 0.0,
        style: Style = "ciga",
        batch_norm: BatchNorm = "per_sample",
        pos_dim: Annotated[int, Range(1, 16)] = 3,
        pos_scale: Positive = 1.0,
        geometry: tuple[str, ...] = (),
        collect_at: Literal["source", "target"] = "source",
        zero_weight: Zero = "zero_message",
        context: Whole = 0,
    ) -> None:
        encoder = PointEncoder(
            shape.in_shape[0],
            hidden=hidden,
            layers=layers,
            conv=self.conv,
            edge_dim=shape.edge_dim,
            dropout=dropout,
            pos_dim=pos_dim,
            pos_scale=pos_scale,
            geometry=geometry,
            collect_at=collect_at,
            zero=zero_weight,
            samples=batch_norm,
            context=context,
            readout=readout,
        )
        super().__init__(encoder, readout=readout)

    @staticmethod
    def head(
        shape: DataShape, width: int, *, dropout: float = 0.0, batch_norm: str = "per_sample", **_: Any
    ) -> nn.Module:
        """The classifier on pooled points (docs/papers/gmt.md#point-networks)."""
        return PointHead(width, shape.num_outputs, dropout, batch_norm)


@register("egnn", "networks", tags=("graphs",))
class EGNN(PointNetwork):
    """EGNN for points: messages of both rows and the distance between them.

    Places have `pos_dim` coordinates, multiplied by `pos_scale`; `geometry`, `collect_at` and `context` are those of
    `shiftproof.nn.PointEncoder`. `style="gmt"` also gives methods the conventions of the GMT paper.
    """

    conv = "egnn"

    @with_options_of(PointNetwork)
    def __init__(self, shape: DataShape, **options: Any) -> None:
        super().__init__(shape, **options)


@register("dgcnn", "networks", tags=("graphs",))
class DGCNN(PointNetwork):
    """DGCNN for points: the mean over edges of an MLP of a row and what its neighbour adds.

    Places have `pos_dim` coordinates, multiplied by `pos_scale`; `geometry`, `collect_at` and `context` are those of
    `shiftproof.nn.PointEncoder`. `style="gmt"` also gives methods the conventions of the GMT paper.
    """

    conv = "dgcnn"

    @with_options_of(PointNetwork)
    def __init__(self, shape: DataShape, **options: Any) -> None:
        super().__init__(shape, **options)


@register("point-transformer", "networks", tags=("graphs",))
class PointTransformer(PointNetwork):
    """Point Transformer: neighbours weighed by attention to their rows and the step between the places.

    Places have `pos_dim` coordinates, multiplied by `pos_scale`; `geometry`, `collect_at` and `context` are those of
    `shiftproof.nn.PointEncoder`. `style="gmt"` also gives methods the conventions of the GMT paper.
    """

    conv = "point-transformer"

    @with_options_of(PointNetwork)
    def __init__(self, shape: DataShape, **options: Any) -> None:
        super().__init__(shape, **options)
