"""Views as terminal text, readable at 80 columns in both languages.

Everything is plain text with glyph bars; colours are added only where the shell asks for them.
rich lays out tables and is imported only when one is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from io import StringIO
from typing import TYPE_CHECKING, Any

from raceline.present import units
from raceline.present.layout import cell_width, pad, wrap
from raceline.present.text import content
from raceline.present.views import (
    Axis,
    Bar,
    Bars,
    Cell,
    Chart,
    Column,
    Group,
    Heading,
    Meter,
    Table,
    Text,
    View,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.table import Table as RichTable

FULL, EMPTY = "▇", "░"
_METER_CELLS = 8
_BAR_CELLS = 32
_CHART_ROWS = 12
_GAP = 3  # between the columns of a table
_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
_COLOURS = {"good": "32", "warning": "33", "bad": "31", "note": "2", "bold": "1"}
_GLYPHS = {"good": "✓ ", "warning": "! ", "bad": "✗ "}


class _Page:
    """Lines in the making, with what is needed to write them."""

    def __init__(self, language: str, width: int, colours: bool) -> None:
        self.language, self.width, self.colours = language, max(width, 40), colours
        self.lines: list[str] = []

    def text(self, item: Any) -> str:
        return content(item, self.language)

    def colour(self, text: str, name: str) -> str:
        code = _COLOURS.get(name)
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours and code and text else text


def render(view: View, language: str = "en", *, width: int = 80, colours: bool = False) -> str:
    """The view as text of at most `width` columns, ending with a line break."""
    page = _Page(language, width, colours)
    _write(page, view)
    return "\n".join(line.rstrip() for line in page.lines) + "\n"


def meter(value: float, limit: float, cells: int = _METER_CELLS) -> str:
    """``▇▇▇▇▇▇░░``: the share of `limit` that `value` takes; full where it takes more."""
    share = min(1.0, max(0.0, value / limit)) if limit > 0 else 1.0
    filled = round(share * cells)
    return FULL * filled + EMPTY * (cells - filled)


def _write(page: _Page, view: View) -> None:
    writers: dict[type, Callable[[_Page, Any], None]] = {
        Heading: _heading, Text: _text, Table: _table, Bars: _bars, Chart: _chart, Group: _group,
    }  # fmt: skip
    writers[type(view)](page, view)


def _heading(page: _Page, view: Heading) -> None:
    text, aside = page.text(view.text), page.text(view.aside)
    gap = page.width - cell_width(text) - cell_width(aside)
    if aside and gap >= 2:
        page.lines.append(page.colour(text, "bold") + " " * gap + aside)
        return
    page.lines += [page.colour(line, "bold") for line in wrap(text, page.width)]
    page.lines += wrap(aside, page.width) if aside else []


def _text(page: _Page, view: Text) -> None:
    glyph = _GLYPHS.get(view.tone, "")
    left = " " * view.indent
    lines = wrap(page.text(view.text), page.width - view.indent - len(glyph))
    for index, line in enumerate(lines):
        start = glyph if index == 0 else " " * len(glyph)
        page.lines.append(left + page.colour(start + line, view.tone))


def _group(page: _Page, view: Group) -> None:
    if view.title is not None:
        page.lines.append(page.colour(page.text(view.title), "bold"))
    previous: View | None = None
    for item in view.items:
        # lines of text stay together; everything else gets air around it
        if previous is not None and not (isinstance(previous, Text) and isinstance(item, Text)):
            page.lines.append("")
        _write(page, item)
        previous = item


def _table(page: _Page, view: Table) -> None:
    if view.caption is not None:
        page.lines += wrap(page.text(view.caption), page.width)
    if _is_pair_too_wide(page, view):
        _stack(page, view)
        return
    out = StringIO()
    from rich.console import Console

    console = Console(
        file=out, width=page.width, color_system=None, highlight=False, markup=False, emoji=False,
        force_terminal=False, legacy_windows=False, force_jupyter=False,
    )  # fmt: skip
    console.print(_rich_table(page, view))
    page.lines += out.getvalue().rstrip("\n").split("\n")


def _is_pair_too_wide(page: _Page, view: Table) -> bool:
    """Whether a table of two columns, the first of which must stay whole, leaves its second no room."""
    if len(view.columns) != 2 or view.columns[0].can_wrap or not view.rows:
        return False
    widths = [
        max(cell_width(_cell(page, row[index], column)) for row in view.rows)
        for index, column in enumerate(view.columns)
    ]
    return sum(widths) + _GAP > page.width


def _stack(page: _Page, view: Table) -> None:
    """Each row as two: the first cell, and the second below it, further in."""
    if view.has_header:
        page.lines += [page.colour(page.text(view.columns[0].label), "bold"), "─" * page.width]
    for row in view.rows:
        first, second = (_cell(page, cell, column) for cell, column in zip(row, view.columns, strict=True))
        page.lines.append(first)
        page.lines += ["    " + line for line in wrap(second, page.width - 4)]


def _rich_table(page: _Page, view: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    table = RichTable(
        box=box.SIMPLE_HEAD if view.has_header else None, show_header=view.has_header, pad_edge=False,
        show_edge=False, padding=(0, 2, 0, 0),
    )  # fmt: skip
    for column in view.columns:
        table.add_column(
            RichText(page.text(column.label)),
            justify=column.align,
            no_wrap=not column.can_wrap,
            overflow="fold",
        )
    for row in view.rows:
        cells = (_cell(page, cell, column) for cell, column in zip(row, view.columns, strict=True))
        table.add_row(*(RichText(cell, overflow="fold") for cell in cells))
    return table


def _cell(page: _Page, cell: Cell, column: Column) -> str:
    if isinstance(cell, Meter):
        return f"{meter(cell.value, cell.limit)}\n{units.of_limit(cell.value, cell.limit, cell.unit)}"
    if cell is None:
        return units.DASH
    if isinstance(cell, (int, float)):
        return units.quantity(cell, column.unit)
    return page.text(cell)


def _bars(page: _Page, view: Bars) -> None:
    if view.title is not None:
        page.lines.append(page.colour(page.text(view.title), "bold"))
    for bar in view.bars:
        _bar(page, bar, view.unit)


def _bar(page: _Page, bar: Bar, unit: str) -> None:
    """One line a part, each starting where the one before it ended."""
    total = sum(part.value for part in bar.parts)
    scale = max(total, bar.limit or 0.0) or 1.0
    sum_text = (
        units.of_limit(total, bar.limit, unit) if bar.limit is not None else units.quantity(total, unit)
    )
    labels = [page.text(part.label) for part in bar.parts]
    label_width = min(24, page.width // 3, max(map(cell_width, labels), default=0))
    cells = max(4, min(_BAR_CELLS, page.width - label_width - 24))
    _heading(page, Heading(page.text(bar.label), 2, sum_text))
    start = 0.0
    for label, part in zip(labels, bar.parts, strict=True):
        glyphs = _segment(start / scale, (start + part.value) / scale, cells)
        figure = units.quantity(part.value, unit)
        share = units.quantity(part.value / total if total else 0.0, "fraction")
        page.lines.append(
            f"  {pad(label, label_width)}  {glyphs}  {pad(figure, 10, 'right')}  {pad(share, 6, 'right')}"
        )
        start += part.value


def _segment(start: float, end: float, cells: int) -> str:
    first, last = round(start * cells), round(end * cells)
    if end > start and last == first:
        first, last = (first, first + 1) if first < cells else (cells - 1, cells)
    return EMPTY * first + FULL * (last - first) + EMPTY * (cells - last)


def _chart(page: _Page, view: Chart) -> None:
    """A grid with a mark a point, and the points' figures below."""
    if view.title is not None:
        page.lines.append(page.colour(page.text(view.title), "bold"))
    columns = max(8, min(page.width - 6 - cell_width(page.text(view.x.label)), 64))
    grid = [[" "] * columns for _ in range(_CHART_ROWS)]
    places_x = _places((point.x for point in view.points), view.x, columns)
    places_y = _places((point.y for point in view.points), view.y, _CHART_ROWS)
    for index, (x, y) in enumerate(zip(places_x, places_y, strict=True)):
        grid[_CHART_ROWS - 1 - y][x] = _mark(index)
    page.lines.append(f"{page.text(view.y.label)} ↑")
    page.lines += ["  │" + "".join(row) for row in grid]
    page.lines.append("  └" + "─" * (columns - 1) + f"→ {page.text(view.x.label)}")
    for index, point in enumerate(view.points):
        figures = f"{units.quantity(point.x, view.x.unit)}, {units.quantity(point.y, view.y.unit)}"
        page.lines += wrap(
            f"{_mark(index)} {'*' if point.is_pick else ' '} {page.text(point.label)}  {figures}", page.width
        )


def _mark(index: int) -> str:
    return _MARKS[index] if index < len(_MARKS) else "·"


def _places(values: Iterable[float], axis: Axis, cells: int) -> list[int]:
    """The cell of each value; on a logarithmic axis what is not positive stands at its low end."""
    numbers = [math.log10(max(value, 1e-12)) if axis.is_log else value for value in values]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    reach = (high - low) or 1.0
    return [round((number - low) / reach * (cells - 1)) for number in numbers]
