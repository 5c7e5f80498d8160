"""What scoring gives: by group, by what a reader asks for, of fit verdicts and of what can't be scored."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from raceline.accuracy.groups import Bar, bars
from raceline.accuracy.result import Scored, Scores, Verdict
from raceline.accuracy.totals import Errors, errors_of, grouped, left_out, median, quantile, ranked, standing

By = Literal["source", "accelerator", "model", "task", "framework"]

# What an 80 % range should hold of the measured values: of all, and of each group that is large enough.
INSIDE = (0.75, 0.88)
INSIDE_GROUP = (0.65, 0.95)
GROUP_ENOUGH = 30
# Fit: least share right where it says yes or no, most tight, most false "no" of the runs that ran.
RIGHT, TIGHT, FALSE_NO = 0.95, 0.12, 0.02
# The rule of rows that have neither a figure nor a reason.
NO_FIGURE = "no_figure"
# Billions of parameters at which a size class ends.
SIZES_B = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """A group's totals where `left_out` (source, family, accelerator, or none) was left out of the fit, in
    `folds` turns."""

    left_out: str
    folds: int
    errors: Errors


class GroupScore(msgspec.Struct, frozen=True, kw_only=True):
    """A group. `folds`: what the bar leaves out first (`bar_fold`), else the further off; the first stands for
    the group. `in_sample_…`: the same values predicted by constants fitted with them. `is_met`: None where no bar
    is set; `is_range_met`: None where there are too few values to say."""

    group: str
    runs: int
    folds: tuple[Fold, ...]
    in_sample_median: float
    in_sample_p90: float
    bar_median: float | None
    bar_p90: float | None
    bar_fold: str | None
    peer: str | None
    is_met: bool | None
    is_range_met: bool | None

    @property
    def errors(self) -> Errors:
        """The totals that stand for the group."""
        return self.folds[0].errors

    @property
    def p90(self) -> float:
        """The worse 90th percentile, which the bar holds for."""
        held = self.folds[:1] if self.bar_fold else self.folds
        return max(fold.errors.p90 for fold in held)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one source, accelerator, model, group or framework."""

    name: str
    errors: Errors


class FitScore(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts on whether a run fits. `right_share`: of those that say yes or no; `false_no_share`: of the
    runs that ran; `is_met`: all three bars."""

    table: str
    reports: int
    right: int
    tight: int
    false_no: int
    false_yes: int
    right_share: float | None
    tight_share: float
    false_no_share: float | None
    is_met: bool


class UnscoredRule(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that can't be scored by one rule; `share` is of all rows of the tables."""

    rule: str
    reason: str
    rows: int
    share: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `raceline accuracy` answers. `unknown_values`: values of rows that are not among the published
    ones, so that the constants which ship predict them; `worst`: furthest off by factor, up or down."""

    rows: int
    runs: int
    values: int
    unknown_values: int
    sources: int
    errors: Errors | None
    is_range_met: bool | None
    in_sample_median: float | None
    groups: tuple[GroupScore, ...]
    fit: tuple[FitScore, ...]
    fit_misses: tuple[Verdict, ...]
    unscored: tuple[UnscoredRule, ...]
    unscored_share: float
    by: str | None
    slices: tuple[Slice, ...]
    worst: tuple[Scored, ...]
    seconds: float
    schema: str = "raceline.accuracy/1"


def score_group(bar: Bar, scored: Sequence[Scored]) -> GroupScore:
    """The totals of one group."""
    ways = ranked(scored)
    folds = tuple(
        Fold(left_out=way, folds=len({item.fold for item in part}), errors=errors_of(part))
        for way, part in ways
    )
    folds = tuple(sorted(folds, key=lambda fold: fold.left_out != bar.fold))
    within = [abs(item.in_sample / item.measured - 1.0) for item in ways[0][1]]
    return GroupScore(
        group=bar.group,
        runs=len({item.id for item in scored}),
        folds=folds,
        in_sample_median=median(within),
        in_sample_p90=quantile(within, 0.9),
        bar_median=bar.median,
        bar_p90=bar.p90,
        bar_fold=bar.fold,
        peer=bar.peer,
        is_met=is_bar_met(bar, [fold.errors for fold in folds if bar.fold in (None, fold.left_out)]),
        is_range_met=_is_range_met([fold.errors for fold in folds], INSIDE_GROUP, GROUP_ENOUGH),
    )


def is_bar_met(bar: Bar, errors: Sequence[Errors]) -> bool | None:
    """Whether the median (pooled and over sources) and the 90th percentile stay below the bar in every way
    of leaving out."""
    if bar.median is None:
        return None
    is_median_met = all(item.worse_median <= bar.median for item in errors)
    return is_median_met and (bar.p90 is None or all(item.p90 <= bar.p90 for item in errors))


def _is_range_met(errors: Sequence[Errors], bounds: tuple[float, float], enough: int) -> bool | None:
    if errors[0].values < enough:
        return None
    return all(bounds[0] <= item.inside <= bounds[1] for item in errors)


def score_groups(scored: Sequence[Scored]) -> tuple[GroupScore, ...]:
    """All groups, in the order of the bars; groups that no bar names come last."""
    by_group = grouped(scored, lambda item: item.group)
    known = {bar.group: bar for bar in bars()}
    names = [name for name in known if name in by_group] + sorted(by_group.keys() - known.keys())
    return tuple(score_group(known.get(name, Bar(name, None, None, None)), by_group[name]) for name in names)


KEYS: Mapping[str, Callable[[Scored], str]] = {
    "source": lambda item: item.source,
    "accelerator": lambda item: item.accelerator or "?",
    "model": lambda item: item.model or "?",
    "task": lambda item: item.group,
    "framework": lambda item: item.framework or "?",
}


def slices_of(scored: Sequence[Scored], by: str) -> tuple[Slice, ...]:
    """Totals by a key, the one with the most values first."""
    parts = grouped(scored, KEYS[by])
    order = sorted(parts, key=lambda name: (-len(parts[name]), name))
    return tuple(Slice(name=name, errors=errors_of(parts[name])) for name in order)


def by_size(scored: Sequence[Scored]) -> tuple[Slice, ...]:
    """Totals by the model's size in billions of parameters; classes without values are left out."""
    edges = (0.0, *SIZES_B, math.inf)
    found = []
    for low, high in pairwise(edges):
        part = [item for item in scored if low < item.parameters_b <= high]
        if part:
            name = f"> {low:g} B" if math.isinf(high) else f"{low:g}–{high:g} B" if low else f"≤ {high:g} B"
            found.append(Slice(name=name, errors=errors_of(part)))
    return tuple(found)


def score_fit(verdicts: Sequence[Verdict], table: str = "") -> FitScore:
    """Counts of verdicts; at least one."""
    tight = sum(item.said == "tight" for item in verdicts)
    false_no = sum(item.said == "no" and item.ran for item in verdicts)
    false_yes = sum(item.said == "yes" and not item.ran for item in verdicts)
    clear, ran = len(verdicts) - tight, sum(item.ran for item in verdicts)
    right = clear - false_no - false_yes
    right_share = right / clear if clear else None
    tight_share, false_no_share = tight / len(verdicts), false_no / ran if ran else None
    is_met = (right_share or 0.0) >= RIGHT and tight_share <= TIGHT and (false_no_share or 0.0) <= FALSE_NO
    return FitScore(
        table=table, reports=len(verdicts), right=right, tight=tight, false_no=false_no, false_yes=false_yes,
        right_share=right_share, tight_share=tight_share, false_no_share=false_no_share, is_met=is_met,
    )  # fmt: skip


def is_miss(item: Verdict) -> bool:
    """Whether the verdict is tight or wrong."""
    return item.said != ("yes" if item.ran else "no")


def _fit(verdicts: Sequence[Verdict]) -> tuple[FitScore, ...]:
    """All together under the empty name, then by table."""
    if not verdicts:
        return ()
    tables = sorted({item.table for item in verdicts})
    parts = [score_fit([item for item in verdicts if item.table == name], name) for name in tables]
    return (score_fit(verdicts), *parts)


def _unscored(scores: Scores) -> tuple[UnscoredRule, ...]:
    """By rule, the one with the most rows first; rows of which nothing is heard stand under NO_FIGURE."""
    ids: dict[str, set[tuple[str, str]]] = defaultdict(set)
    reasons: dict[str, str] = {}
    for item in scores.unscored:
        ids[item.rule].add((item.table, item.id))
        reasons.setdefault(item.rule, item.reason)
    counts = {rule: len(found) for rule, found in ids.items()}
    heard = _runs(scores) | {(item.table, item.id) for item in scores.unscored}
    if scores.rows > len(heard):
        counts[NO_FIGURE] = scores.rows - len(heard)
    order = sorted(counts, key=lambda rule: (-counts[rule], rule))
    return tuple(
        UnscoredRule(
            rule=rule, reason=reasons.get(rule, ""), rows=counts[rule], share=counts[rule] / scores.rows
        )
        for rule in order
    )


def _runs(scores: Scores) -> set[tuple[str, str]]:
    """Table and id of every row with a figure or a verdict."""
    verdicts = {(item.table, item.id) for item in scores.verdicts}
    return verdicts | {(item.table, item.id) for item in scores.scored}


def report_of(scores: Scores, by: By | None = None, worst: int = 10) -> Report:
    """The totals of some scores."""
    chosen = standing(scores.scored)
    errors = errors_of(chosen) if chosen else None
    within = [abs(item.in_sample / item.measured - 1.0) for item in chosen]
    far = sorted(chosen, key=lambda item: -abs(math.log(item.predicted / item.measured)))
    unscored = _unscored(scores)
    return Report(
        rows=scores.rows,
        runs=len(_runs(scores)),
        values=len(chosen),
        unknown_values=sum(left_out(item) == "none" for item in chosen),
        sources=len({item.source for item in scores.scored} | {item.source for item in scores.verdicts}),
        errors=errors,
        is_range_met=_is_range_met([errors], INSIDE, GROUP_ENOUGH) if errors else None,
        in_sample_median=median(within) if within else None,
        groups=score_groups(scores.scored),
        fit=_fit(scores.verdicts),
        fit_misses=tuple(item for item in scores.verdicts if is_miss(item)),
        unscored=unscored,
        unscored_share=sum(item.rows for item in unscored) / max(scores.rows, 1),
        by=by,
        slices=slices_of(chosen, by) if by else (),
        worst=tuple(far[:worst]),
        seconds=scores.seconds,
    )
