"""Toy tracks: helices of charged particles in a magnetic field, two of which may come from one heavy particle."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.generated.room import require_room
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.points import Neighbours, at_random, point_graphs
from shiftproof.data.seeds import stream
from shiftproof.ranges import AtLeast, Seed
from shiftproof.registry import register

SIGNAL_SHARE = 0.4  # about that of ActsTrack, docs/papers/gmt.md#data
NEIGHBOURS = Neighbours(k=5, unit=True)  # docs/papers/gmt.md#point-networks, those of ActsTrack
FIELD = 2.0  # tesla
LAYERS = np.linspace(0.1, 1.0, 12)  # metres from the beam
FEWEST_HITS = 10
BLUR = 1e-3  # metres
BACKGROUND_PT = (0.5, 2.0)  # GeV, across the beam
MOST_RAPIDITY = 1.0
HEAVY_MASS, WINDOW = 9.0, 0.5  # GeV
HEAVY_PT = 1.0
IN_DECIMETRES = 10.0


@register("toy-tracks", tags=("graphs", "generated", "points", "ground-truth"))
def toy_tracks(
    graphs: Annotated[int, AtLeast(10)] = 1000, tracks: Annotated[int, AtLeast(2)] = 10, seed: Seed = 0
) -> Dataset:
    """Toy tracks: 10 helices of 10 to 12 hits in a field of 2 T; was there a heavy particle, whose hits are truth.

    An event is positive iff exactly one pair of opposite charges has a mass within 0.5 GeV of 9 GeV; its two tracks are
    the ground truth. All others have no such pair. Hits have a place (`pos`, in decimetres) and no features; each is
    joined to the five hits nearest in direction, itself among them. A stand-in to try the geometric methods on, not one
    of the published sets. Split 70/15/15.
    """
    given = dict(locals())
    require_room(graphs, tracks**2 * 4 + tracks * 12 * (8 + 3 * 5), "toy-tracks")  # all pairs; 12 hits a track
    signal = np.arange(graphs) < round(SIGNAL_SHARE * graphs)
    charge, momentum = _events(signal, tracks, stream(seed, 0))
    pos, sizes, truth = _hits(charge, momentum, signal, stream(seed, 1))
    everything = point_graphs(
        torch.from_numpy(pos * IN_DECIMETRES).float(),
        torch.from_numpy(sizes),
        NEIGHBOURS,
        truth=torch.from_numpy(truth),
        y=torch.from_numpy(signal.astype(np.float32)),
    )
    return Dataset(
        at_random(everything, stream(seed, 2)),
        name="toy-tracks",
        task="binary",
        provenance="generated (toy tracks, a stand-in for ActsTrack)",
        options=named_options(toy_tracks, given, always=("seed",)),
    )


def pair_masses(momentum: np.ndarray) -> np.ndarray:
    """The mass of every pair of massless tracks, `[events, tracks, 3] -> [events, tracks, tracks]`.

    .. math:: m^2 = 2 (E_1 E_2 - p_1 · p_2)
    """
    energy = np.linalg.norm(momentum, axis=-1)
    both = energy[:, :, None] * energy[:, None, :] - momentum @ momentum.transpose(0, 2, 1)
    return np.sqrt(np.maximum(2 * both, 0))


def pairs_in_window(charge: np.ndarray, momentum: np.ndarray) -> np.ndarray:
    """How many pairs of opposite charges have a mass within the window, for each event."""
    near = np.abs(pair_masses(momentum) - HEAVY_MASS) < WINDOW
    return (near & (charge[:, :, None] * charge[:, None, :] < 0)).sum((1, 2)) // 2


def _events(signal: np.ndarray, tracks: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Charges `[events, tracks]` and momenta `[events, tracks, 3]`; in a signal event the pair comes first.

    Events that are not what they should be by chance are drawn anew.
    """
    charge, momentum = np.zeros((len(signal), tracks)), np.zeros((len(signal), tracks, 3))
    missing = np.arange(len(signal))
    while len(missing):
        count = len(missing)
        new_charge = rng.choice([-1.0, 1.0], size=(count, tracks))
        new = _flying(
            rng.uniform(*BACKGROUND_PT, size=(count, tracks)),
            rng.uniform(-np.pi, np.pi, size=(count, tracks)),
            rng.uniform(-MOST_RAPIDITY, MOST_RAPIDITY, size=(count, tracks)),
        )
        heavy = np.flatnonzero(signal[missing])
        new_charge[heavy, :2] = rng.permuted(np.tile([-1.0, 1.0], (len(heavy), 1)), axis=1)
        new[heavy, :2] = _decays(len(heavy), rng)
        charge[missing], momentum[missing] = new_charge, new
        missing = missing[pairs_in_window(new_charge, new) != signal[missing]]
    return charge, momentum


def _flying(pt: np.ndarray, angle: np.ndarray, rapidity: np.ndarray) -> np.ndarray:
    return np.stack([pt * np.cos(angle), pt * np.sin(angle), pt * np.sinh(rapidity)], -1)


def _decays(count: int, rng: np.random.Generator) -> np.ndarray:
    """Two massless momenta `[count, 2, 3]` from a heavy particle that moves slowly across the beam."""
    mass = rng.uniform(HEAVY_MASS - WINDOW, HEAVY_MASS + WINDOW, size=count)
    flight = _flying(rng.uniform(0, HEAVY_PT, size=count), rng.uniform(-np.pi, np.pi, size=count), np.zeros(count))
    # decays across the beam, so that both tracks cross the layers
    out = _flying(np.ones(count), rng.uniform(-np.pi, np.pi, count), rng.uniform(-MOST_RAPIDITY, MOST_RAPIDITY, count))
    out *= (mass / 2 / np.linalg.norm(out, axis=1))[:, None]
    at_rest = np.stack([out, -out], 1)
    energy = np.sqrt(mass**2 + (flight**2).sum(1))
    along = (at_rest * flight[:, None]).sum(-1)
    boost = along / (mass * (energy + mass))[:, None] + 0.5
    return at_rest + boost[..., None] * flight[:, None]


def _hits(
    charge: np.ndarray, momentum: np.ndarray, signal: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the helices cross the layers (metres), how many hits an event has, and which hits are the pair's.

    A helix of radius `R = p_T / 0.3 B` that starts at the beam has turned by `2 asin(r / 2R)` at layer `r`.
    """
    pt = np.linalg.norm(momentum[..., :2], axis=-1)[..., None]
    start = np.arctan2(momentum[..., 1], momentum[..., 0])[..., None]
    radius = pt / (0.3 * FIELD)
    turned = 2 * np.arcsin(LAYERS / (2 * radius))
    angle = start - charge[..., None] * turned / 2
    z = radius * turned * momentum[..., 2:] / pt
    pos = np.stack([LAYERS * np.cos(angle), LAYERS * np.sin(angle), z], -1)
    pos += rng.normal(0, BLUR, size=pos.shape)
    last = rng.integers(FEWEST_HITS, len(LAYERS) + 1, size=charge.shape)
    seen = np.arange(len(LAYERS)) < last[..., None]
    of_pair = np.broadcast_to((signal[:, None] & (np.arange(charge.shape[1]) < 2))[..., None], seen.shape)
    sizes = seen.sum((1, 2))
    # in random order inside each event, so that no rule for ties knows the pair
    order = np.lexsort((rng.random(int(sizes.sum())), np.repeat(np.arange(len(sizes)), sizes)))
    return pos[seen][order], sizes, of_pair[seen][order]
