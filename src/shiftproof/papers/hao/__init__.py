"""HAO: attacks that stay unnoticeable: tables, analyses, claims and printed figures."""

from shiftproof.papers.hao import metattack, others, tables  # noqa: F401
