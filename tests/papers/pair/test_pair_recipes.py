"""Recipes of the PAIR paper: cells that can be built, rows that choose as they say, figures that are drawn."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import shiftproof as sp
from shiftproof.api.fitting import Plan
from shiftproof.cli import app
from shiftproof.data import load
from shiftproof.errors import ShiftproofError
from shiftproof.papers.pair.analyses import conflict_rows, draw_trajectories, trajectory_rows
from shiftproof.papers.pair.extrapolation import Extrapolating, draw_extrapolation, extrapolated, invariance
from shiftproof.papers.pair.published import CMNIST, COMPOSITE
from shiftproof.papers.pair.selection import ALGORITHMS, SETTINGS, choices, selection_rows
from shiftproof.papers.pair.side_by_side import Member, Stack
from shiftproof.papers.pair.tables import ADDED, PREFERENCES, cmnist_rows, composite_rows
from shiftproof.papers.pair.theory import draw_failure, failure_rows
from shiftproof.pareto import RunHistory
from shiftproof.registry import datasets, fitting_options, parse_name, recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Job
from shiftproof.sweeps.recipes import folder_name

NAMES = sorted(entry.name for entry in recipes if entry.name.startswith("pair-"))
RECIPES = {name: recipes[name].make() for name in NAMES}
FROM_ROWS = ("pair-cmnist", "pair-ciga", "pair-preferences", "pair-tuning", "pair-similar", "pair-conflicts")
SHOWN = {
    "pair-cmnist": ["cmnist-m", "irmx pair parameters=head", "oracle"],
    "pair-ciga": ["spmotif-mixed:bias=0.9", "ciga-v2 pair preference=1,10,10", "balance_solver=min-norm"],
    "pair-preferences": ["preference for V-REx", "1e12", "cmnist-m"],
    "pair-tuning": ["cmnist: irmx", "PAIR-o", "penalty of IRMv1"],
    "pair-similar": ["colour flips of the second environment", "irmx pair"],
    "pair-conflicts": ["cosine of risk and penalty", "irm+vrex"],
}


def stand_in(data: str):
    """A few samples that pass for the data set, so that its preset is taken."""
    name, options = parse_name(data)
    fitting_options(options, datasets[name].options, name)
    if "graphs" in datasets[name].tags:
        tiny = load("spmotif-struc:bias=0.9", train_per_class=4, val_per_class=2, test_per_class=2)
        return replace(tiny, name=name, options={"bias": 0.9})
    if name == "extrapolation":
        return load(data, train_size=20, val_size=10, test_size=10)
    digits = replace(load("colored-digits"), name=name)
    if name not in ("pacs64", "domainbed-cmnist"):
        return digits
    return digits.with_splits(**{part: replace(s, x=s.x.view(-1, 2, 8, 8)) for part, s in digits.splits.items()})


def stack_of(*members: Member) -> Stack:
    return Stack(members, [load("extrapolation")], lr=1e-3, eps=0.1, device=torch.device("cpu"))


def words_in(picture) -> str:
    return " ".join(text for text in ElementTree.fromstring(picture.read_text()).itertext())


def test_every_analysis_of_the_paper_is_there():
    wanted = {"cmnist", "composite", "selection", "failure", "extrapolation", "trajectories", "preferences"}
    wanted |= {"conflicts", "radar", "tuning", "similar", "ciga"}
    assert {f"pair-{name}" for name in wanted} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_can_be_built_and_has_a_folder_of_its_own(name):
    recipe = RECIPES[name]
    assert recipe.name == name
    assert len({folder_name(cell) for cell in recipe.cells}) == len(recipe.cells)
    for data, method in dict.fromkeys((cell.data, cell.method) for cell in recipe.cells):
        samples = stand_in(data)
        variants = {str(sorted(c.variant)): c.variant for c in recipe.cells if (c.data, c.method) == (data, method)}
        for variant in variants.values():  # one for each set of options
            plan = Plan.make(method, samples, variant)
            plan.balance().check(plan.build(None))


def test_preferences_have_a_number_for_every_term():
    assert set(PREFERENCES) == set(ADDED)
    for added, numbers in PREFERENCES.items():
        assert len(numbers.split(",")) == 2 + len(added.split("+"))
        assert {(added, scheme) for scheme in ("linear", "o", "o+s")} <= COMPOSITE.keys()


def test_every_algorithm_has_twenty_different_settings():
    cells = [cell for cell in RECIPES["pair-selection"].cells if cell.data.startswith("cmnist:")]
    assert len(cells) == SETTINGS * len(ALGORITHMS)
    assert len({str(cell.variant) + cell.method for cell in cells}) == len(cells)
    assert len(ALGORITHMS) >= 5


def made_up_rows(recipe) -> list[dict]:
    rng = np.random.default_rng(0)
    return [
        {
            "dataset": cell.data,
            "method": cell.method,
            "variant": dict(cell.variant),
            "metric": "worst_group",
            "split": "test",
            **dict(zip(("values", "mean", "std"), ([v := float(rng.random()), v], v, 0.1), strict=True)),
        }
        for cell in recipe.cells
    ]


@pytest.mark.parametrize("name", FROM_ROWS)
def test_figures_are_drawn_from_the_rows_alone_and_stay_the_same(name, tmp_path):
    recipe, rows = RECIPES[name], made_up_rows(RECIPES[name])
    rows[0] |= {"values": [None], "mean": None, "std": None}
    picture = recipe.draw(rows, tmp_path / "one.svg")
    assert picture.read_bytes() == recipe.draw(rows, tmp_path / "other.svg").read_bytes()
    shown = words_in(picture)
    for words in SHOWN[name]:
        assert words in shown


def finished(folder, method, data="cmnist", seed=0, history=None, **variant) -> Job:
    job = Job(data, method, seed, folder / f"{method}-{len(list(folder.iterdir()))}", variant=variant)
    write_json(job.out / "config.json", {"metric": "worst_group"})
    write_json(job.out / "metrics.json", {"metrics": {"test": {"worst_group": 0.6}}, "selection": "last"})
    write_json(job.out / "timing.json", {"device": "cpu"})
    write_json(job.out / "history.json", history or [{"epoch": 0, "losses": {"task": 0.5}}])
    return job


def test_rows_of_coloured_digits_stand_beside_the_right_printed_figures(tmp_path):
    jobs = [
        finished(tmp_path, "irmx", balance="pair", parameters="head"),
        finished(tmp_path, "irmx", "cmnist-m", balance="pair", parameters="all"),
        finished(tmp_path, "erm", "cmnist:variant=gray-modified"),
        finished(tmp_path, "vrex"),
    ]
    rows = cmnist_rows(jobs)
    assert [row["published"]["mean"] for row in rows] == pytest.approx([0.692, 0.837, 0.865, 0.686])
    assert rows[0]["losses"] == [{"task": 0.5}]
    assert CMNIST["pair head"][0] == 69.2


def test_a_second_row_holds_what_pair_s_takes_within_a_run(tmp_path):
    def record(epoch, vrex, train, test):
        losses = {"irm": 1e-4, "task": 0.5, "vrex": vrex}
        return {"epoch": epoch, "losses": losses, "train": {"worst_group": train}, "test": {"worst_group": test}}

    # the least loss after the first phase is at 160, but validates too badly; before it, nothing counts
    history = [record(100, 1e-9, 0.9, 0.1), record(150, 1e-3, 0.7, 0.2), record(155, 1e-4, 0.71, 0.3)]
    history += [record(160, 1e-6, 0.5, 0.4), record(165, 1e-2, 0.9, 0.5)]
    chosen = {"terms": "irm+vrex", "balance": "pair", "preference": "1,1e10,1e12"}
    last, by_losses = composite_rows([finished(tmp_path, "composite", history=history, **chosen)])
    assert (last["scheme"], last["values"]) == ("o", [0.6])
    assert (by_losses["scheme"], by_losses["values"]) == ("o+s", [0.3])
    assert by_losses["published"]["mean"] == pytest.approx(0.6916)


def test_every_rule_chooses_its_own_run(tmp_path):
    steps = np.arange(6)
    flat = RunHistory("flat", steps, np.full((6, 2), 0.5), np.full(6, 0.9), np.full(6, 0.1))
    low = RunHistory("low", steps, np.tile([0.5, 1e-6], (6, 1)), np.full(6, 0.85), np.full(6, 0.5))
    bad = RunHistory("bad", steps, np.tile([0.7, 1e-9], (6, 1)), np.full(6, 0.5), np.full(6, 0.7))
    found = choices([flat, low, bad])
    assert {rule: chosen.name for rule, chosen in found.items()} == {
        "validation": "flat",
        "pair-s": "low",
        "oracle": "bad",
        "oracle pair-s": "bad",
    }
    assert choices([flat, low, bad], "groupdro")["pair-s"].name == "flat"  # compared by validation
    assert set(choices([flat, low, bad], "erm")) == {"validation", "oracle"}


def test_selection_rows_have_a_value_a_seed_for_every_rule(tmp_path):
    def history(test):
        splits = {"val": {"worst_group": 0.8}, "test": {"worst_group": test}}
        return [{"epoch": e, "losses": {"irm": 0.1, "task": 0.5}, **splits} for e in range(3)]

    jobs = [
        finished(tmp_path, "irm", "cmnist:holdout=10000", seed, history(0.1 * seed + 0.01 * n), penalty=float(n))
        for seed in (0, 1)
        for n in (1, 2)
    ]
    rows = selection_rows(jobs)
    assert [row["variant"]["rule"] for row in rows] == ["validation", "oracle", "pair-s", "oracle pair-s"]
    assert all(row["method"] == "irm" and row["seeds"] == 2 and row["settings"] == 2 for row in rows)
    assert rows[1]["values"] == pytest.approx([0.02, 0.12])
    assert rows[2]["published_gain"] == pytest.approx(0.143)
    (jobs[0].out / "metrics.json").unlink()  # a setting that diverged
    assert selection_rows(jobs)[1]["values"] == pytest.approx([0.02, 0.12])
    assert RECIPES["pair-selection"].may_diverge


def test_conflicts_are_averaged_over_the_last_steps_and_penalties(tmp_path):
    history = [
        {"epoch": e, "losses": {"task": 1.0}, "balance": {"cosine": {"irm": c, "vrex": -c}}}
        for e, c in enumerate([9.0] * 5 + [0.5] * 50)
    ]
    history[-1]["balance"]["cosine"] = {"irm": 1.0, "vrex": 0.0}
    (row,) = conflict_rows([finished(tmp_path, "composite", history=history, terms="irm+vrex", penalty=1.0)])
    assert (row["metric"], row["mean"]) == ("cosine", pytest.approx(0.5 / 50))


def test_trajectories_hold_the_weights_of_every_step(tmp_path):
    run = sp.fit("irmx", "two-bit:per_env=20", balance="pair", epochs=4, anneal_steps=2, batch_size=None, widths=(4,))
    (row,) = trajectory_rows([finished(tmp_path, "irmx", history=run.history, balance="pair")])
    assert row["weights"]["task"][:2] == [1.0, 1.0]
    assert row["nonuniformity"][0] is None
    assert len(row["losses"]["vrex"]) == 4
    assert "weights of PAIR-o" in words_in(draw_trajectories([row], tmp_path / "a.svg"))


def test_the_failure_of_irm_is_in_the_table_and_in_the_figure(tmp_path):
    rows = failure_rows()
    square = {(r["method"], r["metric"]): r for r in rows if r["variant"]["loss"] == "square"}
    assert square["false 1", "task"]["mean"] == pytest.approx(0.168974, abs=1e-6)
    assert square["ERM", "vrex"]["mean"] == pytest.approx(1.3221e-3, abs=1e-6)
    assert "false 1" in square["IRM", "task"]["dominated_by"]
    assert square["false 1", "task"]["dominated_by"] == []
    assert "equal risks" in words_in(draw_failure(rows, tmp_path / "a.svg"))


def test_invariance_is_zero_for_a_predictor_that_ignores_the_second_coordinate():
    weights = [w.clone() for w in stack_of(Member(0, 0), Member(0, 1)).weights]
    assert min(invariance(weights)) > 1e-6
    weights[0][1, 1] = 0
    assert invariance(weights)[0] > 1e-6
    assert invariance(weights)[1] == pytest.approx(0, abs=1e-12)


def test_regressions_are_trained_side_by_side_kept_by_validation_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.papers.pair.extrapolation.SECONDS_BETWEEN_SAVES", 0.0)
    recipe = RECIPES["pair-extrapolation"]
    work = recipe.work(tmp_path, seeds=2, smoke=True, device="cpu", only=["extrapolation:sampling=uniform"])
    with pytest.raises(ShiftproofError, match=r"stack.safetensors is not there, so nothing is finished; ask"):
        extrapolated(replace(work, collect=True))
    rows = extrapolated(work)
    assert [row["seeds"] for row in rows] == [2] * 10
    assert rows[1]["values"][0] != rows[1]["values"][1]
    assert sorted({row["published"]["mean"] for row in rows if row["variant"]}) == [0.06]
    assert [path.name for path in tmp_path.iterdir()] == ["stack.safetensors"]
    monkeypatch.setattr("shiftproof.papers.pair.extrapolation.Stack", None)  # finished: nothing is trained again
    assert extrapolated(replace(work, collect=True)) == rows
    with pytest.raises(ShiftproofError, match=r"holds other data sets or seeds \(.*uniform, 2 seeds\); ask for those"):
        extrapolated(replace(work, collect=True, seeds=range(1)))
    picture = draw_extrapolation(rows, tmp_path / "a.svg")
    assert picture == tmp_path / "a.svg"
    assert "uniform: erm" in words_in(picture)


def test_a_killed_stack_of_regressions_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.papers.pair.extrapolation.SECONDS_BETWEEN_SAVES", 0.0)
    recipe, only = RECIPES["pair-extrapolation"], ["extrapolation:sampling=uniform"]
    whole = extrapolated(recipe.work(tmp_path / "whole", seeds=1, smoke=True, device="cpu", only=only))
    original = Extrapolating.save

    def killed(self):
        original(self)
        if self.epoch == 2:
            raise KeyboardInterrupt

    work = recipe.work(tmp_path / "killed", seeds=1, smoke=True, device="cpu", only=only)
    with monkeypatch.context() as patch:
        patch.setattr(Extrapolating, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            extrapolated(work)
    again = extrapolated(work)
    assert [row["values"] for row in again] == [row["values"] for row in whole]
    assert [path.name for path in work.folder.iterdir()] == ["stack.safetensors"]


@pytest.mark.slow
def test_a_smoke_run_trains_pair_on_motifs(tmp_path):
    words = ["bench", "pair-ciga", "--smoke", "--only", "spmotif-struc", "--only", "bias=0.6", "--device", "cpu"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "results")])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "runs" / "pair-ciga-smoke" / "pair-ciga.json").read_text())["rows"]
    assert {"balance_solver", "preference"} <= {key for row in rows for key in row["variant"]}
    assert "written:" in done.output


def test_a_smoke_run_of_the_table(tmp_path, real_data):
    words = ["bench", "pair-cmnist", "--smoke", "--device", "cpu", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "pair-cmnist-smoke" / "pair-cmnist.json").read_text())["rows"]
    assert len(rows) == len(recipes["pair-cmnist"].make().cells)
    # nobody printed a figure with clipped steps, or with one trait of the released solver alone
    ours = {"balance_clip", "solver_compat"}
    assert all(any(one in row["variant"] for row in rows) for one in ours)
    assert all((row["published"] is None) == bool(ours & row["variant"].keys()) for row in rows)
