"""Images as graphs of superpixels: digits whose colour misleads (CMNIST-75sp), and grey ones with known foreground."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.data.published.mnist import mnist
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import cache_folder
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, optional
from shiftproof.ranges import Count, Seed
from shiftproof.registry import register
from shiftproof.runtime.files import write_safetensors
from shiftproof.runtime.workers import process_pool

MOST_SEGMENTS = 75
COMPACTNESS = 0.25
ASKED_COLOURED, ASKED_GREY = MOST_SEGMENTS + 50, MOST_SEGMENTS + 20  # ciga.md 6.4, gmt.md 6.5
NODE_ORDER_SEED = 111
NEAR = (0.1 * np.pi) ** 2  # scale of exp(-distance / NEAR)
WEAKEST_EDGE = 0.1
REACH = -NEAR * np.log(WEAKEST_EDGE)  # the distance of the weakest edge, 0.2273
LABEL_NOISE = 0.25
FLIPS = (0.2, 0.1, 0.9)  # colour flips of the two training environments and of what is held out
PACKED_VERSION = 1
IMAGES_AT_ONCE = 500

RED, GREEN, GREY = 0, 1, None
Channel = int | None


@register("cmnist-75sp", tags=("graphs", "images", "files", "environments"))
def cmnist_75sp(seed: Seed = 0, limit: Count | None = None, workers: Count = 1) -> Dataset:
    """ColoredMNIST as superpixel graphs, where validation is coloured as in the test (needs MNIST and scikit-image).

    The label is "five or more", wrong in a quarter of the images; the colour follows it in 0.8 and 0.9 of the two
    training environments and in 0.1 of the held-out images. Superpixels are kept in the cache folder once computed
    (minutes for all 60,000 images; `workers` processes share the work). `limit` takes only the first images of each
    environment, of `val` and of `test`.
    """
    images, digits = mnist("train")
    if len(images) != 60_000:
        raise ShiftproofError(f"cmnist-75sp needs MNIST's 60,000 training images, the file holds {len(images)}")
    held = 40_000 + torch.randperm(20_000, generator=torch.Generator().manual_seed(0)).numpy()
    parts = {
        "train": (np.arange(20_000), np.arange(20_000, 40_000)),
        "val": (held[:5_000],),
        "test": (held[5_000:],),
    }
    source = Source("mnist-train", images, ASKED_COLOURED)
    splits = _coloured(source, digits, parts, seed, limit, workers)
    given = {"seed": seed, "limit": limit}
    return _coloured_dataset(
        splits,
        "cmnist-75sp",
        "MNIST (LeCun, Cortes), coloured, as at most 75 SLIC superpixels an image",
        named_options(cmnist_75sp, given, always=("seed",)),
    )


@register("colored-digits-sp", tags=("graphs", "images", "embedded", "environments"))
def colored_digits_sp(seed: Seed = 0, limit: Count | None = None, workers: Count = 1) -> Dataset:
    """CMNIST-75sp in small, for tests: the same construction on scikit-learn's 1,797 digits (needs scikit-image)."""
    from sklearn.datasets import load_digits

    pixels, digits = map(np.asarray, load_digits(return_X_y=True))
    small = np.round(pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    images = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    third = len(images) // 3
    held = 2 * third + stream(0).permutation(len(images) - 2 * third)
    parts = {
        "train": (np.arange(third), np.arange(third, 2 * third)),
        "val": (held[: third // 4],),
        "test": (held[third // 4 :],),
    }
    source = Source("digits", images, ASKED_COLOURED)
    splits = _coloured(source, digits, parts, seed, limit, workers)
    given = {"seed": seed, "limit": limit}
    return _coloured_dataset(
        splits,
        "colored-digits-sp",
        "handwritten digits of scikit-learn enlarged to 28x28, coloured, as superpixels; a stand-in for CMNIST-75sp",
        named_options(colored_digits_sp, given, always=("seed",)),
    )


@register("mnist-75sp", tags=("graphs", "images", "files"))
def mnist_75sp(seed: Seed = 0, limit: Count | None = None, workers: Count = 1) -> Dataset:
    """MNIST digits as superpixel graphs whose bright superpixels are the ground truth (needs MNIST and scikit-image).

    20,000 images train and 5,000 validate, drawn by `seed` from MNIST's training file; its 10,000 test images test.
    `limit` takes only the first images of each split; `workers` processes share the work of the first time.
    """
    limit = limit
    images, digits = mnist("train")
    test_images, test_digits = mnist("test")
    if (len(images), len(test_images)) != (60_000, 10_000):  # of few, the same would train and validate
        raise ShiftproofError(
            f"mnist-75sp needs MNIST's 60,000 images to train and 10,000 to test on, "
            f"the files hold {len(images)} and {len(test_images)}"
        )
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed)).numpy()
    trained = Source("mnist-train", images, ASKED_GREY)
    tested = Source("mnist-test", test_images, ASKED_GREY)
    parts = {
        "train": (trained, digits, order[:20_000][:limit]),
        "val": (trained, digits, order[-5_000:][:limit]),
        "test": (tested, test_digits, np.arange(len(test_images))[:limit]),
    }
    splits = {}
    for name, (source, of_digits, rows) in parts.items():
        graphs = superpixel_graphs(source.superpixels(rows, GREY, workers))
        grey, place = graphs.x[:, :1], graphs.x[:, 1:]
        splits[name] = replace(
            graphs,
            x=torch.cat([grey, grey, grey, place], dim=1),
            y=torch.from_numpy(of_digits[rows].astype(np.int64)),
            edge_attr=graphs.edge_columns["weight"][:, None],
            columns={"image": torch.from_numpy(rows.astype(np.int64))},
            edge_columns={},
        )
    return Dataset(
        splits,
        name="mnist-75sp",
        num_classes=10,
        provenance="MNIST (LeCun, Cortes), as at most 75 SLIC superpixels an image",
        options=named_options(mnist_75sp, {"seed": seed, "limit": limit}, always=("seed",)),
    )


def segment(image: np.ndarray, channel: Channel, asked: int) -> np.ndarray:
    """The superpixel of each pixel of a grey image `[h, w]` with values in [0, 1], numbered from 0; at most 75.

    The image is put into one channel of a colour image first unless `channel` is `GREY`. SLIC is asked for ever fewer
    segments, from `asked` down, until at most 75 come out.
    """
    skimage = optional("skimage.segmentation", "images", "cutting images into superpixels")
    regular_grid = optional("skimage.util", "images", "cutting images into superpixels").regular_grid
    painted = image
    if channel is not None:
        painted = np.zeros((*image.shape, 3))
        painted[..., channel] = image
    tried = None
    for wanted in range(asked, 0, -1):
        # SLIC starts from a regular grid and from nothing else that depends on how many segments are asked for:
        # a number that gives the grid of the last one gives its segments too
        grid = regular_grid((1, *image.shape), wanted)
        if grid == tried:
            continue
        tried = grid
        found = skimage.slic(
            painted, n_segments=wanted, compactness=COMPACTNESS, channel_axis=None if channel is None else -1
        )
        number = np.unique(found, return_inverse=True)[1].reshape(image.shape)
        if number.max() < MOST_SEGMENTS:
            return number
    raise ShiftproofError(f"an image of {image.shape} pixels cannot be cut into at most {MOST_SEGMENTS} superpixels")


def superpixel_graphs(found: Superpixels) -> GraphSet:
    r"""Graphs that link near superpixels; node features are brightness, row and column, all in [0, 1].

    .. math:: A_{uv} = \exp(-\|c_u - c_v\| / (0.1\pi)^2), \quad \text{kept where } A_{uv} > 0.1

    The edge column "weight" holds A, ground truth marks bright superpixels and the edges between them.
    """
    ends, weights, counts = (
        np.concatenate(parts, axis=-1) for parts in zip(*_near_pairs(found.size, found.value[:, 1:]), strict=True)
    )
    graphs = GraphSet.from_parts(
        torch.from_numpy(found.size),
        torch.from_numpy(counts),
        torch.from_numpy(ends),
        x=torch.from_numpy(found.value),
        edge_columns={"weight": torch.from_numpy(weights)},
    )
    graphs.node_truth = graphs.x[:, 0] > 0
    graphs.edge_truth = graphs.node_truth[graphs.edge_index].all(0)
    return graphs


def _near_pairs(sizes: np.ndarray, centres: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Edges (numbered inside each image), weights and edges an image, some hundred images at a time."""
    centres = centres.astype(np.float64)
    starts = np.cumsum(sizes) - sizes
    for first in range(0, len(sizes), IMAGES_AT_ONCE):
        some, begin = sizes[first : first + IMAGES_AT_ONCE], starts[first : first + IMAGES_AT_ONCE]
        slot = np.arange(some.max())
        real = slot < some[:, None]
        points = np.where(real[..., None], centres[np.minimum(begin[:, None] + slot, len(centres) - 1)], np.inf)
        with np.errstate(invalid="ignore"):  # empty slots lie at infinity, even from each other
            down, across = (axis[:, :, None] - axis[:, None] for axis in np.moveaxis(points, -1, 0))
            squared = down**2 + across**2
        near = squared < REACH**2
        near[:, slot, slot] = False
        _, source, target = np.nonzero(near)
        weight = np.exp(-np.sqrt(squared[near]) / NEAR)
        yield np.stack([source, target]), weight.astype(np.float32), np.count_nonzero(near, axis=(1, 2))


@dataclass(frozen=True, eq=False)
class Superpixels:
    """Superpixels of some images: the row of each image, how many it has, and brightness, row and column of each."""

    row: np.ndarray
    size: np.ndarray
    value: np.ndarray

    @classmethod
    def none(cls) -> Superpixels:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 3), np.float32))

    def of(self, rows: np.ndarray) -> Superpixels:
        """Those of the given images, in the order given."""
        order = np.argsort(self.row)
        at = order[np.searchsorted(self.row, rows, sorter=order)]
        size = self.size[at]
        starts = np.cumsum(self.size) - self.size
        shift = np.repeat(starts[at] - (np.cumsum(size) - size), size)
        return Superpixels(rows, size, self.value[np.arange(len(shift)) + shift])

    def __add__(self, other: Superpixels) -> Superpixels:
        return Superpixels(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))


@dataclass(frozen=True, eq=False)
class Source:
    """Grey images `[n, h, w]` (uint8) whose superpixels are computed once and kept in the cache folder."""

    name: str
    images: np.ndarray
    asked: int

    def superpixels(self, rows: np.ndarray, channel: Channel, workers: int) -> Superpixels:
        """The superpixels of the chosen images, in the order given."""
        path = self._path(channel)
        known = _read(path)
        missing = np.setdiff1d(rows, known.row)
        if len(missing):
            known += self._compute(missing, channel, workers)
            with contextlib.suppress(OSError):  # no room or no right to write there: computed again the next time
                _write(known, path)
        return known.of(rows)

    def _path(self, channel: Channel) -> Path:
        colour = {RED: "red", GREEN: "green", GREY: "grey"}[channel]
        digest = hashlib.sha256(np.ascontiguousarray(self.images).data).hexdigest()[:12]
        name = f"{self.name}-{digest}-{colour}-{self.asked}-v{PACKED_VERSION}.safetensors"
        return cache_folder() / "superpixels" / name

    def _compute(self, rows: np.ndarray, channel: Channel, workers: int) -> Superpixels:
        optional("skimage.segmentation", "images", "cutting images into superpixels")  # said before a process starts
        cuts = range(0, len(rows), IMAGES_AT_ONCE)
        jobs = [(self.images[some], some, channel, self.asked) for some in (rows[c : c + IMAGES_AT_ONCE] for c in cuts)]
        if workers == 1 or len(jobs) == 1:
            done = list(map(_describe, jobs))
        else:
            with process_pool(min(workers, len(jobs))) as pool:
                done = list(pool.map(_describe, jobs))
        return sum(done, Superpixels.none())


def _describe(job: tuple[np.ndarray, np.ndarray, Channel, int]) -> Superpixels:
    """The superpixels of some images, those of each image in random order."""
    images, rows, channel, asked = job
    height, width = images.shape[1:]
    row_of, column_of = (grid.ravel() for grid in np.mgrid[:height, :width])
    sizes, values = [], []
    for image, number in zip(images / 255.0, rows, strict=True):
        owner = segment(image, channel, asked).ravel()
        area = np.bincount(owner)
        sums = (np.bincount(owner, weights) for weights in (image.ravel(), row_of / height, column_of / width))
        found = np.stack([total / area for total in sums], axis=1)
        sizes.append(len(area))
        values.append(found[np.random.default_rng([NODE_ORDER_SEED, int(number)]).permutation(len(area))])
    return Superpixels(rows.astype(np.int64), np.array(sizes, np.int64), np.concatenate(values).astype(np.float32))


def _coloured(
    source: Source,
    digits: np.ndarray,
    parts: dict[str, tuple[np.ndarray, ...]],
    seed: int,
    limit: int | None,
    workers: int,
) -> dict[str, GraphSet]:
    """Coloured superpixel graphs: the parts of "train" are its environments, everything else is held out."""
    # noise is drawn for all images, so that an image looks the same whatever the limit is
    label = (digits >= 5) ^ (stream(seed, 0).random(len(digits)) < LABEL_NOISE)
    chance = stream(seed, 1).random(len(digits))
    chosen = {name: [rows[:limit] for rows in envs] for name, envs in parts.items()}
    green = np.zeros(len(digits), bool)
    for name, envs in chosen.items():
        for number, rows in enumerate(envs):
            flip = FLIPS[number] if name == "train" else FLIPS[-1]
            green[rows] = label[rows] ^ (chance[rows] < flip)
    everything = np.sort(np.concatenate([rows for envs in chosen.values() for rows in envs]))
    found = sum(
        (source.superpixels(everything[green[everything] == channel], channel, workers) for channel in (RED, GREEN)),
        Superpixels.none(),
    )
    splits = {}
    for name, envs in chosen.items():
        rows = np.concatenate(envs)
        env = np.repeat(np.arange(len(envs)), [len(some) for some in envs])
        graphs = superpixel_graphs(found.of(rows))
        splits[name] = replace(
            graphs,
            x=_seven_features(graphs, green[rows]),
            y=torch.from_numpy(label[rows].astype(np.int64)),
            env=torch.from_numpy(env),
            columns={
                "digit": torch.from_numpy(digits[rows].astype(np.int64)),
                "colour": torch.from_numpy(green[rows].astype(np.int64)),
                "flip": torch.from_numpy(env),
                "image": torch.from_numpy(rows.astype(np.int64)),
            },
        )
    return splits


def _seven_features(graphs: GraphSet, green: np.ndarray) -> torch.Tensor:
    """`[R, R, R, G, B, row, col]`: the first channel stands three times, as published."""
    is_green = torch.repeat_interleave(torch.from_numpy(green), graphs.sizes)
    brightness, place = graphs.x[:, 0], graphs.x[:, 1:]
    red, green_part = torch.where(is_green, 0.0, brightness), torch.where(is_green, brightness, 0.0)
    channels = torch.stack([red, red, red, green_part, torch.zeros_like(red)], dim=1)
    return torch.cat([channels, place], dim=1)


def _coloured_dataset(splits: dict[str, GraphSet], name: str, provenance: str, options: dict[str, Any]) -> Dataset:
    return Dataset(
        splits,
        name=name,
        provenance=provenance,
        options=options,
        environment="flip",
        value_names={"flip": (str(FLIPS[-1]),), "train.flip": tuple(map(str, FLIPS[:-1])), "colour": ("red", "green")},
    )


def _read(path: Path) -> Superpixels:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if path.exists():
        with contextlib.suppress(OSError, SafetensorError, ValueError, TypeError):  # a damaged copy is computed anew
            found = Superpixels(**load_file(path))
            if len(found.row) == len(found.size) and found.size.sum() == len(found.value):
                return found
    return Superpixels.none()


def _write(found: Superpixels, path: Path) -> None:
    write_safetensors(path, vars(found))
