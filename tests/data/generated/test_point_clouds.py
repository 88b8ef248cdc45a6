"""Who is near whom in a cloud, toy tracks, and the readers of published clouds."""

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof.data.generated.toy_tracks import HEAVY_MASS, WINDOW, _decays, _events, pair_masses, pairs_in_window
from shiftproof.data.readers import points as module
from shiftproof.data.readers.points import Neighbours, moved, point_graphs, positions, unit_norm
from shiftproof.errors import ShiftproofError


def clouds(seed=0):
    g = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([1, 7, 0, 3, 12])
    return torch.randn(int(sizes.sum()), 3, generator=g), sizes


def by_hand(pos, sizes, k=None, radius=None):
    """The same by a loop over points, as a set of pairs."""
    found, start = set(), 0
    for size in sizes.tolist():
        cloud = pos[start : start + size]
        for i in range(size):
            distance = (cloud - cloud[i]).norm(dim=1)
            near = distance.argsort()[:k] if k else (distance <= radius).nonzero().flatten()
            found |= {(start + int(j), start + i) for j in near}
        start += size
    return found


@pytest.mark.parametrize("most", [20_000_000, 150])
@pytest.mark.parametrize(("k", "radius"), [(4, None), (1, None), (None, 1.2)])
def test_neighbours_are_those_a_loop_finds(monkeypatch, most, k, radius):
    monkeypatch.setattr(module, "MOST_PAIRS", most)
    pos, sizes = clouds()
    edges, counts = Neighbours(k, radius).edges(pos, sizes)
    assert set(map(tuple, edges.T.tolist())) == by_hand(pos, sizes, k, radius)
    assert len(set(map(tuple, edges.T.tolist()))) == edges.shape[1] == int(counts.sum())
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    assert torch.equal(torch.bincount(owner[edges[1]], minlength=len(sizes)), counts)
    assert bool((owner[edges[1]].diff() >= 0).all())


def test_a_point_is_its_own_neighbour_whatever_lies_at_the_same_place():
    edges, _ = Neighbours(k=2).edges(torch.zeros(4, 3), torch.tensor([4]))
    loops = edges[:, edges[0] == edges[1]]
    assert sorted(loops[0].tolist()) == [0, 1, 2, 3]
    assert edges.shape[1] == 8


def test_directions_are_compared_on_the_unit_sphere():
    pos = torch.tensor([[1.0, 0, 0], [9.0, 0.1, 0], [1.0, 0.5, 0], [0, 0, 0]])
    edges, _ = Neighbours(k=2, unit=True).edges(pos, torch.tensor([4]))
    assert (1, 0) in set(map(tuple, edges.T.tolist()))
    assert bool(unit_norm(pos).isfinite().all())
    assert unit_norm(pos[:3]).norm(dim=1).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_clouds_are_graphs_with_places_and_marked_points():
    pos, sizes = clouds()
    truth = torch.arange(len(pos)) % 2
    graphs = point_graphs(pos, sizes, Neighbours(k=3), truth=truth, y=torch.zeros(5))
    assert graphs.x.tolist() == [[1.0]] * len(pos)
    part = graphs[[4, 1]]
    assert torch.equal(part.node_columns["pos"], torch.cat([pos[11:], pos[1:8]]))
    part.check("clouds")
    batch = graphs.whole()
    assert torch.equal(batch.edge_truth, truth.bool()[batch.edge_index[0]] & truth.bool()[batch.edge_index[1]])
    with pytest.raises(ShiftproofError, match="23 points cannot be split into clouds of 4"):
        point_graphs(pos, torch.tensor([4]), Neighbours())


def test_moving_points_joins_them_anew_where_asked():
    pos, sizes = clouds()
    graphs = point_graphs(pos, sizes, Neighbours(k=3), truth=torch.ones(len(pos)), y=torch.zeros(5))
    batch, rule = graphs.whole(), Neighbours(k=3)
    elsewhere = pos[torch.randperm(len(pos), generator=torch.Generator().manual_seed(1))]
    kept, joined = moved(batch, elsewhere), moved(batch, elsewhere, rule)
    assert torch.equal(kept.edge_index, batch.edge_index)
    assert torch.equal(joined.edge_index, rule.edges(elsewhere, sizes)[0])
    assert not torch.equal(joined.edge_index, batch.edge_index)
    assert torch.equal(positions(joined), elsewhere)
    plain = sp.load("ba-2motifs", graphs=20).train.whole()
    assert torch.equal(moved(plain, plain.x + 1, rule).x, plain.x + 1)
    assert torch.equal(moved(plain, plain.x + 1, rule).edge_index, plain.edge_index)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"k": None}, "one of the two"),
        ({"k": 3, "radius": 1.0}, "one of the two"),
        ({"k": 0}, "at least one neighbour"),
        ({"k": None, "radius": -1.0}, "positive"),
    ],
)
def test_mistakes_in_neighbours_are_named(wrong, words):
    with pytest.raises(ShiftproofError, match=words):
        Neighbours(**wrong)


def test_toy_tracks_are_helices_whose_pair_alone_has_the_mass():
    data = sp.load("toy-tracks", graphs=60, seed=3)
    assert [len(data[s]) for s in ("train", "val", "test")] == [42, 9, 9]
    for split in data.splits.values():
        positive = split.y > 0
        marked = torch.tensor([int(split[i].node_truth.sum()) for i in range(len(split))])
        assert bool((marked[positive] >= 20).all())
        assert bool((marked[positive] <= 24).all())
        assert bool((marked[~positive] == 0).all())
        assert bool((split.sizes >= 100).all())
        assert bool((split.sizes <= 120).all())
        r = split.node_columns["pos"][:, :2].norm(dim=1)
        assert float(r.min()) > 0.9
        assert float(r.max()) < 10.1
    signal = np.arange(40) < 20
    charge, momentum = _events(signal, 10, np.random.default_rng(0))
    assert pairs_in_window(charge, momentum).tolist() == [1] * 20 + [0] * 20
    mass = pair_masses(momentum)
    assert np.abs(mass[:20, 0, 1] - HEAVY_MASS).max() < WINDOW
    assert (charge[:20, 0] * charge[:20, 1] == -1).all()
    assert np.allclose(mass, mass.transpose(0, 2, 1))


def test_toy_decays_conserve_mass_and_toy_tracks_follow_their_seed():
    two = _decays(50, np.random.default_rng(1))
    total, energy = two.sum(1), np.linalg.norm(two, axis=2).sum(1)
    mass = np.sqrt(energy**2 - (total**2).sum(1))
    assert mass.min() > HEAVY_MASS - WINDOW
    assert mass.max() < HEAVY_MASS + WINDOW
    assert np.abs(total[:, 2]).max() < 1e-9  # flies across the beam
    a, b, c = (sp.load("toy-tracks", graphs=20, tracks=3, seed=s) for s in (0, 0, 1))
    assert torch.equal(a.train.node_columns["pos"], b.train.node_columns["pos"])
    assert a.train.num_nodes != c.train.num_nodes or not torch.equal(
        a.train.node_columns["pos"], c.train.node_columns["pos"]
    )
    with pytest.raises(ShiftproofError, match="a whole number from 10, not 5"):
        sp.load("toy-tracks", graphs=5)


def test_toy_groups_are_whole_in_positive_clouds_alone_and_kinds_say_nothing():
    data = sp.load("toy-groups", graphs=60, seed=2)
    assert [len(data[s]) for s in ("train", "val", "test")] == [42, 9, 9]
    broken = set()
    for split in data.splits.values():
        for i in range(len(split)):
            cloud = split[i]
            kind, pos = cloud.x.argmax(1), cloud.node_columns["pos"]
            assert 18 <= len(kind) <= 26
            assert torch.bincount(kind, minlength=8)[2:].tolist() == [1] * 6
            place = {k: pos[kind == k].squeeze(0) for k in range(2, 8)}
            steps = {
                group: [float((place[a] - place[b]).norm()) for a, b in pairs] for group, pairs in GROUP_BONDS.items()
            }
            whole = tuple(max(found) < 1.3 for found in steps.values())  # a bond of 1, blurred at both ends
            assert all(whole) == bool(cloud.y > 0)
            assert cloud.node_truth.tolist() == ((kind >= 2) & (cloud.y > 0)).tolist()
            broken.add(whole)
    assert broken == {(True, True), (True, False), (False, True), (False, False)}
    again, other = sp.load("toy-groups", graphs=60, seed=2), sp.load("toy-groups", graphs=60, seed=3)
    assert torch.equal(data.test.node_columns["pos"], again.test.node_columns["pos"])
    assert data.test.num_nodes != other.test.num_nodes or not torch.equal(data.test.x, other.test.x)
    with pytest.raises(ShiftproofError, match="a whole number from 10, not 3"):
        sp.load("toy-groups", graphs=3)


GROUP_BONDS = {"first": [(2, 3), (3, 4)], "second": [(5, 6), (6, 7)]}


def lri_file(folder, name, **more):
    """A tiny file in the layout that docs/point-clouds.md makes of the authors' ones."""
    rng = np.random.default_rng(0)
    sizes = np.array([4, 6, 5, 7, 3, 8])
    total = sizes.sum()
    dims = 2 if name == "tau3mu" else 3
    arrays = {
        "pos": rng.normal(size=(total, dims)).astype("f4"),
        "x": rng.normal(size=(total, 1)).astype("f4"),
        "y": np.array([[1], [0], [1], [0], [1], [0]], "f4"),
        "node_label": (np.arange(total) % 2).astype("f4"),
        "ptr": np.concatenate([[0], sizes.cumsum()]),
        "train": np.array([0, 1, 2]),
        "valid": np.array([3]),
        "test": np.array([4, 5]),
    }
    if name == "plbind":
        ligands = np.array([2, 3, 1, 4, 2, 2])
        kinds = rng.integers(0, 38, size=(total, 1))
        arrays["x"] = np.concatenate([kinds, rng.random((total, 2))], 1).astype("f4")
        arrays["affinity"] = np.array([1e-9, 1e-6, 5e-9, 2e-8, 9.9e-9, 1e-3], "f4")[:, None]
        arrays["contact_label"] = (np.arange(total) % 3 == 0).astype("f4")
        arrays["x_lig"] = rng.integers(0, 9, size=(ligands.sum(), 17)).astype("f4")
        arrays["pos_lig"] = rng.normal(size=(ligands.sum(), 3)).astype("f4")
        arrays["ptr_lig"] = np.concatenate([[0], ligands.cumsum()])
    arrays |= more
    (folder / name).mkdir(exist_ok=True)
    np.savez(folder / name / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return arrays


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("name", ["actstrack", "tau3mu", "plbind"])
def test_published_clouds_are_read_and_trained_on(folder, name):
    arrays = lri_file(folder, name)
    data = sp.load(name).check()
    assert [len(data[s]) for s in ("train", "val", "test")] == [3, 1, 2]
    assert data.train.y.tolist() == [1, 0, 1]
    assert data.test.sizes.tolist() == [3, 8]
    pos = data.train.node_columns["pos"]
    scale = 100 / 2955.5 if name == "actstrack" else 1.0
    assert pos.flatten().tolist() == pytest.approx((arrays["pos"][:15] * scale).flatten().tolist(), rel=1e-5)
    assert data.train.num_features == {"actstrack": 1, "tau3mu": 1, "plbind": 40}[name]
    run = sp.fit("lri-bernoulli", data, epochs=1, hidden=8, layers=2)
    assert run.method.featurizer.encoder.conv == "egnn"
    assert sp.explain(run, data.test).node_scores.shape == (11,)


def test_points_are_true_by_the_rules_of_each_set(folder):
    arrays = lri_file(folder, "actstrack")
    assert sp.load("actstrack").train.node_truth.tolist() == [
        bool(label) and not 4 <= i < 10 for i, label in enumerate(arrays["node_label"][:15])
    ]
    arrays = lri_file(folder, "plbind")
    near, touch = arrays["node_label"][:15] > 0, arrays["contact_label"][:15] > 0
    binds = np.repeat([True, False, True], [4, 6, 5])
    data = sp.load("plbind")
    assert data.train.node_truth.tolist() == (near | (touch & binds)).tolist()
    assert data.val.y.tolist() == [0]
    assert data.test.y.tolist() == [1, 0]


def test_ligands_lie_in_padded_columns(folder):
    arrays = lri_file(folder, "plbind")
    columns = sp.load("plbind").test.columns
    assert columns["ligand_size"].tolist() == [2, 2]
    assert columns["ligand_kind"][0].tolist() == [*arrays["x_lig"][10:12, 0].astype(int), 0, 0]
    assert columns["ligand_charge"][1, :2].tolist() == arrays["x_lig"][12:14, 16].tolist()
    assert torch.equal(columns["ligand_pos"][1, :2], torch.from_numpy(arrays["pos_lig"][12:14]))
    assert not columns["ligand_pos"][:, 2:].any()


def test_some_batches_are_trained_on_with_the_ligands_of_other_proteins(folder):
    lri_file(folder, "plbind")
    data = sp.load("plbind", negatives=0.25)
    assert data.spec == "plbind:negatives=0.25"
    assert sp.load("plbind").augment.chance == 0.1
    assert sp.load("plbind:negatives=0").augment is None
    torch.manual_seed(0)
    batch, counts = data.train.batch([0, 2]), data.train.columns["ligand_size"]
    found = [data.augment(batch) for _ in range(400)]
    swapped = [one for one in found if one is not batch]
    assert 70 < len(swapped) < 130
    for one in swapped:
        assert one.y.tolist() == [0, 0]
        assert one.columns["ligand_size"].tolist() == [int(counts[1])] * 2  # of the one protein outside the batch
        assert torch.equal(one.columns["ligand_pos"], data.train.columns["ligand_pos"][[1, 1]])
        assert torch.equal(one.x, batch.x)
    assert batch.y.tolist() == [1, 1]
    assert all(data.augment(one) is one for one in [data.train.whole()] * 20)  # nobody is outside
    with pytest.raises(ShiftproofError, match=r"option 'negatives' of .* is a number from 0 to 1, not 2"):
        sp.load("plbind", negatives=2.0)


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("tau3mu", {"x": None}, "has no array 'x'"),
        ("tau3mu", {"pos": np.zeros((3, 2), "f4")}, "'pos' has 3 rows, not 33"),
        ("tau3mu", {"pos": np.zeros((33, 3), "f4")}, "'pos' has shape .33, 3., expected rows of 2 numbers"),
        ("tau3mu", {"x": np.zeros(33, "f4")}, "'x' has shape .33,., expected rows of 1 numbers"),
        ("actstrack", {"pos": np.where(np.arange(99).reshape(33, 3) == 7, np.nan, 1.0)}, "'pos' holds NaN.* in row 2"),
        ("actstrack", {"y": None}, "has no array 'y'; docs/point-clouds.md says how it is made"),
        ("actstrack", {"y": np.zeros(2)}, "'y' has 2 rows, not 6"),
        ("actstrack", {"y": np.array(list("abcdef"))}, "'y' holds <U1, expected numbers"),
        ("actstrack", {"ptr": np.array([0, 9, 5, 33])}, "'ptr' .* does not rise from 0"),
        ("actstrack", {"ptr": np.zeros(0, int)}, "'ptr' .* does not rise from 0"),
        ("actstrack", {"test": np.array([4, 9])}, "'test' row 1 is 9, expected 0 to 5"),
        ("actstrack", {"train": np.arange(6) < 3}, "'train' does not hold whole numbers"),
        ("plbind", {"ptr_lig": np.array([0, 3, 14])}, "2 ligands for 6 proteins"),
        ("plbind", {"x": np.full((33, 3), 50.0, "f4")}, "kinds of residues are 0 to 37, not 50 in row 0"),
        ("plbind", {"x": np.full((33, 3), 0.5, "f4")}, "kinds of residues are 0 to 37, not 0.5 in row 0"),
        ("plbind", {"affinity": np.full(6, np.nan)}, "'affinity' holds NaN"),
        ("plbind", {"affinity": np.array([1e-9, 0, 1, 1, 1, 1])}, "'affinity' row 1 is not positive"),
        ("plbind", {"x_lig": np.zeros((14, 3))}, "'x_lig' has shape .14, 3., expected rows of 17 numbers"),
        ("plbind", {"pos_lig": np.zeros((9, 3))}, "'pos_lig' has 9 rows, not 14"),
    ],
)
def test_a_file_that_does_not_fit_is_named(folder, name, more, words):
    lri_file(folder, name, **more)
    with pytest.raises(ShiftproofError, match=words):
        sp.load(name)


@pytest.mark.parametrize(("name", "title"), [("actstrack", "ActsTrack"), ("tau3mu", "Tau3Mu"), ("plbind", "PLBind")])
def test_a_missing_or_damaged_file_is_one_sentence(folder, name, title):
    with pytest.raises(ShiftproofError, match=f"{title} .*is missing: put '{name}/{name}.npz' into"):
        sp.load(name)
    (folder / f"{name}.npz").write_bytes(b"no archive")
    with pytest.raises(ShiftproofError, match=f"is not {title} or is damaged"):
        sp.load(name)
    (folder / f"{name}.npz").unlink()
    lri_file(folder, name)
    whole = (folder / name / f"{name}.npz").read_bytes()
    (folder / name / f"{name}.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ShiftproofError, match=f"is not {title} or is damaged"):
        sp.load(name)


def test_synmol_in_space_keeps_molecules_and_joins_near_atoms(real_data, monkeypatch, tmp_path):
    from shiftproof.data.readers import conformers

    if not (real_data / "interpretability" / "graph_attribution" / "logic8.npz").exists():
        pytest.skip("needs logic8.npz")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def quickly(graphs, smiles, seed, workers):
        g = torch.Generator().manual_seed(seed)
        kept = torch.arange(len(graphs)) % 50 != 7
        return {"pos": torch.randn(graphs.num_nodes, 3, generator=g), "kept": kept}

    monkeypatch.setattr(conformers, "_search", quickly)
    flat, data = sp.load("synmol", conformers=True), sp.load("synmol-3d")
    assert torch.equal(data.test.x, flat.test.x)
    assert torch.equal(data.test.node_truth, flat.test.node_truth)
    assert torch.equal(data.test.node_columns["pos"], 5 * flat.test.node_columns["pos"])
    assert torch.equal(data.test.y, flat.test.y)
    assert data.test.edge_attr is None
    assert torch.equal(data.test.edge_counts, data.test.sizes * data.test.sizes.clamp(max=5))
    assert data.spec == "synmol-3d:seed=0"
    assert len(data.val) == 1000
