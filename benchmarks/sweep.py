"""Seeds side by side against one after the other: SPMotif ERM through the same engine that sweeps use.

    python benchmarks/sweep.py --workers 2                                  two cores; goal: 1.7 times the throughput
    python benchmarks/sweep.py --device cuda --compile --stack 16           one GPU, all seeds in one; goal: 6 times
    python benchmarks/sweep.py --device cuda --compile --workers 16         one GPU shared by 16 processes

"one after the other" trains the seeds in one process with one torch thread; "side by side" starts `--workers` processes
(on a GPU through NVIDIA's MPS server, where its program is installed), each of which trains `--stack` seeds as one.
Starting the processes, loading the data and compiling count, as they do in a sweep. The machine should have nothing
else to do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from shiftproof.sweeps import Job, rows_of, run_jobs

GOALS = {"cpu": 1.7, "cuda": 6.0}


def jobs(folder: Path, args: argparse.Namespace) -> list[Job]:
    sizes = f"train_per_class={args.graphs},val_per_class={args.graphs // 3},test_per_class={args.graphs // 3}"
    settings = {"epochs": args.epochs, "patience": None}
    return [
        Job(
            data=f"spmotif-struc:bias=0.9,{sizes}",
            method="erm",
            seed=seed,
            out=folder / "spmotif" / "erm" / f"seed-{seed}",
            settings=settings,
            device=args.device,
            compile="fused" if args.fuse else args.compile,
        )
        for seed in range(1, args.seeds + 1)
    ]


def timed(workers: int, stack: int, args: argparse.Namespace) -> tuple[float, list[float]]:
    """Seconds for all seeds, and what they scored, so that the two ways can be seen to compute the same."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = jobs(Path(folder), args)
        begun = time.perf_counter()
        done = list(run_jobs(wanted, workers=workers, stack=stack, style="none"))
        seconds = time.perf_counter() - begun
        (row,) = rows_of(done)
        return seconds, row["values"]


def alone(args: argparse.Namespace, seeds: int, stack: int = 1) -> tuple[float, list[float]]:
    """One after the other, or as one stack, in a fresh process, whose start counts as that of the workers does."""
    command = [sys.executable, __file__, "--alone", "--device", args.device, *(["--compile"] if args.compile else [])]
    command += ["--fuse"] if args.fuse else []
    command += [f"--{name}={getattr(args, name)}" for name in ("epochs", "graphs")]
    command += [f"--seeds={seeds}", f"--stack={stack}"]
    begun = time.perf_counter()
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return time.perf_counter() - begun, [float(value) for value in text.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int, default=None, help="two, or one with --stack")
    parser.add_argument("--stack", type=int, default=1, help="seeds that a process trains as one")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--few", type=int, help="train only so many one after the other, and reckon the rest from them")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--graphs", type=int, default=3000, help="training graphs of each of the three classes")
    parser.add_argument("--compile", action="store_true", help="compile (CPU) or replay (GPU) the step in both ways")
    parser.add_argument("--fuse", action="store_true", help="GPU: fuse the kernels of the replayed step in both ways")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        print(*timed(1, args.stack, args)[1])
        return
    workers = args.workers or (1 if args.stack > 1 else 2)
    one, first = alone(args, args.few or args.seeds)
    if args.few:  # the start is counted once: that of a process which trains a single epoch, so a little too long
        start, _ = alone(argparse.Namespace(**{**vars(args), "epochs": 1}), 1)
        print(f"one after the other: {args.few} seeds in {one:.1f} s, of which {start:.1f} s are the start")
        one = start + (one - start) / args.few * args.seeds
    many, second = alone(args, args.seeds, args.stack) if workers == 1 else timed(workers, args.stack, args)
    how = "compiled" if args.compile else "eager"
    print(f"SPMotif ERM, {args.seeds} seeds of {args.epochs} epochs, {3 * args.graphs} graphs, {args.device}, {how}")
    print(f"{'':28}{'seconds':>10}{'runs an hour':>14}{'ratio':>8}{'goal':>6}")
    label = "one after the other" + (f" (from {args.few})" if args.few else "")
    print(f"{label:28}{one:10.1f}{3600 * args.seeds / one:14.0f}{1.0:8.2f}")
    label = f"side by side, {workers} x {args.stack}" if args.stack > 1 else f"side by side, {workers} workers"
    print(f"{label:28}{many:10.1f}{3600 * args.seeds / many:14.0f}{one / many:8.2f}{GOALS[args.device]:6.1f}")
    apart = max(abs(a - b) for a, b in zip(first, second, strict=args.few is None))
    print(f"largest difference of a seed's test accuracy between the two: {apart:.2g}")


if __name__ == "__main__":
    main()
