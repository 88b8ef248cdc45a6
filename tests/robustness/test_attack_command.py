"""`shiftproof attack` and `shiftproof audit`: what they write, and mistakes that end as one sentence and status 2."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shiftproof.cli import main
from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import Budget, Perturbation, build_defence, verify
from shiftproof.robustness.attack_and_compare import attack_and_defend, budget_for
from shiftproof.robustness.attacks.presets import PRESETS, attack_preset
from shiftproof.robustness.audit import YOURS, audit, summary


def small(nodes: int = 60) -> NodeGraph:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % 3
    x = torch.randn(3, 8, generator=draw)[y] + 0.3 * torch.randn(nodes, 8, generator=draw)
    ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 3) % nodes])
    order = torch.randperm(nodes, generator=draw)
    splits = {"train": order[:30], "val": order[30:36], "test": order[36:]}
    return NodeGraph.from_edges(
        x, torch.cat([ring, torch.randint(nodes, (2, nodes), generator=draw)], 1), y, name="small", **splits
    )


QUICK = {"epochs": 3, "options": {"steps": 3}}


def test_attack_writes_what_it_did_and_what_it_cost(tmp_path: Path) -> None:
    graph, budget = small(), Budget(3, 4)
    found = attack_and_defend(
        graph, "pgd", budget=budget, hao=0.5, defences=["gcn", "eguard", "mlp"], out=tmp_path, seeds=2, **QUICK
    )
    kept = Perturbation.load(tmp_path / "perturbation.npz")
    verify(graph, kept, budget, targets=graph.test)
    assert json.loads((tmp_path / "attack.json").read_text())["defences"] == found["defences"]
    assert {row["defence"] for row in found["defences"]} == {"gcn", "eguard", "mlp"}
    line = {row["defence"]: row for row in found["defences"]}
    assert line["mlp"]["clean"] == line["mlp"]["attacked"]
    assert line["gcn"]["seeds"] == 2
    assert found["spent"] == {"nodes": 3, "edges": 12, "added": 0, "removed": 0}
    assert found["homophily"]["distance"] > 0
    assert len(list((tmp_path / "defences").glob("*.safetensors"))) == 6


def test_budgets_come_from_the_graph_unless_given() -> None:
    graph = small()
    assert budget_for(graph, "pgd") == Budget(1, 12)
    assert budget_for(graph, "pgd", nodes=4, edges_per_node=2) == Budget(4, 2)
    assert budget_for(graph, "metattack").edges == graph.num_edges // 20
    assert budget_for(graph, "m2").edges_per_node == 2
    assert PRESETS["cora"].budget == Budget(60, 20)
    assert PRESETS["computers"].options_of("agia:step=0.1") == {"first_random": 0.5, "edge_steps": 100}
    assert PRESETS["computers"].hao_of("tdgia:step=0.1") == 1.0
    assert attack_preset(graph).nodes == 1


def audited(model=None):
    return audit(
        small(),
        model=model,
        attacks=("rnd", "pgd"),
        hao=2.0,
        defences=("gcn", "eguard", "mlp"),
        budget=Budget(4, 4),
        shares=(0.5, 1.0),
        steps=4,
        epochs=4,
    )


def test_an_audit_scores_every_defence_under_every_attack() -> None:
    numbers, found = audited()
    assert [one.label for one in numbers.attacks] == ["rnd", "pgd", "pgd + HAO"]
    assert set(found) == {"rnd", "pgd", "pgd + HAO"}
    assert set(numbers.table) == {"gcn", "eguard", "mlp"}
    assert all(set(scores) == {"clean", "rnd", "pgd", "pgd + HAO"} for scores in numbers.table.values())
    assert [histogram.label for histogram in numbers.histograms] == ["clean", "pgd", "pgd + HAO"]
    assert [(curve["nodes"], curve["hao"]) for curve in numbers.curves] == [(2, 0.0), (2, 2.0), (4, 0.0), (4, 2.0)]
    # all of the budget is the attack of the table
    assert numbers.curves[2]["accuracy"]["gcn"] == numbers.table["gcn"]["pgd"]
    told = " ".join(summary(numbers))
    assert "eguard" in told
    assert "4 injected nodes of at most 4 edges each" in told
    json.dumps(numbers.to_json())


def test_your_model_is_scored_and_attacked_by_one_who_has_it() -> None:
    graph = small()
    numbers, found = audited(build_defence("sage", graph))
    assert "pgd on your model" in found
    assert YOURS in numbers.table
    assert numbers.attacks[-1].sees_model
    assert summary(numbers)[0].startswith("Your model GraphSAGE classifies")


@dataclass(frozen=True)
class Seen:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Seen]:
    """The command, run in this process."""

    def call(*arguments: str) -> Seen:
        monkeypatch.setattr(sys, "argv", ["shiftproof", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Seen(int(ended.value.code or 0), told.out, told.err)

    return call


def test_the_command_line_attacks_a_file(tmp_path: Path, run) -> None:
    data = small().save(tmp_path / "mine.npz")
    asked = (
        "--attack tdgia:step=0.5 --hao 1 --defences gcn,mlp --epochs 2 --budget-nodes 4 --budget-edges 3 --set steps=2"
    )
    seen = run("attack", str(data), *asked.split(), "--out", str(tmp_path / "a"), "--json")
    assert seen.returncode == 0, seen.stderr
    assert json.loads(seen.stdout)["spent"]["edges"] == 12


def test_the_title_of_the_table_is_one_line_however_narrow_the_table(tmp_path: Path, run) -> None:
    data = small().save(tmp_path / "mine.npz")
    asked = "--attack pgd:steps=2,rate=0.01,patience=7 --defences gcn --epochs 2"
    seen = run("attack", str(data), *asked.split())
    assert seen.returncode == 0, seen.stderr
    assert seen.stdout.splitlines()[0] == "pgd:steps=2,rate=0.01,patience=7 on small, accuracy in %"


SOURCE = """
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.lin = nn.Linear(in_channels, num_classes)

    def forward(self, x, edge_index):
        return self.lin(x + torch.zeros_like(x).index_add(0, edge_index[0], x[edge_index[1]]))
"""


def test_the_command_line_audits_a_model(tmp_path: Path, run) -> None:
    data, file = small().save(tmp_path / "mine.npz"), tmp_path / "own.py"
    file.write_text(SOURCE)
    for name, classes in (("own", 3), ("narrow", 2)):
        layer = nn.Linear(8, classes)
        save_file(
            {"lin.weight": layer.weight.detach(), "lin.bias": layer.bias.detach()}, tmp_path / f"{name}.safetensors"
        )
    asked = ["audit", str(data), "--model", f"{file}:Own", "--out", str(tmp_path / "b"), "--weights"]
    brief = ["--attacks", "pgd", "--defences", "gcn,mlp", "--epochs", "2", "--steps", "2"]
    seen = run(*asked, str(tmp_path / "own.safetensors"), *brief)
    assert seen.returncode == 0, seen.stderr
    assert (tmp_path / "b" / "audit.html").is_file()
    assert (tmp_path / "b" / "perturbations" / "pgd-on-your-model.npz").is_file()
    assert "Your model" in seen.stdout
    wrong = run(*asked, str(tmp_path / "narrow.safetensors"), "--set", "num_classes=2")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "[60, 2]" in wrong.stderr


def test_mistakes_end_as_one_sentence(tmp_path: Path, run) -> None:
    import numpy as np

    graph = small()
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    np.savez(tmp_path / "directed.npz", x=graph.x, edge_index=one_way, y=graph.y, train=graph.train, test=graph.test)
    seen = run("attack", str(tmp_path / "directed.npz"))
    assert seen.returncode == 2
    assert "is directed" in seen.stderr
    assert seen.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget": Budget()}, "the budget allows none"),
        ({"budget": Budget(2, 2, low=0.0, high=0.1)}, "outside the box"),
        ({"defences": ["gnc"]}, "gnc"),
        ({"targets": torch.tensor([60])}, "targets are one or more of the nodes"),
        ({"options": {"step": 3}}, "step"),
    ],
)
def test_mistakes_of_an_attack_are_found(settings: dict, said: str) -> None:
    arguments = {"budget": Budget(2, 2), "defences": ["mlp"], "epochs": 1, **settings}
    with pytest.raises(ShiftproofError, match=said):
        attack_and_defend(small(), "pgd", **arguments)


def test_an_audit_is_of_injections() -> None:
    with pytest.raises(ShiftproofError, match="'metattack' is none"):
        audit(small(), attacks=("metattack",))
    with pytest.raises(ShiftproofError, match="the budget allows none"):
        audit(small(), budget=Budget())
