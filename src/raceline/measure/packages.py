"""Installed distributions, read from their folders without importing anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Literal

import msgspec

from raceline.measure.environment import Distribution, Shadow, SharedFile

MOST_DISTRIBUTIONS = 5000
LARGEST_RECORD = 8 * 2**20
MOST_LIBRARIES = 4000
# distributions that are known to come in flavours or majors which own the same files
_COLLIDING = re.compile(
    r"(?:nvidia-\w+-cu1\d|nvidia-(?:cudnn|nccl|cublas|nvjitlink)\b|onnxruntime\b|opencv-|tensorflow\b|tensorflow-|tensorrt\b|torch\b|pytorch|jax)"
)
# pip leaves folders that begin with ~ where it was interrupted; an egg's name ends with its Python and platform
_INFO = re.compile(r"([^~].*)-([^-]+)\.dist-info|([^~-][^-]*)-([^-]+)(?:-py\d[^-]*)?(?:-[\w.-]+)?\.egg-info")
_CUDA_LIBRARY = re.compile(
    r"(lib(?:cudnn|cublas|cusparse|cusolver|cufft|curand|nvJitLink|nccl|cudart|nvrtc)[\w]*)\.so\.\d+"
)


def distributions(site: Path) -> tuple[Distribution, ...]:
    """The packages of a site-packages folder; conda's own packages are added by `conda_packages`."""
    found = []
    for folder in _info_folders(site):
        item = _distribution(folder)
        if item is not None:
            found.append(item)
    return tuple(found)


def _info_folders(site: Path) -> list[Path]:
    try:
        names = sorted(entry for entry in site.iterdir() if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return []
    return names[:MOST_DISTRIBUTIONS]


def _distribution(folder: Path) -> Distribution | None:
    match = _INFO.fullmatch(folder.name)
    if match is None:
        return None
    name, version = match[1] or match[3], match[2] or match[4]
    public, _, label = version.partition("+")
    return Distribution(_normalised(name), public, label or None, _installer(folder))


def _installer(folder: Path) -> Literal["pip", "conda", "uv"] | None:
    try:
        text = (folder / "INSTALLER").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return "conda" if text == "conda" else "uv" if text == "uv" else "pip" if text == "pip" else None


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def merged(items: Iterable[Distribution], records: Iterable[Distribution]) -> tuple[Distribution, ...]:
    """Each package once, the first that is found: what conda installed has the build that conda's record names."""
    by_record = {item.name: item for item in records}
    found: dict[str, Distribution] = {}
    for item in items:
        record = by_record.get(item.name)
        if record is not None and item.installer in (None, "conda") and record.version == item.version:
            item = msgspec.structs.replace(item, label=item.label or record.label, installer="conda")
        found.setdefault(item.name, item)
    return (*found.values(), *(item for name, item in by_record.items() if name not in found))


def conda_packages(prefix: Path) -> tuple[Distribution, ...]:
    """The packages of a conda environment, by the names of its records: ``pytorch-2.1.0-py3.10_cuda11.8_0``."""
    found = []
    try:
        names = sorted(entry.name for entry in (prefix / "conda-meta").iterdir() if entry.suffix == ".json")
    except OSError:
        return ()
    for name in names[:MOST_DISTRIBUTIONS]:
        parts = name.removesuffix(".json").rsplit("-", 2)
        if len(parts) == 3:
            short = {"pytorch": "torch"}.get(parts[0], _normalised(parts[0]))
            found.append(Distribution(short, parts[1], _conda_label(parts[2]), "conda"))
    return tuple(found)


def _conda_label(build: str) -> str | None:
    if match := re.search(r"cuda_?(\d{2})\.?(\d)", build):
        return f"cu{match[1]}{match[2]}"
    return "cpu" if re.search(r"(?:^|_)cpu(?:_|$)", build) else None


def shared_files(site: Path) -> tuple[SharedFile, ...]:
    """Files that two installed distributions both list as theirs, of those that are known to collide."""
    owned: dict[str, set[str]] = {}
    for folder in _info_folders(site):
        match = _INFO.fullmatch(folder.name)
        if match is not None and _COLLIDING.match(name := _normalised(match[1] or match[3])):
            owned[name] = _record(folder)
    found = []
    for first, second in combinations(sorted(owned), 2):
        both = owned[first] & owned[second]
        if both:
            found.append(SharedFile(first, second, min(both), len(both)))
    return tuple(found)


def _record(folder: Path) -> set[str]:
    """The files of a distribution that hold code or libraries."""
    try:
        with (folder / "RECORD").open("rb") as file:
            text = file.read(LARGEST_RECORD).decode("utf-8", errors="replace")
    except OSError:
        return set()
    names = {line.rsplit(",", 2)[0].strip('"') for line in text.splitlines()}
    skipped = ("__pycache__", ".dist-info/")
    return {
        name
        for name in names
        if name
        and not name.startswith("..")
        and not name.endswith("__init__.py")
        and not any(part in name for part in skipped)
    }


def shadows(library_path: Iterable[tuple[str, Path]], site: Path) -> tuple[Shadow, ...]:
    """Libraries on the loader path (shown name and folder) that also came with a wheel under ``nvidia/*/lib``."""
    owned = dict(_wheel_libraries(site))
    found = []
    for shown, folder in library_path:
        if str(folder).startswith(str(site)):
            continue
        try:
            names = {entry.name for entry, _ in zip(folder.iterdir(), range(MOST_LIBRARIES), strict=False)}
        except OSError:
            continue
        for name in sorted(names & owned.keys()):
            found.append(Shadow(name, shown, owned[name]))
    return tuple(found[:50])


def _wheel_libraries(site: Path) -> Iterator[tuple[str, str]]:
    try:
        parts = sorted((site / "nvidia").iterdir())
    except OSError:
        return
    for part in parts:
        try:
            names = [entry.name for entry in (part / "lib").iterdir()]
        except OSError:
            continue
        for name in names:
            if _CUDA_LIBRARY.fullmatch(name):
                yield name, f"nvidia-{part.name.replace('_', '-')}"
