"""Runs that share a stage end as if each had trained its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import shiftproof as sp
from shiftproof.api.fitting import Plan
from shiftproof.data import load
from shiftproof.methods import Method
from shiftproof.registry import recipes
from shiftproof.runtime.files import read_tensors
from shiftproof.sweeps import Job, run_jobs
from shiftproof.sweeps.jobs import load_for, train
from shiftproof.sweeps.ray_engine import _train_on_worker, _write
from shiftproof.sweeps.stage_reuse import STAGES, suppliers_first, take_stage

TINY = "spmotif-gsat:train_per_class=4,val_per_class=4,test_per_class=4"
SHORT = {"epochs": 3, "hidden": 8, "decay_interval": 1}
PLAIN = {"epochs": 3, "hidden": 8}


def job_in(folder: Path, method: str, name: str = "", seed: int = 0, **settings) -> Job:
    own = {"samples": 2} if method.startswith("gmt-s") else {}
    own |= {"explainer_epochs": 1} if method == "pgexplainer" else {}
    own |= {"steps": 2} if method == "gnnexplainer" else {}
    chosen = {**(PLAIN if method in ("erm", "gnnexplainer", "pgexplainer") else SHORT), **own, **settings}
    out = folder / "data" / (name or method) / f"seed-{seed}"
    return Job(TINY, method, seed, out, chosen, resume=True, device="cpu", share_stages=True)


def files_of(job: Job) -> dict[str, Any]:
    """Everything a run left behind but the clock; of weights the numbers, as their file has no fixed order."""
    found = (path for path in sorted(job.out.rglob("*")) if path.is_file() and path.name != "timing.json")
    return {path.relative_to(job.out).as_posix(): content_of(path) for path in found}


def content_of(path: Path) -> Any:
    if path.suffix != ".safetensors":
        return path.read_bytes()
    tensors, note = read_tensors(path, "a test")
    return note, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def stage_of(job: Job) -> Path:
    return job.out / STAGES[job.method].folder


def clock_of(folder: Path) -> dict:
    return json.loads((folder / "timing.json").read_text())


@pytest.fixture(autouse=True)
def one_commit(monkeypatch):
    monkeypatch.setenv("SHIFTPROOF_COMMIT", "abc")


@pytest.mark.parametrize(
    ("supplier", "user"),
    [
        (("gsat", {}), ("gsat-min0", {})),
        (("gmt-simulated", {}), ("gmt-sam", {"init": "old"})),
        (("gmt-sam", {"decoding": "min0"}), ("gmt-sam", {"decoding": "normal"})),
        (("erm", {}), ("gnnexplainer", {})),
        (("gnnexplainer", {}), ("pgexplainer", {})),
        (("gnnexplainer", {"ties_by_loss": False}), ("pgexplainer", {"ties_by_loss": False})),
    ],
)
def test_a_run_with_a_stage_of_another_is_byte_for_byte_the_run_that_trained_its_own(tmp_path, supplier, user):
    first = job_in(tmp_path / "shared", supplier[0], "first", **supplier[1])
    shared = job_in(tmp_path / "shared", user[0], "second", **user[1])
    alone = job_in(tmp_path / "alone", user[0], **user[1])
    list(run_jobs([first, shared, alone], style="none"))
    source = first.out if first.method not in STAGES else stage_of(first)
    assert clock_of(stage_of(shared)) == clock_of(source)  # it was not trained again
    assert files_of(shared) == files_of(alone)
    graphs = load(TINY).test[:3]
    ours, theirs = (sp.explain(sp.Run.load(job.out), graphs).edge_scores for job in (shared, alone))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "other",
    [
        {"final_r": 0.8},
        {"penalty": 0.5},
        {"lr": 1e-2},
        {"hidden": 4},
        {"batch_size": 4},
        {"reference_epochs": 2},
        {"selection": "last"},
    ],
)
def test_a_stage_with_other_settings_is_not_taken(tmp_path, other):
    list(run_jobs([job_in(tmp_path, "gsat")], style="none"))
    job = job_in(tmp_path, "gsat-min0", **other)
    assert take_stage(job, load_for(job)) is None
    assert not job.out.exists()
    same = job_in(tmp_path, "gsat-min0", decoding="normal")
    assert take_stage(same, load_for(same)) == tmp_path / "data" / "gsat" / "seed-0"


def test_a_stage_of_another_seed_data_device_or_compilation_is_not_taken(tmp_path):
    gsat = job_in(tmp_path, "gsat")
    list(run_jobs([gsat], style="none"))
    job = job_in(tmp_path, "gsat-min0")
    others = [
        job_in(tmp_path, "gsat-min0", seed=1),
        replace(job, seed=1),
        replace(job, data=TINY.replace("train_per_class=4", "train_per_class=3")),
        replace(job, compile=True),
    ]
    assert [take_stage(one, load_for(one)) for one in others] == [None] * 4
    clock = clock_of(gsat.out)
    (gsat.out / "timing.json").write_text(json.dumps({**clock, "device": "a GPU"}))
    assert take_stage(job, load_for(job)) is None


def test_a_model_whose_ties_the_loss_decided_is_not_one_whose_ties_the_first_epoch_won(tmp_path):
    list(run_jobs([job_in(tmp_path, "erm"), job_in(tmp_path, "gnnexplainer")], style="none"))
    job = job_in(tmp_path, "pgexplainer", ties_by_loss=False)
    assert take_stage(job, load_for(job)) is None


def test_an_unfinished_or_damaged_run_supplies_nothing(tmp_path):
    gsat = job_in(tmp_path, "gsat")
    list(run_jobs([gsat], style="none"))
    job = job_in(tmp_path, "gsat-min0")
    for name in ("metrics.json", "weights.safetensors", "config.json"):
        content = (gsat.out / name).read_bytes()
        (gsat.out / name).unlink()
        assert take_stage(job, load_for(job)) is None
        (gsat.out / name).write_bytes(content)
    assert take_stage(job, load_for(job)) == gsat.out


def test_a_kill_while_a_stage_is_copied_or_after_it_changes_nothing(tmp_path, monkeypatch):
    gsat, alone = job_in(tmp_path / "shared", "gsat"), job_in(tmp_path / "alone", "gsat-min0")
    list(run_jobs([gsat, alone], style="none"))
    job = job_in(tmp_path / "shared", "gsat-min0")
    take_stage(job, load_for(job))
    (stage_of(job) / "metrics.json").unlink()
    (stage_of(job) / "timing.json").unlink()
    assert take_stage(job, load_for(job)) == gsat.out  # half a copy is made whole

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shiftproof.training.loop.Loop.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            train(job)
    assert not job.finished
    assert take_stage(job, load_for(job)) is None  # the stage stands, the rest goes on
    assert train(job)
    assert files_of(job) == files_of(alone)


def test_a_stage_that_has_begun_goes_on_by_itself(tmp_path):
    job = job_in(tmp_path, "gsat-min0")
    stage_of(job).mkdir(parents=True)
    (stage_of(job) / "checkpoint.safetensors").write_bytes(b"")
    list(run_jobs([job_in(tmp_path, "gsat")], style="none"))
    assert take_stage(job, load_for(job)) is None


def test_stages_are_shared_only_where_a_job_says_so(tmp_path):
    list(run_jobs([job_in(tmp_path, "gsat")], style="none"))
    job = replace(job_in(tmp_path, "gsat-min0"), share_stages=False)
    list(run_jobs([job], style="none"))
    assert clock_of(stage_of(job)) != clock_of(tmp_path / "data" / "gsat" / "seed-0")


def test_a_ray_worker_takes_a_stage_where_it_sees_the_folder_and_trains_it_elsewhere(tmp_path):
    gsat, here = job_in(tmp_path / "ray", "gsat"), job_in(tmp_path / "ray", "gsat-min0", "here")
    elsewhere, mark = job_in(tmp_path / "ray", "gsat-min0", "elsewhere"), tmp_path / "mark"
    mark.touch()
    assert _train_on_worker(gsat, str(mark), {}) == (True, {})
    assert _train_on_worker(here, str(mark), {}) == (True, {})
    assert clock_of(stage_of(here)) == clock_of(gsat.out)
    ours, files = _train_on_worker(elsewhere, str(tmp_path / "no mark"), {})
    assert ours
    _write(elsewhere.out, files)
    assert clock_of(stage_of(elsewhere)) != clock_of(gsat.out)
    assert files_of(here) == files_of(elsewhere)


def test_who_can_take_a_stage_comes_after_the_others_of_its_seed(tmp_path):
    jobs = [
        job_in(tmp_path, method, seed=seed)
        for seed in (0, 1)
        for method in ("gsat-min0", "gmt-sam", "gnnexplainer", "pgexplainer", "gsat")
    ]
    ordered = suppliers_first(jobs)
    assert [job.seed for job in ordered] == [job.seed for job in jobs]
    assert [job.method for job in ordered[:5]] == ["gmt-sam", "gnnexplainer", "gsat", "gsat-min0", "pgexplainer"]
    alone = [replace(job, share_stages=False) for job in jobs]
    assert suppliers_first(alone) == alone


def settings_of(method: Method) -> dict:
    simple = {k: v for k, v in vars(method).items() if isinstance(v, (bool, int, float, str)) and k != "training"}
    schedule = getattr(method, "schedule", None)
    return {**simple, "weights": method.weights, "ties": method.how_trained.ties_by_loss, "schedule": schedule}


@pytest.mark.parametrize("recipe", ["gmt-table1", "gmt-table2"])
def test_what_a_run_of_the_tables_trains_first_starts_as_the_run_it_may_be_taken_from(recipe):
    """Same weights and settings before the first step, for every cell; the plans say the rest."""
    for cell in recipes[recipe].make().cells:
        stage = STAGES.get(cell.method)
        if stage is None:
            continue
        data = replace(load(TINY), name=cell.data.partition(":")[0])
        plans = [Plan.make(name, data, cell.variant) for name in (cell.method, stage.method)]
        built = []
        for plan in plans:
            torch.manual_seed(0)
            built.append(plan.build(None))
        part = getattr(built[0], stage.folder)
        assert plans[0].training == plans[1].training
        assert plans[0].network == plans[1].network
        assert settings_of(part) == settings_of(built[1])
        assert type(part) is type(built[1])
        ours, theirs = part.state_dict(), built[1].state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
