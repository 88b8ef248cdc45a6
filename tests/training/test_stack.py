"""Several seeds trained as one: the same steps as each by itself."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import shiftproof as sp
from shiftproof.cli import app
from shiftproof.data import load
from shiftproof.data.padding import pad_batches
from shiftproof.errors import ShiftproofError
from shiftproof.nn import GNNEncoder
from shiftproof.sweeps import Job, run_jobs
from shiftproof.sweeps.jobs import bundles
from shiftproof.training import CannotStack, Run
from shiftproof.training.balance import Weighted
from shiftproof.training.run import STACK
from shiftproof.training.stack import BatchStack, Stack
from shiftproof.training.steps import ReplayedStepper
from tests.training.stacks import GRAPHS, SMALL, members_of

STILL = ("erm", "irm", "vrex", "xgnn", "ciga-v1", "ciga-v2", "disc", "dir", "grea", "moleood")
NOISY = ("gsat", "gmt-lin", "cal")


@pytest.fixture(scope="module")
def graphs():
    return load(GRAPHS)


def batches_of(graphs, count: int) -> list[dict[str, torch.Tensor]]:
    padded = pad_batches(graphs.train[torch.arange(8 * count)], 8, 400, 1200)
    fields = [dict(zip(padded.names, padded.slot(number), strict=True)) for number in range(count)]
    return [{k: v.double() if v.is_floating_point() else v for k, v in some.items()} for some in fields]


@pytest.mark.parametrize("conv", ["gcn", "gin", "pna"])
@pytest.mark.parametrize("method", STILL)
def test_losses_gradients_and_statistics_are_those_of_each_member_alone(graphs, method, conv):
    members = members_of(method, graphs, conv=conv)
    batches = batches_of(graphs, 3)
    alone = []
    for member, fields in zip(copy.deepcopy(members), batches, strict=True):
        torch.manual_seed(1)
        terms = member.losses(sp.data.GraphBatch(num_graphs=8, **fields))
        sum(terms.values()).backward()
        alone.append((terms, member))
    whole = Stack(members)
    torch.manual_seed(1)
    together = whole.losses(BatchStack(8, {k: torch.stack([b[k] for b in batches]) for k in batches[0]}))
    sum(term.sum() for term in together.values()).backward()
    for number, (terms, member) in enumerate(alone):
        for name, value in terms.items():
            torch.testing.assert_close(together[name][number], value)
        for name, parameter in member.named_parameters():
            found = whole.get_parameter(name.replace(".", "|")).grad
            if parameter.grad is not None:
                torch.testing.assert_close(found[number], parameter.grad, rtol=1e-6, atol=1e-9)
        for name, buffer in member.named_buffers():
            torch.testing.assert_close(members[number].get_buffer(name), buffer)  # a view of the stack's


@pytest.mark.filterwarnings("ignore:r falls")
@pytest.mark.parametrize("method", NOISY)
def test_every_member_draws_noise_of_its_own(graphs, method):
    first, *_ = members_of(method, graphs)
    (fields,) = batches_of(graphs, 1)
    several = Stack([copy.deepcopy(first) for _ in range(3)])
    with torch.no_grad():
        terms = several.losses(BatchStack(8, {k: torch.stack([v] * 3) for k, v in fields.items()}))
    drawn = torch.stack(list(terms.values())).std(1)
    assert drawn.max() > 0


def test_training_together_is_training_alone(graphs, tmp_path):
    settings = {**SMALL, "dropout": 0.0, "patience": 50, "warmup": 0}
    together = sp.fit_seeds("erm", graphs, seeds=(4, 7, 5), out=tmp_path, **settings)
    for seed, run in zip((4, 7, 5), together, strict=True):
        alone = sp.fit("erm", graphs, seed=seed, **settings)
        assert run.config["seed"] == seed
        assert run.selected_epoch == alone.selected_epoch
        assert [r["epoch"] for r in run.history] == [r["epoch"] for r in alone.history]
        for one, other in zip(run.history, alone.history, strict=True):
            assert one["losses"]["task"] == pytest.approx(other["losses"]["task"], rel=1e-3)
            assert one["steps"] == other["steps"] == 3
            assert one["val"] == other["val"]
        assert run.metrics["test"]["accuracy"] == pytest.approx(alone.metrics["test"]["accuracy"])
        assert run.timing["stacked"] == 3
        again = Run.load(tmp_path / f"seed-{seed}")
        assert again.metrics == run.metrics
    assert not list(tmp_path.rglob("*.safetensors.*"))
    assert not list(tmp_path.rglob(STACK))


@pytest.mark.parametrize("stacked", [False, True])
def test_a_captured_step_is_captured_anew_when_more_samples_are_drawn(graphs, stacked):
    """Also without a penalty, whose weight would change with them."""
    members = members_of("gmt-simulated", graphs, samples=4, sample_warmup="single", decay_interval=2, penalty=0.0)
    method = Stack(members) if stacked else members[0]
    stepper = ReplayedStepper(method, torch.optim.Adam(method.parameters()), Weighted())
    phases = []
    for epoch in range(4):
        for member in members:
            member.start_epoch(epoch)
        phases.append(stepper._phase(epoch))
    assert phases[0] == phases[1] != phases[2] == phases[3]


def test_what_cannot_be_stacked_says_why(graphs):
    with pytest.raises(CannotStack, match="graphs can be stacked"):
        sp.fit_seeds("erm", "two-bit:per_env=20", seeds=(0, 1), epochs=1)
    with pytest.raises(CannotStack, match="'gala' chooses its samples"):
        sp.fit_seeds("gala", graphs, seeds=(0, 1), **SMALL)
    with pytest.raises(CannotStack, match="'gil' cannot be stacked"):
        sp.fit_seeds("gil", graphs, seeds=(0, 1), **SMALL)
    with pytest.raises(CannotStack, match="are changed one by one"):
        sp.fit_seeds("erm", replace(graphs, augment=lambda batch: batch), seeds=(0, 1), **SMALL)
    with pytest.raises(CannotStack, match="weighted sum"):
        sp.fit_seeds("irm", graphs, seeds=(0, 1), balance="pair", **SMALL)
    with pytest.raises(ShiftproofError, match="the same for all seeds"):
        sp.fit_seeds("erm", graphs, seeds=(0, 1), network=nn.Linear(3, 3))
    with pytest.raises(ShiftproofError, match="'auto' chooses"):
        sp.fit_seeds("auto", graphs, seeds=(0, 1))
    with pytest.raises(ShiftproofError, match="different numbers"):
        sp.fit_seeds("erm", graphs, seeds=(1, 1), **SMALL)


@pytest.mark.filterwarnings("ignore:r falls")
def test_samples_that_do_not_fit_into_memory_for_all_are_not_stacked(graphs):
    settings = {**SMALL, "samples": 8, "epochs": 1, "dropout": 0.0}
    assert len(sp.fit_seeds("gmt-simulated", graphs, seeds=(0, 1), **settings)) == 2
    with pytest.raises(CannotStack, match="of 8 samples fit into memory"):
        sp.fit_seeds("gmt-simulated", graphs, seeds=(0, 1), memory_gib=1e-3, **settings)


def jobs_in(folder, method: str = "erm", count: int = 3, **settings) -> list[Job]:
    chosen = {**SMALL, **settings}
    return [Job(GRAPHS, method, s, folder / method / f"seed-{s}", chosen, resume=True) for s in range(count)]


def test_jobs_are_bundled_by_what_they_share(tmp_path):
    one, other = jobs_in(tmp_path, count=5), jobs_in(tmp_path, "irm", count=2)
    mixed = [one[0], other[0], *one[1:], other[1]]
    assert bundles(mixed, 3) == [one[:3], other, one[3:]]
    assert bundles(mixed, 1) == [[job] for job in mixed]


def test_stacked_jobs_leave_the_runs_of_single_ones_behind(tmp_path):
    jobs = jobs_in(tmp_path)
    assert list(run_jobs(jobs, stack=2, style="none")) == jobs
    assert all(job.finished for job in jobs)
    stacked = [json.loads((job.out / "timing.json").read_text()).get("stacked") for job in jobs]
    assert stacked == [2, 2, None]


def test_jobs_that_cannot_be_stacked_are_trained_one_by_one(tmp_path):
    jobs = [replace(job, resume=False) for job in jobs_in(tmp_path, "gil", count=2, epochs=1)]
    with pytest.warns(UserWarning, match="'gil' cannot be stacked .*one run after another"):
        assert list(run_jobs(jobs, stack=2, style="none")) == jobs


def test_the_command_line_stacks_and_says_what_it_cannot_do(tmp_path):
    asked = ["fit", GRAPHS, "--method", "erm", "--seeds", "2", "--out", str(tmp_path), "--set", "epochs=1"]
    done = CliRunner().invoke(app, [*asked, "--stack", "2"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "erm" / "seed-1" / "timing.json").read_text())["stacked"] == 2
    for wrong, sentence in (
        ([*asked, "--stack", "0", "--resume"], "at least one seed"),
        (["bench", "ciga-table1", "--smoke", "--engine", "ray", "--stack", "2"], "leave out --engine ray"),
    ):
        refused = CliRunner().invoke(app, wrong)
        assert isinstance(refused.exception, ShiftproofError)
        assert sentence in str(refused.exception)


def test_the_padding_of_a_cut_batch_does_not_grow_through_the_layers():
    """All edges that are cut away become loops at one node, which sums them up in every layer."""
    torch.manual_seed(0)
    encoder = GNNEncoder(3, hidden=8, layers=4, conv="pna", style="gmt").train()
    x = torch.randn(40, 3)
    loops = torch.full((2, 20_000), 39)
    edges = torch.cat([torch.randint(0, 30, (2, 60)), loops], 1)
    h = encoder(x, edges, node_mask=torch.arange(40) < 30)
    assert h.isfinite().all()
    plain = copy.deepcopy(encoder).train()(x[:30], edges[:, :60])
    torch.testing.assert_close(h[:30], plain, rtol=1e-4, atol=1e-4)
