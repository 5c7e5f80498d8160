"""Facts on a runtime that may stand with the one that it is built on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raceline.catalog.types import Runtime


def lineage(runtime: Runtime, runtimes: Mapping[str, Runtime]) -> Iterator[Runtime]:
    """A runtime, then what it is built on, down to the ground."""
    seen: set[str] = set()
    current: Runtime | None = runtime
    while current is not None and current.id not in seen:
        seen.add(current.id)
        yield current
        current = runtimes.get(current.based_on or "")


def context_mib(runtime: Runtime, runtimes: Mapping[str, Runtime]) -> float | None:
    """MiB that a process holds on the device before its first tensor; None where nobody measured it."""
    return next(
        (item.context_mib for item in lineage(runtime, runtimes) if item.context_mib is not None), None
    )


def states(runtime: Runtime, precision: str, runtimes: Mapping[str, Runtime]) -> str | None:
    """How training in a precision holds weights and optimizer (see `Runtime.states`); None if unknown."""
    return next(
        (item.states[precision] for item in lineage(runtime, runtimes) if precision in item.states), None
    )
