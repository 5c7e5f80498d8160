"""The candidates of all packages on a target, in order of preference, and what two needs leave in common.

A package's candidates are a tuple in order of preference, and a choice among them is a number whose bits are the
candidates that are left: what two needs leave in common is one `and`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from packaging.version import Version

from raceline.stack.request import Preference
from raceline.stack.solver.candidates import candidates
from raceline.stack.solver.choices import CUDA, PYTHON, Candidate, Need, Target
from raceline.stack.versions import parse

BACK_MINORS = 2  # `stable`: this many minors behind the newest


class Order(msgspec.Struct, frozen=True):
    """How candidates of a package are ranked: the preference, and what is there already as (name, version, label)."""

    prefer: Preference = "stable"
    kept: tuple[tuple[str, str, str | None], ...] = ()

    def kept_of(self, package: str) -> tuple[str, str | None] | None:
        """Version and label of a package that is there."""
        return next(((version, label) for name, version, label in self.kept if name == package), None)


class Shelf:
    """The candidates on one target in one order, ranked when first asked for, and which of them meet a need."""

    def __init__(self, target: Target, order: Order) -> None:
        self.target, self.order = target, order
        self._ranked: dict[str, tuple[Candidate, ...]] = {}
        self._masks: dict[Need, int] = {}
        self._brings: dict[str, frozenset[str]] = {}

    def brings(self, package: str) -> frozenset[str]:
        """What some candidate of a package brings along."""
        if package not in self._brings:
            needs = (need for item in self.ranked(package) for need in item.needs)
            self._brings[package] = frozenset(need.of for need in needs if not need.is_bound)
        return self._brings[package]

    def ranked(self, package: str) -> tuple[Candidate, ...]:
        """The candidates of a package, the preferred first."""
        if package not in self._ranked:
            self._ranked[package] = rank(candidates(package, self.target), self.order)
        return self._ranked[package]

    def meeting(self, need: Need) -> int:
        """The candidates that meet a need."""
        if need not in self._masks:
            found = 0
            for place, item in enumerate(self.ranked(need.of)):
                if item.meets(need):
                    found |= 1 << place
            self._masks[need] = found
        return self._masks[need]


@functools.lru_cache(maxsize=64)
def shelf(target: Target, order: Order) -> Shelf:
    """The shelf of a target, kept for the solves that one conflict takes."""
    return Shelf(target, order)


class Space:
    """A shelf as wishes see it: a bound on what nobody wants counts for nothing, and `is_prebuilt` leaves out what
    would be compiled."""

    def __init__(
        self, target: Target, order: Order, wanted: Iterable[str], is_prebuilt: bool = False
    ) -> None:
        self.shelf, self.is_prebuilt = shelf(target, order), is_prebuilt
        self._needs: dict[int, tuple[Need, ...]] = {}
        self._all: dict[str, int] = {}
        self.ranked, self.meeting = self.shelf.ranked, self.shelf.meeting
        self.wanted = self._reached(wanted)

    def _reached(self, wanted: Iterable[str]) -> frozenset[str]:
        """What is wanted, and what that brings along."""
        found: set[str] = set()
        left = list(wanted)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.shelf.brings(name)
        return frozenset(found)

    def all_of(self, package: str) -> int:
        """Every candidate of a package that may be taken."""
        if package not in self._all:
            found = 0
            for place, item in enumerate(self.ranked(package)):
                if item.is_prebuilt or not self.is_prebuilt:
                    found |= 1 << place
            self._all[package] = found
        return self._all[package]

    def needs_of(self, item: Candidate) -> tuple[Need, ...]:
        """What a candidate needs here."""
        found = self._needs.get(id(item))
        if found is None:
            found = tuple(need for need in item.needs if not need.is_bound or need.of in self.wanted)
            self._needs[id(item)] = found
        return found


def places(mask: int) -> Iterator[int]:
    """The places of the bits of a number, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def narrowed(
    space: Space, wishes: Iterable[Need], held: Mapping[str, int] | None = None
) -> dict[str, int] | None:
    """For each package that every set has, the candidates that are left; None where one has none.

    A candidate goes when something that it needs has no candidate left, and a package that every set has keeps the
    candidates that one of its owners' choices can go with. `held` are candidates that packages are held to.
    """
    left = dict(held or {})
    for wish in wishes:
        left[wish.of] = left.get(wish.of, space.all_of(wish.of)) & space.meeting(wish)
    while True:
        before = dict(left)
        for package in list(left):
            _narrow(space, left, package)
            if not left[package]:
                return None
        if left == before:
            return left


def _narrow(space: Space, left: dict[str, int], package: str) -> None:
    ranked = space.ranked(package)
    needed: dict[str, int] = {}
    common: set[str] | None = None
    for place in places(left[package]):
        needs: dict[str, int] = {}
        for need in space.needs_of(ranked[place]):
            mask = needs.get(need.of, left.get(need.of, space.all_of(need.of)))
            needs[need.of] = mask & space.meeting(need)
        if not all(needs.values()):
            left[package] &= ~(1 << place)
            continue
        common = set(needs) if common is None else common & set(needs)
        for name, mask in needs.items():
            needed[name] = needed.get(name, 0) | mask
    for name in common or ():
        left[name] = left.get(name, space.all_of(name)) & needed[name]


def rank(found: Iterable[Candidate], order: Order) -> tuple[Candidate, ...]:
    """Candidates in the order of preference: what is there or nearest to it, else stable or newest; then the default
    build, then the usual one."""
    listed = list(found)
    if not listed or listed[0].package in (PYTHON, CUDA):
        return tuple(listed)
    minors = sorted({_minor(item.version) for item in listed if item.version}, reverse=True)
    position = {minor: index for index, minor in enumerate(minors)}
    kept = order.kept_of(listed[0].package)
    back = BACK_MINORS if order.prefer == "stable" and len(minors) > BACK_MINORS else 0
    if kept is not None:
        back = sum(minor > _minor(kept[0]) for minor in minors)

    def key(item: Candidate) -> tuple[Any, ...]:
        place = position.get(_minor(item.version), 0)
        away = 2 * (place - back) if place >= back else 2 * (back - place) + 1
        is_kept = kept is not None and item.version == kept[0]
        is_other = kept is not None and kept[1] is not None and item.label != kept[1]
        version = _negative(parse(item.version) or Version("0"))
        build = (is_other, not item.is_default, not item.is_usual, _label(item))
        return (
            not is_kept,
            is_kept and is_other,
            not item.is_sure,
            not item.is_prebuilt,
            away,
            version,
            *build,
        )

    return tuple(sorted(listed, key=key))


def _minor(version: str) -> tuple[int, int]:
    found = parse(version)
    return (found.major, found.minor) if found is not None else (0, 0)


def _negative(version: Version) -> tuple[int, ...]:
    parts = (*version.release, 0, 0, 0, 0)[:4]
    return (*(-part for part in parts), -(version.post or 0))


def _label(item: Candidate) -> tuple[int, str]:
    digits = "".join(char for char in item.label or "" if char.isdigit())
    return (-int(digits) if digits else 0, item.label or "")
