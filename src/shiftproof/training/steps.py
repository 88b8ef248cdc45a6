"""One training step, three ways: as written, compiled, or replayed from a captured CUDA graph."""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
from torch import Tensor

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import Batch, Method
from shiftproof.training.balance import Balance


class Step(Protocol):
    """Moves the parameters by one batch and returns the values of the loss terms, still on the device."""

    def __call__(self, batch: Batch, number: int) -> Tensor: ...


class EagerStep:
    """The step as the method writes it."""

    def __init__(self, method: Method, optimizer: torch.optim.Optimizer, balance: Balance) -> None:
        self.method = method
        self.optimizer = optimizer
        self.balance = balance
        self.losses = method.losses

    def __call__(self, batch: Batch, number: int) -> Tensor:
        terms = self.losses(batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.balance.backward(terms, self.method, number)
        self.optimizer.step()
        return torch.stack([term.detach() for term in terms.values()])


class CompiledStep(EagerStep):
    """Losses through `torch.compile` with sizes left open; the first call takes tens of seconds on a cold cache."""

    def __init__(self, method: Method, optimizer: torch.optim.Optimizer, balance: Balance) -> None:
        super().__init__(method, optimizer, balance)
        compiled = torch.compile(_losses_of_tensors, dynamic=True)
        self.losses = lambda batch: compiled(method, *_flat(batch))


def _flat(batch: Batch) -> tuple:
    if isinstance(batch, GraphBatch):
        known = (batch.y, batch.edge_attr, batch.env, batch.index)
        return (batch.x, batch.edge_index, batch.batch, batch.ptr, batch.num_graphs, *known)
    return (batch,)


def _losses_of_tensors(method: Method, *fields) -> dict[str, Tensor]:  # noqa: ANN002
    return method.losses(fields[0] if len(fields) == 1 else GraphBatch(*fields))


class ReplayedStep(EagerStep):
    """Forward, backward and optimiser step captured once as a CUDA graph and replayed on padded batches.

    Batches are copied into buffers of fixed size; the padding forms one graph more, whose nodes `node_mask` marks, so
    losses are those of the eager step. A batch that does not fit the buffers or has another number of graphs runs
    eagerly, with the same parameters and optimiser state.
    """

    ROOM = 1.15  # buffers hold this much more than the first epoch's largest batch

    def __init__(
        self, method: Method, optimizer: torch.optim.Optimizer, balance: Balance, *, graphs: int, nodes: int, edges: int
    ) -> None:
        super().__init__(method, optimizer, balance)
        self.graphs = graphs
        self.nodes = int(nodes * self.ROOM) + 1
        self.edges = int(edges * self.ROOM) + 1
        self.replay: torch.cuda.CUDAGraph | None = None
        self.phase = -1
        self.usable = True
        self.buffer: Batch | None = None
        self.values: Tensor | None = None

    def __call__(self, batch: Batch, number: int) -> Tensor:
        if not self.usable or not self._fits(batch):
            return super().__call__(batch, number)
        self._fill(batch)
        if self.replay is None or self.phase != self.balance.phase(number):
            self._capture(number)
            if not self.usable:
                return super().__call__(batch, number)
        assert self.replay is not None and self.values is not None
        self.replay.replay()
        return self.values.clone()

    def _fits(self, batch: Batch) -> bool:
        if len(batch) != self.graphs:
            return False
        return not isinstance(batch, GraphBatch) or (batch.num_nodes < self.nodes and batch.num_edges <= self.edges)

    def _fill(self, batch: Batch) -> None:
        if not isinstance(batch, GraphBatch):
            if self.buffer is None:
                self.buffer = batch.replace(
                    **{n: t.clone() for n in ("x", "y", "env", "index") if (t := getattr(batch, n)) is not None}
                )
            elif self.buffer.x.data_ptr() != batch.x.data_ptr():
                for name in ("x", "y", "env", "index"):
                    if (new := getattr(batch, name)) is not None:
                        getattr(self.buffer, name).copy_(new)
            return
        if self.buffer is None:
            self.buffer = self._empty(batch)
        into, n, e = self.buffer, batch.num_nodes, batch.num_edges
        assert isinstance(into, GraphBatch) and into.node_mask is not None
        into.x[:n].copy_(batch.x)
        into.x[n:].zero_()
        into.batch[:n].copy_(batch.batch)
        into.batch[n:].fill_(self.graphs)
        into.node_mask[:n].fill_(True)
        into.node_mask[n:].fill_(False)
        into.edge_index[:, :e].copy_(batch.edge_index)
        into.edge_index[:, e:].fill_(self.nodes - 1)  # the last node is always padding: its loops reach nobody
        into.ptr.copy_(batch.ptr)
        if into.edge_attr is not None and batch.edge_attr is not None:
            into.edge_attr[:e].copy_(batch.edge_attr)
            into.edge_attr[e:].zero_()
        for name in ("y", "env", "index"):
            if (new := getattr(batch, name)) is not None:
                getattr(into, name).copy_(new)

    def _empty(self, batch: GraphBatch) -> GraphBatch:
        device = batch.x.device
        return GraphBatch(
            x=batch.x.new_zeros(self.nodes, *batch.x.shape[1:]),
            edge_index=torch.zeros(2, self.edges, dtype=torch.long, device=device),
            batch=torch.zeros(self.nodes, dtype=torch.long, device=device),
            ptr=batch.ptr.clone(),
            num_graphs=self.graphs,
            y=None if batch.y is None else batch.y.clone(),
            edge_attr=None if batch.edge_attr is None else batch.edge_attr.new_zeros(self.edges, batch.edge_attr.shape[1]),
            env=None if batch.env is None else batch.env.clone(),
            index=None if batch.index is None else batch.index.clone(),
            node_mask=torch.zeros(self.nodes, dtype=torch.bool, device=device),
        )

    def _capture(self, number: int) -> None:
        """Warm up, capture, and put everything the warm-up moved back."""
        assert self.buffer is not None
        self.replay, self.phase = None, self.balance.phase(number)
        saved = _snapshot(self.method, self.optimizer)
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    super().__call__(self.buffer, number)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                self.values = super().__call__(self.buffer, number)
            self.replay = graph
        except (RuntimeError, torch.AcceleratorError) as error:
            torch.cuda.synchronize()
            self.usable = False
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"this method cannot be captured ({reason}); training goes on eagerly", stacklevel=2)
        finally:
            _put_back(self.method, self.optimizer, saved)


def _snapshot(method: Method, optimizer: torch.optim.Optimizer) -> tuple:
    weights = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    slots = {p: {k: v.clone() for k, v in s.items() if isinstance(v, Tensor)} for p, s in optimizer.state.items()}
    return weights, slots, torch.get_rng_state(), torch.cuda.get_rng_state()


def _put_back(method: Method, optimizer: torch.optim.Optimizer, saved: tuple) -> None:
    """Restore in place: a captured graph reads and writes these very tensors."""
    weights, slots, cpu, cuda = saved
    with torch.no_grad():
        for name, tensor in method.state_dict().items():
            tensor.copy_(weights[name])
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, Tensor):
                    before = slots.get(parameter, {}).get(key)
                    value.copy_(before) if before is not None else value.zero_()
    torch.set_rng_state(cpu)
    torch.cuda.set_rng_state(cuda)


