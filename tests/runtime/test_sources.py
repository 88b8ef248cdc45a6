"""A fingerprint of code moves with what it does, and with nothing else."""

import pytest

from shiftproof.runtime.sources import fingerprint, sources

METHOD = '''"""What it is."""
from shiftproof.objectives.loss import loss

class Method:
    """In words."""

    def weight(self):
        # why
        return 2.0 * loss()
'''
LOSS = "def loss():\n    return 1.0\n"
ROOT = "shiftproof.methods.one"


def digest(method: str = METHOD, loss: str = LOSS, **more: str) -> str | None:
    texts = {ROOT: method, "shiftproof.objectives.loss": loss, "shiftproof.report.page": "x = 1", **more}
    return fingerprint([ROOT], texts)


def test_comments_docstrings_and_empty_lines_do_not_count():
    said = METHOD.replace("# why", "# for another reason").replace("In words.", "In other words.").replace("\n\n", "\n")
    assert said != METHOD
    assert digest(said) == digest()


@pytest.mark.parametrize(
    "changed",
    [{"method": METHOD.replace("2.0", "3.0")}, {"loss": LOSS.replace("1.0", "1.5")}],
    ids=["its own number", "one of what it imports"],
)
def test_a_number_counts_wherever_it_stands(changed):
    assert digest(**changed) != digest()


def test_rooms_that_only_say_something_do_not_count():
    shown = METHOD.replace("import loss\n", "import loss\nfrom shiftproof.report.page import x\n", 1)
    assert digest(shown) == digest(shown, **{"shiftproof.report.page": "x = 2"})


def test_what_is_not_there_has_no_fingerprint():
    assert fingerprint(["shiftproof.no_such"], {ROOT: METHOD}) is None


def test_the_library_as_it_is_has_one_of_every_method_file():
    assert len({fingerprint([f"shiftproof.methods.{name}"]) for name in ("erm", "ciga", "dir", "gala")}) == 4
    assert sources("no-such-commit") == {}
