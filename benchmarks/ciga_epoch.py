"""Seconds per training epoch of CIGA and DIR on SPMotif-struc, beside our own ERM epoch of the same run.

    python benchmarks/ciga_epoch.py [--threads 2]

The last column is how many ERM epochs an epoch costs. The column before it names what the released implementation took
on the same kind of machine (two threads, idle; measured once elsewhere, so it is orientation and not a ratio). Peak
memory is printed after every epoch of CIGAv2 to show that it stays flat.
"""

from __future__ import annotations

import argparse
import resource
import statistics

import torch

import shiftproof as sp

RELEASED = {"erm": 5.1, "ciga-v1": 15.0, "ciga-v2": 20.5, "dir": 57.5}


def epochs_of(name: str, data: sp.Dataset, epochs: int) -> float:
    run = sp.fit(name, data, epochs=epochs, patience=None, selection="last")
    return run.timing["training_epoch_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="how often to go through the methods; medians are shown")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = sp.load("spmotif-struc", bias=0.9)

    seconds: dict[str, list[float]] = {name: [] for name in RELEASED}
    for _ in range(args.rounds):  # in turns, so that a busy moment of the machine does not hit one method alone
        for name in RELEASED:
            seconds[name].append(epochs_of(name, data, args.epochs))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"SPMotif-struc bias 0.9, 9,000 training graphs, batch 32, GCN 3x32, ratio 0.25, {args.threads} thread(s)")
    print(f"{'method':10}{'s/epoch':>9}{'released, s':>13}{'x ERM':>8}")
    for name, median in medians.items():
        print(f"{name:10}{median:9.2f}{RELEASED[name]:13.1f}{median / medians['erm']:8.2f}")

    peaks = []
    for _ in range(4):
        epochs_of("ciga-v2", data, 2)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print("peak memory after 2, 4, 6, 8 more epochs of ciga-v2, MiB:", ", ".join(f"{peak:.0f}" for peak in peaks))


if __name__ == "__main__":
    main()
