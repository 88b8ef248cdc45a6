"""Many runs at once, and the tables they make.

`run_jobs` trains a list of jobs one after another or in several processes (one torch thread each, waiting passively:
two spinning thread pools on the same cores are a hundred times slower); `results_table` puts the finished runs into the
format of the files in `results/`.
"""

from shiftproof.bench.jobs import Job, expand_grid, run_jobs
from shiftproof.bench.recipes import Cell, Recipe
from shiftproof.bench.table import results_table, rows_of, summarise

__all__ = ["Cell", "Job", "Recipe", "expand_grid", "results_table", "rows_of", "run_jobs", "summarise"]
