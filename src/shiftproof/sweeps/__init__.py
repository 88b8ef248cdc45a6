"""Many runs at once, and the tables they make.

`run_jobs` trains a list of jobs one after another or in several processes (one torch thread each, waiting passively:
two spinning thread pools on the same cores are a hundred times slower); `results_table` puts the finished runs into the
format of the files in `results/`. A `Recipe` names the runs of a table or of an analysis with its figure, and carries
the claims that its source makes. `journal` notes finished runs, `ray_engine` trains on a cluster, `search` looks for
settings, `user_code` brings in what is the user's own, `stage_reuse` trains a stage that several runs share once,
`extend_table` puts new rows beside old ones, and `comparison` says what a table shows. `side_by_side` compares any
methods on any data; `compared` is what came of it.
"""

from shiftproof.sweeps.claims import Claim, Finding, Pick
from shiftproof.sweeps.compared import Compared
from shiftproof.sweeps.comparison import judge
from shiftproof.sweeps.jobs import Job, Local, expand_grid, run_jobs
from shiftproof.sweeps.ray_engine import Ray
from shiftproof.sweeps.recipes import Cell, Recipe, on_few_samples
from shiftproof.sweeps.search import Search
from shiftproof.sweeps.table import results_table, rows_of, summarise

__all__ = [
    "Cell",
    "Claim",
    "Compared",
    "Finding",
    "Job",
    "Local",
    "Pick",
    "Ray",
    "Recipe",
    "Search",
    "expand_grid",
    "judge",
    "on_few_samples",
    "results_table",
    "rows_of",
    "run_jobs",
    "summarise",
]
