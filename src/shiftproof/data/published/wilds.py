"""Data sets of the WILDS package, read through it and held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shiftproof.data.dataset import Dataset, Task
from shiftproof.data.domains import DomainSet
from shiftproof.data.published.reviews import bag_of_words
from shiftproof.data.readers.loading import named_options
from shiftproof.data.readers.sources import find
from shiftproof.data.seeds import stream
from shiftproof.errors import ShiftproofError, optional
from shiftproof.ranges import AtLeast, Count, Seed
from shiftproof.registry import register

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
Name = Literal["amazon", "camelyon17", "civilcomments", "fmow", "iwildcam", "poverty", "rxrx1"]


@dataclass(frozen=True)
class _Known:
    """Which metadata columns group the training samples, which ones the measure is over, and the measure."""

    trained_by: tuple[str, ...]
    metric: str
    judged_by: tuple[str, ...]
    task: Task = "multiclass"


# docs/papers/pair.md#wilds-domains: training domains and official measures
KNOWN: dict[str, _Known] = {
    "amazon": _Known(("user",), "percentile10", ("user",)),  # docs/papers/feat.md#wilds-measures
    "camelyon17": _Known(("hospital",), "accuracy", ("hospital",)),
    "civilcomments": _Known((*IDENTITIES, "y"), "worst_group", (*IDENTITIES, "y")),
    "fmow": _Known(("region", "year"), "worst_group", ("region",)),
    "iwildcam": _Known(("location",), "macro_f1", ("location",)),
    "poverty": _Known(("country",), "worst_group", ("urban",), task="regression"),
    "rxrx1": _Known(("experiment",), "accuracy", ("experiment",)),
}


@register("wilds", tags=("images", "environments"))
def wilds(
    name: Name = "camelyon17",
    size: Annotated[int, AtLeast(4)] = 96,
    most: Count | None = 20_000,
    words: Count = 2000,
    seed: Seed = 0,
) -> Dataset:
    """A data set of WILDS with its official splits (needs the package `wilds` and the data set's own folder).

    The folder `wilds` is looked for where all data are. Images become `size` by `size` pixels, texts bags of `words`
    words; `most` bounds the samples of each split (None: all of them; they have to fit into memory). Environments are
    the training domains of docs/papers/pair.md#wilds-domains; those of `val` and `test` are the groups the official
    measure is over. A comment of CivilComments is repeated for every identity it mentions.
    """
    given = dict(locals())
    if name not in KNOWN:
        raise ShiftproofError(f"option 'name' of wilds is one of {', '.join(KNOWN)}, not '{name}'")
    package = optional("wilds", "wilds", f"reading the WILDS data set '{name}'")
    folder = find("wilds", what=f"the folder of the WILDS data set '{name}'")
    source = package.get_dataset(dataset=name, root_dir=str(folder), download=False)
    return from_wilds(source, name, size=size, most=most, words=words, seed=seed, options=_options(given))


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return named_options(wilds, given, always=("name", "seed"))


def from_wilds(
    source: Any,
    name: str,
    *,
    size: int = 96,
    most: int | None = None,
    words: int = 2000,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Dataset:
    """What a `WILDSDataset` holds, as a data set with the splits train, val, test (and id_val, id_test)."""
    known = KNOWN[name]
    fields = [str(field) for field in source.metadata_fields]
    missing = [field for field in known.trained_by if field not in fields]
    if missing:
        raise ShiftproofError(f"the WILDS data set '{name}' has no metadata '{missing[0]}', only {', '.join(fields)}")
    parts = {part: source.get_subset(part) for part in source.split_dict}
    if "train" not in parts:
        raise ShiftproofError(f"the WILDS data set '{name}' has no split 'train', only {', '.join(parts)}")
    rows = {part: _some(len(subset), most, seed) for part, subset in parts.items()}
    inputs = _inputs({part: [parts[part][int(row)][0] for row in rows[part]] for part in parts}, size, words)
    splits, names, column = {}, {}, "+".join(known.trained_by if name != "civilcomments" else ("identity", "y"))
    regression = known.task == "regression"
    for part, subset in parts.items():
        y = torch.as_tensor(subset.y_array)[rows[part]].reshape(len(rows[part]), -1)[:, 0]
        metadata = torch.as_tensor(subset.metadata_array)[rows[part]]
        by = known.trained_by if part == "train" else known.judged_by
        if name == "civilcomments":
            positions, env, names[part] = _identities(metadata, fields)
        else:
            positions = torch.arange(len(y))
            env, names[part] = _grouped(metadata, [fields.index(field) for field in by], by)
        labels = y.float() if regression else y.long()
        splits[part] = DomainSet(inputs[part][positions], labels[positions], env, columns={column: env})
    classes = 1 if regression else max(int(split.y.max()) for split in splits.values()) + 1
    return Dataset(
        splits,
        name="wilds",
        task=known.task,
        metric=known.metric,
        num_classes=max(classes, 1 if regression else 2),
        provenance=f"{name} of WILDS, at most {most or 'all'} samples a split",
        options=options or {"name": name},
        environment=column,
        value_names={f"{part}.{column}": known_as for part, known_as in names.items()},
    )


def _some(count: int, most: int | None, seed: int) -> np.ndarray:
    return np.arange(count) if most is None or count <= most else np.sort(stream(seed).permutation(count)[:most])


def _inputs(samples: dict[str, Sequence[Any]], size: int, words: int) -> dict[str, Tensor]:
    """Texts as bags of words, images as [3, size, size], tensors as they are."""
    first = next(iter(samples["train"]), None)
    if isinstance(first, str):
        texts = [text for part in samples.values() for text in part]
        counts = [len(part) for part in samples.values()]
        start = sum(counts[: list(samples).index("train")])
        found = bag_of_words(texts, np.arange(start, start + len(samples["train"])), words)
        return dict(zip(samples, found.split(counts), strict=True))
    as_tensor: Callable[[Any], Tensor] = torch.as_tensor if isinstance(first, Tensor | np.ndarray) else _picture(size)
    return {part: torch.stack([as_tensor(sample).float() for sample in some]) for part, some in samples.items()}


def _picture(size: int) -> Callable[[Any], Tensor]:
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)

    def read(image: Any) -> Tensor:
        pixels = np.asarray(image.convert("RGB").resize((size, size)), np.float32) / 255
        return (torch.from_numpy(pixels).permute(2, 0, 1) - mean) / std

    return read


def _grouped(metadata: Tensor, columns: list[int], by: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    """A number for every combination of the columns that occurs, and its name."""
    found, numbers = metadata[:, columns].long().unique(dim=0, return_inverse=True)
    return numbers, tuple(
        ", ".join(f"{field} {value}" for field, value in zip(by, row, strict=True)) for row in found.tolist()
    )


def _identities(metadata: Tensor, fields: list[str]) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Each comment once for every identity it mentions (or once for none), with the group identity x label."""
    mentioned = metadata[:, [fields.index(identity) for identity in IDENTITIES]] > 0
    memberships = torch.cat([~mentioned.any(1, keepdim=True), mentioned], 1)
    positions, identity = memberships.nonzero(as_tuple=True)
    label = metadata[positions, fields.index("y")].long()
    names = tuple(f"{who}, y {y}" for who in ("none", *IDENTITIES) for y in (0, 1))
    return positions, 2 * identity + label, names
