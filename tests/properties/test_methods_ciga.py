"""The numbered facts of the CIGA paper that concern its method and baselines (docs/papers/ciga.md#checked-facts)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import shiftproof as sp
from shiftproof.data.graphs import GraphBatch
from shiftproof.methods import ASAP, CIGA, CNC, DIR, GIB, XGNN, DataShape, Network
from shiftproof.methods.base import HowTrained
from shiftproof.methods.dir import exchange_penalty, exchanged_risks
from shiftproof.methods.gib import connectivity_loss
from shiftproof.nn import NodeBatchNorm
from shiftproof.objectives import sample_losses, supervised_contrastive
from shiftproof.training import Trainer, Weighted
from shiftproof.training.steps import EagerStepper

NETWORK = Network("gcn", layers=2, hidden=8)


@pytest.fixture(scope="module")
def data() -> sp.Dataset:
    return sp.load("spmotif-struc", bias=0.9, train_per_class=16, val_per_class=4, test_per_class=4)


def shape_of(data: sp.Dataset) -> DataShape:
    return DataShape.of(data)


def seeded(make, *args, **options):
    torch.manual_seed(0)
    return make(*args, network=NETWORK, **options)


def groups(model: CIGA) -> dict[str, list[nn.Parameter]]:
    """The parameter groups of docs/papers/ciga.md#gradient-routing."""
    found = {
        "enc_g": list(model.featurizer.parameters()),
        "att": list(model.scorer.parameters()),
        "cls": list(model.classifier.parameters()),
        "head": list(model.head.parameters()),
    }
    if "hinge" in model.weights:
        found["spu"] = list(model.spurious_head.parameters())
        if model.spurious_classifier is not None:
            found["spu_gnn"] = list(model.spurious_classifier.parameters())
    return found


def reached(loss: Tensor, model: CIGA) -> set[str]:
    """The groups into which a loss sends a gradient that is not zero."""
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {
        name
        for name, parameters in groups(model).items()
        if any(p.grad is not None and bool(p.grad.abs().max() > 0) for p in parameters)
    }


def steps(model, data: sp.Dataset, count: int) -> None:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    stepper = EagerStepper(model, optimizer, Weighted())
    model.train()
    for number, batch in zip(range(count), data.train.batches(16), strict=False):
        stepper.move(batch, number)


def test_ciga_23_without_the_hinge_the_spurious_branch_is_not_there(data) -> None:
    v1 = seeded(CIGA, shape_of(data), beta=0.0)
    assert "hinge" not in v1.losses(data.train.whole())
    assert not hasattr(v1, "spurious_head")
    called = []
    v1.left_over = lambda *_: called.append(1)  # type: ignore[assignment]
    v1.losses(data.train.whole())
    assert not called


def test_ciga_23_a_step_without_the_hinge_equals_that_of_a_model_without_the_branch(data) -> None:
    with_branch, without = (seeded(CIGA, shape_of(data), beta=b) for b in (1.0, 0.0))
    with_branch.load_state_dict({**with_branch.state_dict(), **without.state_dict()})
    del with_branch.weights["hinge"]
    for model in (with_branch, without):
        steps(model, data, 3)
    for name, tensor in without.state_dict().items():
        assert torch.equal(tensor, with_branch.state_dict()[name]), name


def test_ciga_24_without_both_terms_it_is_the_interpretable_gnn_trained_by_erm(data) -> None:
    batch = data.train.whole()
    plain, ciga = seeded(XGNN, shape_of(data)), seeded(CIGA, shape_of(data), alpha=0.0, beta=0.0)
    ciga.load_state_dict(plain.state_dict())
    assert list(ciga.losses(batch)) == ["task"]
    sample_losses(plain(batch), batch.y, "multiclass").mean().backward()
    ciga.losses(batch)["task"].backward()
    for ours, theirs in zip(ciga.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-7, rtol=0)


ALL = {"enc_g", "att", "cls", "head"}


@pytest.mark.parametrize("classifier_input", ["raw", "feat"])
def test_ciga_25_the_task_loss_reaches_everything_but_the_spurious_branch(data, classifier_input) -> None:
    model = seeded(CIGA, shape_of(data), beta=1.0, classifier_input=classifier_input)
    assert reached(model.losses(data.train.whole())["task"], model) == ALL


@pytest.mark.parametrize(
    ("contrast", "groups_reached"),
    [("rep", {"enc_g", "att", "cls"}), ("feat", {"enc_g"}), ("feat_weighted", {"enc_g", "att"})],
)
def test_ciga_25_the_contrast_reaches_what_it_is_computed_from(data, contrast, groups_reached) -> None:
    model = seeded(CIGA, shape_of(data), contrast=contrast)
    assert reached(model.losses(data.train.whole())["contrast"], model) == groups_reached


@pytest.mark.parametrize(
    ("spurious", "groups_reached"),
    [
        ("shared_detached", {"spu"}),
        ("shared", {"enc_g", "att", "cls", "spu"}),
        ("conv", {"enc_g", "att", "spu", "spu_gnn"}),
    ],
)
def test_ciga_25_the_hinge_reaches_the_branch_and_what_is_not_detached(data, spurious, groups_reached) -> None:
    model = seeded(CIGA, shape_of(data), beta=1.0, spurious=spurious)
    assert reached(model.losses(data.train.whole())["hinge"], model) == groups_reached


def test_ciga_26_a_detached_hinge_acts_through_batch_norm_statistics_alone(data) -> None:
    """Without batch norm, v2 as released moves nothing but its own head: v1 and v2 stay equal."""

    def without_norms(model: CIGA) -> CIGA:
        for module in model.modules():
            for name, child in module.named_children():
                if isinstance(child, NodeBatchNorm):
                    setattr(module, name, _Nothing())
                elif isinstance(child, nn.ModuleList) and any(isinstance(c, NodeBatchNorm) for c in child):
                    setattr(module, name, nn.ModuleList(_Nothing() for _ in child))
        return model

    v1 = without_norms(seeded(CIGA, shape_of(data), beta=0.0))
    v2 = without_norms(seeded(CIGA, shape_of(data), beta=2.0, spurious="shared_detached"))
    v2.load_state_dict({**v2.state_dict(), **v1.state_dict()})
    before = copy.deepcopy(v2.spurious_head.state_dict())
    for model in (v1, v2):
        steps(model, data, 3)
    for name, tensor in v1.state_dict().items():
        torch.testing.assert_close(tensor, v2.state_dict()[name], atol=1e-7, rtol=0)
    assert any(not torch.equal(before[k], v) for k, v in v2.spurious_head.state_dict().items())


class _Nothing(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_ciga_27_the_contrast_pools_the_kept_nodes_of_each_graph(data, how) -> None:
    batch = data.train.whole()
    model = seeded(CIGA, shape_of(data), contrast="feat", contrast_pool=how)
    found = model.extract(batch)
    pooled = model._contrasted(torch.empty(0), found)
    for graph in range(batch.num_graphs):
        mine = found.keep & (batch.edge_batch == graph)
        nodes = batch.edge_index[:, mine].unique()
        rows = found.h[nodes]
        expected = rows.max(0).values if how == "max" else getattr(rows, how)(0)
        torch.testing.assert_close(pooled[graph], expected, atol=1e-5, rtol=1e-4)


def test_ciga_27_with_every_edge_kept_the_contrast_pools_all_nodes_that_have_one(data) -> None:
    batch = data.train.whole()
    model = seeded(CIGA, shape_of(data), contrast="feat", ratio=1.0)
    found = model.extract(batch)
    everything = torch.zeros(batch.num_graphs, 8).index_add(0, batch.batch, found.h)
    torch.testing.assert_close(model._contrasted(torch.empty(0), found), everything, atol=1e-4, rtol=1e-4)


def test_ciga_d10_the_released_pooling_takes_rows_of_other_nodes(data) -> None:
    batch = data.train.whole()
    ours = seeded(CIGA, shape_of(data), contrast="feat")
    theirs = seeded(CIGA, shape_of(data), contrast="feat", compat="reference")
    found = ours.extract(batch)
    count = len(found.kept.nodes)
    expected = torch.zeros(batch.num_graphs, 8).index_add(0, found.kept.batch.batch, found.h[:count])
    torch.testing.assert_close(theirs._contrasted(torch.empty(0), found), expected)
    assert not torch.allclose(expected, ours._contrasted(torch.empty(0), found))


def test_ciga_d3_without_selection_the_left_over_weighs_edges_by_how_little_they_were_wanted(data) -> None:
    batch = data.train.whole()
    ours = seeded(CIGA, shape_of(data), beta=1.0, ratio=-1.0)
    found = ours.extract(batch)
    left = ours.left_over(batch, found)
    assert bool(found.keep.all())
    assert left.batch.num_edges == batch.num_edges
    torch.testing.assert_close(left.edge_weight, 1 - found.scores.sigmoid())


@pytest.mark.parametrize(("floor", "reported"), [(1.0, True), (-1.1, False)])
def test_ciga_d12_a_metric_that_never_exceeds_its_start_is_reported_as_that(data, floor, reported) -> None:
    """The released code starts at 0; a start no epoch can exceed, and one every epoch does, show both sides."""
    assert seeded(CIGA, shape_of(data), compat="reference").how_trained.selection_floor == 0.0
    assert seeded(CIGA, shape_of(data)).how_trained.selection_floor is None

    class Floored(CIGA):
        @property
        def how_trained(self) -> HowTrained:
            return replace(super().how_trained, selection_floor=floor)

    model = seeded(Floored, shape_of(data), compat="reference")
    run = Trainer(epochs=1, metric="mcc", device="cpu").fit(model, data)
    assert (run.metrics["test"]["mcc"] == floor) is reported
    assert -1 <= run.metrics["test"]["mcc"] <= 1


def test_ciga_31_exchanging_left_overs_in_one_tensor_equals_the_loop() -> None:
    torch.manual_seed(0)
    causal, gate, y = torch.randn(5, 3), torch.rand(5, 3), torch.tensor([0, 2, 1, 1, 0])
    looped = torch.stack([nn.functional.cross_entropy(gate[j] * causal, y) for j in range(5)])
    torch.testing.assert_close(exchanged_risks(causal, gate, y, "multiclass"), looped)
    torch.testing.assert_close(exchange_penalty(looped), (5 * looped).var() + looped.mean())


def test_ciga_31_equal_left_overs_have_no_variance_and_the_first_epoch_no_exchange(data) -> None:
    causal, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    risks = exchanged_risks(causal, torch.full((4, 3), 0.7), y, "multiclass")
    torch.testing.assert_close(exchange_penalty(risks), risks.mean(), atol=1e-6, rtol=0)
    model = seeded(DIR, shape_of(data))
    model.start_epoch(0)
    assert model.weights["exchange"] == 0.0
    model.start_epoch(3)
    assert model.weights["exchange"] == pytest.approx(0.01 * 3**1.6)


def test_ciga_32_a_perfect_first_model_leaves_all_same_class_samples_as_positives(data) -> None:
    batch = data.train.whole()
    model = seeded(CNC, shape_of(data))
    model.predicted.copy_(data.train.y)
    z = model.featurizer(batch)
    given = model.losses(batch)["contrast"]
    expected = supervised_contrastive(z, batch.y, variant="cnc", predicted=batch.y)
    torch.testing.assert_close(given, expected)
    # no hard positives at all: every same-class sample is one; all others, rightly predicted, are negatives
    torch.testing.assert_close(expected, supervised_contrastive(z, batch.y), atol=1e-4, rtol=1e-4)


def test_ciga_33_the_whole_vector_is_half_the_sum_and_the_edge_sum_equals_the_dense_product(data) -> None:
    batch = data.train.batch(range(6))
    model = seeded(GIB, shape_of(data))
    a, _, whole = model.parts(batch)
    h = model.featurizer.nodes(batch)
    torch.testing.assert_close(whole, 0.5 * torch.zeros(6, 8).index_add(0, batch.batch, h), atol=1e-5, rtol=1e-5)
    dense = torch.zeros(batch.num_nodes, batch.num_nodes)
    dense[batch.edge_index[0], batch.edge_index[1]] = 1.0
    total = torch.tensor(0.0)
    for graph in range(6):
        mine = batch.batch == graph
        joined = a[mine].t() @ dense[mine][:, mine] @ a[mine]
        rows = joined / joined.abs().sum(1, keepdim=True)
        total = total + (torch.diagonal(rows) - 1).square().mean()
    torch.testing.assert_close(connectivity_loss(a, batch), total / 6, atol=1e-5, rtol=1e-5)


def test_gib_of_the_gmt_paper_asks_the_part_alone_and_takes_the_mean_of_the_nodes(data) -> None:
    batch = data.train.batch(range(6))
    model = seeded(GIB, shape_of(data), form="gmt").eval()
    _, chosen, whole = model.parts(batch)
    h = model.featurizer.nodes(batch)
    for graph in range(6):
        torch.testing.assert_close(whole[graph], h[batch.batch == graph].mean(0), atol=1e-5, rtol=1e-5)
    expected = torch.nn.functional.cross_entropy(model.head(chosen), batch.y)
    torch.testing.assert_close(model.losses(batch)["task"], expected)


def test_ciga_33_two_separate_groups_are_perfectly_connected() -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    batch = GraphBatch(
        x=torch.ones(4, 1),
        edge_index=edges,
        batch=torch.zeros(4, dtype=torch.long),
        ptr=torch.tensor([0, 4]),
        num_graphs=1,
        y=torch.tensor([0]),
    )
    apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert float(connectivity_loss(apart, batch)) == 0.0
    assert float(connectivity_loss(torch.full((4, 2), 0.5), batch)) > 0.1


def test_asap_weighs_the_messages_of_the_coarsened_graph() -> None:
    """ASAP's second network weighs messages by the coarsened edges' weights, through a sigmoid."""
    data = sp.load("spmotif-struc", train_per_class=4, val_per_class=1, test_per_class=1)
    method = ASAP(DataShape.of(data), network=Network(hidden=8, layers=2)).eval()
    batch, seen = next(iter(data.train.batches(6))), []
    second = method.second.forward
    method.second.forward = lambda x, edges, weight, **more: seen.append(weight) or second(x, edges, weight, **more)
    method(batch)
    assert seen[0] is not None
    assert ((seen[0] >= 0.5) & (seen[0] < 1)).all()
    assert seen[0].unique().numel() > 1
