"""Encoders and layers: they turn a batch into features and know nothing of losses or training.

A `GraphFeaturizer` (a `GNNEncoder` and a readout) gives one row for each graph, an `MLPFeaturizer` or `SmallCNN` one
for each sample of a plain tensor; `head` puts a classifier on top. `EdgeScorer` and `NodeScorer` judge the parts of a
graph, `top_edges` selects, and `split` cuts a batch into the selected subgraphs and the rest, whose edge weights are
an argument of every layer::

    h = encoder(batch.x, batch.edge_index)
    scores = scorer(h, batch.edge_index, batch.batch, batch.num_graphs)
    keep = top_edges(scores, batch.edge_batch, batch.num_graphs, ratio=0.25)
    invariant, spurious = split(batch, keep, scores.sigmoid(), (-scores).sigmoid())
    features = featurizer(invariant.batch, invariant.edge_weight)
"""

from shiftproof.nn.convs import WeightedGCNConv, WeightedGINConv, WeightedPNAConv, WeightedSGCConv
from shiftproof.nn.decoding import decode
from shiftproof.nn.dense import MLPFeaturizer, SmallCNN, head
from shiftproof.nn.edge_structure import LayerWise, Wiring
from shiftproof.nn.encoders import GNNEncoder, GraphFeaturizer
from shiftproof.nn.multilinear import (
    distribution,
    in_chunks,
    mean_of_samples,
    multilinear_extension,
    multilinear_gap,
    one_by_one,
    samples_within,
    score_gradient,
)
from shiftproof.nn.norms import GraphInstanceNorm, NodeBatchNorm
from shiftproof.nn.point_convs import POINT_CONVS, EGNNConv, WeightedEdgeConv, WeightedPointTransformerConv
from shiftproof.nn.points import PointEncoder, PointHead, looks_at_places
from shiftproof.nn.pooling import pool, readout
from shiftproof.nn.sampling import BernoulliSubgraph, bernoulli_draws, straight_through, uniform_draws
from shiftproof.nn.scorers import EdgeScorer, NodeScorer, lift_to_edges, reverse_edges, symmetrise
from shiftproof.nn.segment import (
    sample_bernoulli,
    sample_concrete,
    segment_count,
    segment_max,
    segment_mean,
    segment_min,
    segment_normalise,
    segment_rank,
    segment_softmax,
    segment_sum,
    share_of,
    top_edges,
)
from shiftproof.nn.subgraph import Subgraph, edge_subgraph, split
from shiftproof.nn.vision import LinearFeaturizer, ResNetFeaturizer, WithDropout

__all__ = [
    "POINT_CONVS",
    "BernoulliSubgraph",
    "EGNNConv",
    "EdgeScorer",
    "GNNEncoder",
    "GraphFeaturizer",
    "GraphInstanceNorm",
    "LayerWise",
    "LinearFeaturizer",
    "MLPFeaturizer",
    "NodeBatchNorm",
    "NodeScorer",
    "PointEncoder",
    "PointHead",
    "ResNetFeaturizer",
    "SmallCNN",
    "Subgraph",
    "WeightedEdgeConv",
    "WeightedGCNConv",
    "WeightedGINConv",
    "WeightedPNAConv",
    "WeightedPointTransformerConv",
    "WeightedSGCConv",
    "Wiring",
    "WithDropout",
    "bernoulli_draws",
    "decode",
    "distribution",
    "edge_subgraph",
    "head",
    "in_chunks",
    "lift_to_edges",
    "looks_at_places",
    "mean_of_samples",
    "multilinear_extension",
    "multilinear_gap",
    "one_by_one",
    "pool",
    "readout",
    "reverse_edges",
    "sample_bernoulli",
    "sample_concrete",
    "samples_within",
    "score_gradient",
    "segment_count",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_normalise",
    "segment_rank",
    "segment_softmax",
    "segment_sum",
    "share_of",
    "split",
    "straight_through",
    "symmetrise",
    "top_edges",
    "uniform_draws",
]
