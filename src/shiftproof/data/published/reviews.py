"""Product reviews of four departments, as bags of words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.left_out import LeftOut, domain_dataset
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import Chance, Count, Seed
from shiftproof.registry import register

DEPARTMENTS = ("books", "dvd", "electronics", "kitchen")
Department = Literal["books", "dvd", "electronics", "kitchen"]
Weighting = Literal["tfidf", "binary", "counts"]


@register("amazon-reviews", tags=("text", "environments"))
def amazon_reviews(
    test: Department = "kitchen",
    words: Count = 2000,
    weighting: Weighting = "tfidf",
    pairs: bool = False,
    holdout: Chance = 0.2,
    seed: Seed = 0,
    validate: Department | None = None,
) -> Dataset:
    """Amazon reviews: is it a good one? 2,000 of each of four departments, as bags of words (needs its file).

    The `words` commonest words (and, with `pairs`, pairs of words) of the training reviews are the features, by the
    `weighting` "tfidf", "binary" or "counts". The share `holdout` of each training department is the split `val`,
    unless the whole department `validate` is.
    """
    import pandas as pd

    given = dict(locals())
    given.pop("pd")
    path = find("amazon_reviews/amazon_reviews_4dom.csv.xz", what="the reviews amazon_reviews_4dom.csv.xz")
    table = pd.read_csv(path)
    missing = {"domain", "label", "text"} - set(table.columns)
    if missing:
        raise ShiftproofError(f"{path} has no column '{min(missing)}'; it does not hold the reviews")
    strange = sorted(set(table["domain"]) - set(DEPARTMENTS))
    if strange:
        raise ShiftproofError(f"{path} has a department '{strange[0]}'; {', '.join(DEPARTMENTS)} are known")
    texts = table["text"].astype(str).tolist()
    return domain_dataset(
        lambda train: bag_of_words(texts, train, words, weighting, pairs=pairs),
        torch.from_numpy(table["label"].to_numpy().astype(np.float32)),
        table["domain"].map(DEPARTMENTS.index).to_numpy(),
        DEPARTMENTS,
        LeftOut(test, validate, holdout, seed),
        name="amazon-reviews",
        task="binary",
        provenance="multi-domain sentiment (Blitzer et al. 2007)",
        options=named_options(amazon_reviews, given, always=("test", "seed")),
        column="department",
        value_names={"label": ("bad", "good")},
    )


def bag_of_words(
    texts: Sequence[str],
    train: np.ndarray,
    words: int = 2000,
    weighting: Weighting = "tfidf",
    *,
    pairs: bool = False,
) -> Tensor:
    """How often each of the commonest words (with `pairs`: and pairs of words) of the training texts is in every text.

    "tfidf" divides by how many training texts have it and scales every text to length 1, "binary" says whether it
    occurs, "counts" how often. Nothing is learned from other texts than those of `train`.
    """
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    if words < 1:
        raise ShiftproofError(f"option 'words' is a number from 1, not {words}")
    shared: dict[str, Any] = {
        "max_features": words,
        "ngram_range": (1, 1 + pairs),
        "min_df": 2 if len(train) > 50 else 1,
    }
    if weighting == "tfidf":
        counter = TfidfVectorizer(sublinear_tf=True, **shared)
    elif weighting in ("binary", "counts"):
        counter = CountVectorizer(binary=weighting == "binary", **shared)
    else:
        raise ShiftproofError(f"option 'weighting' is tfidf, binary or counts, not '{weighting}'")
    counter.fit([texts[row] for row in train])
    return torch.from_numpy(counter.transform(texts).toarray().astype(np.float32))
