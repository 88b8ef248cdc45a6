"""The methods as scikit-learn estimators: a classifier and a regressor for searches, pipelines, cross-validation."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from shiftproof.api.estimator_samples import as_samples, is_table_of_numbers
from shiftproof.api.fitting import fit
from shiftproof.confidence import calibrate
from shiftproof.data.dataset import Dataset, Split
from shiftproof.data.domains import DomainSet
from shiftproof.data.graphs import GraphSet
from shiftproof.data.readers.given_columns import numbered_env
from shiftproof.data.readers.whole_numbers import encoded
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError
from shiftproof.methods.base import Method
from shiftproof.ranges import BelowOne, Seed, Whole
from shiftproof.runtime.files import read_json, write_json
from shiftproof.training.evaluation import predict
from shiftproof.training.run import Run

PAGE = "estimator.json"
OnError = Literal["raise", "skip"]


class _Estimator(BaseEstimator):
    """What the classifier and the regressor share: samples in, a `Run` kept as `run_`, and folders without pickles."""

    run_: Run
    rejected_: dict[int, str]
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        method: str | type[Method] = "erm",
        *,
        epochs: Whole | None = None,
        validation: BelowOne = 0.1,
        seed: Seed = 0,
        device: str = "auto",
        on_error: OnError = "raise",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.epochs = epochs
        self.validation = validation
        self.seed = seed
        self.device = device
        self.on_error = on_error
        self.settings = settings

    def save(self, folder: str | Path) -> Path:
        """Write the fitted estimator as a folder of JSON and safetensors; nothing is pickled."""
        check_is_fitted(self, "run_")
        if not isinstance(self.method, str):
            raise ShiftproofError("an estimator of a class of your own is kept by its run: estimator.run_.save(folder)")
        folder = Path(folder)
        self.run_.save(folder / "run")
        params = {key: dict(v) if isinstance(v, Mapping) else v for key, v in self.get_params(deep=False).items()}
        names = getattr(self, "feature_names_in_", None)
        page = {"params": params, "features": getattr(self, "n_features_in_", None), **self._learned()}
        write_json(folder / PAGE, {**page, "names": None if names is None else names.tolist()})
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote."""
        folder = Path(folder)
        page = read_json(folder / PAGE, "loading an estimator")
        try:
            made = cls(**page["params"])
            made._remember(page)
            if page["features"] is not None:
                made.n_features_in_ = int(page["features"])
            if page.get("names") is not None:
                made.feature_names_in_ = np.array(page["names"], dtype=object)
        except (KeyError, TypeError, json.JSONDecodeError) as problem:
            raise ShiftproofError(f"{folder / PAGE} does not describe a {cls.__name__} ({problem})") from None
        made.run_ = Run.load(folder / "run")
        return made

    def _learned(self) -> dict[str, Any]:
        """What was learned beside the run, as plain values."""
        raise NotImplementedError

    def _remember(self, page: Mapping[str, Any]) -> None:
        """Take back what `_learned` gave."""
        raise NotImplementedError

    def _samples_to_fit(self, X: Any, y: Any, env: Any) -> tuple[Split, np.ndarray]:
        """The samples, with environments where they are given, and the row of X that each is."""
        if self.on_error not in ("raise", "skip"):
            raise ShiftproofError(f"'on_error' is raise or skip, not {self.on_error!r}")
        if is_table_of_numbers(X):
            validate_data(self, X, skip_check_array=True)
        samples, kept, self.rejected_ = as_samples(X, skip=self.on_error == "skip")
        count = len(kept) + len(self.rejected_)
        if len(y) != count:
            raise ShiftproofError(f"there are {count} samples and {len(y)} labels")
        if isinstance(samples, DomainSet) and samples.x.ndim == 2:
            self.n_features_in_ = int(samples.x.shape[1])
        if env is not None:
            values = np.asarray(env)
            if values.ndim < 1 or len(values) != count:
                length = len(values) if values.ndim else "no"
                raise ShiftproofError(f"'env' has {length} entries for {count} samples")
            samples.env = numbered_env(values[kept])[0]
        self._say_rejected(count)
        return samples, kept

    def _say_rejected(self, count: int) -> None:
        if self.rejected_:
            row, why = next(iter(self.rejected_.items()))
            warnings.warn(f"{len(self.rejected_)} of {count} rows are left out; row {row}: {why}", stacklevel=4)

    def _trained(self, splits: dict[str, Split], **described: Any) -> Run:
        name = type(self).__name__
        dataset = Dataset(splits, name=f"samples given to {name}", **described)
        chosen = {**(self.settings or {}), **({} if self.epochs is None else {"epochs": self.epochs})}
        return fit(self.method, dataset, seed=self.seed, device=self.device, **chosen)

    def _divided(self, samples: Split, groups: np.ndarray) -> dict[str, Split]:
        """Train, and val where a share is held out: of every group that has two samples or more."""
        if not isinstance(self.validation, int | float) or not 0 <= self.validation < 1:
            raise ShiftproofError(f"'validation' is a share from 0 to below 1, not {self.validation!r}")
        held: list[int] = []
        for number in range(int(groups.max()) + 1):
            rows = stream(self.seed, number).permutation(np.flatnonzero(groups == number))
            held += rows[: min(round(self.validation * len(rows)), len(rows) - 1)].tolist()
        if not held:
            return {"train": samples}
        keep = np.setdiff1d(np.arange(len(groups)), held)
        return {"train": samples[torch.from_numpy(keep)], "val": samples[sorted(held)]}

    def _logits(self, X: Any) -> np.ndarray:
        """The raw outputs, a row for each row of X: NaN where a row is left out."""
        check_is_fitted(self, "run_")
        if is_table_of_numbers(X) and hasattr(self, "n_features_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)
        samples, kept, problems = as_samples(X, skip=self.on_error == "skip")
        samples = encoded(samples, self.run_.config.get("reading"))
        wanted, found = self.run_.method.shape.in_shape, tuple(samples.x.shape[1:])
        if isinstance(samples, GraphSet) and found != tuple(wanted):
            raise ShiftproofError(f"these graphs have {found[0]} node features, the training graphs had {wanted[0]}")
        if isinstance(samples, DomainSet) and found != tuple(wanted):
            name = type(self).__name__
            raise ValueError(f"X has {found[0]} features, but {name} is expecting {wanted[0]} features as input")
        if isinstance(samples, DomainSet) and samples.x.ndim == 2:
            logits = _predicted_in_double(self.run_.method, samples)
        else:
            logits = self.run_.logits(samples)
        logits = logits.double().numpy()
        if not problems:
            return logits
        row, why = next(iter(problems.items()))
        warnings.warn(f"{len(problems)} rows cannot be predicted; row {row}: {why}", stacklevel=3)
        whole = np.full((len(kept) + len(problems), *logits.shape[1:]), np.nan)
        whole[kept] = logits
        return whole


class ShiftproofClassifier(ClassifierMixin, _Estimator):
    """A classifier of graphs, molecules or rows of numbers that is trained by one of the library's methods.

    `X` is a list of PyG or NetworkX graphs, a `GraphSet`, SMILES or RDKit molecules (a list, a Series, a frame of one
    column), or a frame or array with one row a sample; `y` may hold numbers or names. Environments go to
    `fit(X, y, env=...)`; in a search or a pipeline by metadata routing (`set_fit_request(env=True)`). `method` is a
    registered name, a `Method` class or "auto"; `settings` holds options of the method, the network and the training
    (`{"hidden": 64}`); the share `validation` of the samples chooses the epoch (0: the last one is kept). With
    `on_error="skip"` SMILES that cannot be read are left out of training, told in `rejected_`, and predicted as NaN (as
    None where classes are names). After `fit`, `classes_` are the classes, `run_` is the `Run`.
    """

    def fit(self, X: Any, y: Any, env: Any = None) -> Self:
        """Train on samples and their labels; `env` holds each sample's environment, as numbers or names."""
        labels = _labels(y, "classifier")
        samples, kept = self._samples_to_fit(X, labels, env)
        labels = labels[kept]
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ShiftproofError("'y' contains NaN or infinity; every label must be known")
        _require_classes(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ShiftproofError(
                f"every label is {self.classes_[0]!r}: a classifier needs at least 2 classes, not one class"
            )
        samples.y = torch.from_numpy(numbers.reshape(-1).astype(np.int64))
        self.run_ = self._trained(self._divided(samples, numbers.reshape(-1)), num_classes=len(self.classes_))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The logits of the classes; of two classes, the difference of theirs."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, one row a sample, in the order of `classes_`."""
        return torch.from_numpy(self._logits(X)).softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every sample."""
        probabilities = self.predict_proba(X)
        unusable = np.isnan(probabilities).any(1)
        found = self.classes_[np.where(unusable, 0, probabilities.argmax(1))]
        if not unusable.any():
            return found
        if found.dtype.kind in "iuf":
            return np.where(unusable, np.nan, found)
        found = found.astype(object)
        found[unusable] = None
        return found

    def calibrate(self, X: Any, y: Any, env: Any = None, *, coverage: float = 0.9) -> Self:
        """Calibrate on samples that were not trained on; from then on there is `predict_set`.

        `env` holds each sample's environment: the sets are then careful for an environment that was not seen.
        """
        check_is_fitted(self, "run_")
        samples, kept, _ = as_samples(X, skip=self.on_error == "skip")
        samples = encoded(samples, self.run_.config.get("reading"))
        numbers = {value: number for number, value in enumerate(self.classes_.tolist())}
        labels = np.asarray(_labels(y, "classifier"))[kept].tolist()
        strange = [value for value in labels if value not in numbers]
        if strange:
            raise ShiftproofError(f"label {strange[0]!r} is none of the classes that were fitted")
        samples.y = torch.tensor([numbers[value] for value in labels])
        if env is not None:
            samples.env = numbered_env(np.asarray(env)[kept])[0]
        self.run_ = calibrate(self.run_, samples, coverage=coverage, seed=self.seed)
        return self

    def predict_set(self, X: Any) -> list[tuple[Any, ...]]:
        """The classes that each sample's truth is among as often as `calibrate` was asked for; none for a bad row."""
        check_is_fitted(self, "run_")
        if self.run_.says_more is None:
            raise ShiftproofError("the classifier is not calibrated: calibrate(X, y) takes samples it did not see")
        samples, kept, problems = as_samples(X, skip=self.on_error == "skip")
        found = self.run_.predict(encoded(samples, self.run_.config.get("reading"))).set or ()
        sets: list[tuple[Any, ...]] = [()] * (len(kept) + len(problems))
        for row, one in zip(kept.tolist(), found, strict=True):
            sets[row] = tuple(self.classes_[number] for number in one)
        return sets

    def _learned(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "kind": self.classes_.dtype.kind}

    def _remember(self, page: Mapping[str, Any]) -> None:
        self.classes_ = np.array(page["classes"])


class ShiftproofRegressor(RegressorMixin, _Estimator):
    """A regressor of graphs, molecules or rows of numbers that is trained by one of the library's methods.

    `X`, `env` and all options are those of `ShiftproofClassifier`; `y` holds one number a sample. It is learned in
    units of its own mean and deviation, and predicted in the units it was given in.
    """

    def fit(self, X: Any, y: Any, env: Any = None) -> Self:
        """Train on samples and their values; `env` holds each sample's environment, as numbers or names."""
        values = _labels(y, "regressor")
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ShiftproofError("'y' of a regressor holds numbers; some entry is none") from None
        samples, kept = self._samples_to_fit(X, values, env)
        values = values[kept]
        if not np.isfinite(values).all():
            raise ShiftproofError("'y' contains NaN or infinity; every value must be known")
        self.mean_, self.scale_ = float(values.mean()), float(values.std()) or 1.0
        samples.y = torch.from_numpy(((values - self.mean_) / self.scale_).astype(np.float32))
        splits = self._divided(samples, np.zeros(len(values), np.int64))
        self.run_ = self._trained(splits, task="regression", metric="mse", num_classes=1)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The value of every sample, in the units of `y`."""
        return self._logits(X).reshape(-1) * self.scale_ + self.mean_

    def calibrate(self, X: Any, y: Any, env: Any = None, *, coverage: float = 0.9) -> Self:
        """Calibrate on samples that were not trained on; from then on there is `predict_interval`.

        `env` holds each sample's environment: intervals are then careful for an environment that was not seen.
        """
        check_is_fitted(self, "run_")
        samples, kept, _ = as_samples(X, skip=self.on_error == "skip")
        samples = encoded(samples, self.run_.config.get("reading"))
        values = (_labels(y, "regressor").astype(np.float64)[kept] - self.mean_) / self.scale_
        samples.y = torch.from_numpy(values.astype(np.float32))
        if env is not None:
            samples.env = numbered_env(np.asarray(env)[kept])[0]
        self.run_ = calibrate(self.run_, samples, coverage=coverage, seed=self.seed)
        return self

    def predict_interval(self, X: Any) -> np.ndarray:
        """`[samples, 2]`: the ends that each truth lies between as often as `calibrate` was asked for.

        They are in the units of `y`; a row that cannot be used has NaN, and where too few rows calibrate an end is
        infinite.
        """
        check_is_fitted(self, "run_")
        if self.run_.says_more is None:
            raise ShiftproofError("the regressor is not calibrated: calibrate(X, y) takes samples it did not see")
        samples, kept, problems = as_samples(X, skip=self.on_error == "skip")
        told = self.run_.predict(encoded(samples, self.run_.config.get("reading")))
        ends = np.full((len(kept) + len(problems), 2), np.nan)
        ends[kept] = np.column_stack([told.low or (), told.high or ()]).astype(float)
        return ends * self.scale_ + self.mean_

    def _learned(self) -> dict[str, Any]:
        return {"mean": self.mean_, "scale": self.scale_}

    def _remember(self, page: Mapping[str, Any]) -> None:
        self.mean_, self.scale_ = float(page["mean"]), float(page["scale"])


def _labels(y: Any, kind: str) -> np.ndarray:
    """The labels as a flat array; a single column is taken with scikit-learn's warning."""
    if y is None:
        raise ValueError(f"fit requires y to be passed, but the target y is None: a {kind} needs labels")
    values = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else np.asarray(y)
    if np.iscomplexobj(values):
        raise ValueError("Complex data not supported: 'y' holds complex numbers")
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=3)
        values = values[:, 0]
    if values.ndim != 1:
        raise ShiftproofError(f"'y' needs one label a sample, its shape is {values.shape}")
    return values


def _require_classes(labels: np.ndarray) -> None:
    from sklearn.utils.multiclass import check_classification_targets

    check_classification_targets(labels)


def _predicted_in_double(method: Method, rows: DomainSet) -> torch.Tensor:
    """The logits of rows of numbers, summed so precisely that a row alone and among others gets the same."""
    exact = copy.deepcopy(method).double()
    device = next(exact.parameters()).device
    return predict(exact, replace(rows, x=rows.x.double()).to(device)).logits
