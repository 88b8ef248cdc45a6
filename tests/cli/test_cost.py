"""What a command will cost is said beforehand, seeds are a count or a list, and own methods are taken everywhere."""

import json
import re

import pytest

SMALL = ("--set", "epochs=2", "--set", "widths=(4,)")
OWN = '''
import shiftproof as sp
from shiftproof.methods import ERM


class Mine(ERM):
    """Plain training under another name."""
'''


def test_a_dry_run_says_what_it_costs_and_trains_nothing(shiftproof, tmp_path):
    status, out, err = shiftproof(
        "fit", "two-bit:per_env=60", "-m", "erm", "-m", "vrex", "--seeds", "3", *SMALL, "--dry-run"
    )
    assert status == 0, err
    assert re.search(r"^6 runs: at most about \d+ (seconds|minutes) on this machine, about \d+\.\d GiB", out)
    assert not list(tmp_path.rglob("metrics.json"))
    words = ("-m", "erm", "-m", "vrex", "--seeds", "2", *SMALL, "--workers", "2", "--dry-run", "--search", "3")
    status, out, err = shiftproof("compare", "two-bit:per_env=60", *words)
    assert status == 0, err
    assert re.search(r"^10 runs: at most about .* with 2 workers", out)


def test_seeds_are_a_count_or_a_list(shiftproof):
    status, out, err = shiftproof("fit", "two-bit:per_env=40", "-m", "erm", "--seeds", "0,3,7", *SMALL, "--json")
    assert status == 0, err
    assert json.loads(out)[0]["seeds"] == 3
    for wrong in ("zero", "1,1", "-1", "", "1.5"):
        status, _, err = shiftproof("fit", "two-bit:per_env=40", "-m", "erm", f"--seeds={wrong}")
        assert status == 2
        assert "seeds" in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_a_method_of_ones_own_and_settings_go_with_its_name(command, shiftproof, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    words = ("-m", "mine.py:Mine:lr=0.01", "-m", "vrex:penalty=2.5", "--seeds", "1", *SMALL, "--out", "runs")
    status, _, err = shiftproof(command, "two-bit:per_env=40", *words)
    assert status == 0, err
    kept = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("runs/**/config.json"))]
    assert {(one["method"], one.get("lr") or one["training"].get("lr")) for one in kept} >= {("mine", 0.01)}
