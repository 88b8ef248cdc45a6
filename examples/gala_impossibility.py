"""Where learning without environment labels must fail, by exact arithmetic on two-piece environments.

    python examples/gala_impossibility.py

An environment (α, β) is a table of class, cause and shortcut: the cause disagrees with the class at rate α, the
shortcut at rate β. Nothing is trained.
"""

from __future__ import annotations

from shiftproof.data.generated.impossibility import (
    best_of_both,
    conditional_entropy,
    environment,
    generated,
    indistinguishable,
    is_consistent,
    mixture,
    rates,
    varies_enough,
)


def shown(pair: tuple[float, float]) -> str:
    return f"({pair[0]:.2f}, {pair[1]:.2f})"


def main() -> None:
    train = [environment(0.25, 0.1), environment(0.25, 0.2)]
    seen = mixture(train)
    print(f"generation: environments (0.25, 0.10) and (0.25, 0.20) are seen as {shown(rates(seen))}")
    print(f"  the estimate is right     -> {shown(rates(generated(seen)))}: the shortcut is erased")
    print(f"  the estimate is reversed  -> {shown(rates(generated(seen, reversed=True)))}: the cause is erased")

    ours, theirs = indistinguishable((0.1, 0.3), (0.1, 0.3))
    gap = float((mixture(ours) - mixture(theirs)).abs().max())
    turned = environment(0.2, 0.9), environment(0.9, 0.2)
    print(f"inference: two worlds with different causes have mixtures that differ by {gap:.0e}")
    print(
        f"  when the shortcut turns, who follows the cause of one world is right in {1 - rates(turned[0])[0]:.2f} of it"
    )
    print(f"  and no rule reaches more than {best_of_both(*turned):.2f} in both")

    print("assumptions: does the shortcut vary, is one piece the stronger everywhere, and which?")
    for pairs in (
        [(0.2, 0.1), (0.2, 0.1)],
        [(0.2, 0.1), (0.2, 0.3)],
        [(0.2, 0.3), (0.2, 0.4)],
        [(0.2, 0.05), (0.2, 0.1)],
    ):
        laws = [environment(*pair) for pair in pairs]
        cause, shortcut = (conditional_entropy(mixture(laws), piece) for piece in ("cause", "shortcut"))
        words = "the shortcut" if shortcut < cause else "the cause" if cause < shortcut else "neither"
        stronger = words if is_consistent(laws) else "it depends"
        print(f"  {' '.join(map(shown, pairs)):28} varies: {varies_enough(laws)!s:6} stronger: {stronger}")


if __name__ == "__main__":
    main()
