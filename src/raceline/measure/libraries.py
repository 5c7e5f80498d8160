"""CUDA toolkits, compilers and libraries outside the Python environment, and what of them hides a package's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from raceline.measure import packages
from raceline.measure.root import Root

_CUDA_FOLDER = re.compile(r"cuda-(\d{1,2}\.\d)")
_COMPAT = re.compile(r"cuda[^/]*/compat(?:/|$)")
_DEFAULT = "/usr/local/cuda"
_LOADER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    f"{_DEFAULT}/lib64",
)


def libraries(root: Root, sites: tuple[Path, ...], *, is_container: bool) -> dict[str, Any]:
    """The loader path, what it hides, toolkits, compilers and the system's own copies of libraries."""
    entries = [item for item in (root.variables.get("LD_LIBRARY_PATH") or "").split(":") if item][:50]
    listed = [(shown(item, root), root.path(item)) for item in entries]
    folders = [*entries, *_LOADER_FOLDERS]
    return {
        "library_path": tuple(name for name, _ in listed),
        "shadows": tuple(item for site in sites for item in packages.shadows(listed, site)),
        "shared_files": tuple(item for site in sites for item in packages.shared_files(site)),
        "has_cuda_compat": _has_compat(root, entries) or None,
        "image_cuda": _image_cuda(root) if is_container else None,
        "gcc": _gcc(root),
        "cudnn": _library_version(root, folders, "libcudnn.so."),
        "nccl": _library_version(root, folders, "libnccl.so."),
        "tensorrt": _library_version(root, folders, "libnvinfer.so."),
        **_toolkits(root),
    }


def shown(entry: str, root: Root) -> str:
    """A folder without the name of the user whose it is."""
    home = (root.variables.get("HOME") or "").rstrip("/")
    if home and (entry == home or entry.startswith(f"{home}/")):
        return f"~{entry.removeprefix(home)}"
    entry = re.sub(r"^(/home|/Users)/[^/]+", "~", entry)
    users = {root.variables.get("USER"), root.variables.get("LOGNAME")} - {None, ""}
    if entry.startswith(("~", "/usr/", "/opt/", "/lib")):
        return entry
    return "/".join("~" if part in users else part for part in entry.split("/"))


def _has_compat(root: Root, entries: list[str]) -> bool:
    """Whether the loader finds a libcuda of the forward-compatibility package."""
    configured = [
        line.strip()
        for name in root.names("/etc/ld.so.conf.d")[:100]
        for line in (root.text(f"/etc/ld.so.conf.d/{name}") or "").splitlines()
    ]
    folders = [item for item in (*entries, *configured) if item.startswith("/") and _COMPAT.search(item)]
    return any(name.startswith("libcuda.so") for folder in folders for name in root.names(folder))


def _image_cuda(root: Root) -> str | None:
    """The CUDA that an image of NVIDIA says it is made with."""
    said = re.match(r"\d{1,2}\.\d", root.variables.get("CUDA_VERSION") or "")
    is_theirs = any(root.variables.get(name) for name in ("NVIDIA_REQUIRE_CUDA", "NV_CUDA_CUDART_VERSION"))
    return said[0] if said and is_theirs else None


def _toolkits(root: Root) -> dict[str, Any]:
    """The CUDA of the first nvcc (on PATH, else in the default folder), and the others that are installed."""
    path = [folder for folder in (root.variables.get("PATH") or "").split(":") if folder]
    nvcc = next(
        (f"{folder}/nvcc" for folder in (*path, f"{_DEFAULT}/bin") if root.exists(f"{folder}/nvcc")), None
    )
    first = _toolkit_version(root, nvcc) if nvcc else None
    installed = {match[1] for name in root.names("/usr/local") if (match := _CUDA_FOLDER.fullmatch(name))}
    others = sorted(
        installed - {first}, key=lambda item: [int(part) for part in item.split(".")], reverse=True
    )
    return {"toolkit": first, "other_toolkits": tuple(others)}


def _toolkit_version(root: Root, nvcc: str) -> str | None:
    """By the files beside a compiler, the name of its folder, or else what it says of itself."""
    folder = str(Path(nvcc).parent.parent)
    text = root.text(f"{folder}/version.json") or ""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*?"version"\s*:\s*"(\d+\.\d+)', text)
    match = match or re.search(r"CUDA Version (\d+\.\d+)", root.text(f"{folder}/version.txt") or "")
    match = match or _CUDA_FOLDER.search(str(root.path(nvcc).resolve()))
    match = match or re.search(r"release (\d+\.\d+)", root.output(nvcc, "--version") or "")
    return match[1] if match else None


def _gcc(root: Root) -> str | None:
    match = re.match(r"\s*(\d+(?:\.\d+){0,2})\s*$", root.output("gcc", "-dumpfullversion") or "")
    return match[1] if match else None


def _library_version(root: Root, folders: list[str], prefix: str) -> str | None:
    """The version in the longest file name of a library on the loader's folders."""
    for folder in folders:
        names = [name.removeprefix(prefix) for name in root.names(folder) if name.startswith(prefix)]
        versions = [name for name in names if re.fullmatch(r"\d+(?:\.\d+){1,3}", name)]
        if versions:
            return max(versions, key=len)
    return None
