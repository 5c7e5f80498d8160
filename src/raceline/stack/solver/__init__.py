"""Versions of wanted packages that work together on a machine, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping

from raceline.present.errors import InputError, Message, message
from raceline.stack import facts
from raceline.stack.request import Pick, Solution, StackRequest
from raceline.stack.solver import explain, floors
from raceline.stack.solver.candidates import is_known
from raceline.stack.solver.choices import CUDA, PYTHON, SLOTS, Candidate
from raceline.stack.solver.resolve import search
from raceline.stack.told import Requirement
from raceline.stack.versions import at_least, cuda_of, specifier

# left to the installer unless asked for: what needs it says so in its own metadata
_UNSAID = frozenset({*SLOTS, "protobuf"})
_WANTS_GPU = ("vllm", "sglang", "flash-attn", "tensorrt")


def solve(request: StackRequest, *, with_uv: bool = False, uv: str | None = None) -> Solution:
    """The preferred set for a request; where there is none, the minimal conflict and the nearest sets. `with_uv` lets
    uv fill in what the packages need beside them.

    Raises InputError where a wish's bounds can't be read.
    """
    _check(request)
    solution = found_set(request)
    if solution is None:
        why = explain.conflict(request, found_set)
        return Solution(
            request,
            conflict=why.text,
            because=why.because,
            conflict_facts=why.facts,
            nearest=tuple(explain.nearest(request, why.reduced, found_set)),
            notes=_notes(request, None),
        )
    if not with_uv:
        return solution
    from raceline.stack.solver.fill import filled

    return filled(solution, uv, found_set)


def _check(request: StackRequest) -> None:
    for wish in request.want:
        if specifier(wish.specifier) is None:
            raise InputError("stack.wish_unreadable", field="want", given=f"{wish.name}{wish.specifier}"[:80])


def found_set(request: StackRequest) -> Solution | None:
    """The preferred set, or None where there is none."""
    found = search(request)
    if found is None:
        return None
    cuda = _cuda_of(found)
    glibc = floors.glibc(found.values())
    return Solution(
        request,
        python=found[PYTHON].version,
        picks=_picks(request, found),
        cuda=cuda,
        driver_floor=floors.driver(cuda, found.get("torch"), request.machine) if cuda else None,
        glibc_floor=glibc,
        notes=(*_notes(request, found), *_notes_on_glibc(request, glibc)),
    )


def _picks(request: StackRequest, found: Mapping[str, Candidate]) -> tuple[Pick, ...]:
    wanted = {item.name: item for item in request.want}
    picks = []
    for name, item in found.items():
        if name in _UNSAID and name not in wanted:
            continue
        wish = wanted.get(name)
        extras = tuple(sorted({*item.extras, *(wish.extras if wish is not None else ())}))
        loose = wish is None and item.label is None
        picks.append(
            Pick(
                package=name,
                version=item.version,
                label=item.label,
                extras=extras,
                index_url=item.index_url,
                reasons=tuple(_reasons(item, wish, request)),
                facts=item.facts,
                bounds=_bounds_on(name, found) if loose else "",
                asked=wish.specifier if wish is not None and not item.version else "",
            )
        )
    order = {name: index for index, name in enumerate(wanted)}
    return tuple(sorted(picks, key=lambda pick: (order.get(pick.package, len(order)), pick.package)))


def _bounds_on(name: str, found: Mapping[str, Candidate]) -> str:
    """What the others need of a package, as one set of bounds."""
    parts = {
        part.strip()
        for item in found.values()
        for need in item.needs
        if need.of == name
        for part in need.bounds.split(",")
    }
    return ",".join(sorted(parts - {""}))


def _reasons(item: Candidate, wish: Requirement | None, request: StackRequest) -> list[Message]:
    reasons = []
    if not item.version:
        reasons.append(message("stack.why_unknown"))
    elif wish is None:
        reasons.append(message("stack.why_needed"))
    elif wish.specifier:
        reasons.append(message("stack.why_asked", bounds=wish.specifier))
    else:
        reasons.append(message(f"stack.why_{request.prefer.replace('-', '_')}"))
    if item.reason is not None:
        reasons.append(item.reason)
    return reasons


def _cuda_of(found: Mapping[str, Candidate]) -> str | None:
    torch = found.get("torch")
    label = cuda_of(torch.label) if torch is not None else None
    return label or (found[CUDA].version if CUDA in found else None)


def _notes_on_glibc(request: StackRequest, floor: str | None) -> tuple[Message, ...]:
    if (
        request.machine.glibc is not None
        or not at_least(floor, floors.USUAL_GLIBC)
        or floor == floors.USUAL_GLIBC
    ):
        return ()
    return (message("stack.needs_glibc", floor=floor),)


def _notes(request: StackRequest, found: Mapping[str, Candidate] | None) -> tuple[Message, ...]:
    notes = []
    unknown = [item.name for item in request.want if not is_known(item.name)]
    if unknown:
        notes.append(message("stack.not_in_tables", packages=", ".join(unknown)))
    if found is not None:
        row = next(
            (item for item in facts.table("python_eol") if item["python"] == found[PYTHON].version), None
        )
        if row is not None and row["status"] == "end-of-life":
            notes.append(message("stack.python_ended", python=row["python"], day=row["end_of_life"]))
        if "deepspeed" in found:
            notes.append(message("stack.needs_toolkit", cuda=_cuda_of(found) or "?"))
        for item in found.values():
            if not item.is_prebuilt:
                notes.append(
                    message("stack.compiled_here", package=item.package, cuda=_cuda_of(found) or "?")
                )
    if request.has_gpu is False and any(item.name in _WANTS_GPU for item in request.want):
        notes.append(message("stack.wants_gpu"))
    return tuple(notes)
