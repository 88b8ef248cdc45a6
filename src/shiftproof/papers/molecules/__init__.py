"""Tables of molecules of one's own: tables, analyses, claims and printed figures."""

from shiftproof.papers.molecules import tables  # noqa: F401
