"""The zoo: names, categories, presets, and models that are trained once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shiftproof.data.nodes import NodeGraph
from shiftproof.errors import ShiftproofError
from shiftproof.robustness import aggregate, evaluate, predict, train_zoo, trained_zoo
from shiftproof.robustness.flag import FLAG
from shiftproof.robustness.zoo import PRESETS, DefenceSpec, ZooPreset, chosen, preset_for, standard38

QUICK = ZooPreset(hidden=8, epochs=2, flag=FLAG(steps=2))


def small_graph(seed: int = 0) -> NodeGraph:
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(30, (2, 80), generator=draw)
    y = torch.arange(30) % 3
    x = torch.randn(3, 8, generator=draw)[y] + 0.5 * torch.randn(30, 8, generator=draw)
    order = torch.randperm(30, generator=draw)
    return NodeGraph.from_edges(x, pairs, y, train=order[:15], val=order[15:20], test=order[20:], name="small")


def test_a_name_says_its_tricks_in_one_order() -> None:
    spec = DefenceSpec.parse("eguard+lni+flag:threshold=0.2")
    assert spec.name == "eguard+flag+lni"
    assert spec.constructor == {"layer_norm_inner": True, "threshold": 0.2}
    assert spec.flag
    assert spec.category == "combo"
    assert DefenceSpec("mlp").category == "reference"
    assert [DefenceSpec.parse(name).category for name in ("gcn", "gcn+flag", "rgat", "gat+ln+lni")] == [
        "vanilla",
        "robust",
        "robust",
        "combo",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gcn+flg", "unknown trick"),
        ("robustgcn+ln", "no layer norm 'ln'"),
        ("guardd", "unknown defence"),
        ("gcn:threshold=1", "unknown option 'threshold' of defence 'gcn'"),
        ("eguard:norm=both", "takes sym or row"),
    ],
)
def test_a_wrong_name_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ShiftproofError, match=words):
        DefenceSpec.parse(text)


def test_presets_hold_the_published_settings() -> None:
    assert preset_for("cora-grb").flag == FLAG(steps=100)
    assert preset_for("something") == ZooPreset()
    computers = {spec.name: spec for spec in PRESETS["computers"].specs()}
    assert computers["gcnguard+ln"].options["threshold"] == 0.15
    assert computers["rgat"].options["threshold"] == 0.1
    assert {spec.options["threshold"] for spec in PRESETS["citeseer"].specs() if spec.backbone == "rgat"} == {0.2}
    arxiv = PRESETS["arxiv"].specs()
    assert all(spec.options["hidden"] == 128 for spec in arxiv)
    assert "gcnguard" not in {spec.backbone for spec in arxiv}
    assert not any("ln" in spec.tricks for spec in PRESETS["chameleon"].specs())
    assert len(PRESETS["cora"].specs()) == 39  # with the MLP line


def test_defences_are_chosen_by_name_or_category() -> None:
    assert [spec.name for spec in chosen("vanilla")] == ["gcn", "sage", "gat"]
    assert [spec.name for spec in chosen(["gcn", "vanilla", "eguard:threshold=0.3"], QUICK)][-1] == "eguard"
    assert chosen("eguard:threshold=0.3", QUICK)[0].options == {"hidden": 8, "threshold": 0.3}
    assert len(chosen("all")) == 39


def test_the_whole_zoo_trains_and_is_scored() -> None:
    graph = small_graph()
    zoo = train_zoo(graph, preset=QUICK, specs=QUICK.specs(), progress="none")
    assert len(zoo) == 39
    rows = evaluate(zoo, {"clean": graph})
    table = aggregate(rows)["clean"]
    by_name = {row["defence"]: row["accuracy"] for row in rows}
    assert table["homo"] == max(by_name["gcnguard"], by_name["rgat"])
    assert table["mlp"] == by_name["mlp"]
    zoo38 = [by_name[spec.name] for spec in standard38()]
    assert table["average"] == pytest.approx(sum(zoo38) / 38)


def test_a_kept_zoo_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, specs = small_graph(), chosen(["gcn", "eguard+flag"], QUICK)
    first = train_zoo(graph, specs, seeds=(0, 1), preset=QUICK, folder=tmp_path, progress="none")
    assert len(list(tmp_path.glob("*.safetensors"))) == len(list(tmp_path.glob("*.json"))) == 4

    def never(*args: object, **options: object) -> None:
        raise AssertionError("trained again")

    with monkeypatch.context() as patch:
        patch.setattr(trained_zoo, "train_defence", never)
        second = train_zoo(graph, specs, seeds=(0, 1), preset=QUICK, folder=tmp_path, progress="none")
        for ours, theirs in zip(first, second, strict=True):
            assert (ours.spec, ours.seed, ours.accuracies) == (theirs.spec, theirs.seed, theirs.accuracies)
            assert torch.equal(predict(ours.model, graph), predict(theirs.model, graph))
        for changed in (
            {"graph": small_graph(1)},
            {"seeds": (2,)},
            {"preset": ZooPreset(hidden=8, epochs=3, flag=FLAG(steps=2))},
            {"specs": chosen("gcn+ln", QUICK)},
            {"specs": chosen("gcn:dropout=0.25", QUICK)},
        ):
            settings = {"graph": graph, "specs": specs, "preset": QUICK, **changed}
            with pytest.raises(AssertionError, match="trained again"):
                train_zoo(**settings, folder=tmp_path, progress="none")


def test_a_model_half_written_is_trained_again(tmp_path: Path) -> None:
    graph, specs = small_graph(), chosen("gcn", QUICK)
    train_zoo(graph, specs, preset=QUICK, folder=tmp_path, progress="none")
    (note,) = tmp_path.glob("*.json")
    kept = json.loads(note.read_text())
    assert kept["config"]["defence"] == "gcn"
    note.unlink()
    train_zoo(graph, specs, preset=QUICK, folder=tmp_path, progress="none")
    assert json.loads(note.read_text())["accuracies"] == kept["accuracies"]


def test_a_damaged_model_is_one_sentence(tmp_path: Path) -> None:
    graph, specs = small_graph(), chosen("gcn", QUICK)
    train_zoo(graph, specs, preset=QUICK, folder=tmp_path, progress="none")
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(b"no tensors")
    with pytest.raises(ShiftproofError, match="damaged"):
        train_zoo(graph, specs, preset=QUICK, folder=tmp_path, progress="none")


def test_own_models_and_targets_are_scored_alike() -> None:
    graph = small_graph()
    zoo = train_zoo(graph, chosen("gcn", QUICK), seeds=(0, 1), preset=QUICK, progress="none")
    models = [member.model for member in zoo["gcn"]]
    targets = graph.test[:4]
    rows = evaluate({"gcn": models, "mine": models[0]}, {"a": graph, "b": graph}, targets)
    assert [(row["graph"], row["defence"], row["category"], row["seed"]) for row in rows[:3]] == [
        ("a", "gcn", "vanilla", 0),
        ("a", "gcn", "vanilla", 1),
        ("a", "mine", None, 0),
    ]
    right = predict(models[0], graph)[targets].argmax(1) == graph.y[targets]
    assert rows[0]["accuracy"] == rows[2]["accuracy"] == right.double().mean().item()
    assert aggregate(rows)["a"] == {
        "homo": None,
        "robust": None,
        "combo": None,
        "average": pytest.approx((rows[0]["accuracy"] + rows[1]["accuracy"]) / 2),
        "mlp": None,
    }
    with pytest.raises(ShiftproofError, match="targets are nodes of the clean graph"):
        evaluate({"gcn": models}, {"a": graph}, torch.tensor([30]))


def test_reading_a_zoo_gives_what_is_finished_and_trains_nothing(tmp_path: Path, monkeypatch) -> None:
    graph, specs = small_graph(), chosen(["gcn", "mlp"], QUICK)
    assert len(trained_zoo.read_zoo(graph, specs, preset=QUICK, folder=tmp_path)) == 0
    made = train_zoo(graph, specs[:1], preset=QUICK, folder=tmp_path, progress="none")
    monkeypatch.setattr(trained_zoo, "train_defence", lambda *_, **__: pytest.fail("nothing is to be trained"))
    found = trained_zoo.read_zoo(graph, specs, preset=QUICK, folder=tmp_path)
    assert [member.spec.name for member in found] == ["gcn"]
    assert torch.equal(predict(found["gcn"][0].model, graph), predict(made["gcn"][0].model, graph))
    patient = ZooPreset(hidden=8, epochs=2, flag=FLAG(steps=2), patience=None)
    assert len(trained_zoo.read_zoo(graph, specs, preset=patient, folder=tmp_path)) == 0


def test_the_zoo_stops_where_validation_no_longer_rises(monkeypatch) -> None:
    seen = []
    real = trained_zoo.train_defence

    def noted(*args, **how):
        seen.append({key: how.get(key) for key in ("patience", "evaluate_from")})
        return real(*args, **how)

    monkeypatch.setattr(trained_zoo, "train_defence", noted)
    for patience in (100, None):
        preset = ZooPreset(hidden=8, epochs=2, patience=patience)
        train_zoo(small_graph(), chosen(["gcn"], preset), preset=preset, progress="none")
    assert seen == [{"patience": 100, "evaluate_from": 0.0}, {"patience": None, "evaluate_from": None}]
