"""The command itself, and the options that several of its parts take."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection
from typing import Annotated

import typer

from shiftproof.errors import ShiftproofError

app = typer.Typer(
    name="shiftproof",
    help="Models that keep working when the data moves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

MOST_RUNS = 100_000  # seeds or settings of one command: a larger number is a slip, and its list would fill memory

Data = Annotated[str, typer.Argument(metavar="DATA", help="A name with options (spmotif-struc:bias=0.9) or a path.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of method, network or training; may be repeated."),
]
NodeData = Annotated[
    str, typer.Argument(metavar="DATA", help="A node graph: a name with options (cora:features=embedded) or a path.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile (CPU) or replay (GPU) the step.")]
Fuse = Annotated[bool, typer.Option("--fuse", help="As --compile; on a GPU with fused kernels (a minute, once).")]
Workers = Annotated[int, typer.Option(max=1024, help="Processes that train side by side.")]
Stack = Annotated[
    int, typer.Option(max=MOST_RUNS, help="How many seeds to train as one (GPU; graphs): faster, other draws.")
]
Seeds = Annotated[str, typer.Option(help="How many seeds to train, or which: 5, or 0,3,7.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and say what it will cost; train nothing.")]
Smiles = Annotated[str | None, typer.Option(help="Your table: the column of SMILES.")]
Label = Annotated[list[str] | None, typer.Option(help="Your table: the column of labels; may be repeated; '*' is all.")]
Env = Annotated[str | None, typer.Option(help="Your table: the column of environments, or scaffold or size.")]
How = Annotated[
    str | None, typer.Option("--split", help="Your table: scaffold, cluster, similarity, size, random, column, time.")
]
By = Annotated[str | None, typer.Option(help="Your table: the column for --split column or time.")]


def seeds_named(text: str, first: int = 0) -> list[int]:
    """The seeds of an option: so many from the first on, or those that are listed with commas."""
    from shiftproof.api.bringing import seeds_of

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() for word in words):
        raise ShiftproofError(f"--seeds is how many seeds, or numbers with commas (0,3,7), not '{text}'")
    if "," not in text and (len(words[0]) > 9 or int(words[0]) > MOST_RUNS):
        raise ShiftproofError(f"--seeds is at most {MOST_RUNS} seeds, not {words[0][:20]}")
    if "," not in text:
        return [first + seed for seed in seeds_of(int(words[0]))]
    return seeds_of([int(word) for word in words])


def command_line(flags: Collection[str] = (), valued: Collection[str] = ()) -> str:
    """What was typed, to be written beside what came of it; with the setting by which torch takes TF32 for products.

    Without `flags` and options with a value (`valued`) that do not decide what comes of it.
    """
    set_before = [f"{name}={os.environ[name]}" for name in ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",) if name in os.environ]
    words, given = ["shiftproof"], iter(sys.argv[1:])
    for word in given:
        if word in valued:
            next(given, None)
        elif word not in flags and word.partition("=")[0] not in valued:
            words.append(word)
    return " ".join([*set_before, shlex.join(words)])
