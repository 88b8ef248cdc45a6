"""`shiftproof serve`: a trained run that answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import app


@app.command()
def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of one run.")],
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 is every one of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at.")] = 8000,
    most_rows: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="The most rows that one request may hold.")
    ] = 1000,
    most_bytes: Annotated[
        int, typer.Option(min=100, max=10**9, help="The largest request that is read, in bytes.")
    ] = 5_000_000,
    batch_wait: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Seconds to wait for other requests and answer them in one batch.")
    ] = 0.005,
) -> None:
    """Answer requests for predictions: POST SMILES or rows, JSON comes back; the page /docs describes it."""
    from shiftproof.errors import optional
    from shiftproof.serving import app_for

    uvicorn = optional("uvicorn", "serve", "serving a run")
    made = app_for(run, most_rows=most_rows, most_bytes=most_bytes, batch_wait=batch_wait)
    uvicorn.run(made, host=host, port=port, log_level="info")
