"""A run that answers over HTTP does what its own OpenAPI description says, whatever it is sent."""

import json

import numpy as np
import pytest

import shiftproof as sp
from tests.first_hour.assays import assays

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
QUICK = {"epochs": 1, "widths": (4,)}


def runs():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    return {
        "x": lambda: sp.fit("erm", x, y=np.where(x[:, 0] > 0, "high", "low"), **QUICK),
        "rows": lambda: sp.fit("erm", assays().drop(columns=["smiles"]), label="active", **QUICK),
        "smiles": lambda: sp.fit("erm", assays(), label="active", split="random", epochs=1, hidden=8),
    }


RIGHT = {
    "x": [[0.5, -1.0, 2.0], [3, 0, 0]],
    "rows": [{"compound_id": "CMP-001", "site (lab)": "north"}, {"compound_id": "new", "site (lab)": "west"}],
    "smiles": ["CCO", "C1CC"],
}


@pytest.fixture(scope="module", params=RIGHT)
def served(request):
    from starlette.testclient import TestClient

    if request.param == "smiles":
        pytest.importorskip("rdkit")
    run = runs()[request.param]()
    app = sp.serving.app_for(run, most_rows=5, most_bytes=2000)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield request.param, run, client


def allowed(client, answer, path="/predict"):
    """Whether the description names this status for the path, and its schema fits the answer."""
    page = client.get("/openapi.json").json()
    known = page["paths"][path]["post"]["responses"]
    assert str(answer.status_code) in known, (answer.status_code, answer.text[:200])
    if answer.status_code == 422:
        assert all({"loc", "msg", "type"} <= set(problem) for problem in answer.json()["detail"])
    return answer


def test_what_is_right_is_answered_row_for_row_as_predict_does(served):
    kind, run, client = served
    answer = allowed(client, client.post("/predict", json={kind: RIGHT[kind]}))
    assert answer.status_code == 200
    found = answer.json()["predictions"]
    assert len(found) == 2
    if kind == "smiles":
        assert found[0]["probability"] == pytest.approx(run.predict(["CCO"])["probability"][0], abs=1e-5)
        assert found[1]["problem"] == "SMILES cannot be parsed"
        assert found[1]["prediction"] is None
    if kind == "x":
        assert {row["prediction"] for row in found} <= {"high", "low"}
    assert client.get("/health").json()["takes"] == kind
    assert client.get("/docs").status_code == 200


def malformed(kind):
    right = RIGHT[kind]
    deep = json.dumps({kind: right})
    return {
        "nothing": b"",
        "no JSON": b"{not json",
        "cut short": deep.encode()[:-3],
        "another field": json.dumps({"data": right}).encode(),
        "one field more": json.dumps({kind: right, "more": 1}).encode(),
        "no rows": json.dumps({kind: []}).encode(),
        "null": b"null",
        "a null field": json.dumps({kind: None}).encode(),
        "a number": b"5",
        "a list": json.dumps(right).encode(),
        "rows of another kind": json.dumps({kind: [5, None]}).encode(),
        "a nested row": json.dumps({kind: [[[1]]]}).encode(),
        "NaN": f'{{"{kind}": [[NaN, 1, 2]]}}'.encode(),
        "infinity": f'{{"{kind}": [[1e999, 1, 2]]}}'.encode(),
        "too wide": json.dumps({kind: [[1.0] * 7]}).encode(),
        "too many rows": json.dumps({kind: [right[0]] * 6}).encode(),
        "no UTF-8": b'{"x": ["\xff\xfe"]}',
        "a lone surrogate": f'{{"{kind}": ["\\ud800"]}}'.encode(),
        "deep nesting": (f'{{"{kind}": ' + "[" * 500 + "]" * 500 + "}").encode(),
    }


@pytest.mark.parametrize("what", malformed("x"))
def test_what_is_malformed_is_refused_as_the_description_says(served, what):
    kind, _, client = served
    answer = client.post("/predict", content=malformed(kind)[what], headers={"content-type": "application/json"})
    if (kind, what) == ("smiles", "a lone surrogate"):
        assert answer.status_code in (200, 422)
        return
    assert answer.status_code in (400, 422), answer.text[:300]
    if answer.status_code == 422:
        allowed(client, answer)


def test_what_is_too_large_is_refused_before_it_is_read(served):
    kind, _, client = served
    large = json.dumps({kind: [RIGHT[kind][0]] * 2, "pad": "x" * 3000}).encode()
    assert allowed(client, client.post("/predict", content=large)).status_code == 413

    def in_parts():
        for _ in range(40):
            yield b" " * 100

    assert client.post("/predict", content=in_parts()).status_code == 413


def test_requests_that_come_together_get_their_own_rows(served):
    from concurrent.futures import ThreadPoolExecutor

    kind, _, client = served
    alone = [client.post("/predict", json={kind: [row]}).json()["predictions"][0] for row in RIGHT[kind]]
    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(lambda n: client.post("/predict", json={kind: [RIGHT[kind][n % 2]]}).json(), range(8)))
    for number, found in enumerate(several):
        wanted = alone[number % 2]
        assert found["predictions"][0]["prediction"] == wanted["prediction"]


def test_graphs_of_another_kind_are_not_served():
    run = sp.fit("erm", "ba-2motifs:graphs=20", epochs=1, hidden=4)
    with pytest.raises(sp.ShiftproofError, match="takes molecules or rows of numbers"):
        sp.serving.app_for(run)


def test_a_missing_package_is_one_sentence(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(sp.ShiftproofError, match=r"pip install 'shiftproof\[serve\]'"):
        sp.serving.app_for(None)
