"""Hostile run folders, stored data sets and kept results: pages of JSON in which one value is another."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile import samples
from tests.hostile.grammar import BYTES, Case
from tests.hostile.kit import RUN, kit, put

VALUES: dict[str, Any] = {
    "left out": ...,
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "1e300": 1e300,
    "a number of 30 digits": 10**29,
    "a half": 0.5,
    "empty text": "",
    "text": "nonsense",
    "an empty list": [],
    "a list": [1, "a", None],
    "an empty object": {},
    "an object": {"a": {"b": []}},
    "a path": "../../../etc/passwd",
    "HTML": "<script>alert(1)</script>",
    "long text": "x" * 50_000,
}
TEXTS: dict[str, str] = {
    "100,000 brackets": "[" * 100_000,
    "NaN": '{"metrics": NaN}',
    "two keys": '{"method": "erm", "method": "irm"}',
    "a number": "3",
    "a list": "[]",
    "an object": "{}",
    "null": "null",
    "a lone surrogate": '{"method": "\\ud800"}',
    "1,000,000 digits": "1" * 1_000_000,
}
Say = tuple[object, ...]
USES: dict[str, Say] = {
    "predict": ("predict", RUN, "data.csv", "--out", "out.csv"),
    "report": ("report", "runs", "--json"),
    "resume": ("fit", "data.csv", "--label", "label", "--env", "site", *samples.QUICK, "--resume"),
}


def paths_in(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a page of JSON; of a list the first."""
    if before:
        yield before
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*before, key))
    elif isinstance(value, list) and value:
        yield from paths_in(value[0], (*before, 0))


def replaced(page: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The page with another value at a place; `...` removes it."""
    page = copy.deepcopy(page)
    holder = page
    for key in place[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return page


def _change_json(folder: Path, place: tuple[Any, ...], value: Any) -> Callable[[Path], None]:
    def make(case: Path) -> None:
        path = case / folder
        page = replaced(json.loads(path.read_text()), place, value)
        path.write_text(json.dumps(page))

    return make


def json_cases() -> Iterator[Case]:
    """Every value of every page of JSON of a run, another one in its place; and pages that are no run's at all."""
    for file, page in samples.json_files(kit() / "runs" / "table" / "erm" / "seed-0").items():
        for place in paths_in(page):
            for what, value in VALUES.items():
                for use, words in USES.items():
                    change = _change_json(RUN / file, place, value)
                    yield Case(
                        f"{use} where {file} {'/'.join(map(str, place))} is {what}",
                        _after("table", "data.csv", change=change),
                        words,
                    )
        for use, words in USES.items():
            for what, text in TEXTS.items():

                def change(case: Path, file: str = file, text: str = text) -> None:
                    (case / RUN / file).write_text(text)

                yield Case(f"{use} where {file} is {what}", _after("table", "data.csv", change=change), words)


def _after(*names: str, change: Callable[[Path], None]) -> Callable[[Path], None]:
    def make(case: Path) -> None:
        put(case, *names)
        change(case)

    return make


def run_byte_cases() -> Iterator[Case]:
    """Every file of a run with wrong bytes, left out, or a folder."""
    for file in sorted(path.name for path in (kit() / "runs" / "table" / "erm" / "seed-0").iterdir()):
        for use, words in USES.items():
            for harm, change in BYTES.items():

                def make(case: Path, file: str = file, change: Any = change) -> None:
                    path = case / RUN / file
                    path.write_bytes(change(path.read_bytes()))

                yield Case(f"{use} where {file} is {harm}", _after("table", "data.csv", change=make), words)

            def gone(case: Path, file: str = file) -> None:
                (case / RUN / file).unlink()

            def folder(case: Path, file: str = file) -> None:
                (case / RUN / file).unlink()
                (case / RUN / file).mkdir()

            def loop(case: Path, file: str = file) -> None:
                (case / RUN / file).unlink()
                (case / RUN / file).symlink_to(file)

            for what, harm_ in (("left out", gone), ("a folder", folder), ("a link to itself", loop)):
                yield Case(f"{use} where {file} is {what}", _after("table", "data.csv", change=harm_), words)


def stored_cases() -> Iterator[Case]:
    """A stored data set whose page is another, or whose files have wrong bytes."""
    words = ("fit", "stored", *samples.QUICK, "--set", "hidden=4", "--set", "layers=1")
    folder = kit() / "stored"
    if not folder.exists():
        samples.write_stored_folder(folder)
    page = json.loads((folder / "dataset.json").read_text())
    for place in paths_in(page):
        for what, value in VALUES.items():
            change = _change_json(Path("stored") / "dataset.json", place, value)
            yield Case(
                f"stored data where {'/'.join(map(str, place))} is {what}", _after("stored", change=change), words
            )
    for what, text in TEXTS.items():

        def write(case: Path, text: str = text) -> None:
            (case / "stored" / "dataset.json").write_text(text)

        yield Case(f"stored data where dataset.json is {what}", _after("stored", change=write), words)
    for harm, change_bytes in BYTES.items():

        def spoil(case: Path, change_bytes: Any = change_bytes) -> None:
            path = case / "stored" / "train.safetensors"
            path.write_bytes(change_bytes(path.read_bytes()))

        yield Case(f"stored data where train.safetensors is {harm}", _after("stored", change=spoil), words)


def folder_cases() -> Iterator[Case]:
    """Folders of images and of TU files that are not quite that."""

    def images(change: Callable[[Path], None]) -> Callable[[Path], None]:
        def make(case: Path) -> None:
            samples.write_image_folder(case / "images")
            change(case / "images")

        return make

    words = ("fit", "images", *samples.QUICK)
    cases: dict[str, Callable[[Path], None]] = {
        "an image of no bytes": lambda f: (f / "art/cat/0.png").write_bytes(b"") and None,
        "every image of no bytes": lambda f: [p.write_bytes(b"") for p in f.rglob("*.png")] and None,
        "one class": lambda f: [shutil.rmtree(f / d / "dog") for d in ("art", "photo", "sketch")] and None,
        "one domain": lambda f: [shutil.rmtree(f / d) for d in ("photo", "sketch")] and None,
        "a domain without a class": lambda f: shutil.rmtree(f / "art" / "dog"),
        "a link to itself": lambda f: (f / "art/cat/loop").symlink_to(f / "art"),
        "a text called png": lambda f: (f / "art/cat/9.png").write_text("no picture") and None,
        "a folder called png": lambda f: (f / "art/cat/9.png").mkdir(),
        "names with spaces": lambda f: (f / "art").rename(f / "a r t"),
        "names with commas": lambda f: (f / "art").rename(f / "a,r=t"),
    }
    for what, change in cases.items():
        yield Case(f"images with {what}", images(change), words)
    for size in ("0", "-1", "3", "100000", "1e9", "nan", "x", "64.5"):
        yield Case(f"images of size={size}", images(lambda f: None), ("fit", f"images:size={size}", *samples.QUICK))
    for holdout in ("-1", "0", "1", "2", "nan"):
        yield Case(
            f"images with holdout={holdout}",
            images(lambda f: None),
            ("fit", f"images:holdout={holdout}", *samples.QUICK),
        )

    texts = samples.tu_texts()
    for file in texts:
        for harm, change_bytes in BYTES.items():

            def make(case: Path, file: str = file, change_bytes: Any = change_bytes) -> None:
                samples.write_tu_folder(case / "tu")
                (case / "tu" / file).write_bytes(change_bytes(texts[file].encode()))

            yield Case(f"TU files where {file} is {harm}", make, ("fit", "tu/", *samples.QUICK, "--set", "hidden=4"))
        for cell in ("1e300", "-1", "0", "nan", "inf", "99999999999", "1.5", "a", "", "1, 2, 3", "1e9"):

            def cell_in(case: Path, file: str = file, cell: str = cell) -> None:
                samples.write_tu_folder(case / "tu")
                lines = texts[file].splitlines()
                lines[4] = cell
                (case / "tu" / file).write_text("\n".join(lines))

            yield Case(
                f"TU files where line 5 of {file} is '{cell}'",
                cell_in,
                ("fit", "tu/", *samples.QUICK, "--set", "hidden=4"),
            )
