"""Names and options: what is found, what is cast, and what is said about a misspelt one."""

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shiftproof.registry
from shiftproof.errors import ShiftproofError
from shiftproof.registry import (
    Registry,
    fitting_options,
    options_of,
    parse_name,
    parse_options,
    require_choices,
    split_outside,
    with_options_of,
)

Mode = Literal["fast", "exact"]


def make(
    count: int = 3,
    rate: float = 0.5,
    name: str = "a",
    on: bool = False,
    sizes: tuple[int, ...] = (1, 2),
    limit: int | None = None,
    mode: Mode = "fast",
    weights: dict[str, float] | None = None,
    either: int | str = 1,
    untyped=0.25,
):
    """One line about it.

    And more.
    """


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("count", "7", 7),
        ("count", "1e3", 1000),
        ("rate", "1", 1.0),
        ("rate", "1e-3", 1e-3),
        ("name", "12", "12"),
        ("name", "b", "b"),
        ("on", "true", True),
        ("on", "False", False),
        ("sizes", "(3,4)", (3, 4)),
        ("sizes", "[3, 4]", (3, 4)),
        ("limit", "none", None),
        ("limit", "5", 5),
        ("mode", "exact", "exact"),
        ("weights", "{'irm': 2.0}", {"irm": 2.0}),
        ("either", "4", 4),
        ("either", "four", "four"),
        ("untyped", "0.5", 0.5),
    ],
)
def test_text_is_cast_to_the_type_of_the_option(key, text, value):
    fitted = fitting_options({key: text}, options_of(make), "toy")
    assert fitted == {key: value}
    assert type(fitted[key]) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("count", "many", "option 'count' of toy takes int, not 'many'"),
        ("count", "1.5", "option 'count' of toy takes int, not '1.5'"),
        ("count", "true", "option 'count' of toy takes int, not 'true'"),
        ("rate", "none", "option 'rate' of toy takes float, not 'none'"),
        ("limit", "x", "option 'limit' of toy takes int or none, not 'x'"),
        ("sizes", "3", "option 'sizes' of toy takes tuple, not '3'"),
        ("mode", "none", "option 'mode' of toy takes str, not 'none'"),
        ("cuont", "1", "unknown option 'cuont' of toy; did you mean 'count'?"),
    ],
)
def test_an_option_that_does_not_fit_is_one_sentence(key, text, said):
    with pytest.raises(ShiftproofError) as caught:
        fitting_options({key: text}, options_of(make), "toy")
    assert str(caught.value) == said


def test_a_listed_choice_is_held_to_its_list():
    require_choices({"mode": "exact", "name": "any", "limit": None}, options_of(make), "toy")
    with pytest.raises(ShiftproofError) as caught:
        require_choices({"mode": "fats"}, options_of(make), "toy")
    assert str(caught.value) == "option 'mode' of toy takes fast or exact, not 'fats'; did you mean 'fast'?"


def test_the_word_none_is_a_choice_where_it_is_listed():
    def odd(attr: Literal["none", "all"] = "all"): ...

    assert fitting_options({"attr": "none"}, options_of(odd), "odd") == {"attr": "none"}


def test_values_that_are_no_text_pass_as_they_are():
    assert fitting_options({"sizes": [1], "count": 2}, options_of(make), "toy") == {"sizes": [1], "count": 2}


def test_options_of_a_dataclass_are_its_fields_with_defaults():
    @dataclass
    class Settings:
        needed: int
        epochs: int = 5

    assert list(options_of(Settings)) == ["epochs"]


def test_annotations_that_only_a_type_checker_can_resolve_fall_back_to_the_default():
    def odd(count: "Unheard" = 3): ...  # noqa: F821

    assert fitting_options({"count": "4"}, options_of(odd), "odd") == {"count": 4}


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("two-bit", "two-bit", {}),
        ("two-bit:alpha=0.1", "two-bit", {"alpha": "0.1"}),
        ("a:flips=(0.1,0.2),seed=1", "a", {"flips": "(0.1,0.2)", "seed": "1"}),
        ("a:seed=1,flips=(0.1, 0.2),on=(1,)", "a", {"seed": "1", "flips": "(0.1, 0.2)", "on": "(1,)"}),
        ("a:label-noise=0.2", "a", {"label_noise": "0.2"}),
    ],
)
def test_a_name_carries_its_options(text, name, options):
    assert parse_name(text) == (name, options)


@pytest.mark.parametrize("text", ["a:seed", "a:seed=", "a:=3", "a:seed=1,,b=2", "a:seed=1,"])
def test_options_that_are_no_pairs_are_named(text):
    with pytest.raises(ShiftproofError, match=f"in '{text}' is not of the form key=value"):
        parse_name(text)


values = st.one_of(
    st.integers().map(str), st.lists(st.integers(), min_size=1).map(lambda v: str(tuple(v))), st.just("word")
)


@given(parts=st.lists(values, min_size=1, max_size=5))
def test_only_the_outer_commas_part_values(parts):
    assert split_outside(",".join(parts)) == parts


@given(options=st.dictionaries(st.sampled_from(["a", "b", "c"]), values, max_size=3))
def test_options_written_out_are_read_back(options):
    pairs = [f"{key}={value}" for key, value in options.items()]
    assert parse_options(pairs, where="here") == options
    assert parse_name("toy" + (":" + ",".join(pairs) if pairs else ""))[1] == options


def fresh(**more) -> Registry:
    return Registry("toy", "package_that_does_not_exist", "shiftproof.toys", **more)


def test_an_unknown_name_suggests_the_nearest_or_lists_all():
    registry = fresh()
    registry.add("irmx", make)
    registry.add("vrex", make)
    with pytest.raises(ShiftproofError, match=r"^unknown toy 'imrx'; did you mean 'irmx'\?$"):
        registry["imrx"]
    with pytest.raises(ShiftproofError, match=r"^unknown toy 'qqq'; known: irmx, vrex$"):
        registry["qqq"]


def test_a_name_is_given_once_and_the_same_thing_may_come_again():
    registry = fresh()
    registry.add("make", make)
    registry.add("make", make)
    with pytest.raises(ShiftproofError, match=f"the toy name 'make' is taken by {__name__}"):
        registry.add("make", fresh)


def test_entries_are_listed_by_name_with_the_first_line_of_their_documentation():
    registry = fresh()
    registry.add("b", make)
    registry.add("a", make, tags=("graphs",))
    assert [entry.name for entry in registry] == ["a", "b"]
    assert registry["a"].summary == "One line about it."
    assert registry["a"].tags == ("graphs",)
    assert registry["a"].options["rate"].default == 0.5
    assert "a" in registry
    assert "c" not in registry


def test_other_packages_register_through_entry_points(monkeypatch: pytest.MonkeyPatch):
    registry = fresh()
    asked = []

    class Point:
        def load(self):
            registry.add("theirs", make)

    def entry_points(*, group):
        asked.append(group)
        return [Point()]

    monkeypatch.setattr(shiftproof.registry.metadata, "entry_points", entry_points)
    assert registry["theirs"].make is make
    assert [entry.name for entry in registry] == ["theirs"]
    assert asked == ["shiftproof.toys"], "plug-ins are loaded once"


def test_register_tells_methods_from_data_sets(monkeypatch: pytest.MonkeyPatch):
    kinds = {"methods": fresh(), "datasets": fresh(), "recipes": fresh()}
    monkeypatch.setattr(shiftproof.registry, "KINDS", kinds)

    @shiftproof.registry.register("m")
    class Thing: ...

    def something(): ...

    shiftproof.registry.register("d", tags=("x",))(something)
    registered = shiftproof.registry.register("r", "recipes")(something)
    assert kinds["methods"]["m"].make is Thing
    assert kinds["datasets"]["d"].tags == ("x",)
    assert kinds["recipes"]["r"].make is registered
    with pytest.raises(ShiftproofError, match="unknown kind 'recipe'; did you mean 'recipes'"):
        shiftproof.registry.register("x", "recipe")


@pytest.mark.parametrize("kind", ["methods", "datasets"])
def test_every_entry_says_in_a_sentence_what_it_is(kind):
    entries = list(shiftproof.registry.KINDS[kind])
    assert len(entries) > 5
    for entry in entries:
        assert entry.summary.endswith("."), entry.name
        assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in entry.options.values()), entry.name


class Plain:
    def __init__(self, shape: int, *, ratio: float = 0.5, norm: bool = False, kind: str = "a") -> None:
        self.seen = (shape, ratio, norm, kind)


class Handing(Plain):
    @with_options_of(Plain, without=("kind",), norm=True)
    def __init__(self, shape: int, *, penalty: float = 1.0, **options: Any) -> None:
        super().__init__(shape, **options)
        self.penalty = penalty


def test_options_that_are_handed_on_are_options_of_ones_own():
    found = options_of(Handing)
    assert {name: p.default for name, p in found.items()} == {"penalty": 1.0, "ratio": 0.5, "norm": True}
    assert (found["penalty"].annotation, found["norm"].annotation) == (float, bool)
    assert Handing(3, ratio=0.1).seen == (3, 0.1, True, "a")
    assert Handing(3, norm=False, penalty=2.0).seen[2] is False


@pytest.mark.parametrize("name", ["kind", "rato"])
def test_an_option_that_is_not_handed_on_is_an_error_that_names_it(name):
    with pytest.raises(TypeError, match=f"Handing.*'{name}'"):
        Handing(3, **{name: 1})
