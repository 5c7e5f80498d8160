"""The preferred solution for a request: domains narrowed by what every set needs, then resolvelib."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resolvelib import AbstractProvider, BaseReporter, Resolver
from resolvelib.resolvers import ResolutionImpossible

from raceline.stack.request import StackRequest
from raceline.stack.solver.choices import CUDA, CUDNN, NCCL, PYTHON, RUNTIME, SLOTS, Candidate, Need
from raceline.stack.solver.space import Order, Space, narrowed, places
from raceline.stack.solver.wishes import target_of, wishes_of

MOST_ROUNDS = 100_000
# what is decided first: what pins others
_FIRST = (
    "vllm", "sglang", "xformers", "flash-attn", "torch-xla", "torch", "tensorflow", "jax", "onnxruntime-gpu",
)  # fmt: skip
_LAST = frozenset({CUDNN, NCCL, RUNTIME, "numpy", "protobuf", PYTHON})


class Provider(AbstractProvider):  # type: ignore[type-arg]
    """resolvelib's view of the candidates that are left."""

    def __init__(self, space: Space, left: Mapping[str, int]) -> None:
        self.space, self.left = space, left
        self._places: dict[int, int] = {}

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
        """What pins others is decided first; Python, NumPy and cuDNN come last."""
        causes = {self.identify(item.requirement) for item in backtrack_causes}
        is_late, is_cause = identifier in _LAST, identifier in causes
        return (identifier != CUDA or not resolutions, is_late, not is_cause, _place(identifier), identifier)

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Any]],
        incompatibilities: Mapping[str, Iterator[Any]],
    ) -> Iterable[Any]:
        """The candidates that meet all needs, the preferred first."""
        space = self.space
        mask = self.left.get(identifier, space.all_of(identifier))
        for need in requirements[identifier]:
            mask &= space.meeting(need)
        for item in incompatibilities[identifier]:
            mask &= ~(1 << self._place(item))
        ranked = space.ranked(identifier)
        return [ranked[place] for place in places(mask)]

    def is_satisfied_by(self, requirement: Any, candidate: Any) -> bool:
        """Whether a candidate meets a need."""
        return bool(self.space.meeting(requirement) >> self._place(candidate) & 1)

    def get_dependencies(self, candidate: Any) -> Iterable[Any]:
        """What a candidate needs."""
        return self.space.needs_of(candidate)

    def _place(self, item: Candidate) -> int:
        found = self._places.get(id(item))
        if found is None:
            for place, other in enumerate(self.space.ranked(item.package)):
                self._places[id(other)] = place
            found = self._places[id(item)]
        return found


def resolve(
    wishes: Sequence[Need], space: Space, held: Mapping[str, int] | None = None
) -> dict[str, Candidate] | None:
    """A candidate for every wish and for what they need, or None where there is no set."""
    asked = [*wishes, Need(PYTHON)]
    left = narrowed(space, asked, held)
    if left is None:
        return None
    try:
        result = Resolver(Provider(space, left), BaseReporter()).resolve(asked, max_rounds=MOST_ROUNDS)
    except ResolutionImpossible:
        return None
    return dict(result.mapping)


def preferred(wishes: Sequence[Need], space: Space) -> dict[str, Candidate] | None:
    """The set whose packages are the preferred ones, the first of them before the next: a search alone may change an
    earlier choice for the sake of a later one."""
    found = resolve(wishes, space)
    if found is None:
        return None
    held: dict[str, int] = {}
    names = list(dict.fromkeys(wish.of for wish in wishes))
    for name in sorted(names, key=lambda item: (_place(item), names.index(item))):
        if name in SLOTS:
            continue
        left = narrowed(space, wishes, held) or {}
        for place in places(left.get(name, 0)):
            if space.ranked(name)[place] is found[name]:
                break
            other = resolve(wishes, space, {**held, name: 1 << place})
            if other is not None:
                found = other
                break
        held[name] = next(1 << at for at, item in enumerate(space.ranked(name)) if item is found[name])
    return found


def _place(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


@functools.lru_cache(maxsize=128)
def search(request: StackRequest) -> Mapping[str, Candidate] | None:
    """What is chosen for a request, or None where there is no set; the preferred Python that has a set is taken, rather
    than the newest packages of any, and nothing is compiled that need not be."""
    target, wishes = target_of(request), [*wishes_of(request)]
    if request.cuda_major is not None:
        wishes.append(Need(CUDA, versions=(str(request.cuda_major),)))
    names = [item.of for item in wishes]
    for is_prebuilt in (True, False):
        space = Space(target, order_of(request), names, is_prebuilt)
        if narrowed(space, [*wishes, Need(PYTHON)]) is None:
            continue
        for python in target.pythons:
            found = preferred([*wishes, Need(PYTHON, versions=(python,))], space)
            if found is not None:
                return found
    return None


def order_of(request: StackRequest) -> Order:
    """The order that a request prefers."""
    if request.prefer != "least-change":
        return Order(request.prefer)
    return Order(
        request.prefer, tuple((item.name, item.version, item.label) for item in request.keep if item.version)
    )


def opposed(
    first: Mapping[str, Candidate], second: Mapping[str, Candidate], request: StackRequest
) -> list[tuple[tuple[Candidate, Need], tuple[Candidate, Need]]]:
    """The needs of two sets, each with its owner, that no candidate meets together."""
    space = Space(target_of(request), order_of(request), (*first, *second))
    found = []
    for owner, need in _needs_in(first, space):
        for other, against in _needs_in(second, space):
            if need.of == against.of and not space.meeting(need) & space.meeting(against):
                found.append(((owner, need), (other, against)))
    return found


def _needs_in(chosen: Mapping[str, Candidate], space: Space) -> Iterator[tuple[Candidate, Need]]:
    for item in chosen.values():
        if item.package not in SLOTS:
            yield item, Need(item.package, versions=(item.version,))
            yield from ((item, need) for need in space.needs_of(item))
