"""A room imports only from those to its left: the order, and the few exceptions that wait to be mended.

Imports inside functions and those for the type checker count too. The one place that may name rooms to its right is
the registry, which imports them by name when they are asked for; the package's face (`shiftproof/__init__.py`) does the
same.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "shiftproof"

# from left to right; what this says stands also in CONTRIBUTING.md
ORDER = (
    "errors",
    "ranges",
    "registry",
    "runtime",
    "data",
    "data.readers",
    "data.published",
    "data.generated",
    "presets",
    "nn",
    "objectives",
    "statistics",
    "methods",
    "pareto",
    "training",
    "drawing",
    "features",
    "explanations",
    "robustness",
    "confidence",
    "diagnosis",
    "api",
    "sweeps",
    "papers",
    "report",
    "serving",
    "cli",
)
# (module, room to its right): why it is still so. An entry that is not needed fails a test, so the list only shrinks.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def _modules() -> dict[str, Path]:
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = _modules()


def _room(module: str) -> str:
    rooms = [room for room in ORDER if module == room or module.startswith(f"{room}.")]
    assert rooms, f"{module} lies in no room of the order; give its room a place in ORDER"
    return max(rooms, key=len)


def _imported(path: Path) -> set[str]:
    """Modules of the library that a file imports anywhere, without the leading `shiftproof.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            package, _, inside = (node.module or "").partition(".")
            if package == "shiftproof":
                for name in (alias.name for alias in node.names):
                    whole = f"{inside}.{name}" if inside else name
                    found.add(whole if whole in MODULES else inside)
        elif isinstance(node, ast.Import):
            found |= {alias.name[11:] for alias in node.names if alias.name.startswith("shiftproof.")}
            assert all(alias.name != "shiftproof" for alias in node.names), f"{path} imports the package's face"
    return found


def _to_the_right() -> set[tuple[str, str]]:
    """Every import of a room further right, as (module, room)."""
    found = set()
    for module, path in MODULES.items():
        if module in ("__init__", "__main__"):
            continue
        own = _room(module)
        for other in _imported(path):
            if other == "":  # `from shiftproof import __version__`
                continue
            room = _room(other)
            face = path.name == "__init__.py" and (room == own or room.startswith(f"{own}."))
            if ORDER.index(room) > ORDER.index(own) and not face:
                found.add((module, room))
    return found


def test_a_room_imports_only_from_those_to_its_left() -> None:
    wrong = _to_the_right() - EXCEPTIONS.keys()
    assert not wrong, "\n".join(
        f"{module} imports from {room}, which is to its right" for module, room in sorted(wrong)
    )


def test_an_exception_that_is_not_needed_any_more_is_taken_out() -> None:
    assert EXCEPTIONS.keys() <= _to_the_right()


def test_only_the_version_is_taken_from_the_face_of_the_package() -> None:
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "shiftproof":
                named = {alias.name for alias in node.names} - MODULES.keys()
                assert named <= {"__version__"}, f"{path} imports {named} from the package's face"


@pytest.mark.parametrize("room", [room for room in ORDER if (SOURCE / room.replace(".", "/")).is_dir()])
def test_every_room_says_what_it_is_for(room: str) -> None:
    assert ast.get_docstring(ast.parse((SOURCE / room.replace(".", "/") / "__init__.py").read_text()))


def test_the_order_in_contributing_is_this_one() -> None:
    told = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text()
    rooms = [room for room in ORDER if "." not in room]
    places = [told.find(f"| `{room}` |") for room in rooms]
    assert -1 not in places, f"CONTRIBUTING.md has no line for {rooms[places.index(-1)]}"
    assert places == sorted(places), "CONTRIBUTING.md lists the rooms in another order"
