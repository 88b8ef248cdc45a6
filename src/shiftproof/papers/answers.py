"""For each system what a reader who wants the answer should use it for, and what in its paper does not stand.

The verdicts themselves are those of the claims, so that they cannot be older than the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shiftproof.papers.gmt.claims import GSAT_UNDER_THE_SECOND_STAGE
from shiftproof.papers.measured import Paper
from shiftproof.papers.pair.claims import PAIR_BEATS_THE_SUM
from shiftproof.registry import recipes
from shiftproof.sweeps.claims import Finding
from shiftproof.sweeps.table import STALE


@dataclass(frozen=True)
class Fault:
    """What is the paper's fault and not of its measurement here; `claim` is the one whose figures are the evidence."""

    text: str
    claim: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a system is good for by what was measured, and the faults of its paper."""

    use: str
    faults: tuple[Fault, ...] = ()


ANSWERS = {
    "CIGA": Answer(
        "Graphs whose classes share a part that a weaker shortcut hides, without environment labels: CIGAv1 is ahead "
        "of ERM on Spurious-Motif and under shifts of size. Not to be shown that part: the edges it names are little "
        "better than chance (edge AUC). Not where the shortcut is stronger than the cause (GALA); on molecules it is "
        "not told apart from ERM.",
        (
            Fault(
                "The released scripts cannot have made the printed table by the printed method: the contrast gathers "
                "rows of other nodes, a detached head decides the hinge, and its V-REx is ERM (docs/papers/ciga.md#d9, "
                "#d10, #d22). compat=reference is that code; its rows stand beside ours."
            ),
        ),
    ),
    "GALA": Answer(
        "Graphs whose shortcut is stronger than the cause, if an assistant can be made that follows the shortcut: far "
        "ahead of everything on two-piece graphs. Not to be shown the cause (its edge AUC is at chance there), and "
        "not for molecules, where it is not ahead of ERM or CIGA. On CMNIST-75sp its released settings reach 0.38 of "
        "the printed 0.69; other settings, found by a search that its rivals did not get, reach 0.68 with one seed.",
    ),
    "GMT": Answer(
        "Explanations that are part of the model: GMT-lin's edges are better than GSAT's, and both are far better than "
        "those of explainers afterwards. For predictions train a classifier anew on GSAT's subgraphs (gsat-min0), "
        "which does better than GMT-sam.",
        (
            Fault(
                "The gain in prediction is the second stage's, in which GSAT has no part in the paper. GSAT's "
                "extractor under the same stage:",
                GSAT_UNDER_THE_SECOND_STAGE,
            ),
        ),
    ),
    "HAO": Answer(
        "Auditing a defence: one that was attacked without it has not been tested. `shiftproof audit` does it. On your "
        "own features try more than one weight: which one hides and still harms depends on them.",
        (
            Fault(
                "AGIA as printed is the released code's, whose edges follow one gradient, not the text's "
                "(docs/papers/hao.md#why-agia-can-be-weaker-than-pgd)."
            ),
            Fault(
                "The table of adversarial training has GNNGuard at 84.70 under PGD with HAO, and the first table the "
                "best homophily defender at 52.60: not of the same attack (docs/papers/hao.md#table-adversarial)."
            ),
        ),
    ),
    "PAIR": Answer(
        "Several penalties at once without a search of their weights, where one run must do. Where weights can be "
        "searched, V-REx or the plain sum is as good on ColoredMNIST.",
        (
            Fault(
                "IRMX, the sum that PAIR is held against, is stronger than printed, which takes the advantage away:",
                PAIR_BEATS_THE_SUM,
            ),
        ),
    ),
    "FeAT": Answer(
        "Features for heads that are trained by IRMv1 or V-REx, where the training data show the shortcut turn around "
        "(ColoredMNIST). On PACS and on graphs they are not told apart from ERM's features, and look worse on PACS.",
    ),
}


def evidence(paper: Paper, fault: Fault) -> str:
    """The figures of the claim that a fault names."""
    found = next((finding for _, text, finding in paper.claims if text == fault.claim), None)
    return "" if found is None else f" {found.detail.split('; ')[0]}."


def by_verdict(paper: Paper) -> dict[str, list[tuple[str, str, Finding]]]:
    """The claims of a paper by their verdict."""
    found: dict[str, list[tuple[str, str, Finding]]] = {}
    for one in paper.claims:
        found.setdefault(one[2].verdict, []).append(one)
    return found


def never_measured(papers: Sequence[Paper]) -> list[str]:
    """The names of recipes of which no table was measured, in whole or in part."""
    known = {table.name for paper in papers for table in paper.tables}
    return [entry.name for entry in recipes if not any(name == entry.name or _part(name, entry.name) for name in known)]


def partly_stale(papers: Sequence[Paper]) -> dict[str, tuple[int, int]]:
    """By table, how many of its rows are older than the code, and how many there are."""
    found = {}
    for table in (table for paper in papers for table in paper.tables):
        rows = table.table["rows"]
        if stale := sum(bool(row.get(STALE)) for row in rows):
            found[table.name] = stale, len(rows)
    return found


def _part(name: str, recipe: str) -> bool:
    return name.startswith((f"{recipe}-only-", f"{recipe}+"))
