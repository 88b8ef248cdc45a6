"""What several tests of recipes share."""

import pytest

from shiftproof.presets import PRESETS, Preset
from shiftproof.registry import recipes
from shiftproof.sweeps import Cell, Recipe

BITS = "two-bit:per_env=40"


@pytest.fixture
def small_recipe(monkeypatch):
    """A recipe of two methods on data with a validation split and short training, for the time of a test."""

    def small() -> Recipe:
        """A small table."""
        return Recipe("small-table", (Cell(BITS, "erm"), Cell(BITS, "irm")), seeds=2, ours=("irm",))

    monkeypatch.setitem(PRESETS, "two-bit", Preset("a test", {"widths": (4,)}, {"epochs": 2}))

    assert "small-table" not in recipes
    recipes.add("small-table", small)
    yield "small-table"
    del recipes._entries["small-table"]
