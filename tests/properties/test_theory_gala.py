"""The numbered facts of GALA's theory, on one-hot codes of the motif or the base.

Source: docs/papers/gala.md#checked-facts.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof.objectives import proxy_contrast, supervised_contrastive

E = math.e
PAIRS = [(0.2, 0.6), (0.2, 0.7), (0.2, 0.9), (0.3, 0.9)]  # label noise and spurious strength of the four data sets


def pieces(n: int, noise: float, strength: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Balanced labels, motif ids and base ids of n two-piece graphs."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    motif = torch.where(torch.rand(n, generator=g) < noise, torch.randint(3, (n,), generator=g), y)
    other = (y + torch.randint(1, 3, (n,), generator=g)) % 3
    base = torch.where(torch.rand(n, generator=g) < strength, y, other)
    return y, motif, base


def one_hot(ids: Tensor) -> Tensor:
    return F.one_hot(ids, 3).double()


def mean_over_draws(loss, noise: float, strength: float, n: int = 1024, draws: int = 20) -> float:
    return sum(float(loss(*pieces(n, noise, strength, seed))) for seed in range(draws)) / draws


def chance_of_agreement(match: float) -> float:
    return match**2 + (1 - match) ** 2 / 2


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T1_cigas_term_prefers_the_better_correlated_piece(noise, strength):
    n = 1024
    for piece, match in (("motif", 1 - 2 * noise / 3), ("base", strength)):
        expected = math.log(n - 1) + math.log((E + 2) / 3) - chance_of_agreement(match)
        got = mean_over_draws(
            lambda y, m, b, piece=piece: supervised_contrastive(one_hot(m if piece == "motif" else b), y),
            noise,
            strength,
        )
        assert got == pytest.approx(expected, abs=0.03)


def codes_under_base_proxy(noise: float, strength: float, **sizes) -> tuple[float, float]:
    motif = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(m), y, b), noise, strength, **sizes)
    base = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(b), y, b), noise, strength, **sizes)
    return motif, base


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T2_with_the_base_as_proxy_the_motif_code_has_the_lower_loss(noise, strength):
    n, b = 1024, strength
    q = chance_of_agreement(1 - 2 * noise / 3)
    shared = b * math.log(1 - b) + (1 - b) * math.log((1 + b) / 2)
    motif, base = codes_under_base_proxy(noise, strength)
    assert base == pytest.approx(math.log(n / 3 * (1 + E)) + shared, abs=0.05)
    assert motif == pytest.approx(-q + math.log(n / 3 * (2 + (E - 1) * (1 + q) / 2)) + shared, abs=0.05)
    assert base - motif == pytest.approx({0.2: 0.817, 0.3: 0.742}[noise], abs=0.05)


@pytest.mark.parametrize(("noise", "strength"), PAIRS)
def test_gala_T3_the_term_penalises_whichever_piece_the_proxy_follows(noise, strength):
    motif = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(m), y, m), noise, strength, draws=5)
    base = mean_over_draws(lambda y, m, b: proxy_contrast(one_hot(b), y, m), noise, strength, draws=5)
    assert base < motif


@pytest.mark.parametrize(
    ("noise", "strength", "gaps"),
    [(0.2, 0.9, (0.82, 0.23, 0.07, 0.0)), (0.3, 0.9, (0.74, 0.18, 0.0, -0.06))],
)
def test_gala_T4_noise_in_the_proxy_shrinks_the_gap(noise, strength, gaps):
    def gap(y, motif, base, share):
        g = torch.Generator().manual_seed(int(base.sum()))
        noisy = torch.where(torch.rand(len(y), generator=g) < share, torch.randint(3, (len(y),), generator=g), base)
        return proxy_contrast(one_hot(base), y, noisy) - proxy_contrast(one_hot(motif), y, noisy)

    for share, expected in zip((0.0, 0.2, 0.4, 0.6), gaps, strict=True):
        got = mean_over_draws(lambda y, m, b, s=share: gap(y, m, b, s), noise, strength)
        assert got == pytest.approx(expected, abs=0.04)


def test_gala_T5_an_assistant_that_follows_the_base_errs_exactly_where_the_base_does():
    noise, strength = 0.3, 0.9
    y, motif, base = pieces(9000, noise, strength, 0)
    correct = base == y
    for group in (correct, ~correct):
        assert float((motif == y)[group].double().mean()) == pytest.approx(1 - 2 * noise / 3, abs=0.03)
    assert bool((base == y)[correct].all())
    assert not bool((base == y)[~correct].any())


@pytest.mark.parametrize(
    ("noise", "strength", "on_train", "on_test"),
    [(0.2, 0.6, 0.867, 0.867), (0.2, 0.7, 0.867, 0.867), (0.2, 0.9, 0.9, 1 / 3), (0.3, 0.9, 0.9, 1 / 3)],
)
def test_gala_T6_the_best_predictor_of_training_follows_the_stronger_piece(noise, strength, on_train, on_test):
    y, motif, base = pieces(200_001, noise, strength, 0)
    counts = torch.zeros(3, 3, 3).index_put((motif, base, y), torch.tensor(1.0), accumulate=True)
    rule = counts.argmax(-1)
    assert float((rule[motif, base] == y).double().mean()) == pytest.approx(on_train, abs=0.01)
    y, motif, base = pieces(200_001, noise, 1 / 3, 1)
    assert float((rule[motif, base] == y).double().mean()) == pytest.approx(on_test, abs=0.01)
