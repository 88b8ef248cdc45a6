"""The verbs that train and ask: `fit`, `fit_seeds`, `predict`, `leave_one_domain_out`, the scikit-learn estimators.

`fitting` puts names, presets and settings together, `choosing` is what "auto" does, `predicting` writes predictions for
people and spreadsheets, `leaving_out` holds every domain out once, `estimators` fit into scikit-learn.
"""

from shiftproof.api.fitting import fit, fit_seeds, predict
from shiftproof.api.leaving_out import leave_one_domain_out

__all__ = ["fit", "fit_seeds", "leave_one_domain_out", "predict"]
