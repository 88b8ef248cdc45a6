"""What all tests of the command share: they call `main` in this process, as the console script does."""

import sys

import pytest

from shiftproof import cli


@pytest.fixture
def shiftproof(monkeypatch, capsys, tmp_path):
    """Run the command with these words in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shiftproof", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run
