"""A small assistant, trained before anything expensive is: what does it follow, and how far does it carry?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from sklearn.metrics import normalized_mutual_info_score

from shiftproof.data.dataset import Dataset, Split
from shiftproof.diagnosis.findings import LEVEL
from shiftproof.diagnosis.pieces import pieces_of
from shiftproof.methods.assistant import EnvironmentAssistant
from shiftproof.methods.base import Method, Network
from shiftproof.runtime.progress import Style
from shiftproof.training.trainer import Trainer

HELD = "held-out train"
Follows = Literal["shortcut", "cause", "neither"]
SHUFFLES = 199


@dataclass(frozen=True)
class Tracking:
    """What an assistant trained for a few epochs shows.

    `right` and `wrong` count its training predictions, the two subsets of GALA. `proxies["label"]` and
    `proxies["cluster"]` are `ProxyTable.diagnostics` of what it predicts and of the clusters of its representations,
    with the entries "cause" and "shortcut" where the ground truth is known. `follows`: with which of the two its
    predictions agree more; `tracks_environment`: whether its clusters tell more of the environment than chance does
    inside the classes.
    """

    epochs: int
    samples: int
    accuracy: float
    right: int
    wrong: int
    proxies: Mapping[str, Mapping[str, Mapping[str, float]]]
    follows: Mapping[str, Follows] | None = None
    tracks_environment: bool | None = None


def train_assistant(
    dataset: Dataset,
    *,
    shortcut: str | None = None,
    epochs: int = 10,
    most: int = 3000,
    seed: int = 0,
    device: str = "auto",
    progress: Style = "none",
) -> tuple[Tracking, Method, Dataset]:
    """An assistant of a part of the training samples, what it follows, and the data it was trained and is judged on.

    A fifth of the training samples is held out as the split "held-out train", which looks like training and was not
    seen. `shortcut` names the piece to hold the proxies against.
    """
    small = _smaller(dataset, most, seed)
    torch.manual_seed(seed)
    assistant = EnvironmentAssistant(select="last", epochs=epochs)
    trainer = Trainer(
        epochs=epochs, batch_size=32, selection="last", metric=None, seed=seed, device=device, progress=progress
    )
    model = assistant.fit(small, trainer, Network())
    train = small.train.to(next(model.parameters()).device)
    pieces = pieces_of(small, "train") if shortcut is not None else None
    named = {} if pieces is None or shortcut is None else {"motif": pieces.cause[1], "base": pieces.shortcuts[shortcut]}
    judged = replace(small.train, columns={name: torch.from_numpy(ids) for name, ids in named.items()})
    proxies, follows, clusters = {}, {}, None
    for kind in ("label", "cluster"):
        table = assistant.proxies(model, train, kind=kind, clusters=max(dataset.num_classes, 2), seed=seed)
        found = table.diagnostics(small.with_splits(train=judged))
        proxies[kind] = {{"motif": "cause", "base": "shortcut"}.get(name, name): v for name, v in found.items()}
        clusters = table.proxy.cpu().numpy()
        if named:
            follows[kind] = _followed(proxies[kind], len(train))
    told = proxies["label"]["assistant"]
    tracking = Tracking(
        epochs,
        len(train),
        told["accuracy"],
        int(told["right"]),
        int(told["wrong"]),
        proxies,
        follows or None,
        _tracks(clusters, small.train, seed),
    )
    return tracking, model, small


def _smaller(dataset: Dataset, most: int, seed: int) -> Dataset:
    """At most `most` samples of every split, and a fifth of the training ones held out."""
    splits: dict[str, Split] = {}
    for number, (name, split) in enumerate(dataset.splits.items()):
        order = np.random.default_rng([seed, number]).permutation(len(split))
        size = min(len(split), most if name == "train" else max(most // 2, 1))
        splits[name] = split[torch.from_numpy(np.sort(order[:size]))]
    train = splits["train"]
    order = np.random.default_rng([seed, 99]).permutation(len(train))
    held = max(len(train) // 5, 1)
    splits["train"] = train[torch.from_numpy(np.sort(order[held:]))]
    splits[HELD] = train[torch.from_numpy(np.sort(order[:held]))]
    return replace(dataset, splits=splits, metric="accuracy")


def _followed(told: Mapping[str, Mapping[str, float]], count: int) -> Follows:
    """The piece the proxy agrees with more, where the difference is more than twice its error."""
    gap = told["shortcut"]["agreement"] - told["cause"]["agreement"]
    margin = 2 / count**0.5
    return "shortcut" if gap > margin else "cause" if gap < -margin else "neither"


def _tracks(clusters: np.ndarray | None, train: Split, seed: int) -> bool | None:
    """Do the clusters go with the environment more than they would if it were shuffled inside the classes?"""
    if clusters is None or train.env is None or train.num_envs < 2:
        return None
    env, y = train.env.cpu().numpy(), train.y.reshape(-1).cpu().numpy()
    rng = np.random.default_rng(seed)
    seen = normalized_mutual_info_score(env, clusters)
    by_class = [np.flatnonzero(y == value) for value in np.unique(y)]
    shuffled, drawn = env.copy(), []
    for _ in range(SHUFFLES):
        for rows in by_class:
            shuffled[rows] = env[rng.permutation(rows)]
        drawn.append(normalized_mutual_info_score(shuffled, clusters))
    return bool((1 + (np.array(drawn) >= seen).sum()) / (SHUFFLES + 1) < LEVEL)
