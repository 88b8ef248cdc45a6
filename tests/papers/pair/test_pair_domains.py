"""PAIR-s over left-out domains: settings inside their ranges, rules that choose as they say."""

from dataclasses import replace

import numpy as np
import pytest

from shiftproof.api.fitting import Plan
from shiftproof.data import load
from shiftproof.papers.pair.domains import FAR, RANGES, SETTINGS, domain_choices, domain_history, domain_rows
from shiftproof.pareto import RunHistory
from shiftproof.registry import recipes
from shiftproof.runtime.files import write_json
from shiftproof.sweeps import Job
from shiftproof.sweeps.recipes import folder_name

NAMES = ("pair-selection-pacs64", "pair-selection-domainbed", "pair-selection-office")
RECIPES = {name: recipes[name].make() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_a_folder_of_its_own_that_a_disk_can_hold(name):
    cells = RECIPES[name].cells
    folders = [folder_name(cell) for cell in cells]
    assert len(set(folders)) == len(folders)
    assert max(len(part) for folder in folders for part in folder.parts) < 255
    assert len({cell.method for cell in cells}) >= 5


def test_every_algorithm_has_twenty_settings_on_every_style():
    cells = RECIPES["pair-selection-pacs64"].cells
    for method in {cell.method for cell in cells}:
        mine = [cell for cell in cells if cell.method == method]
        assert len(mine) == 4 * SETTINGS
        assert len({str(cell.variant) for cell in mine}) == SETTINGS
    for cell in cells:
        assert 10**-4.5 <= cell.variant["lr"] <= 10**-2.5
        assert 8 <= cell.variant["batch_size"] <= 2**5.5
        if cell.method == "irm":
            assert 0.099 <= cell.variant["penalty"] <= 1e5
            assert 0 <= cell.variant["anneal_steps"] <= 2000  # 1,000 steps here, 5,000 there
        if cell.method == "dann":
            assert cell.variant["depth"] in (3, 4, 5)
            assert 1 <= cell.variant["discriminator_steps"] <= 8


def test_settings_are_those_of_methods_that_can_be_built():
    digits = replace(load("colored-digits"), name="office-caltech10")
    rng = np.random.default_rng(0)
    for method, draw in RANGES.items():
        plan = Plan.make(method, digits, {"protocol": "domainbed", **draw(rng)})
        plan.balance().check(plan.build(None))
        assert plan.training["domains_per_batch"] == "all"


def finished(folder, data, val, test, losses=None, method="irm", **variant) -> Job:
    job = Job(data, method, 0, folder / str(len(list(folder.iterdir()))), variant=variant)
    write_json(job.out / "config.json", {"metric": "accuracy"})
    write_json(job.out / "metrics.json", {"metrics": {"test": {"accuracy": test[-1]}}, "selection": "val"})
    write_json(job.out / "timing.json", {"device": "cpu"})
    losses = losses or [{"task": 1.0, "irm": 1.0}] * len(val)
    history = [
        {"epoch": t, "losses": losses[t], "val": {"accuracy": val[t]}, "test": {"accuracy": test[t]}}
        for t in range(len(val))
    ]
    write_json(job.out / "history.json", history)
    return job


def test_rows_hold_the_worst_domain_by_each_rule(tmp_path):
    jobs = []
    for domain, best in (("sketch", 0.4), ("photo", 0.8)):
        data = f"pacs64:size=32,test={domain}"
        flat = [{"task": 1.0, "irm": 1e-6}] * 2
        jobs.append(finished(tmp_path, data, [0.9, 0.9], [best - 0.2] * 2, penalty=1.0))
        jobs.append(finished(tmp_path, data, [0.88, 0.86], [best] * 2, flat, penalty=2.0))
        jobs.append(finished(tmp_path, data, [0.2, 0.2], [0.9] * 2, flat, penalty=3.0))
    rows = {row["variant"]["rule"]: row for row in domain_rows(jobs)}
    assert rows["validation"]["values"] == pytest.approx([0.2])
    assert rows["pair-s"]["values"] == pytest.approx([0.4])  # the smaller penalty among those that validate well
    assert rows["oracle"]["values"] == pytest.approx([0.9])
    assert rows["pair-s"]["by_domain"]["photo"]["values"] == pytest.approx([0.8])
    assert rows["pair-s"]["published_gain"] == pytest.approx(0.073)
    assert rows["validation"]["published_gain"] is None
    assert rows["pair-s"]["settings"] == 3
    assert "leave-one-out" not in rows


def test_leave_one_out_judges_by_the_domains_that_were_not_trained_on(tmp_path):
    data = "office-caltech10:test=dslr"
    jobs = []
    for setting, (val, folds, test) in enumerate(((0.9, (0.3, 0.3), 0.5), (0.8, (0.6, 0.4), 0.7))):
        jobs.append(finished(tmp_path, data, [val] * 2, [test] * 2, penalty=float(setting)))
        for fold, value in zip(("amazon", "webcam"), folds, strict=True):
            jobs.append(finished(tmp_path, f"{data},validate={fold}", [value] * 2, [0.0] * 2, penalty=float(setting)))
    rows = {row["variant"]["rule"]: row for row in domain_rows(jobs)}
    assert rows["validation"]["values"] == pytest.approx([0.5])
    assert rows["leave-one-out"]["values"] == pytest.approx([0.7])
    assert rows["leave-one-out pair-s"]["values"] == pytest.approx([0.7])


def test_a_table_of_what_is_finished_leaves_out_seeds_without_every_domain(tmp_path):
    whole = [finished(tmp_path, f"pacs64:test={d}", [0.9] * 2, [0.5] * 2, penalty=1.0) for d in ("photo", "sketch")]
    begun = replace(finished(tmp_path, "pacs64:test=photo", [0.9] * 2, [0.1] * 2, penalty=1.0), seed=1)
    diverged = finished(tmp_path, "pacs64:test=sketch", [0.9] * 2, [0.1] * 2, penalty=2.0)
    (diverged.out / "metrics.json").unlink()
    rows = domain_rows([*whole, begun, diverged])
    assert {tuple(row["values"]) for row in rows} == {(0.5,)}
    assert {row["settings"] for row in rows} == {1}


def test_adversarial_methods_count_by_the_loss_of_the_generator(tmp_path):
    losses = [{"task": 0.5, "domain": 1.0}, {"task": 0.5, "domain": 0.2}, {"task": 200.0, "domain": 1.0}]
    job = finished(tmp_path, "pacs64:test=photo", [0.5] * 3, [0.5] * 3, losses, method="dann", strength=2.0)
    found = domain_history(job).losses[:, 0]
    assert found == pytest.approx([FAR - 1.5, FAR + 0.1, FAR])
    assert found.argmin() == 0  # features that mislead the discriminator


def test_plain_training_has_nothing_for_pair_s_to_weigh():
    run = RunHistory("erm", np.arange(3), np.ones((3, 1)), np.ones(3), np.ones(3))
    assert set(domain_choices([(run, [])], "erm", "pacs64")) == {"validation", "oracle"}
