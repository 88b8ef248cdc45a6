"""GMT: faithful explanations: tables, analyses, claims and printed figures."""

from shiftproof.papers.gmt import ablations, curves, geometric, measures, tables  # noqa: F401
