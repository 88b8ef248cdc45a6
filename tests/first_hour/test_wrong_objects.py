"""Every argument of the public face that is of a wrong kind is answered by one sentence, never by a traceback."""

import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

import shiftproof as sp


class Nothing:
    """An object of a user's own that is none of the things that are asked for."""


THREE = torch.tensor(3.0)
WRONG = {
    "None": None,
    "a bool": True,
    "a whole number": 7,
    "a number": 0.5,
    "a fraction": Fraction(1, 3),
    "nan": float("nan"),
    "an empty text": "",
    "a text": "no such thing",
    "bytes": b"bytes",
    "an empty list": [],
    "a list of nones": [None, None],
    "a nested list": [[1, [2]], [3]],
    "a tuple": (1, 2),
    "an empty dict": {},
    "a dict": {"one": 1},
    "a set": {1, 2},
    "an object": Nothing(),
    "a class": Nothing,
    "a function": len,
    "a generator": range(0),
    "an array of objects": np.array([Nothing(), None], dtype=object),
    "an empty array": np.zeros((0, 3)),
    "a tensor without rows": THREE,
    "an empty frame": pd.DataFrame(),
    "a frame of nothing": pd.DataFrame({"a": [None, None]}),
}
GRAPHS = "ba-2motifs:graphs=20"


@pytest.fixture(scope="module")
def run():
    return sp.fit("erm", sp.load("two-bit", per_env=30), epochs=1, widths=(4,))


@pytest.fixture(scope="module")
def graph():
    return sp.load("cora-like", nodes=100, features=20, classes=3)


def calls(run, graph):
    """Each public function with one argument left open, the others being right."""
    small = sp.load("two-bit", per_env=30)
    budget = sp.robustness.Budget(nodes=2, edges_per_node=2)
    quick = {"epochs": 1, "widths": (4,)}
    return {
        "load": sp.load,
        "load(options)": lambda wrong: (
            sp.load("two-bit", per_env=wrong) and refuse(wrong, 7, WRONG["a tensor without rows"])
        ),
        "load(y)": lambda wrong: sp.load(np.eye(9), y=wrong),
        "load(env)": lambda wrong: sp.load(np.eye(9), y=np.arange(9) % 2, env=wrong) and refuse_none(wrong),
        "load(label)": lambda wrong: sp.load(pd.DataFrame({"x": [1, 2], "y": [0, 1]}), label=wrong),
        "load(group)": lambda wrong: sp.load("two-bit:per_env=30", group=wrong) and refuse_none(wrong),
        "fit(method)": lambda wrong: sp.fit(wrong, small, **quick),
        "fit(data)": lambda wrong: sp.fit("erm", wrong, **quick),
        "fit(seed)": lambda wrong: sp.fit("erm", small, seed=wrong, **quick) and refuse(wrong, 7, THREE),
        "fit(epochs)": lambda wrong: sp.fit("erm", small, epochs=wrong) and refuse(wrong, 7, THREE),
        "fit(balance)": lambda wrong: sp.fit("erm", small, balance=wrong, **quick) and refuse_none(wrong),
        "fit(network)": lambda wrong: sp.fit("erm", small, network=wrong, epochs=1) and refuse_none(wrong),
        "fit(device)": lambda wrong: sp.fit("erm", small, device=wrong, **quick),
        "fit(callbacks)": lambda wrong: (
            sp.fit("erm", small, callbacks=wrong, **quick) and refuse(wrong, [], len, range(0))
        ),
        "fit_seeds(seeds)": lambda wrong: sp.fit_seeds("erm", small, seeds=wrong, **quick) and refuse(wrong, (1, 2), 7),
        "fit_seeds(method)": lambda wrong: sp.fit_seeds(wrong, small, seeds=[0], **quick),
        "predict(run)": lambda wrong: sp.predict(wrong, small),
        "predict(data)": lambda wrong: sp.predict(run, wrong),
        "predict(split)": lambda wrong: sp.predict(run, small, split=wrong) and refuse_none(wrong),
        "Run.load": sp.Run.load,
        "compare(methods)": lambda wrong: sp.compare(wrong, small, seeds=1, **quick),
        "compare(data)": lambda wrong: sp.compare(["erm"], wrong, seeds=1, **quick),
        "compare(seeds)": lambda wrong: (
            sp.compare(["erm"], small, seeds=wrong, **quick) and refuse(wrong, (1, 2), 7, THREE)
        ),
        "explain(model)": lambda wrong: sp.explain(wrong, sp.load(GRAPHS)),
        "explain(data)": lambda wrong: sp.explain(run, wrong),
        "diagnose": lambda wrong: sp.diagnose(wrong, assistant=False),
        "diagnose(seed)": lambda wrong: sp.diagnose(small, seed=wrong, assistant=False) and refuse(wrong, 7, THREE),
        "attack(name)": lambda wrong: sp.attack(wrong, graph, budget=budget),
        "attack(graph)": lambda wrong: sp.attack("rnd", wrong, budget=budget),
        "attack(budget)": lambda wrong: sp.attack("rnd", graph, budget=wrong),
        "attack(surrogate)": lambda wrong: (
            sp.attack("rnd", graph, budget=budget, surrogate=wrong) and refuse_none(wrong)
        ),
        "attack(targets)": lambda wrong: (
            sp.attack("rnd", graph, budget=budget, targets=wrong, surrogate="mlp")
            and refuse(wrong, None, [], range(0), (1, 2), {1, 2})
        ),
        "audit(graph)": sp.audit,
        "audit(model)": lambda wrong: (
            sp.audit(graph, model=wrong, epochs=1, steps=1, attacks=["rnd"], defences="mlp") and refuse_none(wrong)
        ),
        "leave_one_domain_out": lambda wrong: sp.leave_one_domain_out("erm", wrong),
        "register": lambda wrong: (isinstance(wrong, str) and wrong and refuse_all()) or sp.register(wrong)(Nothing),
        "calibrate": lambda wrong: sp.calibrate(wrong, coverage=0.9),
        "Predictions": lambda wrong: sp.Predictions("binary", wrong),
    }


def refuse_all():
    """Ends as a refusal does: every argument of this kind is right."""
    raise sp.ShiftproofError("this argument is right here.")


def refuse_none(wrong):
    """None is what is taken where nothing is said, so it is right."""
    refuse(wrong, None)


def refuse(wrong, *right):
    """Ends as a refusal does where the argument was one of the right ones after all."""
    for one in right:
        if wrong is one or (
            not isinstance(wrong, torch.Tensor)
            and type(wrong) is type(one)
            and not isinstance(wrong, np.ndarray)
            and wrong == one
        ):
            raise sp.ShiftproofError("this argument is right here.")


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_object_is_one_sentence(kind, run, graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = []
    for name, call in calls(run, graph).items():
        if name == "calibrate" and "calibrate" not in dir(sp):
            continue
        try:
            call(WRONG[kind])
        except sp.ShiftproofError as error:
            said = str(error)
            if len(said) < 12 or "Traceback" in said or re.search(r" at 0x[0-9a-f]{6,}", said) or "\n" in said:
                raw.append(f"{name}: no sentence: {said[:200]!r}")
        except Exception as error:
            raw.append(f"{name}: {type(error).__name__}: {str(error)[:160]!r}")
        else:
            raw.append(f"{name}: taken")
    assert not raw, "\n".join(raw)
