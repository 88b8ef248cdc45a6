"""Which network a method stands on: a registered name and options of its own, not built yet."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from shiftproof.data.shape import DataShape, Kind
from shiftproof.errors import ShiftproofError, nearest
from shiftproof.nn.dense import head as plain_head
from shiftproof.nn.encoders import GNNEncoder, GraphFeaturizer
from shiftproof.nn.points import PointEncoder
from shiftproof.nn.propagation import PropagationEncoder
from shiftproof.registry import fitting_options, networks, require_choices

USUAL: dict[str, str] = {"graphs": "gin", "tensors": "mlp", "nodes": "gcn"}
WORDS = ("network", "conv", "featurizer")  # by which settings name a network; the last two are older
SAID = {"graphs": "graphs", "tensors": "plain tensors", "nodes": "nodes of a graph"}
Encoder = GNNEncoder | PropagationEncoder | PointEncoder


class Network:
    """A network by name with options of its own: `Network("gat", hidden=64, heads=8)`.

    Without a name it is the usual one of the data: "gin" for graphs, "mlp" for plain tensors. `shiftproof list
    networks` shows all of them; an option that does not belong to the network is an error.
    """

    def __init__(self, name: str | None = None, **options: Any) -> None:
        self.name = name or take_name(options)
        self.options = self._fitted(options)

    def __repr__(self) -> str:
        given = [repr(self.name)] if self.name else []
        return f"Network({', '.join([*given, *(f'{key}={value!r}' for key, value in self.options.items())])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.options.items()))))

    def of(self, kind: Kind) -> Network:
        """The same network by its name, which must work on data of this kind."""
        name = self.name or USUAL[kind]
        require_kind(name, kind)
        return self if self.name else Network(name, **self.options)

    def changed(self, **options: Any) -> Network:
        """The same network with other values of those options that it has; a graph network where it has no name."""
        name = self.name or USUAL["graphs"]
        own = {key: value for key, value in options.items() if key in networks[name].options}
        return Network(name, **{**self.options, **own})

    def option(self, key: str, default: Any = None) -> Any:
        """The value of an option, or `default` where the network has none of that name; graphs where it has no name."""
        accepted = networks[self.name or USUAL["graphs"]].options
        return self.options.get(key, accepted[key].default if key in accepted else default)

    @property
    def hidden(self) -> int:
        """How wide the rows of nodes are."""
        width = self.option("hidden")
        if width is None:
            raise ShiftproofError(f"the network '{self.name}' has no option 'hidden', which this method needs")
        return width

    @property
    def readout(self) -> str:
        return self.option("readout", "mean")

    @property
    def dropout(self) -> float:
        return self.option("dropout", 0.0)

    @property
    def style(self) -> str:
        """Whose conventions methods follow with this network: "ciga" or "gmt"."""
        return self.option("style", "ciga")

    def described(self) -> dict[str, Any]:
        """The name and the value of every option, defaults too; a network without a name as it was given."""
        if self.name is None:
            return dict(self.options)
        usual = {key: parameter.default for key, parameter in networks[self.name].options.items()}
        return {"network": self.name, **usual, **self.options}

    def build(self, shape: DataShape) -> nn.Module:
        """A featurizer: a module that turns a batch into one vector a sample and knows its `out_channels`."""
        spec = self.of(shape.kind)
        return networks[str(spec.name)].make(shape, **spec.options)

    def head(self, shape: DataShape, width: int) -> nn.Module:
        """The classifier on top of the network: its own kind where it has one, else a linear layer.

        The plain MLP's starts with Xavier's weights (docs/papers/pair.md#coloredmnist-network), PNA's of the GMT paper
        narrows in three steps (docs/papers/gmt.md#network).
        """
        spec = self.of(shape.kind)
        own = getattr(networks[str(spec.name)].make, "head", None)
        if own is not None:
            return own(shape, width, **spec.options)
        if spec.name == "pna" and spec.style == "gmt":
            half, quarter = max(width // 2, 1), max(width // 4, 1)
            narrowing = (nn.Linear(width, half), nn.ReLU(), nn.Linear(half, quarter), nn.ReLU())
            return nn.Sequential(*narrowing, nn.Linear(quarter, shape.num_outputs))
        return plain_head(width, shape.num_outputs, init="xavier" if spec.name == "mlp" else "default")

    def encoder(self, in_channels: int, edge_dim: int | None = None, *, hidden: int | None = None) -> Encoder:
        """The graph network without its readout, for node rows of any width."""
        spec = self.of("graphs")
        shape = DataShape("graphs", "multiclass", 2, (in_channels,), edge_dim, 0, 1)
        options = spec.options if hidden is None else {**spec.options, "hidden": hidden}
        built = networks[str(spec.name)].make(shape, **options)
        if not isinstance(built, GraphFeaturizer):
            raise ShiftproofError(
                f"the network '{spec.name}' gives vectors of whole graphs alone, and this method needs the rows of "
                "nodes under edge weights; build it on shiftproof.nn.networks.GraphNetwork"
            )
        return built.encoder

    def _fitted(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if self.name is not None:
            require_known(self.name)
        accepted = options_of_all() if self.name is None else networks[self.name].options
        for key in options:
            if key not in accepted:
                raise does_not_belong(key, self.name)
        owner = f"'{self.name}'" if self.name else "a network"
        fitted = fitting_options(options, accepted, owner)
        require_choices(fitted, accepted, owner)
        return {key: tuple(value) if isinstance(value, list) else value for key, value in fitted.items()}


def as_network(network: Network | nn.Module | str | None) -> Network:
    """A network by whatever names it; the usual one where nothing does."""
    if isinstance(network, nn.Module):
        raise ShiftproofError(
            f"this method builds its networks itself, and {type(network).__name__} is built already; name one of "
            f"{', '.join(entry.name for entry in networks)}, or register a class that builds on GraphNetwork"
        )
    return network if isinstance(network, Network) else Network(network)


def take_name(settings: dict[str, Any]) -> str | None:
    """The network that settings name, taken out of them; two different names are an error."""
    found = {word: settings.pop(word) for word in WORDS if settings.get(word) is not None}
    for word in WORDS:
        settings.pop(word, None)
    if len(set(found.values())) > 1:
        said = " and ".join(f"{word}={name}" for word, name in found.items())
        raise ShiftproofError(f"{said} name different networks; give one, as 'network'")
    return next((str(name) for name in found.values()), None)


def require_known(name: str, kind: Kind | None = None) -> None:
    """A name that is registered; else one sentence with the nearest and, where it is known of what, all that fit."""
    if name not in networks:
        known = [entry.name for entry in networks if kind is None or kind in entry.tags or not entry.tags]
        listed = f"; those of {SAID[kind]} are {', '.join(known)}" if kind else ""
        raise ShiftproofError(f"unknown network '{name}'{nearest(name, known).rstrip('?')}{listed}")


def require_kind(name: str, kind: Kind, of: str = "the data") -> None:
    """A network that works on data of this kind."""
    require_known(name, kind)
    tags = networks[name].tags
    if tags and kind not in tags:
        works = " and ".join(SAID.get(tag, tag) for tag in tags)
        fitting = ", ".join(entry.name for entry in networks if kind in entry.tags or not entry.tags)
        raise ShiftproofError(f"the network '{name}' works on {works}, and {of} holds {SAID[kind]}; {fitting} do")


def options_of_all() -> dict[str, inspect.Parameter]:
    """The options of all networks by name, and the words by which one is named."""
    found = {
        word: inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str | None)
        for word in WORDS
    }
    for entry in networks:
        for key, parameter in entry.options.items():
            found.setdefault(key, parameter)
    return found


def does_not_belong(key: str, name: str | None) -> ShiftproofError:
    """The error for a setting that the chosen network does not have, with those that do."""
    owners = [entry.name for entry in networks if key in entry.options]
    whose = f"the network '{name}'" if name else "any network"
    own: Iterable[str] = networks[name].options if name else options_of_all()
    hint = f"; {', '.join(owners)} take{'s' if len(owners) == 1 else ''} it" if owners else nearest(key, own)
    return ShiftproofError(f"setting '{key}' does not belong to {whose}{hint}")


def network_of_run(kept: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """How a run's file describes its network, whenever it was written: the name as "network", and its own options.

    Runs of before networks had names hold the options of all of them, with "conv" for graphs and "featurizer" for
    tensors; what is not the network's own was not used.
    """
    if not kept or "network" in kept:
        return dict(kept)
    name = str(kept.get("featurizer" if kind == "tensors" else "conv") or USUAL[kind])
    require_known(name, kind)
    own = networks[name].options
    return {"network": name, **{key: value for key, value in kept.items() if key in own}}
