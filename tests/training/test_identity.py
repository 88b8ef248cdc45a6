"""What tells runs and code apart."""

import shutil
import subprocess
import sys
from pathlib import Path

import shiftproof


def test_the_commit_of_a_project_that_the_library_is_installed_in_is_not_its_own(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    place = tmp_path / "venv" / "shiftproof"
    shutil.copytree(Path(shiftproof.__file__).parent, place, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".gitignore").write_text("venv\n")
    code = "from shiftproof.runtime.fingerprints import commit; import shiftproof; print(shiftproof.__file__, commit())"
    environment = {"PYTHONPATH": str(place.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == [str(place / "__init__.py"), "None"]
