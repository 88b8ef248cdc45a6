"""Leave-one-domain-out: every domain is the test domain once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftproof.api.fitting import fit
from shiftproof.data.dataset import Dataset
from shiftproof.data.domains import DomainSet
from shiftproof.data.readers.labels import infer_task
from shiftproof.data.readers.left_out import LeftOut, domain_dataset
from shiftproof.data.readers.loading import load_samples
from shiftproof.errors import ShiftproofError, kind_of
from shiftproof.methods.base import Method
from shiftproof.ranges import Seed, checked
from shiftproof.registry import choices_of, datasets, parse_name
from shiftproof.statistics.metrics import LOWER_IS_BETTER
from shiftproof.training.run import Run


@dataclass(frozen=True)
class DomainScores:
    """How a method does on each domain when it is trained on the others, and the runs behind it."""

    metric: str
    scores: Mapping[str, float]
    runs: Mapping[str, Run]

    @property
    def worst(self) -> float:
        """The score of the domain that suffers most from being left out."""
        return max(self.scores.values()) if self.metric in LOWER_IS_BETTER else min(self.scores.values())

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    def __str__(self) -> str:
        each = ", ".join(f"{domain} {score:.3f}" for domain, score in self.scores.items())
        return f"{self.metric}: {each}; mean {self.mean:.3f}, worst {self.worst:.3f}"


@checked
def leave_one_domain_out(
    method: str | type[Method],
    source: str | DomainSet,
    *,
    names: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    seed: Seed = 0,
    **settings: Any,
) -> DomainScores:
    """Train on all domains but one, test on that one, for every domain in turn.

    `source` is a registered name with an option `test` ("pacs64", "office-caltech10:seed=1"), or samples of your own
    with environments, which `names` may name. A fifth of every training domain chooses the epoch. `domains` restricts
    the test domains, `settings` are those of `fit`.
    """
    data = _folds(source, names, domains, seed)
    runs = {domain: fit(method, fold, seed=seed, **settings) for domain, fold in data.items()}
    for run in runs.values():
        run.dataset = None  # every fold would be kept as long as its run
    metric = next(iter(runs.values())).config["metric"]
    scores = {domain: run.metrics["test"][metric] for domain, run in runs.items()}
    return DomainScores(metric, {domain: float("nan") if v is None else v for domain, v in scores.items()}, runs)


def domains_of(source: str) -> tuple[str, ...]:
    """The domains of a registered data set that can be left out."""
    name, options = parse_name(source)
    if name not in datasets or "test" not in datasets[name].options:
        raise ShiftproofError(f"'{source}' is no data set with an option 'test'; pacs64 and office-caltech10 are two")
    listed = [choice for choice in choices_of(datasets[name].options["test"]) if choice is not None]
    if listed:
        return tuple(listed)
    data = load_samples(name, **{key: value for key, value in options.items() if key != "test"})
    return (*data.env_names_of("train"), *data.env_names_of("test"))


def _folds(
    source: str | DomainSet, names: Sequence[str] | None, domains: Sequence[str] | None, seed: int
) -> dict[str, Dataset]:
    if isinstance(source, str):
        if names is not None:
            raise ShiftproofError("'names' are for samples of your own; a registered data set has its own")
        base = {"seed": seed, **parse_name(source)[1]}
        base.pop("test", None)
        name = source.partition(":")[0]
        return {test: load_samples(name, test=test, **base) for test in domains or domains_of(source)}
    if not isinstance(source, DomainSet):
        raise ShiftproofError(
            f"domains are left out of a registered data set or a DomainSet with environments, not of {kind_of(source)}"
        )
    if source.env is None or source.num_envs < 2:
        raise ShiftproofError("leaving one domain out needs samples of at least two environments")
    known = tuple(names) if names is not None else tuple(str(e) for e in range(source.num_envs))
    if len(known) != source.num_envs:
        raise ShiftproofError(f"there are {source.num_envs} environments and {len(known)} names")
    task = infer_task(source.y)
    classes = int(source.y.max()) + 1 if task == "multiclass" else 2
    return {
        test: domain_dataset(
            source.x,
            source.y,
            source.env.cpu().numpy(),
            known,
            LeftOut(test, seed=seed),
            name="samples",
            provenance="given by the user",
            options={"test": test, "seed": seed},
            task=task,
            metric="mse" if task == "regression" else "accuracy",
            num_classes=classes,
        )
        for test in domains or known
    }
