"""GALA: invariance where the shortcut is stronger: tables, analyses, claims and printed figures."""

from shiftproof.papers.gala import assistants, published, tables  # noqa: F401
