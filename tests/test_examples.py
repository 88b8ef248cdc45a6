"""Every script in examples/ runs as a user would start it, with small settings."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {
    "01_fit_and_compare.py": ["--epochs", "10", "--seeds", "1"],
    "02_your_own_method.py": ["--epochs", "10"],
    "03_pyg_graphs.py": ["--epochs", "2", "--graphs", "40"],
    "04_penalties_in_your_own_loop.py": ["--steps", "20"],
    "attack_a_graph.py": ["--epochs", "5", "--steps", "5"],
    "explain_your_model.py": ["--epochs", "2"],
    "feat_your_model.py": ["--steps", "5"],
    "gala_impossibility.py": [],
    "leave_one_domain_out.py": ["--epochs", "1"],
    "many_seeds.py": ["--epochs", "1", "--seeds", "2"],
    "pair_in_your_loop.py": ["--steps", "20"],
}
SAYS = {
    "01_fit_and_compare.py": ["erm   worst", "vrex  worst", "a stand-in for ColoredMNIST"],
    "02_your_own_method.py": ["penalty 1000.0  worst test accuracy"],
    "03_pyg_graphs.py": ["Dataset(rings: train=40, val=10, test=10", "groupdro", "chosen by val"],
    "04_penalties_in_your_own_loop.py": ["irm   training risks", "vrex  training risks"],
    "attack_a_graph.py": ["clean     gcn", "HAO 1     gcn", "injected nodes are like their neighbours by"],
    "explain_your_model.py": ["gnnexplainer AUC of the motif's edges", "occlusion    AUC", "without them by"],
    "feat_your_model.py": ["round 2: training", "ERMPretrainer, vrex 100: worst", "IFeAT, irm 10000: worst"],
    "gala_impossibility.py": ["(0.50, 0.15): the cause is erased", "right in 0.80", "no rule reaches more than 0.55"],
    "leave_one_domain_out.py": ["coral  accuracy: 0 degrees", "80 degrees", "; mean 0.", "worst 0."],
    "many_seeds.py": ["erm      0.", "xgnn     0.", "ciga-v1  0.", "s a seed"],
    "pair_in_your_loop.py": ["step   20  worst test accuracy", "last weights {'erm'", "fallbacks in 0%"],
}


def test_no_example_is_left_out() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == SMALL.keys() == SAYS.keys()


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example_runs_anywhere_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for text in SAYS[name]:
        assert text in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example_is_short_enough_to_copy(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 60
