"""`shiftproof attack`: one attack on a node graph, and how the defences do before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.cli.options import MOST_RUNS, Device, Json, NodeData, app
from shiftproof.cli.printing import print_table
from shiftproof.ranges import MOST, MOST_SEED


@app.command()
def attack(
    data: NodeData,
    name: Annotated[str, typer.Option("--attack", "-a", help="A name with options (tdgia:step=0.1).")] = "pgd",
    hao: Annotated[float, typer.Option(min=0.0, help="How much injected nodes must be like their neighbours.")] = 0.0,
    defences: Annotated[
        str,
        typer.Option(help="all (38 and an MLP: hours on a CPU), vanilla, robust, combo, or names with commas."),
    ] = "all",
    out: Annotated[Path | None, typer.Option(help="Folder for perturbation.npz, attack.json and defences.")] = None,
    budget_nodes: Annotated[int | None, typer.Option(help="Injected nodes; as published, or 2 % of the nodes.")] = None,
    budget_edges: Annotated[int | None, typer.Option(help="Edges of each injected node; as published, or 20.")] = None,
    flips: Annotated[int | None, typer.Option(help="Flipped edges; 5 % of the edges by default.")] = None,
    add_only: Annotated[bool, typer.Option("--add-only", help="Flips only add edges.")] = False,
    inner: Annotated[bool, typer.Option("--inner", help="Injected nodes may be joined to each other.")] = False,
    low: Annotated[
        float | None, typer.Option(help="The least feature of an injected node; by default the graph's.")
    ] = None,
    high: Annotated[
        float | None, typer.Option(help="The largest feature of an injected node; by default the graph's.")
    ] = None,
    compat: Annotated[str | None, typer.Option(help="'reference' for the released behaviour.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the surrogate and the attack.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="Seeds of each defence.")] = 1,
    epochs: Annotated[int | None, typer.Option(min=1, max=MOST, help="Epochs of every training; as published.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the attack (steps=100); may be repeated."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Attack a node graph and say how every defence does before and after."""
    from shiftproof.data.readers.loading import load_nodes
    from shiftproof.registry import parse_options
    from shiftproof.robustness.attack_and_compare import PlannedAttack, attack_and_defend, budget_for
    from shiftproof.runtime.devices import pick_device

    graph = load_nodes(data).to(pick_device(device))
    planned = PlannedAttack.of(graph, name, parse_options(settings or [], where="--set"))
    limits: Any = {"nodes": budget_nodes, "edges_per_node": budget_edges, "edges": flips, "low": low, "high": high}
    found = attack_and_defend(
        graph,
        planned,
        budget=budget_for(graph, planned, **limits, add_only=add_only, inner=inner),
        hao=hao,
        defences=defences.split(","),
        out=out,
        compat=compat,  # type: ignore[arg-type]
        seed=seed,
        seeds=seeds,
        epochs=epochs,
        progress="none" if as_json else "auto",
    )
    if as_json:
        print(json.dumps(found, indent=1))
        return
    body = [
        [row["defence"], row["category"] or "", f"{100 * row['clean']:.1f}", f"{100 * row['attacked']:.1f}"]
        for row in found["defences"]
    ]
    print_table(f"{name} on {graph.name}, accuracy in %", ["defence", "kind", "clean", "attacked"], body)
    alike = found["homophily"]
    injected = "" if alike["injected"] is None else f", of injected nodes {alike['injected']:.3f}"
    print(f"homophily {alike['clean']:.3f}, attacked {alike['attacked']:.3f}{injected}")
    spent = ", ".join(f"{key} {value}" for key, value in found["spent"].items() if value)
    print(f"spent: {spent}" + ("" if out is None else f"; written: {out / 'perturbation.npz'}, {out / 'attack.json'}"))
