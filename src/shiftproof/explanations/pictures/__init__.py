"""Explained graphs, molecules, superpixels and point clouds as pictures."""

from shiftproof.explanations.pictures import drawings as drawings  # registers how an explanation draws itself
