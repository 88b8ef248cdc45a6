"""Inputs that no grammar thought of: tables, bytes and pages of JSON that Hypothesis draws, the same ones each time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile import grammar, samples
from tests.hostile.judge import run
from tests.hostile.kit import RUN, put

EACH_TIME = settings(
    max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
WHEN_SLOW = settings(EACH_TIME, max_examples=250)
CELLS = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["", "a", "b", "0", "1", "nan", "=1", '"', "'", "\n", ",", ";", "\t", "\r", "C", "[Na+]", "\ufeff"]
    ),
    st.text(max_size=6),
)
TABLES = st.lists(st.lists(CELLS, max_size=5), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def table_of(rows: list[list[str]], quoted: bool) -> None:
    """A table of any cells is read or refused, its cells quoted as they should be or not."""
    header = ["a", "b", "smiles", "label"]
    if quoted:
        text = samples.as_csv(header, rows)
    else:
        text = "\n".join(",".join(row) for row in [header, *rows])
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "data.csv").write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        ended = run(["diagnose", "data.csv:label=label", "--no-assistant", "--json"], Path(place))
        assert ended.wrong() is None, (ended.wrong(), text)


def bytes_of(kind: str, raw: bytes, start: float, instead: bool) -> None:
    """A file of any kind, some of its bytes other ones."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / grammar.file_name(kind)
        {**samples.FILES, **samples.MORE_FILES}[kind](path)
        right = path.read_bytes()
        at = int(start * len(right))
        path.write_bytes(right[:at] + raw + right[at + len(raw) * instead :])
        ended = run(samples.reading(kind, Path(path.name)), Path(place))
        assert ended.wrong() is None, ended.wrong()


def page_of(file: str, changes: dict, instead: bool, old: bool) -> None:
    """A run's page with other values, or another page; as of a release that noted digests, or before."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        put(folder, "table", "data.csv")
        path = folder / RUN / file
        page = json.loads(path.read_text())
        keys = sorted(page) if isinstance(page, dict) else []
        if instead or not keys:
            path.write_text(json.dumps(changes))
        else:
            known = {keys[number % len(keys)]: value for number, value in enumerate(changes.values())}
            path.write_text(json.dumps({**page, **known}))
        if old:
            metrics = json.loads((folder / RUN / "metrics.json").read_text())
            if isinstance(metrics, dict):
                metrics.pop("digests", None)
                (folder / RUN / "metrics.json").write_text(json.dumps(metrics))
        for words in (["predict", RUN, "data.csv", "--out", "out.csv"], ["report", "runs"]):
            ended = run(words, folder)
            assert ended.wrong() is None, (words, ended.wrong(), path.read_text())


KINDS = st.sampled_from([*samples.FILES, *samples.MORE_FILES])
FILES = st.sampled_from(["config.json", "metrics.json", "history.json", "timing.json"])
PAGES = (FILES, st.dictionaries(st.text(max_size=8), VALUES, max_size=3), st.booleans(), st.booleans())
PLACES = st.floats(0, 1)
ALL = [
    (given(TABLES, st.booleans()), table_of),
    (given(KINDS, st.binary(min_size=1, max_size=12), PLACES, st.booleans()), bytes_of),
    (given(*PAGES), page_of),
]


@pytest.mark.parametrize(("drawn", "check"), ALL, ids=["table", "bytes", "page"])
def test_some_drawn_inputs(drawn, check):
    EACH_TIME(drawn(check))()


@pytest.mark.slow
@pytest.mark.parametrize(("drawn", "check"), ALL, ids=["table", "bytes", "page"])
def test_many_drawn_inputs(drawn, check):
    WHEN_SLOW(drawn(check))()
