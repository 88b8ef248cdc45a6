"""The methods as a scikit-learn classifier: `fit`, `predict_proba`, cross-validation, pipelines."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from shiftproof.api.fitting import fit
from shiftproof.confidence import calibrate
from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.joining import join
from shiftproof.data.readers.networkx_graphs import from_networkx, is_networkx
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Method
from shiftproof.runtime.files import read_json, write_json
from shiftproof.training.evaluation import predict
from shiftproof.training.run import Run

PAGE = "estimator.json"


class ShiftproofClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of graphs, molecules or rows of numbers that is trained by one of the library's methods.

    `X` is a list of PyG or NetworkX graphs, a `GraphSet`, a list of SMILES, or an array with one row a sample; `y` may
    hold numbers or names. Environments go to `fit(X, y, env=...)`. `method` is a registered name or "auto"; `settings`
    holds options of the method, the network and the training (`{"hidden": 64}`); the share `validation` of the samples
    chooses the epoch (0: the last one is kept). After `fit`, `classes_` are the classes, `run_` is the `Run`.
    """

    def __init__(
        self,
        method: str = "erm",
        *,
        epochs: int | None = None,
        validation: float = 0.1,
        seed: int = 0,
        device: str = "auto",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.epochs = epochs
        self.validation = validation
        self.seed = seed
        self.device = device
        self.settings = settings

    def fit(self, X: Any, y: Any, env: Any = None) -> ShiftproofClassifier:
        """Train on samples and their labels; `env` holds each sample's environment, as numbers or names."""
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None: a classifier needs labels")
        samples = as_samples(X)
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            import warnings

            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                "A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=2
            )
            labels = labels[:, 0]
        self._require_labels(labels, len(samples))
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ShiftproofError(
                f"every label is {self.classes_[0]!r}: a classifier needs at least 2 classes, not one class"
            )
        samples.y = torch.from_numpy(numbers.reshape(-1).astype(np.int64))
        if env is not None:
            values = np.asarray(env)
            if len(values) != len(samples):
                raise ShiftproofError(f"'env' has {len(values)} entries for {len(samples)} samples")
            samples.env = torch.from_numpy(np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64))
        if isinstance(samples, DomainSet) and samples.x.ndim == 2:
            self.n_features_in_ = int(samples.x.shape[1])
        dataset = Dataset(
            self._splits(samples, numbers.reshape(-1)),
            name="samples given to ShiftproofClassifier",
            num_classes=len(self.classes_),
        )
        chosen = {**(self.settings or {}), **({} if self.epochs is None else {"epochs": self.epochs})}
        self.run_ = fit(self.method, dataset, seed=self.seed, device=self.device, **chosen)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The logits of the classes; of two classes, the difference of theirs."""
        check_is_fitted(self, "run_")
        logits = self._logits(X).double().numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, one row a sample, in the order of `classes_`."""
        return self._logits(X).double().softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every sample."""
        check_is_fitted(self, "run_")
        return self.classes_[self.predict_proba(X).argmax(1)]

    def calibrate(self, X: Any, y: Any, env: Any = None, *, coverage: float = 0.9) -> ShiftproofClassifier:
        """Calibrate on samples that were not trained on; from then on there is `predict_set`.

        `env` holds each sample's environment: the sets are then careful for an environment that was not seen.
        """
        check_is_fitted(self, "run_")
        samples = as_samples(X)
        numbers = {value: number for number, value in enumerate(self.classes_.tolist())}
        labels = np.asarray(y).reshape(-1).tolist()
        strange = [value for value in labels if value not in numbers]
        if strange:
            raise ShiftproofError(f"label {strange[0]!r} is none of the classes that were fitted")
        samples.y = torch.tensor([numbers[value] for value in labels])
        if env is not None:
            samples.env = torch.from_numpy(np.unique(np.asarray(env), return_inverse=True)[1].reshape(-1))
        self.run_ = calibrate(self.run_, samples, coverage=coverage, seed=self.seed)
        return self

    def predict_set(self, X: Any) -> list[tuple[Any, ...]]:
        """The classes that each sample's truth is among as often as `calibrate` was asked for."""
        check_is_fitted(self, "run_")
        if self.run_.says_more is None:
            raise ShiftproofError("the classifier is not calibrated: calibrate(X, y) takes samples it did not see")
        found = self.run_.predict(as_samples(X)).set or ()
        return [tuple(self.classes_[number] for number in one) for one in found]

    def save(self, folder: str | Path) -> Path:
        """Write the fitted classifier as a folder of JSON and safetensors; nothing is pickled."""
        check_is_fitted(self, "run_")
        folder = Path(folder)
        self.run_.save(folder / "run")
        params = {key: dict(v) if isinstance(v, Mapping) else v for key, v in self.get_params(deep=False).items()}
        kind = self.classes_.dtype.kind
        page = {"params": params, "classes": self.classes_.tolist(), "kind": kind}
        write_json(folder / PAGE, {**page, "features": getattr(self, "n_features_in_", None)})
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> ShiftproofClassifier:
        """The classifier that `save` wrote."""
        folder = Path(folder)
        page = read_json(folder / PAGE, "loading a classifier")
        try:
            made = cls(**page["params"])
            made.classes_ = np.array(page["classes"])
            if page["features"] is not None:
                made.n_features_in_ = int(page["features"])
        except (KeyError, TypeError, json.JSONDecodeError) as problem:
            raise ShiftproofError(f"{folder / PAGE} does not describe a classifier ({problem})") from None
        made.run_ = Run.load(folder / "run")
        return made

    def _logits(self, X: Any) -> torch.Tensor:
        check_is_fitted(self, "run_")
        samples = as_samples(X)
        wanted = getattr(self, "n_features_in_", None)
        if wanted is not None and isinstance(samples, DomainSet) and samples.x.shape[1] != wanted:
            name = type(self).__name__
            raise ValueError(f"X has {samples.x.shape[1]} features, but {name} is expecting {wanted} features as input")
        if isinstance(samples, GraphSet) and samples.num_features != self.run_.method.shape.in_shape[0]:
            raise ShiftproofError(
                f"these graphs have {samples.num_features} node features, the training graphs had "
                f"{self.run_.method.shape.in_shape[0]}"
            )
        if isinstance(samples, DomainSet) and samples.x.ndim == 2:
            return _predicted_in_double(self.run_.method, samples)
        return self.run_.logits(samples)

    def _require_labels(self, labels: np.ndarray, count: int) -> None:
        from sklearn.utils.multiclass import check_classification_targets

        if labels.ndim != 1:
            raise ShiftproofError(f"'y' needs one label a sample, its shape is {labels.shape}")
        if len(labels) != count:
            raise ShiftproofError(f"there are {count} samples and {len(labels)} labels")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ShiftproofError("'y' contains NaN or infinity; every label must be known")
        check_classification_targets(labels)

    def _splits(self, samples: Split, y: np.ndarray) -> dict[str, Split]:
        """Train, and val where a share is held out: of every class that has two samples or more."""
        if not 0 <= self.validation < 1:
            raise ShiftproofError(f"'validation' is a share from 0 to below 1, not {self.validation}")
        held: list[int] = []
        for number in range(int(y.max()) + 1):
            rows = stream(self.seed, number).permutation(np.flatnonzero(y == number))
            held += rows[: min(round(self.validation * len(rows)), len(rows) - 1)].tolist()
        if not held:
            return {"train": samples}
        keep = np.setdiff1d(np.arange(len(y)), held)
        return {"train": samples[torch.from_numpy(keep)], "val": samples[sorted(held)]}


def _predicted_in_double(method: Method, rows: DomainSet) -> torch.Tensor:
    """The logits of rows of numbers, summed so precisely that a row alone and among others gets the same."""
    exact = copy.deepcopy(method).double()
    device = next(exact.parameters()).device
    return predict(exact, replace(rows, x=rows.x.double()).to(device)).logits


def as_samples(X: Any) -> Split:
    """What a user calls X as packed graphs or rows of a tensor; the user's own object is not changed."""
    if isinstance(X, (GraphSet, DomainSet)):
        X.check("X")
        return replace(X)
    if isinstance(X, Sequence) and not isinstance(X, str) and len(X):
        first = X[0]
        if isinstance(first, (GraphSet, DomainSet)):
            return join(X)
        if isinstance(first, str):
            return _molecules(list(X))
        if is_networkx(first):
            return _checked(from_networkx(X, where="X"))
        if hasattr(first, "edge_index"):
            return _checked(GraphSet.from_pyg(X, where="X"))
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 and len(X):
        return as_samples(X.tolist())
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if getattr(X, "ndim", 2) > 2:
        rows = np.asarray(X, np.float32)
        if not np.isfinite(rows).all():
            raise ShiftproofError("X contains NaN or infinity")
    else:
        from sklearn.utils.validation import check_array

        rows = check_array(X, dtype=np.float32)  # pyright: ignore[reportArgumentType]
    return DomainSet(torch.from_numpy(np.ascontiguousarray(rows)))


def _checked(graphs: GraphSet) -> GraphSet:
    graphs.check("X")
    return graphs


def _molecules(smiles: list[str]) -> GraphSet:
    from shiftproof.data.readers.molecules import molecule_graphs

    return molecule_graphs(smiles, single_atoms=True, where="X")
