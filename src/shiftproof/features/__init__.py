"""Rich features first: learn all that predicts, then choose what holds everywhere."""

from shiftproof.features.bonsai import Bonsai
from shiftproof.features.feat import ERMPretrainer, FeAT, IFeAT
from shiftproof.features.heads import HeadMixture, merge_weights, mix_heads
from shiftproof.features.many_heads import ManyHeads
from shiftproof.features.method import FeATMethod
from shiftproof.features.results import Pretrained, RoundLog
from shiftproof.features.splits import GroupBatches, GroupSplit
from shiftproof.features.sweep import HeadSetting, HeadSweep, LinearHeadSweep, cache_features
from shiftproof.features.termination import must_stop

__all__ = [
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
    "Pretrained",
    "RoundLog",
    "cache_features",
    "merge_weights",
    "mix_heads",
    "must_stop",
]
