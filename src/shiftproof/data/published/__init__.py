"""One file a published data set; importing this package registers each under its name.

Files are looked for where `shiftproof.data.find` says, and a missing one is a sentence that says what to put where.
"""

from shiftproof.data.published import (  # noqa: F401
    attacked,
    attribution,
    census_and_bikes,
    copurchase,
    drugood,
    explained_nodes,
    grb,
    heterophilous,
    moleculeace,
    moleculenet,
    molhiv,
    mutag,
    office_caltech,
    pacs,
    planetoid,
    point_sets,
    reviews,
    sentiment,
    shifted_nodes,
    social,
    wilds,
)
