"""What a sample is and where it comes from."""

from shiftproof.data import colored, spmotif, two_piece  # noqa: F401
