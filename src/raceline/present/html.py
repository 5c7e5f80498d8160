"""Views as HTML: fragments for a page, or one self-contained document, light and dark."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from raceline.present import svg, units
from raceline.present.text import content
from raceline.present.views import (
    Bars,
    Cell,
    Chart,
    Column,
    Content,
    Group,
    Heading,
    Meter,
    Table,
    Text,
    View,
)  # fmt: skip

_STYLE = (
    ":root{color-scheme:light dark;--ink:#1d1f23;--paper:#fff;--faint:#63676f;--line:#d9dce1;--track:#eceef1;"
    "--accent:#1766c2;--part:46%}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e7e9ec;--paper:#16181c;--faint:#9aa0aa;--line:#3a3e46;"
    "--track:#2a2d33;--accent:#6aaef5;--part:60%}}"
    "body{margin:0 auto;max-width:60rem;padding:1.5rem;color:var(--ink);background:var(--paper);"
    "font:15px/1.5 system-ui,'Noto Sans SC','PingFang SC','Microsoft YaHei',sans-serif}"
    "h1{font-size:1.35rem}h2{font-size:1.1rem}"
    "h1 small,h2 small{float:right;font-weight:400;color:var(--faint)}"
    ".r-table{overflow-x:auto}table{border-collapse:collapse}caption{text-align:left;color:var(--faint)}"
    "th,td{padding:.25rem .9rem .25rem 0;text-align:left;vertical-align:top}"
    "thead th{border-bottom:1px solid var(--line);font-weight:600}"
    ".right{text-align:right;font-variant-numeric:tabular-nums}.whole{white-space:nowrap}"
    "p{margin:.25rem 0}.note{color:var(--faint)}.warning::before{content:'! '}.bad::before{content:'✗ '}"
    ".good::before{content:'✓ '}meter{width:6rem}@media print{body{padding:0}}"
)


def document(view: View, language: str = "en", *, title: str = "raceline") -> str:
    """A whole page that needs nothing else: no script, no font, no link."""
    tag = {"zh": "zh-Hans"}.get(language, language)
    return (
        f'<!doctype html>\n<html lang="{tag}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}{svg.style()}</style></head><body>\n{fragment(view, language)}\n</body></html>\n"
    )


def style() -> str:
    """The CSS that fragments need."""
    return _STYLE + svg.style()


def fragment(view: View, language: str = "en") -> str:
    """The view as HTML elements; all text is escaped."""
    writers: dict[type, Callable[[Any, str], str]] = {
        Heading: _heading, Text: _text, Table: _table, Bars: _bars, Chart: _chart, Group: _group,
    }  # fmt: skip
    return writers[type(view)](view, language)


def _shown(item: Content | None, language: str) -> str:
    return escape(content(item, language))


def _heading(view: Heading, language: str) -> str:
    level = min(max(view.level, 1), 6)
    aside = f" <small>{_shown(view.aside, language)}</small>" if view.aside is not None else ""
    return f"<h{level}>{_shown(view.text, language)}{aside}</h{level}>"


def _text(view: Text, language: str) -> str:
    indent = f' style="margin-left:{view.indent / 2:g}em"' if view.indent else ""
    return f'<p class="{view.tone}"{indent}>{_shown(view.text, language)}</p>'


def _group(view: Group, language: str) -> str:
    title = f"<h2>{_shown(view.title, language)}</h2>\n" if view.title is not None else ""
    return f"<section>{title}" + "\n".join(fragment(item, language) for item in view.items) + "</section>"


def _table(view: Table, language: str) -> str:
    caption = f"<caption>{_shown(view.caption, language)}</caption>" if view.caption is not None else ""
    titles = "".join(
        f"<th{_classes(column)}>{_shown(column.label, language)}</th>" for column in view.columns
    )
    head = f"<thead><tr>{titles}</tr></thead>" if view.has_header else ""
    rows = "\n".join(
        "<tr>"
        + "".join(_cell(cell, column, language) for cell, column in zip(row, view.columns, strict=True))
        + "</tr>"
        for row in view.rows
    )
    return f'<div class="r-table"><table>{caption}{head}<tbody>\n{rows}\n</tbody></table></div>'


def _classes(column: Column) -> str:
    names = [
        name for name, is_on in (("right", column.align == "right"), ("whole", not column.can_wrap)) if is_on
    ]
    return f' class="{" ".join(names)}"' if names else ""


def _cell(cell: Cell, column: Column, language: str) -> str:
    if isinstance(cell, Meter):
        text = units.of_limit(cell.value, cell.limit, cell.unit)
        value = min(cell.value, cell.limit)
        inner = f'<meter min="0" max="{cell.limit:g}" value="{value:g}"></meter><br>{escape(text)}'
    elif cell is None:
        inner = units.DASH
    elif isinstance(cell, (int, float)):
        inner = escape(units.quantity(cell, column.unit))
    else:
        inner = _shown(cell, language)
    return f"<td{_classes(column)}>{inner}</td>"


def _bars(view: Bars, language: str) -> str:
    return _figure(view.title, svg.bars(view, language), language)


def _chart(view: Chart, language: str) -> str:
    return _figure(view.title, svg.chart(view, language), language)


def _figure(title: Content | None, drawing: str, language: str) -> str:
    caption = f"<h2>{_shown(title, language)}</h2>" if title is not None else ""
    return f"<figure>{caption}{drawing}</figure>"
