"""Rich features first: learn all that predicts, then choose what holds everywhere.

`FeAT`, `IFeAT`, `Bonsai` and `ERMPretrainer` train any featurizer with a head on any `DomainSet` or `GraphSet`;
`LinearHeadSweep` then trains heads for many objectives, penalties and seeds on the cached features in one go.
Importing this package registers the methods `feat` and `feat-heads`, which do the same from `shiftproof.fit` and the
command line.

    >>> import torch, shiftproof as sp
    >>> from shiftproof.features import IFeAT, LinearHeadSweep, cache_features
    >>> data = sp.load("colored-digits")
    >>> featurizer = torch.nn.Sequential(torch.nn.Linear(128, 16), torch.nn.ReLU())
    >>> learned = IFeAT(rounds=2, steps=5).fit(featurizer, torch.nn.Linear(16, 1), data)
    >>> heads = LinearHeadSweep(objectives=("irm", "vrex"), penalties=(10.0, 1e3), steps=5)
    >>> swept = heads.fit(cache_features(featurizer, data.train), data.train.y, data.train.env)
    >>> len(learned.rounds), swept.accuracy(cache_features(featurizer, data.test), data.test.y, data.test.env).shape
    (2, torch.Size([1, 4, 3]))

What features hold is asked with `DFR` and `linear_probe` (and with the maps of `explanations.algorithms.image_maps`);
`theory` holds the exact dynamics of ERM and IRMv1 on two-patch data, and the network they describe.
"""

from shiftproof.features.bonsai import Bonsai
from shiftproof.features.feat import ERMPretrainer, FeAT, IFeAT
from shiftproof.features.heads import HeadMixture, merge_weights, mix_heads
from shiftproof.features.interpolation import PI
from shiftproof.features.many_heads import ManyHeads
from shiftproof.features.method import FeATMethod
from shiftproof.features.probes import DFR, dfr_spurious, linear_probe
from shiftproof.features.results import Pretrained, RoundLog
from shiftproof.features.splits import GroupBatches, GroupSplit
from shiftproof.features.sweep import HeadSetting, HeadSweep, LinearHeadSweep, cache_features
from shiftproof.features.termination import must_stop
from shiftproof.features.theory.patch_cnn import PatchCNN, simulate_feature_learning
from shiftproof.features.theory.population import erm_fixed_point, irm_kernel, population_dynamics

__all__ = [
    "DFR",
    "PI",
    "Bonsai",
    "ERMPretrainer",
    "FeAT",
    "FeATMethod",
    "GroupBatches",
    "GroupSplit",
    "HeadMixture",
    "HeadSetting",
    "HeadSweep",
    "IFeAT",
    "LinearHeadSweep",
    "ManyHeads",
    "PatchCNN",
    "Pretrained",
    "RoundLog",
    "cache_features",
    "dfr_spurious",
    "erm_fixed_point",
    "irm_kernel",
    "linear_probe",
    "merge_weights",
    "mix_heads",
    "must_stop",
    "population_dynamics",
    "simulate_feature_learning",
]
