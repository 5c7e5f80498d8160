"""Whole documents: pyproject.toml, a conda environment.yml, a Dockerfile."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from raceline.measure.environment import Gpu
from raceline.present.documents import load_json, load_yaml
from raceline.present.errors import InputError
from raceline.stack.readers import system
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.names import normalised
from raceline.stack.readers.requirements import indexes_in, read_install_command, read_requirement
from raceline.stack.told import Requirement

LARGEST = 2**18
_INSTRUCTION = re.compile(
    r"(?i)\s{0,8}(?:FROM|RUN|ENV|ARG|COPY|ADD|CMD|ENTRYPOINT|WORKDIR|USER|LABEL|EXPOSE|VOLUME|SHELL|HEALTHCHECK|ONBUILD|#)\b"
)
_FROM = re.compile(r"(?im)^\s{0,8}FROM\s{1,8}(?:--platform=(\S{1,40})\s{1,4})?(\S{1,200})")


def flattened(text: str) -> str:
    """A JSON document as lines ``key: value``, which are read like any; another text as it is."""
    if text.lstrip()[:1] != "{" or len(text) > LARGEST:
        return text
    try:
        data = load_json(text.encode())
    except InputError:
        return text
    return "\n".join(_lines_of(data))


def _lines_of(data: Any) -> Iterator[str]:
    for key, value in _mapping(data).items():
        if isinstance(value, dict):
            yield from _lines_of(value)
        elif isinstance(value, list):
            for item in value:
                yield from _lines_of(item) if isinstance(item, dict) else (str(item),)
        elif value is not None:
            yield f"{key}: {value}"


def rest_of(text: str) -> str:
    """The lines of a text around a Dockerfile that are none of its instructions."""
    if len(text) > LARGEST or not _FROM.search(text):
        return ""
    kept, goes_on = [], False
    for line in text.splitlines():
        if not goes_on and not _INSTRUCTION.match(line):
            kept.append(line)
        goes_on = line.rstrip().endswith("\\") and (goes_on or _INSTRUCTION.match(line) is not None)
    return "\n".join(kept)


def read_document(text: str, found: Collected) -> bool:
    """Read the text as one of the documents; False where it is none of them."""
    if len(text) > LARGEST:
        return False
    if text.lstrip()[:1] == "{":
        return False
    if _FROM.search(text) and re.search(
        r"(?im)^\s{0,8}(?:RUN|ENV|COPY|CMD|ENTRYPOINT|WORKDIR|ARG)\s", text + "\nRUN "
    ):
        return _dockerfile(text, found)
    if re.search(
        r"(?m)^\s{0,4}\[(?:project|tool\.[\w.-]{1,40}|build-system|dependency-groups)[\w.-]{0,60}\]", text
    ):
        return _pyproject(text, found)
    if re.search(r"(?m)^dependencies\s?:\s{0,4}$", text):
        return _environment_yml(text, found)
    return False


def _pyproject(text: str, found: Collected) -> bool:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return False
    project, tool = _mapping(data.get("project")), _mapping(data.get("tool"))
    groups = [project.get("dependencies"), *_mapping(project.get("optional-dependencies")).values()]
    groups += list(_mapping(data.get("dependency-groups")).values())
    uv = _mapping(tool.get("uv"))
    groups.append(uv.get("dev-dependencies"))
    labels = _uv_labels(uv, found)
    for group in groups:
        for item in group if isinstance(group, list) else []:
            if isinstance(item, str):
                read_requirement(
                    item, found, "pyproject", labels.get(normalised(re.split(r"[\s<>=!~\[;@]", item)[0]))
                )
    for name, value in _mapping(_mapping(tool.get("poetry")).get("dependencies")).items():
        _poetry(name, value, found)
    _requires_python(project.get("requires-python"), found)
    found.note("pyproject")
    return True


def _uv_labels(uv: dict[str, Any], found: Collected) -> dict[str, str]:
    """Builds that uv's sources give to packages, by the index that each names."""
    indexes: dict[str, str] = {}
    listed = uv.get("index")
    for item in listed if isinstance(listed, list) else []:
        address = str(_mapping(item).get("url", ""))
        before = len(found.index_labels)
        if indexes_in(address, found):
            indexes[str(_mapping(item).get("name", ""))] = found.index_labels[before]
    labels: dict[str, str] = {}
    for name, source in _mapping(uv.get("sources")).items():
        options = source if isinstance(source, list) else [source]
        for option in options:
            label = indexes.get(str(_mapping(option).get("index", "")))
            if label is not None:
                labels.setdefault(normalised(name), label)
    if uv.get("torch-backend") == "auto" or _mapping(uv.get("pip")).get("torch-backend") == "auto":
        found.index_labels.append("auto")
    return labels


def _poetry(name: str, value: Any, found: Collected) -> None:
    bounds = str(_mapping(value).get("version", "")) if isinstance(value, dict) else str(value)
    if name.lower() == "python":
        _requires_python(_caret(bounds), found)
        return
    if not read_requirement(f"{name}{_caret(bounds)}", found, "pyproject"):
        found.add_wanted(Requirement(normalised(name), source="pyproject"))


def _caret(bounds: str) -> str:
    """Poetry's ``^2.1`` and ``2.1`` as PEP 440 bounds."""
    text = bounds.strip()
    if text in ("*", ""):
        return ""
    if match := re.fullmatch(r"\^(\d+)((?:\.\d+)*)", text):
        return (
            f">={match[1]}{match[2]},<{int(match[1]) + 1}" if match[1] != "0" else f">={match[1]}{match[2]}"
        )
    if match := re.fullmatch(r"~(\d+(?:\.\d+)*)", text):
        return f"~={match[1]}" if "." in match[1] else f"=={match[1]}.*"
    return f"=={text}" if text[:1].isdigit() else text


def _requires_python(bounds: Any, found: Collected) -> None:
    if isinstance(bounds, str) and (
        match := re.fullmatch(r"\s*(?:==|~=)\s?(3\.\d{1,2})(?:\.[\d*]+)?\s*", bounds)
    ):
        found.set(python=match[1])


def _environment_yml(text: str, found: Collected) -> bool:
    try:
        data = load_yaml(text.encode())
    except InputError:
        return False
    listed = _mapping(data).get("dependencies")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, str):
            _conda_spec(item, found)
        for inner in _mapping(item).get("pip") or []:
            if isinstance(inner, str) and not indexes_in(inner, found):
                read_requirement(inner, found, "environment_yml")
    found.note("environment_yml")
    return True


def _conda_spec(text: str, found: Collected) -> None:
    match = re.fullmatch(r"(?:[\w./-]{1,60}::)?([\w.-]{1,60})\s{0,3}((?:[=<>!~].{0,60})?)", text.strip())
    if match is None:
        return
    name, bounds = normalised(match[1]), match[2].replace(" ", "")
    parts = bounds.lstrip("=").split("=") if bounds.startswith("=") else []
    version, build = (parts[0] if parts else None), (parts[1] if len(parts) > 1 else None)
    if name == "python":
        found.set(python=system.python(version or bounds))
        return
    if name in ("pytorch-cuda", "cudatoolkit", "cuda-version", "cuda-toolkit") and version:
        found.index_labels.append("cu" + "".join(version.split(".")[:2]).rstrip("*"))
    from raceline.stack.readers.lines import conda_label

    label = conda_label(build) if build else None
    if version is not None:
        is_exact = bounds.startswith("==") or build is not None
        bounds = f"=={version}" if is_exact or version.count(".") >= 2 or "*" in version else f"=={version}.*"
    found.add_wanted(Requirement(name, bounds, label, (), "environment_yml"))


def _dockerfile(text: str, found: Collected) -> bool:
    images = _FROM.findall(text)
    found.base_image = _public(images[-1][1][:200])
    for platform, image in reversed(images):
        _image(image.lower(), found)
        if platform:
            found.set(arch=system.system(platform).get("arch"))
    joined = re.sub(r"\\\s{0,8}\n", " ", text)
    for line in joined.splitlines():
        for command in re.split(r"&&|;|\|\|", line[:20000]):
            read_install_command(command, found, "dockerfile")
        if match := re.match(r"\s{0,8}ENV\s{1,4}(\w{1,60})[= ]\s{0,3}[\"']?([^\"'\n]{1,400})", line):
            _variable(match[1], match[2], found)
        if re.search(r"\b(?:apt-get|apt|yum|dnf|microdnf)\b.{0,200}\binstall\b", line[:4000]):
            _system_packages(line[:4000], found)
    found.set(os="linux", container="docker")
    found.note("dockerfile")
    return True


def _public(image: str) -> str:
    """An image's name without the host of a private registry."""
    host, slash, rest = image.partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return rest if is_host and host.lower() not in _REGISTRIES else image


_REGISTRIES = frozenset(
    {
        "docker.io",
        "nvcr.io",
        "ghcr.io",
        "quay.io",
        "mcr.microsoft.com",
        "public.ecr.aws",
        "gcr.io",
        "registry.hub.docker.com",
    }
)


def _image(image: str, found: Collected) -> None:
    tag = image.rpartition(":")[2]
    if cuda := re.search(r"cuda:?[-_]?(\d{1,2}\.\d)", image):
        found.set(image_cuda=cuda[1], toolkit=cuda[1] if "devel" in image else None)
    if match := re.search(r"pytorch/pytorch:(\d[\d.]{2,8})-cuda(\d{1,2}\.\d)", image):
        found.add_worded("torch", _pinned(match[1], match[2]), "dockerfile")
    if match := re.search(r"tensorflow/tensorflow:(\d[\d.]{2,8})(-gpu)?", image):
        found.add_wanted(Requirement("tensorflow", f"=={match[1]}", source="dockerfile"))
    if match := re.search(r"python:?(3\.\d{1,2})", image):
        found.set(python=match[1])
    if match := re.search(
        r"(ubuntu|debian|ubi|rockylinux|centos|amazonlinux|fedora)[:/]?-?(\d{1,4}(?:\.\d{2})?)", image
    ):
        names = {"ubi": "rhel", "rockylinux": "rocky", "amazonlinux": "amazon linux"}
        found.set(**system.system(f"{names.get(match[1], match[1])} {match[2]}"))
    for name, version in _DEBIAN.items():
        if name in tag:
            found.set(**system.system(f"debian {version}"))
    if "alpine" in image:
        found.set(**system.system("alpine"))
    if image.startswith("nvidia/cuda") or "nvcr.io" in image:
        found.set(has_cuda_compat=True)
    if match := re.search(r"rocm(?:/\w+)?[:_-](?:rocm)?(\d\.\d)", image):
        found.set(rocm=match[1])


_DEBIAN = {"buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13"}


def _pinned(version: str, cuda: str) -> Any:
    from raceline.stack.readers.wording import Wording
    from raceline.stack.versions import label_of

    return Wording(version=version, label=label_of(cuda))


def _variable(name: str, value: str, found: Collected) -> None:
    if name == "LD_LIBRARY_PATH":
        found.set(library_path=tuple(item for item in value.split(":")[:50] if item and "$" not in item))
        if "compat" in value:
            found.set(has_cuda_compat=True)
    elif name == "TORCH_CUDA_ARCH_LIST" and (match := re.search(r"\d{1,2}\.\d", value)) and not found.gpus:
        found.add_gpu(Gpu(capability=match[0]))
    elif name == "HSA_OVERRIDE_GFX_VERSION":
        found.set(gfx_override=value.strip())
    elif name == "UV_TORCH_BACKEND":
        found.index_labels.append(value.strip())


def _system_packages(line: str, found: Collected) -> None:
    if match := re.search(r"cuda-toolkit-(\d{1,2})-(\d)", line):
        found.set(toolkit=f"{match[1]}.{match[2]}")
    if "cuda-compat" in line:
        found.set(has_cuda_compat=True)
    if match := re.search(r"\bpython(3\.\d{1,2})\b", line):
        found.set(python=match[1])
    if match := re.search(r"\b(?:gcc|g\+\+)-(\d{1,2})\b", line):
        found.set(gcc=match[1])


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
