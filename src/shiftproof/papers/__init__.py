"""The published tables and analyses of the six systems, a folder each, to be measured again with `shiftproof bench`.

In each folder `tables` (and `analyses`) are recipes, `claims` what the paper says of its tables, `published` the
printed figures. `command` is what `shiftproof bench` does, `catalogue` lists the recipes and what they need, `measured`
reads a folder of tables. No other room imports this one; importing it registers every recipe.
"""

from shiftproof.papers.ciga import analyses as ciga_analyses  # noqa: F401
from shiftproof.papers.ciga import published as ciga_published  # noqa: F401
from shiftproof.papers.ciga import tables as ciga  # noqa: F401
from shiftproof.papers.feat import analyses as feat_analyses  # noqa: F401
from shiftproof.papers.feat import maps as feat_maps  # noqa: F401
from shiftproof.papers.feat import tables as feat  # noqa: F401
from shiftproof.papers.feat import theory as feat_theory  # noqa: F401
from shiftproof.papers.gala import assistants  # noqa: F401
from shiftproof.papers.gala import published as gala_published  # noqa: F401
from shiftproof.papers.gala import tables as gala  # noqa: F401
from shiftproof.papers.gmt import curves, geometric, measures  # noqa: F401
from shiftproof.papers.gmt import tables as gmt  # noqa: F401
from shiftproof.papers.hao import tables as hao  # noqa: F401
from shiftproof.papers.molecules import tables as molecules  # noqa: F401
from shiftproof.papers.pair import analyses as pair_analyses  # noqa: F401
from shiftproof.papers.pair import domains, extrapolation, selection, theory  # noqa: F401
from shiftproof.papers.pair import published as pair_published  # noqa: F401
from shiftproof.papers.pair import tables as pair  # noqa: F401
