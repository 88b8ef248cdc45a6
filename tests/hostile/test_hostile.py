"""Every hostile input ends in a right result or in one sentence: a part of the cases each time, most when slow."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shiftproof.registry import datasets
from tests.hostile import folders, grammar, samples, words
from tests.hostile.grammar import Case
from tests.hostile.judge import run

ENDINGS = [entry.name for entry in datasets if entry.name.startswith(".")]
KINDS = [*ENDINGS, *samples.MORE_FILES]


def _bytes() -> Iterator[Case]:
    return grammar.byte_cases(KINDS)


# Where cases come from, which share of them runs each time, and which when slow.
SOURCES: dict[str, tuple[Callable[[], Iterator[Case]], float, float]] = {
    "bytes of files": (_bytes, 0.04, 0.5),
    "cells of tables": (grammar.cell_cases, 0.02, 0.25),
    "shapes of tables": (grammar.shape_cases, 0.25, 1.0),
    "arrays": (grammar.array_cases, 0.02, 0.4),
    "archives": (grammar.archive_cases, 0.0, 1.0),
    "pages of JSON in runs": (folders.json_cases, 0.004, 0.08),
    "bytes of runs": (folders.run_byte_cases, 0.02, 0.3),
    "stored data": (folders.stored_cases, 0.02, 0.3),
    "folders": (folders.folder_cases, 0.05, 1.0),
    "words": (words.word_cases, 0.02, 0.2),
    "options of data sets": (words.data_option_cases, 0.01, 0.2),
    "options of methods": (words.method_option_cases, 0.004, 0.05),
    "options of attacks": (words.attack_option_cases, 0.01, 0.2),
    "places": (words.place_cases, 0.05, 0.5),
}


@functools.cache
def cases(source: str) -> tuple[Case, ...]:
    return tuple(SOURCES[source][0]())


def judged(chosen: list[Case]) -> list[str]:
    """What is wrong with the ends of these cases, each with its name."""
    wrong = []
    for case in chosen:
        with tempfile.TemporaryDirectory(prefix="hostile-") as place:
            case.make(Path(place))
            ended = run(case.words, Path(place))
        if problem := ended.wrong(case.expected):
            wrong.append(f"{case} ({ended.seconds:.1f} s): shiftproof {' '.join(ended.words)[:300]}\n  {problem}")
    return wrong


@pytest.mark.parametrize("source", [source for source, (_, share, _) in SOURCES.items() if share])
def test_a_part_of_the_hostile_inputs(source):
    assert not judged([case for case in cases(source) if case.chosen(SOURCES[source][1])])


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_the_hostile_inputs(source, capsys):
    chosen = [case for case in cases(source) if case.chosen(SOURCES[source][2])]
    with capsys.disabled():
        print(f"\n{source}: {len(chosen)} of {len(cases(source))} cases")
    wrong = judged(chosen)
    assert not wrong, f"{len(wrong)} of {len(chosen)} cases:\n" + "\n".join(wrong)


@pytest.mark.slow
def test_there_are_at_least_500_hostile_inputs():
    chosen = {source: sum(case.chosen(share) for case in cases(source)) for source, (_, _, share) in SOURCES.items()}
    assert sum(chosen.values()) >= 500, chosen


def test_every_reader_has_a_right_file_to_be_made_wrong():
    assert set(ENDINGS) <= set(samples.FILES), "give the new reader a right file in tests/hostile/samples.py"


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_files_are_read(kind, tmp_path):
    name = grammar.file_name(kind)
    {**samples.FILES, **samples.MORE_FILES}[kind](tmp_path / name)
    ended = run(samples.reading(kind, Path(name)), tmp_path, seconds=60)
    assert ended.wrong("read") is None


def test_cases_have_names_of_their_own():
    for source in SOURCES:
        names = [case.name for case in cases(source)]
        assert len(names) == len(set(names)), source
