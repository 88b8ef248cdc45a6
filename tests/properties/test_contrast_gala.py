"""The numbered facts of the GALA paper that concern the mechanics of its contrast.

Source: docs/papers/gala.md#checked-facts.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.objectives import proxy_contrast, proxy_pairs, supervised_contrastive


def drawn(n: int = 12, seed: int = 0, classes: int = 3, proxies: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 5, generator=g, dtype=torch.float64)
    return z, torch.randint(classes, (n,), generator=g), torch.randint(proxies, (n,), generator=g)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L1_pairs_are_disjoint_symmetric_and_never_with_oneself(seed):
    _, y, proxy = drawn(seed=seed)
    positives, negatives = proxy_pairs(y, proxy)
    assert not bool((positives & negatives).any())
    for mask in (positives, negatives):
        assert not bool(mask.diagonal().any())
        assert torch.equal(mask, mask.T)


def test_gala_L2_one_proxy_for_all_takes_cigas_positives_and_the_other_classes_below():
    z, y, _ = drawn()
    got = proxy_contrast(z, y, torch.zeros_like(y))
    s = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    means = []
    for i in range(len(y)):
        mates = [j for j in range(len(y)) if j != i and y[j] == y[i]]
        below = torch.stack([s[i, j] for j in range(len(y)) if y[j] != y[i]]).logsumexp(0)
        if mates:
            means.append(torch.stack([s[i, j] - below for j in mates]).mean())
    torch.testing.assert_close(got, -torch.stack(means).mean())


def test_gala_L2b_a_perfect_label_proxy_gives_cigas_loss():
    z, y, _ = drawn()
    torch.testing.assert_close(proxy_contrast(z, y, y), supervised_contrastive(z, y), atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L2c_label_proxies_join_one_right_and_one_wrong_sample(seed):
    for classes in (2, 4):
        _, y, predicted = drawn(30, seed, classes, classes)
        positives, negatives = proxy_pairs(y, predicted)
        right = y == predicted
        mixed = right.unsqueeze(1) != right.unsqueeze(0)
        used = positives | negatives
        if classes > 2:
            used = used & right.unsqueeze(1)
        assert bool(mixed[used].all())


def per_anchor(z: Tensor, y: Tensor, proxy: Tensor, anchor: int) -> Tensor:
    only = torch.arange(len(y)) == anchor
    return proxy_contrast(z, y, proxy, anchors=only)


@pytest.mark.parametrize("seed", range(5))
def test_gala_L3_an_anchor_costs_at_least_the_logarithm_of_its_positives(seed):
    z, y, proxy = drawn(seed=seed)
    count = proxy_pairs(y, proxy)[0].sum(1)
    for i in count.nonzero().flatten().tolist():
        assert float(per_anchor(z, y, proxy, i)) >= math.log(count[i]) - 1e-9
    same = torch.zeros(4, dtype=torch.long)
    equal = per_anchor(torch.ones(4, 3), same, torch.tensor([0, 1, 1, 2]), 0)
    assert float(equal) == pytest.approx(math.log(3), abs=1e-6)


def test_gala_L4_neither_order_nor_names_nor_lengths_matter():
    z, y, proxy = drawn(20)
    loss = proxy_contrast(z, y, proxy)
    order, names = torch.randperm(20), torch.tensor([2, 0, 1])
    for other in (
        proxy_contrast(z[order], y[order], proxy[order]),
        proxy_contrast(z, names[y], proxy),
        proxy_contrast(z, y, names[proxy]),
        proxy_contrast(z * torch.rand(20, 1).add(0.1), y, proxy),
    ):
        torch.testing.assert_close(other, loss, atol=1e-6, rtol=0)


def test_gala_L5_a_copy_adds_no_pair_with_its_original():
    _, y, proxy = drawn()
    twice = torch.cat([y, y[:1]]), torch.cat([proxy, proxy[:1]])
    for mask in proxy_pairs(*twice):
        assert not bool(mask[0, -1])


def test_gala_L6_the_gradient_is_orthogonal_to_the_representation():
    z, y, proxy = drawn(20)
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(proxy_contrast(z, y, proxy), z)
    along = (gradient * z).sum(1).abs()
    assert bool((along <= 1e-5 * gradient.norm(dim=1) * z.norm(dim=1) + 1e-12).all())


@pytest.mark.parametrize("seed", range(4))
def test_gala_L7_the_loss_equals_the_loop_and_its_gradient_finite_differences(seed):
    z, y, proxy = drawn(10, seed)
    s = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    means = []
    for i in range(10):
        positives = [j for j in range(10) if y[j] == y[i] and proxy[j] != proxy[i]]
        negatives = [j for j in range(10) if y[j] != y[i] and proxy[j] == proxy[i]]
        if positives:
            below = math.log(sum(math.exp(s[i, j]) for j in positives + negatives))
            means.append(sum(float(s[i, j]) - below for j in positives) / len(positives))
    assert float(proxy_contrast(z, y, proxy)) == pytest.approx(-sum(means) / len(means), abs=1e-10)
    assert torch.autograd.gradcheck(lambda z: proxy_contrast(z, y, proxy), z.requires_grad_())


def test_gala_L8_a_single_positive_without_negatives_costs_nothing():
    z, y, proxy = torch.randn(3, 4), torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2])
    assert float(proxy_contrast(z, y, proxy)) == pytest.approx(0, abs=1e-6)


def test_gala_L10_one_sided_anchors_have_nothing_to_do_when_all_is_right():
    z, y, _ = drawn()
    z.requires_grad_()
    loss = proxy_contrast(z, y, y, anchors=torch.zeros(len(y), dtype=torch.bool))
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(loss.detach()) == 0
    assert not bool(gradient.any())


def test_gala_a_batch_without_any_pair_costs_nothing_and_has_a_gradient():
    for y in (torch.tensor([0, 1, 2]), torch.tensor([0])):
        z = torch.randn(len(y), 4, requires_grad=True)
        loss = proxy_contrast(z, y, torch.zeros_like(y))
        loss.backward()
        assert float(loss.detach()) == 0
        assert z.grad is not None
        assert not bool(z.grad.any())
