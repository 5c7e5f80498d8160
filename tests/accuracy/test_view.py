"""The screen and the drawings, in both languages."""

import unicodedata
import xml.etree.ElementTree as ElementTree

import pytest

from raceline.accuracy.groups import bars
from raceline.accuracy.plots import plots
from raceline.accuracy.report import report_of
from raceline.accuracy.view import accuracy_view, figure, signed
from raceline.evidence import published
from raceline.present.html import document
from raceline.present.terminal import render
from raceline.present.text import has_text
from scores_by_hand import scored, scores, unscored, verdict

EVERYTHING = scores(
    *(scored(1e5 * (at + 1), 2.9e5 * (at + 1), id=str(at), group=bar.group) for at, bar in enumerate(bars())),
    *(scored(10.0, 11.0, id="two-ways", fold=fold) for fold in ("family=mixtral", "accelerator=h100")),
    *(scored(10.0 + at, 11.0, id=f"more-{at}", reason="The source says so.") for at in range(12)),
    verdicts=(verdict(True, "yes"), verdict(True, "no"), verdict(False, "tight", table="training")),
    unscored=(unscored("a", "no_batch"),), rows=50,
)  # fmt: skip


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("by", [None, "task", "source", "accelerator", "model", "framework"])
def test_the_screen_stays_within_its_width(by, language, width):
    text = render(accuracy_view(report_of(EVERYTHING, by)), language, width=width)
    assert max(map(columns, text.splitlines())) <= width
    assert "accuracy." not in text


def test_the_headline_says_that_nothing_predicts_itself():
    text = render(accuracy_view(report_of(scores(scored(100, 110), scored(100, 90)))))
    assert text.startswith("2 measured values of 2 published runs, none used to predict itself")


def test_the_headline_tells_own_rows_from_published_ones():
    own = scored(100, 110, id="own", fold="none")
    assert "were not fitted on" in render(accuracy_view(report_of(scores(own))))
    assert "not among the published runs: 1" in render(
        accuracy_view(report_of(scores(own, scored(100, 90)))), width=100
    )


def test_a_row_of_the_bars_table_has_the_figures_and_the_verdict():
    text = render(accuracy_view(report_of(scores(scored(100, 110, in_sample=104.0)))))
    (line,) = [line for line in text.splitlines() if line.startswith("train experts") and "25 / 50" in line]
    assert " ".join(line.split()) == "train experts 1 10 % 10 % 10 % 4.0 % 25 / 50 % ✓"


def test_reports_of_what_fitted_alone_have_a_screen():
    text = render(accuracy_view(report_of(scores(verdicts=(verdict(True, "no"),)))))
    assert "Reports of whether a run fitted: 1;" in text
    assert "fit-True-no: fitted; we say" in text


def test_what_is_not_scored_says_why():
    text = render(
        accuracy_view(report_of(scores(scored(1, 1), unscored=(unscored("a", "no_batch"),), rows=2)))
    )
    assert "Not scored: 50 % of the rows (2)" in text
    assert "because of no_batch" in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_group_with_a_bar_has_a_name(language):
    names = [f"accuracy.group_{bar.group.replace('-', '_')}" for bar in bars()]
    assert [name for name in names if not has_text(name, language)] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_caution_of_the_training_rows_has_a_text(language):
    words = {row.doubtful for row in published.rows("training") if row.doubtful}
    assert [word for word in words if not has_text(f"accuracy.doubt_{word}", language)] == []


def test_a_caution_is_told_in_words():
    text = render(accuracy_view(report_of(scores(scored(100, 300, reason="workers")))))
    assert "the source doesn't say how the devices were split" in text


def test_the_screen_is_html_too():
    page = document(accuracy_view(report_of(EVERYTHING)), "en")
    assert "train experts" in page and "accuracy." not in page


def test_percent_has_one_decimal_below_ten():
    assert [figure(value) for value in (0.0349, 0.0996, 0.249, 1.5, None)] == [
        "3.5 %",
        "10 %",
        "25 %",
        "150 %",
        "–",
    ]
    assert [signed(value) for value in (0.021, -0.3, -0.0001)] == ["+2.1 %", "-30 %", "0 %"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_drawings_are_sound_and_small(language):
    drawn = plots(EVERYTHING, language)
    assert set(drawn) == {"predicted.svg", "accelerators.svg", "sizes.svg"}
    for text in drawn.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert "accuracy." not in text


def test_thousands_of_points_stay_a_small_drawing():
    many = scores(*(scored(1.0 + at % 997, 1.0 + at * 7 % 991, id=str(at)) for at in range(20_000)))
    assert len(plots(many)["predicted.svg"]) < 300_000
    assert plots(many) == plots(many)
