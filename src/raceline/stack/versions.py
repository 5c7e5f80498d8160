"""Versions, specifiers and the labels of builds, as people write them."""

from __future__ import annotations

import functools
import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_CUDA = re.compile(r"\bcu(?:da)?[-_ ]?(\d{2,3})\b", re.IGNORECASE)
_LONGEST = 64


@functools.lru_cache(maxsize=4096)
def parse(text: str | None) -> Version | None:
    """A version without its local label, or None where the text is none (``unpinned``, ``any``)."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        return Version(text.strip().split("+", 1)[0])
    except InvalidVersion:
        return None


@functools.lru_cache(maxsize=4096)
def specifier(text: str) -> SpecifierSet | None:
    """A set of version bounds that admits pre-releases, or None where the text is none.

    Of bounds that differ by Python (``>=1.23.5 if … | <2.0.0``) the last are taken: those of the newer Pythons.
    """
    if len(text) > 4 * _LONGEST:
        return None
    try:
        return SpecifierSet(text.rpartition("|")[2].partition(" if ")[0].strip(), prereleases=True)
    except InvalidSpecifier:
        return None


def admits(bounds: str | None, version: str | None) -> bool | None:
    """Whether the bounds hold for the version; None where either can't be read. Empty bounds admit all."""
    found, wanted = specifier(bounds or ""), parse(version)
    if found is None or wanted is None:
        return None
    return wanted in found


def minor(version: str | None) -> str | None:
    """``2.1`` of ``2.1.2``; ``12.0`` of ``12.x``."""
    found = parse(version.replace(".x", ".0") if version else None)
    return None if found is None else f"{found.major}.{found.minor}"


def major(version: str | None) -> int | None:
    """``12`` of ``12.8`` and of ``12.x``."""
    found = parse(version.removesuffix(".x") if version else None)
    return None if found is None else found.major


def cuda_of(label: str | None) -> str | None:
    """The CUDA a build label names: ``cu126`` is 12.6, ``cu101`` 10.1, ``cu12`` and what names none is None."""
    match = _CUDA.search(label) if label else None
    if match is None or len(match[1]) < 3:
        return None
    return f"{match[1][:-1]}.{match[1][-1]}"


def rocm_of(label: str | None) -> str | None:
    """The ROCm a build label names: ``rocm6.2`` is 6.2."""
    match = re.search(r"rocm[-_ ]?(\d+(?:\.\d+)*)", label, re.IGNORECASE) if label else None
    return match[1] if match else None


def label_of(cuda: str) -> str:
    """The build label of a CUDA version: 12.6.77 is ``cu126``."""
    return "cu" + "".join(cuda.split(".")[:2])


def at_least(version: str | None, floor: str | None) -> bool | None:
    """Whether a version reaches a floor; None where either is unknown."""
    found, needed = parse(version), parse(floor)
    return None if found is None or needed is None else found >= needed


def driver_from_code(code: str) -> str | None:
    """CUDA of a driver's number in messages: ``12080`` is 12.8, ``11060`` 11.6."""
    if not code.isdigit() or not 4 <= len(code) <= 6:
        return None
    return f"{int(code) // 1000}.{int(code) % 1000 // 10}"
