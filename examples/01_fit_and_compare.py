"""Train two methods on digits whose colour predicts the label in training and misleads at test time.

python examples/01_fit_and_compare.py
python examples/01_fit_and_compare.py --epochs 20 --seeds 1      a quick look, too short to show anything
"""

import argparse
import statistics

import shiftproof as sp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--seeds", type=int, default=3)
args = parser.parse_args()

data = sp.load("colored-digits", copies=10)
print(data)
print("provenance:", data.provenance)

# one batch of everything, a small network, the last epoch is kept; chosen by hand on this very data
common = {"epochs": args.epochs, "batch_size": None, "widths": (16,), "lr": 1e-2, "l2": 1e-3, "selection": "last"}
settings = {
    "erm": {},
    # a mild penalty while the features form (the first half), then a strong one
    "vrex": {"penalty": 3e3, "anneal_steps": args.epochs // 2, "rescale": True},
}

print("\ntest accuracy by how often the colour disagrees with the label (in training: 0.1 and 0.2)")
for method, own in settings.items():
    runs = [sp.fit(method, data, seed=seed, **common, **own) for seed in range(args.seeds)]
    tests = [run.metrics["test"] for run in runs]
    for flip in tests[0]["by_env"]:
        mean = statistics.fmean(test["by_env"][flip]["accuracy"] for test in tests)
        print(f"{method:5} {flip:>5}  {mean:.3f}")
    print(f"{method:5} worst  {statistics.fmean(test['worst_group'] for test in tests):.3f}\n")
