"""CIGA: the invariant subgraph: tables, analyses, claims and printed figures."""

from shiftproof.papers.ciga import analyses, published, tables  # noqa: F401
