"""Nodes as samples: environments, shifted splits, what users bring, and that no label of another split is seen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data.neighbourhoods import about_centres, neighbourhoods
from shiftproof.data.node_sets import NodeSet, joined
from shiftproof.data.node_shift import domain_values, node_data, pagerank
from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.registry import methods

SPEC = "cora-like:nodes=120,edges=300,classes=3,features=8"
NODE_METHODS = [entry.name for entry in methods if "nodes" in entry.tags]
QUICK = {"epochs": 2, "reference_epochs": 1, "inference_steps": 2, "round_epochs": 1, "head_steps": (2, 4), "hidden": 8}


@pytest.fixture(scope="module")
def graph() -> NodeGraph:
    return sp.load(SPEC)


@pytest.fixture(scope="module")
def data(graph) -> sp.Dataset:
    return node_data(graph, by="degree")


def quick(method: str) -> dict:
    from shiftproof.api.fitting import accepted_settings

    known = {name for group in accepted_settings(methods[method].make, network="gcn").values() for name in group}
    return {name: value for name, value in QUICK.items() if name in known}


def test_the_nodes_of_the_largest_degree_are_tested(graph, data):
    degree = graph.degree
    assert int(degree[data.test.index].min()) >= int(degree[data.val.index].max())
    assert int(degree[data.val.index].min()) >= int(degree[data.train.index].max())
    everything = torch.cat([split.index for split in data.splits.values()])
    assert len(everything.unique()) == len(everything) == graph.num_nodes
    assert data.train.num_envs >= 2
    assert len(data.env_names) > data.train.num_envs, "those of the test come after them"
    assert set(data.splits) == {"train", "val", "test", "id_val", "id_test"}


@pytest.mark.parametrize("by", ["pagerank", "homophily"])
@pytest.mark.parametrize("shift", ["covariate", "concept", "none"])
def test_every_measure_and_shift_splits_all_nodes(graph, by, shift):
    found = node_data(graph, by=by, shift=shift, seed=3)
    assert sum(len(split) for split in found.splits.values()) == graph.num_nodes
    again = node_data(graph, by=by, shift=shift, seed=3)
    assert all(torch.equal(found[name].index, again[name].index) for name in found.splits)


def test_concept_shift_turns_round_how_labels_go_with_values(graph):
    found = node_data(graph, by="pagerank", shift="concept")
    rank = domain_values(graph, "pagerank")[0].argsort(stable=True).argsort(stable=True)
    follows = rank * graph.num_classes // graph.num_nodes == graph.y
    shares = [float(follows[found[name].index].double().mean()) for name in ("train", "test")]
    assert shares[0] > shares[1] + 0.2


def test_pagerank_is_that_of_networkx(graph):
    networkx = pytest.importorskip("networkx")
    other = networkx.Graph(graph.edges.T.tolist())
    other.add_nodes_from(range(graph.num_nodes))
    wanted = networkx.pagerank(other, alpha=0.85)
    np.testing.assert_allclose(pagerank(graph), [wanted[n] for n in range(graph.num_nodes)], atol=1e-4)


def test_whole_values_of_a_column_are_tested(graph):
    country = torch.arange(graph.num_nodes) % 4
    named = replace(graph, columns={"country": country}, value_names={"country": ("de", "es", "fr", "ru")})
    found = node_data(named, by="country", test="ru", val="es")
    assert set(country[found.test.index].tolist()) == {3}
    assert set(country[found.val.index].tolist()) == {1}
    assert found.env_names == ("de", "fr", "es", "ru")
    two = node_data(named, by="country", test="ru+fr", val="es")
    assert set(country[two.test.index].tolist()) == {2, 3}
    halved = node_data(named, by="country", test="ru", val="ru")
    assert len(halved.val) == len(halved.test) == 15


def test_several_graphs_are_domains_and_those_without_samples_stay_away(graph):
    both = joined([graph, graph, graph], ("a", "b", "c"), "place", name="three")
    found = node_data(both, by="place", test="c", val="b")
    assert found.train.x.shape[0] == graph.num_nodes
    assert found.train.num_graphs == 1
    run = sp.fit("erm", found, epochs=2, hidden=8)
    assert torch.allclose(run.logits(found.val), run.logits(found.test), atol=1e-6), "the same graph twice"


@pytest.mark.parametrize("method", NODE_METHODS)
def test_every_node_method_sees_neither_labels_nor_environments_of_the_test(method, data):
    poisoned = {}
    for name, split in data.splits.items():
        if name != "train" and not name.startswith("val"):
            split = replace(split, y=(split.y + 1) % 3, env=None if split.env is None else split.env * 0 + 7)
        poisoned[name] = split
    weights = []
    for some in (data, data.with_splits(**poisoned)):
        run = sp.fit(method, some, selection="last", **quick(method))
        weights.append(run.method.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_predictions_do_not_depend_on_the_order_of_nodes(graph, data):
    run = sp.fit("erm", data, epochs=3, hidden=8)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    turned = graph.subgraph(order)
    ours, theirs = run.predict(graph).to_frame(), run.predict(turned).to_frame()
    assert ours["index"].tolist() == list(range(graph.num_nodes)), "one row a node, in the order given"
    np.testing.assert_allclose(ours["probability_0"].to_numpy()[order], theirs["probability_0"], atol=1e-5)


def test_a_run_on_nodes_is_resumed_to_equal_bits(data, tmp_path):
    whole = sp.fit("vrex", data, epochs=4, hidden=8, dropout=0.5)

    def stop(training):
        if training.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sp.fit("vrex", data, epochs=4, hidden=8, dropout=0.5, out=tmp_path, callbacks=[stop], checkpoint_seconds=0)
    resumed = sp.fit("vrex", data, epochs=4, hidden=8, dropout=0.5, out=tmp_path, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(whole.method.parameters(), resumed.method.parameters(), strict=True))
    again = sp.Run.load(tmp_path)
    assert torch.equal(again.logits(data.test), whole.logits(data.test))


@pytest.mark.parametrize("network", ["gcn", "gin", "sage", "gat", "sgc", "appnp", "gpr-gnn", "mlp", "pna"])
def test_node_networks_train_and_a_neighbourhood_is_enough_to_predict(data, network):
    more = {"steps": 2} if network in ("appnp", "gpr-gnn") else {}
    sizes = {"widths": (8,)} if network == "mlp" else {"hidden": 8}
    run = sp.fit("erm", data, network=network, epochs=2, **more, **sizes)
    around = neighbourhoods(data.test[:6], 3).whole()
    with torch.no_grad():
        np.testing.assert_allclose(run.method(about_centres(around)), run.logits(data.test)[:6], atol=1e-5)


def test_batches_of_nodes_train_as_well_and_domains_are_drawn(data):
    run = sp.fit("irm", data, epochs=2, batch_size=16, hidden=8)
    assert run.history[-1]["steps"] == -(-len(data.train) // 16)
    drawn = sp.fit("irm", data, epochs=1, domains_per_batch=2, batch_size=8, hidden=8)
    assert drawn.history[-1]["steps"] >= 1


def test_a_node_graph_is_fitted_by_its_own_splits_and_by_name(graph):
    run = sp.fit("erm", graph, epochs=1, hidden=8)
    assert run.metrics["test"]["samples"] == len(graph.test)
    assert sp.fit("erm", f"{SPEC},by=degree", epochs=1, hidden=8).metrics.keys() >= {"id_test", "test"}


def of_pyg(graph, **more):
    from torch_geometric.data import Data

    return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, **more)


def test_pyg_data_with_masks_and_columns(graph):
    masks = {f"{part}_mask": torch.arange(120) % 3 == n for n, part in enumerate(("train", "val", "test"))}
    found = sp.load(of_pyg(graph, time=torch.arange(120), **masks))
    assert isinstance(found, NodeGraph)
    assert len(found.train) == 40
    later = sp.load(of_pyg(graph, time=torch.arange(120)), by="time")
    assert int(later.test.index.min()) == 96, "the last fifth in time"


def test_a_graph_of_good_keeps_its_five_splits_and_environments(graph):
    names = ("train", "val", "test", "id_val", "id_test")
    masks = {f"{part}_mask": torch.arange(120) % 5 == n for n, part in enumerate(names)}
    env = torch.where(masks["test_mask"] | masks["val_mask"], 9, torch.arange(120) % 3 + 2)
    found = sp.load(of_pyg(graph, env_id=env, domain=env, **masks))
    assert {name: len(split) for name, split in found.splits.items()} == dict.fromkeys(names, 24)
    assert found.train.num_envs == 3
    assert torch.equal(found.train.env, env[found.train.index] - 2)
    assert sp.fit("vrex", found, epochs=1).metrics.keys() == set(names)


def test_networkx_and_ogb_and_two_tables_are_node_graphs(graph, tmp_path):
    networkx = pytest.importorskip("networkx")
    club = networkx.karate_club_graph()
    for node in club:
        club.nodes[node]["label"] = club.nodes[node]["club"]
    found = sp.load(club, features="degree", by="degree")
    assert found.num_classes == 2
    ogb = {"edge_index": graph.edge_index.numpy(), "node_feat": graph.x.numpy(), "node_year": np.arange(120)[:, None]}
    assert set(sp.load((ogb, graph.y.numpy()[:, None]), by="time").splits) >= {"train", "test"}
    rows = [
        f"n{i},{float(graph.x[i, 0])},{['de', 'es', 'fr', 'ru'][i % 4]},{int(graph.y[i]) if i else ''}"
        for i in range(120)
    ]
    (tmp_path / "nodes.csv").write_text("id,a,country,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "edges.csv").write_text("u,v\n" + "\n".join(f"n{u},n{v}" for u, v in graph.edges.T.tolist()) + "\n")
    found = sp.load((tmp_path / "nodes.csv", tmp_path / "edges.csv"), by="country", test="ru")
    assert found.train.num_features == 1
    assert sum(len(split) for split in found.splits.values()) == 119, "a node without a label is in no split"
    assert sp.fit("groupdro", found, epochs=1).metrics["test"]["by_env"].keys() == {"ru"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda g, p: sp.load(of_pyg(g), by="year"), "unknown way to tell nodes apart 'year'; known: degree"),
        (lambda g, p: sp.fit("erm", of_pyg(g)), "has no training nodes; say how its nodes are split: by=degree, word"),
        (lambda g, p: sp.load(of_pyg(replace(g, x=g.x[:, :0])), by="degree"), "features=degree gives them"),
        (lambda g, p: g.with_split(g.train, g.train, g.test), "is in 'train' and in 'val'; splits are disjoint"),
        (lambda g, p: sp.load(of_pyg(g, c=g.y * 0), by="c"), "'c' of nodes has 1 values; to train, validate and test"),
        (lambda g, p: node_data(replace(g, y=g.y * 0), by="degree"), "nodes of cora-like are all of one class"),
        (lambda g, p: sp.fit("ciga-v1", node_data(g, by="degree")), "works on graphs, and 'cora-like' holds nodes"),
        (lambda g, p: sp.fit("erm", node_data(g, by="degree"), compile=True), "leave 'compile' out"),
        (lambda g, p: sp.load(tables(p, "n1,n7"), by="degree"), "edges.csv, row 2: there is no node 'n7' in"),
        (lambda g, p: sp.load(tables(p, "n1,n2", "n1,1,0\n"), by="degree"), "node 'n1' stands there twice"),
        (lambda g, p: node_data(g, by="degree", shift="concpt"), "unknown shift 'concpt'; did you mean 'concept'"),
    ],
)
def test_what_cannot_be_is_one_sentence(graph, tmp_path, wrong, said):
    with pytest.raises(ShiftproofError) as caught:
        wrong(graph, tmp_path)
    assert said in str(caught.value)


def tables(folder, edge, more=""):
    (folder / "nodes.csv").write_text(f"id,a,label\nn1,1,0\nn2,2,1\n{more}")
    (folder / "edges.csv").write_text(f"u,v\n{edge}\n")
    return folder / "nodes.csv", folder / "edges.csv"


def test_a_set_knows_no_label_of_another_split(data):
    assert isinstance(data.train, NodeSet)
    assert len(data.train.y) == len(data.train)
    assert data.train.x.shape[0] == 120, "the whole graph is around"


def test_diagnose_calibrate_and_compare_take_nodes(data):
    assert sp.diagnose(data).findings
    run = sp.fit("erm", data, epochs=2, hidden=8)
    assert sp.calibrate(run, data) is not None
    assert "eerm" in str(sp.compare(["erm", "eerm"], f"{SPEC},by=degree", seeds=2, epochs=1))


def test_wide_bags_of_words_are_diagnosed_by_a_narrow_table(graph):
    from shiftproof.diagnosis.summaries import WIDEST, summarise

    words = (torch.rand(120, 400, generator=torch.Generator().manual_seed(0)) < 0.1).float()
    found = summarise(node_data(replace(graph, x=words), by="degree").train, most=1000, seed=0)
    assert found.table.shape[1] == 2 * WIDEST + 1
    assert found.vectors["attribute"].shape[1] == 400
