"""Presets: whose settings a data set gets, and that every one of them is a setting of its method."""

from dataclasses import replace

import pytest

import shiftproof as sp
from shiftproof.api.fitting import Plan, accepted_settings
from shiftproof.errors import ShiftproofError
from shiftproof.presets import PRESETS, PROTOCOLS, Preset, preset_for
from shiftproof.presets.ciga import CIGA, spmotif
from shiftproof.presets.gala import OWN_METHODS
from shiftproof.registry import methods, parse_name

TINY = {"train_per_class": 2, "val_per_class": 2, "test_per_class": 2}


@pytest.fixture(scope="module")
def graphs() -> sp.Dataset:
    return sp.load("two-piece", **TINY)


def named(graphs: sp.Dataset, name: str) -> sp.Dataset:
    return replace(graphs, name=name, options={})


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_entry_names_a_method_and_settings_that_it_takes(name):
    for protocol in ({}, *(presets for presets in PROTOCOLS.values() if name in presets)):
        preset = protocol[name] if protocol else PRESETS[name]
        training = accepted_settings(methods["erm"].make)
        assert preset.network.keys() <= training["network"].keys()
        assert preset.training.keys() <= {**training["training"], **training["weighting"]}.keys()
        for method, settings in preset.methods.items():
            known = {key for group in accepted_settings(methods[method].make).values() for key in group}
            assert settings.keys() <= known, method


@pytest.mark.parametrize(
    ("a", "b", "of_ours", "of_released"),
    [  # weight of the contrast and copies
        (0.8, 0.6, (0.5, "auto"), (0.5, "auto")),
        (0.8, 0.7, (8.0, "off"), (1.0, "auto")),
        (0.8, 0.9, (0.5, 3), (0.5, 3)),
        (0.7, 0.9, (128.0, 4), (128.0, 4)),
    ],
)
def test_two_piece_graphs_take_a_short_assistant_and_the_protocol_the_released_one(graphs, a, b, of_ours, of_released):
    data = replace(named(graphs, "two-piece"), options={"a": a, "b": b})
    ours, released = (preset_for(data, protocol).settings("gala") for protocol in (None, "gala"))
    assert (ours["reference_epochs"], ours["assistant_select"]) == (10, "last")
    assert released["assistant_select"] == "val"
    assert "reference_epochs" not in released
    for settings, wanted in ((ours, of_ours), (released, of_released)):
        assert (settings["alpha"], settings["upsample"], settings["clusters"]) == (*wanted, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # docs/papers/gala.md#settings: assistant, its epoch, clusters, weight of the contrast, copies
        ("drugood-ec50-assay", ("xgnn", "val", 3, 1.0, 2)),
        ("drugood-ec50-scaffold", ("xgnn", "last", 2, 32.0, 1)),
        ("drugood-ec50-size", ("erm", "last", 2, 8.0, "off")),
        ("drugood-ki-assay", ("xgnn", "last", 10, 64.0, "off")),
        ("drugood-ki-scaffold", ("erm", "last", 5, 128.0, 1)),
        ("drugood-ki-size", ("erm", "last", 10, 64.0, "off")),
        ("cmnist-75sp", ("xgnn", "last", 4, 8.0, "auto")),
        ("graph-sst2", ("xgnn", "last", 2, 2.0, "auto")),
        ("sst2-trees", ("xgnn", "last", 2, 2.0, "auto")),
    ],
)
def test_gala_takes_the_released_settings_with_and_without_its_protocol(graphs, name, expected):
    for protocol in (None, "gala") if name != "cmnist-75sp" else ("gala",):
        settings = preset_for(named(graphs, name), protocol).settings("gala")
        keys = ("assistant", "assistant_select", "clusters", "alpha", "upsample")
        assert tuple(settings[key] for key in keys) == expected
        assert (settings["conv"], settings["warmup"], settings["terms_from"]) == ("gin", 20, 0)
        assert settings["layers"] == (4 if "drugood" in name else 3)


@pytest.mark.parametrize(("name", "epochs"), [("two-piece", 10), ("drugood-ec50-assay", 0), ("cmnist-75sp", 0)])
def test_baselines_with_further_terms_learn_the_task_alone_for_as_long_as_gala(graphs, name, epochs):
    for method in ("gala", "grea", "cal", "gil", "disc"):  # docs/papers/gala.md#settings
        assert preset_for(named(graphs, name), "gala").settings(method)["terms_from"] == epochs


def test_a_data_set_of_two_papers_goes_by_the_older_one_unless_told(graphs):
    data = named(graphs, "cmnist-75sp")
    assert preset_for(data).settings("ciga-v1")["conv"] == "gcn"
    assert preset_for(data, "gala").settings("ciga-v1")["conv"] == "gin"
    for method in OWN_METHODS:
        if method != "gala":
            assert preset_for(data).settings(method) == preset_for(data, "gala").settings(method)
    ours, released = (preset_for(data, protocol).settings("gala") for protocol in (None, "gala"))
    chosen = {"assistant": "erm", "proxy": "label", "alpha": 64.0, "upsample": 4}  # by gala-cmnist-search
    assert ours == {**released, **chosen}
    plan = Plan.make("ciga-v1", data, {"protocol": "gala", "alpha": 2.0})
    assert (plan.options["scorer_norm"], plan.options["alpha"], plan.training["batch_size"]) == (True, 2.0, 256)


@pytest.mark.parametrize(
    ("protocol", "name", "sentence"),
    [("gals", "cmnist-75sp", "did you mean 'gala'"), ("gala", "nci1", "data set 'nci1' of the protocol 'gala'")],
)
def test_a_protocol_that_does_not_know_the_data_says_so(graphs, protocol, name, sentence):
    with pytest.raises(ShiftproofError, match=sentence):
        preset_for(named(graphs, name), protocol)


def test_a_method_that_mixes_environments_draws_no_batches_from_each_of_them(monkeypatch):
    preset = Preset("a test", training={"epochs": 3, "domains_per_batch": "all", "steps_per_epoch": 5})
    assert methods["oracle"].make.mixes_environments
    assert preset.settings("oracle") == {"epochs": 3}
    for other in ("erm", "irm", "NotRegistered"):
        assert preset.settings(other) == preset.training
    monkeypatch.setattr(methods["erm"].make, "mixes_environments", True, raising=False)
    assert preset.settings("erm") == {"epochs": 3}


@pytest.mark.parametrize("protocol", ["gmt", "gmt-pna"])
def test_gmt_lin_differs_from_gsat_in_its_penalty_alone(protocol, graphs):
    biased = [replace(named(graphs, "spmotif-gsat"), options={"b": bias}) for bias in (0.5, 0.7, 0.9)]
    for data in [*biased, *(named(graphs, name) for name in PROTOCOLS[protocol])]:
        settings = preset_for(data, protocol).methods
        assert {**settings["gmt-lin"], "penalty": settings["gsat"]["penalty"]} == settings["gsat"]


# the released scripts' alpha of CIGAv1, alpha and beta of CIGAv2 (docs/papers/ciga.md#settings)
CIGA_WEIGHTS = {
    "spmotif-struc:bias=0.33": (8, 8, 1),
    "spmotif-struc:bias=0.6": (0.5, 4, 2),
    "spmotif-struc:bias=0.9": (4, 4, 2),
    "spmotif-mixed:bias=0.33": (16, 32, 1),
    "spmotif-mixed:bias=0.6": (8, 8, 1),
    "spmotif-mixed:bias=0.9": (1, 4, 2),
    "nci1": (0.5, 1, 1),
    "nci109": (2, 2, 1),
    "proteins": (0.5, 0.5, 1),
    "dd": (2, 2, 1),
    "cmnist-75sp": (32, 16, 16),
    "graph-sst5": (8, 4, 1),
    "graph-twitter": (8, 8, 0.5),
    "drugood-ic50-assay": (8, 1, 1),
    "drugood-ic50-scaffold": (32, 16, 1),
    "drugood-ic50-size": (16, 2, 1),
}


@pytest.mark.parametrize("data", CIGA_WEIGHTS)
def test_cigas_weights_are_those_of_its_released_scripts(data):
    name, options = parse_name(data)
    preset = spmotif(name, float(options["bias"])) if options else CIGA[name]
    first, second = preset.settings("ciga-v1"), preset.settings("ciga-v2")
    assert (first["alpha"], second["alpha"], second["beta"]) == CIGA_WEIGHTS[data]
    assert "beta" not in first
    raw, rep = name in ("proteins", "dd"), name in ("proteins", "dd")
    assert first["contrast"] == ("rep" if rep else "feat")
    assert (first["classifier_input"] == "raw") == (raw or name in ("cmnist-75sp", "graph-sst5", "drugood-ic50-assay"))
    assert first["spurious"] == ("conv" if name.endswith("scaffold") else "shared")


@pytest.mark.parametrize("part", ["training", "network", "methods"])
def test_a_setting_of_a_preset_that_nothing_takes_is_an_error(monkeypatch, part) -> None:
    """It used to be dropped without a word."""
    data = replace(sp.load("spmotif-struc", **TINY), name="ba-2motifs")
    usual = PRESETS["ba-2motifs"]
    given = {"erm": {"epochz": 3}} if part == "methods" else {**getattr(usual, part), "epochz": 3}
    monkeypatch.setitem(PRESETS, "ba-2motifs", replace(usual, **{part: given}))
    with pytest.raises(ShiftproofError, match=r"unknown setting 'epochz' of the preset of 'ba-2motifs'.*'epochs'"):
        sp.fit("erm", data, epochs=1)
