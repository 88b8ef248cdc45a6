"""Numbered facts of ciga's theory, on causal models small enough to be summed up exactly."""

from itertools import combinations

import numpy as np
import pytest

from shiftproof.data.generated.scm import SCM, Mode, Toy

# docs/papers/ciga.md#exact-toy: I(G_c; G~_c | Y), I(G_c; Y), I(G_s; Y) at q = 0
TABLE = {
    "c1": (0, 1, 0.5306),
    "c2": (1, 0, 1),
    "s1": (0, 0.3902, 1),
    "s2": (0, 0.2781, 1),
    "c1,c2": (1, 1, 0.5306),
    "c1,s1": (0, 1, 0.2781),
    "c1,s2": (0, 1, 0.3902),
    "c2,s1": (1, 0.3902, 1),
    "c2,s2": (1, 0.2781, 1),
    "s1,s2": (0, 0.5306, 1),
    "c1,c2,s1": (1, 1, 0.2781),
    "c1,c2,s2": (1, 1, 0.3902),
    "c1,s1,s2": (0, 1, 0),
    "c2,s1,s2": (1, 0.5306, 1),
    "c1,c2,s1,s2": (1, 1, 0),
}
TRUE = Toy.TRUE


@pytest.mark.parametrize("mode", ["fiif", "piif"])
def test_ciga_40_table_of_all_candidates_without_label_noise(mode) -> None:
    toy = Toy(mode)
    assert len(toy.candidates) == len(TABLE) == 15
    for names, expected in TABLE.items():
        candidate = names.split(",")
        found = toy.agreement(candidate), toy.information(candidate), toy.information(toy.rest(candidate))
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert toy.ciga_v1() == toy.ciga_v2() == {TRUE}
    assert toy.erm() == {candidate for candidate in toy.candidates if "c1" in candidate}
    assert len(toy.erm()) == 8


@pytest.mark.parametrize(
    ("mode", "q", "values", "v2"),
    [
        ("fiif", 0.0, (1, 0.5306, 1, 1.3316, 1), TRUE),
        ("fiif", 0.05, (0.7136, 0.4059, 1.2864, 1.4563, 1.2864), TRUE),
        ("piif", 0.05, (0.7136, 0.5306, 1.2864, 1.3316, 1.2864), TRUE),
        ("fiif", 0.25, (0.1887, 0.1122, 1.8113, 1.7500, 1.8113), TRUE),
        ("piif", 0.25, (0.1887, 0.5306, 1.8113, 1.3316, 1.8113), TRUE | {"s2"}),  # the assumption is violated
    ],
)
def test_ciga_40_informations_and_solutions_under_label_noise(mode, q, values, v2) -> None:
    toy = Toy(mode, q)
    c, s, y = ("c1", "c2"), ("s1", "s2"), ("Y",)
    found = (
        toy.information(c),
        toy.information(s),
        toy.joint.entropy(c, given=y),
        toy.joint.entropy(s, given=y),
        toy.agreement(c),
    )
    np.testing.assert_allclose(found, values, atol=1e-4)
    assert toy.ciga_v1() == {TRUE}
    assert toy.ciga_v2() == {v2}


def test_ciga_40_erm_takes_spurious_parts_under_piif_and_is_indifferent_under_fiif() -> None:
    piif, fiif = Toy("piif", 0.05), Toy("fiif", 0.05)
    assert piif.erm() == {frozenset(("c1", "s1", "s2")), frozenset(Toy.PARTS)}
    np.testing.assert_allclose(piif.information(("c1", "s1", "s2")), 0.8383, atol=1e-4)
    assert fiif.erm() == {candidate for candidate in fiif.candidates if "c1" in candidate}


@pytest.mark.parametrize("mode", ["fiif", "piif", "miif"])
@pytest.mark.parametrize("seed", range(5))
def test_ciga_41_a_label_that_c_decides_is_told_by_c_alone_in_full(mode: Mode, seed: int) -> None:
    scm = SCM.random(mode, np.random.default_rng(seed), invariant=5, environments=3)
    joint = scm.joint
    told = joint.mutual_information("C", "Y")
    np.testing.assert_allclose(told, joint.entropy("Y"), atol=1e-9)
    assert told >= joint.mutual_information(scm.spurious, "Y") - 1e-9
    np.testing.assert_allclose(joint.conditional_mutual_information(scm.spurious, "Y", "C"), 0, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_ciga_41_given_c_the_spurious_part_tells_of_a_noisy_label_only_where_it_follows_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fiif, piif, miif = (SCM.random(mode, rng, label_noise=True) for mode in ("fiif", "piif", "miif"))
    np.testing.assert_allclose(fiif.joint.conditional_mutual_information("S", "Y", "C"), 0, atol=1e-9)
    np.testing.assert_allclose(fiif.joint.conditional_mutual_information(("S", "E"), "Y", "C"), 0, atol=1e-9)
    assert piif.joint.conditional_mutual_information("S", "Y", "C") > 1e-4
    np.testing.assert_allclose(miif.joint.conditional_mutual_information("S1", "Y", "C"), 0, atol=1e-9)
    assert miif.joint.conditional_mutual_information("S2", "Y", "C") > 1e-4


@pytest.mark.parametrize("mode", ["fiif", "piif"])
@pytest.mark.parametrize("q", [0.0, 0.05, 0.25])
def test_ciga_42_graphs_drawn_apart_given_the_label_agree_on_nothing(mode, q: float) -> None:
    toy = Toy(mode, q, coupled=False)
    np.testing.assert_allclose([toy.agreement(candidate) for candidate in toy.candidates], 0, atol=1e-9)
    # and either graph alone looks as it does in a coupled pair
    coupled = Toy(mode, q).joint
    for copy in ("", "'"):
        names = ["Y", *(f"{part}{copy}" for part in Toy.PARTS)]
        np.testing.assert_allclose(toy.joint.marginal(names), coupled.marginal(names), atol=1e-12)


@pytest.mark.parametrize("mode", ["fiif", "piif"])
@pytest.mark.parametrize("q", [0.0, 0.05, 0.25, 0.4])
def test_ciga_43_a_larger_part_never_tells_less(mode, q: float) -> None:
    toy = Toy(mode, q)
    told = {candidate: toy.information(candidate) for candidate in toy.candidates}
    for small, large in combinations(toy.candidates, 2):
        if small < large:
            assert told[small] <= told[large] + 1e-12
