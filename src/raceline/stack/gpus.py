"""GPUs by the names that people write: compute capability, AMD target or Apple chip."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import msgspec

from raceline.measure.environment import Environment, Gpu
from raceline.stack import facts

_GFX = re.compile(r"\bgfx[0-9a-f]{3,4}\b")
_APPLE = re.compile(r"\b(?:apple )?(m[1-5])(?: (pro|max|ultra))?\b")
_COUNT = re.compile(r"(?:^|\s)(\d{1,3})\s?[x×]\s|\s?[x×]\s?(\d{1,3})\b")
_CAPABILITY = re.compile(r"(?:compute capability|capability|\bcc|\bsm)[ _:=]{0,3}(\d{1,2})\.?(\d)\b")
_NOISE = re.compile(
    r"\b(?:nvidia|geforce|amd|radeon|gpu|graphics|tm|laptop|mobile|max-q|pcie|sxm\d?|hbm\d?e?|nvl|server edition|"
    r"workstation edition|\d{1,3} ?gi?b)\b|[()\[\],]"
)


@functools.cache
def _table() -> Mapping[str, facts.Row]:
    return {row["name"]: row for row in facts.table("gpus")}


def look_up(text: str) -> Gpu:
    """The GPU of a name, with what the tables know of it; a name that they don't know stays a name alone."""
    written = " ".join(text.split())[:100]
    low = written.lower()
    count = _count(low)
    name = re.sub(r"\s?[x×]\s?\d{1,3}$|^\d{1,3}\s?[x×]\s", "", written, flags=re.IGNORECASE).strip()
    if stated := _CAPABILITY.search(low):
        return Gpu(name=_without_note(name), capability=f"{stated[1]}.{stated[2]}", count=count)
    if gfx := _GFX.search(low):
        return Gpu(name=_without_note(name), gfx=gfx[0], count=count)
    row = _row(low)
    if row is not None:
        return Gpu(
            name=_named(name, row["name"]),
            capability=row["capability"] or None,
            gfx=row["gfx"] or None,
            count=count,
        )
    if not _APPLE.search(low) and (known := _in_catalogue(name)):
        return Gpu(name=name, capability=known, count=count)
    return Gpu(name=name or None, count=count)


def with_capabilities(machine: Environment) -> Environment:
    """The machine with the capability or target of each GPU that is known by its name alone."""
    gpus = tuple(
        item if item.capability or item.gfx or not item.name else _completed(item, look_up(item.name))
        for item in machine.gpus
    )
    return msgspec.structs.replace(machine, gpus=gpus)


def _completed(item: Gpu, known: Gpu) -> Gpu:
    return msgspec.structs.replace(item, capability=known.capability, gfx=known.gfx)


def is_apple(gpu: Gpu) -> bool:
    """Whether it is the GPU of an Apple chip."""
    return gpu.gfx is None and gpu.capability is None and bool(_APPLE.search((gpu.name or "").lower()))


def _count(low: str) -> int:
    found = _COUNT.search(low)
    return int(found[1] or found[2]) if found else 1


def _named(written: str, known: str) -> str:
    """The written name from the first word that belongs to a GPU's name on: no host or user before it."""
    words = written.split()
    wanted = {*known.split(), *_BRANDS}
    for index, word in enumerate(words):
        parts = re.findall(r"[a-z]+|\d+[a-z]*", word.lower())
        if word.lower() in wanted or (parts and set(parts) <= wanted):
            return " ".join(words[index:])[:60]
    return known


_BRANDS = frozenset(
    {
        "nvidia",
        "geforce",
        "amd",
        "radeon",
        "quadro",
        "tesla",
        "instinct",
        "rtx",
        "gtx",
        "rx",
        "titan",
        "jetson",
    }
)


def _without_note(name: str) -> str | None:
    return re.sub(r"\s?\([^)]{0,60}\)", "", name).strip() or None


def _row(low: str) -> facts.Row | None:
    """The row whose name is the longest run of words in the text."""
    words = _NOISE.sub(" ", low.replace("-", " ")).split()
    words = [part for word in words for part in re.sub(r"^(rtx|gtx|rx)(?=\d)", r"\1 ", word).split()]
    words = [part for word in words for part in re.sub(r"^(\d{3,4})(ti|xt|xtx|s)$", r"\1 \2", word).split()]
    table = _table()
    for length in range(min(6, len(words)), 0, -1):
        for start in range(len(words) - length + 1):
            row = table.get(" ".join(words[start : start + length]))
            if row is not None:
                return row
    return None


@functools.lru_cache(maxsize=256)
def _in_catalogue(name: str) -> str | None:
    from raceline.catalog.resolve import accelerator
    from raceline.present.errors import InputError

    try:
        found = accelerator(name).accelerator.compute_capability
    except InputError:
        return None
    return None if found is None else f"{found:.1f}"
