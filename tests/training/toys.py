"""Small data and methods for tests of the trainer."""

import torch
from torch import Tensor, nn

from shiftproof.data import Dataset, DomainSet
from shiftproof.methods import DataShape, Method


def toy_data(train: int = 24, *, seed: int = 0, splits: tuple[str, ...] = ("train", "val", "test")) -> Dataset:
    """Two balanced environments; the label follows the first feature, the second feature in environment 0 only."""
    g = torch.Generator().manual_seed(seed)

    def part(n: int) -> DomainSet:
        y = torch.randint(2, (n,), generator=g)
        env = torch.arange(n) % 2
        x = torch.randn(n, 3, generator=g)
        x[:, 0] += 2 * y
        x[:, 1] += torch.where(env == 0, 4 * y, 0)
        return DomainSet(x, y.float(), env)

    sizes = {"train": train, "val": 12, "test": 16}
    return Dataset({name: part(sizes[name]) for name in splits}, name="toy", task="binary")


class Scripted(Method):
    """A method whose validation accuracy follows a script: `scores[epoch]` of the samples are predicted right."""

    def __init__(self, shape: DataShape, scores: list[float]) -> None:
        super().__init__(shape)
        self.scores = scores
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("now", torch.tensor(0))

    def start_epoch(self, epoch: int) -> None:
        self.now.fill_(epoch)

    def forward(self, batch) -> Tensor:
        right = 2 * batch.y - 1
        count = round(self.scores[min(int(self.now), len(self.scores) - 1)] * len(right))
        return torch.where(torch.arange(len(right)) < count, right, -right)

    def losses(self, batch) -> dict[str, Tensor]:
        return {"task": (self.weight - 1).square().sum()}


class TwoTerms(Method):
    """A linear model with a second term; the gradients of both are easy to write down."""

    def __init__(self, shape: DataShape, penalty: float = 1.0) -> None:
        super().__init__(shape)
        self.head = nn.Linear(shape.in_shape[0], 1)
        self.weights = {"task": 1.0, "size": penalty}

    def forward(self, batch) -> Tensor:
        return self.head(batch.x).squeeze(-1)

    def losses(self, batch) -> dict[str, Tensor]:
        logits = self(batch)
        return {
            "task": nn.functional.binary_cross_entropy_with_logits(logits, batch.y),
            "size": logits.square().mean(),
        }


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    """Bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
