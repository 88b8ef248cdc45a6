"""`shiftproof diagnose`: what the data hold before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import Data, Device, Json, app
from shiftproof.cli.printing import print_sections
from shiftproof.ranges import MOST, MOST_SEED


@app.command()
def diagnose(
    data: Data,
    out: Annotated[Path | None, typer.Option(help="Folder for diagnosis.json, .svg and .html.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Which samples are drawn and how the assistant starts.")
    ] = 0,
    assistant: Annotated[
        bool, typer.Option("--assistant/--no-assistant", help="Train a small network and see what it follows.")
    ] = True,
    epochs: Annotated[int, typer.Option(min=1, max=MOST, help="Epochs of the assistant.")] = 10,
    group: Annotated[str | None, typer.Option(help="The column that is the environment.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say which shifts the data hold, how strong the shortcuts are, what it may cost and what cannot be known."""
    from shiftproof.data import load_samples
    from shiftproof.diagnosis import diagnose as ask
    from shiftproof.diagnosis import write_diagnosis
    from shiftproof.runtime.files import require_folder

    if out is not None:
        require_folder(out)
    style = "none" if as_json else "auto"
    dataset = load_samples(data, group=group)
    found = ask(dataset, seed=seed, assistant=assistant, epochs=epochs, device=device, progress=style)
    written = [] if out is None else write_diagnosis(found, out)
    if as_json:
        print(json.dumps(found.to_json(), indent=1))
        return
    print_sections(f"Diagnosis of {found.data}", found.sections())
    for file in written:
        print(f"written: {file}")
