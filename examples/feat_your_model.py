"""FeAT on a model of your own: rich features by rounds, then heads for several objectives at once.

python examples/feat_your_model.py
"""

import argparse

import torch
from torch import nn

import shiftproof as sp
from shiftproof.features import ERMPretrainer, IFeAT, LinearHeadSweep, cache_features

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()

data = sp.load("colored-digits", copies=2)  # or sp.DomainSet(x, y, env) of your own tensors
for learner in (ERMPretrainer(steps=args.steps, l2=1e-3), IFeAT(rounds=2, steps=args.steps, l2=1e-3, merge="sum")):
    torch.manual_seed(0)
    featurizer = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    learned = learner.fit(featurizer, nn.Linear(64, 1), data)
    for record in learned.rounds:
        print(f"round {record.round}: training {record.train_accuracy:.3f}, worst test {record.scores['test']:.3f}")
    sweep = LinearHeadSweep(objectives=("erm", "irm", "vrex"), penalties=(1e2, 1e4), steps=4 * args.steps, l2=1e-3)
    heads = sweep.fit(cache_features(featurizer, data.train), data.train.y, data.train.env)
    worst = heads.accuracy(cache_features(featurizer, data.test), data.test.y, data.test.env)[-1].amin(1)
    for setting, value in zip(heads.settings, worst.tolist(), strict=True):
        print(f"  {type(learner).__name__}, {setting.objective} {setting.penalty:g}: worst test {value:.3f}")
