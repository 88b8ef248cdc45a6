"""`diagnose` is right where the truth is known: each shift by two strengths, none at all, and the shortcuts."""

import pytest

import shiftproof as sp
from shiftproof.diagnosis import Diagnosis
from tests.diagnosis.worlds import graphs, tensors

# what is put into the test split, and the shift that must be named; the weaker strength first
GRAPH_CASES = {
    "label": ({"class_one": 0.75}, {"class_one": 0.95}),
    "size": ({"sizes": (14, 34)}, {"sizes": (40, 80)}),
    "degree": ({"edges_a_node": 2.0}, {"edges_a_node": 3.0}),
    "attribute": ({"attribute": 0.6}, {"attribute": 2.0}),
    "edge attribute": ({"edge_attribute": 0.6}, {"edge_attribute": 2.0}),
    "relation": ({"agrees": 0.55}, {"agrees": 0.1}),
}
TENSOR_CASES = {
    "label": ({"class_one": 0.75}, {"class_one": 0.95}),
    "covariate": ({"moved": 0.6}, {"wider": 3.0}),
    "relation": ({"agrees": 0.75}, {"agrees": 0.1}),
}


def ask(data) -> Diagnosis:
    return sp.diagnose(data, assistant=False)


def alarms(found: Diagnosis, where: str) -> dict[str, float]:
    return {f.kind: f.effect for f in found.alarms if f.between[-1] == where}


@pytest.mark.parametrize("kind", GRAPH_CASES)
def test_a_shift_of_graphs_is_named_and_a_stronger_one_is_stronger(kind: str) -> None:
    everywhere = {"agrees": 0.9} if kind == "relation" else {}
    weak, strong = (
        alarms(ask(graphs(3, count=400, everywhere=everywhere, **put)), "test") for put in GRAPH_CASES[kind]
    )
    assert weak[kind] < strong[kind]
    # more nodes and more edges change the density, whatever else they do
    allowed = {kind, "density"} if kind in ("size", "degree") else {kind}
    assert weak.keys() <= allowed
    assert strong.keys() <= allowed


@pytest.mark.parametrize("kind", TENSOR_CASES)
def test_a_shift_of_tensors_is_named_and_a_stronger_one_is_stronger(kind: str) -> None:
    everywhere = {"agrees": 0.95} if kind == "relation" else {}
    weak, strong = (alarms(ask(tensors(4, everywhere=everywhere, **put)), "test") for put in TENSOR_CASES[kind])
    assert weak[kind] < strong[kind]
    # the features follow the class, so other classes are other features too; that is not another relation
    allowed = {"label", "covariate"} if kind == "label" else {kind}
    assert weak.keys() <= allowed
    assert strong.keys() <= allowed


@pytest.mark.parametrize("make", [graphs, tensors])
def test_labels_that_differ_between_environments_only_are_told_apart_from_a_shift_of_the_split(make) -> None:
    data = make(1, count=600, everywhere={"environments": 3, "class_one_in": (0.2, 0.5, 0.8)})
    found = ask(data)
    assert "label" in alarms(found, "training environments")
    assert not {"size", "degree", "relation"} & alarms(found, "training environments").keys()
    assert not alarms(found, "test")


def test_a_relation_that_differs_between_environments_is_seen() -> None:
    found = ask(tensors(2, count=1500, everywhere={"environments": 3, "agrees_in": (0.95, 0.95, 0.2)}))
    assert alarms(found, "training environments").keys() == {"relation"}
    assert not alarms(found, "test")


def two_piece(inv: float, spu: float, **options) -> str:
    sizes = {"train_per_class": 600, "val_per_class": 200, "test_per_class": 200, **options}
    return f"two-piece:inv={inv},spu={spu}," + ",".join(f"{k}={v}" for k, v in sizes.items())


@pytest.mark.parametrize("spu", [0.9, 0.95])
def test_the_shortcut_dominates_where_it_is_stronger_than_the_motif(spu: float) -> None:
    found = ask(two_piece(0.7, spu))
    assert found.shortcuts is not None
    assert found.advice is not None
    assert found.shortcuts.dominates == "shortcut"
    assert (found.shortcuts.cause.name, found.shortcuts.strongest.name) == ("motif", "base")
    assert found.shortcuts.strongest.strength["train"] == pytest.approx(spu, abs=0.03)
    # docs/papers/gala.md#t6: the best fit of training follows the base, the motif alone keeps its 0.8
    assert found.shortcuts.learned["test"] == pytest.approx(1 / 3, abs=0.06)
    assert found.shortcuts.invariant["test"] == pytest.approx(0.8, abs=0.05)
    assert "gala" in found.advice.can
    assert {"erm", "ciga-v1", "ciga-v2", "irm"} <= set(found.advice.cannot)
    words = found.summary()
    assert "The shortcut dominates" in words
    assert "Cannot: erm" in words
    assert "relation" in alarms(found, "test")
    assert not {"label", "size"} & alarms(found, "test").keys()


@pytest.mark.parametrize("spu", [0.6, 0.7])
def test_the_cause_dominates_where_the_motif_is_stronger(spu: float) -> None:
    found = ask(two_piece(0.8, spu))
    assert found.shortcuts is not None
    assert found.advice is not None
    assert found.shortcuts.dominates == "cause"
    assert found.shortcuts.gap[0] > 0
    assert {"ciga-v1", "ciga-v2", "gala"} <= set(found.advice.can)
    assert found.advice.cannot == ("disc",)
    assert "The cause dominates" in found.summary()
    assert found.shortcuts.learned["test"] == pytest.approx(0.867, abs=0.05)


def test_on_reversed_graphs_the_base_is_the_cause() -> None:
    found = ask(two_piece(0.8, 0.95, reversed=True)).shortcuts
    assert found is not None
    assert (found.cause.name, found.strongest.name, found.dominates) == ("base", "motif", "shortcut")


def test_where_both_follow_the_label_equally_closely_neither_dominates_and_nothing_can_be_relied_on() -> None:
    # the motif matches in 1 - 2 (1 - a) / 3 of the graphs, here in 0.8
    found = ask(two_piece(0.7, 0.8))
    assert found.shortcuts is not None
    assert found.advice is not None
    assert found.shortcuts.dominates == "neither"
    assert found.advice.can == ()
    assert "No method can be relied on" in found.summary()


def test_strengths_of_spmotif_are_those_it_was_made_with() -> None:
    sizes = "train_per_class=600,val_per_class=200,test_per_class=200"
    found = ask(f"spmotif-mixed:bias=0.9,{sizes}")
    assert found.shortcuts is not None
    assert found.shortcuts.dominates == "cause"
    assert {p.name for p in found.shortcuts.pieces if p.role == "shortcut"} == {"base", "node feature"}
    for piece in found.shortcuts.pieces:
        expected = (1.0, 1.0) if piece.role == "cause" else (0.9, 1 / 3)
        assert (piece.strength["train"], piece.strength["test"]) == pytest.approx(expected, abs=0.06)
    there = alarms(found, "test")
    assert there["size"] > 0.5
    assert there["relation"] > 0.5
    assert "attribute" not in there  # the features follow another law given the class, not by themselves
    unbiased = ask(f"spmotif-struc:bias=0.33,size_shift=false,uniform_trees=true,{sizes}")
    assert not unbiased.alarms


def test_environments_that_differ_in_the_shortcut_help_and_equal_ones_do_not() -> None:
    differ, same = (ask(f"two-bit:alpha=0.25,betas=({b},0.1),per_env=2000") for b in (0.3, 0.1))
    assert differ.shortcuts is not None
    assert same.shortcuts is not None
    assert differ.shortcuts.strongest.varies is True
    assert same.shortcuts.strongest.varies is False
    assert differ.advice is not None
    assert same.advice is not None
    assert "irm" in differ.advice.can
    assert "irm" in same.advice.cannot
    assert "variation sufficiency holds" in differ.summary()
    assert "It is not shown that the shortcut changes" in same.summary()


def test_coloured_digits_are_dominated_by_the_colour() -> None:
    found = ask("colored-digits")
    assert found.shortcuts is not None
    assert (found.shortcuts.cause.name, found.shortcuts.strongest.name) == ("shape", "colour")
    assert found.shortcuts.dominates == "shortcut"
    assert "erm" in (found.advice.cannot if found.advice else ())
    assert "covariate" not in alarms(found, "test")
    assert "relation" in alarms(found, "test")


def test_real_graphs_split_by_size_have_a_size_shift_and_split_at_random_none(real_data) -> None:
    by_size, at_random = (ask(f"tu:name=PROTEINS,split={split}") for split in ("size", "random"))
    assert alarms(by_size, "test")["size"] > 0.9
    assert not at_random.alarms
    assert by_size.shortcuts is None
    assert "not recorded here" in by_size.summary()


def test_scaffolds_that_training_has_not_seen_are_told_from_a_random_split() -> None:
    import numpy as np
    import torch

    rng = np.random.default_rng(0)

    def with_scaffolds(test_ids):
        data = graphs(0, count=400)
        data.train.columns["scaffold"] = torch.from_numpy(rng.integers(0, 80, size=400))
        data.test.columns["scaffold"] = torch.from_numpy(test_ids)
        return ask(data)

    new = with_scaffolds(rng.integers(80, 160, size=400))
    half = with_scaffolds(rng.integers(40, 120, size=400))
    same = with_scaffolds(rng.integers(0, 80, size=400))
    assert alarms(new, "test")["scaffold overlap"] > alarms(half, "test")["scaffold overlap"] > 0.2
    assert not same.alarms
