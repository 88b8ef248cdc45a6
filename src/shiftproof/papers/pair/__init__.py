"""PAIR: objectives that conflict: tables, analyses, claims and printed figures."""

from shiftproof.papers.pair import analyses, domains, extrapolation, published, selection, tables, theory  # noqa: F401
