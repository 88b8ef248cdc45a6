"""Train several seeds of a method in the same steps, and see how much of a result is luck.

python examples/many_seeds.py
python examples/many_seeds.py --device cuda        several times faster than one after another
"""

import argparse
import statistics

import shiftproof as sp

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seeds", type=int, default=4)
parser.add_argument("--device", default="auto")
args = parser.parse_args()

data = sp.load("spmotif-struc:bias=0.6,train_per_class=100,val_per_class=40,test_per_class=40")
for method in ("erm", "xgnn", "ciga-v1"):
    runs = sp.fit_seeds(method, data, seeds=range(args.seeds), epochs=args.epochs, device=args.device, compile=True)
    scores = [run.metrics["test"]["accuracy"] for run in runs]
    share = runs[0].timing["seconds"]
    print(f"{method:8} {statistics.mean(scores):.3f} +- {statistics.pstdev(scores):.3f}, {share:.1f} s a seed")
