"""Recipes of the FeAT paper: cells that can be built, rows that choose as they say, figures that are drawn."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from shiftproof.api.fitting import Plan
from shiftproof.cli import app
from shiftproof.data import load
from shiftproof.features import RoundLog
from shiftproof.papers.feat import analyses as feat_analyses
from shiftproof.papers.feat import tables as feat
from shiftproof.papers.feat.published import printed_head, printed_round
from shiftproof.papers.feat.theory import QUANTITIES, STARTS, draw_theory, theory_rows
from shiftproof.registry import datasets, parse_name, recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Job
from shiftproof.sweeps.recipes import folder_name

NAMES = ("feat-cmnist", "feat-termination", "feat-pacs64", "feat-graphs", "feat-pretraining", "feat-ablations")
RECIPES = {name: recipes[name].make() for name in NAMES}


def stand_in(data: str):
    """A few samples that pass for the data set, so that its preset is taken."""
    name, options = parse_name(data)
    assert {*options} - {"group"} <= {*datasets[name].options}
    if "graphs" in datasets[name].tags:
        tiny = load("spmotif-struc:bias=0.9,group=base", train_per_class=4, val_per_class=2, test_per_class=2)
        return replace(tiny, name=name, options={"bias": 0.9, "a": 0.8, "b": 0.9})
    digits = load("colored-digits")
    if name == "pacs64":  # a network for images wants them as such
        digits = digits.with_splits(**{n: replace(s, x=s.x.view(-1, 2, 8, 8)) for n, s in digits.splits.items()})
    return replace(digits, name=name)


@pytest.mark.parametrize("name", RECIPES)
def test_every_cell_can_be_built_and_has_a_folder_of_its_own(name):
    recipe = RECIPES[name]
    for cell in recipe.cells:
        Plan.make(cell.method, stand_in(cell.data), cell.variant).build(None)
    assert recipe.name == name
    assert len({folder_name(cell) for cell in recipe.cells}) == len(recipe.cells)


def test_a_smoke_run_shortens_every_stage(tmp_path):
    for job in RECIPES["feat-cmnist"].jobs(tmp_path, smoke=True):
        assert job.settings["round_epochs"] == 1
        assert set(job.settings.get("discovery_epochs", (1,))) == {1}
        assert ("head_steps" in job.settings) is (job.method == "feat-heads")


def finished(folder, seed: int, val, test) -> Job:
    job = Job("cmnist:validation=5000", "feat-heads", seed, folder / f"{seed}", variant={"features": "ifeat"})
    settings = [{"objective": "irm", "penalty": 10.0}, {"objective": "irm", "penalty": 1e4}]
    table = {"metric": "worst_group", "settings": settings, "steps": [5, 9], "scores": {"val": val, "test": test}}
    write_json(job.out / "heads.json", {**table, "probes": {"dfr": 0.5 + seed / 10}})
    write_json(job.out / "timing.json", {"device": "cpu", "commit": f"c{seed}"})
    return job


def test_one_penalty_and_length_is_chosen_for_all_seeds(tmp_path):
    # the first seed alone would take the second penalty, the test split the first length
    jobs = [
        finished(tmp_path, 1, [[0.1, 0.2], [0.5, 0.6]], [[0.9, 0.1], [0.3, 0.2]]),
        finished(tmp_path, 0, [[0.1, 0.2], [0.7, 0.5]], [[0.8, 0.1], [0.4, 0.2]]),
    ]
    honest, oracle, probe = feat.head_rows(jobs)
    assert honest["values"] == [0.4, 0.3]
    assert honest["chosen"] == {"penalty": 10.0, "steps": 9}
    assert honest["commit"] == "c0 and c1"
    assert honest["variant"] == {"features": "ifeat", "objective": "irm", "selection": "val"}
    assert honest["published"] == pytest.approx({"mean": 0.7057, "std": 0.0068})
    assert oracle["values"] == [0.8, 0.9]
    assert oracle["selection"].startswith("oracle")
    assert probe["values"] == [0.5, 0.6]
    assert probe["published"] is None


def swept(folder, number: int, variant: dict) -> Job:
    job = Job("cmnist:validation=5000", "feat-heads", 0, folder / f"{number}", variant=variant)
    settings = [{"objective": "irm", "penalty": 10.0}, {"objective": "vrex", "penalty": 10.0}]
    scores = {"val": [[0.1, 0.2]], "test": [[0.1 * number, 0.05 * number]]}
    table = {"metric": "worst_group", "settings": settings, "steps": [5], "scores": scores, "probes": {}}
    write_json(job.out / "heads.json", table)
    write_json(job.out / "timing.json", {"device": "cpu"})
    return job


def test_rows_of_the_analyses_say_what_was_swept(tmp_path):
    variants = [{"features": "none", "round_epochs": 1}, {"features": "erm", "round_epochs": 50}, {"features": "ifeat"}]
    jobs = [swept(tmp_path / "epochs", number, variant) for number, variant in enumerate(variants)]
    rows = [row for row in feat_analyses.epoch_rows(jobs) if row["variant"]["selection"] == "val"]
    assert [row["variant"].get("epochs") for row in rows] == [0, 0, 50, 50, None, None]
    assert all(row["published"] is None for row in rows)
    shown = words_in(feat_analyses.draw_pretraining(rows, tmp_path / "epochs.svg"))
    assert "FeAT" in shown
    assert "vrex" in shown
    knobs = [{"retention": 0.0}, {"retention": 10.0}, {"rounds": 1}, {"rounds": 3}]
    jobs = [swept(tmp_path / "knobs", n, {"features": "ifeat", **knob}) for n, knob in enumerate(knobs)]
    rows = feat_analyses.ablation_rows(jobs)
    assert [row["variant"].get("retention") for row in rows[::4]] == [0.0, 10.0, None, None]
    shown = words_in(feat_analyses.draw_ablations(rows, tmp_path / "knobs.svg"))
    assert "cmnist: rounds" in shown


def test_printed_figures_are_found_where_the_paper_has_them():
    assert printed_head("cmnist-m", "none", "clove") == pytest.approx({"mean": 0.7566, "std": 0.106})
    assert printed_head("cmnist", "ifeat", "groupdro") is None
    assert printed_head("pacs64", "erm", "erm") is None
    assert printed_round("cmnist", "retention_reported", 1) is None
    assert printed_round("cmnist", "retention_reported", 3) == pytest.approx({"mean": 0.4382, "std": 0.0059})
    assert printed_round("cmnist", "train_accuracy", 4) is None


def test_rounds_are_reported_in_both_readings_and_by_rule(tmp_path):
    jobs = []
    for seed in (0, 1):
        job = Job("cmnist", "feat", seed, tmp_path / f"{seed}", variant={"rounds": 3})
        for number, (train, kept) in enumerate([(0.85, None), (0.72, 0.88), (0.85, 0.87)], 1):
            reported = None if kept is None else kept / (number - 1)
            agreement = (0.995, 0.7)[: number - 1]
            scores = {"test": 0.1 * number}
            entry = RoundLog(number, 1, 0.1, train, train, kept, reported, agreement, 3, 1, scores, scores)
            write_json(job.out / "features" / f"round-{number}.json", {"log": entry.to_json(), "best": None})
        write_json(job.out / "timing.json", {"device": "cpu"})
        jobs.append(job)
    rows = {(row["variant"]["round"], row["metric"]): row for row in feat.round_rows(jobs)}
    assert rows[3, "retention_accuracy"]["mean"] == pytest.approx(0.87)
    assert rows[3, "retention_reported"]["mean"] == pytest.approx(0.435)
    assert rows[3, "stops_sum130"]["mean"] == 1
    assert rows[3, "stops_honest_sum"]["mean"] == 0
    assert rows[3, "stops_novelty"]["mean"] == 1
    assert rows[2, "stops_novelty"]["mean"] == 1, "agreement with round 1"
    assert rows[1, "stops_sum130"]["mean"] == 0
    assert rows[2, "ood_accuracy"]["published"]["mean"] == pytest.approx(0.7064)
    shown = words_in(feat.draw_rounds(list(rows.values()), tmp_path / "rounds.svg"))
    assert "retention reported" in shown
    assert "cmnist" in shown


def words_in(picture) -> str:
    return " ".join(ElementTree.fromstring(picture.read_text()).itertext())


def test_the_theory_needs_no_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.papers.feat.theory.SEEDS", 1)
    monkeypatch.setattr("shiftproof.papers.feat.theory.STARTS", {"after ERM": 60, "from scratch": 0})
    rows = theory_rows()
    assert len(rows) == 2 * len(QUANTITIES)
    by_name = {(row["variant"]["start"], row["metric"]): row for row in rows}
    ended = by_name["after ERM", "spurious"]["at_end_of_erm"]["mean"]
    assert ended > by_name["after ERM", "invariant"]["at_end_of_erm"]["mean"] > 0.1
    assert abs(by_name["from scratch", "spurious"]["mean"]) < 0.01
    assert len(STARTS) == 2
    shown = words_in(draw_theory(rows, tmp_path / "theory.svg"))
    assert "scale gradients, IRMv1 from scratch" in shown


def test_a_smoke_run_of_graphs_trains_measures_and_draws(tmp_path):
    words = ["bench", "feat-graphs", "--smoke", "--only", "spmotif-struc", "--device", "cpu", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "feat-graphs-smoke" / "feat-graphs.json").read_text())["rows"]
    assert {row["variant"]["features"] for row in rows} == {"erm", "bonsai", "ifeat"}
    assert all(0 <= row["mean"] <= 1 for row in rows if row["mean"] is not None)
    assert "ifeat" in words_in(tmp_path / "feat-graphs-smoke" / "feat-graphs.svg")
