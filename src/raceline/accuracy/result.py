"""What scoring gives: one record for each measured value, and the totals of groups."""

from __future__ import annotations

import msgspec


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value beside its prediction. `fold`: what was left out when the constants behind `predicted`
    were fitted, as kind=name (`source=…`, `family=…`, `accelerator=…`), or `none` where the row is not among
    the evidence and the shipped constants predict it. `in_sample`: the prediction with the row's group left
    in, for comparison. `low` and `high`: the 80 % range, from residuals of other groups' rows. `reason`: why the
    row is far off, where that is known."""

    id: str
    table: str
    source: str
    source_url: str
    group: str
    metric: str
    model: str
    family: str
    accelerator: str
    framework: str
    parameters_b: float
    measured: float
    predicted: float
    low: float
    high: float
    in_sample: float
    fold: str
    assumed: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A report of whether a run fitted, beside what was said: yes, tight or no."""

    id: str
    table: str
    source: str
    source_url: str
    model: str
    accelerator: str
    framework: str
    ran: bool
    said: str
    needed_gib: float
    limit_gib: float
    reason: str | None = None


class Unscored(msgspec.Struct, frozen=True, kw_only=True):
    """A row that can't be scored, and the rule or the refusal that says why."""

    id: str
    table: str
    source: str
    rule: str
    reason: str


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that scoring some tables gives. `rows`: how many rows the tables have."""

    rows: int
    scored: tuple[Scored, ...]
    verdicts: tuple[Verdict, ...]
    unscored: tuple[Unscored, ...]
    seconds: float = 0.0
