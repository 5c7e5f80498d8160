"""From what people write to one thing of the catalogue, or to the candidates that it could be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import TypeVar

import msgspec

from raceline.catalog import load
from raceline.catalog.names import Name, hyphened, take_apart
from raceline.catalog.own import OwnCatalog
from raceline.catalog.processors import as_accelerator
from raceline.catalog.types import Accelerator, Cpu, Link, Runtime, Storage
from raceline.present.errors import InputError, Message, message

Thing = TypeVar("Thing", Accelerator, Cpu, Link, Runtime, Storage)

# A label may differ this much from ours and still be the same card (B200: 180 or 192 GB).
_SAME_SIZE = 0.08
_LONGEST = 200
# "4090" is an RTX 4090 and "v5e" a TPU: families whose number alone is a name. And "RTX 6000" may be
# the Ada card as well as the Quadro.
_DROPPED_PREFIXES = ("rtx", "gtx", "rx", "tpu", "tesla", "quadro", "jetson", "arc")

_COUNT_BEFORE = re.compile(r"(\d{1,3})\s*[x×*]\s*(\S.*)", re.IGNORECASE)
# "GTX 1080" and "RX7600" are names: an x that is tied to letters alone is no sign of a count.
_COUNT_AFTER = re.compile(r"(.*\d\S*(?:\s+)?|.*\s)[x×*]\s*(\d{1,6})", re.IGNORECASE)
_SIZE_AFTER = re.compile(r"(.*\S)\s+(\d{1,5})\s*Gi?B", re.IGNORECASE)


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The accelerator meant; `notes` say what was chosen or changed. `usable_gib` is the exact size
    that was written (``(23.58 GiB)``); where the size on the label was another than the catalogue's,
    `accelerator` carries the one that was written."""

    accelerator: Accelerator
    notes: tuple[Message, ...] = ()
    usable_gib: float | None = None
    mig_profile: str | None = None


class Ambiguous(msgspec.Struct, frozen=True, kw_only=True):
    """Several accelerators have this name. `preferred` is the id that usage makes plain, if any."""

    given: str
    candidates: tuple[Accelerator, ...]
    preferred: str | None
    name: Name

    def choose(self, accelerator_id: str) -> Resolved:
        """The answer to the question between the candidates."""
        chosen = next(item for item in self.candidates if item.id == accelerator_id)
        return _resolved(chosen, self.name, ())


def find_accelerator(text: str, own: OwnCatalog | None = None) -> Resolved | Ambiguous:
    """One accelerator or the candidates; InputError with the nearest names where there is none."""
    known = _with_own(load.accelerators(), own.accelerators if own else {})
    if len(text) > _LONGEST:
        raise _unknown("accelerator", text[:40] + "…", ())
    name = take_apart(text)
    exact = known.get(hyphened(text)) or known.get(load.aliases().get(hyphened(text), ""))
    if exact is not None:
        return _resolved(exact, name, ())
    candidates = _candidates(name, known)
    if not candidates:
        raise _unknown("accelerator", text, _nearest(text, known))
    if len(candidates) == 1:
        return _resolved(candidates[0], name, ())
    return Ambiguous(
        given=text,
        candidates=tuple(candidates),
        preferred=_preferred(name, candidates),
        name=name,
    )


def accelerator(text: str, own: OwnCatalog | None = None) -> Resolved:
    """One accelerator without asking: the usual one among several, with a note that says so.
    InputError lists the candidates where none is usual."""
    found = find_accelerator(text, own)
    if isinstance(found, Resolved):
        return found
    ids = ", ".join(item.id for item in found.candidates[:12])
    if found.preferred is None:
        raise InputError("catalog.ambiguous_accelerator", field="accelerator", given=text, candidates=ids)
    note = message("catalog.chose_accelerator", given=text, chosen=found.preferred, candidates=ids)
    chosen = found.choose(found.preferred)
    return msgspec.structs.replace(chosen, notes=(note, *chosen.notes))


def accelerator_or_processor(text: str, own: OwnCatalog | None = None) -> Resolved:
    """What a model can run on: an accelerator, else a processor with the memory that is written
    (``EPYC 9654 768GB``) or usual for its tier."""
    try:
        return accelerator(text, own)
    except InputError as error:
        size = _SIZE_AFTER.fullmatch(text[:_LONGEST])
        try:
            found = cpu(size[1] if size else text)
        except InputError:
            raise error from None
    item = as_accelerator(found, float(size[2]) if size else None)
    usual = message("catalog.usual_memory", processor=found.name, memory_gib=item.memory_gib)
    return Resolved(accelerator=item, notes=() if size else (usual,))


def split_count(text: str) -> tuple[str, int | None]:
    """``8 x H100``, ``H100x8`` and ``H100 x 8`` are a name and a count; None where none is written."""
    text = text.strip()
    if found := _COUNT_BEFORE.fullmatch(text):
        return found[2], int(found[1])
    if found := _COUNT_AFTER.fullmatch(text):
        return found[1].strip(), int(found[2])
    return text, None


def link(text: str, own: OwnCatalog | None = None) -> Link:
    """A link or fabric by id, name or usual short form (``NDR``, ``10GbE``)."""
    return _one("link", text, _with_own(load.links(), own.links if own else {}))


def device(text: str) -> Accelerator | Cpu:
    """An accelerator or a processor: what a measurement can have been made on."""
    try:
        return accelerator(text).accelerator
    except InputError as error:
        try:
            return cpu(text)
        except InputError:
            raise error from None


def cpu(text: str) -> Cpu:
    """A processor by id or name."""
    return _one("cpu", text, load.cpus())


def storage(text: str) -> Storage:
    """A kind of storage by id or name."""
    return _one("storage", text, load.storage())


def runtime(text: str) -> Runtime:
    """A framework, engine or server by id, name or one of its aliases."""
    return _one("runtime", text, load.runtimes())


def _one(kind: str, text: str, known: Mapping[str, Thing]) -> Thing:
    names = _names_of(known.values())
    wanted = _squeezed(text[:_LONGEST])
    found = names.get(wanted) or names.get(_squeezed(load.aliases(kind).get(hyphened(text[:_LONGEST]), "")))
    if found is None:
        raise _unknown(kind, text[:_LONGEST], _close(wanted, names))
    return known[found]


def _names_of(things: Iterable[Thing]) -> dict[str, str]:
    names: dict[str, str] = {}
    for thing in things:
        more: tuple[str, ...] = thing.aliases if isinstance(thing, Runtime) else ()
        for word in (thing.name, thing.name.split("(")[0], *more):
            names.setdefault(_squeezed(word), thing.id)
    return names | {_squeezed(thing.id): thing.id for thing in things}


def _squeezed(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum() or character == "+")


def _candidates(name: Name, known: Mapping[str, Accelerator]) -> list[Accelerator]:
    if not name.core and name.memory_gib is None:
        return []
    found = [
        item
        for item in known.values()
        if not name.core or any(_same_core(name.core, other.core) for other in _names(item))
    ]
    for keep in (_has_form, _has_memory_type, _has_size, _has_profile):
        found = [item for item in found if keep(item, name)] or (found if name.core else [])
    return found


def _same_core(given: str, other: str) -> bool:
    short = other.removesuffix("ada")
    return given in (other, short) or any(other == prefix + given for prefix in _DROPPED_PREFIXES)


@cache
def _names(item: Accelerator) -> tuple[Name, Name]:
    return take_apart(item.id), take_apart(item.name)


def _has_form(item: Accelerator, name: Name) -> bool:
    forms = [other.form for other in _names(item)]
    return not name.form or any(form.startswith(name.form) or form == name.form[:3] for form in forms if form)


def _has_memory_type(item: Accelerator, name: Name) -> bool:
    return not name.memory_type or (item.memory_type or "").lower().split(" ")[0] == name.memory_type


def _has_size(item: Accelerator, name: Name) -> bool:
    if name.memory_gib is None:
        return True
    label = item.memory_gib or 0.0
    return abs(label - name.memory_gib) <= (_SAME_SIZE * label if name.core else 0.0)


def _has_profile(item: Accelerator, name: Name) -> bool:
    return name.mig_profile is None or name.mig_profile in item.mig_profiles


def _preferred(name: Name, items: Sequence[Accelerator]) -> str | None:
    candidates = {item.id for item in items}
    sizes = {name.memory_gib} if name.memory_gib is not None else {item.memory_gib for item in items}
    only = sizes.pop() if len(sizes) == 1 else None
    size = f"{only:g}gb" if only is not None else ""
    usual = load.preferences()
    for words in (
        (name.core, name.form[:3], size),
        (name.core, name.form, size),
        (name.core, size),
        (name.core,),
    ):
        written = " ".join(word for word in words if word)
        for key in (written, *(prefix + written for prefix in _DROPPED_PREFIXES)):
            if usual.get(key) in candidates:
                return usual[key]
    return None


def _resolved(item: Accelerator, name: Name, notes: tuple[Message, ...]) -> Resolved:
    size = name.memory_gib
    label = item.memory_gib
    if size is not None and label and _is_other_size(item, size, label):
        other = message("catalog.other_memory", accelerator=item.id, given_gib=size, catalog_gib=label)
        item = msgspec.structs.replace(item, memory_gib=size)
        notes = (*notes, other)
    return Resolved(accelerator=item, notes=notes, usable_gib=name.usable_gib, mig_profile=name.mig_profile)


def _is_other_size(item: Accelerator, size: float, label: float) -> bool:
    """Sizes near the label are the vendor's rounding; shared memory is sold in many sizes."""
    return (
        abs(size - label)
        > (0.01 if item.tier == "consumer" and "unified" in (item.memory_type or "") else 0.1) * label
    )


def _nearest(text: str, known: Mapping[str, Accelerator]) -> tuple[str, ...]:
    words: dict[str, str] = {}
    for item in known.values():
        for other in _names(item):
            words.setdefault(other.core, item.id)
    words |= {core: name for core, name in load.preferences().items() if core in words}
    for core, name in list(words.items()):
        for prefix in _DROPPED_PREFIXES:
            words.setdefault(core.removeprefix(prefix), name)
    return _close(take_apart(text).core or _squeezed(text), words)


def _close(word: str, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names[match] for match in get_close_matches(word, names, n=4, cutoff=0.6)))


def _unknown(kind: str, given: str, nearest: tuple[str, ...]) -> InputError:
    if nearest:
        return InputError(
            f"catalog.unknown_{kind}_nearest", field=kind, given=given, nearest=", ".join(nearest)
        )
    return InputError(f"catalog.unknown_{kind}", field=kind, given=given)


def _with_own(known: Mapping[str, Thing], own: Mapping[str, Thing]) -> Mapping[str, Thing]:
    return {**known, **own} if own else known
