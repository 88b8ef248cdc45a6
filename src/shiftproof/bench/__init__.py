"""Many runs at once, and the tables they make.

`run_jobs` trains a list of jobs one after another or in several processes (one torch thread each, waiting passively:
two spinning thread pools on the same cores are a hundred times slower); `results_table` puts the finished runs into the
format of the files in `results/`. A `Recipe` names the runs of a published table (`recipes`) or of an analysis with its
figure (`analyses`), and carries the claims that its source makes. `journal` notes finished runs, `ray_engine` trains
on a cluster, `search` looks for settings, `outside` brings in what is the user's own, and `comparison` says what a
table shows.
"""

from shiftproof.bench import analyses as analyses  # registers its recipes
from shiftproof.bench import assistants as assistants
from shiftproof.bench import feat as feat
from shiftproof.bench import feat_analyses as feat_analyses
from shiftproof.bench import feat_maps as feat_maps
from shiftproof.bench import feat_theory as feat_theory
from shiftproof.bench import gala as gala
from shiftproof.bench import gmt as gmt
from shiftproof.bench import gmt_curves as gmt_curves
from shiftproof.bench import gmt_geometric as gmt_geometric
from shiftproof.bench import gmt_measures as gmt_measures
from shiftproof.bench import hao as hao
from shiftproof.bench import own_molecules as own_molecules
from shiftproof.bench import pair as pair
from shiftproof.bench import pair_analyses as pair_analyses
from shiftproof.bench import pair_domains as pair_domains
from shiftproof.bench import pair_extrapolation as pair_extrapolation
from shiftproof.bench import pair_selection as pair_selection
from shiftproof.bench import pair_theory as pair_theory
from shiftproof.bench.claims import Claim, Finding, Pick
from shiftproof.bench.comparison import compare
from shiftproof.bench.jobs import Job, Local, expand_grid, run_jobs
from shiftproof.bench.ray_engine import Ray
from shiftproof.bench.recipes import Cell, Recipe, on_few_samples
from shiftproof.bench.search import Search
from shiftproof.bench.table import results_table, rows_of, summarise

__all__ = [
    "Cell",
    "Claim",
    "Finding",
    "Job",
    "Local",
    "Pick",
    "Ray",
    "Recipe",
    "Search",
    "compare",
    "expand_grid",
    "on_few_samples",
    "results_table",
    "rows_of",
    "run_jobs",
    "summarise",
]
