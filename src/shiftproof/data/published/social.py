"""Friendships in several places, a graph for each: Twitch by country, Facebook by university."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.node_files import Arrays, read_arrays
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.node_preparation import Features, prepared, with_drawn_split
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Seed
from shiftproof.registry import register

TWITCH_FEATURES = 3170
GENDER = 1  # the column of Facebook's table that is predicted


@register("twitch", tags=("nodes", "files"))
def twitch(
    domain: Literal["DE", "ENGB", "ES", "FR", "PTBR", "RU", "TW"] = "DE",
    split: Literal["grb", "random"] = "grb",
    features: Features = "raw",
    seed: Seed = 0,
) -> NodeGraph:
    """Twitch streamers of one country, friends joined: do they use mature language? (needs its file).

    Every country has the same 3,170 features, so that a model of one can be tried on another.
    """
    arrays = read_arrays(find("twitch/twitch_explicit.npz", what="the Twitch graphs"))
    _require_domain(domain, arrays, "_mature", "twitch")
    y = torch.from_numpy(arrays[f"{domain}_mature"].astype(np.int64))
    pointer = arrays[f"{domain}_feat_indptr"].astype(np.int64)
    x = np.zeros((len(y), TWITCH_FEATURES), np.float32)
    x[np.repeat(np.arange(len(y)), np.diff(pointer)), arrays[f"{domain}_feat_indices"]] = 1
    edges = torch.from_numpy(arrays[f"{domain}_edges"].astype(np.int64)).T
    graph = NodeGraph.from_edges(
        prepared(torch.from_numpy(x), features),
        edges,
        y,
        name="twitch",
        provenance={"source": "Twitch-Explicit", "domain": domain, "split": split, "features": features, "seed": seed},
    )
    return with_drawn_split(graph, split, seed)


def facebook_table(arrays: Arrays, domain: str) -> tuple[np.ndarray, Tensor]:
    """What is known of each person at a university, and the friendships."""
    _require_domain(domain, arrays, "_info", "facebook100")
    return arrays[f"{domain}_info"], torch.from_numpy(arrays[f"{domain}_edges"].astype(np.int64))


@register("facebook100", tags=("nodes", "files"))
def facebook100(
    domain: Literal["Amherst41", "JohnsHopkins55", "Reed98", "Cornell5"] = "Amherst41",
    split: Literal["grb", "random"] = "grb",
    features: Features = "raw",
    seed: Seed = 0,
) -> NodeGraph:
    """Facebook friends at one university: their gender from status, majors, dorm, year and school (needs its file).

    The features are indicators of the values that occur at this university, so that they differ between universities.
    """
    arrays = read_arrays(find("facebook100/facebook100.npz", what="the Facebook100 graphs"))
    info, edges = facebook_table(arrays, domain)
    places = [np.unique(info[:, column], return_inverse=True) for column in range(info.shape[1]) if column != GENDER]
    starts = np.cumsum([0, *(len(values) for values, _ in places)])
    x = np.zeros((len(info), int(starts[-1])), np.float32)
    for start, (_, place) in zip(starts, places, strict=False):
        x[np.arange(len(info)), start + place] = 1
    graph = NodeGraph.from_edges(
        prepared(torch.from_numpy(x), features),
        edges,
        torch.from_numpy(info[:, GENDER].astype(np.int64)) - 1,  # 0 stands for a missing answer
        name="facebook100",
        provenance={"source": "Facebook100", "domain": domain, "split": split, "features": features, "seed": seed},
    )
    return with_drawn_split(graph, split, seed)


def _require_domain(domain: str, arrays: dict[str, np.ndarray], ending: str, name: str) -> None:
    if f"{domain}{ending}" not in arrays:
        known = ", ".join(key.removesuffix(ending) for key in arrays if key.endswith(ending))
        raise ShiftproofError(f"option 'domain' of {name} is one of {known}, not '{domain}'")
