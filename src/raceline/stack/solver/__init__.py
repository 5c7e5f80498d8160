"""Versions of wanted packages that work together on a machine, or why there are none."""

from __future__ import annotations

import msgspec

from raceline.present.errors import InputError, Message, message
from raceline.stack import facts, limits
from raceline.stack.request import Alternative, Pick, Solution, StackRequest
from raceline.stack.solver import explain
from raceline.stack.solver.candidates import CUDA, CUDNN, PYTHON, Candidate, Need, Target, is_known
from raceline.stack.solver.fill import USUAL_GLIBC, filled, glibc_floor
from raceline.stack.solver.resolve import Order, Provider, resolve
from raceline.stack.told import Requirement
from raceline.stack.versions import cuda_of, parse, specifier

# newest first is not what most packages have wheels for: this order is tried where nobody says otherwise
_PYTHONS = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9", "3.8", "3.7", "3.15")


def solve(request: StackRequest, *, with_uv: bool = False, uv: str | None = None) -> Solution:
    """The preferred set for a request; where there is none, the minimal conflict and the nearest sets. `with_uv` lets
    uv fill in what the packages need beside them.

    Raises InputError where a wish's bounds can't be read.
    """
    _check(request)
    found = _solved(request)
    if found is None:
        why = explain.conflict(request, _picks_or_none)
        near = tuple(_with_python(item) for item in explain.nearest(request, _picks_or_none))
        return Solution(request, conflict=why, nearest=near, notes=_notes(request, None))
    python = found[PYTHON].version
    picks = _picks(request, found)
    cuda = _cuda_of(found)
    floor = limits.driver_floor(_whole(cuda), limits.is_windows_driver(request.machine)) if cuda else None
    solution = Solution(
        request, python=python, picks=picks, cuda=cuda, driver_floor=floor, notes=_notes(request, found)
    )
    floor_of_libc = glibc_floor(solution)
    if (
        request.machine.glibc is None
        and request.machine.os in (None, "linux")
        and parse(floor_of_libc) != USUAL_GLIBC
    ):
        note = message("stack.needs_glibc", floor=floor_of_libc)
        solution = msgspec.structs.replace(solution, notes=(*solution.notes, note))
    return filled(solution, uv) if with_uv else solution


def _whole(cuda: str) -> str:
    return cuda if "." in cuda else f"{cuda}.0"


def _check(request: StackRequest) -> None:
    for wish in request.want:
        if specifier(wish.specifier) is None:
            raise InputError("stack.wish_unreadable", field="want", given=f"{wish.name}{wish.specifier}"[:80])


def target_of(request: StackRequest) -> Target:
    """What candidates are made for: a GPU where one is named or nothing speaks against it."""
    machine = request.machine
    if machine.os is None:
        machine = msgspec.structs.replace(machine, os="linux", arch=machine.arch or "x86_64")
    pythons = request.pythons or ((machine.python,) if machine.python else ())
    if not pythons or request.is_python_free:
        pythons = (*pythons, *(item for item in _PYTHONS if item not in pythons))
    has_gpu = request.has_gpu if request.has_gpu is not None else bool(machine.gpus or machine.driver)
    return Target(machine, has_gpu, pythons)


def wishes_of(request: StackRequest, target: Target) -> tuple[Need, ...]:
    """The wishes as needs: an extra or a build that was asked for is one of the labels."""
    needs = []
    for wish in request.want:
        name = "onnxruntime-gpu" if wish.name == "onnxruntime" and "gpu" in wish.extras else wish.name
        labels = tuple(item for item in (wish.label, *wish.extras) if item and item in _labels_of(name))
        if wish.label and not labels:
            labels = (wish.label,)
        needs.append(Need(name, wish.specifier, labels))
    return tuple(needs)


def _labels_of(name: str) -> tuple[str, ...]:
    if name == "jax":
        return ("cuda12", "cuda13", "rocm7-local")
    if name == "tensorflow":
        return ("and-cuda",)
    return ()


def _solved(request: StackRequest) -> dict[str, Candidate] | None:
    target = target_of(request)
    kept = {item.name: item.version for item in request.keep if item.version}
    labels = {item.name: item.label for item in request.keep if item.label}
    order = Order(
        request.prefer,
        kept if request.prefer == "least-change" else {},
        labels if request.prefer == "least-change" else {},
    )
    provider = Provider(target, order)
    for python in target.pythons:
        # the preferred Python that has a set is taken, rather than the newest packages of any
        found = resolve([*wishes_of(request, target), Need(PYTHON, versions=(python,))], provider)
        if found is not None:
            return found
    return None


def _picks_or_none(request: StackRequest) -> tuple[tuple[Pick, ...], str] | None:
    found = _solved(request)
    return None if found is None else (_picks(request, found), found[PYTHON].version)


def _with_python(item: Alternative) -> Alternative:
    return msgspec.structs.replace(
        item, changes=tuple(explain.with_python(action, item.python) for action in item.changes)
    )


def _picks(request: StackRequest, found: dict[str, Candidate]) -> tuple[Pick, ...]:
    wanted = {item.name: item for item in request.want}
    picks = []
    for name, item in found.items():
        if name in (PYTHON, CUDA, CUDNN):
            continue
        extras = tuple(sorted({*item.extras, *(wanted[name].extras if name in wanted else ())}))
        picks.append(
            Pick(
                name,
                item.version,
                item.label,
                extras,
                item.index_url,
                tuple(_reasons(item, wanted.get(name), request)),
                item.facts,
            )
        )
    order = {name: index for index, name in enumerate(wanted)}
    return tuple(sorted(picks, key=lambda pick: (order.get(pick.package, len(order)), pick.package)))


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


def _cuda_of(found: dict[str, Candidate]) -> str | None:
    torch = found.get("torch")
    label = cuda_of(torch.label) if torch is not None else None
    return label or (found[CUDA].version if CUDA in found else None)


def _notes(request: StackRequest, found: dict[str, Candidate] | None) -> tuple[Message, ...]:
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
    if request.has_gpu is False and any(
        item.name in ("vllm", "flash-attn", "tensorrt") for item in request.want
    ):
        notes.append(message("stack.wants_gpu"))
    return tuple(notes)
