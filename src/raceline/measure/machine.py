"""This machine and one Python environment on it, read without importing what is installed and without running it."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from raceline.measure import gpus, packages
from raceline.measure.environment import Environment
from raceline.measure.root import Root

_CUDA_FOLDER = re.compile(r"cuda-(\d{1,2}\.\d)")
_LOADER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/cuda/lib64",
)


def read_environment(root: Root | None = None, prefix: Path | None = None) -> Environment:
    """The machine, and the Python environment in `prefix` (default: the active one, else the one that runs this)."""
    root = root or Root()
    where = prefix or active_prefix(root)
    fields: dict[str, Any] = {**_system(root), **_python(root, where)}
    for found in (gpus.nvidia(root), gpus.amd(root), gpus.others(root), _apple(root)):
        fields = {**found, **{name: value for name, value in fields.items() if value not in (None, ())}}
    fields |= _libraries(root, where, fields.get("library_path", ()))
    return Environment(**fields)


def active_prefix(root: Root) -> Path:
    """The environment that is active in the shell, else the one that runs raceline."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = root.variables.get(name)
        if folder and root.path(folder).is_dir():
            return root.path(folder)
    return Path(sys.prefix)


def _system(root: Root) -> dict[str, Any]:
    name = (
        {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}.get(platform.system())
        if root.is_real
        else "linux"
    )
    machine = platform.machine().lower() if root.is_real else "x86_64"
    arch = {"amd64": "x86_64", "arm64": "arm64" if name != "linux" else "aarch64"}.get(machine, machine)
    fields: dict[str, Any] = {"os": name, "arch": arch}
    if name == "linux":
        fields |= _linux(root)
    elif name == "macos":
        fields |= {"os_name": "macos", "os_version": platform.mac_ver()[0] or None}
    elif name == "windows":
        fields |= {"os_name": "windows", "os_version": platform.release() or None}
    return fields


def _linux(root: Root) -> dict[str, Any]:
    release = dict(
        re.findall(r'^(\w+)="?([^"\n]{0,100})"?$', root.text("/etc/os-release") or "", re.MULTILINE)
    )
    kernel = (root.text("/proc/version") or "").lower()
    names = {"rhel": "rhel", "amzn": "amazon", "rocky": "rocky", "almalinux": "alma"}
    fields: dict[str, Any] = {
        "os_name": names.get(release.get("ID", ""), release.get("ID")),
        "os_version": release.get("VERSION_ID"),
        "is_wsl": ("microsoft" in kernel or root.exists("/usr/lib/wsl/lib")) or None,
        "container": _container(root),
    }
    glibc = _glibc() if root.is_real else None
    is_musl = any(name.startswith("ld-musl") for name in root.names("/lib"))
    return fields | {"glibc": glibc, "is_musl": True if is_musl and glibc is None else None}


def _glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    match = re.search(r"(\d+\.\d+)", text)
    return match[1] if match else None


def _container(root: Root) -> str | None:
    if root.variables.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if root.exists("/.dockerenv"):
        return "docker"
    if root.exists("/run/.containerenv"):
        return "podman"
    groups = root.text("/proc/1/cgroup") or ""
    match = re.search(r"\b(docker|kubepods|libpod|lxc)\b", groups)
    return {"kubepods": "kubernetes", "libpod": "podman"}.get(match[1], match[1]) if match else None


def _python(root: Root, prefix: Path) -> dict[str, Any]:
    site = site_packages(prefix)
    fields: dict[str, Any] = {"distributions": packages.distributions(site) if site else ()}
    version = re.search(r"python(\d\.\d+)", str(site or ""))
    if prefix == Path(sys.prefix):
        fields |= {
            "python": platform.python_version(),
            "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")) or None,
        }
    else:
        fields["python"] = _configured(prefix) or (version[1] if version else None)
    if (prefix / "conda-meta").is_dir():
        names = {item.name for item in fields["distributions"]}
        rest = tuple(item for item in packages.conda_packages(prefix) if item.name not in names)
        fields |= {"conda": prefix.name, "distributions": (*fields["distributions"], *rest)}
    return fields


def _configured(prefix: Path) -> str | None:
    """The Python that a virtual environment says it is of."""
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")[:4000]
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d\.\d+(?:\.\d+)?)", text, re.MULTILINE)
    return match[1] if match else None


def site_packages(prefix: Path) -> Path | None:
    """The folder of packages in an environment, or the folder itself where it is one."""
    if prefix.name == "site-packages":
        return prefix
    found = sorted(prefix.glob("lib/python3.*/site-packages"), key=lambda path: len(str(path)), reverse=True)
    windows = prefix / "Lib" / "site-packages"
    return found[0] if found else windows if windows.is_dir() else None


def _apple(root: Root) -> dict[str, Any]:
    if not root.is_real or platform.system() != "Darwin" or platform.machine() != "arm64":
        return {}
    from raceline.measure.environment import Gpu

    name = (root.output("sysctl", "-n", "machdep.cpu.brand_string") or "").strip()
    return {"gpus": (Gpu(name[:60] or "Apple"),)}


def _libraries(root: Root, prefix: Path, path: tuple[str, ...]) -> dict[str, Any]:
    """The loader path, what it hides, toolkits, compilers and the system's own copies of libraries."""
    entries = [item for item in (root.variables.get("LD_LIBRARY_PATH") or "").split(":") if item][:50]
    home = root.variables.get("HOME") or ""
    listed = [(_shown(item, home), root.path(item)) for item in entries]
    site = site_packages(prefix)
    fields: dict[str, Any] = {"library_path": tuple(shown for shown, _ in listed) or path}
    if site is not None:
        fields |= {"shadows": packages.shadows(listed, site), "shared_files": packages.shared_files(site)}
    compat = any("compat" in item for item in entries)
    fields |= {"has_cuda_compat": compat or None, **_toolkits(root), "gcc": _gcc(root)}
    folders = [*entries, *_LOADER_FOLDERS]
    fields |= {
        "cudnn": _library_version(root, folders, "libcudnn.so."),
        "nccl": _library_version(root, folders, "libnccl.so."),
    }
    return fields


def _shown(entry: str, home: str) -> str:
    """A folder without the name of the user whose home it is in."""
    if home not in ("", "/") and entry.startswith(home):
        return f"~{entry.removeprefix(home)}"
    return re.sub(r"^(/home|/Users)/[^/]+", "~", entry)


def _toolkits(root: Root) -> dict[str, Any]:
    """The CUDA of the first nvcc on PATH, and the others that are installed."""
    first = None
    for folder in (root.variables.get("PATH") or "").split(":"):
        if folder and root.exists(f"{folder}/nvcc"):
            first = _toolkit_version(root, str(Path(folder).parent))
            break
    installed = {match[1] for name in root.names("/usr/local") if (match := _CUDA_FOLDER.fullmatch(name))}
    default = _toolkit_version(root, "/usr/local/cuda") if first is None else None
    others = tuple(
        sorted(
            installed - {first or default},
            key=lambda item: [int(part) for part in item.split(".")],
            reverse=True,
        )
    )
    return {"toolkit": first or default, "other_toolkits": others}


def _toolkit_version(root: Root, folder: str) -> str | None:
    text = root.text(f"{folder}/version.json") or ""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*?"version"\s*:\s*"(\d+\.\d+)', text)
    match = match or re.search(r"CUDA Version (\d+\.\d+)", root.text(f"{folder}/version.txt") or "")
    if match is not None:
        return match[1]
    return found[1] if (found := _CUDA_FOLDER.search(str(root.path(folder).resolve()))) else None


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
