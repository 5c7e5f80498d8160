"""Refusing what can't be: a wish that contradicts a fact is answered with the fact and its source."""

from __future__ import annotations

from raceline.catalog import constraints, resolve
from raceline.estimate.hardware import Catalogue
from raceline.plan.request import PlanRequest
from raceline.present.errors import InputError


def check(request: PlanRequest, catalogue: Catalogue) -> None:
    """Raise InputError for the first fact that forbids the wish."""
    if request.on is None:
        return
    accelerator = catalogue.resolve(request.on).accelerator
    runtime = resolve.runtime(request.runtime) if request.runtime else None
    found = constraints.check(
        accelerator, runtime, request.precision, request.interconnect, request.on_count or 1
    )
    if found:
        raise InputError(found[0].id, field="on", **found[0].params)
