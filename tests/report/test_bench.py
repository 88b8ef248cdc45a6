"""A measured table beside a printed one, in words."""

import pytest

from shiftproof.report.bench import in_words
from shiftproof.sweeps.comparison import judge
from shiftproof.sweeps.table import summarise


def row(method: str, values: list[float]) -> dict:
    about = {"dataset": "a", "variant": {}, "metric": "accuracy", "split": "test", "selection": "val"}
    return {**about, "method": method, **summarise(values), "published": None}


@pytest.mark.parametrize(
    ("gains", "said"), [([0.1, 0.101, 0.102, 0.1, 0.1], "p < 0.001"), ([0.1, -0.1, 0], "p = 1.000")]
)
def test_a_chance_is_equal_to_a_number_or_below_one(gains, said):
    erm = [0.5] * len(gains)
    found = judge([row("erm", erm), row("mine", [e + g for e, g in zip(erm, gains, strict=True)])], ours=("mine",))
    (line, _), *others = [lines for topic, lines in in_words(found).items() if topic.startswith("Paired tests")]
    assert said in line
    assert not others
