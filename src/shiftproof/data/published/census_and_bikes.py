"""Two public tables whose rows come in groups: incomes of a census, and hourly rentals of bikes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.left_out import LeftOut, domain_dataset, standardised
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Chance, Seed
from shiftproof.registry import register

AdultGroup = Literal["workclass", "education", "occupation", "marital_status", "relationship", "race", "sex"]
ADULT_TEST = {"workclass": "Self-emp-inc", "education": "Masters", "occupation": "Exec-managerial"}
FEWEST_ROWS = 200  # of a group; smaller ones are left out
BikeGroup = Literal["season", "year", "weather"]
BIKE_GROUPS = {
    "season": ("season", {1: "winter", 2: "spring", 3: "summer", 4: "autumn"}),
    "year": ("yr", {0: "2011", 1: "2012"}),
    "weather": ("weathersit", {1: "clear", 2: "mist", 3: "rain", 4: "rain"}),  # three hours of storm count as rain
}
BIKE_TEST = {"season": "winter", "year": "2012", "weather": "rain"}


@register("adult", tags=("tables", "environments"))
def adult(
    by: AdultGroup = "workclass",
    test: str | None = None,
    holdout: Chance = 0.2,
    seed: Seed = 0,
    validate: str | None = None,
) -> Dataset:
    """Adult: does a person of the 1994 census earn more than 50,000? Groups of people are domains (needs its files).

    `by` is the column whose values are the domains, `test` the one that is seen at test time only. It is no feature,
    nor is the weight of the sample. Numbers are standardised by the training rows and texts one-hot.
    """
    import pandas as pd

    if by not in AdultGroup.__args__:
        raise ShiftproofError(f"option 'by' of adult is one of {', '.join(AdultGroup.__args__)}, not '{by}'")
    files = ("tabular/adult_train.csv.gz", "tabular/adult_test.csv.gz")
    table: Any = pd.concat([_table(file, "the census table") for file in files], ignore_index=True)
    _require_columns(table, ("income", by, "age"), "adult")
    groups: Any = table[by].astype(str).str.strip().replace("?", "unknown")
    large = groups.map(groups.value_counts()) >= FEWEST_ROWS
    table, groups = table[large].reset_index(drop=True), groups[large].reset_index(drop=True)
    names: tuple[str, ...] = tuple(sorted(groups.unique()))
    chosen = ADULT_TEST.get(by, names[-1]) if test is None else test
    dropped = ["income", "fnlwgt", by] + (["education_num"] if by == "education" else [])
    given = {"by": by, "test": chosen, "holdout": holdout, "seed": seed, "validate": validate}
    left = int((~large).sum())
    return domain_dataset(
        standardised(_columns(table.drop(columns=dropped))),
        torch.from_numpy(table["income"].astype(str).str.contains(">50K").to_numpy().astype(np.float32)),
        groups.map(names.index).to_numpy(),
        names,
        LeftOut(chosen, validate, holdout, seed),
        name="adult",
        task="binary",
        provenance="Adult (UCI), census of 1994",
        options=named_options(adult, given, always=("by", "test", "seed")),
        column=by,
        value_names={"label": ("up to 50K", "more than 50K")},
        notes=(f"{left} rows of groups with fewer than {FEWEST_ROWS} are left out",) if left else (),
    )


@register("bike", tags=("tables", "environments"))
def bike(
    by: BikeGroup = "season",
    test: str | None = None,
    holdout: Chance = 0.2,
    seed: Seed = 0,
    validate: str | None = None,
) -> Dataset:
    """Bike sharing: how many bikes are rented in an hour? Seasons, years or weathers are domains (needs its file).

    The number to predict is the logarithm of one more than the rentals, standardised by the training rows. Hour and
    day of the week are one-hot; what gives the domain away (the month, for seasons) is no feature.
    """
    if by not in BIKE_GROUPS:
        raise ShiftproofError(f"option 'by' of bike is one of {', '.join(BIKE_GROUPS)}, not '{by}'")
    table = _table("tabular/bike_sharing_hour.csv.gz", "the table of rented bikes")
    source, meanings = BIKE_GROUPS[by]
    _require_columns(table, ("cnt", "hr", "weekday", "temp", source), "bike")
    names = tuple(dict.fromkeys(meanings.values()))
    chosen = test if test is not None else BIKE_TEST[by]
    kept = ["hr", "weekday", "holiday", "workingday", "temp", "atemp", "hum", "windspeed"]
    kept += [] if by == "weather" else ["weathersit"]
    features = table[kept].astype({"hr": str, "weekday": str})
    given = {"by": by, "test": chosen, "holdout": holdout, "seed": seed, "validate": validate}
    return domain_dataset(
        standardised(_columns(features)),
        standardised(np.log1p(table["cnt"].to_numpy(np.float64))),
        table[source].map(meanings).map(names.index).to_numpy(),
        names,
        LeftOut(chosen, validate, holdout, seed),
        name="bike",
        task="regression",
        metric="mse",
        num_classes=1,
        provenance="Bike sharing (UCI), Washington 2011 and 2012, by the hour",
        options=named_options(bike, given, always=("by", "test", "seed")),
        column=by,
    )


def _table(file: str, what: str) -> Any:
    import pandas as pd

    return pd.read_csv(find(file, what=what))


def _require_columns(table: Any, wanted: tuple[str, ...], name: str) -> None:
    for column in wanted:
        if column not in table.columns:
            raise ShiftproofError(f"the file of '{name}' has no column '{column}', only {', '.join(table.columns)}")


def _columns(table: Any) -> np.ndarray:
    """Numbers as they are, texts one column a value."""
    import pandas as pd

    return pd.get_dummies(table, dtype=float).to_numpy(np.float64)
