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
from packaging.version import Version

from raceline.present.errors import InputError, message
from raceline.present.views import Group, Text, View
from raceline.stack import pypi
from raceline.stack.facts import PACKAGE_TABLES

# columns of a table by the package whose bound they hold
_BOUNDS = {
    name: name
    for name in (
        "torch", "torchvision", "torchaudio", "numpy", "transformers", "xformers", "triton", "scipy", "protobuf",
        "keras",
        "flashinfer-python",
    )
}  # fmt: skip
# columns of bounds that an extra has, by package, extra and the start of the name
_EXTRA_BOUNDS = {
    "tensorflow": {
        ("and-cuda", "nvidia-cuda-runtime-cu"): "and_cuda_runtime",
        ("and-cuda", "nvidia-cudnn-cu"): "and_cuda_cudnn",
        ("and-cuda", "nvidia-nccl-cu"): "and_cuda_nccl",
    },
    "onnxruntime-gpu": {
        ("cuda", "nvidia-cuda-runtime"): "extra_cuda_runtime",
        ("cudnn", "nvidia-cudnn-cu"): "extra_cudnn",
    },
    "jax": {("tpu", "libtpu"): "libtpu"},
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


class RefreshReport(msgspec.Struct, frozen=True):
    """What a refresh found: rows by table that are new; `written` False: only looked."""

    new: dict[str, tuple[str, ...]] = {}
    written: bool = False

    def view(self) -> View:
        """The new releases by table."""
        lines = [
            Text(message("stack.refresh_new", table=name, versions=", ".join(found)))
            for name, found in self.new.items()
            if found
        ]
        return Group(tuple(lines) or (Text(message("stack.refresh_nothing")),))


def refresh(
    folder: Path, names: Iterable[str], today: str, *, base: str = pypi.DEFAULT, only_look: bool = False,
    progress: Callable[[str], None] = lambda name: None,
) -> RefreshReport:  # fmt: skip
    """Add rows for new final releases to the tables in a folder; `names` are packages (empty: all).

    Raises InputError for a package without a table, and where the index can't be read: then nothing is written.
    """
    wanted = list(names) or [name for name in PACKAGE_TABLES if name != "flash-attn"]
    unknown = [name for name in wanted if name not in PACKAGE_TABLES]
    if unknown:
        raise InputError(
            "stack.no_table", field="package", given=", ".join(unknown), known=", ".join(PACKAGE_TABLES)
        )
    texts: dict[Path, str] = {}
    found: dict[str, tuple[str, ...]] = {}
    for name in wanted:
        progress(name)
        path = folder / f"{PACKAGE_TABLES[name]}.csv"
        columns, rows = read_table(path)
        listed = pypi.files(name, base)
        fresh = [
            row_of(name, version, listed[version], pypi.metadata(listed[version]), columns, today)
            for version in new_versions(rows, listed)
        ]
        found[PACKAGE_TABLES[name]] = tuple(row["version"] for row in fresh)
        if fresh:
            texts[path] = table_text(columns, [*rows, *fresh])
    if not only_look:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    return RefreshReport(found, not only_look)


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


def new_versions(rows: Iterable[Row], listed: Mapping[Version, list[pypi.File]]) -> list[Version]:
    """Final releases that are newer than the newest of the table, the oldest first; none that was yanked."""
    newest = max((Version(row["version"]) for row in rows), default=Version("0"))
    return sorted(
        version
        for version, items in listed.items()
        if version > newest and not version.is_prerelease and not all(item.get("yanked") for item in items)
    )


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
    found: Row = {
        "version": str(version),
        "release_date": min((str(item.get("upload-time") or "")[:10] for item in listed), default=""),
        "requires_python": python
        or next((str(item["requires-python"]) for item in listed if item.get("requires-python")), ""),
        "source_url": f"https://pypi.org/project/{name}/{version}/",
        "as_of": today,
        **_tags([str(item.get("filename", "")) for item in listed]),
        **{
            _BOUNDS[item.name]: str(item.specifier)
            for item in requires
            if item.name in _BOUNDS and not _is_extra(item)
        },
    }
    for (extra, start), column in _EXTRA_BOUNDS.get(name, {}).items():
        found[column] = next(
            (str(item.specifier) for item in requires if item.name.startswith(start) and _is_of(item, extra)),
            "",
        )
    if name == "torch":
        found |= _torch_pins(requires)
    if name == "jax":
        found["jaxlib_range"] = next(
            (str(item.specifier) for item in requires if item.name == "jaxlib" and not _is_extra(item)), ""
        )
    return {column: found.get(column, "") for column in columns}


def _torch_pins(requires: list[Requirement]) -> Row:
    found: Row = {}
    for item in requires:
        column = next((column for start, column in _TORCH_PINS.items() if item.name.startswith(start)), None)
        if column is not None and column not in found:
            text = str(item.specifier)
            found[column] = text.removeprefix("==") if text.startswith("==") else text
    return found


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
    """Pythons, platforms and C library floors by the tags of the wheels."""
    pythons: set[tuple[int, int]] = set()
    free: set[str] = set()
    platforms: dict[str, None] = {}
    floors: dict[str, list[Version]] = {}
    for name in names:
        match = _TAG.search(name)
        if match is None:
            continue
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
    low, high = (
        f"{item[0]}.{item[1]}" if item else ""
        for item in (min(pythons, default=None), max(pythons, default=None))
    )
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
