"""`shiftproof audit`: every attack against every defence and a model of one's own, as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from shiftproof.cli.options import Device, Json, NodeData, app
from shiftproof.cli.printing import print_sections
from shiftproof.ranges import MOST, MOST_SEED


@app.command()
def audit(
    data: NodeData,
    out: Annotated[Path, typer.Option(help="Folder for audit.html, audit.json and the perturbations.")],
    model: Annotated[str | None, typer.Option(help="Your PyG model, file.py:Class; the file is run.")] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights, a .safetensors file.")] = None,
    expect: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Its accuracy on the test nodes as you know it (0.784); else it stops."),
    ] = None,
    attacks: Annotated[str | None, typer.Option(help="Injection attacks, with commas; five by default.")] = None,
    hao: Annotated[float | None, typer.Option(min=0.0, help="Weight of homophily; by default the graph's own.")] = None,
    defences: Annotated[
        str | None, typer.Option(help="all, vanilla, robust, combo, or names with commas; nine by default.")
    ] = None,
    budget_nodes: Annotated[int | None, typer.Option(help="Injected nodes; as published, or 2 % of the nodes.")] = None,
    budget_edges: Annotated[int | None, typer.Option(help="Edges of each injected node; as published, or 20.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, max=MOST, help="Steps of every attack; as published.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, max=MOST, help="Epochs of every training; as published.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed of the surrogate, the attacks and the defences.")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An argument of your model's class; may be repeated."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Attack a node graph in every way, against your model and the defences, and make a page of it."""
    from shiftproof.data.readers.loading import load_nodes
    from shiftproof.registry import parse_options
    from shiftproof.report import write_audit
    from shiftproof.robustness.attack_and_compare import budget_for, your_model
    from shiftproof.robustness.audit import ATTACKS, DEFENCES, summary
    from shiftproof.robustness.audit import audit as ask
    from shiftproof.robustness.trained_on import load_as_trained, require_as_trained
    from shiftproof.runtime.devices import pick_device
    from shiftproof.runtime.files import require_folder

    require_folder(out)
    graph, unsaid = load_as_trained(data, weights) if model else (load_nodes(data), [])
    graph = graph.to(pick_device(device))
    given = your_model(model, weights, graph, parse_options(settings or [], where="--set"))
    if given is not None and unsaid:
        require_as_trained(given, graph, unsaid, expect)
    numbers, found = ask(
        graph,
        model=given,
        model_name=model,
        expected=expect,
        attacks=attacks.split(",") if attacks else ATTACKS,
        hao=hao,
        defences=defences.split(",") if defences else DEFENCES,
        budget=budget_for(graph, "pgd", nodes=budget_nodes, edges_per_node=budget_edges),
        steps=steps,
        epochs=epochs,
        seed=seed,
        folder=out / "defences",
        progress="none" if as_json else "auto",
    )
    page = write_audit(numbers, out, found)
    if as_json:
        print(json.dumps({"page": str(page), **numbers.to_json()}, indent=1))
        return
    print_sections(f"Audit of {graph.name}", {"In short": summary(numbers)})
    print(f"page: {page}")
