"""Every number a user sets is one its option allows; anything else is one sentence, whichever way it came in."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import pytest
import torch

import shiftproof as sp
from shiftproof import pareto
from shiftproof.data.generated.cora_like import cora_like
from shiftproof.errors import ShiftproofError
from shiftproof.ranges import (
    MOST,
    AtLeast,
    Count,
    Fraction,
    NonNegative,
    Number,
    Positive,
    Range,
    Seed,
    Whole,
    checked,
    fitting,
    shown,
    without_range,
)
from shiftproof.registry import KINDS, UNLISTED, fitting_options, options_of, with_options_of
from shiftproof.robustness import FLAG, Budget, adversarial_train, build_defence, train_defence
from shiftproof.robustness.defences import EGuard
from shiftproof.training.balance import BALANCES
from shiftproof.training.trainer import Trainer
from tests.cli.own_files import assert_one_sentence

Kept = Annotated[float, Range(0, 1, open="low", also=(-1,))]


def toy(
    rate: Fraction = 0.5,
    step: Positive = 0.1,
    count: Count | None = None,
    sizes: tuple[Count, ...] = (1, 2),
    pair: tuple[Fraction, Fraction] = (0.1, 0.2),
    weights: Mapping[str, NonNegative] | None = None,
    each: Count | Literal["all"] | None = None,
    kept: Kept = 0.5,
    bound: Annotated[float, Range(0, infinite=True)] = math.inf,
    seed: Seed = 0,
    name: str = "a",
    on: bool = False,
):
    """Say what was given."""
    return dict(locals())


WRONG = [
    ("rate", -0.1, "option 'rate' of toy is a number from 0 to 1, not -0.1"),
    ("rate", True, "option 'rate' of toy is a number from 0 to 1, not True"),
    ("rate", "nan", "option 'rate' of toy is a number from 0 to 1, not nan"),
    ("step", 0, "option 'step' of toy is a number above 0, not 0"),
    ("step", "inf", "option 'step' of toy is a number above 0, not inf"),
    ("step", "-1e400", "option 'step' of toy is a number above 0, not -inf"),
    ("count", 0, "option 'count' of toy is a whole number from 1 or none, not 0"),
    ("count", 2.5, "option 'count' of toy is a whole number from 1 or none, not 2.5"),
    ("count", 10**23, f"option 'count' of toy is a whole number from 1 or none (at most {MOST}), not {10**23}"),
    ("count", True, "option 'count' of toy is a whole number from 1 or none, not True"),
    ("sizes", "(3,0)", "option 'sizes' of toy is a list of (a whole number from 1), not (3, 0)"),
    ("pair", (0.1,), "option 'pair' of toy is 2 values (a number from 0 to 1), not (0.1,)"),
    ("weights", {"irm": -1.0}, "option 'weights' of toy is a mapping to (a number from 0) or none, not {'irm': -1.0}"),
    ("each", 0, "option 'each' of toy is a whole number from 1 or all or none, not 0"),
    ("kept", -2, "option 'kept' of toy is a number above 0 to 1 or -1, not -2"),
    ("bound", math.nan, "option 'bound' of toy is a number from 0, not nan"),
    ("seed", 2**64, f"option 'seed' of toy is a whole number from 0 to {2**63 - 1}, not {2**64}"),
    ("rate", [0.5], "option 'rate' of toy is a number from 0 to 1, not [0.5]"),
    ("rate", None, "option 'rate' of toy is a number from 0 to 1, not None"),
]


@pytest.mark.parametrize(("key", "value", "said"), WRONG)
def test_a_number_outside_of_its_range_is_one_sentence(key, value, said):
    with pytest.raises(ShiftproofError) as caught:
        fitting_options({key: value}, options_of(toy), "toy")
    assert str(caught.value).replace("'toy'", "toy") == said


@pytest.mark.parametrize(("key", "value", "said"), [case for case in WRONG if not isinstance(case[1], str)])
def test_a_function_and_a_class_check_however_they_are_called(key, value, said):
    @checked
    class Thing:
        def __init__(self, shape: int, *, rate: Fraction = 0.5, step: Positive = 0.1) -> None:
            self.rate, self.step = rate, step

    with pytest.raises(ShiftproofError) as caught:
        checked(toy)(**{key: value})
    assert str(caught.value) == said
    if key in ("rate", "step"):
        with pytest.raises(ShiftproofError, match=f"option '{key}' of Thing is"):
            Thing(1, **{key: value})
    assert Thing(1, rate=1).rate == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rate", 1),
        ("rate", 0.0),
        ("count", None),
        ("count", 5.0),
        ("each", "all"),
        ("each", 3),
        ("kept", -1),
        ("bound", math.inf),
        ("pair", [0.1, 0.2]),
        ("weights", {"irm": 0.0}),
        ("seed", 2**63 - 1),
        ("rate", np.float32(0.5)),
        ("count", np.int64(3)),
        ("rate", torch.tensor(0.5)),
        ("sizes", ()),
    ],
)
def test_the_ends_of_a_range_and_numbers_of_other_libraries_pass(key, value):
    got = checked(toy)(**{key: value})[key]
    assert got == value
    assert type(got).__module__ == "builtins"


def test_a_range_is_shown_short_and_a_type_checker_sees_a_plain_type():
    assert {name: shown(p.annotation, p.default) for name, p in options_of(toy).items()} == {
        "rate": "[0, 1]",
        "step": "> 0",
        "count": ">= 1 or none",
        "sizes": "each >= 1",
        "pair": "each [0, 1]",
        "weights": "each >= 0 or none",
        "each": ">= 1 or all or none",
        "kept": "(0, 1], -1",
        "bound": ">= 0",
        "seed": ">= 0",
        "name": "",
        "on": "",
    }
    assert Fraction.__origin__ is float
    assert Count.__origin__ is int


@pytest.mark.parametrize("annotation", [float, int | None, tuple[int, ...], dict[str, float], Count | float])
def test_a_number_without_a_range_is_seen(annotation):
    assert without_range(annotation)
    assert not without_range(Count | Literal["all"] | None)
    assert without_range(inspect.Parameter.empty, 0.5)
    assert without_range("Unheard", 3)
    assert not without_range(inspect.Parameter.empty, "text")


def test_options_that_are_handed_on_keep_their_ranges():
    class Parent:
        def __init__(self, *, ratio: Fraction = 0.5) -> None:
            self.ratio = ratio

    @checked
    class Child(Parent):
        @with_options_of(Parent, ratio=0.25)
        def __init__(self, *, penalty: NonNegative = 1.0, **options) -> None:
            super().__init__(**options)

    assert shown(options_of(Child)["ratio"].annotation) == "[0, 1]"
    assert Child().ratio == 0.25
    with pytest.raises(ShiftproofError, match="option 'ratio' of Child is a number from 0 to 1, not 2"):
        Child(ratio=2)


def test_what_is_no_number_is_let_through():
    assert fitting("x", str, "it") == "x"
    assert fitting([1, "b"], tuple[str, ...], "it") == [1, "b"]
    assert fitting(7, inspect.Parameter.empty, "it", "text") == 7


@pytest.mark.parametrize(
    ("of", "words", "short"),
    [
        (Range(0, 1, open="high"), "from 0 to below 1", "[0, 1)"),
        (Range(high=5), "up to 5", "<= 5"),
        (Range(high=5, open="high"), "below 5", "< 5"),
        (AtLeast(2), "from 2", ">= 2"),
        (Range(0, 1, open="both"), "above 0 to below 1", "(0, 1)"),
        (Range(), "", ""),
    ],
)
def test_a_range_in_words(of, words, short):
    assert (of.words, str(of)) == (words, short)


def test_numbers_that_may_be_anything_are_finite_still():
    assert fitting(-1e30, Number, "it") == -1e30
    assert fitting(0, Whole, "it") == 0
    with pytest.raises(ShiftproofError, match="it is a number, not nan"):
        fitting(math.nan, Number, "it")


NAMED = {
    f"{kind} {entry.name}": entry.make
    for kind, registry in (KINDS | UNLISTED).items()
    for entry in registry
    if entry.make.__module__.startswith("shiftproof.")  # not what tests put into the registries
}
NAMED |= {f"balance {name}": make for name, make in BALANCES.items()}
WITHOUT_RANGE: set[str] = set()  # options of named things that may leave their range unsaid: none


def test_every_numeric_option_of_everything_with_a_name_states_its_range():
    found = {
        f"{name}: {key}"
        for name, make in NAMED.items()
        for key, option in options_of(make).items()
        if without_range(option.annotation, option.default)
    }
    assert found == WITHOUT_RANGE


def test_what_an_option_is_by_default_lies_in_its_range():
    for name, make in NAMED.items():
        for key, option in options_of(make).items():
            fitting(option.default, option.annotation, f"{name}: {key}", option.default)


GRAPHS = "spmotif-struc:train_per_class=4,val_per_class=2,test_per_class=2"
BEYOND = [
    ("irm", "colored-digits", {"penalty": -1}, "option 'penalty' of 'irm' is a number from 0, not -1"),
    ("ciga-v2", GRAPHS, {"ratio": -3}, "option 'ratio' of 'ciga-v2' is a number above 0 to 1 or -1, not -3"),
    ("ciga-v2", GRAPHS, {"temperature": -1}, "option 'temperature' of 'ciga-v2' is a number above 0, not -1"),
    ("gala", GRAPHS, {"upsample": -1}, "option 'upsample' of 'gala' is a whole number from 0 or off or auto, not -1"),
    (
        "erm",
        "colored-digits:copies=0",
        {},
        "option 'copies' of data set 'colored-digits' is a whole number from 1, not 0",
    ),
    ("erm", GRAPHS + ",bias=2", {}, "option 'bias' of data set 'spmotif-struc' is a number from 0 to 1, not 2.0"),
]


@pytest.mark.parametrize(("method", "data", "settings", "said"), BEYOND)
def test_nothing_is_trained_with_a_setting_out_of_its_range(method, data, settings, said, shiftproof):
    with pytest.raises(ShiftproofError) as caught:
        sp.fit(method, data, epochs=1, **settings)
    assert str(caught.value) == said
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert_one_sentence(shiftproof("fit", data, "-m", method, *given), said)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("pgd:steps=-1", "option 'steps' of attack 'pgd' is a whole number from 0, not -1"),
        ("tdgia:step=2", "option 'step' of attack 'tdgia' is a number above 0 to 1, not 2.0"),
    ],
)
def test_nothing_is_attacked_with_a_setting_out_of_its_range(attack, said, shiftproof):
    with pytest.raises(ShiftproofError) as caught:
        sp.attack(attack, cora_like(nodes=80, features=4), budget=Budget(2, 2))
    assert str(caught.value) == said
    assert_one_sentence(shiftproof("attack", "cora-like:nodes=80,features=4", "--attack", attack), said)


def test_no_defence_is_built_with_a_setting_out_of_its_range(shiftproof):
    given = ("attack", "cora-like:nodes=80,features=4", "--defences", "gcn:dropout=1")
    assert_one_sentence(shiftproof(*given), "option 'dropout' of defence 'gcn' is a number from 0 to below 1, not 1.0")
    with pytest.raises(ShiftproofError, match="option 'threshold' of 'eguard' is a number from -1 to 1, not 3"):
        EGuard(4, 2, threshold=3)
    with pytest.raises(ShiftproofError, match=r"option 'dropout' of .*'gcn' is a number from 0 to below 1, not 1\.0"):
        build_defence("gcn:dropout=1", cora_like(nodes=80, features=4))


FACES = [getattr(sp, name) for name in sp.__all__ if name not in ("Dataset", "NodeGraph")]  # those two hold data
PUBLIC = [face for face in FACES if callable(face) and face is not ShiftproofError]
PUBLIC += [pareto.PAIR, pareto.PreferenceSolver, pareto.SmoothedSolver, pareto.select, pareto.select_step]
PUBLIC += [Budget, FLAG, Trainer, build_defence, train_defence, adversarial_train]


@pytest.mark.parametrize("face", PUBLIC, ids=lambda face: face.__name__)
def test_every_numeric_option_of_what_is_called_in_python_states_its_range(face):
    assert [key for key, option in options_of(face).items() if without_range(option.annotation, option.default)] == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sp.fit("erm", "colored-digits", seed=-1), "option 'seed' of fit is a whole number from 0"),
        (lambda: sp.compare("erm", "colored-digits", seeds=0), "option 'seeds' of compare is a whole number from 1"),
        (lambda: sp.diagnose("colored-digits", most=0), "option 'most' of diagnose is a whole number from 1, not 0"),
        (lambda: sp.attack("pgd", NODES, budget=Budget(2, 2), hao=-1), "option 'hao' of attack is a number from 0"),
        (lambda: sp.audit(NODES, shares=(0.5, 0)), "option 'shares' of audit is a list of (a number above 0)"),
        (lambda: Budget(-1, 2), "option 'nodes' of Budget is a whole number from 0, not -1"),
        (lambda: FLAG(steps=0), "option 'steps' of FLAG is a whole number from 1, not 0"),
        (lambda: train_defence("gcn", NODES, lr=0), "option 'lr' of train_defence is a number above 0, not 0"),
        (
            lambda: pareto.PreferenceSolver([1, 1], eps=-1),
            "option 'eps' of PreferenceSolver is a number from 0, not -1",
        ),
        (
            lambda: pareto.PAIR(None, {"a": 1}, descent_steps=-1),
            "option 'descent_steps' of PAIR is a whole number from",
        ),  # type: ignore[arg-type]
        (lambda: Trainer(epochs=10**23), "option 'epochs' of Trainer is a whole number from 0"),
    ],
)
def test_a_public_call_out_of_its_range_is_one_sentence(call, said):
    with pytest.raises(ShiftproofError) as caught:
        call()
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


NODES = cora_like(nodes=80, features=4)
