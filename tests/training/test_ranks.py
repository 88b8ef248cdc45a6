"""One training on several processes is the training on one: losses, gradients, weights, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("spread_losses.py")
ALWAYS = {
    "erm",
    "irm",
    "vrex",
    "irmx",
    "ib-irm",
    "groupdro",
    "fishr",
    "coral",
    "dann",
    "cdann",
    "eiil",
    "cnc",
    "contrast",
}


def on_ranks(count: int, *words: str, cwd: Path | None = None) -> str:
    """What a script prints that so many processes run together."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *words]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, capture_output=True, text=True, timeout=600, cwd=cwd, env=alone)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_and_gradients_of_every_method_are_those_of_one_process_or_it_refuses(count: int) -> None:
    """Uneven parts, batch norm in the network, double precision; PAIR's Gram matrix after three steps."""
    found = [json.loads(line) for line in on_ranks(count, str(SCRIPT)).splitlines() if line.startswith("{")]
    trained = {row["method"] for row in found if "refused" not in row}
    assert trained >= ALWAYS | {"pair"}
    for row in found:
        if "refused" in row:
            assert "cannot be trained on several devices" in row["refused"] or row["refused"] == "has no gradient", row
        else:
            assert all(value < 1e-10 for name, value in row.items() if name not in ("method", "kind")), row
