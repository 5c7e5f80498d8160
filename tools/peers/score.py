"""What a peer's answers are worth: the same totals as raceline's own, by group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from tools.peers.case import Case

from raceline.accuracy.totals import median, quantile


class PeerResult(msgspec.Struct, frozen=True, kw_only=True):
    """A peer in one group. `rows`: measured values that it was scored on, `answered`: those it has a figure
    for. `median`, `mean` and `p90` are of |predicted / measured - 1|, `bias` is the median of predicted /
    measured, less 1; None where nothing was answered and for `fit`. `right`: the share of the
    verdicts of `fit` that hold."""

    peer: str
    version: str
    group: str
    rows: int
    answered: int
    median: float | None
    mean: float | None
    p90: float | None
    bias: float | None
    right: float | None
    note: str
    date: str


def result(
    peer: str, version: str, note: str, date: str, group: str, cases: Sequence[Case],
    answers: Mapping[str, float], refusals: Mapping[str, str],
) -> PeerResult:  # fmt: skip
    """The totals of one group."""
    found = [(case, answers[key(case)]) for case in cases if is_figure(answers.get(key(case)))]
    ratios = [said / case.measured for case, said in found] if group != "fit" else []
    verdicts = [_is_right(case, said) for case, said in found] if group == "fit" else []
    errors = [abs(ratio - 1.0) for ratio in ratios]
    reasons = Counter(refusals[key(case)] for case in cases if key(case) in refusals)
    not_answered = "; ".join(f"{reason} ({times})" for reason, times in reasons.most_common(4))
    notes = [
        note,
        _verdicts(found) if group == "fit" and found else "",
        not_answered and f"not answered: {not_answered}",
    ]
    return PeerResult(
        peer=peer,
        version=version,
        group=group,
        rows=len(cases),
        answered=len(found),
        median=_rounded(median(errors)) if errors else None,
        mean=_rounded(sum(errors) / len(errors)) if errors else None,
        p90=_rounded(quantile(errors, 0.9)) if errors else None,
        bias=_rounded(median(ratios) - 1.0) if ratios else None,
        right=_rounded(sum(verdicts) / len(verdicts)) if verdicts else None,
        note=". ".join(part for part in notes if part),
        date=date,
    )


def key(case: Case) -> str:
    """A case's name among the answers."""
    return f"{case.id}:{case.metric}"


def is_figure(said: float | None) -> bool:
    """Whether it is a number that can be compared."""
    return said is not None and math.isfinite(said) and said > 0


def _is_right(case: Case, needed_gib: float) -> bool:
    return (needed_gib <= case.device.memory_gib) == bool(case.measured)


def _verdicts(found: Sequence[tuple[Case, float]]) -> str:
    """How the verdicts fall: a peer that always says that it fits is right wherever it did."""
    failed = [pair for pair in found if not pair[0].measured]
    caught = sum(_is_right(case, said) for case, said in failed)
    ran = len(found) - len(failed)
    held = sum(_is_right(case, said) for case, said in found if case.measured)
    return f"ran: {held} of {ran} said so; out of memory: {caught} of {len(failed)} said so"


def _rounded(value: float) -> float:
    return round(value, 4)
