"""One way in: a name, a path or anything in memory becomes a checked `Dataset`, or a `NodeGraph`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from shiftproof.data.dataset import Dataset
from shiftproof.data.node_shift import node_data
from shiftproof.data.nodes import NodeGraph
from shiftproof.data.readers.in_memory import from_memory
from shiftproof.data.readers.node_sources import is_good, is_node_source, read_good, read_nodes
from shiftproof.data.readers.whole_numbers import encode_categories
from shiftproof.errors import ShiftproofError, kind_of, require_text, unknown
from shiftproof.registry import datasets, fitting_options, options_of, parse_name

SPLITTING = tuple(options_of(node_data))  # how the nodes of a graph are split
_PICKLES = (".pt", ".pth", ".pkl", ".pickle")
_DATA_FILES = (
    ".csv",
    ".tsv",
    ".xlsx",
    ".sdf",
    ".npz",
    ".npy",
    ".json",
    ".txt",
    ".zip",
    ".gz",
    ".xz",
    ".parquet",
    ".safetensors",
)


def load(
    source: Any,
    /,
    *,
    group: str | None = None,
    vectors: str | None = None,
    integers: Literal["encode", "keep"] = "encode",
    **options: Any,
) -> Any:
    """The data set that `source` stands for, looked through for values that cannot be right.

    It is a `Dataset`, or a `NodeGraph` for the names and files that hold one graph whose nodes are classified
    (`load_samples` and `load_nodes` promise the one and the other). A node graph becomes a `Dataset` whose samples are
    nodes where it is said how they are split: `"cora:by=degree"` (see `shiftproof.data.node_shift.node_data`); PyG's
    `Data` with a label for each node, a NetworkX graph of labelled nodes, OGB's `(graph, labels)` and two tables
    `("nodes.csv", "edges.csv")` are node graphs too.

    `source` is a registered name (`"spmotif-struc"`, options as keywords or in the text: `"spmotif-struc:bias=0.9"`),
    a file (CSV, TSV, Parquet, Excel, SDF, npz, safetensors), a folder (written by `save_dataset`, of TU files, of
    images in `domain/class`), or what is in memory:

    - a frame (pandas, polars, pyarrow, Hugging Face): `smiles="smiles", label="active", split="scaffold"`;
    - a list of SMILES or of RDKit molecules, an array or a tensor, with `y=` and perhaps `env=`, an entry a sample;
    - PyG graphs (a list or a data set) or NetworkX graphs, split at random (`split=(0.8, 0.1, 0.1), seed=0`), by "size"
      or by "environment"; one PyG graph whose nodes are classified;
    - a torch data set of `(x, y)` or `(x, y, env)`, a data set of OGB or WILDS with its published splits;
    - a dict of splits (`{"train": ..., "val": ..., "test": ...}`) of any of these, or a `Dataset`.

    `group` names the column that is taken as the environment in every split (`"spmotif-struc:group=base"` in text).
    `vectors` adds fingerprints and descriptors of whole molecules beside the graphs ("ecfp+descriptors", see
    `shiftproof.data.readers.molecule_vectors`; in text as well). Features of graphs that are whole numbers are
    categories and are one-hot encoded; `integers="keep"` leaves them to a network of your own.
    """
    for name, text in (("group", group), ("vectors", vectors)):
        if text is not None:
            require_text(text, f"'{name}'")
    if not isinstance(integers, str) or integers not in ("encode", "keep"):
        raise ShiftproofError(f"'integers' is encode or keep, not {kind_of(integers)}")
    if isinstance(source, (str, Path)):
        data = _from_text(str(source), options)
    elif isinstance(source, NodeGraph):
        data = _split_nodes(source, options)
    elif isinstance(source, Dataset):
        _no_options(options, "a Dataset")
        data = source
    elif is_good(source):
        data = _call(read_good, source, options, owner="a graph of GOOD")
    elif is_node_source(source):
        of_graph = {key: value for key, value in options.items() if key not in SPLITTING}
        shifted = {key: value for key, value in options.items() if key in SPLITTING}
        data = _split_nodes(_call(read_nodes, source, of_graph, owner="a graph of nodes"), shifted)
    else:
        data = from_memory(source, options)
    if group is not None:
        data = _grouped(data, group)
    if integers == "encode" and isinstance(data, Dataset):
        data = encode_categories(data)
    return _with_vectors(data, vectors).check()


def load_samples(source: Any, /, *, group: str | None = None, **options: Any) -> Dataset:
    """What `load` gives as a data set of samples; those of a node graph are its nodes, split as it says itself."""
    data = load(source, group=group, **options)
    return node_data(data).check() if isinstance(data, NodeGraph) else data


def load_nodes(source: Any, /, **options: Any) -> NodeGraph:
    """What `load` gives where it is one graph whose nodes are classified; PyG's `Data` is taken too."""
    if hasattr(source, "edge_index") and hasattr(source, "to_dict"):
        return _call(NodeGraph.from_pyg, source, options, owner="a PyG graph")
    data = load(source, **options)
    if not isinstance(data, NodeGraph):
        raise ShiftproofError(f"'{data.name}' is a set of graphs or samples, not one graph whose nodes are classified")
    return data


def _splits_nodes(entry: Any, key: str, options: Mapping[str, Any]) -> bool:
    """Whether an option of a registered node graph says how its nodes are split, and is not the graph's own."""
    return "nodes" in entry.tags and key not in entry.options


def _split_nodes(graph: Any, options: Mapping[str, Any]) -> Any:
    """The nodes of a graph as samples where it is said how they are split, else the graph itself."""
    if not options:
        return graph
    accepted = options_of(node_data)
    return node_data(graph, **fitting_options(options, accepted, f"the nodes of '{graph.name}'"))


def _with_vectors(data: Any, vectors: Any) -> Any:
    if vectors is None:
        return data
    from shiftproof.data.readers.molecule_vectors import with_vectors

    if isinstance(data, NodeGraph):
        raise ShiftproofError(f"the nodes of '{data.name}' are no molecules: leave 'vectors' out")
    return with_vectors(data, str(vectors))


def _grouped(data: Dataset | NodeGraph, group: str) -> Dataset:
    if isinstance(data, NodeGraph):
        raise ShiftproofError(f"the nodes of '{data.name}' have no environments: leave 'group' out")
    return data.group_by(group)


def named_options(
    make: Callable[..., Any], given: Mapping[str, Any], *, always: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The options worth naming in a data set's `spec`: those unlike the default of `make`, and the ones of `always`."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}
    return {name: value for name, value in given.items() if name in always or value != defaults[name]}


def _from_text(text: str, options: Mapping[str, Any]) -> Dataset | NodeGraph:
    name = text.partition(":")[0]
    if name in datasets and not name.startswith("."):
        entry = datasets[name]
        chosen = {**parse_name(text)[1], **options}
        group, vectors = chosen.pop("group", None), chosen.pop("vectors", None)
        nodes = {key: chosen.pop(key) for key in SPLITTING if key in chosen and _splits_nodes(entry, key, chosen)}
        data = entry.make(**fitting_options(chosen, entry.options, f"data set '{name}'"))
        data = _split_nodes(data, nodes) if nodes else data
        return _with_vectors(data if group is None else _grouped(data, group), vectors)
    path = Path(text).expanduser()
    if not path.exists() and name != text and Path(name).expanduser().exists():
        options = {**parse_name(text)[1], **options}
        path = Path(name).expanduser()
    if path.exists():
        vectors = options.get("vectors")
        return _with_vectors(_from_path(path, {k: v for k, v in options.items() if k != "vectors"}), vectors)
    ending = _ending(Path(name))
    if "/" in name or "\\" in name or ending in (*_PICKLES, *_DATA_FILES) or ending in datasets:
        raise ShiftproofError(f"there is no file or folder '{path}', and no data set of that name")
    raise unknown(datasets.kind, name, (entry.name for entry in datasets if not entry.name.startswith(".")))


def _from_path(path: Path, options: Mapping[str, Any]) -> Dataset | NodeGraph:
    if path.is_dir():
        return _from_folder(path, options)
    ending = _ending(path)
    if ending in _PICKLES:
        raise ShiftproofError(
            f"{path} is a pickle, which can run any program when it is opened, and is not read; "
            f"load it yourself and pass the list of graphs"
        )
    # a reader of files is registered under the ending it reads, a leading dot before it
    if ending in datasets:
        entry = datasets[ending]
        return entry.make(path, **fitting_options(options, entry.options, f"{ending} files"))
    kinds = [entry.name for entry in datasets if entry.name.startswith(".")]
    listed = f" and files ending in {', '.join(kinds)}" if kinds else ""
    raise ShiftproofError(f"{path} is not of a kind that is read: folders written by save_dataset{listed}")


def _from_folder(path: Path, options: Mapping[str, Any]) -> Dataset:
    """A folder written by `save_dataset`, the text files of a TU data set, or images in `domain/class`."""
    from shiftproof.data.readers.image_folders import holds_images, image_folder
    from shiftproof.data.readers.storage import INDEX_FILE, load_dataset
    from shiftproof.data.readers.tu import holds_tu, tu_folder

    if not (path / INDEX_FILE).exists():
        if holds_tu(path):
            return _call(tu_folder, path, options, owner=f"the TU files in {path}")
        if holds_images(path):
            return _call(image_folder, path, options, owner=f"the images in {path}")
        raise ShiftproofError(
            f"{path} holds no data set: there is no {INDEX_FILE} in it, no TU file ending in _A.txt, and no image in "
            f"folders domain/class"
        )
    return _call(load_dataset, path, options, owner=f"the folder {path}")


def _ending(path: Path) -> str:
    """`.csv` for `assays.csv` and for `assays.csv.gz`."""
    endings = [ending.lower() for ending in path.suffixes]
    if len(endings) > 1 and endings[-1] in (".gz", ".xz"):
        return endings[-2]
    return endings[-1] if endings else ""


def _call(make: Callable[..., Any], source: Any, options: Mapping[str, Any], owner: str) -> Any:
    return make(source, **fitting_options(options, options_of(make), owner))


def _no_options(options: Mapping[str, Any], owner: str) -> None:
    if options:
        raise ShiftproofError(f"{owner} takes no option '{next(iter(options))}', only 'group'")
