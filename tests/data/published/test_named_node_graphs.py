"""The named node graphs with their real files: sizes, splits, homophily, published attacks."""

import dataclasses

import pytest

from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.registry import datasets
from shiftproof.robustness import Perturbation, label_homophily

SIZES = {
    "cora": (2708, 5278, 1433, 7, 1624, 274, 810),
    "cora:split=public": (2708, 5278, 1433, 7, 140, 500, 1000),
    "cora:split=geom-gcn,fold=9": (2708, 5278, 1433, 7, 1192, 796, 497),
    "cora:split=degree,seed=5": (2708, 5278, 1433, 7, 1624, 274, 810),
    "citeseer:split=public": (3327, 4552, 3703, 6, 120, 500, 1000),
    "pubmed:split=public": (19717, 44324, 500, 3, 60, 500, 1000),
    "computers": (13752, 245861, 767, 10, 8251, 1376, 4125),
    "photo": (7650, 119081, 745, 8, 4590, 765, 2295),
    "chameleon": (890, 8854, 2325, 5, 534, 89, 267),
    "chameleon:filtered=false": (2277, 31371, 2325, 5, 1366, 230, 681),
    "squirrel:split=folds": (2223, 46998, 2089, 5, 1053, 718, 452),
    "actor": (7600, 26659, 932, 5, 4560, 760, 2280),
    "cornell": (183, 277, 1703, 5, 109, 20, 54),
    "texas:split=random": (183, 279, 1703, 5, 109, 18, 56),
    "wisconsin": (251, 450, 1703, 5, 150, 26, 75),
    "prognn-cora": (2485, 5069, 1433, 7, 247, 249, 1988),
    "prognn-citeseer:attack=nettack,rate=1": (2110, 3731, 3703, 6, 210, 211, 63),
    "prognn-cora-ml": (2810, 7981, 2879, 7, 280, 282, 2248),
    "prognn-polblogs": (1222, 16714, 1222, 2, 121, 123, 978),
    "twitch:domain=TW": (2772, 63462, 3170, 2, 1663, 278, 831),
    "facebook100:domain=Reed98": (962, 18812, 745, 2, 509, 89, 267),
}


@pytest.mark.parametrize("name", SIZES)
def test_real_graphs_have_their_published_sizes(real_data, name) -> None:
    graph = load(name)
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert (*sizes, len(graph.train), len(graph.val), len(graph.test)) == SIZES[name]


def test_unlabelled_papers_of_citeseer_are_in_no_split(real_data) -> None:
    graph = load("citeseer")
    assert int((graph.y < 0).sum()) == 15
    assert len(graph.train) + len(graph.val) + len(graph.test) == 3327 - 15


def test_label_homophily_is_as_published(real_data) -> None:
    assert label_homophily(load("cora")) == pytest.approx(0.81, abs=0.005)
    assert label_homophily(load("computers")) == pytest.approx(0.777, abs=0.005)
    assert label_homophily(load("citeseer")) == pytest.approx(0.74, abs=0.005)
    assert label_homophily(load("squirrel:filtered=false")) == pytest.approx(0.22, abs=0.005)


@pytest.mark.parametrize(
    ("name", "attack", "rate", "flips"),
    [
        ("cora", "meta", 0.05, 253),
        ("cora", "meta", 0.25, 1267),
        ("citeseer", "meta", 0.2, 733),
        ("cora-ml", "meta", 0.1, 798),
        ("polblogs", "meta", 0.15, 2507),
        ("cora", "nettack", 5.0, 415),
        ("pubmed", "meta", 0.05, 2216),
    ],
)
def test_published_attacks_flip_what_they_say(real_data, name, attack, rate, flips) -> None:
    clean, attacked = load(f"prognn-{name}"), load(f"prognn-{name}", attack=attack, rate=rate)
    found = Perturbation.between(clean, attacked)
    assert found.added.shape[1] + found.removed.shape[1] == flips
    assert found.num_injected == 0


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "prognn-cora:attack=meta,rate=0.3",
            "'rate' of attack 'meta' is 0, 0.05, 0.1, 0.15, 0.2, 0.25, not 0.3",
        ),
        ("prognn-cora:rate=0.3", "option 'rate' of attack 'none' is 0, not 0.3"),
        ("prognn-cora-ml:attack=nettack,rate=1", "that attack was not published"),
        ("cora:split=geom-gcn,fold=10", "option 'fold' of cora is 0 to 9, not 10"),
        ("cora:split=publik", "option 'split' of cora is grb, public, geom-gcn, degree or random, not 'publik'"),
        ("twitch:domain=UK", "option 'domain' of twitch is one of DE, ENGB, ES, FR, PTBR, RU, TW, not 'UK'"),
        ("cornell:split=folds,fold=12", "0 to 9 of the file, not 12"),
    ],
)
def test_wrong_options_of_real_graphs_are_one_sentence(real_data, source, said) -> None:
    with pytest.raises(ShiftproofError) as caught:
        load(source)
    assert said in str(caught.value)


def test_a_missing_file_says_what_to_put_where(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("cora", "prognn-cora", "twitch", "facebook100"):
        with pytest.raises(ShiftproofError, match=r"is missing: put '.*' into the folder that SHIFTPROOF_DATA names"):
            load(name)


def test_every_node_graph_is_listed_with_its_tag() -> None:
    listed = {entry.name for entry in datasets if "nodes" in entry.tags}
    assert {name.partition(":")[0] for name in SIZES} | {"grb", "ogbn-arxiv", "cora-like", ".npz"} <= listed
    assert all(entry.summary for entry in datasets if entry.name in listed)


def test_provenance_says_which_split_it_is(real_data) -> None:
    graph = load("cora:split=public,features=row")
    assert graph.provenance["split"] == "public"
    assert dataclasses.replace(graph, name="other").provenance == graph.provenance
