"""Confidence that holds under shift: calibration, sets and intervals, the expected score, when not to trust a model."""
