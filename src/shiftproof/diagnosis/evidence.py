r"""Evidence that a stream of rows has moved, whose false alarms stay under control however long one looks.

Every row gets a rank among all rows before it; while rows are exchangeable these ranks are independent and uniform
(a conformal test martingale, Fedorova et al., arXiv:1204.3251). Bets against that multiply; the capital exceeds
:math:`1/\alpha` with a chance of at most :math:`\alpha`, ever (Ville's inequality).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

SLOPES = (0.2, 0.5, 1.0, 1.5, 1.9)  # of bets that ranks are high, and that they are low; below 2 no bet can lose all
SPREADS = (0.3, 0.7, 0.95)  # of bets that ranks lie at both ends


@dataclass
class Evidence:
    """The capital of bets against "nothing moved", over one statistic of the rows; `take` gives it a batch.

    Bets begin anew with every batch, with shares 1/(s (s + 1)), so that a change after a long quiet time is found as
    soon as one at the beginning; the sum of all capitals is a martingale that starts at 1.
    """

    reference: np.ndarray
    seed: int = 0
    _past: np.ndarray = field(init=False)
    _logs: np.ndarray = field(init=False)  # of the capital of each bet, a row for each batch that it was begun with
    batches: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._past = np.sort(np.asarray(self.reference, dtype=float))
        self._logs = np.zeros((0, 2 * (len(SLOPES) + len(SPREADS))))

    def take(self, batch: np.ndarray) -> float:
        """Bet on the rows of one batch; the natural logarithm of the capital after it."""
        self.batches += 1
        ranks = self._ranks(np.asarray(batch, dtype=float))
        gained = _log_gains(ranks)
        self._logs = np.concatenate([self._logs + gained, (gained - np.log(len(gained)))[None]])
        return self.capital

    @property
    def capital(self) -> float:
        """The natural logarithm of the capital, with what is not yet at stake."""
        start = np.arange(1.0, self.batches + 1)
        at_stake = np.logaddexp.reduce(self._logs, axis=1) - np.log(start * (start + 1))
        return float(np.logaddexp.reduce([-np.log(self.batches + 1.0), *at_stake]))

    def _ranks(self, batch: np.ndarray) -> np.ndarray:
        """The smoothed rank of each row among those before it, uniform on [0, 1] while rows are exchangeable."""
        rng = np.random.default_rng([self.seed, self.batches])
        draw = rng.random(len(batch))
        below = np.searchsorted(self._past, batch, side="left")
        same = np.searchsorted(self._past, batch, side="right") - below
        earlier = batch[None] < batch[:, None]
        alike = batch[None] == batch[:, None]
        before = np.tri(len(batch), k=-1, dtype=bool)
        count = len(self._past) + np.arange(len(batch)) + 1
        low = below + (earlier & before).sum(1)
        ties = same + (alike & before).sum(1) + 1
        self._past = np.sort(np.concatenate([self._past, np.sort(batch)]), kind="stable")  # two sorted runs: one pass
        return (low + draw * ties) / count


def _log_gains(ranks: np.ndarray) -> np.ndarray:
    """The logarithm of what each bet makes of one unit; its expectation is one unit where nothing moved."""
    centred = ranks - 0.5
    ends = 6.0 * centred**2 - 0.5  # mean 0, from -.5 to 1
    slopes = [np.log1p(sign * slope * centred).sum() for slope in SLOPES for sign in (1, -1)]
    spreads = [np.log1p(sign * spread * ends).sum() for spread in SPREADS for sign in (1, -1)]
    return np.array([*slopes, *spreads])


def together(capitals: Sequence[float]) -> float:
    """The logarithm of the mean capital of several bettors, which is a martingale whatever they have in common."""
    return float(np.logaddexp.reduce(capitals) - np.log(len(capitals))) if len(capitals) else 0.0


def spent(alpha: float, batch: int) -> float:
    r"""The share of :math:`\alpha` that the test of batch t may use, :math:`6\alpha/(\pi t)^2`: they sum to alpha."""
    return 6.0 * alpha / (np.pi * batch) ** 2
