"""The published tables and analyses of the six systems, a folder each, to be measured again with `shiftproof bench`.

In each folder `tables` (and `analyses`) are recipes, `claims` what the paper says of its tables, `published` the
printed figures. `command` is what `shiftproof bench` does, `catalogue` lists the recipes and what they need, `measured`
reads a folder of tables. No other room imports this one; importing it registers every recipe.
"""

from shiftproof.papers import ciga, confidence, feat, gala, gmt, hao, molecules, pair  # noqa: F401
