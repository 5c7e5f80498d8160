"""Re-read the package index for releases that the tables do not know, and add their rows.

What metadata tells is written: dates, Pythons, platforms and C library by wheel tags, exact pins by requirements. What
only release notes tell (the list of CUDA builds, capabilities, tested configurations) stays empty for a person to fill.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from raceline.present.errors import InputError, message
from raceline.present.views import Group, Text, View
from raceline.stack import pypi
from raceline.stack.facts import PACKAGE_TABLES
from raceline.stack.versions import specifier

# a table without rows begins with the releases of this day
FIRST_DAY = "2021-01-01"
# columns of a table by the package whose bound they hold
_BOUNDS = {
    name: name
    for name in (
        "torch", "torchvision", "torchaudio", "numpy", "transformers", "xformers", "triton", "scipy", "protobuf",
        "keras", "flashinfer-python", "pydantic", "tensorboard",
    )
} | {"ml-dtypes": "ml_dtypes", "jax-cuda12-pjrt": "pjrt", "jax-cuda13-pjrt": "pjrt"}  # fmt: skip
_PLUGIN = {
    ("with-cuda", "nvidia-cuda-runtime"): "cuda_runtime",
    ("with-cuda", "nvidia-cudnn"): "cudnn",
    ("with-cuda", "nvidia-nccl"): "nccl",
}
# columns of bounds that an extra has, by package, extra and the start of the name
_EXTRA_BOUNDS = {
    "tensorflow": {
        ("and-cuda", "nvidia-cuda-runtime"): "and_cuda_runtime",
        ("and-cuda", "nvidia-cudnn"): "and_cuda_cudnn",
        ("and-cuda", "nvidia-nccl"): "and_cuda_nccl",
    },
    "onnxruntime-gpu": {
        ("cuda", "nvidia-cuda-runtime"): "extra_cuda_runtime",
        ("cudnn", "nvidia-cudnn"): "extra_cudnn",
    },
    "jax": {("tpu", "libtpu"): "libtpu"},
    "jax-cuda12-plugin": _PLUGIN,
    "jax-cuda13-plugin": _PLUGIN,
}
# exact pins of torch's Linux wheel, by the start of the name
_TORCH_PINS = {
    "nvidia-cudnn-cu": "cudnn_pin",
    "nvidia-nccl-cu": "nccl_pin",
    "nvidia-nvshmem-cu": "nvshmem_pin",
    "triton": "triton_pin",
    "cuda-toolkit": "pypi_default_cuda",
    "nvidia-cuda-runtime-cu": "pypi_default_cuda",
}
_LINUX = {
    "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64",
    "platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": "",
}  # fmt: skip
_TAG = re.compile(r"-(?P<python>(?:cp|py)\d[\w.]*)-(?P<abi>[\w.]+)-(?P<platform>[\w.]+)\.whl$")
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)")
_OLD_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_PLATFORMS = (
    (r"linux\w*_x86_64", "linux_x86_64"),
    (r"linux\w*_aarch64", "linux_aarch64"),
    (r"macosx\w*_(?:arm64|universal2)", "macos_arm64"),
    (r"macosx\w*_(?:x86_64|universal2|intel)", "macos_x86_64"),
    (r"win_amd64", "win_amd64"),
    (r"win_arm64", "win_arm64"),
    (r"win32", "win32"),
    (r"^any$", "any"),
)

Row = dict[str, str]


class Place(msgspec.Struct, frozen=True):
    """Where a package's releases stand: a table, its column of versions, and what tells its rows from others'."""

    table: str
    column: str = "version"
    told: Mapping[str, str] = {}

    def holds(self, row: Mapping[str, str]) -> bool:
        """Whether a row of the table is one of this package."""
        return all(row[name] == text for name, text in self.told.items())


# packages that share a table with others; the wheels that flash-attn has are on no index
_SHARED: Mapping[str, Place] = {
    **{f"nvidia-cudnn-cu{item}": Place("cudnn", "cudnn", {"cuda_package": item, "kind": "pypi"})
       for item in ("11", "12", "13")},
    "tensorrt": Place("tensorrt", told={"kind": "pypi", "package": "tensorrt"}),
    **{f"tensorrt-cu{item}": Place("tensorrt", told={"kind": "pypi", "package": f"tensorrt-cu{item}", "cuda": item})
       for item in ("11", "12", "13")},
    **{name: Place("jax_plugins", told={"package": name})
       for name in ("jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin", "jax-cuda13-pjrt")},
}  # fmt: skip
PLACES: Mapping[str, Place] = {
    **{name: Place(table) for name, table in PACKAGE_TABLES.items() if name != "flash-attn"},
    **_SHARED,
}


class RefreshReport(msgspec.Struct, frozen=True):
    """What a refresh found: releases by table that are new, and known ones whose metadata says something else now;
    `written` False: only looked."""

    new: dict[str, tuple[str, ...]] = {}
    written: bool = False
    changed: dict[str, tuple[str, ...]] = {}

    def view(self) -> View:
        """The new and the changed releases by table."""
        lines = [
            Text(message(id, table=name, versions=", ".join(versions)))
            for id, found in (("stack.refresh_new", self.new), ("stack.refresh_changed", self.changed))
            for name, versions in found.items()
            if versions
        ]
        return Group(tuple(lines) or (Text(message("stack.refresh_nothing")),))


def refresh(
    folder: Path, names: Iterable[str], today: str, *, base: str = pypi.DEFAULT, only_look: bool = False,
    rereads: bool = False, progress: Callable[[str], None] = lambda name: None,
) -> RefreshReport:  # fmt: skip
    """Add rows for new final releases to the tables in a folder; `names` are packages (empty: all).

    Rows that stand are left alone; with `rereads` what their metadata tells is read again, and what it does not tell
    stays. Raises InputError for a package without a table, and where the index can't be read: then nothing is written.
    """
    wanted = list(names) or list(PLACES)
    unknown = [name for name in wanted if name not in PLACES]
    if unknown:
        raise InputError("stack.no_table", field="package", given=", ".join(unknown), known=", ".join(PLACES))
    tables: dict[str, tuple[list[str], list[Row]]] = {}
    new: dict[str, tuple[str, ...]] = {}
    changed: dict[str, tuple[str, ...]] = {}
    for name in wanted:
        progress(name)
        place = PLACES[name]
        columns, rows = tables.get(place.table) or read_table(folder / f"{place.table}.csv")
        listed = pypi.files(name, base)
        own = [row for row in rows if place.holds(row)]
        fresh = [
            made_row(name, version, listed[version], columns, today)
            for version in new_versions(own, listed, place.column)
        ]
        again = _reread(name, own, listed, columns, today) if rereads else {}
        tables[place.table] = columns, _joined([again.get(row[place.column], row) if place.holds(row) else row
                                                for row in rows], fresh, place)  # fmt: skip
        new[place.table] = new.get(place.table, ()) + tuple(row[place.column] for row in fresh)
        changed[place.table] = changed.get(place.table, ()) + tuple(again)
    if not only_look:
        for table, (columns, rows) in tables.items():
            if new[table] or changed[table]:
                (folder / f"{table}.csv").write_text(table_text(columns, rows), encoding="utf-8")
    return RefreshReport(new, not only_look, {name: found for name, found in changed.items() if found})


def made_row(name: str, version: Version, listed: list[pypi.File], columns: list[str], today: str) -> Row:
    """The row of a release as the index tells it; its metadata is read where the table has a column of it."""
    told = pypi.metadata(listed) if "requires_python" in columns else ("", [])
    return row_of(name, version, listed, told, columns, today)


def _reread(
    name: str, rows: list[Row], listed: Mapping[Version, list[pypi.File]], columns: list[str], today: str
) -> dict[str, Row]:
    """Rows by version whose metadata says something else than they do; the day of a release that stands stays (its
    files may have come on several)."""
    place, found = PLACES[name], {}
    for row in rows:
        version = Version(row[place.column])
        if version not in listed:
            continue
        made = made_row(name, version, listed[version], columns, today)
        told = {
            key: text
            for key, text in made.items()
            if text and key not in ("release_date", "source_url", "as_of")
        }
        if any(row[key] != text for key, text in told.items()):
            found[row[place.column]] = {**row, **told, "as_of": today}
    return found


def _joined(rows: list[Row], fresh: list[Row], place: Place) -> list[Row]:
    """Rows with the new ones, each behind the last row of its package that is older."""
    found = list(rows)
    for row in fresh:
        version = Version(row[place.column])
        own = [index for index, item in enumerate(found) if place.holds(item)]
        older = [index for index in own if Version(found[index][place.column]) < version]
        found.insert(max(older) + 1 if older else min(own, default=len(found)), row)
    return found


def read_table(path: Path) -> tuple[list[str], list[Row]]:
    """Columns and rows of a table's file."""
    reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
    rows = list(reader)
    return list(reader.fieldnames or ()), rows


def table_text(columns: list[str], rows: Iterable[Mapping[str, str]]) -> str:
    """A table's file."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def new_versions(
    rows: Iterable[Row], listed: Mapping[Version, list[pypi.File]], column: str = "version"
) -> list[Version]:
    """Final releases that the rows do not know, the oldest first: newer than the newest of them or released after it
    (a repair of an older line); none that was yanked. Without rows: all since FIRST_DAY."""
    rows = list(rows)
    known = {Version(row[column]) for row in rows}
    newest = max(known, default=None)
    day = max((row["release_date"] for row in rows), default=FIRST_DAY)
    return sorted(
        version
        for version, items in listed.items()
        if version not in known
        and not version.is_prerelease
        and not all(item.get("yanked") for item in items)
        and ((newest is not None and version > newest) or _day_of(items) >= day)
    )


def _day_of(items: Iterable[pypi.File]) -> str:
    return min((str(item.get("upload-time") or "")[:10] for item in items), default="")


def row_of(
    name: str,
    version: Version,
    listed: list[pypi.File],
    told: tuple[str, list[str]],
    columns: list[str],
    today: str,
) -> Row:
    """The row of a release out of its files and its metadata (required Python, requirements)."""
    python, lines = told
    requires = list(_requirements(lines))
    place = PLACES[name]
    found: Row = {
        **place.told,
        place.column: str(version),
        "release_date": _day_of(listed),
        "requires_python": python
        or next((str(item["requires-python"]) for item in listed if item.get("requires-python")), ""),
        "source_url": f"https://pypi.org/project/{name}/{version}/",
        "as_of": today,
        **_tags([str(item.get("filename", "")) for item in listed]),
        **_bounds(requires, python),
    }
    for (extra, start), column in _EXTRA_BOUNDS.get(name, {}).items():
        pattern = re.compile(rf"{start}\d*(?:-cu\d+)?")
        found[column] = next(
            (
                _exact(str(item.specifier))
                for item in requires
                if pattern.fullmatch(item.name) and _is_of(item, extra)
            ),
            "",
        )
    if name == "torch":
        found |= _torch_pins(requires)
    if name == "jax":
        found["jaxlib_range"] = next(
            (str(item.specifier) for item in requires if item.name == "jaxlib" and not _is_extra(item)), ""
        )
    return {column: found.get(column, "") for column in columns}


def _bounds(requires: list[Requirement], python: str) -> Row:
    """Bounds on other packages, by column."""
    found: dict[str, list[Requirement]] = {}
    for item in requires:
        column = _BOUNDS.get(canonicalize_name(item.name))
        if column is not None and not _is_extra(item):
            found.setdefault(column, []).append(item)
    return {column: common_bound(items, python) for column, items in found.items()}


def common_bound(items: list[Requirement], python: str) -> str:
    """The bound on a package that holds with every Python of the release on Linux: what all lines that apply say, and
    the lowest of their floors. Empty where some Python has none: what holds only somewhere is no bound of it."""
    if len(items) == 1:
        return str(items[0].specifier)
    admitted = specifier(python) or SpecifierSet()
    applied = [
        [part for item in items if _applies(item, minor) for part in item.specifier]
        for minor in (f"3.{number}" for number in range(6, 17))
        if f"{minor}.90" in admitted
    ]
    if not all(applied) or not applied:
        return ""
    common = set.intersection(*(set(parts) for parts in applied))
    floors = [[Version(part.version) for part in parts if part.operator == ">="] for parts in applied]
    kept = [str(part) for part in common if part.operator != ">="]
    if all(floors):
        kept.append(f">={min(max(found) for found in floors)}")
    return str(SpecifierSet(",".join(kept)))


def _applies(item: Requirement, python: str) -> bool:
    """Whether a requirement is one with this Python on Linux."""
    return item.marker is None or item.marker.evaluate(
        {**_LINUX, "python_version": python, "python_full_version": f"{python}.90"}
    )


def _torch_pins(requires: list[Requirement]) -> Row:
    found: Row = {}
    for item in requires:
        column = next((column for start, column in _TORCH_PINS.items() if item.name.startswith(start)), None)
        if column is not None and column not in found:
            found[column] = _exact(str(item.specifier))
    return found


def _exact(text: str) -> str:
    """A bound as the tables write pins: an exact one is the version alone."""
    return text.removeprefix("==") if re.fullmatch(r"==[\w.!+]+", text) else text


def _requirements(lines: Iterable[str]) -> Iterable[Requirement]:
    for line in lines:
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue


def _is_of(item: Requirement, extra: str) -> bool:
    """Whether a requirement is one of an extra's."""
    return (
        item.marker is not None
        and re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", str(item.marker)) is not None
    )


def _is_extra(item: Requirement) -> bool:
    return item.marker is not None and "extra" in str(item.marker)


def _tags(names: list[str]) -> Row:
    """Pythons, platforms and C library floors by the tags of the wheels. A wheel for the stable ABI or for any Python
    serves later Pythons too: then the highest Python repeats the lowest, which says that there is no upper end."""
    pythons: set[tuple[int, int]] = set()
    is_open = False
    free: set[str] = set()
    platforms: dict[str, None] = {}
    floors: dict[str, list[Version]] = {}
    for name in names:
        match = _TAG.search(name)
        if match is None:
            continue
        is_open = (
            is_open or match["abi"] == "abi3" or (match["python"].startswith("py") and match["abi"] == "none")
        )
        for python in re.findall(r"cp(\d)(\d+)", match["python"]):
            if match["abi"].endswith("t"):
                free.add(f"{python[0]}.{python[1]}t")
            else:
                pythons.add((int(python[0]), int(python[1])))
        for pattern, word in _PLATFORMS:
            if re.search(pattern, match["platform"]):
                platforms[word] = None
        for arch, floor in _floors(match["platform"]):
            floors.setdefault(arch, []).append(floor)
    ends = (min(pythons), (min if is_open else max)(pythons)) if pythons else ()
    low, high = [f"{item[0]}.{item[1]}" for item in ends] or ["", ""]
    listed = " ".join(sorted(platforms))
    return {
        "python_min": low, "python_max": high, "wheel_python_min": low, "wheel_python_max": high,
        "python_freethreaded": " ".join(sorted(free)), "pypi_platforms": listed, "platforms": listed,
        **{f"glibc_min_{arch}": str(min(found)) for arch, found in floors.items()},
    }  # fmt: skip


def _floors(platform: str) -> Iterable[tuple[str, Version]]:
    found: dict[str, Version] = {}
    for major, minor, arch in _GLIBC.findall(platform):
        found[arch] = min(found.get(arch, Version("99")), Version(f"{major}.{minor}"))
    for tag, floor in _OLD_TAGS.items():
        for arch in re.findall(rf"{tag}_(x86_64|aarch64)", platform):
            found[arch] = min(found.get(arch, Version("99")), Version(floor))
    return found.items()
