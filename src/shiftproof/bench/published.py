"""Figures printed in the papers, to stand beside ours."""

from __future__ import annotations

from shiftproof.registry import parse_name

# (data set, method, metric): (mean, deviation), as fractions
_FIGURES: dict[tuple[str, str, str], tuple[float, float]] = {
    # spec pair 8.1: minimum accuracy over the three test environments
    ("cmnist", "erm", "worst_group"): (0.171, 0.009),
    ("cmnist", "irm", "worst_group"): (0.673, 0.019),
    ("cmnist", "vrex", "worst_group"): (0.686, 0.007),
    ("cmnist", "irmx", "worst_group"): (0.658, 0.029),
    ("cmnist-m", "erm", "worst_group"): (0.733, 0.009),
    ("cmnist-m", "irm", "worst_group"): (0.768, 0.032),
    ("cmnist-m", "vrex", "worst_group"): (0.829, 0.013),
    ("cmnist-m", "irmx", "worst_group"): (0.816, 0.020),
    # spec ciga 8.1
    ("spmotif-struc:bias=0.33", "erm", "accuracy"): (0.5949, 0.0350),
    ("spmotif-struc:bias=0.6", "erm", "accuracy"): (0.5548, 0.0484),
    ("spmotif-struc:bias=0.9", "erm", "accuracy"): (0.4964, 0.0463),
    ("spmotif-mixed:bias=0.33", "erm", "accuracy"): (0.5818, 0.0430),
    ("spmotif-mixed:bias=0.6", "erm", "accuracy"): (0.4929, 0.0817),
    ("spmotif-mixed:bias=0.9", "erm", "accuracy"): (0.4136, 0.0329),
}


def published(data: str, method: str, metric: str) -> dict[str, float] | None:
    """The printed mean and deviation of a method on a data set, or None where there is none."""
    name, options = parse_name(data)
    keys = [data, name] if not options else [f"{name}:{key}={value}" for key, value in options.items()]
    for key in keys:
        if (key, method, metric) in _FIGURES:
            mean, std = _FIGURES[key, method, metric]
            return {"mean": mean, "std": std}
    return None
