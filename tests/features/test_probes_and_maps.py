"""What can be read out of features, and where a model looks."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from shiftproof.errors import ShiftproofError
from shiftproof.explanations.algorithms.image_maps import grad_cam, integrated_gradients, saliency, share_in_region
from shiftproof.features import DFR, dfr_spurious, linear_probe
from shiftproof.features.probes import fit_logistic


def two_features(n=600, seed=0):
    """A feature that follows the label, one that follows an attribute, and noise; groups are pairs of the two."""
    g = torch.Generator().manual_seed(seed)
    y, s = torch.randint(2, (n,), generator=g), torch.randint(2, (n,), generator=g)
    s = torch.where(torch.rand(n, generator=g) < 0.8, y, s)
    h = torch.randn(n, 6, generator=g)
    h[:, 0] += 3 * y
    h[:, 1] += 3 * s
    return h, y, s, 2 * y + s


def test_the_l1_regression_is_scikit_learns():
    h, y, _, _ = two_features(200)
    x = ((h - h.mean(0)) / h.std(0)).double()
    for c in (1.0, 0.05):
        weight, bias = fit_logistic(x, y, 2, (c,), steps=5000)
        theirs = LogisticRegression(C=c, l1_ratio=1, solver="saga", max_iter=20_000, tol=1e-10).fit(
            x.numpy(), y.numpy()
        )
        # two columns of logits share what one has: w/2 and -w/2, whose absolute values add up to the same
        ours = (weight[0, :, 1] - weight[0, :, 0]).numpy()
        np.testing.assert_allclose(ours, theirs.coef_[0], atol=2e-3)
        assert float(bias[0, 1] - bias[0, 0]) == pytest.approx(theirs.intercept_[0], abs=2e-3)


def test_dfr_reads_the_label_and_dfr_s_the_attribute():
    h, y, s, group = two_features()
    t_h, t_y, t_s, t_group = two_features(seed=1)
    dfr = DFR(least=10, retrains=3)
    model = dfr.fit(h, y, group)
    assert dfr.score(model, t_h, t_y, t_group) > 0.85
    assert model.weight[0].abs().max() > 3 * model.weight[1].abs().max()
    spurious = dfr_spurious(dfr, h, s)
    assert dfr.score(spurious, t_h, t_s, t_s) > 0.85
    assert linear_probe(h, y, t_h, t_y).test > 0.85
    blind = linear_probe(h[:, 2:], y, t_h[:, 2:], t_y)
    assert blind.test < 0.65


def test_dfr_without_large_groups_takes_what_there_is():
    h, y, _, group = two_features(60)
    assert DFR(retrains=2, least=1000).fit(h, y, group).weight.shape == (6, 2)
    with pytest.raises(ShiftproofError, match="unknown selection of DFR"):
        DFR(select="best").fit(h, y, group)  # type: ignore[arg-type]


class Corner(nn.Module):
    """Sees the upper left quarter of an image only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x).relu()[:, :, :4, :4].mean((1, 2, 3))


def test_maps_show_the_part_of_the_image_that_is_looked_at():
    torch.manual_seed(0)
    model, x = Corner(), torch.rand(5, 2, 8, 8)
    region = torch.zeros(8, 8)
    region[:6, :6] = 1  # one pixel of the filter and one of the enlarging beyond the quarter
    for found in (
        saliency(model, x),
        grad_cam(model, model.conv, x, target=torch.ones(5)),
        integrated_gradients(model, x).sum(1).abs(),
    ):
        assert found.shape == (5, 8, 8)
        assert float(found.max()) > 0
    assert (share_in_region(saliency(model, x), region) > 0.999).all()
    assert torch.equal(share_in_region(torch.zeros(2, 8, 8), region), torch.zeros(2))
    cam = grad_cam(model, model.conv, x, target=torch.ones(5))
    assert (cam.amax((1, 2)) - 1).abs().max() < 1e-6
    with pytest.raises(ShiftproofError, match="maps"):
        grad_cam(lambda v: v.flatten(1).sum(1), model.conv, x)


def test_grad_cam_is_its_formula():
    torch.manual_seed(1)
    conv, last = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 3)
    x = torch.rand(2, 1, 6, 6)
    model = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
    maps = model[:2](x).detach()
    # behind the mean the derivative of a class score in each pixel of map k is w_k / 36
    expected = torch.einsum("k,nkij->nij", last.weight[2].detach() / 36, maps).relu()
    found = grad_cam(model, model[1], x, target=torch.tensor([2, 2]))
    torch.testing.assert_close(found, expected / expected.amax((1, 2), keepdim=True).clamp(min=1e-12))


def test_integrated_gradients_add_up_to_the_change_of_the_score():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double(), torch.randn(6, 4).double()
    target, start = torch.tensor([0, 1, 2, 0, 1, 2]), torch.full((1, 4), 0.3).double()
    found = integrated_gradients(model, x, target, baseline=start, steps=200)
    change = (model(x) - model(start)).gather(1, target.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found.sum(1), change, rtol=1e-3, atol=1e-4)
