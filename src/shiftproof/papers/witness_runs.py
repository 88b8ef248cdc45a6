"""What a witness does: fit a method, attack a graph, train a defence, choose a run, compute a theory, all in little."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

import shiftproof.explanations as explaining
from shiftproof.api.fitting import Plan, accepted_settings, fit
from shiftproof.data.dataset import Dataset
from shiftproof.data.graphs import GraphSet
from shiftproof.errors import ShiftproofError
from shiftproof.nn.networks.network import WORDS
from shiftproof.papers.hao.metattack import DEFENCES_OF_METATTACK, OF_METATTACK
from shiftproof.papers.hao.pieces import SOURCES
from shiftproof.papers.witness_data import named, small_graph, stand_in
from shiftproof.presets import preset_for as preset_of_data
from shiftproof.registry import attacks, datasets, fitting_options, methods, parse_name, recipes
from shiftproof.robustness.adversarial import adversarial_train, attacker
from shiftproof.robustness.attacks import attack
from shiftproof.robustness.attacks.presets import attack_preset
from shiftproof.robustness.attacks.weights import choose_weight, own_examiners
from shiftproof.robustness.budget import Budget, Perturbation
from shiftproof.robustness.trained_zoo import train_zoo
from shiftproof.robustness.training import build_defence, train_defence
from shiftproof.robustness.zoo import chosen, preset_for
from shiftproof.training.run import Run

# the most a setting may be in a witness, so that every phase is short and none falls away
MOST = {
    "epochs": 3, "hidden": 8, "layers": 2, "batch_size": 12, "warmup": 1, "terms_from": 1, "anneal_steps": 2,
    "decay_interval": 1, "reference_epochs": 2, "erm_epochs": 2, "samples": 3, "inference_steps": 3, "inner_steps": 2,
    "explainer_epochs": 2, "steps": 3, "round_epochs": 2, "round_steps": 2, "synthesis_epochs": 2, "evaluate_every": 1,
    "steps_per_epoch": 2, "classifier_width": 8, "clusters": 3, "width": 8, "smooth_min": 1,
    "trees": 10, "least_in_a_leaf": 3,
}  # fmt: skip
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{conv: ("spmotif-struc", {"conv": conv}) for conv in ("gcn", "gin", "pna", "sgc", "sage", "gat")},
    **{f"{conv}-gmt": ("spmotif-gsat", {"conv": conv, "style": "gmt"}) for conv in ("gin", "pna")},
    **{f"readout-{kind}": ("spmotif-struc", {"readout": kind}) for kind in ("mean", "sum", "max")},
    **{conv: ("toy-tracks", {"conv": conv}) for conv in ("egnn", "dgcnn", "point-transformer")},
    "egnn-groups": ("toy-groups", {}),
    **{name: ("spmotif-struc", {"network": name}) for name in ("appnp", "gpr-gnn")},
    "nodes": ("cora-like", {"network": "gcn"}),
    "virtual-node": ("spmotif-struc", {"virtual_node": True, "dropout": 0.3}),
    "mlp": ("two-bit", {"featurizer": "mlp", "dropout": 0.2}),
    "linear": ("two-bit", {"featurizer": "linear"}),
    "cnn": ("pacs64", {"featurizer": "cnn"}),
}
ZOO_GRAPHS = {
    "cora": ("pgd", "metagia", "agia", "tdgia", "atdgia"),
    "citeseer": ("pgd", "metagia", "agia", "tdgia", "atdgia"),
    "computers": ("pgd", "metagia", "agia", "tdgia", "atdgia", "seqgia"),
}
TRANSDUCTIVE = DEFENCES_OF_METATTACK
INJECTED = Budget(nodes=4, edges_per_node=3)
FLIPPED = Budget(edges=4)


@dataclass(frozen=True)
class Source:
    """What a witness stands for, and the function that runs it."""

    run: Callable[[Source], Measured]
    method: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """What a witness has to say: metrics by name, and numbers for its weights."""

    metrics: Mapping[str, Any]
    weights: Mapping[str, float]


def digest(tensors: Iterable[Tensor]) -> dict[str, float]:
    """Four numbers for many tensors: their sum, norm, and two projections on fixed waves."""
    flat = [t.detach().cpu().double().flatten() for t in tensors]
    values = torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)
    place = torch.arange(len(values), dtype=torch.float64)
    waves = {"wave": torch.cos(0.7 * place), "other_wave": torch.cos(math.sqrt(2) * place + 1)}
    found = {"count": float(len(values)), "sum": float(values.sum()), "norm": float(values.norm())}
    return {**found, **{name: float(values @ wave) for name, wave in waves.items()}}


def small_settings(method: str, data: Dataset, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings given, and those of the preset or the defaults that are too long or too wide for a witness."""
    plan = Plan.make(method, data, given)
    settings = {**given}
    options = methods[method].options
    most = (
        {**MOST, "epochs": 6} if "decay_interval" in options else MOST
    )  # the best epoch is looked for after the decay
    asked = {**plan.options, **(plan.network or {}), **plan.training, **plan.weighting}
    for group in accepted_settings(methods[method].make, plan.balance_name, plan.network_name).values():
        for name, parameter in group.items():
            value = asked.get(name, parameter.default)
            less = _less(name, value, most)
            if less != value:
                settings[name] = less
    if "decay_interval" not in options:  # weights of the last epoch, which all terms have had their say in
        settings.setdefault("selection", "last")
    return settings


def _less(name: str, value: Any, most: Mapping[str, int]) -> Any:
    if name in most:
        return min(value, most[name]) if type(value) is int else value
    if name == "engine":
        return "scikit-learn"  # which is there on every machine
    if name == "widths":
        return (8,) * len(value)
    if name == "discovery_epochs":
        return tuple(1 for _ in value)
    if name == "head_steps":
        return (2, 3)
    if name == "penalties":
        return tuple(value[:2])
    return value


def fitted(source: Source) -> Measured:
    """A method trained on a few samples: metrics of every split, last losses, logits, scores of edges and weights."""
    data = stand_in(source.data)
    settings = {**source.settings, **small_settings(source.method, data, source.settings)}
    return told(fit(source.method, data, seed=1, device="cpu", **settings), data)


def told(run: Run, data: Dataset) -> Measured:
    """What a run has to say for itself."""
    last = run.history[-1] if run.history else {}
    scores = {
        split: {name: value for name, value in found.items() if name not in ("samples", "by_env", "environment")}
        for split, found in run.metrics.items()
    }
    metrics: dict[str, Any] = {"metrics": scores, "selected_epoch": run.selected_epoch}
    metrics |= {key: last[key] for key in ("losses", "balance") if key in last}
    metrics["logits"] = digest([run.logits(data["test"])])
    table = getattr(run.method, "table", None)  # of feat-heads
    if table:
        metrics["heads"] = {key: table[key] for key in ("scores", "chosen", "probes")}
    pretrained = getattr(run.method, "pretrained", None)  # of feat
    if pretrained is not None:
        metrics["rounds"] = {str(n): _numbers(log.to_json()) for n, log in enumerate(pretrained.rounds)}
    graphs = data["test"]
    if isinstance(graphs, GraphSet) and hasattr(run.method, "explain"):
        metrics["explained"] = _explained(run, graphs)
    return Measured(metrics, digest(run.method.state_dict().values()))


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not isinstance(value, str) and "seconds" not in key}


def _explained(run: Run, graphs: GraphSet) -> dict[str, float]:
    try:
        torch.manual_seed(0)
        found = explaining.explain(run, graphs[:3])
    except ShiftproofError:
        return {}
    return digest([s for s in (found.edge_scores, found.node_scores) if s is not None])


def attacked(source: Source) -> Measured:
    """An attack on a small graph against a GCN of width eight; the features and edges it injects or flips."""
    graph = small_graph()
    hao, options = source.settings.get("hao", 0.0), {}
    if source.data in ZOO_GRAPHS:
        preset = attack_preset(named(graph, source.data))
        options = preset.options_of(source.method)
        hao = preset.hao_of(source.method) if hao == "published" else hao
    known = attacks[source.method].options
    for name, least in (("steps", 3), ("edge_steps", 2)):
        if name in known:
            options[name] = least
    injects = "injection" in attacks[source.method].tags
    surrogate = train_defence(build_defence("gcn", graph, hidden=8, seed=0), graph, epochs=4, seed=0).model
    how = {"budget": INJECTED if injects else FLIPPED, "surrogate": surrogate, "hao": hao, "seed": 1}
    return _of_attack(attack(source.method, graph, **how, **options))


def _of_attack(found: Perturbation) -> Measured:
    edges = {name: digest([getattr(found, name)]) for name in ("edges", "added", "removed", "inner")}
    return Measured(edges, digest([found.features]))


def chosen_weight(source: Source) -> Measured:
    """The weight of HAO that an attacker chooses by its own examiners."""
    graph = named(small_graph(), source.data)
    preset = replace(preset_for(source.data), hidden=8, epochs=4)
    examiners = own_examiners(graph, 3, preset=preset)
    surrogate = train_defence(build_defence("gcn", graph, hidden=8, seed=0), graph, epochs=4, seed=0).model
    how = {"budget": INJECTED, "surrogate": surrogate, "examiners": examiners, "seed": 1, "steps": 3}
    found = choose_weight(source.method, graph, grid=(1.0, 4.0), **how)
    weights = [value for model in examiners.values() for value in model.state_dict().values()]
    tried = {f"{weight:g}".replace(".", "_"): kept for weight, kept in found.tried.items()}
    return Measured({"weight": found.weight, "tried": tried}, digest(weights))


def defended(source: Source) -> Measured:
    """A defence of the zoo, by the preset of a graph, trained for a few epochs; with FLAG of two steps."""
    graph = named(small_graph(), source.data)
    preset = preset_for(source.data)
    preset = replace(preset, hidden=8, epochs=4, flag=replace(preset.flag, steps=2))
    member = next(iter(train_zoo(graph, chosen([source.method], preset), seeds=(1,), preset=preset, progress="none")))
    with torch.no_grad():
        from shiftproof.robustness.training import predict

        logits = predict(member.model, graph)
    return Measured({"logits": digest([logits])}, digest(member.model.state_dict().values()))


def transductive(source: Source) -> Measured:
    """A defence trained on the whole graph, as the published attacks on training graphs are scored."""
    graph = small_graph()
    options = {"layers": 2, "hidden": 16, **OF_METATTACK.get(source.method, {})}
    known = {k: v for k, v in options.items() if k in _options_of_defence(source.method)}
    model = build_defence(source.method, graph, seed=1, **known)
    found = train_defence(model, graph, epochs=4, weight_decay=5e-4, protocol="transductive", evaluate_from=0.0, seed=1)
    return Measured(
        {"accuracies": found.accuracies, "loss": found.history["loss"]}, digest(model.state_dict().values())
    )


def _options_of_defence(name: str) -> Mapping[str, Any]:
    from shiftproof.registry import defences

    return defences[name].options


def adversarial(source: Source) -> Measured:
    """A GCN trained against injected nodes."""
    graph = small_graph()
    strike = attacker("pgd", hao=source.settings["hao"], budget=INJECTED, steps=2)
    model = build_defence("gcn", graph, hidden=8, seed=1)
    found = adversarial_train(model, graph, strike, epochs=3, evaluate_from=1.0, seed=1)
    return Measured(
        {"accuracies": found.accuracies, "loss": found.history["loss"]}, digest(model.state_dict().values())
    )


def selected(source: Source) -> Measured:
    """What PAIR-s and plain validation choose among four runs, and the step PAIR-s takes in one."""
    from shiftproof.pareto import RunHistory, select, select_by_validation, select_step

    data = stand_in(source.data)
    given = {"terms": "irm+vrex", "track": ("val", "test")}
    runs = []
    for number, lr in enumerate((1e-3, 3e-3, 1e-2, 3e-2)):
        settings = {**given, **small_settings(source.method, data, given), "lr": lr, "epochs": 6}
        runs.append(fit(source.method, data, seed=number, device="cpu", **settings))
    terms = ["task", "irm", "vrex"]
    metric = runs[0].config["metric"]
    histories = [RunHistory.of(str(n), r.history, losses=terms, metric=metric, val="val") for n, r in enumerate(runs)]
    found: dict[str, Any] = {"pair-s": select(histories, [1.0, 1e10, 1e12]), "val": select_by_validation(histories)}
    found["step"] = select_step(histories[0], [1.0, 1e10, 1e12], from_step=2)
    metrics = {name: {"run": one.run, "step": one.step, "test": one.test} for name, one in found.items()}
    return Measured(metrics, digest(v for run in runs for v in run.method.state_dict().values()))


def counterfactual(source: Source) -> Measured:
    """How predictions of GMT-sam and of its extractor react to other attention, and what edges are worth."""
    data = stand_in(source.data)
    run = fit(source.method, data, seed=1, device="cpu", **small_settings(source.method, data, {}))
    graphs = data["test"]
    assert isinstance(graphs, GraphSet)
    extractor: Any = copy.deepcopy(run.method.extractor)
    extractor.eval_samples = 3
    metrics: dict[str, Any] = {}
    for name, model in (("gmt-sam", run.method), ("gmt-simulated", extractor)):
        found = explaining.counterfactual_fidelity(model, graphs, draws=2, seed=1)
        metrics[name] = {distance: [e.value, e.low, e.high] for distance, e in found.items()}
    scores = explaining.explain(run, graphs)
    for measure in (explaining.explanation_auc, explaining.sparsity):
        metrics[measure.__name__] = measure(scores, resamples=3).value
    return Measured(metrics, digest(run.method.state_dict().values()))


def looked_at(source: Source) -> Measured:
    """Grad-CAM, saliency and integrated gradients of a small network after ERM and after FeAT."""
    from shiftproof.features.feat import ERMPretrainer, IFeAT
    from shiftproof.papers.feat.maps import maps_of

    data = stand_in(source.data)
    data = replace(data, splits={n: replace(s, x=s.x.reshape(-1, 2, 8, 8)) for n, s in data.splits.items()})  # type: ignore[call-arg,union-attr]
    metrics, weights = {}, []
    shared: dict[str, Any] = {"lr": 1e-3, "l2": 1e-3, "seed": 1}
    learners = {"erm": ERMPretrainer(steps=4, **shared), "feat": IFeAT(rounds=2, steps=2, merge="sum", **shared)}
    for name, learner in learners.items():
        torch.manual_seed(1)
        body = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 8)
        )
        head = torch.nn.Linear(8, 1)
        learned = learner.fit(body, head, data)
        metrics[name] = {"rounds": {str(n): _numbers(log.to_json()) for n, log in enumerate(learned.rounds)}}
        found = maps_of(torch.nn.Sequential(body, head), body[1], data["test"].x[:4])  # type: ignore[arg-type]
        metrics[name] |= {kind: digest([values]) for kind, values in found.items()}
        weights += [*body.state_dict().values(), *head.state_dict().values()]
    return Measured(metrics, digest(weights))


def stack_of_pair(source: Source) -> Measured:
    """The runs of pair-extrapolation trained side by side, for three epochs."""
    from shiftproof.papers.pair.extrapolation import _plan
    from shiftproof.papers.pair.side_by_side import Stack

    data = stand_in(source.data)
    members = [member for some in _plan([0, 1]).values() for member in some]
    stack = Stack(members, [data], lr=1e-3, eps=0.1, device=torch.device("cpu"))
    for balance in (False, True, True):
        stack.train_epoch(balance=balance)
        if not balance:
            stack.refresh()
    return Measured({"fallbacks": stack.fallbacks.double().sum().item()}, digest(stack.weights))


def theory(source: Source) -> Measured:
    """The rows of a table that is computed, not trained; simulations are of a few steps."""
    if source.method == "pair-failure":
        rows = recipes[source.method].make().rows([])
        return Measured({str(n): row["values"] + list(row["point"]) for n, row in enumerate(rows)}, digest([]))
    from shiftproof.features.theory.patch_cnn import simulate_feature_learning

    metrics: dict[str, Any] = {}
    for steps in (0, 5):
        found = simulate_feature_learning(seed=1, erm_steps=steps, irm_steps=5)
        kept = {name: getattr(found, name) for name in ("scale", "invariant", "spurious")}
        metrics[f"erm-{steps}"] = {name: digest([torch.as_tensor(value)]) for name, value in kept.items()}
    return Measured(metrics, digest([]))


def map_of_settings(source: Source) -> Measured:
    """A digest of the settings of all cells of a recipe, by data set and method: a number that changed is seen here."""
    found: dict[str, Any] = {}
    for cell in recipes[source.method].make().cells:
        data = stand_in(cell.data)
        plan = Plan.make(cell.method, _with_options(data, cell.data), cell.variant)
        said = [
            plan.options,
            _network_as_said(plan, cell.variant),
            plan.training,
            plan.weighting,
            plan.balance_name,
            cell.variant,
        ]
        seen = found.setdefault(f"{cell.data} {cell.method}", hashlib.blake2b(digest_size=6))
        seen.update(json.dumps(said, sort_keys=True, default=str).encode())
    found = {name: seen.hexdigest() for name, seen in found.items()}
    return Measured(found, {})


def _network_as_said(plan: Plan, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The network's settings under the words in which presets and recipes name it."""
    if not plan.network:
        return plan.network
    name, options = plan.network_name, {k: v for k, v in plan.network.items() if k != "network"}
    preset = preset_of_data(plan.dataset, given.get("protocol")).settings(plan.name, plan.balance_name)
    words = [word for word in WORDS if word in {**preset, **given}]
    return {**dict.fromkeys(words, name), **options}


def settings_of_graphs(source: Source) -> Measured:
    """All settings with which a graph of the HAO paper is attacked and defended."""
    preset, read_as = preset_for(source.data), SOURCES.get(source.data)
    graph = named(small_graph(), source.data)
    if read_as is not None:
        graph = replace(graph, provenance=parse_name(read_as)[1])
    found = {"zoo": asdict(preset), "attacks": asdict(attack_preset(graph)), "specs": [s.name for s in preset.specs()]}
    found |= {} if read_as is None else {"source": read_as}
    return Measured({"said": json.dumps(found, sort_keys=True, default=str)}, {})


def ended(source: Source) -> Measured:
    """After how many steps attacks that hide are given up: by sign, by a smooth sine, by Adam."""
    graph = small_graph()
    surrogate = train_defence(build_defence("gcn", graph, hidden=8, seed=0), graph, epochs=4, seed=0).model
    how = {"budget": INJECTED, "surrogate": surrogate, "hao": source.settings["hao"], "seed": 1}
    found = {name: attack(name, graph, steps=60, patience=5, **how).log for name in ("pgd", "tdgia", "speit")}
    return Measured({name: log["steps"] for name, log in found.items()}, {})


def _with_options(data: Dataset, spec: str) -> Dataset:
    """The stand-in with the options that the preset looks at."""
    name, given = parse_name(spec)
    given = {key: value for key, value in given.items() if key not in ("group", "vectors")}  # options of `load`
    known = datasets[name].options  # `group` is of every data set, and no preset looks at it
    said = fitting_options({k: v for k, v in given.items() if k in known}, known, name)
    return replace(data, options={**data.options, **{k: v for k, v in said.items() if k in ("a", "b", "bias", "name")}})


def bits() -> dict[str, str]:
    """SHA-256 of the bytes of four models' weights: equal on one machine as long as nothing is computed otherwise."""
    tried = {
        "ciga-v2": ("ciga-v2", "spmotif-struc", {}),
        "gsat": ("gsat", "spmotif-gsat", {}),
        "feat": ("feat", "two-bit", {"rounds": 2}),
    }
    found = {}
    for name, (method, spec, given) in tried.items():
        data = stand_in(spec)
        run = fit(method, data, seed=1, device="cpu", **{**given, **small_settings(method, data, given)})
        found[name] = _bytes(run.method)
    graph = small_graph()
    found["eguard"] = _bytes(
        train_defence(build_defence("eguard", graph, hidden=8, seed=1), graph, epochs=6, seed=1).model
    )
    return found


def _bytes(model: torch.nn.Module) -> str:
    seen = hashlib.sha256()
    for value in model.state_dict().values():
        seen.update(value.detach().cpu().contiguous().numpy().tobytes())
    return seen.hexdigest()
