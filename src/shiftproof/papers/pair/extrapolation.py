"""Regression beyond what was seen: who finds that the second coordinate does not matter?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.generated.extrapolation import BOXES, GAUSSIANS, REACH
from shiftproof.data.readers.loading import load_samples
from shiftproof.drawing.figures import INK, a_figure
from shiftproof.errors import ShiftproofError
from shiftproof.papers.pair.side_by_side import STEPS, Member, Stack, forward
from shiftproof.papers.pair.tables import label
from shiftproof.registry import parse_name, register
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_tensors, write_tensors
from shiftproof.runtime.fingerprints import commit
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import summarise
from shiftproof.training.epochs import EpochLoop

# docs/papers/pair.md#extrapolation-network: the preferences that were searched
PREFERENCES = ("1,1e4,1e16", "1,1e4,1e12", "1,1e6,1e8", "1,1e8,1e4", "1,1e4,1e4", "1,1e8,1e8")
SIDE = 200  # docs/papers/pair.md#recovery: points of the drawn grid along a side
# docs/papers/pair.md#table-extrapolation: the least validation error printed
PRINTED = {"uniform": 0.06, "gaussian": 0.32}


METHODS: dict[str, dict[str, tuple[float, float]]] = {
    # docs/papers/pair.md#extrapolation-network, #table-extrapolation: weights of IRMv1 and V-REx, and in the first
    # phase (docs/papers/pair.md#recovery)
    "erm": {},
    "irm": {"penalties": (1e-2, 0.0), "anneal": (1.0, 0.0)},
    "vrex": {"penalties": (0.0, 1e-1), "anneal": (0.0, 1.0)},
    "irmx": {"penalties": (1e-2, 1e-1), "anneal": (1.0, 1.0)},
}
EPOCHS, PHASE_ONE, LOOK_EVERY, SMOKE_EPOCHS = 10_000, 150, 20, 3
STORED = "stack.safetensors"
DATA = ("extrapolation:sampling=uniform", "extrapolation:sampling=gaussian", "extrapolation:sampling=uniform,k=1")
SECONDS_BETWEEN_SAVES = 60.0


@register("pair-extrapolation", "recipes")
def pair_extrapolation() -> Recipe:
    """Recovery of the invariant coordinate in a regression: error far from the data and belts.

    Source: docs/papers/pair.md#recovery, #table-extrapolation.
    """
    note = (
        "Squared error on the square [-4, 4]^2, most of which no training point is near; the epoch is chosen on other "
        "points of that square, as in the paper; 'last' is the error after the last of 10,000 epochs of ten steps with "
        "250 points of each environment. invariance is the mean over the first coordinate of the variance over the "
        "second, 0 for a predictor that has understood. The first phase of 150 epochs adds the penalties with weight "
        "1, for PAIR-o V-REx alone, as the authors' notebook does. The target is sin(2 x) + 1 as in the notebook; the "
        "text prints sin(x) + 1, which is the rows with k=1. All runs are trained side by side. "
        "published is the least error they name."
    )
    return Recipe(
        "pair-extrapolation", (), seeds=3, first_seed=0, note=note, run=extrapolated, draw=draw_extrapolation, data=DATA
    )


def extrapolated(work: Work) -> list[Row]:
    """Train all methods, preferences, seeds and data sets at once, and measure them."""
    path = work.folder / STORED
    data = work.wanted(DATA)
    found, note = _trained(data, work, path)
    weights = [found[f"best.{n}"] for n in range(6)]
    rows, place = [], 0
    for name in data:
        for row, members in _plan(work.seeds).items():
            mine = slice(place, place := place + len(members))
            rows.append(_row(name, row, {key: tensor[mine] for key, tensor in found.items()}, list(work.seeds)))
            rows[-1] |= {"invariance": invariance([w[mine] for w in weights]), "drawn": [str(path), mine.start], **note}
    return rows


def _plan(seeds: Sequence[int], data: int = 0) -> dict[str, list[Member]]:
    """The runs of a data set by the name of their row, one a seed."""
    named: dict[str, dict[str, Any]] = dict(METHODS)
    for text in PREFERENCES:
        named[text] = {"preference": tuple(float(n) for n in text.split(",")), "anneal": (0.0, 1.0)}
    return {name: [Member(data, seed, **chosen) for seed in seeds] for name, chosen in named.items()}


def _trained(names: Sequence[str], work: Work, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The best weights of every run and what was measured of them; from the file where that is finished."""
    note_of = ""
    if path.exists():
        found, note = read_tensors(path, "a table")
        of = note.pop("of")
        if of == [list(names), list(work.seeds)]:
            return found, note
        note_of = f"{', '.join(of[0])}, {len(of[1])} seeds"
    if work.collect:
        of = f"holds other data sets or seeds ({note_of})" if note_of else "is not there, so nothing is finished"
        raise ShiftproofError(f"{path} {of}; ask for those, or leave out --collect")
    epochs = SMOKE_EPOCHS if work.smoke else EPOCHS
    one = min(PHASE_ONE, epochs // 2)
    device = pick_device(work.device)
    sets = [load_samples(name) for name in names]
    members = [m for number in range(len(sets)) for some in _plan(work.seeds, number).values() for m in some]
    stack = Stack(members, sets, lr=1e-3, eps=0.1, device=device)  # docs/papers/pair.md#extrapolation-network
    training = Extrapolating(
        stack,
        [_points([data[split] for data in sets], stack) for split in ("val", "test")],
        phase_one=one,
        begun=path.with_suffix(".begun"),
        epochs=epochs,
        seed=min(work.seeds),
        device=device,
        style=work.style,
        checkpoint_seconds=SECONDS_BETWEEN_SAVES,
    )
    training.resume()
    training.train_through()
    rate = stack.fallbacks / (STEPS * max(epochs - one, 1))
    found = {**training.kept, "last": _error(stack, *training.judged[1]), "fallback_rate": rate}
    note = {"device": device_name(device), "commit": commit()}
    write_tensors(path, found, {**note, "of": [list(names), list(work.seeds)]})
    training.begun.unlink(missing_ok=True)
    return {name: tensor.cpu() for name, tensor in found.items()}, note


class Extrapolating(EpochLoop):
    """The stack of all runs, trained in two phases; the weights of each run's best validation error are kept."""

    def __init__(
        self, stack: Stack, judged: Sequence[tuple[Tensor, Tensor]], *, phase_one: int, begun: Path, **loop: Any
    ) -> None:
        super().__init__(**loop)
        self.stack, self.judged, self.phase_one, self.begun = stack, judged, phase_one, begun
        nothing = torch.full((len(stack.members),), torch.inf, device=self.device)
        self.kept = {name: nothing.clone() for name in ("val", "test", "epoch")}
        self.kept |= {f"best.{n}": w.clone() for n, w in enumerate(stack.weights)}

    def title(self) -> str:
        return "pair-extrapolation"

    def one_epoch(self) -> str:
        stack = self.stack
        if stack.epoch == self.phase_one:
            stack.refresh()
        stack.train_epoch(balance=stack.epoch >= self.phase_one)
        if stack.epoch % LOOK_EVERY == 0 or stack.epoch == self.epochs:
            _keep(self.kept, stack, *(_error(stack, *points) for points in self.judged))
        return ""

    def save(self) -> None:
        write_tensors(self.begun, {**self.stack.state(), **{f"kept.{name}": t for name, t in self.kept.items()}})

    def resume(self) -> None:
        """Go on from where the same stack was killed; the file of another stack is left alone."""
        if not self.begun.exists():
            return
        state = read_tensors(self.begun, "resuming")[0]
        if state["count"].shape == self.stack.count.shape:
            self.stack.load(state)
            self.kept = {name: state[f"kept.{name}"].to(self.device) for name in self.kept}
            self.epoch = self.stack.epoch


def _points(splits: Sequence[Any], stack: Stack) -> tuple[Tensor, Tensor]:
    """The points and targets of every run."""
    x, y = (torch.stack([getattr(split, part) for split in splits]).to(stack.device) for part in ("x", "y"))
    return x[stack.which], y[stack.which]


@torch.no_grad()
def _error(stack: Stack, x: Tensor, y: Tensor) -> Tensor:
    return (stack.predict(x) - y).square().mean(1)


def _keep(best: dict[str, Tensor], stack: Stack, val: Tensor, test: Tensor) -> None:
    """Remember the weights of the runs whose validation error is the least so far."""
    better = val < best["val"]
    now = {"val": val, "test": test, "epoch": torch.full_like(val, stack.epoch)}
    now |= {f"best.{n}": w for n, w in enumerate(stack.weights)}
    for name, tensor in now.items():
        best[name] = torch.where(better.view(-1, *[1] * (tensor.dim() - 1)), tensor, best[name])


def _row(data: str, name: str, found: dict[str, Tensor], seeds: list[int]) -> Row:
    pair = name not in METHODS
    printed = PRINTED[parse_name(data)[1]["sampling"]]
    return {
        "dataset": data,
        "method": "irmx" if pair else name,
        "variant": {"balance": "pair", "preference": name} if pair else {},
        "metric": "mse",
        "split": "test",
        "selection": "val",
        **summarise(found["test"].tolist()),
        "of_seeds": seeds,
        "epoch": [int(e) for e in found["epoch"].tolist()],
        "last": summarise(found["last"].tolist()),
        **({"fallback_rate": found["fallback_rate"].tolist()} if pair else {}),
        "published": {"mean": printed, "std": None} if pair else None,
    }


def predicted(weights: Sequence[Tensor], first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The predictions of networks on all pairs of two coordinates, [networks, first, second]."""
    points = np.stack([axis.ravel() for axis in np.meshgrid(first, second, indexing="ij")], 1).astype(np.float32)
    flat = forward(weights, torch.from_numpy(points).expand(len(weights[0]), -1, -1))[2]
    return flat.numpy().reshape(-1, len(first), len(second))


def invariance(weights: Sequence[Tensor]) -> list[float]:
    r"""How much the predictions depend on the coordinate that does not matter (docs/papers/pair.md#measures).

    .. math:: E_{x_1\sim U[-2,2]} \mathrm{Var}_{x_2\sim U[-4,4]} f(x_1, x_2)
    """
    return predicted(weights, np.linspace(-2, 2, 81), np.linspace(-REACH, REACH, 161)).var(axis=2).mean(1).tolist()


def draw_extrapolation(rows: list[Row], path: Path) -> Path:
    """The predictions over the plane, a panel a row: vertical bands mean that the invariant coordinate was found."""
    import matplotlib.patches as patches

    side = np.linspace(-REACH, REACH, SIDE)
    columns = min(5, len(rows))
    count = -(-len(rows) // columns)
    with a_figure(path, 2.5 * columns, 2.6 * count) as figure:
        grid = figure.subplots(count, columns, squeeze=False).flat
        image = None
        for axes, row in zip(grid, rows, strict=False):
            file, number = row["drawn"]
            stored = read_tensors(Path(file), "a figure")[0]
            found = predicted([stored[f"best.{n}"][number : number + 1] for n in range(6)], side, side)[0]
            extent = (-REACH, REACH, -REACH, REACH)
            image = axes.imshow(found.T, origin="lower", extent=extent, vmin=0, vmax=2, cmap="viridis")
            sampling = parse_name(row["dataset"])[1]["sampling"]
            for box, (mean, covariance) in zip(BOXES, GAUSSIANS, strict=True):
                if sampling == "uniform":
                    (x, y), (right, top) = box
                    shape: Any = patches.Rectangle((x, y), right - x, top - y)
                else:
                    sizes, turned = np.linalg.eigh(np.array(covariance))
                    angle = float(np.degrees(np.arctan2(turned[1, 1], turned[0, 1])))
                    shape = patches.Ellipse(mean, 6 * sizes[1] ** 0.5, 6 * sizes[0] ** 0.5, angle=angle)
                shape.set(fill=False, edgecolor="white", linewidth=1.2)
                axes.add_patch(shape)
            name = {k: v for k, v in row["variant"].items() if k in ("balance", "preference")}
            text = label({**row, "variant": name}).replace("preference=", "")
            mean = "-" if row["mean"] is None else f"{row['mean']:.2f}"
            bent = ", k=1" if "k=1" in row["dataset"] else ""
            axes.set_title(f"{sampling}{bent}: {text}\nerror {mean}", fontsize=7.5, color=INK)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
        for axes in list(grid)[len(rows) :]:
            axes.set_visible(False)
        if image is not None:
            figure.colorbar(image, ax=figure.axes, shrink=0.5, label="prediction")
    return path
