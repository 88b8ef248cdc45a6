"""What `auto` takes: judged on rows held out as the test rows are, the simplest of those that cannot be told apart."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import shiftproof as sp
from shiftproof.api.candidates import Candidate, candidates_of_rows
from shiftproof.api.choosing import choose
from shiftproof.api.held_out import HeldOut, held_out, whole_groups_of
from shiftproof.api.judging import Judged, decide, judge
from shiftproof.data import Dataset, DomainSet
from shiftproof.errors import ShiftproofError
from shiftproof.statistics.significance import over_parts
from tests.data.readers.tables_to_read import assays
from tests.methods.test_vector_methods import table_of


@pytest.fixture
def molecules(tmp_path: Path) -> Dataset:
    pytest.importorskip("rdkit")
    return sp.load(assays(tmp_path / "a.csv", 64), label="active")


def test_scaffolds_are_held_out_whole_and_every_row_is_judged_once_a_repeat(molecules: Dataset) -> None:
    held = held_out(molecules, folds=3, repeats=2)
    scaffold = molecules.train.columns["scaffold"]
    for trained, judged in held.parts:
        assert not set(scaffold[trained].tolist()) & set(scaffold[judged].tolist())
        assert len(trained) + len(judged) == len(molecules.train)
    counts = torch.cat([judged for _, judged in held.parts]).bincount(minlength=len(molecules.train))
    assert counts.unique().tolist() == [2]
    assert held.like_the_shift
    assert "whole scaffolds" in held.how
    kept, stop = whole_groups_of(molecules, held.parts[0][0], 0.3, seed=0)
    assert len(stop)
    assert not set(scaffold[kept].tolist()) & set(scaffold[stop].tolist())


def test_rows_split_by_size_are_judged_by_models_of_smaller_ones(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    data = sp.load(assays(tmp_path / "a.csv"), label="active", split="size")
    sizes = data.train.sizes
    for trained, judged in held_out(data).parts:
        assert int(sizes[trained].max()) <= int(sizes[judged].min())


def test_environments_are_held_out_whole_and_rows_without_any_at_random() -> None:
    data = table_of("binary")
    assert not held_out(data).like_the_shift
    env = torch.arange(len(data.train)) % 4
    train = DomainSet(data.train.x, data.train.y, env, columns={"site": env})
    held = held_out(replace(data, environment="site").with_splits(train=train))
    assert held.like_the_shift
    assert len(held.parts) == 8
    assert all(len(env[judged].unique()) == 1 for _, judged in held.parts)


def test_the_interval_over_parts_is_the_corrected_one() -> None:
    values = [0.01, 0.03, 0.02, 0.05]
    found = over_parts(values, 0.25)
    reach = stats.t.ppf(0.975, 3) * np.sqrt((1 / 4 + 0.25) * np.var(values, ddof=1))
    assert found.mean == pytest.approx(0.0275)
    assert (found.low, found.high) == pytest.approx((0.0275 - reach, 0.0275 + reach))


def judged_as(names_and_logits: dict[str, list[torch.Tensor]], data: Dataset, held: HeldOut) -> list[Judged]:
    from shiftproof.api.judging import score

    found = []
    for name, logits in names_and_logits.items():
        one = Judged(Candidate(name, name), logits=logits)
        one.scores = [score(own, data, rows) for own, (_, rows) in zip(logits, held.parts, strict=True)]
        found.append(one)
    return found


def noisy(data: Dataset, held: HeldOut, noise: float, seed: int) -> list[torch.Tensor]:
    """What a model says that knows the labels but for noise of its own."""
    g = torch.Generator().manual_seed(seed)
    return [2 * data.train.y[rows] - 1 + noise * torch.randn(len(rows), generator=g) for _, rows in held.parts]


def test_who_is_better_beyond_chance_is_taken_alone() -> None:
    data = replace(table_of("binary", samples=440), metric="roc_auc")
    held = held_out(data)
    found = judged_as({"forest": noisy(data, held, 4.0, 0), "erm": noisy(data, held, 0.7, 1)}, data, held)
    verdict = decide(found, data, held)
    assert verdict is not None
    assert [one.name for one in verdict.chosen] == ["erm"]
    assert verdict.why == "better than every other beyond chance"


def test_of_candidates_that_tie_the_mean_is_taken_where_it_is_better_else_the_simplest() -> None:
    data = replace(table_of("binary", samples=840), metric="roc_auc")
    held = held_out(data)
    same = noisy(data, held, 1.5, 0)
    other = noisy(data, held, 1.5, 1)  # errors of its own
    verdict = decide(judged_as({"forest": same, "linear": other}, data, held), data, held)
    assert verdict is not None
    assert [one.name for one in verdict.chosen] == ["forest", "linear"]
    assert "their mean is ahead of it" in verdict.why
    alike = decide(judged_as({"forest": same, "linear": same}, data, held), data, held)
    assert alike is not None
    assert [one.name for one in alike.chosen] == ["forest"]


def test_who_was_judged_on_few_parts_joins_no_mean() -> None:
    data = replace(table_of("binary", samples=440), metric="roc_auc")
    held = held_out(data)
    found = judged_as({"forest": noisy(data, held, 1.5, 0), "erm": noisy(data, held, 1.5, 1)}, data, held)
    found[1].scores, found[1].logits = found[1].scores[:3], found[1].logits[:3]
    verdict = decide(found, data, held)
    assert verdict is not None
    assert [one.name for one in verdict.chosen] == ["forest"]


def test_auto_takes_a_method_on_vectors_for_molecules_and_says_why(molecules: Dataset, tmp_path: Path) -> None:
    run = sp.fit("auto", molecules, trees=3, out=tmp_path / "run")
    told = run.timing["chosen"]
    tried = [one.name for one in candidates_of_rows(molecules)]
    assert list(told["candidates"]) == tried
    assert tried == ["forest", "linear", "forest with descriptors", "boosting", "tanimoto-gp"]
    assert told["method"] == run.name
    assert "whole scaffolds of the training rows" in told["reason"]
    assert "of at most 300 seconds" in told["reason"]
    assert all(one["seconds"] > 0 and len(one["parts"]) == 10 for one in told["candidates"].values())
    again = sp.Run.load(tmp_path / "run")
    assert again.timing["chosen"] == told
    assert len(again.predict(["CCO", "c1ccccc1O"])) == 2


def test_what_the_time_does_not_reach_for_is_left_out_and_said() -> None:
    data = table_of("binary", samples=100)
    held = held_out(data)
    found = judge(
        [Candidate("linear", "linear"), Candidate("forest", "forest")],
        data,
        held,
        until=time.monotonic(),
        seed=0,
        device="cpu",
        settings={},
    )
    assert all("the time did not reach" in one.why_not for one in found)
    choice = choose(data, minutes=1e-4)
    assert choice.method == "forest"
    assert "no candidate could be judged" in choice.reason


def test_a_slow_network_takes_no_time_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftproof.api import judging

    clock = [0.0]
    cost = {"linear": 1.0, "forest": 2.0, "erm": 60.0}
    data = table_of("binary", samples=100)
    held = held_out(data)

    def logits(candidate: Candidate, *_: object) -> torch.Tensor:
        clock[0] += cost[candidate.name]
        return torch.zeros(len(held.parts[0][1]))

    monkeypatch.setattr(judging.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(judging, "_held_out_logits", logits)
    monkeypatch.setattr(judging, "score", lambda *_: 0.5)
    candidates = [
        Candidate("forest", "forest"),
        Candidate("linear", "linear"),
        Candidate("erm", "erm", stops_early=True),
    ]
    found = judge(candidates, data, held, until=100.0, seed=0, device="cpu", settings={})
    assert [len(one.scores) for one in found[:2]] == [10, 10]
    assert "took 60 seconds a part" in found[2].why_not


def test_settings_that_no_candidate_has_are_refused() -> None:
    with pytest.raises(ShiftproofError, match="none of the methods that 'auto' tries has a setting 'tree'"):
        sp.fit("auto", table_of("binary"), tree=3)
    with pytest.raises(ShiftproofError, match="'minutes'"):
        sp.fit("auto", table_of("binary"), minutes=-1)


@pytest.mark.parametrize("task", ["regression", "multilabel", "multiclass"])
def test_auto_knows_every_kind_of_label(task: str) -> None:
    run = sp.fit("auto", table_of(task), trees=3)
    assert run.name in ("forest", "linear", "boosting", "blend")
    assert run.timing["chosen"]["candidates"]["linear"]["held_out"] is not None
