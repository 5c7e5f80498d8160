"""Score the fit verdicts against published reports, and write docs/accuracy.md.

    python tools/accuracy.py            print the page
    python tools/accuracy.py --write    write docs/accuracy.md

The reports are found through RACELINE_CASES (default: the folder `shared` beside the checkout).
"""

from __future__ import annotations

import datetime
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from raceline import api
from raceline.estimate.result import Estimate
from raceline.evidence.fit_cases import FitCase, scenario_of
from raceline.present.documents import load_yaml
from raceline.present.errors import RacelineError
from raceline.present.text import render

ROOT = Path(__file__).resolve().parent.parent
CASES = Path(os.environ.get("RACELINE_CASES", ROOT.parent / "shared"))
REASONS = ROOT / "docs" / "fit_misses.yaml"


class Scored:
    """A report with its estimate, or the error that stands in its place."""

    def __init__(self, case: FitCase, outcome: Estimate | RacelineError) -> None:
        self.case, self.outcome = case, outcome

    @property
    def verdict(self) -> str:
        """yes, tight, no or error."""
        return self.outcome.fits if isinstance(self.outcome, Estimate) else "error"

    @property
    def is_right(self) -> bool:
        """Whether the verdict is what happened; tight counts as wrong."""
        return self.verdict == ("yes" if self.case.fits else "no")

    @property
    def peak_error(self) -> float | None:
        """Estimated over measured peak, less one, where a run that fitted stated its peak."""
        if not isinstance(self.outcome, Estimate) or not self.case.peak_gib or not self.case.fits:
            return None
        return self.outcome.memory_gib.total.mid / self.case.peak_gib - 1.0


def score(cases: list[dict[str, Any]]) -> list[Scored]:
    """All reports with their estimates."""
    fits = [scenario_of(case) for case in cases]
    outcomes = api.estimate_all([case.scenario for case in fits])
    return [Scored(case, outcome) for case, outcome in zip(fits, outcomes, strict=True)]


def page(scored: list[Scored], reasons: dict[str, str]) -> str:
    """The report: totals, the error of the peak, and every miss with its reason."""
    right = sum(one.is_right for one in scored)
    tight = sum(one.verdict == "tight" for one in scored)
    errors = sorted(abs(one.peak_error) for one in scored if one.peak_error is not None)
    bias = statistics.median(one.peak_error for one in scored if one.peak_error is not None)
    lines = [
        "# Accuracy",
        "",
        f"Written by `make accuracy` on {datetime.date.today()}. Nothing here is calibrated yet: the constants are",
        "datasheet peaks, published fractions and planning values (`estimate/data/efficiency.json`). The rules that",
        "turn a report into a scenario were written with these reports in view, so the score is in sample.",
        "",
        "## Does it fit",
        "",
        f"{len(scored)} published reports of whether a workload fitted its hardware.",
        "",
        "| verdicts | reports | share |",
        "| --- | ---: | ---: |",
        f"| right | {right} | {right / len(scored):.1%} |",
        f"| wrong | {len(scored) - right - tight} | {(len(scored) - right - tight) / len(scored):.1%} |",
        f"| tight (counted as wrong) | {tight} | {tight / len(scored):.1%} |",
        "",
        "## Peak memory of runs that fitted",
        "",
        f"{len(errors)} runs. Measured peaks are allocated, reserved or what the driver shows, as each source printed.",
        "",
        "| median error | 90th percentile | bias (median) |",
        "| ---: | ---: | ---: |",
        f"| {statistics.median(errors):.1%} | {errors[int(0.9 * len(errors))]:.1%} | {bias:+.1%} |",
        "",
        "## Every miss",
        "",
        "| report | happened | verdict | needs / has, GiB | why |",
        "| --- | --- | --- | ---: | --- |",
    ]
    lines += [miss(one, reasons) for one in scored if not one.is_right]
    lines += [
        "",
        "## Every run with a measured peak",
        "",
        "| report | measured, GiB | estimated | error |",
        "| --- | ---: | ---: | ---: |",
    ]
    for one in scored:
        if one.peak_error is not None and isinstance(one.outcome, Estimate):
            mid = one.outcome.memory_gib.total.mid
            lines.append(
                f"| [{one.case.id}]({one.case.source_url}) | {one.case.peak_gib:g} | {mid:.1f} "
                f"| {one.peak_error:+.0%} |"
            )
    return "\n".join(lines) + "\n"


def miss(one: Scored, reasons: dict[str, str]) -> str:
    """A row of the misses."""
    outcome = one.outcome
    if isinstance(outcome, Estimate):
        needs = f"{outcome.memory_gib.total.mid:.1f} / {outcome.memory_gib.limit:.1f}"
        reason = reasons.get(one.case.id, "")
    else:
        needs, reason = "–", reasons.get(one.case.id, "") or render(outcome.message)
    assumed = f" Assumed: {', '.join(one.case.assumed)}." if one.case.assumed else ""
    happened = "fitted" if one.case.fits else "did not fit"
    return f"| [{one.case.id}]({one.case.source_url}) | {happened} | {one.verdict} | {needs} | {reason}{assumed} |"


def main() -> None:
    """Print or write the page; exit 1 where a miss has no reason."""
    if not (CASES / "cases" / "fit.yaml").is_file():
        raise SystemExit(f"no reports under {CASES}: set RACELINE_CASES")
    scored = score(load_yaml(CASES / "cases" / "fit.yaml"))
    reasons = load_yaml(REASONS) or {}
    text = page(scored, reasons)
    if "--write" in sys.argv:
        (ROOT / "docs" / "accuracy.md").write_text(text, encoding="utf-8")
    else:
        print(text)
    silent = [one.case.id for one in scored if not one.is_right and one.case.id not in reasons]
    right = sum(one.is_right for one in scored)
    print(f"{right} of {len(scored)} right", file=sys.stderr)
    if silent:
        raise SystemExit(f"misses without a reason in {REASONS.name}: {', '.join(silent)}")


if __name__ == "__main__":
    main()
