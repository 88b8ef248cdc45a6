"""FeAT: rich features before invariance: tables, analyses, claims and printed figures."""

from shiftproof.papers.feat import analyses, maps, tables, theory  # noqa: F401
