"""What a result shows, as data: one view feeds the terminal, the HTML report and the page.

Labels and sentences are Messages; a plain string is a datum (a name, an id, a command line) that
is the same in every language; a number stands in a Quantity with its unit (see `units.UNITS`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from raceline.present.errors import Message


class Quantity(msgspec.Struct, frozen=True):
    """A number with its unit (a key of `units.UNITS`: ``gib``, ``s``, ``usd``, …) and maybe a range.

    `value` None is shown as a dash: unknown, or without meaning here.
    """

    value: float | None
    unit: str = ""
    low: float | None = None
    high: float | None = None


class Meter(msgspec.Struct, frozen=True):
    """How much of a limit is used, as a small bar in a cell: ``▇▇▇▇▇▇░░ 33.1 of 44.0 GiB``."""

    value: float
    limit: float
    unit: str = "gib"


Part = Message | Quantity | str
Content = Part | tuple[Part, ...]
Cell = Content | Meter | int | float | None
Tone = Literal["plain", "note", "good", "warning", "bad"]


class Heading(msgspec.Struct, frozen=True):
    """A line that starts a screen (level 1) or a section; `aside` stands at its right end."""

    text: Content
    level: int = 1
    aside: Content | None = None


class Text(msgspec.Struct, frozen=True):
    """A line or paragraph; parts of a tuple are joined by spaces. `tone` marks what needs attention."""

    text: Content
    tone: Tone = "plain"
    indent: int = 0


class Column(msgspec.Struct, frozen=True):
    """A column; a bare number in its cells is shown in `unit`. `can_wrap` False keeps cells whole."""

    label: Content
    align: Literal["left", "right"] = "left"
    unit: str = ""
    can_wrap: bool = True


class Table(msgspec.Struct, frozen=True):
    """Rows of cells; every row is as long as `columns`. `has_header` False shows the rows alone."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: Content | None = None
    has_header: bool = True


class BarPart(msgspec.Struct, frozen=True):
    """One part of a stacked bar; `key` (``activations``) chooses its colour, the same everywhere."""

    key: str
    label: Content
    value: float


class Bar(msgspec.Struct, frozen=True):
    """One stacked bar; `limit` is drawn as a line and is None where there is none."""

    label: Content
    parts: tuple[BarPart, ...]
    limit: float | None = None


class Bars(msgspec.Struct, frozen=True):
    """Stacked bars on one scale: memory by part, step time by part."""

    bars: tuple[Bar, ...]
    unit: str
    title: Content | None = None


class Axis(msgspec.Struct, frozen=True):
    """An axis of a chart; a logarithmic one takes positive values alone."""

    label: Content
    unit: str = ""
    is_log: bool = False


class Point(msgspec.Struct, frozen=True):
    """A point of a chart with the ranges of its figures; `is_pick` draws it filled."""

    label: Content
    x: float
    y: float
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    is_pick: bool = False


class Chart(msgspec.Struct, frozen=True):
    """Points over two axes; `is_connected` joins them by a line in the order given."""

    x: Axis
    y: Axis
    points: tuple[Point, ...]
    title: Content | None = None
    is_connected: bool = False


class Group(msgspec.Struct, frozen=True):
    """Views that belong together, under each other; `title` heads them."""

    items: tuple[View, ...]
    title: Content | None = None


View = Heading | Text | Table | Bars | Chart | Group
