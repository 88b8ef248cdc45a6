"""What scorers of points share."""

from __future__ import annotations

from shiftproof.data.graphs import GraphBatch
from shiftproof.nn import GraphFeaturizer

SCORER_DROPOUT = 0.2  # docs/papers/gmt.md#attention, on point clouds


def as_seen(batch: GraphBatch, featurizer: GraphFeaturizer) -> GraphBatch:
    """The batch without places where the network does not look at them; its features are then what `positions` are."""
    return batch if featurizer.encoder.takes_positions else batch.replace(node_columns={})
