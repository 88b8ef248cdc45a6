"""Settings of the published experiments, one entry a data set, each number with its source; one file a paper.

A preset gives the network, the training settings and what single methods change on a data set. Whatever a user sets
stands above it; data sets without an entry get `MOLECULES`, `GRAPHS` or `TENSORS`. Where two papers train on the same
data differently, `PRESETS` holds the older one's settings (and those of the methods that only the other has), and
`fit(..., protocol="gala")` asks for the other's. On two-piece graphs and CMNIST-75sp it asks for GALA as released.
"""

from __future__ import annotations

from dataclasses import replace

from shiftproof.data.dataset import Dataset
from shiftproof.errors import ShiftproofError, unknown
from shiftproof.presets.attribution import ATTRIBUTION
from shiftproof.presets.ciga import CIGA, spmotif
from shiftproof.presets.domainbed import DOMAINBED
from shiftproof.presets.feat import FEAT, with_wilds
from shiftproof.presets.feat import OWN_METHODS as OWN_OF_FEAT
from shiftproof.presets.gala import CHOSEN, GALA, OWN_METHODS, two_piece
from shiftproof.presets.gmt import GMT, GMT_PNA, spmotif_gsat
from shiftproof.presets.gmt import OWN_METHODS as OWN_OF_GMT
from shiftproof.presets.gmt_geometric import GEOMETRIC
from shiftproof.presets.molecules import MOLECULES, holds_molecules
from shiftproof.presets.pair import PAIR
from shiftproof.presets.preset import Preset

__all__ = ["GRAPHS", "MOLECULES", "NODES", "PRESETS", "PROTOCOLS", "TENSORS", "Preset", "preset_for"]

PROTOCOLS: dict[str, dict[str, Preset]] = {
    "ciga": CIGA,
    "gala": GALA,
    "gmt": GMT,
    "gmt-pna": GMT_PNA,
    "pair": PAIR,
    "domainbed": DOMAINBED,
    "feat": FEAT,
}


def _with_methods_of(older: Preset, newer: Preset, methods: tuple[str, ...]) -> Preset:
    """The older paper's settings, and for the named methods all of the newer one's."""
    return replace(older, methods={**older.methods, **{name: newer.settings(name) for name in methods}})


PRESETS: dict[str, Preset] = {**DOMAINBED, **ATTRIBUTION, **GEOMETRIC, **FEAT, **GMT, **GALA, **CIGA, **PAIR}
PRESETS |= {name: _with_methods_of(PAIR[name], FEAT[name], OWN_OF_FEAT) for name in PAIR.keys() & FEAT.keys()}
PRESETS |= {name: _with_methods_of(GALA[name], GMT[name], OWN_OF_GMT) for name in GALA.keys() & GMT.keys()}
PRESETS |= {name: _with_methods_of(CIGA[name], CHOSEN[name], OWN_METHODS) for name in CIGA.keys() & CHOSEN.keys()}

GRAPHS = Preset("the library's default for graphs", {"conv": "gin"}, {"epochs": 100, "patience": 10, "warmup": 20})
TENSORS = Preset(
    "the library's default for tensors", {}, {"epochs": 100, "batch_size": 128, "patience": 10, "warmup": 20}
)
# two layers, dropout and weight decay are those of Kipf and Welling (arXiv:1609.02907, section 5.2), wider and without
# their rows of features; early stopping by the validation split in place of theirs by its loss
NODES = Preset(
    "the library's default for nodes",
    {"conv": "gcn", "layers": 2, "hidden": 64, "dropout": 0.5},
    {"epochs": 200, "batch_size": None, "lr": 1e-2, "weight_decay": 5e-4, "patience": 50, "warmup": 20},
    {"gsat": {"decay_interval": 10}},
)


def preset_for(dataset: Dataset, protocol: str | None = None) -> Preset:
    """The settings of a data set, or the library's default for its kind; `protocol` names the paper they are from."""
    if protocol is not None and protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    known = PRESETS if protocol is None else PROTOCOLS[protocol]
    if dataset.name in ("spmotif-struc", "spmotif-mixed"):
        return spmotif(dataset.name, _share(dataset, "bias", 0.9))
    if dataset.name == "two-piece":
        a, b = (_share(dataset, key, usual) for key, usual in (("a", 0.8), ("b", 0.9)))
        return two_piece(a, b, released=protocol == "gala")
    if dataset.name == "spmotif-gsat" and protocol in (None, "gmt", "gmt-pna"):
        return spmotif_gsat(_share(dataset, "b", 0.5), "pna" if protocol == "gmt-pna" else "gin")
    if dataset.name == "wilds" and protocol in (None, "feat"):
        return with_wilds(TENSORS, str(dataset.options.get("name")))
    if protocol is not None and dataset.name not in known:
        raise unknown("data set", dataset.name, known, f"the protocol '{protocol}'")
    if dataset.name in known:
        return known[dataset.name]
    if holds_molecules(dataset):
        return MOLECULES
    return {"graphs": GRAPHS, "tensors": TENSORS, "nodes": NODES}[dataset.kind]


def _share(dataset: Dataset, option: str, usual: float) -> float:
    """An option that settings depend on; of a stored data set it is whatever its page says."""
    value = dataset.options.get(option, usual)
    if isinstance(value, str) and value.replace(".", "", 1).isdigit():  # of a name that was parsed and not yet loaded
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ShiftproofError(f"'{dataset.name}' has no settings for {option}={value!r}, which is a number from 0 to 1")
    return float(value)
