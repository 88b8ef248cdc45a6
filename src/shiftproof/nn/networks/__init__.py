"""Networks by name: each is a class with options of its own that turns a batch into vectors of `out_channels`.

`Network("gat", hidden=64)` says which one without building it; `fit(..., network="gat", hidden=64)` is the same. A
network of one's own joins by `@register("mine", kind="networks", tags=("graphs",))`: it is built as
`Mine(shape, **options)` from a `DataShape` and called with batches. One that builds on `GraphNetwork` also serves the
methods that look for subgraphs, and one with `head(shape, width)` brings its own classifier along.
"""

from shiftproof.nn.networks.messages import APPNP, GAT, GCN, GIN, GPRGNN, PNA, SGC, GraphNetwork, GraphSAGE
from shiftproof.nn.networks.network import Network, as_network
from shiftproof.nn.networks.of_points import DGCNN, EGNN, PointTransformer
from shiftproof.nn.networks.of_tensors import cnn, linear, mlp, resnet18, resnet50
from shiftproof.nn.networks.user_module import UserModule, as_featurizer

__all__ = [
    "APPNP",
    "DGCNN",
    "EGNN",
    "GAT",
    "GCN",
    "GIN",
    "GPRGNN",
    "PNA",
    "SGC",
    "GraphNetwork",
    "GraphSAGE",
    "Network",
    "PointTransformer",
    "UserModule",
    "as_featurizer",
    "as_network",
    "cnn",
    "linear",
    "mlp",
    "resnet18",
    "resnet50",
]
