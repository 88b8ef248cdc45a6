"""Tiny runs of every method, attack and defence give the numbers that they gave before."""

import json
from functools import lru_cache
from pathlib import Path

import pytest
import torch

from shiftproof.papers import witness
from shiftproof.registry import attacks, defences, methods

STORED = Path(__file__).parent / "witnesses.json"
RESULTS = Path(__file__).parents[1] / "results"


@lru_cache(maxsize=1)
def stored() -> dict:
    return witness.read(STORED)


def require_as_before(name: str) -> None:
    made_with = stored()["versions"]["torch"]
    if made_with != torch.__version__:
        pytest.skip(f"the witnesses are of torch {made_with}, this is {torch.__version__}; {witness.COMMAND}")
    assert name in stored()["witnesses"], (
        f"'{name}' has no stored witness; `{witness.COMMAND} --only '{name}'` makes it"
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = witness.compare(stored()["witnesses"][name], witness.measure(name))
    finally:
        torch.set_num_threads(threads)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", witness.chosen(choice=True))
def test_a_witness_of_every_family_says_what_it_said(name: str) -> None:
    require_as_before(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*witness.chosen()} - {*witness.chosen(choice=True)}))
def test_a_witness_says_what_it_said(name: str) -> None:
    require_as_before(name)


def test_every_method_attack_and_defence_has_a_stored_witness() -> None:
    names = [f"method/{entry.name}" for entry in methods]
    names += [f"attack/{entry.name}" for entry in attacks] + [f"defence/{entry.name}" for entry in defences]
    missing = [name for name in names if name not in stored()["witnesses"]]
    assert not missing, f"{', '.join(missing)} have no stored witness; `{witness.COMMAND}` makes them"


def test_exactly_the_known_witnesses_are_stored() -> None:
    gone = stored()["witnesses"].keys() ^ witness.witnesses().keys()
    assert not gone, f"{', '.join(sorted(gone))}: stored and known witnesses differ; `{witness.COMMAND}` mends it"


@pytest.mark.parametrize("table", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_every_row_of_the_results_rests_on_a_witness(table: Path) -> None:
    for row in json.loads(table.read_text())["rows"]:
        names = witness.concerning(row)
        if not names and row["method"] == "watch" and row.get("made_by", {}).get("sources"):
            continue  # streams of scores, nothing was trained: such a row rests on the fingerprint of its sources
        assert names, f"no witness concerns {row['method']} {row['variant']} on {row['dataset']}"
        assert {*names} <= stored()["witnesses"].keys()


def test_a_number_that_moved_is_told_and_one_within_the_tolerance_is_not() -> None:
    one = {"metrics": {"accuracy": 0.5, "auc": None}, "weights": {"sum": 1e3}}
    assert not witness.compare(one, {"metrics": {"accuracy": 0.5 + 1e-9, "auc": None}, "weights": {"sum": 1e3 + 1e-4}})
    moved = witness.compare(one, {"metrics": {"accuracy": 0.6}, "weights": {"sum": 1e3}})
    assert moved == ["metrics: 'auc' is gone", "metrics: 'accuracy' was 0.5 and is 0.6"]
