"""Paired tests, ranks and verdicts on rows that are made up."""

import numpy as np
import pytest
from scipy import stats

from shiftproof.errors import ShiftproofError
from shiftproof.papers.command import measured_table
from shiftproof.papers.hao.published import printed_column
from shiftproof.papers.measured import by_paper, held_against, read_results
from shiftproof.registry import recipes
from shiftproof.report import write_leaderboard
from shiftproof.runtime.files import write_json
from shiftproof.statistics.intervals import interval_of_average, interval_of_difference
from shiftproof.statistics.significance import holm, paired, pairs_of
from shiftproof.sweeps.claims import Claim, Pick, all_below, best, better, every, reaches
from shiftproof.sweeps.comparison import deviation, is_within, judge, printed
from shiftproof.sweeps.published import published
from shiftproof.sweeps.table import summarise


def row(data, method, values, *, published=None, metric="accuracy", seeds=None, **variant):
    named = {} if seeds is None else {"of_seeds": seeds}
    return {
        "dataset": data,
        "method": method,
        "variant": variant,
        "metric": metric,
        "split": "test",
        "selection": "val",
        **summarise(values),
        **named,
        "published": published,
    }


TABLE = [
    row("a", "erm", [0.5, 0.6, 0.7]),
    row("b", "erm", [0.4, 0.4, 0.4]),
    row("a", "mine", [0.6, 0.75, 0.8], published={"mean": 0.7, "std": 0.05}),
    row("b", "mine", [0.5, 0.45, 0.4], published={"mean": 0.6, "std": 0.05}),
    row("a", "other", [0.55, 0.6, 0.65]),
]
MINE, ERM = Pick("mine"), Pick("erm")


def verdict(judge) -> str:
    return judge(TABLE).verdict


def test_pairs_are_the_seeds_that_both_have():
    ours, theirs = row("a", "x", [1.0, 2.0, 3.0], seeds=[1, 2, 3]), row("a", "y", [30.0, None, 10.0], seeds=[3, 2, 1])
    assert pairs_of(ours, theirs) == [(1.0, 10.0), (3.0, 30.0)]
    assert pairs_of(row("a", "x", [1.0, 2.0]), row("a", "y", [3.0, 4.0])) == [(1.0, 3.0), (2.0, 4.0)]
    assert pairs_of(row("a", "x", [1.0, 2.0]), row("a", "y", [3.0])) == []


def test_few_pairs_are_judged_by_t_and_more_by_wilcoxon():
    few = [(0.5, 0.4), (0.7, 0.5), (0.6, 0.3)]
    found = paired(few)
    assert found is not None
    assert (found.test, found.pairs, found.difference) == ("t", 3, pytest.approx(0.2))
    assert found.p == pytest.approx(float(stats.ttest_rel(*zip(*few, strict=True)).pvalue))
    many = [(0.5 + 0.01 * n, 0.4 + 0.001 * n * n) for n in range(9)]
    found = paired(many)
    assert found is not None
    assert found.test == "Wilcoxon"
    assert found.p == pytest.approx(float(stats.wilcoxon(*zip(*many, strict=True)).pvalue))


def test_equal_steps_are_ties_however_floats_round_them():
    steps = [(0.1 * n, 0.1 * (n - 1)) for n in range(1, 8)] + [(0.7, 0.8)]
    assert len({abs(a - b) for a, b in steps}) > 1  # 0.1 in several roundings
    found = paired(steps)
    assert found is not None
    assert found.p == pytest.approx(float(stats.wilcoxon([1.0] * 7 + [-1.0]).pvalue))


def test_pairs_without_spread_have_no_p_value_unless_they_are_equal():
    assert paired([]) is None
    constant, equal = paired([(0.5, 0.4)] * 3), paired([(0.5, 0.5)] * 3)
    assert constant is not None
    assert (constant.p, constant.difference) == (None, pytest.approx(0.1))
    assert equal is not None
    assert equal.p == 1.0


def test_holms_correction_against_a_hand_computed_example():
    assert holm([0.01, 0.04, 0.03, None]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06), None]
    assert holm([0.6, 0.5]) == [1.0, 1.0]


def test_a_claim_holds_on_average_though_not_everywhere():
    assert verdict(better(MINE, ERM)) == "holds"
    assert verdict(better(MINE, ERM, by=0.2)) == "does not hold"
    assert verdict(better(MINE, ERM, by=0.08)) == "undecided"
    assert verdict(better(MINE, ERM, everywhere=True)) == "undecided"  # on b it is 0.05, and -0.07 to 0.17 by chance
    assert verdict(better(MINE, ERM, everywhere=True, by=0.2)) == "does not hold"
    assert verdict(better(ERM, MINE)) == "does not hold"
    assert "0.583 against 0.500 (+0.083 [" in better(MINE, ERM)(TABLE).detail


def test_the_interval_of_a_difference_is_students_over_data_sets_of_their_own_spread():
    gaps = [[0.1, 0.15, 0.1], [0.1, 0.05, 0.0]]
    found = interval_of_average(gaps)
    se = np.sqrt(sum(np.var(gap, ddof=1) / 3 for gap in gaps)) / 2
    parts = [np.var(gap, ddof=1) / 3 for gap in gaps]
    freedom = sum(parts) ** 2 / sum(part**2 / 2 for part in parts)
    assert (found.mean, found.seeds) == (pytest.approx(0.25 / 3), 3)
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, freedom) * se)
    one = interval_of_average([[0.1, 0.3, 0.2, 0.4]])
    assert (one.low, one.high) == pytest.approx(stats.t.interval(0.95, 3, 0.25, stats.sem([0.1, 0.3, 0.2, 0.4])))
    apart = interval_of_difference([([0.5, 0.6, 0.8], [0.1, 0.3])])
    welch = stats.ttest_ind([0.5, 0.6, 0.8], [0.1, 0.3], equal_var=False).confidence_interval(0.95)
    assert (apart.low, apart.high) == pytest.approx((welch.low, welch.high))
    assert interval_of_average([[0.5, 0.5, 0.5]]).low == 0.5
    assert not interval_of_average([[0.5], [0.4, 0.3]]).enough


def test_of_true_claims_few_are_said_not_to_hold():
    """Where the means of two methods are equal, a verdict in either direction is wrong, and comes in one of twenty."""
    draw = np.random.default_rng(0)
    wrong = 0
    for _ in range(1000):
        rows = [
            row(d, m, draw.normal(0.5, s, 5).tolist()) for d, s in (("a", 0.05), ("b", 0.2)) for m in ("mine", "erm")
        ]
        wrong += better(MINE, ERM)(rows).verdict != "undecided"
    assert wrong < 1000 * 0.05 + 4 * np.sqrt(1000 * 0.05 * 0.95)


def test_few_seeds_decide_nothing_however_far_apart_they_are():
    rows = [row("a", "erm", [0.1, 0.1]), row("a", "mine", [0.9, 0.9], published={"mean": 0.5, "std": None})]
    for judged in (better(MINE, ERM), best(MINE, (ERM,)), reaches(MINE), all_below((ERM,), 0.5, ["a"])):
        assert judged(rows).verdict == "undecided"
        assert judged(rows).detail.endswith("; 2 seeds, and a verdict takes 3")
        assert judged(rows).by_means


def test_a_printed_figure_within_the_interval_of_the_measured_average_is_undecided():
    """CIGAv2: 64.2 +- 2.2 (the deviation of the average) of six data sets against 67.92 in print, five seeds."""
    spread = 0.022 * np.sqrt(5 * 6)
    values = (0.642 + spread * np.array([-1, -0.5, 0, 0.5, 1]) / np.std([-1, -0.5, 0, 0.5, 1], ddof=1)).tolist()
    rows = [row(data, "mine", values, published={"mean": 0.6792, "std": 0.05}) for data in "abcdef"]
    assert reaches(MINE)(rows).verdict == "undecided"
    close = [
        row(data, "mine", np.linspace(0.64, 0.644, 5).tolist(), published={"mean": 0.6792, "std": 0.05})
        for data in "abcdef"
    ]
    assert reaches(MINE)(close).verdict == "does not hold"


def test_what_is_not_alike_is_not_compared():
    searched = [row("a", "erm", [0.1, 0.1, 0.1]), row("a", "mine", [0.9, 0.9, 0.9])]
    for change in ({"selection": "test"}, {"searched": 10}, {"variant": {"protocol": "gala"}}):
        rows = [searched[0], {**searched[1], **change}]
        mine = Pick("mine", change.get("variant", {}))
        found = better(mine, ERM)(rows)
        assert found.verdict == "not tested"
        assert "are not alike" in found.detail
        assert best(mine, (ERM,))(rows).verdict == "not tested"


def test_what_is_not_measured_is_not_tested():
    finding = better(MINE, Pick("other"))(TABLE)
    assert finding.verdict == "not tested"
    assert finding.detail.startswith("mine and other are not both measured on b; elsewhere 0.717 against 0.600 (+0.117")
    assert verdict(better(MINE, Pick("other"), ["a"], by=-0.2)) == "holds"
    assert verdict(better(Pick("absent"), Pick("missing"))) == "not tested"
    assert verdict(every(better(MINE, ERM), better(MINE, Pick("other")))) == "not tested"
    assert verdict(every(better(ERM, MINE), better(MINE, Pick("other")))) == "does not hold"  # whatever is measured yet
    assert verdict(every(better(MINE, ERM), better(MINE, ERM, by=0.08))) == "undecided"


def test_what_is_refuted_on_one_data_set_needs_no_other():
    others, mine = Pick("other"), Pick("mine")
    assert verdict(better(others, mine, by=0.2, everywhere=True)) == "does not hold"  # on a; on b it is not measured
    assert verdict(better(mine, others, everywhere=True)) == "not tested"
    assert verdict(all_below([mine, others], 0.4, ["a", "b"])) == "does not hold"
    assert verdict(all_below([mine, others], 0.95, ["a", "b"])) == "not tested"


def test_the_best_of_all_names_who_was_left_out():
    finding = best(MINE, (ERM, Pick("other")))(TABLE)
    assert finding.verdict == "holds"
    assert finding.detail.endswith("without other")
    assert verdict(best(ERM, (MINE,))) == "does not hold"
    assert verdict(best(MINE, (Pick("absent"),))) == "not tested"


def test_printed_averages_and_limits():
    assert verdict(reaches(MINE)) == "undecided"
    assert reaches(MINE)(TABLE).by_means is False
    assert verdict(reaches(MINE, ["a"])) == "undecided"
    assert verdict(reaches(ERM)) == "not tested"
    assert verdict(all_below((ERM,), 0.9, ["a", "b"])) == "holds"
    assert verdict(all_below((ERM,), 0.65, ["a", "b"])) == "undecided"
    assert verdict(all_below((ERM,), 0.39, ["a", "b"])) == "does not hold"
    assert verdict(all_below((ERM, Pick("other")), 0.95, ["a", "b"])) == "not tested"


def test_a_pick_takes_the_exact_variant_or_one_that_a_function_accepts():
    rows = [row("a", "pgd", [0.5], hao=0.0), row("a", "pgd", [0.3], hao=2.0)]
    assert Pick("pgd").of(rows) == {}
    assert Pick("pgd", {"hao": 2.0}).of(rows)["a"]["mean"] == 0.3
    assert Pick("pgd", {"hao": lambda weight: weight == 0}).of(rows)["a"]["mean"] == 0.5


def test_ranks_tests_and_counts_of_a_table():
    found = judge([*TABLE, row("a", "oracle", [0.99] * 3)], ours=("mine",), claims=(Claim("x", better(MINE, ERM)),))
    (panel,) = found.panels
    assert panel.ranks == {"mine": 1.0, "erm": 2.0}  # 'other' lacks a data set, and the oracle is not ranked
    asked = {(test.data, test.label, test.against) for test in panel.tests}
    assert asked == {("a", "mine", "erm"), ("b", "mine", "erm")}  # ERM is the best baseline on both
    assert all(test.corrected >= test.p for test in panel.tests if test.p is not None)
    assert (found.measured, found.with_printed, found.within) == (6, 2, 1)
    assert found.claims[0][1].verdict == "holds"


def test_a_rival_that_is_ahead_where_it_is_measured_leaves_open_who_is_best():
    behind = best(MINE, (ERM, Pick("other")))(TABLE)
    assert behind.verdict == "holds"
    assert behind.detail.startswith("0.583, next erm 0.500, apart by +0.")
    assert behind.detail.endswith(", mean of 2 data sets; without other")
    ahead = best(MINE, (ERM, Pick("rival")))([*TABLE, row("a", "rival", [0.9])])
    assert ahead.verdict == "not tested"
    assert ahead.detail.endswith("; without rival; rival is ahead on average over the 1 of 2 that it has")
    assert best(ERM, (MINE, Pick("rival")))([*TABLE, row("a", "rival", [0.9] * 3)]).verdict == "does not hold"


def test_data_sets_that_the_table_has_and_neither_side_does_leave_an_average_open():
    rows = [*TABLE, row("c", "other", [0.5])]
    found = better(MINE, ERM)(rows)
    assert found.verdict == "not tested"
    assert found.detail.startswith("mine and erm are not both measured on c; elsewhere 0.583 against 0.500")
    found = best(MINE, (ERM, Pick("other")))(rows)
    assert found.verdict == "not tested"
    assert found.detail.endswith(", mean of 2 data sets; without other; mine not measured on c")
    assert best(Pick("other"), (MINE, ERM))(rows).verdict == "not tested"
    elsewhere = row("c", "other", [0.5], protocol="another")
    assert better(MINE, ERM)([*TABLE, elsewhere]).verdict == "holds"


def test_the_ranked_part_is_the_largest_with_what_the_table_is_about():
    rows = [row(data, name, [n]) for data in "bcd" for n, name in enumerate(("erm", "x", "y", "z"))]
    rows = [*(row("a", name, [n]) for n, name in enumerate("mnopq")), *rows]
    (panel,) = judge(rows).panels
    assert (set(panel.ranks), panel.ranked) == ({"erm", "x", "y", "z"}, ("b", "c", "d"))
    assert panel.ranked_part == "over 3 of 4 data sets, without m, n, o, p, q"
    few = [row(data, name, [n]) for data in "bc" for n, name in enumerate(("erm", "mine"))]
    (panel,) = judge([*rows, *few], ours=("mine",)).panels
    assert (set(panel.ranks), panel.ranked) == ({"erm", "x", "y", "z", "mine"}, ("b", "c"))
    assert judge([row("a", "x", [1]), row("b", "y", [1])], ours=("x",)).panels[0].ranks == {}


def test_ranks_of_a_table_in_the_making_are_over_the_data_sets_that_most_methods_have():
    methods = ("erm", "x", "y", "z")
    rows = [row(data, name, [0.1 * n]) for data in "ab" for n, name in enumerate(methods)]
    (whole,) = judge(rows).panels
    assert (whole.ranked, whole.ranked_part) == (("a", "b"), "")
    (panel,) = judge([row("new", "erm", [0.5]), *rows, row("half", "erm", [0.5]), row("half", "z", [0.4])]).panels
    assert panel.ranks == {"z": 1.0, "y": 2.0, "x": 3.0, "erm": 4.0}
    assert (panel.ranked, panel.ranked_part) == (("a", "b"), "over 2 of 4 data sets")


def test_the_best_baseline_is_tested_beside_erm():
    rows = [*TABLE, row("a", "strong", [0.7, 0.7, 0.75])]
    tests = [test for panel in judge(rows, ours=("mine",)).panels for test in panel.tests if test.data == "a"]
    assert [(test.label, test.against) for test in tests] == [("mine", "erm"), ("mine", "strong")]


def test_a_variant_of_ours_is_not_its_baseline():
    rows = [*TABLE, row("a", "mine", [0.9, 0.8, 0.99], compat="reference"), row("a", "strong", [0.7, 0.7, 0.75])]
    tests = [test for panel in judge(rows, ours=("mine",)).panels for test in panel.tests if test.data == "a"]
    assert [(test.label, test.against) for test in tests] == [("mine", "erm"), ("mine", "strong")]
    rows = [row("a", "x", [0.5, 0.6], how="plain"), row("a", "x", [0.4, 0.6], how="ours"), row("a", "erm", [0.1, 0.3])]
    rows.append(row("a", "x", [0.9, 0.8], clip=0.1, how="ours"))
    tests = judge(rows, ours=("x how=ours",)).panels[0].tests
    assert [(test.label, test.against) for test in tests] == [("x how=ours", "erm"), ("x how=ours", "x how=plain")]


def test_a_table_that_ones_own_method_joined_is_about_it_and_the_claims_stay_the_recipes():
    names = ("erm", "dir", "irm", "ciga-v1", "ciga-v2")
    rows = [row("nci1", name, [0.2 + 0.01 * n, 0.21]) for n, name in enumerate(names)]
    claims = held_against("ciga-table3", rows).claims
    rows += [row("mine-data", name, [0.9 - 0.1 * n, 0.9]) for n, name in enumerate(names)]
    rows += [row(data, "mine", [0.5, 0.6]) for data in ("nci1", "mine-data")]
    for name in ("ciga-table3+mine+mine-data", "ciga-table3+mine+mine-data-search"):
        found = held_against(name, rows)
        assert found.claims == claims
        asked = [(test.data, test.label, test.against) for panel in found.panels for test in panel.tests]
        assert asked == [("nci1", "mine", "erm"), ("nci1", "mine", "ciga-v2"), ("mine-data", "mine", "erm")]
    (panel,) = held_against("ciga-table3+mine-data", [r for r in rows if r["method"] != "mine"]).panels
    assert {test.label for test in panel.tests} == {"ciga-v1", "ciga-v2"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda one: [], "is not an object"),
        (lambda one: {k: v for k, v in one.items() if k != "variant"}, "has no 'variant'"),
        (lambda one: one | {"variant": "protocol"}, "needs an object as its 'variant'"),
        (lambda one: one | {"mean": "0.3"}, "needs numbers"),
        (lambda one: one | {"of_seeds": [1, 2]}, "has not as many 'of_seeds' as 'values'"),
    ],
)
def test_a_damaged_table_is_one_sentence_that_names_file_and_row(tmp_path, change, sentence):
    rows = [row("nci1", "erm", [0.2]), change(row("nci1", "ciga-v1", [0.3]))]
    write_json(tmp_path / "ciga-table3.json", {"command": "shiftproof bench ciga-table3", "rows": rows})
    for reading in (lambda: read_results(tmp_path), lambda: measured_table("ciga-table3", tmp_path)):
        with pytest.raises(ShiftproofError, match=f"ciga-table3.json is not a table .* wrote: row 2 {sentence}"):
            reading()


def test_seconds_rank_the_fastest_first():
    rows = [
        row("a", "erm", [1.0], metric="training_epoch_seconds"),
        row("a", "x", [3.0], metric="training_epoch_seconds"),
    ]
    assert judge(rows).panels[0].ranks == {"erm": 1.0, "x": 2.0}


def test_within_the_printed_deviation():
    assert is_within(row("a", "x", [0.74], published={"mean": 0.7, "std": 0.05})) is True
    assert is_within(row("a", "x", [0.76], published={"mean": 0.7, "std": 0.05})) is False
    assert is_within(row("a", "x", [0.76], published={"mean": 0.7, "std": None})) is None
    assert is_within(row("a", "x", [0.76])) is None


def test_printed_figures_are_of_test_splits_and_stand_beside_no_other():
    seen = row("a", "x", [0.74], published={"mean": 0.7, "std": 0.05}) | {"split": "val"}
    assert printed(seen) is None
    assert deviation(seen) is None
    assert is_within(seen) is None
    assert judge([seen]).with_printed == 0


def test_rows_of_a_data_set_stand_together_whatever_order_the_runs_finished_in():
    mixed = [row("b", "erm", [0.1]), row("a", "erm", [0.2]), row("b", "mine", [0.3]), row("a", "mine", [0.4])]
    (panel,) = judge(mixed).panels
    assert [(r["dataset"], r["method"]) for r in panel.rows] == [
        ("b", "erm"), ("b", "mine"), ("a", "erm"), ("a", "mine"),
    ]  # fmt: skip


@pytest.mark.parametrize("entry", [e for e in recipes if e.make().claims], ids=lambda e: e.name)
def test_every_claim_of_a_recipe_is_untested_without_rows_and_tested_on_its_published_figures(entry):
    """Rows that equal the printed figures must decide claims: a misspelt method would leave them untested."""
    recipe = entry.make()
    texts = [claim.text for claim in recipe.claims]
    assert len(set(texts)) == len(texts)
    assert all(finding.verdict == "not tested" for _, finding in judge([], claims=recipe.claims).claims)
    if recipe.run is not None or entry.name.startswith("feat-"):
        return  # their rows are not their cells
    rows = [
        row(cell.data, cell.method, [0.01 * number, 0.01 * number + 0.001], published={"mean": 0.5, "std": 0.1},
            **dict(cell.variant))
        for number, cell in enumerate(recipe.cells)
    ]  # fmt: skip
    verdicts = {text: finding.verdict for text, finding in judge(rows, claims=recipe.claims).claims}
    assert "not tested" not in verdicts.values(), verdicts


@pytest.mark.parametrize("entry", [e for e in recipes if e.make().claims], ids=lambda e: e.name)
def test_no_claim_is_refuted_by_the_papers_own_figures(entry):
    """Printed figures as if they were measured: a claim that they refute is not the paper's claim of these data."""
    recipe = entry.make()
    rows = [*_as_printed(entry.name, recipe)]
    found = judge(rows, claims=recipe.claims).claims
    refuted = [(text, finding.detail) for text, finding in found if finding.by_means is False]
    assert not refuted
    if entry.name.startswith("hao-"):
        assert all(finding.by_means for _, finding in found), found


def _as_printed(name, recipe):
    if name.startswith("hao-"):
        kind = "chosen" if name.endswith("chosen") else "published"
        sets = {"hao-computers-targeted": ("computers-targeted",)}.get(name, recipe.data)
        for data in sets:
            for method in ("clean", "pgd", "metagia", "agia", "tdgia", "atdgia"):
                for hao in (0.0, kind):
                    for column in ("homo", "robust", "combo", "average"):
                        figure = printed_column(data, method, bool(hao), column)
                        if figure is not None:
                            yield row(data, method, [figure["mean"]], published=figure, hao=hao, column=column)
            mlp = printed_column(data, "clean", False, "mlp")
            yield row(data, "mlp", [mlp["mean"]], published=mlp, hao=0.0, column="mlp")
        return
    for cell in recipe.cells:
        for metric in ("accuracy", "roc_auc", "mcc", "edge_auc"):
            figure = published(cell.data, cell.method, metric, cell.variant.get("protocol"))
            if figure is not None and set(cell.variant) <= {"protocol", "balance", "parameters"}:
                yield row(cell.data, cell.method, [figure["mean"]], published=figure, metric=metric, **cell.variant)


def test_claims_of_attacks_and_of_heads_read_the_rows_of_their_tables():
    attacks = [
        row("cora", name, [value, value, value], hao=weight, column=column)
        for column in ("homo", "robust", "combo", "average")
        for name in ("pgd", "metagia", "agia", "tdgia", "atdgia", "clean")
        for weight, value in ((0.0, 0.83), ("published", 0.5))
        if name != "clean" or weight == 0.0
    ] + [row("cora", "mlp", [0.6, 0.6, 0.6], hao=0.0, column="mlp")]
    assert {f.verdict for _, f in held_against("hao-cora", attacks).claims} == {"holds"}
    heads = [
        row(
            f"{data}:validation=5000",
            "feat-heads",
            [value] * 3,
            features=features,
            objective=objective,
            selection="val",
        )
        for data in ("cmnist", "cmnist-m")
        for features, value in (("ifeat", 0.7), ("erm", 0.6), ("bonsai", 0.65))
        for objective in ("erm", "irm", "vrex", "irmx", "fishr")
    ]
    verdicts = [f.verdict for _, f in held_against("feat-cmnist", heads).claims]
    assert verdicts == ["holds", "holds", "holds"]


def test_papers_count_claims_of_tables_that_are_not_there(tmp_path):
    rows = [row("nci1", "ciga-v1", [0.3] * 3), row("nci1", "erm", [0.2] * 3)]
    write_json(tmp_path / "ciga-table3.json", {"command": "shiftproof bench ciga-table3", "rows": rows})
    papers = {paper.title: paper for paper in by_paper(read_results(tmp_path))}
    assert papers["CIGA"].counts["holds"] >= 1
    assert papers["GALA"].counts == {
        "measured": 0, "printed": 0, "within": 0, "holds": 0, "does not hold": 0, "undecided": 0,
        "not tested": len(papers["GALA"].claims),
    }  # fmt: skip
    (tmp_path / "broken.json").write_text("[]")
    with pytest.raises(ShiftproofError, match="is not a table that `shiftproof bench` wrote"):
        read_results(tmp_path)


def test_a_cell_of_several_tables_counts_once_as_in_the_whole_table(tmp_path):
    near, far = ({"published": {"mean": mean, "std": 0.05}} for mean in (0.3, 0.9))
    whole = [row("nci1", "ciga-v1", [0.3], **near), row("nci1", "erm", [0.2])]
    part = [row("nci1", "ciga-v1", [0.3], **far), row("dd", "ciga-v1", [0.3], **far)]
    for name, rows in (("ciga-table3", whole), ("ciga-table3-only-ciga-v1", part)):
        write_json(tmp_path / f"{name}.json", {"command": "shiftproof bench ciga-table3", "rows": rows})
    tables = read_results(tmp_path)
    assert [table.name for table in tables] == ["ciga-table3", "ciga-table3-only-ciga-v1"]
    counts = next(paper.counts for paper in by_paper(tables) if paper.title == "CIGA")
    assert [counts[key] for key in ("measured", "printed", "within")] == [3, 2, 1]
    page = write_leaderboard(tmp_path, tmp_path / "page.html").read_text()
    assert '<td class="number">3</td><td class="number">1 of 2</td>' in page
    assert page.index("<h3>ciga-table3</h3>") < page.index("<h3>ciga-table3-only-ciga-v1</h3>")
