"""The Γ family: graphs seen as shares of their graphlets, which do not move when graphs grow."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphBatch, GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import DataShape, Method, Trains, variant
from shiftproof.methods.counting import row_hashes
from shiftproof.methods.graphlets import GraphletCounter, GraphletTable, Size, graphlet_table, pair_bit
from shiftproof.methods.how_trained import HowTrained
from shiftproof.nn import GNNEncoder, NodeBatchNorm
from shiftproof.objectives import sample_losses
from shiftproof.ranges import BelowOne, Count, Layers, Whole, Width
from shiftproof.registry import register

SMOOTHING = 1e-4  # docs/papers/ciga.md#size-shift-baselines: count / (Σ count + 1e-4)


class Gamma(Method):
    """A graph as the average of vectors of its graphlets, weighted by their shares.

    .. math:: Γ(G) = \\sum_t \\frac{c_t(G)}{\\sum_s c_s(G) + 10^{-4}} v_t

    `c_t` counts the connected induced subgraphs of `size` nodes of type `t` (up to isomorphism, feature rows included);
    only types found in at least `min_graphs` training graphs count. `class_weights` weighs each class in the loss by
    the inverse of its frequency in training.
    """

    types: Tensor
    class_weight: Tensor
    sized = ("types",)  # tensors whose size follows the training data

    def __init__(self, shape: DataShape, *, size: Size, min_graphs: Count, class_weights: bool) -> None:
        super().__init__(shape)
        if shape.kind != "graphs":
            raise ShiftproofError(f"{type(self).__name__} works on graphs, not on plain tensors")
        self.size, self.min_graphs, self.class_weights = size, min_graphs, class_weights
        self.counter = GraphletCounter(size)
        self.register_buffer("types", torch.zeros(0, dtype=torch.long))
        self.register_buffer("class_weight", torch.ones(2 if shape.task == "binary" else shape.num_outputs))

    def prepare(self, dataset: Dataset, trainer: Trains) -> None:
        """List the types of the training graphs and weigh the classes."""
        train = dataset.train
        assert isinstance(train, GraphSet)
        if self.class_weights and self.shape.task in ("multiclass", "binary"):
            seen = torch.bincount(train.y.long().cpu(), minlength=len(self.class_weight)).clamp(min=1)
            self.class_weight.copy_(len(train) / (len(seen) * seen))
        batch = train.whole()
        table = graphlet_table(batch, self.size)
        place, _ = table.counts.columns(table.types)
        common = torch.bincount(place, minlength=len(table.types)) >= self.min_graphs
        kept = GraphletTable(table.counts, table.types[common], table.nodes[common], table.code[common])
        self.types = kept.types
        self.learn_types(kept, batch)

    def learn_types(self, table: GraphletTable, batch: GraphBatch) -> None:
        """Told the types found in training, with an example of each."""

    def type_vectors(self, used: Tensor) -> Tensor:
        """One vector for each of the numbered types."""
        raise NotImplementedError(f"{type(self).__name__} must define type_vectors(used)")

    def represent(self, batch: GraphBatch) -> Tensor:
        """One vector a graph: `Γ(G)`."""
        counts = self.counter(batch)
        kind, known = counts.columns(self.types)
        kind, graph, count = kind[known], counts.graph[known], counts.count[known].to(batch.x.dtype)
        total = count.new_zeros(batch.num_graphs).index_add_(0, graph, count)
        share = count / (total[graph] + SMOOTHING)
        used, place = kind.unique(return_inverse=True)
        vectors = self.type_vectors(used)
        if len(used) == 0:
            return vectors.new_zeros(batch.num_graphs, vectors.shape[1])
        first = torch.searchsorted(graph, torch.arange(batch.num_graphs, device=graph.device))
        return F.embedding_bag(place, vectors, first, mode="sum", per_sample_weights=share)

    def classify(self, vector: Tensor) -> Tensor:
        """Logits from the vectors of graphs."""
        raise NotImplementedError(f"{type(self).__name__} must define classify(vector)")

    def forward(self, batch: GraphBatch) -> Tensor:
        logits = self.classify(self.represent(batch))
        return logits.squeeze(-1) if self.shape.task in ("binary", "regression") else logits

    def losses(self, batch: GraphBatch) -> dict[str, Tensor]:
        risk = sample_losses(self(batch), batch.y, self.shape.task)
        if self.shape.task not in ("multiclass", "binary"):
            return {"task": risk.mean()}
        weight = self.class_weight[batch.y.long()]
        return {"task": (risk * weight).sum() / weight.sum()}

    @property
    def how_trained(self) -> HowTrained:
        return replace(super().how_trained, sized_by_data=self.sized)


@register("gamma-1hot", tags=("graphs",))
class GammaOneHot(Gamma):
    """Linear layers on the shares of each graph's attributed graphlets, which stay put when graphs grow.

    The first layer has one column `v_t` for each type `t` of graphlet: `MLP = Linear(T, w) - ReLU - Dropout - Linear`.
    """

    sized = ("types", "columns")

    def __init__(
        self,
        shape: DataShape,
        *,
        size: Size = 4,
        min_graphs: Count = 1,
        class_weights: bool = True,
        mlp_width: Width = 128,
        mlp_dropout: BelowOne = 0.3,
    ) -> None:
        super().__init__(shape, size=size, min_graphs=min_graphs, class_weights=class_weights)
        self.columns = nn.Parameter(torch.zeros(0, mlp_width))
        self.bias = nn.Parameter(torch.zeros(mlp_width))
        self.dropout = nn.Dropout(mlp_dropout)
        self.head = nn.Linear(mlp_width, shape.num_outputs)

    def learn_types(self, table: GraphletTable, batch: GraphBatch) -> None:
        bound = max(len(table.types), 1) ** -0.5  # where torch starts a linear layer
        started = torch.empty(len(table.types), self.columns.shape[1]).uniform_(-bound, bound)
        self.columns.data = started.to(self.columns)

    def type_vectors(self, used: Tensor) -> Tensor:
        return self.columns.index_select(0, used)

    def classify(self, vector: Tensor) -> Tensor:
        return self.head(self.dropout((vector + self.bias).relu()))


@register("gamma-gin", tags=("graphs",))
class GammaGIN(Gamma):
    """A GIN looks at each distinct graphlet; a graph is the average of what it sees, weighted by the graphlets' shares.

    .. math:: v_t = \\sum_{u \\in t} GIN(t)_u, \\quad \\hat y = MLP(BN(Γ(G)))

    With `permutations` above 0 the GIN is told which node is which by one-hot numbers, drawn anew that many times and
    averaged over (relational pooling); a trained model uses the same numbers every time.
    """

    sized = ("types", "code", "members", "rows")
    code: Tensor
    members: Tensor
    rows: Tensor

    def __init__(
        self,
        shape: DataShape,
        *,
        size: Size = 4,
        min_graphs: Count = 1,
        class_weights: bool = True,
        width: Width = 32,
        gnn_layers: Layers = 2,
        mlp_width: Width = 128,
        mlp_dropout: BelowOne = 0.3,
        permutations: Whole = 0,
    ) -> None:
        super().__init__(shape, size=size, min_graphs=min_graphs, class_weights=class_weights)
        inputs = shape.in_shape[0]
        self.permutations = permutations
        self.encoder = GNNEncoder(inputs + (size if permutations else 0), hidden=width, layers=gnn_layers, conv="gin")
        self.norm = NodeBatchNorm(width, affine=False)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_width), nn.ReLU(), nn.Dropout(mlp_dropout))
        self.head = nn.Linear(mlp_width, shape.num_outputs)
        self.register_buffer("code", torch.zeros(0, dtype=torch.long))
        self.register_buffer("members", torch.zeros(0, size, dtype=torch.long))
        self.register_buffer("rows", torch.zeros(0, inputs))
        bits = torch.tensor([[pair_bit(a, b) if a != b else 62 for b in range(size)] for a in range(size)])
        self.register_buffer("pair_bits", bits, persistent=False)  # no code reaches bit 62: nobody is its own neighbour

    def learn_types(self, table: GraphletTable, batch: GraphBatch) -> None:
        """Keep an example of each type: its edges, and its nodes as numbers of distinct feature rows."""
        distinct, number = row_hashes(batch.x).unique(return_inverse=True)
        example = torch.zeros_like(distinct).index_copy_(0, number, torch.arange(batch.num_nodes, device=number.device))
        self.rows = batch.x.index_select(0, example)
        self.members, self.code = number[table.nodes], table.code

    def type_vectors(self, used: Tensor) -> Tensor:
        if len(used) == 0:
            return self.rows.new_zeros(0, self.encoder.out_channels)
        x = self.rows[self.members[used]].unsqueeze(1)
        if self.permutations:
            number = F.one_hot(self._numbering(len(used)), self.size).to(x)
            x = torch.cat([x.expand(-1, self.permutations, -1, -1), number], -1)
        copies, width = x.shape[1], self.encoder.out_channels
        joined = (self.code[used, None, None, None] >> self.pair_bits) & 1  # type: ignore[operator]
        kind, copy, a, b = joined.expand(-1, copies, -1, -1).nonzero(as_tuple=True)
        start = (kind * copies + copy) * self.size
        h = self.encoder(x.flatten(0, 2), torch.stack([start + a, start + b]))
        return h.view(len(used), copies, self.size, width).sum(2).mean(1)

    def _numbering(self, types: int) -> Tensor:
        """Numbers for the nodes of each type, `[types, permutations, size]`: random while training, fixed after."""
        if self.training:
            return torch.rand(types, self.permutations, self.size, device=self.rows.device).argsort(-1)
        drawn = torch.rand(self.permutations, self.size, generator=torch.Generator().manual_seed(0)).argsort(-1)
        return drawn.to(self.rows.device).expand(types, -1, -1)

    def classify(self, vector: Tensor) -> Tensor:
        return self.head(self.mlp(self.norm(vector)))


GammaRPGIN = variant(
    GammaGIN,
    "gamma-rpgin",
    "A GIN told which node is which looks at each distinct graphlet; graphs are averages over their graphlets.",
    permutations=3,
)
