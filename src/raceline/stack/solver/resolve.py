"""One solution for a set of wishes: resolvelib over candidates, in the order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from packaging.version import Version
from resolvelib import AbstractProvider, BaseReporter, Resolver
from resolvelib.resolvers import ResolutionImpossible, ResolutionTooDeep

from raceline.stack.request import Preference
from raceline.stack.solver.candidates import CUDA, CUDNN, PYTHON, Candidate, Need, Target, candidates
from raceline.stack.versions import parse

MOST_ROUNDS = 20_000
BACK_MINORS = 2  # `stable`: this many minors behind the newest
# what is decided first: what pins others
_FIRST = (
    "vllm",
    "sglang",
    "xformers",
    "flash-attn",
    "torch-xla",
    "torch",
    "tensorflow",
    "jax",
    "onnxruntime-gpu",
)


class Order(msgspec.Struct, frozen=True):
    """How candidates of a package are ranked: the preference, and versions that are there already."""

    prefer: Preference = "stable"
    kept: dict[str, str] = {}
    kept_labels: dict[str, str] = {}


class Provider(AbstractProvider):  # type: ignore[type-arg]
    """resolvelib's view of the candidates."""

    def __init__(self, target: Target, order: Order) -> None:
        self.target, self.order = target, order
        self._ranked: dict[str, tuple[Candidate, ...]] = {}

    def ranked(self, package: str) -> tuple[Candidate, ...]:
        """The candidates of a package, the preferred first."""
        if package not in self._ranked:
            self._ranked[package] = rank(candidates(package, self.target), self.order)
        return self._ranked[package]

    def identify(self, requirement_or_candidate: Any) -> str:
        """What a need or a candidate is of."""
        item = requirement_or_candidate
        return item.of if isinstance(item, Need) else item.package

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, Any],
        candidates: Mapping[str, Iterator[Any]],
        information: Mapping[str, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> Any:
        """What pins others is decided first, then what has the fewest candidates; Python and cuDNN come last."""
        causes = {self.identify(item.requirement) for item in backtrack_causes}
        place = _FIRST.index(identifier) if identifier in _FIRST else len(_FIRST)
        is_late = identifier in (CUDNN, "numpy", PYTHON)
        return (identifier != CUDA or not resolutions, is_late, identifier not in causes, place, identifier)

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Any]],
        incompatibilities: Mapping[str, Iterator[Any]],
    ) -> Iterable[Any]:
        """The candidates that meet all needs, the preferred first."""
        needs = list(requirements[identifier])
        excluded = {(item.version, item.label) for item in incompatibilities[identifier]}
        return [
            item
            for item in self.ranked(identifier)
            if (item.version, item.label) not in excluded and all(item.meets(need) for need in needs)
        ]

    def is_satisfied_by(self, requirement: Any, candidate: Any) -> bool:
        """Whether a candidate meets a need."""
        return bool(candidate.meets(requirement))

    def get_dependencies(self, candidate: Any) -> Iterable[Any]:
        """What a candidate needs."""
        return list(candidate.needs)


def rank(found: Iterable[Candidate], order: Order) -> tuple[Candidate, ...]:
    """Candidates in the order of preference: what is there, then stable or newest, the default build first."""
    listed = list(found)
    if not listed or listed[0].package in (PYTHON, CUDA):
        return tuple(listed)
    minors = sorted({_minor(item) for item in listed if item.version}, reverse=True)
    position = {minor: index for index, minor in enumerate(minors)}
    back = BACK_MINORS if order.prefer == "stable" and len(minors) > BACK_MINORS else 0

    def key(item: Candidate) -> tuple[Any, ...]:
        is_kept = order.kept.get(item.package) == item.version and item.version != ""
        place = position.get(_minor(item), 0)
        away = 2 * (place - back) if place >= back else 2 * (back - place) + 1
        label = order.kept_labels.get(item.package)
        version = _negative(parse(item.version) or Version("0"))
        is_other = label is not None and item.label != label
        build = (is_other, not item.is_default, not item.is_usual, _label(item))
        return (not is_kept, not item.is_sure, away, version, *build)

    return tuple(sorted(listed, key=key))


def _minor(item: Candidate) -> tuple[int, int]:
    found = parse(item.version)
    return (found.major, found.minor) if found is not None else (0, 0)


def _negative(version: Version) -> tuple[int, ...]:
    parts = (*version.release, 0, 0, 0, 0)[:4]
    return (*(-part for part in parts), -(version.post or 0))


def _label(item: Candidate) -> tuple[int, str]:
    digits = "".join(char for char in item.label or "" if char.isdigit())
    return (-int(digits) if digits else 0, item.label or "")


def resolve(wishes: Sequence[Need], provider: Provider) -> dict[str, Candidate] | None:
    """A candidate for every wish and for what they need, or None where there is no set."""
    if any(not any(item.meets(wish) for item in provider.ranked(wish.of)) for wish in wishes):
        return None
    try:
        result = Resolver(provider, BaseReporter()).resolve([*wishes, Need(PYTHON)], max_rounds=MOST_ROUNDS)
    except (ResolutionImpossible, ResolutionTooDeep):
        return None
    return dict(result.mapping)
