"""The page of a folder of runs."""

import json
import random
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import shiftproof as sp
from shiftproof.errors import ShiftproofError
from shiftproof.report import write_report
from shiftproof.report.records import Record, find_runs
from shiftproof.report.rows import Row, make_rows
from shiftproof.report.sentences import conclusion

DATA = "two-bit:per_env=200"
NAMED = "two-bit:alpha=0.1,betas=(0.11, 0.4),per_env=200"  # as a run records it, less the seed
QUICK = {"epochs": 3, "batch_size": None, "widths": (4,)}
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each on one draw of the data, and a third that let the test split choose."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        sp.fit("erm", DATA, seed=seed, out=folder / "erm" / str(seed), track=("test",), **QUICK)
        sp.fit("vrex", DATA, seed=seed, out=folder / "deep" / "vrex" / str(seed), penalty=10.0, **QUICK)
        sp.fit("irm", DATA, seed=seed, out=folder / "irm" / str(seed), selection="oracle", **QUICK)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained runs that a test may damage."""
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def edit(path: Path, **changes: object) -> None:
    """Another page of settings, in a run of an earlier release, which did not note what its files hold."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    metrics = path.with_name("metrics.json")
    metrics.write_text(json.dumps({k: v for k, v in json.loads(metrics.read_text()).items() if k != "digests"}))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not the innermost open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        return None

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_shows_every_method_split_and_environment(trained: Path, tmp_path: Path) -> None:
    page = text_of(write_report(trained, tmp_path / "page.html"))
    for name in ("erm", "vrex", "irm"):
        assert f'<th scope="row">{name}</th>' in page
    for split in ("train", "val", "test"):
        assert f'<th class="number">{split}</th>' in page
    assert "6 finished runs, 3 rows" in page
    assert page.count("<svg") == 3
    assert "Test environments" in page
    assert "400 samples" not in page
    assert "200 samples" in page


def test_the_figures_of_the_table_are_those_of_the_runs(trained: Path, tmp_path: Path) -> None:
    from statistics import fmean, stdev

    page = text_of(write_report(trained, tmp_path / "page.html"))
    summaries = [json.loads((trained / "erm" / seed / "metrics.json").read_text()) for seed in "01"]
    values = [summary["metrics"]["test"]["worst_group"] for summary in summaries]
    assert f"{fmean(values):.3f} ± {stdev(values):.3f}" in page


def test_every_tag_is_closed(trained: Path, tmp_path: Path) -> None:
    parser = Balanced()
    parser.feed(text_of(write_report(trained, tmp_path / "page.html")))
    assert parser.open == []


def test_the_same_runs_give_the_same_bytes(trained: Path, tmp_path: Path) -> None:
    first = write_report(trained, tmp_path / "a.html").read_bytes()
    assert write_report(trained, tmp_path / "b.html").read_bytes() == first


def test_nothing_is_loaded_and_the_only_script_is_the_page_s_own(trained: Path, tmp_path: Path) -> None:
    page = text_of(write_report(trained, tmp_path / "page.html"))
    assert "http:" not in page
    assert "https:" not in page
    assert page.count("<script") == page.count("<script>\n") == 1
    assert "default-src 'none'" in page
    assert set(re.findall(r'(?:href|src)="([^"#][^"]*)"', page)) == {"data:,"}
    assert "url(" not in re.sub(r"url\(#", "", page)
    assert "@import" not in page


def test_text_from_outside_is_escaped(runs: Path, tmp_path: Path) -> None:
    nasty = "<script>alert('x')</script> & \"so\""
    edit(runs / "erm" / "0" / "config.json", provenance=nasty, method=nasty, own_method=True)
    page = text_of(write_report(runs, tmp_path / "page.html", title=nasty, note=nasty))
    assert page.count("<script") == 1
    assert page.count("&lt;script&gt;") >= 4
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_oracle_selection_is_called_that(trained: Path, tmp_path: Path) -> None:
    page = text_of(write_report(trained, tmp_path / "page.html"))
    assert "Oracle selection." in page
    assert "these test scores are too good: irm." in page
    assert page.count("best on TEST (oracle)") == 1
    shutil.copytree(trained / "erm", tmp_path / "honest" / "erm")
    honest = text_of(write_report(tmp_path / "honest", tmp_path / "honest.html"))
    assert "Oracle" not in honest
    assert "(oracle)" not in honest


def test_stand_in_data_are_called_that(runs: Path, tmp_path: Path) -> None:
    assert "Stand-in data." not in text_of(write_report(runs, tmp_path / "page.html"))
    for config in runs.rglob("config.json"):
        edit(config, provenance="small digits; a stand-in for large ones")
    assert "Stand-in data." in text_of(write_report(runs, tmp_path / "page.html"))


def test_damaged_and_unfinished_runs_are_listed_and_left_out(runs: Path, tmp_path: Path) -> None:
    (runs / "erm" / "0" / "metrics.json").write_text('{"metrics": ')
    (runs / "erm" / "1" / "config.json").write_text("[]")
    (runs / "irm" / "0" / "metrics.json").unlink()
    (runs / "irm" / "1" / "history.json").unlink()
    page = text_of(write_report(runs, tmp_path / "page.html"))
    assert "4 folders could not be used" in page
    for place in ("erm/0", "erm/1", "irm/0", "irm/1"):
        assert f"<code>{place}</code>" in page
    assert "unfinished" in page
    assert str(tmp_path) not in page
    assert "2 finished runs, 1 row;" in page


def test_a_run_that_was_edited_is_left_out_and_said(runs: Path, tmp_path: Path) -> None:
    config = runs / "erm" / "0" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "seed": 7}))
    page = text_of(write_report(runs, tmp_path / "page.html"))
    assert "<code>erm/0</code>" in page
    assert "is not the file that this run was saved with" in page


@pytest.mark.parametrize(
    "summary",
    [
        {"metrics": [], "selection": "val", "selected_epoch": 0},
        {"metrics": {"test": 3}, "selection": "val", "selected_epoch": 0},
        {"metrics": {"test": {"worst_group": "high"}}, "selection": "val", "selected_epoch": 0},
        {"metrics": {"test": {"worst_group": 0.5}}},
        7,
    ],
)
def test_metrics_of_another_form_are_damage_not_a_crash(runs: Path, tmp_path: Path, summary: object) -> None:
    (runs / "erm" / "0" / "metrics.json").write_text(json.dumps(summary))
    page = text_of(write_report(runs, tmp_path / "page.html"))
    assert "<code>erm/0</code>" in page


def test_a_folder_without_runs_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ShiftproofError, match="no finished run"):
        write_report(tmp_path, tmp_path / "page.html")
    with pytest.raises(ShiftproofError, match="not a folder"):
        write_report(tmp_path / "nowhere", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_stage_0_model_of_a_run_is_no_run_of_its_own(runs: Path) -> None:
    shutil.copytree(runs / "erm" / "0", runs / "irm" / "0" / "reference")
    records, unreadable = find_runs(runs)
    assert len(records) == 6
    assert not unreadable


def test_a_single_run_folder_is_a_page_too(trained: Path, tmp_path: Path) -> None:
    page = text_of(write_report(trained / "erm" / "0", tmp_path / "page.html"))
    assert "One seed." in page
    assert "1 finished run, 1 row;" in page


def test_rows_differ_by_their_settings_and_say_which(trained: Path, runs: Path) -> None:
    sp.fit("vrex", DATA, seed=0, out=runs / "more" / "0", penalty=99.0, **QUICK)
    rows = make_rows(find_runs(runs)[0])
    assert {row.label for row in rows} == {"erm", "irm", "vrex (penalty=10)", "vrex (penalty=99)"}
    assert {row.data for row in rows} == {NAMED}


def test_data_that_follow_the_seed_make_one_row(tmp_path: Path) -> None:
    for seed in (0, 1):
        sp.fit("erm", f"{DATA},seed={seed}", seed=seed, out=tmp_path / str(seed), **QUICK)
    (row,) = make_rows(find_runs(tmp_path)[0])
    assert row.data == NAMED
    assert row.data_seeds == ("0", "1")


def test_different_draws_of_the_data_under_one_seed_are_different_data(tmp_path: Path) -> None:
    for draw in (0, 1):
        sp.fit("erm", f"{DATA},seed={draw}", seed=7, out=tmp_path / str(draw), **QUICK)
    assert len(make_rows(find_runs(tmp_path)[0])) == 2


def test_a_published_figure_stands_beside_the_published_settings_only(runs: Path) -> None:
    for seed, epochs in (("0", 501), ("1", 5)):
        path = runs / "erm" / seed / "config.json"
        training = {"epochs": epochs, "batch_size": None, "lr": 1e-3, "l2": 1e-3, "rescale": True, "anneal_weight": 1.0}
        network = {"featurizer": "mlp", "widths": [256, 256]}
        edit(
            path,
            data=f"cmnist:variant=standard,seed={seed}",
            selection="last",
            network=network,
            training=training,
            options={},
        )
    rows = {
        row.settings["epochs"]: row for row in make_rows(find_runs(runs)[0]) if row.data == "cmnist:variant=standard"
    }
    assert rows[501].published == {"mean": 0.171, "std": 0.009}
    assert rows[5].published is None


def row_of(label: str, values: list[float], metric: str = "accuracy") -> Row:
    """A row with these test scores and a val score of 0.8."""
    config = {"metric": metric, "task": "binary", "num_classes": 2, "selection": "last"}
    runs = [
        Record(str(n), {**config, "seed": n}, {"val": {metric: 0.8}, "test": {metric: value}}, [], {}, "last", 0)
        for n, value in enumerate(values)
    ]
    return Row("data", label, {}, {}, tuple(runs), (), None)


def test_the_summary_does_not_rank_what_the_spread_does_not_tell_apart() -> None:
    best, near = row_of("best", [0.69, 0.73]), row_of("near", [0.68, 0.72])
    said = conclusion([row_of("far", [0.1, 0.12]), best, near])
    assert "best has the best mean: 0.710 ± 0.028" in said
    assert "near is within one standard deviation of it" in said
    assert "far falls furthest" in said
    assert "below what guessing gives (0.500)" in said
    assert "No row stands out" in conclusion([best, near])
    assert "no order of the methods can be read off" in conclusion([row_of("a", [0.7]), row_of("b", [0.6])])


def test_the_summary_of_errors_takes_the_lowest_for_the_best() -> None:
    rows = [row_of("high", [0.9, 0.91], "mse"), row_of("low", [0.1, 0.11], "mse")]
    assert "low has the best mean" in conclusion(rows)
    drop = rows[0].drop()
    assert drop is not None
    assert drop["mean"] == pytest.approx(0.105)


def test_intervals_are_students_and_holm_corrects() -> None:
    from shiftproof.report.significance import interval
    from shiftproof.statistics.significance import holm

    low, high = interval([0.6, 0.7, 0.8])  # type: ignore[misc]
    assert low == pytest.approx(0.7 - 4.302653 * 0.1 / 3**0.5, abs=1e-6)
    assert high == pytest.approx(0.7 + 4.302653 * 0.1 / 3**0.5, abs=1e-6)
    assert interval([0.6]) is None
    assert interval([0.6, None]) is None
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


@pytest.mark.parametrize("seeds", [2, 5, 7, 8, 12])
def test_the_page_and_the_tables_give_one_answer_to_one_question(seeds: int) -> None:
    """The page had a paired t test, or Welch's, where tables had Wilcoxon's."""
    from shiftproof.report.significance import difference_p, significance_note
    from shiftproof.statistics.significance import CORRECTION, paired, pairs_of

    rng = random.Random(seeds)
    ours, theirs = ([round(rng.gauss(mean, 0.02), 4) for _ in range(seeds)] for mean in (0.72, 0.7))
    best, other = row_of("ours", ours), row_of("theirs", [*theirs, 0.1])  # a seed that only one has says nothing
    table = [{"values": v, "of_seeds": list(range(len(v)))} for v in (ours, [*theirs, 0.1])]
    said = paired(pairs_of(*table))
    assert said is not None
    assert difference_p(best, other) == (said.p if seeds >= 3 else None)
    note = significance_note([best, other])
    assert note is not None
    assert ("No test" in note) if seeds < 3 else (CORRECTION in note)


def test_the_page_says_what_is_beyond_chance_only_with_three_seeds(runs: Path, tmp_path: Path) -> None:
    page = text_of(write_report(runs, tmp_path / "page.html"))
    assert "takes at least 3 seeds" in page
    for seed in (2, 3):
        for method, place in (("erm", "erm"), ("vrex", "deep/vrex")):
            more = {"penalty": 10.0} if method == "vrex" else {"track": ("test",)}
            sp.fit(method, DATA, seed=seed, out=runs / place / str(seed), **more, **QUICK)
    for seed in range(4):
        for place, score in (("erm", 0.9), ("deep/vrex", 0.5)):
            file = runs / place / str(seed) / "metrics.json"
            found = json.loads(file.read_text())
            metric = json.loads((runs / place / str(seed) / "config.json").read_text())["metric"]
            del found["digests"]
            found["metrics"]["test"][metric] = score + 0.001 * seed * (1 if place == "erm" else -1)
            file.write_text(json.dumps(found))
    shutil.rmtree(runs / "irm")
    page = text_of(write_report(runs, tmp_path / "page.html"))
    said = [line for line in page.splitlines() if "Beyond chance" in line or "No test" in line or "Not told" in line]
    assert any("Beyond chance behind erm: vrex" in line for line in said), said
    assert "0.899 to 0.904" in page


def test_the_printed_command_trains_the_same_run_again(trained: Path, tmp_path: Path) -> None:
    import shlex

    from typer.testing import CliRunner

    from shiftproof.cli import app
    from shiftproof.report.repeat import command_of

    row = next(row for row in make_rows(find_runs(trained)[0]) if row.method == "vrex")
    words = shlex.split(command_of(row) or "")
    done = CliRunner().invoke(app, [*words[1:], "--out", str(tmp_path / "again"), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    for seed in (0, 1):
        old, new = (
            json.loads((folder / "metrics.json").read_text())
            for folder in (trained / "deep" / "vrex" / str(seed), tmp_path / "again" / "vrex" / f"seed-{seed}")
        )
        assert old["metrics"] == new["metrics"]


def test_pictures_beside_the_runs_are_on_the_page(runs: Path, tmp_path: Path) -> None:
    (runs / "erm" / "0" / "why").mkdir()
    (runs / "erm" / "0" / "why" / "explanations.png").write_bytes(b"\x89PNG picture")
    page = text_of(write_report(runs, tmp_path / "page.html"))
    assert 'src="data:image/png;base64,iVBORyBwaWN0dXJl"' in page
    assert "erm on two-bit" in page


def test_the_page_says_why_a_method_was_chosen(runs: Path, tmp_path: Path) -> None:
    assert "a few were tried" not in text_of(write_report(runs, tmp_path / "without.html"))
    edit(runs / "erm" / "0" / "timing.json", chosen={"reason": "erm: best on <val>"})
    (runs / "auto.json").write_text(json.dumps({"reason": "vrex: least spread", "method": "vrex"}))
    (runs / "deep" / "auto.json").write_text("cut sho")
    page = text_of(write_report(runs, tmp_path / "with.html"))
    assert "so a few were tried: erm: best on &lt;val&gt;." in page
    assert "so a few were tried: vrex: least spread." in page
