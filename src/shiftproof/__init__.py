"""Models that keep working when the data moves."""

__version__ = "0.1.0"
