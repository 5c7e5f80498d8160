"""Write docs/accuracy.md and its plots: what `raceline accuracy` computes, as a page.

    python tools/accuracy.py            print the page
    python tools/accuracy.py --write    write docs/accuracy.md and docs/accuracy/*.svg
    python tools/accuracy.py --refit    fit the constants of every fold anew first (minutes)

Ends with 1 where a report of fit.yaml is judged wrong and docs/fit_misses.yaml gives no reason.
"""

from __future__ import annotations

import datetime
import importlib
import json
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from raceline import api
from raceline.accuracy.floors import Floor, floors
from raceline.accuracy.plots import plots
from raceline.accuracy.report import GroupScore, Report, Slice, report_of, slices_of
from raceline.accuracy.result import Scored, Scores, Verdict
from raceline.accuracy.score import score_published
from raceline.accuracy.totals import errors_of, standing
from raceline.accuracy.totals import left_out as way_of
from raceline.accuracy.view import bar_text, factor, figure, group_name, headline, met, shown, signed, why
from raceline.evidence import published
from raceline.models.read import read_listed
from raceline.present.documents import load_yaml
from raceline.present.text import content

DOCS = Path(__file__).resolve().parent.parent / "docs"
WORST = 30
ALT = {
    "predicted.svg": "Predicted against measured, by group",
    "accelerators.svg": "Error by accelerator",
    "sizes.svg": "Error by model size",
}
# How wide a range should be at most over its group's median error, and what it should hold at least.
WIDEST, LEAST_INSIDE = 2.6, 0.65
INTRO = """\
How far the estimates are from runs that others measured and published. `raceline accuracy` computes this page anew;
`raceline accuracy FILE` scores rows of your own in the same formats, and `--by source`, `accelerator`, `model`,
`task` or `framework` breaks the errors down."""
HOW = """\
- A row of a published table becomes a scenario, the same that `raceline estimate` takes. What the source doesn't say
  is filled in by fixed rules and listed with the row. The figure that the source measured is compared with the
  estimate's: error = predicted / measured − 1.
- The physics has constants that are fitted on these rows. So that no row predicts itself, each is predicted by
  constants that were fitted without its *source*: all rows of that publication, in every table. A group with fewer
  than 3 sources of 5 rows or more is scored in two other ways: without the row's *model family*, and without its
  *accelerator*. Both are shown, and a bar holds for the worse.
- *median* is over all values, each with the same weight; *of sources* is the median over the medians of the sources,
  so that a source with many rows doesn't decide alone. A bar holds for the worse of the two.
- *in sample* is the error of the same values with constants that were fitted on them too. It is no measure of what to
  expect; the distance to the other figures shows how much the fit leans on single sources.
- *bias* is the median of predicted / measured, less 1. *p90* is the error that 90 % of the values stay below.
- The 80 % range of a value comes from the errors of other folds, never from its own. *inside* is the share of values in
  their range. *width*: a range goes from the middle ÷ (1 + width) to the middle × (1 + width); the median is shown,
  and how many times the median error it is."""


def page(
    scores: Scores, found: Report, lowest: Sequence[Floor], peers: Any, reasons: Mapping[str, str]
) -> str:
    """The whole page as Markdown."""
    parts = [
        "# Accuracy",
        INTRO,
        f"**{content(headline(found))}**, {found.sources} sources. Written by `make accuracy` on "
        f"{datetime.date.today()}.",
        *errors_part(found),
        *missed_part(found, load_yaml(DOCS / "bars_missed.yaml")),
        *ranges_part(found),
        wide_part(scores.scored),
        *fit_part(found, reasons),
        *unscored_part(found),
        "## How it is scored",
        HOW,
        *peers_part(found, peers),
        *floors_part(found, lowest),
        *slices_part(scores),
        *worst_part(found),
        *formats_part(),
    ]
    return "\n\n".join(map(wrapped, parts)) + "\n"


def wrapped(part: str) -> str:
    """Prose in lines of at most 120 characters; tables, lists and what is wrapped already stay as they are."""
    is_prose = "\n" not in part and part[0] not in "|#-!<"
    return textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) if is_prose else part


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; a column that starts with `>` is aligned right."""
    names = [name.lstrip(">") for name in columns]
    rule = ["---:" if name.startswith(">") else "---" for name in columns]
    lines = [names, rule, *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: object) -> str:
    """A cell's text, which must not end the cell or the line."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(text.replace("|", "\\|").split())


def name_of(group: str) -> str:
    """A group's name in words."""
    return content(group_name(group))


def errors_part(found: Report) -> list[str]:
    """Every group beside its bar, and the plots."""
    rows = [
        (
            name_of(item.group), item.errors.values, item.runs, item.errors.sources, left_out(item),
            figure(item.errors.median), figure(item.errors.median_of_sources), figure(item.p90),
            f"{figure(item.in_sample_median)}, {figure(item.in_sample_p90)}", bar_text(item) or "–",
        )
        for item in found.groups
    ]  # fmt: skip
    columns = ("group", ">values", ">runs", ">sources", "left out", ">median", ">of sources", ">p90",
               ">in sample: median, p90", ">bar: median / p90")  # fmt: skip
    return [
        "## Errors by group",
        "A bar is what we hold ourselves to: ✓ it holds, ✗ it doesn't, – none is set.",
        table(columns, rows),
        *(f"![{text}](accuracy/{name})" for name, text in ALT.items()),
    ]


def left_out(item: GroupScore) -> str:
    """What was left out, and in how many turns."""
    words = {"source": "one source", "family": "one model family", "accelerator": "one accelerator"}
    return "; ".join(f"{words.get(fold.left_out, fold.left_out)} of {fold.folds}" for fold in item.folds)


def ranges_part(found: Report) -> list[str]:
    """How often ranges hold the measured value, and how wide they are."""
    rows: list[tuple[object, ...]] = []
    for item in found.groups:
        for fold in item.folds:
            errors = fold.errors
            rows.append(
                (
                    name_of(item.group), fold.left_out, figure(errors.mean), signed(errors.bias), figure(errors.inside),
                    met(item.is_range_met) or "–", f"± {figure(errors.half_width)}", times(errors.width_to_error),
                )
            )  # fmt: skip
    if found.errors is not None:
        errors = found.errors
        rows.append(
            (
                "**all**", "", figure(errors.mean), signed(errors.bias), figure(errors.inside), met(found.is_range_met),
                f"± {figure(errors.half_width)}", times(errors.width_to_error),
            )
        )  # fmt: skip
    columns = ("group", "left out", ">mean error", ">bias", ">inside", "", ">width", ">width / median error")
    return [
        "## Ranges",
        "The range of an estimate should hold 80 % of measured values: 75–88 % of all, and 65–95 % in every group of "
        "30 values or more.",
        table(columns, rows),
    ]


def wide_part(scored: Sequence[Scored]) -> str:
    """Which groups' ranges are wider than is wanted, and what they would hold if they were cut to it."""
    held, wide, poor = 0, [], []
    for (group, way), items in grouped_ways(scored).items():
        errors = errors_of(items)
        ratio = errors.width_to_error or 0.0
        factor = min(1.0, math.log1p(WIDEST * errors.median) / math.log1p(errors.half_width))
        inside = sum(_holds(item, factor) for item in items)
        held += inside
        if ratio > WIDEST:
            wide.append(f"{name_of(group)} ({way})")
        if inside < LEAST_INSIDE * len(items):
            poor.append(f"{name_of(group)} ({way})")
    return (
        f"A range is wanted at most {WIDEST} times as wide to each side as the group's median error. These are wider: "
        f"{', '.join(wide)}. Their errors have long tails: cut to that width, the ranges would hold "
        f"{figure(held / len(scored))} of all values, and less than {figure(LEAST_INSIDE)} of {', '.join(poor)}. We "
        "keep what they hold."
    )


def grouped_ways(scored: Sequence[Scored]) -> dict[tuple[str, str], list[Scored]]:
    """Predictions by group and by what is left out."""
    found: dict[tuple[str, str], list[Scored]] = {}
    for item in scored:
        found.setdefault((item.group, way_of(item)), []).append(item)
    return found


def _holds(item: Scored, factor: float) -> bool:
    """Whether a range narrowed by `factor` (of its logarithm) holds the measured value."""
    low = item.predicted * (item.low / item.predicted) ** factor
    return low <= item.measured <= item.predicted * (item.high / item.predicted) ** factor


def times(value: float | None) -> str:
    """A ratio, or a dash."""
    return "–" if value is None else f"{value:.1f} ×"


def fit_part(found: Report, reasons: Mapping[str, str]) -> list[str]:
    """Verdicts on whether a run fits, and every one that was wrong or tight."""
    if not found.fit:
        return []
    rows = [
        (
            item.table or "**all**", item.reports, item.right, figure(item.right_share), item.tight,
            figure(item.tight_share), item.false_no, figure(item.false_no_share), item.false_yes,
            "" if item.table else met(item.is_met),
        )
        for item in found.fit
    ]  # fmt: skip
    columns = ("table", ">reports", ">right", ">of yes and no", ">tight", ">of all", ">false no", ">of those that ran",
               ">false yes", "")  # fmt: skip
    misses = [
        (
            f"[{item.id}]({item.source_url})", item.model, item.accelerator, "fitted" if item.ran else "did not fit",
            item.said, f"{item.needed_gib:.1f} / {item.limit_gib:.1f}", reason_of(item, reasons) or "not known",
        )
        for item in sorted(found.fit_misses, key=lambda item: (item.table, item.said, item.id))
    ]  # fmt: skip
    head = ("report", "model", "accelerator", "it", "we say", ">needs / has, GiB", "why")
    return [
        "## Does it fit",
        "Reports of whether a run fitted its hardware. The bars: at least 95 % right where we say yes or no, at most "
        "12 % tight, a false “no” on at most 2 % of the runs that ran.",
        table(columns, rows),
        f"<details><summary>The {len(misses)} verdicts that were wrong or tight</summary>",
        table(head, misses),
        "</details>",
    ]


def missed_part(found: Report, reasons: Mapping[str, str]) -> list[str]:
    """The bars that are missed, and what keeps us from them. A missed bar without a line is an error."""
    missed = [item.group for item in found.groups if item.is_met is False]
    if unexplained := [group for group in missed if group not in reasons]:
        raise SystemExit(f"missed bars without a line in bars_missed.yaml: {', '.join(unexplained)}")
    lines = [f"- **{name_of(group)}**: {reasons[group]}" for group in missed]
    return ["## Bars that are missed", "\n".join(lines)] if lines else []


def reason_of(item: Verdict, reasons: Mapping[str, str]) -> str:
    """Why a verdict is wrong, where that is known."""
    return reasons.get(item.id) or item.reason or ""


def unscored_part(found: Report) -> list[str]:
    """What can't be scored, by rule."""
    rows = [
        (item.rule.rpartition(".")[2], item.rows, figure(item.share), unscored_reason(item.rule, item.reason))
        for item in found.unscored
    ]
    return [
        "## What is not scored",
        f"{figure(found.unscored_share)} of the {found.rows:,} rows of the tables can't be scored. The rules look at "
        "what a row says, never at how well it is predicted.",
        table(("rule", ">rows", ">share", "why"), rows),
    ]


def unscored_reason(rule: str, reason: str) -> str:
    """A rule's reason; a refusal tells that of its first row."""
    return f"`estimate` refuses the scenario, such as: {reason}" if "." in rule else reason or rule


def formats_part() -> list[str]:
    """What a file of one's own must have."""
    rows = [
        (
            f"`{name}`",
            ", ".join(f"`{column}`" for column in sorted(columns(name) - {"id", "source", "source_url"})),
        )
        for name in published.FORMATS
    ]
    return [
        "## Rows of your own",
        "`raceline accuracy FILE` reads CSV files with the columns of one of these formats, all others may be added; "
        "cells may be empty where a figure was not measured. `id`, `source` and `source_url` may be left out. A YAML "
        "file holds reports of whether runs fitted, as `fit.yaml` does. Rows that are not among the published ones are "
        "predicted by the constants that ship. The command ends with 2 where a file can't be read, and with 1 where no "
        "row can be scored.",
        table(("format", "columns that it must have"), rows),
    ]


def columns(name: str) -> frozenset[str]:
    """The columns by which a format is known."""
    found: frozenset[str] = importlib.import_module(f"raceline.evidence.adapters.{name}").COLUMNS
    return found


def peers_part(found: Report, peers: Any) -> list[str]:
    """Other tools on the same rows."""
    if not peers:
        return []
    ours = {item.group: item for item in found.groups}
    rows = [
        (
            name_of(item["group"]) if item["group"] in ours else item["group"], f"{item['peer']} {item['version']}",
            item["rows"], item.get("answered", item["rows"]), figure(item.get("median")), figure(item.get("p90")),
            figure(item.get("right")), *ours_beside(ours.get(item["group"]), found, item["group"]),
            item.get("note") or "",
        )
        for item in sorted(peers, key=lambda item: (order_of(item["group"], found), item["peer"]))
    ]  # fmt: skip
    columns = ("group", "tool", ">rows", ">answered", ">median", ">p90", ">right", ">ours: median", ">p90", ">right",
               "note")  # fmt: skip
    return [
        "## Other tools on the same rows",
        "The same scenarios were given to other estimators. Their figures are of the rows that they answer; ours, out "
        "of sample, are of all rows of the group.",
        table(columns, rows),
    ]


def ours_beside(item: GroupScore | None, found: Report, group: str) -> tuple[str, str, str]:
    """Our median, 90th percentile and share of right verdicts for a peer's row."""
    right = figure(found.fit[0].right_share) if group == "fit" and found.fit else "–"
    return (figure(item.errors.median), figure(item.p90), right) if item else ("–", "–", right)


def order_of(group: str, found: Report) -> int:
    """The place of a group on this page."""
    names = [item.group for item in found.groups]
    return names.index(group) if group in names else len(names)


def floors_part(found: Report, lowest: Sequence[Floor]) -> list[str]:
    """What no estimate can go below."""
    ours = {item.group: figure(item.errors.median) for item in found.groups}
    rows = [
        (
            name_of(item.group), item.scenarios, item.values, figure(item.spread), item.across,
            figure(item.spread_across), figure(item.error), ours.get(item.group, "–"),
        )
        for item in lowest
    ]  # fmt: skip
    columns = ("group", ">scenarios", ">values", ">largest / smallest − 1", ">by several sources",
               ">largest / smallest − 1", ">least median error", ">ours")  # fmt: skip
    return [
        "## How close one can get",
        "Some runs were published more than once, with the same settings as far as the sources say. How far their "
        "figures lie apart is what no estimate from these settings can explain. *least median error* is that of an "
        "estimate which knows the scenario and answers with the middle of its measured values.",
        table(columns, rows),
    ]


def slices_part(scores: Scores) -> list[str]:
    """By framework and by accelerator, the most common ones."""
    chosen = standing(scores.scored)
    parts = ["## By framework and accelerator"]
    for by in ("framework", "accelerator"):
        parts.append(table(SLICE_COLUMNS[by], map(slice_row, slices_of(chosen, by)[:25])))
    return parts


SLICE_COLUMNS = {
    by: (by, ">values", ">sources", ">median", ">of sources", ">p90", ">bias", ">inside")
    for by in ("framework", "accelerator")
}


def slice_row(item: Slice) -> tuple[object, ...]:
    """The figures of one slice."""
    errors = item.errors
    return (
        item.name, errors.values, errors.sources, figure(errors.median), figure(errors.median_of_sources),
        figure(errors.p90), signed(errors.bias), figure(errors.inside),
    )  # fmt: skip


def worst_part(found: Report) -> list[str]:
    """The values that are furthest off."""
    rows = [
        (
            f"[{item.id}]({item.source_url})", name_of(item.group), item.model, item.accelerator,
            shown(item, item.measured), shown(item, item.predicted), factor(item), content(why(item)),
        )
        for item in found.worst
    ]  # fmt: skip
    columns = ("row", "group", "model", "accelerator", ">measured", ">predicted", ">off by", "why")
    return ["## Furthest off", table(columns, rows)]


def lowest_of(scores: Scores) -> tuple[Floor, ...]:
    """The floors of the published rows that are scored."""
    groups = {(item.id, item.metric): item.group for item in scores.scored}
    rows = (row for name in published.tables() for row in published.rows(name))
    return floors(rows, groups)


def written(scores: Scores, lowest: Sequence[Floor], docs: Path = DOCS) -> tuple[str, Report]:
    """The page of some scores, with the reasons and the peers that stand under `docs`."""
    found = report_of(scores, worst=WORST)
    peers = docs / "results" / "peers.json"
    reasons = load_yaml(docs / "fit_misses.yaml") or {}
    known = json.loads(peers.read_bytes()) if peers.is_file() else []
    return page(scores, found, lowest, known, reasons), found


def silent(found: Report, docs: Path = DOCS) -> list[str]:
    """Reports of fit.yaml whose miss has no reason."""
    reasons = load_yaml(docs / "fit_misses.yaml") or {}
    wrong = [item for item in found.fit_misses if item.table == "fit" and item.said != "tight"]
    return [item.id for item in wrong if not reason_of(item, reasons)]


def main() -> None:
    """Print or write the page; exit 1 where a miss has no reason."""
    scores = score_published(api.load_catalogue(), cache(read_listed), refit="--refit" in sys.argv)
    text, found = written(scores, lowest_of(scores))
    if "--write" in sys.argv:
        (DOCS / "accuracy.md").write_text(text, encoding="utf-8")
        (DOCS / "accuracy").mkdir(exist_ok=True)
        for name, drawing in plots(scores).items():
            (DOCS / "accuracy" / name).write_text(drawing, encoding="utf-8")
    else:
        print(text)
    if missing := silent(found):
        raise SystemExit(f"misses without a reason in fit_misses.yaml: {', '.join(missing)}")


if __name__ == "__main__":
    main()
