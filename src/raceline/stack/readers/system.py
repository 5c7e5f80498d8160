"""Words about a machine: its system, its GPU, its driver and its CUDA."""

from __future__ import annotations

import re
from typing import Any

from raceline.measure.environment import OperatingSystem
from raceline.stack.distributions import glibc_of

_LINUX = (
    "ubuntu", "debian", "centos", "rhel", "red hat", "rocky", "alma", "fedora", "amazon linux", "opensuse", "suse", "sles",
    "euleros", "openeuler", "arch linux", "manjaro", "mint", "pop!_os", "kali", "gentoo", "nixos", "alpine", "oracle linux",
    "linux", "colab", "kaggle", "notebook", "dgx", "jetpack", "l4t", "sagemaker", "tlinux", "kylin", "uos", "anolis",
)  # fmt: skip
_NAMES = {
    "red hat": "rhel",
    "amazon linux": "amazon",
    "suse": "opensuse",
    "arch linux": "arch",
    "oracle linux": "oracle",
}
_CONTAINER = re.compile(r"\b(docker|podman|singularity|apptainer|kubernetes|k8s|container)\b")
_ARCH = (
    ("aarch64", "aarch64"),
    ("arm64", "aarch64"),
    ("apple silicon", "aarch64"),
    ("x86_64", "x86_64"),
    ("x86-64", "x86_64"),
    ("amd64", "x86_64"),
    ("64-bit intel", "x86_64"),
    ("intel mac", "x86_64"),
    ("dgx spark", "aarch64"),
    ("jetson", "aarch64"),
    ("gh200", "aarch64"),
    ("ppc64le", "ppc64le"),
)


def system(text: str) -> dict[str, Any]:
    """Fields of an Environment that words about a system tell; empty where they tell none."""
    low = text.lower().strip()[:300]
    found: dict[str, Any] = {}
    os = _operating_system(low)
    if os is not None:
        found["os"] = os
    _containers(low, found)
    if re.search(r"\bwsl\s?2?\b|microsoft-standard", low):
        found |= {"os": "linux", "is_wsl": True}
    name, version = _name_and_version(low)
    if name:
        found |= {"os_name": name} | ({"os_version": version} if version else {})
    _arch(low, found)
    if glibc := re.search(r"glibc[- ]?(\d\.\d{1,3})", low):
        found["glibc"] = glibc[1]
    elif name and version and (known := glibc_of(name, version)):
        found["glibc"] = known
    if re.search(r"\balpine\b|\bmusl\b", low):
        found["is_musl"] = True
    if re.search(r"\b(?:inf[12]|trn[12]|trainium|inferentia)\b", low):
        found |= {"neuron": "unknown", "os": found.get("os", "linux")}
    if re.search(r"\btpu\b", low):
        found |= {"tpu": "unknown", "os": found.get("os", "linux")}
    return found


def _operating_system(low: str) -> OperatingSystem | None:
    if re.search(r"\bmac ?os\b|\bos ?x\b|\bdarwin\b|\bmacbook\b|\bmac (?:mini|studio|pro)\b|\bmac\b", low):
        return "macos"
    if re.search(r"\bwin(?:dows|32|64|-64|_amd64)?(?: ?\d{1,2})?\b", low) and "wsl" not in low:
        return "windows"
    if any(re.search(rf"\b{re.escape(word)}\b", low) for word in _LINUX) or _CONTAINER.search(low):
        return "linux"
    return None


def _containers(low: str, found: dict[str, Any]) -> None:
    container = _CONTAINER.search(low)
    if container is not None:
        found["container"] = "kubernetes" if container[1] == "k8s" else container[1]
    if (container is not None or "image" in low) and (cuda := re.search(r"cuda[ :-]?(\d{1,2}\.\d)", low)):
        found["image_cuda"] = cuda[1]


def _name_and_version(low: str) -> tuple[str | None, str | None]:
    if found := re.search(r"\b(?:mac ?os|os ?x)\b(?:[^\dx]{0,20}(\d{1,2}(?:\.\d{1,2}){0,2})\b(?!_))?", low):
        return "macos", found[1]
    if (found := re.search(r"\bwindows(?: server)?\s?(\d{1,4})?", low)) and "wsl" not in low:
        return "windows", found[1]
    for word in _LINUX[:23]:
        if found := re.search(rf"\b{re.escape(word)}\b[^\d]{{0,30}}(\d{{1,4}}(?:\.\d{{1,2}})?)?", low):
            return _NAMES.get(word, word), found[1]
    return None, None


def _arch(low: str, found: dict[str, Any]) -> None:
    arch = next((value for word, value in _ARCH if word in low), None)
    if arch is not None:
        found["arch"] = "arm64" if arch == "aarch64" and found.get("os") in ("macos", "windows") else arch


def cuda(text: str, is_image: bool) -> dict[str, Any]:
    """Fields that words about CUDA tell: the driver's, a toolkit's, the framework's (as ``torch_cuda``)."""
    low = text.lower().strip()[:200]
    versions = re.findall(r"\b(\d{1,2}\.\d)(?:\.\d+)?\b", low)
    if not versions:
        return {"toolkit": f"{whole[1]}.0"} if (whole := re.fullmatch(r"(1[0-9])", low)) else {}
    first = versions[0]
    if re.search(r"\bdriver\b|\bsmi\b|\bshows\b|\bsupports?\b", low):
        return {"driver_cuda": first}
    if re.search(r"\((?:torch|pytorch)\)|\btorch\b", low):
        return {"torch_cuda": first}
    if "library_path" in low or "library path" in low:
        return {"library_path": (f"/usr/local/cuda-{first}/lib64",)}
    if path := re.search(r"(\d{1,2}\.\d)(?:\.\d+)? (?:is )?first on path", low):
        others = tuple(item for item in versions if item != path[1])
        return {"toolkit": path[1], "other_toolkits": others}
    return {"toolkit": first} | ({"image_cuda": first} if is_image else {})


def driver(text: str) -> str | None:
    """A driver's version in words: ``535.183.01``, ``525``."""
    found = re.search(r"\b(\d{3}(?:\.\d{1,3}){0,2})\b", text)
    return found[1] if found else None


def python(text: str) -> str | None:
    """A Python's version in words; ``newer than 3.9`` is taken for the next one."""
    low = text.lower()
    found = re.search(r"\b([23]\.\d{1,2}(?:\.\d{1,2})?)(?:\b|t\b|rc|a\d|b\d)", low)
    if found is None:
        return None
    if re.search(r"newer than|above|later than|>(?!=)", low) and found[1].count(".") == 1:
        first, second = found[1].split(".")
        return f"{first}.{int(second) + 1}"
    return found[1]
