"""Draw the figures of the measured tables in results/ into docs/figures/, as the build of the site does.

python docs/make_figures.py
"""

from __future__ import annotations

from pathlib import Path

from shiftproof.errors import ShiftproofError
from shiftproof.papers.measured import recipe_of
from shiftproof.sweeps.table import read_table

RESULTS = Path(__file__).parents[1] / "results"
FIGURES = Path(__file__).parent / "figures"


def draw_all(results: Path = RESULTS, figures: Path = FIGURES) -> list[str]:
    """One figure for every table whose recipe draws one: what was drawn, and what cannot be drawn from rows alone."""
    told = []
    for path in sorted(results.glob("*.json")):
        recipe = recipe_of(path.stem)
        if recipe is None or recipe.draw is None:
            continue
        try:
            told.append(recipe.draw(read_table(path, "a figure")["rows"], figures / f"{path.stem}.svg").name)
        except ShiftproofError as error:  # maps and trajectories are drawn from the runs, which are not kept in git
            told.append(f"{path.stem}: not drawn ({error})")
    return told


if __name__ == "__main__":
    print("\n".join(draw_all()))
