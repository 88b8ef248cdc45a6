"""A trained model as a file that runs without this library: ONNX, or torch's own exported program."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from shiftproof.data.domains import DomainBatch
from shiftproof.data.graphs import GraphBatch
from shiftproof.errors import ShiftproofError, optional
from shiftproof.methods.base import Method
from shiftproof.runtime.files import require_folder, write_atomic

if TYPE_CHECKING:
    from shiftproof.training.run import Run

ENDINGS = (".onnx", ".pt2")
CLOSE = 1e-4  # how far an exported model's outputs may lie from the run's own, relative to their size


def export(run: Run, path: str | Path, *, example: Any = None) -> Path:
    """Write the model of a run as `.onnx` (for ONNX Runtime) or `.pt2` (for `torch.export.load`) and return the path.

    A run on rows of numbers takes batches of any length: `x` in, `logits` out. A run on graphs is exported for the
    shape of `example` (a `GraphSet`): as many graphs, nodes and edges as it has; `x`, `edge_index`, `batch` and, where
    the run has them, `edge_attr` go in. Whatever is written is run once and held against the run itself.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ShiftproofError(f"'{path}' must end in {' or '.join(ENDINGS)}")
    require_folder(path.parent)
    method = copy.deepcopy(run.method).cpu().eval()
    graphs = method.shape.kind == "graphs"
    if graphs and example is None:
        raise ShiftproofError("a run on graphs is exported for one shape: give a GraphSet of that shape as example=")
    module: nn.Module = _OfGraphs(method, example) if graphs else _OfRows(method)
    inputs = _graph_inputs(method, example) if graphs else (torch.randn(3, *method.shape.in_shape),)
    names = ["x", "edge_index", "batch", "edge_attr"][: len(inputs)]
    with torch.no_grad():
        wanted = module(*inputs)
    shapes = None if graphs else ({0: torch.export.Dim("rows", min=1)},)
    try:
        program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    except Exception as problem:  # torch says in many ways that a model cannot be traced
        said = str(problem).partition("\n")[0][:200]
        raise ShiftproofError(f"'{run.name}' cannot be exported: {type(problem).__name__}: {said}") from None
    content, found = _torch(program, inputs) if path.suffix == ".pt2" else _onnx(program, inputs, names)
    off = float((found.detach() - wanted).abs().max()) / max(float(wanted.abs().max()), 1.0)
    if not off <= CLOSE:
        raise ShiftproofError(
            f"the exported model of '{run.name}' differs from the run by {off:.2g}, so it is not kept"
        )
    write_atomic(path, content)
    return path


class _OfRows(nn.Module):
    """A method on rows as a module of one tensor."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, x: Tensor) -> Tensor:
        return self.method(DomainBatch(x))


class _OfGraphs(nn.Module):
    """A method on graphs as a module of the tensors of a batch of fixed size."""

    def __init__(self, method: Method, example: Any) -> None:
        super().__init__()
        self.method, self.graphs = method, len(example)
        self.register_buffer("ptr", example.whole().ptr)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        made = GraphBatch(x, edge_index, batch, self.ptr, self.graphs, edge_attr=edge_attr)  # type: ignore[arg-type]
        return self.method(made)


def _graph_inputs(method: Method, example: Any) -> tuple[Tensor, ...]:
    batch = example.whole()
    inputs = (batch.x, batch.edge_index, batch.batch)
    return inputs if method.shape.edge_dim is None or batch.edge_attr is None else (*inputs, batch.edge_attr)


def _torch(program: Any, inputs: tuple[Tensor, ...]) -> tuple[bytes, Tensor]:
    kept = io.BytesIO()
    torch.export.save(program, kept)
    content = kept.getvalue()
    return content, torch.export.load(io.BytesIO(content)).module()(*inputs)


def _onnx(program: Any, inputs: tuple[Tensor, ...], names: list[str]) -> tuple[bytes, Tensor]:
    optional("onnxscript", "export", "writing ONNX")
    runtime: Any = optional("onnxruntime", "export", "checking what was written as ONNX")
    try:
        made: Any = torch.onnx.export(program, inputs, input_names=names, output_names=["logits"], verbose=False)
        content = made.model_proto.SerializeToString()
    except Exception as problem:  # an operation that ONNX does not have
        said = str(problem).partition("\n")[0][:200]
        raise ShiftproofError(f"the model cannot be written as ONNX: {type(problem).__name__}: {said}") from None
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    fed = {one.name: tensor.numpy() for one, tensor in zip(session.get_inputs(), inputs, strict=True)}
    return content, torch.from_numpy(session.run(None, fed)[0])
