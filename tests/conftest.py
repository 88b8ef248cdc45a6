"""What all tests share."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real data files: the one SHIFTPROOF_DATA names, or the one beside the repository."""
    folder = Path(os.environ.get("SHIFTPROOF_DATA", SHARED_DATA))
    if not folder.is_dir():
        pytest.skip("needs real data files: name their folder in SHIFTPROOF_DATA")
    monkeypatch.setenv("SHIFTPROOF_DATA", str(folder))
    return folder
