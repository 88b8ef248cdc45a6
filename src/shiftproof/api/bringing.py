"""What `fit` is given, as a data set: a `Dataset`, or anything that `load` takes with the options of `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from shiftproof.data.dataset import Dataset
from shiftproof.data.readers.loading import load_samples
from shiftproof.data.readers.whole_numbers import encode_categories
from shiftproof.errors import ShiftproofError, kind_of, require_text
from shiftproof.methods.base import Method, Network
from shiftproof.ranges import Count, Seed, fitting


def require_method(method: Any) -> None:
    """A method is a name, a subclass of `Method` or an object of one."""
    fits = isinstance(method, str | Method) or (isinstance(method, type) and issubclass(method, Method))
    if not fits:
        raise ShiftproofError(
            f"a method is a name (see `shiftproof list methods`), a subclass of shiftproof.Method or an object of one, "
            f"not {kind_of(method)}"
        )


READING = ("smiles", "label", "y", "env", "split", "by", "task", "integers", "group", "vectors")  # options of load


def brought(method: Any, data: Any, network: Any, settings: Mapping[str, Any]) -> tuple[Dataset, dict[str, Any]]:
    """The data set to train on, and the settings that are left after those that say how it is read.

    A network or a built method of the user's own gets whole numbers as they are: it may embed them itself.
    """
    require_method(method)
    if isinstance(network, str):
        require_text(network, "'network'")
    if network is not None and not isinstance(network, Network | nn.Module | str):
        raise ShiftproofError(
            f"'network' is a name (see `shiftproof list networks`), a Network or a torch module, not {kind_of(network)}"
        )
    # of data that are read already, the vectors of molecules are a setting of methods, which add what is missing
    options = [key for key in READING if key != "vectors" or not isinstance(data, Dataset)]
    reading = {key: value for key, value in settings.items() if key in options}
    others = {key: value for key, value in settings.items() if key not in options}
    own = isinstance(network, nn.Module) or isinstance(method, Method)
    if isinstance(data, Dataset):
        if reading:
            raise ShiftproofError(
                f"'{next(iter(reading))}' says how data are read, and '{data.name}' is read already: give it to load"
            )
        return (data if own else encode_categories(data)).check(), others
    return load_samples(data, **{"integers": "keep" if own else "encode", **reading}).check(), others


def seeds_of(seeds: Any) -> list[int]:
    """The seeds: so many from 0 on, or those that were listed."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        return list(range(fitting(seeds, Count, "'seeds'")))
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Sequence | range) or not len(seeds):
        raise ShiftproofError(f"'seeds' is how many to train, or a list of them, not {kind_of(seeds)}")
    listed = [fitting(seed, Seed, "each of 'seeds'") for seed in seeds]
    if len({*listed}) < len(listed):
        raise ShiftproofError(f"'seeds' are different numbers, at least one, not {listed}")
    return listed
