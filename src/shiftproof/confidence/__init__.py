"""Confidence that holds under shift: calibration, sets and intervals, the expected score, when not to trust a model.

Everything here works on the outputs of any model; `sp.calibrate` joins it to a run.

>>> import shiftproof as sp
>>> made = sp.confidence.conformal(p_val, y_val, coverage=0.9)                    # doctest: +SKIP
>>> inside = made.sets(p_new)                      # [rows, classes]                # doctest: +SKIP
>>> made = sp.confidence.conformal(p_val, y_val, features=z_val, guarantee="covariate-shift")  # doctest: +SKIP
>>> made.sets(p_new, features=z_new)                                              # doctest: +SKIP

`calibrate` does all of it for a run and keeps it with the run (`calibration`, `calibration_files`): `trust` and
`familiarity` say when not to believe it, `held_out` trains again where too few rows are left, `covered` holds it
against known labels. `expected_score` says what to expect without labels (`score_estimates`), `what_moved` where a
drop comes from (`attribution`), `suggest` what to measure next. `conformal` makes sets and intervals (`scores`,
`quantiles`, `ratios` with their `overlap`, `label_shift`, `cross` for the jackknife+), `calibrator` makes
probabilities true (`recalibration`) and `reliability` says whether they are.
"""

from shiftproof.confidence.attribution import Attribution, attribute_drop, what_moved
from shiftproof.confidence.calibrating import calibrate
from shiftproof.confidence.calibration import Calibration
from shiftproof.confidence.calibration_files import read_calibration
from shiftproof.confidence.calibrator import Calibrator, calibrator
from shiftproof.confidence.conformal import Conformal, conformal
from shiftproof.confidence.cross import cross_intervals, cv_plus
from shiftproof.confidence.expected import Expected, expected_score
from shiftproof.confidence.label_shift import class_ratios, shifted_probabilities
from shiftproof.confidence.overlap import Overlap, effective_size
from shiftproof.confidence.ratios import Ratio, likelihood_ratio
from shiftproof.confidence.recalibration import Map, fit_map
from shiftproof.confidence.reliability import (
    Reliability,
    draw_reliability,
    reliability,
    reliability_by_environment,
)
from shiftproof.confidence.suggesting import Suggestion, suggest

__all__ = [
    "Attribution",
    "Calibration",
    "Calibrator",
    "Conformal",
    "Expected",
    "Map",
    "Overlap",
    "Ratio",
    "Reliability",
    "Suggestion",
    "attribute_drop",
    "calibrate",
    "calibrator",
    "class_ratios",
    "conformal",
    "cross_intervals",
    "cv_plus",
    "draw_reliability",
    "effective_size",
    "expected_score",
    "fit_map",
    "likelihood_ratio",
    "read_calibration",
    "reliability",
    "reliability_by_environment",
    "shifted_probabilities",
    "suggest",
    "what_moved",
]
