"""A Gaussian process with the Tanimoto kernel: its settings follow from the training rows alone."""

from __future__ import annotations

import numpy as np

from shiftproof.methods.base import DataShape
from shiftproof.methods.tanimoto import TanimotoMethod
from shiftproof.ranges import Count
from shiftproof.registry import register

NOISES = 10.0 ** np.arange(-3.0, 2.01, 0.25)  # the noise's variance as a multiple of the process's
AMPLITUDES = 10.0 ** np.arange(-0.5, 2.51, 0.5)  # variance of the log-odds
STEPS = 50
MOST_OF_A_PROCESS = 3000  # training samples; the kernel matrix of more takes minutes to factorise


@register("tanimoto-gp", tags=("graphs",))
class TanimotoGP(TanimotoMethod):
    """A Gaussian process with the Tanimoto kernel of counted fingerprints (ECFP4), for small tables; no epochs.

    Numbers: the posterior mean, the noise and the amplitude with the largest marginal likelihood (Rasmussen and
    Williams 2006, equation 5.8). Classes: Laplace's approximation (their algorithm 3.1), the amplitude by its marginal
    likelihood (equation 3.32) and around the log-odds of the training rows; more than two classes have one process each
    against the rest. The predicted log-odds are those of the most probable process.
    """

    def __init__(self, shape: DataShape, *, most: Count = MOST_OF_A_PROCESS, vectors: str | None = None) -> None:
        super().__init__(shape, most=most, vectors=vectors)

    def fit_kernel(self, kernel: np.ndarray, target: np.ndarray, machine: int) -> tuple[np.ndarray, float]:
        return regressed(kernel, target) if self.shape.task == "regression" else classified(kernel, target)


def regressed(kernel: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and mean of the process with the most likely noise; the amplitude follows from the noise."""
    values, vectors = np.linalg.eigh(kernel)
    values = values.clip(min=0)
    centre = target.mean()
    turned = vectors.T @ (target - centre)
    count = len(target)

    def likelihood(noise: float) -> float:
        amplitude = (turned**2 / (values + noise)).mean()
        return -0.5 * (count * np.log(amplitude) + np.log(values + noise).sum())

    best = max(NOISES, key=likelihood)
    return vectors @ (turned / (values + best)), float(centre)


def classified(kernel: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and mean of the most probable log-odds, with the most likely amplitude."""
    rate = (target.sum() + 1) / (len(target) + 2)
    bias = float(np.log(rate / (1 - rate)))
    best: tuple[float, np.ndarray] = (-np.inf, np.zeros(len(target)))
    for amplitude in AMPLITUDES:
        found = _laplace(amplitude * kernel, target, bias)
        if found[0] <= best[0]:
            break  # the likelihood has one peak; larger amplitudes only fit the labels more closely
        best = found[0], amplitude * found[1]
    return best[1], bias


def _laplace(kernel: np.ndarray, target: np.ndarray, bias: float) -> tuple[float, np.ndarray]:
    """The approximate marginal likelihood, and the weights `a` of the mode `K a`."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.special import expit

    f = np.zeros(len(target))
    a, last, likelihood = np.zeros(len(target)), -np.inf, -np.inf
    for _ in range(STEPS):
        p = expit(f + bias)
        curvature = p * (1 - p)
        root = np.sqrt(curvature)
        factor = cho_factor(np.eye(len(f)) + root[:, None] * kernel * root[None], lower=True)
        b = curvature * f + target - p
        a = b - root * cho_solve(factor, root * (kernel @ b))
        f = kernel @ a
        fit = -np.logaddexp(0, -(2 * target - 1) * (f + bias)).sum()
        likelihood = -0.5 * a @ f + fit - np.log(np.diag(factor[0])).sum()
        if abs(likelihood - last) < 1e-6 * max(1.0, abs(likelihood)):
            break
        last = likelihood
    return float(likelihood), a
