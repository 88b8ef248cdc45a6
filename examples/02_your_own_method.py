"""A method of your own: subclass one, name the loss terms, hand the class to `fit`.

python examples/02_your_own_method.py
"""

import argparse

from torch import Tensor, nn

import shiftproof as sp
from shiftproof.methods import ERM, DataShape, Network
from shiftproof.methods.base import Batch
from shiftproof.objectives import env_risks, mean_over_present, sample_losses


class RiskGap(ERM):
    """Training that also closes the gap between the easiest and the hardest environment.

    .. math:: \\frac1E\\sum_e R^e + \\lambda\\,(\\max_e R^e - \\min_e R^e)
    """

    def __init__(self, shape: DataShape, *, network: Network | nn.Module | None = None, penalty: float = 1.0) -> None:
        super().__init__(shape, network=network)
        self.weights = {"task": 1.0, "gap": penalty}

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        losses = sample_losses(self(batch), batch.y, self.shape.task)
        risks, counts = env_risks(losses, batch.env, self.shape.num_envs)
        return {"task": mean_over_present(risks, counts), "gap": risks.max() - risks.min()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    data = sp.load("colored-digits", copies=10)
    for penalty in (0.0, 10.0, 1000.0):
        # `penalty` is RiskGap's own option, `anneal_steps` and `rescale` say how the terms are weighted in time
        weighting = {"penalty": penalty, "anneal_steps": args.epochs // 2, "rescale": True}
        training = {"epochs": args.epochs, "batch_size": None, "lr": 1e-2, "l2": 1e-3, "selection": "last"}
        run = sp.fit(RiskGap, data, widths=(16,), **training, **weighting)
        last = run.history[-1]["losses"]
        print(
            f"penalty {penalty:5}  worst test accuracy {run.metrics['test']['worst_group']:.3f}  "
            f"last losses: task {last['task']:.3f}, gap {last['gap']:.3f}"
        )


if __name__ == "__main__":
    main()
