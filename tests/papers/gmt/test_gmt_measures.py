"""What the recipe of counterfactuals asks, and that it asks once."""

import copy
from pathlib import Path

import pytest

from shiftproof.explanations import counterfactual_fidelity
from shiftproof.papers.gmt import measures as gmt_measures
from shiftproof.papers.gmt.measures import REACTIONS, reaction_rows
from shiftproof.runtime.files import read_tensors, write_json
from shiftproof.sweeps import Job, run_jobs
from shiftproof.sweeps.jobs import load_for
from shiftproof.training import Run

DATA = "ba-2motifs:graphs=60"


def job_in(folder: Path, method: str) -> Job:
    few = {"epochs": 1, "hidden": 8, "candidates": "all", **({"samples": 2} if method == "gmt-sam" else {})}
    return Job(DATA, method, 0, folder / "ba" / method / "seed-0", few, resume=True)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> list[Job]:
    folder = tmp_path_factory.mktemp("reactions")
    return list(run_jobs([job_in(folder, "gsat"), job_in(folder, "gmt-sam")], style="none"))


def test_the_simulated_extension_is_the_first_stage_as_it_ended(jobs):
    rows = {(r["method"], r["variant"].get("samples"), r["split"], r["metric"]): r for r in reaction_rows(jobs)}
    job = jobs[1]
    first = copy.deepcopy(Run.load(job.out).method.extractor)
    first.load_state_dict(read_tensors(job.out / "extractor" / "weights.safetensors", "a test")[0])
    first.eval_samples = 10
    graphs = load_for(job)["test"][: gmt_measures.SMOKE_GRAPHS]
    wanted = counterfactual_fidelity(first, graphs, draws=gmt_measures.DRAWS, seed=job.seed)
    for distance, estimate in wanted.items():
        row = rows["gmt-simulated", 10, "test", f"counterfactual_{distance}"]
        assert row["mean"] == pytest.approx(estimate.value, rel=1e-6)
    assert rows["gsat", None, "test", "counterfactual_tv"]["times_gsat"] == 1


def test_what_was_measured_is_kept_with_the_run_and_asked_anew_when_the_question_changes(jobs, monkeypatch):
    before = reaction_rows(jobs)
    asked = []
    original = gmt_measures._measured_reactions
    monkeypatch.setattr(gmt_measures, "_measured_reactions", lambda job: asked.append(job) or original(job))
    assert reaction_rows(jobs) == before
    assert not asked
    write_json(jobs[0].out / REACTIONS, {"asked": {"draws": 3}, "found": []})
    assert reaction_rows(jobs) == before
    assert asked == [jobs[0]]
