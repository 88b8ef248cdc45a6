"""The graphlet-count kernel with a support vector machine."""

from __future__ import annotations

from shiftproof.data.graphs import GraphBatch
from shiftproof.methods.base import DataShape
from shiftproof.methods.counting import Counts
from shiftproof.methods.graphlets import GraphletCounter, Size
from shiftproof.methods.kernel_svm import KernelSVM, Normalise
from shiftproof.registry import register


@register("gc-kernel", tags=("graphs",))
class GCKernel(KernelSVM):
    """Graphlet-count kernel and SVM: graphs are alike where they have the same shares of small connected subgraphs.

    All connected induced subgraphs of 3 to `size` (at most 5) nodes are counted exactly. `attributed` types tell nodes
    with different features apart; otherwise only the edges matter, as in the classical kernel.
    """

    def __init__(
        self, shape: DataShape, *, size: Size = 4, attributed: bool = False, normalise: Normalise = "share"
    ) -> None:
        super().__init__(shape, settings=(size,), normalise=normalise)
        self.counter = GraphletCounter(size, attributed=attributed, smaller=True)

    def count(self, batch: GraphBatch, setting: int) -> Counts:
        return self.counter(batch)
