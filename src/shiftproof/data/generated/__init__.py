"""One file a generator; importing this package registers each under its name.

Some start from published digits (`colored`, `corner`, `domainbed_digits`, `superpixels`); the others need no file.
"""

from shiftproof.data.generated import (  # noqa: F401
    ba2motifs,
    colored,
    cora_like,
    corner,
    domainbed_digits,
    extrapolation,
    failure,
    graphon,
    spmotif,
    superpixels,
    toy_groups,
    toy_molecules,
    toy_tracks,
    two_bit,
    two_patch,
    two_piece,
)
