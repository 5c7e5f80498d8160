"""Drawings of a report as SVG files: predicted against measured, error by accelerator, error by model size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from raceline.accuracy.groups import bars
from raceline.accuracy.report import KEYS, Slice, by_size, slices_of
from raceline.accuracy.result import Scored, Scores
from raceline.accuracy.totals import grouped, median, standing
from raceline.accuracy.view import figure, group_name, shown
from raceline.present.errors import Message, message
from raceline.present.svg import standalone
from raceline.present.text import content

Limits = tuple[float, float]

_PANEL, _GAP_X, _GAP_Y, _COLUMNS, _TOP = 150, 20, 62, 5, 78
# Points closer than this share one dot.
_CELL = 1.5
_WIDTH, _LABEL, _COUNT, _ROW = 760, 220, 60, 20
# A ratio beyond these ends of the axis stands at the end.
_LOW, _HIGH = 0.25, 4.0
_TICKS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
_FEWEST, _MOST = 10, 30
_STYLE = (
    "<style>.dots{stroke:#1766c2;stroke-width:3;stroke-linecap:round;fill:none;opacity:.55}"
    ".equal{stroke:#222;fill:none}.near{stroke:#999;fill:none;stroke-dasharray:3 3}"
    ".frame{stroke:#bbb;fill:#fff}.thin{stroke:#1766c2;stroke-width:2}.thick{stroke:#1766c2;stroke-width:8}"
    ".mid{fill:#fff;stroke:#0b3566;stroke-width:2}.small{font-size:10px}</style>"
)


def plots(scores: Scores, language: str = "en") -> dict[str, str]:
    """The drawings by file name; every value once."""
    chosen = standing(scores.scored)
    most = [item for item in slices_of(chosen, "accelerator") if item.errors.values >= _FEWEST][:_MOST]
    return {
        "predicted.svg": scatter(chosen, language),
        "accelerators.svg": ratios(most, message("accuracy.plot_accelerators"), language),
        "sizes.svg": ratios(by_size(chosen), message("accuracy.plot_sizes"), language),
    }


def scatter(scored: Sequence[Scored], language: str = "en") -> str:
    """A panel for each group and metric: measured across, predicted up, both logarithmic."""
    panels = [
        (group, part)
        for group, values in _in_order(scored)
        for part in grouped(values, lambda item: item.metric).values()
        if len(part) >= _FEWEST
    ]
    pieces = []
    for at, (group, part) in enumerate(panels):
        left = 10 + at % _COLUMNS * (_PANEL + _GAP_X)
        top = _TOP + at // _COLUMNS * (_PANEL + _GAP_Y)
        pieces.append(_panel(group, part, left, top, language))
    width = 10 + _COLUMNS * (_PANEL + _GAP_X)
    height = _TOP + math.ceil(len(panels) / _COLUMNS) * (_PANEL + _GAP_Y)
    title = message("accuracy.plot_scatter")
    return _drawing(width, height, title, message("accuracy.plot_axes", fewest=_FEWEST), pieces, language)


def _in_order(scored: Sequence[Scored]) -> list[tuple[str, list[Scored]]]:
    by_group = grouped(scored, KEYS["task"])
    known = [bar.group for bar in bars()]
    order = [name for name in known if name in by_group] + sorted(by_group.keys() - set(known))
    return [(name, by_group[name]) for name in order]


def _panel(group: str, scored: Sequence[Scored], left: float, top: float, language: str) -> str:
    values = [value for item in scored for value in (item.measured, item.predicted)]
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = 0.05 * (high - low) or 0.5
    limits = (low - margin, high + margin)
    told = message(
        "accuracy.plot_panel", values=len(scored), median=figure(median(abs(item.error) for item in scored))
    )
    first, last = escape(_short(scored[0], min(values))), escape(shown(scored[0], max(values)))
    return (
        f'<g transform="translate({left:g} {top:g})">'
        f'<text x="0" y="-18">{escape(content(group_name(group), language))}</text>'
        f'<text class="faint small" x="0" y="-5">{escape(content(told, language))}</text>'
        f'<rect class="frame" width="{_PANEL}" height="{_PANEL}"/>'
        f"{_line(0.0, limits, 'equal')}{_line(0.25, limits, 'near')}{_line(-0.2, limits, 'near')}"
        f'<text class="faint small" x="4" y="12">{escape(scored[0].metric)}</text>'
        f'<path class="dots" d="{_dots(scored, limits)}"/>'
        f'<text class="faint small" x="0" y="{_PANEL + 12}">{first}</text>'
        f'<text class="faint small" x="{_PANEL}" y="{_PANEL + 12}" text-anchor="end">{last}</text></g>'
    )


def _short(item: Scored, value: float) -> str:
    """Without its unit where that is long: the other end of the axis bears it."""
    text = shown(item, value)
    return text.partition(" ")[0] if text.endswith("/s") else text


def _line(error: float, limits: Limits, kind: str) -> str:
    """Where predicted is measured x (1 + error), within the panel."""
    shift = math.log10(1.0 + error) / (limits[1] - limits[0]) * _PANEL
    start, end = max(0.0, -shift), min(float(_PANEL), _PANEL - shift)
    return f'<path class="{kind}" d="M{start:.1f} {_PANEL - start - shift:.1f}L{end:.1f} {_PANEL - end - shift:.1f}"/>'


def _dots(scored: Sequence[Scored], limits: Limits) -> str:
    """One dot for all points in a cell, so that thousands of points stay a small file."""
    cells = {
        (
            round(_share(item.measured, limits) * _PANEL / _CELL),
            round((1.0 - _share(item.predicted, limits)) * _PANEL / _CELL),
        )
        for item in scored
    }
    return "".join(f"M{x * _CELL:g} {y * _CELL:g}h.1" for x, y in sorted(cells))


def _share(value: float, limits: Limits) -> float:
    return (math.log10(value) - limits[0]) / (limits[1] - limits[0])


def ratios(slices: Sequence[Slice], title: Message, language: str = "en") -> str:
    """A row a slice: the median of predicted / measured, half of the values, and 80 % of them."""
    bottom = 56 + len(slices) * _ROW
    pieces = [
        f'<path class="{"equal" if tick == 1.0 else "near"}" d="M{_at(tick):.1f} 46V{bottom}"/>'
        f'<text class="faint small" x="{_at(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>'
        for tick in _TICKS
    ]
    pieces += [_row(item, 56 + at * _ROW + _ROW / 2) for at, item in enumerate(slices)]
    return _drawing(_WIDTH, bottom + 24, title, message("accuracy.plot_ratio"), pieces, language)


def _row(item: Slice, middle: float) -> str:
    far_low, low, mid, high, far_high = (_at(ratio) for ratio in item.errors.ratios)
    return (
        f'<text x="{_LABEL - 8}" y="{middle + 4:g}" text-anchor="end">{escape(item.name)}</text>'
        f'<text class="faint small" x="{_LABEL + _COUNT - 12}" y="{middle + 4:g}" text-anchor="end">'
        f"{item.errors.values:,}</text>"
        f'<path class="thin" d="M{far_low:.1f} {middle:g}H{far_high:.1f}"/>'
        f'<path class="thick" d="M{low:.1f} {middle:g}H{high:.1f}"/>'
        f'<circle class="mid" cx="{mid:.1f}" cy="{middle:g}" r="4"/>'
    )


def _at(ratio: float) -> float:
    share = math.log(min(max(ratio, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return _LABEL + _COUNT + share * (_WIDTH - _LABEL - _COUNT - 20)


def _drawing(
    width: float, height: float, title: Message, note: Message, pieces: Sequence[str], language: str
) -> str:
    name = escape(content(title, language))
    return standalone(
        f'<svg class="r-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="{name}">{_STYLE}'
        f'<text x="10" y="16" font-weight="600">{name}</text>'
        f'<text class="faint" x="10" y="34">{escape(content(note, language))}</text>{"".join(pieces)}</svg>'
    )
