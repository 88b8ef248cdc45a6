"""Files are written in one place, `shiftproof.runtime.files`, whole or not at all: a walk over the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "shiftproof"
# the writer itself; marks and journals, which are made in one step or appended to under a lock; a switch of the kernel
MAY_WRITE = {"runtime/unfinished.py", "runtime/run_lock.py", "runtime/journal.py", "runtime/memory.py"}
WRITES = {
    *("write_text", "write_bytes", "to_csv", "to_parquet", "to_excel", "to_pickle", "to_feather", "to_hdf", "to_latex"),
    *("savetxt", "savez", "savez_compressed", "tofile", "open_memmap", "memmap", "save_file", "serialize_file"),
    *("savefig", "write_html", "mkstemp", "NamedTemporaryFile", "mktemp", "FileIO", "copyfile", "copy2", "copytree"),
    *("rename", "renames", "link", "symlink_to", "hardlink_to"),
}
ONLY_OF = {  # names that other things have too
    "save": {"np", "numpy", "torch"},
    "dump": {"json", "pickle", "joblib", "yaml"},
    "replace": {"os"},
    "copy": {"shutil"},
    "move": {"shutil"},
}
OPENS = {"open", "fdopen", "ZipFile", "GzipFile", "LZMAFile", "BZ2File", "TarFile"}


def _name(call: ast.Call) -> tuple[str, str]:
    """The function that is called and what stands before its dot."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr, call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    return (call.func.id, "") if isinstance(call.func, ast.Name) else ("", "")


def _opens_for_writing(call: ast.Call) -> bool:
    modes = [word.value for word in call.keywords if word.arg == "mode"]
    modes += call.args[:2] if isinstance(call.func, ast.Attribute) else call.args[1:2]
    flags = {node.attr for part in call.args for node in ast.walk(part) if isinstance(node, ast.Attribute)}
    said = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(set(mode) <= set("rwaxbt+U|:gzx2*") and set(mode) & set("wax+") for mode in said) or bool(
        flags & {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND"}
    )


def _in_memory(function: ast.AST) -> set[str]:
    """Names that stand for a buffer: `page = io.StringIO()`, or the file of `with whole_file(...) as file`."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if _name(node.value)[0] in ("BytesIO", "StringIO"):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                whole = isinstance(item.context_expr, ast.Call) and _name(item.context_expr)[0] == "whole_file"
                if whole and isinstance(item.optional_vars, ast.Name):
                    found.add(item.optional_vars.id)
    return found


def writes(text: str) -> list[str]:
    """The calls in a piece of code that write a file by themselves."""
    tree = ast.parse(text)
    buffers = _in_memory(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, owner = _name(node)
        to_buffer = any(isinstance(part, ast.Name) and part.id in buffers for part in node.args)
        opened = name in OPENS and _opens_for_writing(node)
        path_replaced = name == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 1
        if not to_buffer and (
            opened or name in WRITES or owner in ONLY_OF.get(name, ()) or (path_replaced and not node.keywords)
        ):
            found.append(f"line {node.lineno}: {ast.unparse(node)[:80]}")
    return found


def test_files_are_written_by_the_writer_and_nowhere_else() -> None:
    places = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    wrong = {name: writes(path.read_text()) for name, path in places.items() if name not in MAY_WRITE}
    told = [f"{name}, {line}" for name, lines in sorted(wrong.items()) for line in lines]
    assert not told, "use shiftproof.runtime.files for\n" + "\n".join(told)


@pytest.mark.parametrize(
    "line",
    [
        'open(path, "w")',
        'open(path, mode="ab")',
        'path.open("wb")',
        'path.open(mode="x")',
        'os.fdopen(handle, "w")',
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        'gzip.open(path, "wb")',
        'zipfile.ZipFile(path, "w")',
        'tarfile.open(path, "w:gz")',
        "path.write_text(text)",
        "frame.to_csv(path)",
        "np.savez(path, a=a)",
        "np.save(path, a)",
        "torch.save(state, path)",
        "save_file(tensors, path)",
        "figure.savefig(path)",
        "json.dump(value, file)",
        "os.replace(old, new)",
        "beside.replace(path)",
        "shutil.move(old, new)",
        "tempfile.mkstemp(dir=folder)",
    ],
)
def test_every_way_to_write_a_file_is_seen(line: str) -> None:
    assert len(writes(line)) == 1


@pytest.mark.parametrize(
    "lines",
    [
        "open(path)",
        'open(path, "rb")',
        'gzip.open(path, "rt")',
        'text.replace("a", "b")',
        "replace(data, name=name)",
        "run.save(folder)",
        "page = io.StringIO()\nfigure.savefig(page)",
        "with whole_file(path) as file:\n    np.savez(file, a=a)",
        "image.open(path)",
    ],
)
def test_reading_and_buffers_are_let_through(lines: str) -> None:
    assert writes(lines) == []
