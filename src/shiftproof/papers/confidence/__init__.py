"""Confidence under shift, measured: coverage, calibration, expected score and risk on real shifts."""

from shiftproof.papers.confidence import streams, suggestions, tables  # noqa: F401
