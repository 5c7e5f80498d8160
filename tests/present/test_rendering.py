"""One view as terminal text, HTML and SVG."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.present import html, svg, terminal
from raceline.present.layout import cell_width, wrap
from raceline.present.text import word
from raceline.present.views import (
    Axis,
    Bar,
    BarPart,
    Bars,
    Chart,
    Column,
    Group,
    Heading,
    Meter,
    Point,
    Quantity,
    Table,
    Text,
)  # fmt: skip

TABLE = Table(
    (Column("pick"), Column(word("memory"), can_wrap=False), Column("cost", "right", "usd")),
    (("<b>L40S</b> & 48 GB", Meter(33, 44), 8.2), ("RTX 4090", None, Quantity(4, "usd", 3, 5))),
)
BARS = Bars(
    (Bar(word("memory"), (BarPart("parameters", word("parameters"), 15.0), BarPart("x", "x", 9.0)), 44.0),),
    "gib",
)
CHART = Chart(
    Axis("time", "s", True), Axis("cost", "usd"),
    (Point("L40S", 32000, 8, (29000, 36000), None, True), Point("<4090>", 39000, 4), Point("zero", 0, 0)),
)  # fmt: skip
VIEW = Group(
    (Heading("Llama", aside="8 B"), TABLE, Text("an answer in a line " * 9, "warning"), BARS, CHART),
    title="all",
)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_wider_than_the_terminal(language, width):
    lines = terminal.render(VIEW, language, width=width).split("\n")
    assert max(map(cell_width, lines)) <= width


def test_a_meter_fills_with_its_share():
    assert terminal.meter(33, 44) == "▇▇▇▇▇▇░░"
    assert terminal.meter(90, 44) == "▇▇▇▇▇▇▇▇"


def test_a_stacked_bar_shows_each_part_where_the_one_before_ended():
    text = terminal.render(BARS)
    assert "24 / 44 GiB" in text
    assert re.search(r"x +░+▇+░+ +9 GiB", text)


def test_plain_text_has_no_escape_codes_and_coloured_has():
    assert "\x1b" not in terminal.render(VIEW)
    assert "\x1b[33m" in terminal.render(VIEW, colours=True)


def test_columns_stay_aligned_under_wide_characters():
    table = Table((Column("a"), Column("b")), (("均衡", "|"), ("cheapest", "|")))
    lines = terminal.render(table, "zh").splitlines()[2:]
    assert len({cell_width(line[: line.index("|")]) for line in lines}) == 1


def test_what_must_stay_whole_leaves_its_note_a_line_of_its_own():
    command = "raceline plan " + "x" * 50
    table = Table((Column("Next", can_wrap=False), Column("")), ((command, "the calculation behind it"),))
    lines = terminal.render(table, width=70).splitlines()
    assert lines[-2:] == [command, "    the calculation behind it"]
    assert f"{command}   the calculation" in terminal.render(table, width=120)


def test_html_is_escaped_and_self_contained():
    page = html.document(VIEW, "zh")
    assert "&lt;b&gt;L40S&lt;/b&gt; &amp; 48 GB" in page
    assert "<b>" not in page
    assert "src=" not in page
    assert "href=" not in page
    assert 'lang="zh-Hans"' in page


def test_html_has_light_and_dark():
    assert "prefers-color-scheme:dark" in html.document(Text("x"))


@pytest.mark.parametrize("drawing", [svg.bars(BARS), svg.chart(CHART)], ids=["bars", "chart"])
def test_svg_is_well_formed(drawing):
    assert ElementTree.fromstring(drawing).tag.endswith("svg")


def test_svg_names_every_part_and_range():
    assert "parameters: 15 GiB" in svg.bars(BARS)
    assert "L40S: 8.9 h (8.1–10), $8.00" in svg.chart(CHART)


def test_charts_and_bars_without_anything_in_them_still_render():
    empty = Group((Chart(Axis("x"), Axis("y"), ()), Bars((), "gib"), Table((Column("a"),), ())))
    assert terminal.render(empty)
    assert html.fragment(empty)


@given(st.text(alphabet="ab 中文，。（）c-", max_size=200), st.integers(4, 60))
def test_wrapping_keeps_every_character_and_the_width(text, width):
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_width(line) <= width for line in lines)


def test_wrapped_chinese_never_starts_a_line_with_closing_punctuation():
    assert all(line[0] not in "，。" for line in wrap("最便宜的显卡，不需要重计算。" * 5, 21))
