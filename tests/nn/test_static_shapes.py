"""The path of a padded batch needs no value on the host: it runs on tensors that have shapes but no content."""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from shiftproof.nn import EdgeScorer, GNNEncoder, GraphFeaturizer, segment_softmax, split, top_edges
from tests.nn.families import padded, random_graphs


@pytest.mark.parametrize("conv", ["gcn", "gin", "pna"])
@pytest.mark.parametrize("parallel", [None, 3])
def test_a_padded_batch_is_scored_cut_and_classified_without_looking_at_a_value(conv, parallel):
    real = padded(random_graphs().whole())
    with FakeTensorMode() as mode:
        batch = real.replace(
            **{n: mode.from_tensor(getattr(real, n)) for n in ("x", "edge_index", "batch", "ptr", "y", "node_mask")},
            node_columns={},
            edge_columns={},
            edge_truth=None,
        )
        embed, scorer = GNNEncoder(3, 8, 2, conv, dropout=0.1), EdgeScorer(8, norm="instance", symmetric=True)
        classify = GraphFeaturizer(GNNEncoder(3, 8, 2, conv, virtual_node=True))
        h = embed(batch.x, batch.edge_index, node_mask=batch.node_mask)
        scores = scorer(h, batch.edge_index, batch.batch, batch.num_graphs)
        segment_softmax(scores, batch.edge_batch, batch.num_graphs + 1)
        keep = top_edges(scores, batch.edge_batch, batch.num_graphs, 0.5)
        weight = scores.sigmoid() if parallel is None else scores.sigmoid().unsqueeze(1).expand(-1, parallel)
        kept, left = split(batch, keep, weight, 1 - weight)
        features = classify(kept.batch, kept.edge_weight) + classify(left.batch, left.edge_weight)
        features.sum().backward()
    assert features.shape == ((4, 8) if parallel is None else (4, parallel, 8))
    assert scorer.mlp.first.weight.grad is not None


def test_the_yardstick_notices_a_look_at_a_value():
    with FakeTensorMode():
        x = torch.ones(3)
        with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
            x.nonzero()
        with pytest.raises(DataDependentOutputException):
            x.max().item()
