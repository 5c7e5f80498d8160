"""Requirements as pip reads them: bounds, extras, builds, indexes, wheels by address."""

from __future__ import annotations

import re

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Written

from raceline.stack.readers.collected import Collected
from raceline.stack.readers.names import normalised
from raceline.stack.told import Requirement, SourceKind

_INDEX = re.compile(
    r"download(?:-r2)?\.pytorch\.org/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]{1,8}|xpu)"
)
_BACKEND = re.compile(r"(?:torch-backend|TORCH_BACKEND)[= ]{1,3}['\"]?(cu\d{2,3}|cpu|rocm[\d.]{1,8}|auto)")
_WHEEL = re.compile(
    r"([A-Za-z][\w.]{0,60})-(\d[\w.]{0,40})(?:(?:\+|%2B)([\w.]{1,60}))?-(?:cp|py)\d[\w.]{0,20}-[\w.]{1,30}-[\w.]{1,80}\.whl"
)
_OPTION = re.compile(
    r"\s{0,8}(?:-{1,2}(?:extra-)?index-url|-i\b|-f\b|--find-links|--torch-backend|-e\b|--no-binary|--pre|-r\b|-c\b)"
)


def is_option(line: str) -> bool:
    """Whether a line of a requirements file is an option."""
    return _OPTION.match(line) is not None


def read_option(line: str, found: Collected) -> bool:
    """Keep what an option says of builds: an index of one CUDA, a backend."""
    indexes_in(line, found)
    found.note("requirements")
    return True


def indexes_in(text: str, found: Collected) -> bool:
    """Keep the builds that index addresses and backends in a text name."""
    labels = [*_INDEX.findall(text), *_BACKEND.findall(text)]
    found.index_labels.extend(labels)
    return bool(labels)


def _unquoted(text: str) -> str:
    """Without quotes around the whole; those inside a marker stay."""
    for mark in "'\"`":
        if text[:1] == mark:
            return text[1:].removesuffix(mark)
    return text.removesuffix("`")


def read_wheel(text: str, found: Collected, source: SourceKind = "requirements") -> bool:
    """Keep the package, version, build and Python that a wheel's file name tells."""
    wheel = _WHEEL.search(text)
    if wheel is None:
        return False
    found.add_wanted(Requirement(normalised(wheel[1]), f"=={wheel[2]}", wheel[3], (), source))
    if python := re.search(r"-cp(\d)(\d{1,2})-", wheel[0]):
        found.set(python=f"{python[1]}.{python[2]}")
    found.note(source)
    return True


def read_requirement(line: str, found: Collected, source: SourceKind, only: str | None = None) -> bool:
    """Keep one requirement (``torch>=2.6,<2.9``, ``jax[cuda12]``, ``name @ https://…whl``); False where it is none.

    `only`: a label that the index of this line gives to torch and what comes with it.
    """
    text = _unquoted(re.split(r"\s#", line.strip(), maxsplit=1)[0].strip().rstrip("\\ ,;"))
    if read_wheel(text, found, source):
        return True
    label = None
    if match := re.search(r"(===?)\s?([\w.]{1,40})\+([\w.]{1,60})", text):
        label, text = match[3], text.replace(match[0], f"{match[1]}{match[2]}")
    try:
        written = Written(text[:300])
    except InvalidRequirement:
        return False
    name = normalised(written.name)
    if label is None and only is not None and name in ("torch", "torchvision", "torchaudio"):
        label = only
    found.add_wanted(Requirement(name, str(written.specifier), label, tuple(sorted(written.extras)), source))
    found.note(source)
    return True


def read_install_command(command: str, found: Collected, source: SourceKind) -> bool:
    """Keep what a ``pip install``, ``uv pip install``, ``uv add`` or ``conda install`` command asks for."""
    match = re.search(
        r"\b(?:(?:uv )?pip3?|uv|conda|mamba|micromamba|poetry)\s{1,3}(?:install|add)\b(.{0,4000})", command
    )
    if match is None:
        return False
    is_conda = re.search(r"\b(?:conda|mamba|micromamba) (?:install|create)", command) is not None
    labels = _INDEX.findall(match[1]) + [item for item in _BACKEND.findall(match[1]) if item != "auto"]
    indexes_in(match[1], found)
    skip = False
    said = False
    for word in re.findall(r"\"[^\"]{1,300}\"|'[^']{1,300}'|[^\s\"']{1,300}", match[1]):
        if skip or word in ("&&", "||", ";", "|"):
            if word in ("&&", "||", ";", "|"):
                break
            skip = False
            continue
        if word.startswith("-"):
            skip = word in _WITH_VALUE
            continue
        text = word.strip("\"'")
        if is_conda and re.fullmatch(r"[\w.-]+=[\w.*]+(?:=.*)?", text):
            text = re.sub(r"^([\w.-]+)=([\w.*]+).*$", r"\1==\2", text)
            if re.fullmatch(r"[\w.-]+==\d+(?:\.\d+)?", text) and not text.endswith("*"):
                text += ".*"
        said = read_requirement(text, found, source, labels[0] if labels else None) or said
    return said


_WITH_VALUE = frozenset(
    ("-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-r", "-c", "-n", "--name", "--channel", "-t", "--target",
     "--python", "--torch-backend", "--index", "--default-index", "-p", "--prefix", "--constraint", "--requirement")
)  # fmt: skip
