"""Bars and charts as static SVG. Colours come from CSS classes, so that light and dark share one drawing.

A part's key decides its colour, the same one everywhere; the label stands beside it, so that no
meaning hangs on colour alone.
"""

from __future__ import annotations

import math
import re
from html import escape
from typing import NamedTuple

from raceline.present import units
from raceline.present.text import content
from raceline.present.views import Axis, Bar, Bars, Chart, Point

PART_KEYS = (
    "parameters", "gradients", "optimizer", "activations", "logits", "kv_cache", "workspace", "reserved",
    "compute", "memory_bound", "communication_exposed", "pipeline_bubble", "input", "host",
)  # fmt: skip
_HUES = (212, 28, 145, 340, 48, 265, 190, 0, 212, 28, 340, 48, 265, 190)
_WIDTH = 640
_LABEL_WIDTH = 150
_ROW_HEIGHT = 46
_PLOT = (64, 16, 600, 300)


def style() -> str:
    """CSS for the drawings: one hue a part, lighter where the page is dark."""
    rules = [
        f".p-{key}{{fill:hsl({hue} {0 if key == 'reserved' else 58}% var(--part,48%))}}"
        for key, hue in zip(PART_KEYS, _HUES, strict=True)
    ]
    return (
        ".r-svg{max-width:100%;height:auto;font:12px system-ui,sans-serif}.r-svg text{fill:var(--ink,#222)}"
        ".r-svg .faint{fill:var(--faint,#666)}.r-svg .axis{stroke:var(--faint,#666);fill:none}"
        ".r-svg .limit{stroke:var(--ink,#222);stroke-width:2}.r-svg .track{fill:var(--track,#eee)}"
        ".r-svg .other{fill:var(--faint,#888)}"
        ".r-svg .point{fill:none;stroke:var(--accent,#1766c2);stroke-width:1.5}"
        ".r-svg .pick{fill:var(--accent,#1766c2)}.r-svg .reach{stroke:var(--accent,#1766c2);opacity:.5}"
    ) + "".join(rules)


def standalone(drawing: str) -> str:
    """A drawing as a file of its own: its colours inside, on white paper."""
    rules = re.sub(r"var\(--[a-z]+,([^)]*)\)", r"\1", style())
    head, body = drawing.split(">", 1)
    return f'{head}><style>{rules}</style><rect width="100%" height="100%" fill="#fff"/>{body}'


def bars(view: Bars, language: str = "en") -> str:
    """Stacked bars on one scale, each with its limit as a line and its parts named below it."""
    scale = max(
        (max(sum(part.value for part in bar.parts), bar.limit or 0.0) for bar in view.bars), default=0.0
    )
    rows = [_bar(bar, view.unit, scale or 1.0, index, language) for index, bar in enumerate(view.bars)]
    return _svg(_WIDTH, _ROW_HEIGHT * len(view.bars) + 6, content(view.title, language), "".join(rows))


def _bar(bar: Bar, unit: str, scale: float, index: int, language: str) -> str:
    top = index * _ROW_HEIGHT + 6
    room = _WIDTH - _LABEL_WIDTH - 10
    label = escape(content(bar.label, language))
    pieces = [
        f'<text x="0" y="{top + 15}">{label}</text>',
        f'<rect class="track" x="{_LABEL_WIDTH}" y="{top}" width="{room}" height="20" rx="2"/>',
    ]
    left, named = float(_LABEL_WIDTH), []
    for part in bar.parts:
        width = max(0.0, part.value) / scale * room
        name, figure = content(part.label, language), units.quantity(part.value, unit)
        kind = f"p-{part.key}" if part.key in PART_KEYS else "other"
        pieces.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="20">'
            f"<title>{escape(f'{name}: {figure}')}</title></rect>"
        )
        left += width
        if part.value > 0.02 * scale:
            named.append(f"{name} {figure}")
    if bar.limit is not None:
        at = _LABEL_WIDTH + bar.limit / scale * room
        pieces.append(f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 3}" y2="{top + 23}"/>')
    pieces.append(f'<text class="faint" x="{_LABEL_WIDTH}" y="{top + 34}">{escape(" · ".join(named))}</text>')
    return "".join(pieces)


class _Scale(NamedTuple):
    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def at(self, value: float) -> float:
        """The coordinate of `value`."""
        number = _number(value, self.is_log)
        share = (number - self.low) / ((self.high - self.low) or 1.0)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def chart(view: Chart, language: str = "en") -> str:
    """Points with range bars over two axes, labelled; picks are filled."""
    left, top, right, bottom = _PLOT
    x = _scale(view.x, [v for p in view.points for v in (p.x, *(p.x_range or ()))], left, right)
    y = _scale(view.y, [v for p in view.points for v in (p.y, *(p.y_range or ()))], bottom, top)
    pieces = [
        f'<path class="axis" d="M{left} {top}V{bottom}H{right}"/>',
        *_ticks(view.x, x, is_x=True), *_ticks(view.y, y, is_x=False),
        f'<text x="{right}" y="{bottom + 36}" text-anchor="end">'
        f"{escape(content(view.x.label, language))} →</text>",
        f'<text x="4" y="{top - 4}">{escape(content(view.y.label, language))} ↑</text>',
    ]  # fmt: skip
    if view.is_connected and view.points:
        line = " ".join(f"{x.at(p.x):.1f},{y.at(p.y):.1f}" for p in view.points)
        pieces.append(f'<polyline class="axis" points="{line}"/>')
    named = _named(view, x, y, language)
    pieces += [
        _point(point, view, x, y, language, has_name)
        for point, has_name in zip(view.points, named, strict=True)
    ]
    return _svg(_WIDTH, bottom + 44, content(view.title, language), "".join(pieces))


def _named(view: Chart, x: _Scale, y: _Scale, language: str) -> list[bool]:
    """Which points bear their name: picks first, then those whose name covers no other one."""
    order = sorted(range(len(view.points)), key=lambda index: not view.points[index].is_pick)
    taken: list[tuple[float, float, float]] = []
    named = [False] * len(view.points)
    for index in order:
        point = view.points[index]
        at_x, at_y = x.at(point.x), y.at(point.y)
        width = 7.0 * len(content(point.label, language))
        left = at_x - width if at_x > _PLOT[2] - 120 else at_x
        if all(
            abs(at_y - other_y) > 14 or left > right or left + width < start
            for start, right, other_y in taken
        ):
            taken.append((left, left + width, at_y))
            named[index] = True
    return named


def _point(point: Point, view: Chart, x: _Scale, y: _Scale, language: str, has_name: bool) -> str:
    at_x, at_y = x.at(point.x), y.at(point.y)
    name = content(point.label, language)
    figures = (
        f"{name}: {units.quantity(point.x, view.x.unit, *(point.x_range or ()))}, "
        f"{units.quantity(point.y, view.y.unit, *(point.y_range or ()))}"
    )
    reach = ""
    if point.x_range:
        low, high = map(x.at, point.x_range)
        reach += f'<line class="reach" x1="{low:.1f}" x2="{high:.1f}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>'
    if point.y_range:
        low, high = map(y.at, point.y_range)
        reach += f'<line class="reach" x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    kind = "pick" if point.is_pick else "point"
    anchor, shift = ("end", -8) if at_x > _PLOT[2] - 120 else ("start", 8)
    drawn = (
        f'{reach}<circle class="{kind}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="5">'
        f"<title>{escape(figures)}</title></circle>"
    )
    if not has_name:
        return drawn
    where = f'x="{at_x + shift:.1f}" y="{at_y - 7:.1f}"'
    return f'{drawn}<text {where} text-anchor="{anchor}">{escape(name)}</text>'


def _ticks(axis: Axis, scale: _Scale, is_x: bool) -> list[str]:
    pieces = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        number = scale.low + share * (scale.high - scale.low)
        value = 10**number if scale.is_log else number
        at, text = scale.start + share * (scale.end - scale.start), escape(units.quantity(value, axis.unit))
        where = (
            f'x="{at:.0f}" y="{_PLOT[3] + 18}" text-anchor="middle"'
            if is_x
            else f'x="{_PLOT[0] - 6}" y="{at + 4:.0f}" text-anchor="end"'
        )
        pieces.append(f'<text class="faint" {where}>{text}</text>')
    return pieces


def _number(value: float, is_log: bool) -> float:
    return math.log10(max(value, 1e-12)) if is_log else value


def _scale(axis: Axis, values: list[float], start: float, end: float) -> _Scale:
    numbers = [_number(value, axis.is_log) for value in values] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    margin = (high - low) * 0.06 or 0.5
    low = low - margin if axis.is_log else max(0.0, low - margin) if low >= 0 else low - margin
    return _Scale(low, high + margin, start, end, axis.is_log)


def _svg(width: int, height: int, title: str, body: str) -> str:
    return (
        f'<svg class="r-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">{body}</svg>'
    )
