"""Exact laws of finite variables."""

import numpy as np
import pytest

from shiftproof.data.generated.scm import SCM, Joint, Toy
from shiftproof.errors import ShiftproofError


def test_entropies_of_coins() -> None:
    coins = Joint().add("a", [0.5, 0.5]).add("b", [0.25] * 4).noisy_copy("c", "a", 0.11)
    np.testing.assert_allclose(coins.entropy("a"), 1)
    np.testing.assert_allclose(coins.entropy(["a", "b"]), 3)
    np.testing.assert_allclose(coins.entropy(["a"], given=["b"]), 1)
    np.testing.assert_allclose(coins.entropy("a", given="a"), 0, atol=1e-12)
    assert abs(coins.mutual_information("a", "c") - 0.5) < 1e-3  # a channel that flips 0.11 carries half a bit
    np.testing.assert_allclose(coins.conditional_mutual_information("a", "c", "b"), coins.mutual_information("a", "c"))


def test_parents_are_taken_in_the_order_given() -> None:
    law = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 2))
    joint = Joint().add("a", [0.5, 0.5]).add("b", [0.2, 0.3, 0.5]).add("c", law, ("b", "a"))
    chances = joint.marginal(("b", "a", "c"))
    np.testing.assert_allclose(chances, np.array([0.2, 0.3, 0.5])[:, None, None] * 0.5 * law)
    np.testing.assert_allclose(joint.marginal(("c",)).sum(), 1)


def test_a_sample_mean_meets_the_exact_information() -> None:
    """The plug-in estimate on many draws agrees with the exact value."""
    scm = SCM.random("piif", np.random.default_rng(3), label_noise=True)
    chances = scm.joint.marginal(("Y", "S"))
    drawn = np.random.default_rng(0).choice(chances.size, p=chances.ravel(), size=200_000)
    seen = np.bincount(drawn, minlength=chances.size).reshape(chances.shape) / len(drawn)
    apart = seen.sum(1, keepdims=True) * seen.sum(0, keepdims=True)
    estimate = np.sum(seen * np.log2(seen / apart))
    np.testing.assert_allclose(scm.joint.mutual_information("Y", "S"), estimate, atol=2e-3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Joint().add("a", [0.5, 0.6]), "do not|does not hold chances"),
        (lambda: Joint().add("a", [1.0]).add("a", [1.0]), "variable 'a' already"),
        (lambda: Joint().add("a", [0.5, 0.5]).add("b", [1.0], ("a",)), "law of 'b' has shape"),
        (lambda: Joint().add("a", [1.0]).entropy(["b"]), "unknown variable 'b'"),
        (lambda: SCM.random("fiff", np.random.default_rng(0)), "did you mean 'fiif'"),
        (lambda: SCM.random("fiif", np.random.default_rng(0), invariant=2), "2 values of C cannot give 3 classes"),
        (lambda: Toy("miif").joint, "unknown mode of the toy"),
    ],
)
def test_what_is_no_law_is_said(make, sentence: str) -> None:
    with pytest.raises(ShiftproofError, match=sentence):
        make()
