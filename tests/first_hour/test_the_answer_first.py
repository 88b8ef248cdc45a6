"""What a command prints begins with the answer: the score, what is lost, where it is worst, what to do next."""

import re

import pytest

import shiftproof as sp

SMALL = ("--set", "epochs=2", "--set", "widths=(4,)")


def test_fit_prints_the_answer_before_the_table(shiftproof, tmp_path):
    status, out, err = shiftproof("fit", "colored-digits", "-m", "erm", *SMALL, "--out", "runs")
    assert status == 0, err
    lines = out.splitlines()
    assert re.search(
        r"^erm scores .* on test \(accuracy in the worst environment, one seed\), after .* on val \(", lines[0]
    ), out
    assert "It is worst in the" in out
    assert out.index("Next: ") < out.index("epoch chosen by")
    command = re.search(r"Next: .*?(shiftproof (compare|calibrate) [^,]*)", out)
    assert command, out


def test_a_page_leads_with_the_answer_then_a_picture_and_ends_with_p_values(tmp_path):
    for method in ("erm", "vrex"):
        for seed in range(3):
            folder = tmp_path / "runs" / method / f"seed-{seed}"
            sp.fit(method, "two-bit:per_env=60", seed=seed, epochs=2, widths=(4,), out=folder)
    from shiftproof.report import write_report

    page = write_report(tmp_path / "runs", tmp_path / "page.html").read_text()
    lead, picture, table = page.index('class="lead"'), page.index("<figure>"), page.index('id="overview"')
    assert lead < page.index("Next: ") < picture < table
    assert table < page.index("How sure the order is")


@pytest.mark.parametrize("data", ["two-bit:per_env=200", "colored-digits", "two-piece"])
def test_a_diagnosis_says_first_what_matters_and_a_method_or_that_none_is_suggested(data):
    found = sp.diagnose(data, assistant=False, most=500)
    first = next(iter(found.sections()))
    assert first == "In short"
    last = found.sections()["In short"][-1]
    assert re.match(r"Use [a-z]", last) or last.startswith("Nothing"), last
