"""Where networks look whose shortcut has a known place: Grad-CAM, saliency, integrated gradients; ERM against FeAT."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.corner import regions
from shiftproof.data.readers.loading import load
from shiftproof.drawing.figures import COLOURS, a_figure
from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.image_maps import grad_cam, integrated_gradients, saliency, share_in_region
from shiftproof.features.feat import ERMPretrainer, FeAT, IFeAT
from shiftproof.registry import register
from shiftproof.runtime.devices import device_name, pick_device
from shiftproof.runtime.files import read_json, read_tensors, write_json, write_tensors
from shiftproof.sweeps.recipes import Recipe, Row, Work
from shiftproof.sweeps.table import join_words, summarise

DATA = "cmnist-corner"
MAPS = ("grad_cam", "saliency", "integrated_gradients")
SHOWN = 4  # images of the figure
MAPPED = 512  # test images whose maps are measured
STEPS = 150  # docs/papers/feat.md#saliency-maps: ERM for one, two and three times as long, FeAT for two rounds
SMOKE_STEPS, SMOKE_SAMPLES, SMOKE_MAPPED = 6, 120, 12


@register("feat-gradcam", "recipes")
def feat_gradcam() -> Recipe:
    """Digits with a coloured patch in the corner: where CNNs trained by ERM and FeAT look.

    Source: docs/papers/feat.md#saliency-maps.
    """
    note = (
        "10,000 digits of 28x28 pixels in gray, a 5x5 patch of the colour in the corner; two convolutions (32 and 64 "
        "maps), 256 features, full batch, Adam 1e-3, L2 1e-3. ERM after 150, 300 and 450 steps, iFeAT after two rounds "
        "of 150, with its merged head. Shares of the positive attribution of the predicted class, on 512 images of the "
        "test environment in which colour and label are independent; both regions are widened by one pixel, and a map "
        "without any positive value counts 0 in both. Grad-CAM of the second convolution."
    )
    return Recipe("feat-gradcam", (), seeds=3, first_seed=0, note=note, run=map_rows, draw=draw_maps, data=(DATA,))


def digit_cnn() -> tuple[nn.Sequential, nn.Linear]:
    """Two convolutions with pooling and 256 features, and a head with one logit.

    Source: docs/papers/feat.md#corner-shortcut.
    """
    featurizer = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 49, 256),
        nn.ReLU(),
    )
    return featurizer, nn.Linear(256, 1)


LAYER = 4  # the ReLU behind the second convolution
SHARES, MADE = "shares.json", "made.json"


def learners(steps: int) -> dict[str, FeAT]:
    """The models of the figure by name."""
    shared: dict[str, Any] = {"lr": 1e-3, "l2": 1e-3, "compile": True}
    found: dict[str, FeAT] = {f"ERM {k * steps}": ERMPretrainer(steps=k * steps, **shared) for k in (1, 2, 3)}
    found[f"FeAT 2x{steps}"] = IFeAT(rounds=2, steps=steps, retention=0.01, merge="sum", **shared)
    return found


def map_rows(work: Work) -> list[Row]:
    """Rows by model, map and region, and the accuracy of every model; a finished model is not trained again."""
    chosen = _asked(work)
    device = pick_device(work.device)
    finished: dict[str, dict[int, Path]] = {name: {} for name in chosen}
    for seed in work.seeds:
        data = None
        for name, learner in chosen.items():
            place = work.folder / f"seed-{seed}" / name.replace(" ", "-")
            if not (place / SHARES).exists():
                if work.collect:
                    continue
                data = data or load(_spec(seed, work.smoke)).to(device)
                learner.seed = seed
                _train_and_look(learner, data, place, SMOKE_MAPPED if work.smoke else MAPPED)
            finished[name][seed] = place
    if not any(finished.values()):
        raise ShiftproofError(f"{work.folder} holds no finished model to collect; leave out --collect")
    # patches are coloured by the seed, so the figure shows one, that which most models have
    shown = max(work.seeds, key=lambda seed: sum(seed in places for places in finished.values()))
    return [row for name, places in finished.items() if places for row in _rows_of(name, places, shown)]


def _rows_of(name: str, places: Mapping[int, Path], shown: int) -> list[Row]:
    """The rows of one model over its seeds."""
    found = [read_json(place / SHARES, "a table") for place in places.values()]
    made = [read_json(place / MADE, "a table")["device"] for place in places.values() if (place / MADE).exists()]
    rows = []
    for metric in found[0]:
        row: Row = {
            "dataset": DATA,
            "method": name,
            "variant": {},
            "metric": metric,
            "split": "test",
            "selection": "last",
            **summarise([each[metric] for each in found]),
            "of_seeds": list(places),
            "device": join_words(made) if made else "not recorded",
            "published": None,
        }
        if metric == "grad_cam in digit" and shown in places:
            row["drawn"] = str(places[shown] / "maps.safetensors")
        rows.append(row)
    return rows


def _asked(work: Work) -> dict[str, FeAT]:
    """The models that --only names as the whole table calls them, also where a smoke run trains them more shortly."""
    made = learners(SMOKE_STEPS if work.smoke else STEPS)
    names = dict(zip(learners(STEPS), made, strict=True))
    return {names[one]: made[names[one]] for one in work.wanted(list(names))}


def _spec(seed: int, smoke: bool) -> str:
    few = f",samples={SMOKE_SAMPLES},test_samples={SMOKE_MAPPED}" if smoke else ""
    return f"{DATA}:seed={seed}{few}"


def _train_and_look(learner: FeAT, data: Dataset, place: Path, mapped: int) -> None:
    torch.manual_seed(learner.seed)
    featurizer, head = digit_cnn()
    featurizer.to(data.train.device)
    head.to(data.train.device)
    learned = learner.fit(featurizer, head, data)
    test = data.test
    assert test.env is not None
    x = test.x[test.env == 2][:mapped]  # the colour says nothing of the label there
    maps = maps_of(nn.Sequential(featurizer, head), featurizer[LAYER], x)
    last = learned.rounds[-1]
    shares = {"train accuracy": last.merged_accuracy, "worst test accuracy": last.merged_scores["test"]}
    for region, mask in regions(x).items():
        for kind, values in maps.items():
            shares[f"{kind} in {region}"] = float(share_in_region(values, mask).mean())
    shown = {"x": x[:SHOWN], **{kind: values[:SHOWN] for kind, values in maps.items()}}
    write_tensors(place / "maps.safetensors", {k: v.detach().cpu().contiguous() for k, v in shown.items()}, {})
    write_json(place / MADE, {"device": device_name(data.train.device)})
    write_json(place / SHARES, shares)  # last: what has it is finished


def maps_of(model: nn.Module, layer: nn.Module, x: Tensor) -> Mapping[str, Tensor]:
    """The three kinds of maps of the predicted class, [n, h, w] each."""
    return {
        "grad_cam": grad_cam(model, layer, x),
        "saliency": saliency(model, x),
        "integrated_gradients": integrated_gradients(model, x).sum(1),
    }


def draw_maps(rows: list[Row], path: Path) -> Path:
    """Above, each image with its Grad-CAM, alone and laid over it, by model; below, the shares in digit and patch."""
    drawn = {row["method"]: row["drawn"] for row in rows if "drawn" in row}
    pictures = {name: read_tensors(Path(file), "a figure")[0] for name, file in drawn.items()}
    names, images = list(pictures), next(iter(pictures.values()))["x"]
    columns = 1 + 2 * len(names)
    with a_figure(path, 1.0 * columns + 0.4, 1.05 * len(images) + 2.6) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=[1.05 * len(images) + 0.2, 2.4])
        grid = above.subplots(len(images), columns, squeeze=False)
        for number, image in enumerate(images):
            picture = image.permute(1, 2, 0).numpy()
            cells = iter(grid[number])
            next(cells).imshow(picture)
            for name in names:
                cam = pictures[name]["grad_cam"][number].numpy()
                next(cells).imshow(cam, cmap="gray", vmin=0, vmax=1)
                axes = next(cells)
                axes.imshow(picture)
                axes.imshow(cam, cmap="inferno", vmin=0, vmax=1, alpha=0.55)
        for place, axes in enumerate(grid[0]):
            axes.set_title("image" if place == 0 else names[(place - 1) // 2] if place % 2 else "")
        for axes in grid.flat:
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
        for axes, kind in zip(below.subplots(1, len(MAPS), sharey=True), MAPS, strict=True):
            for shift, region in ((-0.2, "digit"), (0.2, "patch")):
                own = {row["method"]: row["mean"] for row in rows if row["metric"] == f"{kind} in {region}"}
                places = [names.index(name) + shift for name in own]
                colour = COLOURS[0 if region == "digit" else 1]
                axes.bar(places, [value or 0.0 for value in own.values()], 0.38, color=colour, label=region)
            axes.set_xticks(range(len(names)), names, rotation=20)
            axes.set_title(kind.replace("_", " "))
            axes.tick_params(length=0)
        below.axes[0].set_ylabel("share of attribution")
        below.axes[0].legend(frameon=False)
    return path
