"""A graph's adjacency as compressed sparse rows, and its product with node features.

The product is differentiable in the features (its backward is the product with the transpose, which shares the rows'
pointers because the graph is undirected) and in the entries' weights (one dot product an entry), any number of times.
Time and memory grow with entries times width; nothing here is ever n by n.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from shiftproof.errors import ShiftproofError

with warnings.catch_warnings():  # torch says once in a process that its CSR support is a beta
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False)

T = TypeVar("T")
BLOCK = 1 << 22  # numbers gathered at a time; bounds the memory whatever the number of edges


class Pattern:
    """The sorted places (`row`, `col`) of a symmetric sparse matrix; `mirror` holds for (i, j) the place of (j, i)."""

    def __init__(self, row: Tensor, col: Tensor, num_nodes: int, mirror: Tensor | None = None) -> None:
        self.row, self.col, self.num_nodes = row, col, num_nodes
        count = torch.bincount(row, minlength=num_nodes)
        self.degree = count
        self.start = torch.cat([count.new_zeros(1), count.cumsum(0)])
        # MKL takes 32-bit indices; 64-bit ones would be copied in every product
        self._start32, self._col32 = self.start.int(), col.int()
        self._repeated: dict[int, tuple[Pattern, Tensor]] = {}
        self.mirror = self._find_mirror() if mirror is None else mirror

    def _find_mirror(self) -> Tensor:
        order = torch.argsort(self.col * self.num_nodes + self.row)
        if not (torch.equal(self.row[order], self.col) and torch.equal(self.col[order], self.row)):
            keys = self.row * self.num_nodes + self.col
            alone = int((~torch.isin(self.col * self.num_nodes + self.row, keys)).nonzero()[0])
            u, v = int(self.row[alone]), int(self.col[alone])
            raise ShiftproofError(
                f"the graph is directed: it has the edge ({u}, {v}) but not ({v}, {u}); give both directions of each"
            )
        return order

    def matrix(self, weight: Tensor) -> Tensor:
        """The entries with these weights as a torch CSR tensor."""
        size = (self.num_nodes, self.num_nodes)
        return torch.sparse_csr_tensor(self._start32, self._col32, weight, size, check_invariants=False)

    @cached_property
    def looped(self) -> tuple[Pattern, Tensor]:
        """The pattern with the diagonal, and where in `cat([edges, loops])` each of its entries comes from."""
        edges, nodes = len(self.row), torch.arange(self.num_nodes, device=self.row.device)
        at_edge = torch.arange(edges, device=self.row.device) + self.row + (self.col > self.row)
        before = torch.bincount(self.row[self.col < self.row], minlength=self.num_nodes)
        at_loop = self.start[:-1] + nodes + before
        place = torch.cat([at_edge, at_loop])
        source = torch.empty_like(place)
        source[place] = torch.arange(len(place), device=place.device)
        row, col = torch.cat([self.row, nodes])[source], torch.cat([self.col, nodes])[source]
        mirror = torch.cat([at_edge[self.mirror], at_loop])[source]
        return Pattern(row, col, self.num_nodes, mirror), source

    def repeated(self, times: int) -> tuple[Pattern, Tensor]:
        """The block pattern of `times` copies, and for each of its entries the one it copies.

        Node i of copy k is numbered `i * times + k`, so that one product serves all heads of a layer.
        """
        if times not in self._repeated:
            copies = torch.arange(times, device=self.row.device)
            row, col = (ends[:, None] * times + copies for ends in (self.row, self.col))
            order = torch.argsort(row.flatten(), stable=True)
            place = torch.empty_like(order)
            place[order] = torch.arange(len(order), device=order.device)
            mirror = place.view(-1, times)[self.mirror].flatten()[order]
            pattern = Pattern(row.flatten()[order], col.flatten()[order], self.num_nodes * times, mirror)
            self._repeated[times] = pattern, order // times
        return self._repeated[times]

    @cached_property
    def upper(self) -> Tensor:
        """The entries above the diagonal: each undirected edge once."""
        return (self.row < self.col).nonzero().squeeze(1)


class Adjacency:
    """An undirected graph as a sparse matrix; `adjacency @ x` is the weighted sum over neighbours.

    `edge_index` holds both directions of every edge, in any order, without loops and duplicates; `edge_weight` (one a
    column of `edge_index`, ones if not given) may require a gradient. What a model derives from an adjacency is worth
    keeping while the graph does not change: `adjacency.once(key, make)`.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> None:
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise ShiftproofError(f"edge_index has the shape [2, edges], not {list(edge_index.shape)}")
        row, col = edge_index.long()
        if len(row) and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
            raise ShiftproofError(f"edge_index names a node outside 0 to {num_nodes - 1}")
        key = row * num_nodes + col
        if not bool((key[1:] > key[:-1]).all()):
            key, order = torch.sort(key)
            row, col = row[order], col[order]
            edge_weight = None if edge_weight is None else edge_weight[order]
            if bool((key[1:] == key[:-1]).any()):
                raise ShiftproofError("edge_index holds an edge twice; give each direction of an edge once")
        if bool((row == col).any()):
            raise ShiftproofError(
                f"edge_index holds a loop at node {int(row[row == col][0])}; models add their own loops"
            )
        if edge_weight is not None and edge_weight.shape != row.shape:
            raise ShiftproofError(
                f"edge_weight holds {edge_weight.numel()} weights for {len(row)} entries of edge_index"
            )
        self._set(Pattern(row, col, num_nodes), edge_weight, edge_weight is None)

    def _set(self, pattern: Pattern, weight: Tensor | None, symmetric: bool) -> None:
        self.pattern, self._weight, self.symmetric = pattern, weight, symmetric
        self._kept: dict[Any, Any] = {}

    @classmethod
    def of(cls, pattern: Pattern, weight: Tensor | None, *, symmetric: bool = False) -> Adjacency:
        """An adjacency on a known pattern; `symmetric` says that the weights of (i, j) and (j, i) are equal."""
        made = cls.__new__(cls)
        made._set(pattern, weight, symmetric or weight is None)
        return made

    @property
    def num_nodes(self) -> int:
        return self.pattern.num_nodes

    @property
    def edge_index(self) -> Tensor:
        return torch.stack([self.pattern.row, self.pattern.col])

    @property
    def weighted(self) -> bool:
        return self._weight is not None

    @property
    def differentiable(self) -> bool:
        return self._weight is not None and self._weight.requires_grad

    def weight(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The entries' weights in the order of `pattern.row`."""
        if self._weight is not None:
            return self._weight.to(dtype)
        return self.once(("ones", dtype), lambda: torch.ones(len(self.pattern.row), dtype=dtype, device=self.device))

    @property
    def device(self) -> torch.device:
        return self.pattern.row.device

    def reweighted(self, weight: Tensor, *, symmetric: bool = False) -> Adjacency:
        """The same entries with other weights (in the order of `pattern.row`)."""
        return Adjacency.of(self.pattern, weight, symmetric=symmetric)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` gives, kept for the next call with this key; made anew each time where weights have gradients."""
        if self.differentiable:
            return make()
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def looped_weight(self, loops: Tensor, dtype: torch.dtype) -> Tensor:
        """The weights with `loops` on the diagonal, in the order of `pattern.looped`."""
        _, source = self.pattern.looped
        return torch.cat([self.weight(dtype), loops.to(dtype)]).index_select(0, source)

    def normalized(self, self_loops: bool = True, dtype: torch.dtype = torch.float32, power: float = -0.5) -> Adjacency:
        r"""The propagation of a GCN, :math:`D^{p}(A+I)D^{p}` with :math:`p=-1/2`."""
        return self.once(("normalized", self_loops, dtype, power), lambda: self._normalized(self_loops, dtype, power))

    def _normalized(self, self_loops: bool, dtype: torch.dtype, power: float) -> Adjacency:
        pattern, weight = self.pattern, self.weight(dtype)
        if self_loops:
            loops = torch.ones(self.num_nodes, dtype=dtype, device=self.device)
            pattern, weight = pattern.looped[0], self.looped_weight(loops, dtype)
        return Adjacency.of(pattern, symmetric_norm(pattern, weight, power), symmetric=self.symmetric)

    def averaging(self, dtype: torch.dtype = torch.float32) -> Adjacency:
        """The mean over neighbours, without the node itself; a node without neighbours gets zeros."""

        def make() -> Adjacency:
            weight = self.weight(dtype)
            total = row_sums(self.pattern, weight)
            share = torch.where(total > 0, 1 / total.clamp(min=torch.finfo(dtype).tiny), torch.zeros_like(total))
            return self.reweighted(weight * share.index_select(0, self.pattern.row))

        return self.once(("averaging", dtype), make)

    def __matmul__(self, x: Tensor) -> Tensor:
        return product(self.pattern, self.weight(x.dtype), x, symmetric=self.symmetric)

    def to(self, device: torch.device | str) -> Adjacency:
        weight = None if self._weight is None else self._weight.to(device)
        old = self.pattern
        pattern = Pattern(old.row.to(device), old.col.to(device), old.num_nodes, old.mirror.to(device))
        return Adjacency.of(pattern, weight, symmetric=self.symmetric)

    def __repr__(self) -> str:
        kind = "weighted" if self.weighted else "binary"
        return f"Adjacency({self.num_nodes} nodes, {len(self.pattern.row)} entries, {kind})"


def row_sums(pattern: Pattern, values: Tensor) -> Tensor:
    """The sum of the entries' values in each row."""
    return values.new_zeros(pattern.num_nodes).index_add(0, pattern.row, values)


def symmetric_norm(pattern: Pattern, weight: Tensor, power: float = -0.5) -> Tensor:
    r"""The entries of :math:`D^p W D^p` with :math:`D` the row sums of :math:`W`; a row that sums to 0 gives 0."""
    degree = row_sums(pattern, weight)
    filled = degree > 0
    scale = torch.where(filled, torch.where(filled, degree, 1.0).pow(power), 0.0)
    return weight * scale.index_select(0, pattern.row) * scale.index_select(0, pattern.col)


def product(pattern: Pattern, weight: Tensor, x: Tensor, *, symmetric: bool = False) -> Tensor:
    """The sparse matrix of `pattern` and `weight` times `x`, differentiable in both."""
    if x.shape[0] != pattern.num_nodes:
        raise ShiftproofError(f"the features have {x.shape[0]} rows but the graph has {pattern.num_nodes} nodes")
    return _Product.apply(pattern, weight, x, symmetric)


def dot_products(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """`a_i . b_j` of every entry (i, j), differentiable in both; never more than a block is gathered at a time."""
    return _DotProducts.apply(pattern, a, b)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, weight: Tensor, x: Tensor, symmetric: bool) -> Tensor:
        ctx.pattern, ctx.symmetric = pattern, symmetric
        ctx.save_for_backward(weight, x if weight.requires_grad else None)
        return pattern.matrix(weight.detach()) @ x.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        weight, x = ctx.saved_tensors
        to_weight = dot_products(ctx.pattern, grad, x) if ctx.needs_input_grad[1] else None
        to_x = None
        if ctx.needs_input_grad[2]:
            turned = weight if ctx.symmetric else weight.index_select(0, ctx.pattern.mirror)
            to_x = product(ctx.pattern, turned, grad, symmetric=ctx.symmetric)
        return None, to_weight, to_x, None


class _DotProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(a, b)
        a, b = a.detach(), b.detach()
        if a.dtype in (torch.float32, torch.float64) and len(pattern.row):
            blank = pattern.matrix(a.new_zeros(len(pattern.row)))
            return torch.sparse.sampled_addmm(blank, a.contiguous(), b.contiguous().T).values()
        return blocked_dot(pattern.row, pattern.col, a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        a, b = ctx.saved_tensors
        to_a = product(ctx.pattern, grad, b) if ctx.needs_input_grad[1] else None
        to_b = product(ctx.pattern, grad.index_select(0, ctx.pattern.mirror), a) if ctx.needs_input_grad[2] else None
        return None, to_a, to_b


def blocked_dot(row: Tensor, col: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a[row] . b[col]` pair by pair, gathered in blocks."""
    step = max(1, BLOCK // max(1, a.shape[1]))
    blocks = [slice(begin, begin + step) for begin in range(0, len(row), step)]
    parts = [torch.linalg.vecdot(a.index_select(0, row[part]), b.index_select(0, col[part])) for part in blocks]
    return torch.cat(parts) if parts else a.new_zeros(0)
