"""A trained run that answers over HTTP: `app_for` makes the FastAPI application that `shiftproof serve` starts."""

from shiftproof.serving.application import app_for

__all__ = ["app_for"]
