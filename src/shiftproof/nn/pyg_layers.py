"""The layers of PyG that the library stands on; importing this takes seconds, so it is imported where one is used."""

from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import ASAPooling, GraphConv, MessagePassing
from torch_geometric.utils import add_remaining_self_loops, scatter, softmax

__all__ = [
    "ASAPooling",
    "GraphConv",
    "MessagePassing",
    "add_remaining_self_loops",
    "clear_masks",
    "scatter",
    "set_masks",
    "softmax",
]
