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
from raceline.measure.libraries import libraries
from raceline.measure.root import Root
from raceline.measure.sites import configured, prefix_of, site_folders


def read_environment(root: Root | None = None, prefix: Path | None = None) -> Environment:
    """The machine, and the Python environment in `prefix` (default: the active one, else the one that runs this)."""
    root = root or Root()
    where = prefix_of(prefix) if prefix else active_prefix(root)
    sites = site_folders(where)
    fields: dict[str, Any] = {**_system(root), **_python(where, sites)}
    for found in (gpus.nvidia(root), gpus.amd(root), gpus.others(root), _apple(root)):
        fields = {**found, **{name: value for name, value in fields.items() if value not in (None, ())}}
    fields |= libraries(root, sites, is_container=fields.get("container") is not None)
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
    if root.variables.get("APPTAINER_CONTAINER") or root.variables.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    groups = root.text("/proc/1/cgroup") or ""
    match = re.search(r"\b(docker|kubepods|libpod|lxc)\b", groups)
    return {"kubepods": "kubernetes", "libpod": "podman"}.get(match[1], match[1]) if match else None


def _python(prefix: Path, sites: tuple[Path, ...]) -> dict[str, Any]:
    is_conda = (prefix / "conda-meta").is_dir()
    found = [item for site in sites for item in packages.distributions(site)]
    fields: dict[str, Any] = {
        "distributions": packages.merged(found, packages.conda_packages(prefix) if is_conda else ()),
        "conda": prefix.name if is_conda else None,
    }
    version = re.search(r"python(3\.\d+)(t?)", str(sites[0]) if sites else "")
    if prefix == Path(sys.prefix):
        fields |= {
            "python": platform.python_version(),
            "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")) or None,
        }
    else:
        fields |= {
            "python": configured(prefix) or (version[1] if version else None),
            "is_free_threaded": bool(version and version[2]) or None,
        }
    return fields


def _apple(root: Root) -> dict[str, Any]:
    if not root.is_real or platform.system() != "Darwin" or platform.machine() != "arm64":
        return {}
    from raceline.measure.environment import Gpu

    name = (root.output("sysctl", "-n", "machdep.cpu.brand_string") or "").strip()
    return {"gpus": (Gpu(name[:60] or "Apple"),)}
