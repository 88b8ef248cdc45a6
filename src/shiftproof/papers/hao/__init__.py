"""HAO: attacks that stay unnoticeable: tables, analyses, claims and printed figures."""

from shiftproof.papers.hao import metattack, tables  # noqa: F401
