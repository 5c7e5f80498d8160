"""A report of accuracy as a screen: the headline, the bars' table, then ranges, fit, what is left out, the worst."""

from __future__ import annotations

from raceline.accuracy.report import NO_FIGURE, FitScore, GroupScore, Report, UnscoredRule
from raceline.accuracy.result import Scored, Verdict
from raceline.accuracy.totals import Errors
from raceline.present.errors import Message, message
from raceline.present.text import has_text, word
from raceline.present.units import DASH, quantity, unit_of
from raceline.present.views import Cell, Column, Group, Heading, Table, Text, View

MOST_SLICES = 30
MOST_MISSES = 10
MOST_RULES = 12
_RATES = {"tokens_per_s_per_device": "tokens_per_s", "samples_per_s_per_device": "samples_per_s"}


def accuracy_view(report: Report) -> View:
    """The screen of `raceline accuracy`."""
    items: list[View] = [Heading(headline(report), aside=message("accuracy.took", time_s=report.seconds))]
    if report.errors is not None:
        items.append(Text(message("accuracy.how_error")))
        if report.unknown_values < report.values:
            items.append(Text(message("accuracy.how_left_out")))
    if report.slices and report.by != "task":
        items.append(slices_table(report))
    elif report.groups:
        items.append(groups_table(report.groups))
        items.append(ranges_table(report))
    if report.fit:
        items.append(fit_table(report.fit))
    if report.unscored:
        items.append(unscored_table(report))
    if report.worst:
        items.append(worst_list(report.worst))
    if report.fit_misses:
        items.append(misses_list(report.fit_misses))
    return Group(tuple(items))


def headline(report: Report) -> Message:
    """How much was measured by whom, and whether it was used to predict itself."""
    given = {"values": report.values, "runs": report.runs, "sources": report.sources}
    if not report.values:
        return message("accuracy.headline_verdicts" if report.fit else "accuracy.headline_nothing", **given)
    if report.unknown_values == report.values:
        return message("accuracy.headline_own", **given)
    if report.unknown_values:
        return message("accuracy.headline_mixed", **given, unknown=report.unknown_values)
    return message("accuracy.headline", **given)


def group_name(group: str) -> Message | str:
    """A group's name in words."""
    return message(f"accuracy.group_{group.replace('-', '_')}")


def figure(value: float | None) -> str:
    """A share of 1 as percent: one decimal below 10."""
    if value is None:
        return DASH
    digits = 1 if abs(value) < 0.0995 else 0
    return f"{100 * value + 0.0:.{digits}f} %"


def signed(value: float) -> str:
    """Percent with its sign."""
    text = figure(value)
    return "0 %" if text in ("0.0 %", "-0.0 %") else f"+{text}" if value > 0 else text


def met(is_met: bool | None) -> str:
    """A tick, a cross, or nothing where there is no bar."""
    return "" if is_met is None else "✓" if is_met else "✗"


def bar_text(group: GroupScore) -> str:
    """What the median and the 90th percentile should be at most, and whether they are: ``10 / 25 % ✓``."""
    if group.bar_median is None:
        return ""
    percentile = f" / {100 * group.bar_p90:.0f}" if group.bar_p90 is not None else ""
    return f"{100 * group.bar_median:.0f}{percentile} % {met(group.is_met)}"


def groups_table(groups: tuple[GroupScore, ...]) -> Table:
    """Every group beside its bar."""
    rows: list[tuple[Cell, ...]] = [
        (
            group_name(item.group), item.errors.values, figure(item.errors.median),
            figure(item.errors.median_of_sources), figure(item.p90), in_sample(item),
            bar_text(item),
        )
        for item in groups
    ]  # fmt: skip
    columns = (
        _group_column(), _number("values"), _number("median"), _number("of_sources"), _number("p90"),
        _number("in_sample"), Column(message("accuracy.column_bar"), align="right", can_wrap=False),
    )  # fmt: skip
    return Table(columns, tuple(rows), caption=message("accuracy.caption_groups"))


def in_sample(item: GroupScore) -> str:
    """The median where the group's own values were fitted; a dash where they never are."""
    return DASH if item.folds[0].left_out == "none" else figure(item.in_sample_median)


def ranges_table(report: Report) -> Table:
    """Bias, and how often a range holds the measured value and how wide it is, by what was left out."""
    rows: list[tuple[Cell, ...]] = []
    for item in report.groups:
        for at, fold in enumerate(item.folds):
            name = group_name(item.group) if at == 0 else ""
            cells = _range_cells(fold.errors, item.is_range_met if at == 0 else None)
            rows.append((name, left_out_text(fold.left_out), *cells))
    if report.errors is not None:
        rows.append((message("accuracy.all"), "", *_range_cells(report.errors, report.is_range_met)))
    columns = (
        _group_column(), Column(message("accuracy.column_left_out"), can_wrap=False), _number("mean"), _number("bias"),
        _number("inside"), _number("half_width"), _number("ratio"),
    )  # fmt: skip
    return Table(columns, tuple(rows), caption=message("accuracy.caption_ranges"))


def left_out_text(left_out: str) -> tuple[Message, ...]:
    """What was left out of the fit, in words."""
    return tuple(message(f"accuracy.left_out_{name}") for name in left_out.split(" + "))


def _range_cells(errors: Errors, is_met: bool | None) -> tuple[Cell, ...]:
    ratio = errors.width_to_error
    return (
        figure(errors.mean),
        signed(errors.bias),
        f"{figure(errors.inside)} {met(is_met) or ' '}",
        f"± {figure(errors.half_width)}",
        DASH if ratio is None else f"{ratio:.1f} ×",
    )


def slices_table(report: Report) -> Group:
    """Totals by what the reader asked for."""
    shown = report.slices[:MOST_SLICES]
    rows: list[tuple[Cell, ...]] = [
        (
            item.name,
            item.errors.values,
            figure(item.errors.median),
            figure(item.errors.mean),
            figure(item.errors.p90),
            signed(item.errors.bias),
            figure(item.errors.inside),
            f"± {figure(item.errors.half_width)}",
        )
        for item in shown
    ]
    columns = (
        Column(message(f"accuracy.by_{report.by}")), _number("values"), _number("median"), _number("mean"),
        _number("p90"), _number("bias"), _number("inside"), _number("half_width"),
    )  # fmt: skip
    table: View = Table(columns, tuple(rows))
    left = len(report.slices) - len(shown)
    more = (Text(message("accuracy.more", count=left), tone="note"),) if left else ()
    return Group((table, *more))


def fit_table(fit: tuple[FitScore, ...]) -> Table:
    """Whether it fits: all reports together, then by table."""
    rows: list[tuple[Cell, ...]] = [
        (
            item.table or message("accuracy.all"), item.reports, figure(item.right_share),
            figure(item.tight_share), item.false_no, item.false_yes, "" if item.table else met(item.is_met),
        )
        for item in (fit if len(fit) > 2 else fit[:1])
    ]  # fmt: skip
    columns = (
        Column(message("accuracy.column_table")), _number("reports"), _number("right"), _number("tight"),
        _number("false_no"), _number("false_yes"), Column("", can_wrap=False),
    )  # fmt: skip
    return Table(columns, tuple(rows), caption=message("accuracy.caption_fit"))


def unscored_table(report: Report) -> Table:
    """Rows that can't be scored, by rule."""
    rows: list[tuple[Cell, ...]] = [
        (_rule(item), item.rows, figure(item.share)) for item in report.unscored[:MOST_RULES]
    ]
    if others := report.unscored[MOST_RULES:]:
        told = message("accuracy.rules_more", count=len(others))
        rows.append((told, sum(item.rows for item in others), figure(sum(item.share for item in others))))
    columns = (Column(message("accuracy.column_why")), _number("rows"), _number("share"))
    caption = message("accuracy.caption_unscored", unscored_fraction=report.unscored_share, rows=report.rows)
    return Table(columns, tuple(rows), caption=caption)


def _rule(item: UnscoredRule) -> Message | str:
    """A rule's reason; a refusal (an id of a message) tells that of its first row."""
    if item.rule == NO_FIGURE:
        return message("accuracy.no_figure")
    return message("accuracy.refused", reason=item.reason) if "." in item.rule else item.reason or item.rule


def worst_list(worst: tuple[Scored, ...]) -> Group:
    """The values that are furthest off, with what is known of why."""
    lines: list[View] = []
    for item in worst:
        named = message(
            "accuracy.worst", factor=factor(item), id=item.id, model=item.model or "?",
            accelerator=item.accelerator or "?", measured=shown(item, item.measured),
            predicted=shown(item, item.predicted),
        )  # fmt: skip
        lines += [Text(named), Text(why(item), tone="note", indent=4)]
    return Group(tuple(lines), title=message("accuracy.caption_worst"))


def shown(item: Scored, value: float) -> str:
    """A value in the unit of its metric."""
    return quantity(value, _RATES.get(item.metric) or unit_of(item.metric))


def factor(item: Scored) -> str:
    """How many times too high (×) or too low (÷)."""
    ratio = item.predicted / item.measured
    return f"× {quantity(ratio)}" if ratio >= 1 else f"÷ {quantity(1 / ratio)}"


def why(item: Scored) -> Message | str:
    """The known reason, else what had to be assumed."""
    if item.reason:
        return caution(item.reason)
    if item.assumed:
        return message("accuracy.assumed", settings=", ".join(item.assumed))
    return message("accuracy.unknown")


def caution(reason: str) -> Message | str:
    """What the evidence says of a row that may mislead: a word for a caution, or a text as it is."""
    told = f"accuracy.doubt_{reason}"
    return message(told) if has_text(told) else reason


def misses_list(misses: tuple[Verdict, ...]) -> Group:
    """Fit verdicts that were tight or wrong: false "no" first, then false "yes", then tight."""
    order = sorted(misses, key=lambda item: ("no", "yes", "tight").index(item.said))
    lines: list[View] = []
    for item in order[:MOST_MISSES]:
        told = message(
            f"accuracy.miss_{'ran' if item.ran else 'failed'}", id=item.id, said=word(item.said),
            model=item.model or "?", accelerator=item.accelerator or "?", needed_gib=item.needed_gib,
            limit_gib=item.limit_gib,
        )  # fmt: skip
        reason = caution(item.reason) if item.reason else message("accuracy.unknown")
        lines += [Text(told), Text(reason, tone="note", indent=4)]
    left = len(misses) - MOST_MISSES
    more = (Text(message("accuracy.more", count=left), tone="note"),) if left > 0 else ()
    return Group((*lines, *more), title=message("accuracy.caption_misses", count=len(misses)))


def _number(name: str) -> Column:
    return Column(message(f"accuracy.column_{name}"), align="right")


def _group_column() -> Column:
    return Column(message("accuracy.column_group"), can_wrap=False)
