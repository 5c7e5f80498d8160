"""One line of a text at a time: reports, tables of packages, requirements and loose words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from raceline.measure.environment import Distribution
from raceline.stack.gpus import look_up
from raceline.stack.readers import system
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.keys import (
    EXPECT_MORE,
    KEYS,
    MORE,
    OF_COLLECT_ENV,
    is_gpu,
    read_cuda,
    read_cudnn,
    read_gpus,
)
from raceline.stack.readers.names import is_known, normalised
from raceline.stack.readers.requirements import is_option, read_option, read_requirement
from raceline.stack.readers.wording import Wording, understood
from raceline.stack.versions import label_of

LONGEST_LINE = 2000
_KEY = re.compile(
    r"[\W_]{0,12}([A-Za-z][\w .()/+\[\]-]{0,60}?)[*_`'\"]{0,3}\s{0,8}(?:[:=：])[*_`'\"]{0,3}\s+(\S.{0,400})"
)
_EXACT = re.compile(
    r"[\s>*`+-]{0,8}([A-Za-z][\w.-]{0,60})(\[[\w, -]{1,80}\])?\s{0,2}(===?)\s{0,2}([\w.!+*]{1,80})\s{0,3}(?:[;#\\].{0,200})?[`,]?"
)
_COLUMNS = re.compile(
    r"\s{0,4}([A-Za-z][\w.-]{0,60})\s{1,60}(v?\d[\w.!+-]{0,60})(?:\s{1,60}(\S{1,100}))?(?:\s{1,40}(\S{1,100}))?\s{0,40}"
)
_TAGGED = re.compile(
    r"\[(pip3?|conda)\]\s{1,8}([\w.-]{1,60})(?:==|\s{1,60})([\w.!+-]{1,60})(?:\s{1,60}(\S{1,80}))?(?:\s{1,60}(\S{1,80}))?"
)
_SMI_HEAD = re.compile(r"NVIDIA-SMI\s{1,4}([\d.]{3,16})")
_SMI_DRIVER = re.compile(r"(?:Driver|KMD) Version\s{0,60}:\s{0,4}([\d.]{3,16})")
_SMI_CUDA = re.compile(r"CUDA (?:UMD )?Version\s{0,60}:\s{0,4}(\d{1,2}\.\d)")
_SMI_QUERY = re.compile(r"(?:Driver|KMD|CUDA(?: UMD)?) Version\s{2,40}:")
_SMI_ROW = re.compile(
    r"\|\s{1,6}\d{1,3}\s{1,6}((?:NVIDIA|Tesla|GeForce|Quadro|GRID|TITAN|GB|RTX|GTX)[\w .-]{0,60}?)\s{2,20}(?:On|Off|WDDM|TCC|N/A)\b"
)
_SMI_LIST = re.compile(
    r"\s{0,8}(?:\[\d{1,4}\] )?GPU\s{0,2}\d{1,3}\s{0,2}:\s{1,4}([^(]{2,80})(?:\(UUID.{0,80})?"
)
_LIST_HEAD = re.compile(r"\s{0,4}package\s{1,60}version\b.{0,80}", re.IGNORECASE)
_CONDA_HEAD = re.compile(r"#\s{1,4}name\s{1,60}version\s{1,60}build", re.IGNORECASE)
_WORDY = re.compile(
    r"[\s>*`+\[\]-]{0,8}(?:pip3?\]\s)?([A-Za-z][\w-]{0,40}(?: capability)?)(?:\s{0,2}={1,2}\s{0,2}|\s{1,4})(\S.{0,160})"
)
_WORDY_KEYS = frozenset(
    {
        "os",
        "gpu",
        "driver",
        "cuda",
        "python",
        "cudnn",
        "gcc",
        "compute capability",
        "glibc",
        "uv",
        "nccl",
        "system cudnn",
    }
)
_THERE = frozenset({"prebuilt", "installed", "preinstalled", "wheel", "present", "any build"})
# words of sentences, which speak of things rather than list them
_PROSE = re.compile(
    r"(?i)\b(?:error|cannot|can't|fail(?:s|ed)?|requires?|the|is|was|are|not|no|please|when|after|import)\b"
)
_BARE = re.compile(r"([A-Za-z][\w.-]{0,60})(\[[\w, -]{1,80}\])?")
_BOUND = re.compile(r"[A-Za-z][\w.-]{0,60}\s{0,2}(?:\[[\w, -]{1,80}\])?\s{0,2}(?:[<>~!]=?|==)\s{0,2}\d")
_MARKDOWN = re.compile(r"\|\s{0,20}([A-Za-z][\w .()/+-]{0,60}?)\s{0,40}\|\s{0,20}([^|]{1,200}?)\s{0,80}\|?")
_QUERY_HEAD = re.compile(r"(?=.*\bname\b)(?=.*\b(?:driver_version|compute_cap)\b)[\w., \[\]]{8,200}")


class Scanner:
    """Reads lines in order and keeps what they say in a Collected."""

    def __init__(self, found: Collected) -> None:
        self.found = found
        self.table: str | None = None  # the kind of package table that the lines belong to
        self.query: list[str] | None = None  # columns of nvidia-smi --query-gpu
        self.expects: str | None = None  # what the next line tells (GPU models, cuDNN paths)
        self.list_kind = ""  # the list of GPUs that a line belongs to: a table, or lines "GPU 0: …"
        self.counts: dict[tuple[str, str | None], int] = {}

    def read(self, line: str) -> bool:
        """Whether the line said something."""
        if len(line) > LONGEST_LINE:
            return False
        text = line.rstrip()
        readers: tuple[Callable[[str], bool], ...] = (
            self._smi,
            self._head,
            self._tagged,
            self._row,
            self._option,
            self._exact,
            self._pair,
            self._bounded,
            self._segments,
            self._wordy,
            self._loose,
        )
        return any(reader(text) for reader in readers)

    def _segments(self, text: str) -> bool:
        """A line that lists facts between commas: each is read as a line of its own."""
        if text.count(", ") < 2 or len(text) > 600 or _PROSE.search(text):
            return False
        parts = [part.strip() for part in text.split(", ")]
        if any(len(part) > 80 for part in parts):
            return False
        readers = (self._exact, self._pair, self._wordy, self._loose)
        said = [any(reader(part) for reader in readers) for part in parts if part]
        return any(said)

    def _wordy(self, text: str) -> bool:
        """A key or a package with words after it: ``driver 570.86``, ``torch build listing sm_50 to sm_90``."""
        match = _WORDY.match(text)
        if match is None:
            return False
        key, value = match[1].lower().replace("_", " "), match[2].strip().strip("=").strip()
        reader = KEYS.get(key) if key in _WORDY_KEYS else None
        if reader is not None and (key != "gpu" or is_gpu(value)):
            reader(self.found, value)
            self.found.note("facts")
            return True
        name = normalised(match[1])
        wording = understood(name, value)
        is_there = value.lower().rstrip(".,;") in _THERE
        if not is_known(name) or (wording == Wording() and not is_there) or _PROSE.search(text):
            return False
        self.found.add_worded(name, wording, "facts")
        self.found.note("facts")
        return True

    def _smi(self, text: str) -> bool:
        head, driver, cuda = _SMI_HEAD.search(text), _SMI_DRIVER.search(text), _SMI_CUDA.search(text)
        is_listed = _SMI_QUERY.match(text) is not None
        if head or ((driver or cuda) and ("|" in text or is_listed)):
            told = driver or head
            self.found.set(
                driver=told[1] if told is not None else None, driver_cuda=cuda[1] if cuda else None
            )
            self.found.note("nvidia_smi")
            return True
        row = _SMI_ROW.match(text) or _SMI_LIST.fullmatch(text)
        if row is not None:
            self.list_kind = "table" if "|" in text else "lines"
            self._gpu(row[1])
            self.found.note("nvidia_smi" if "|" in text or "UUID" in text else "collect_env")
            return True
        return self._queried(text)

    def _queried(self, text: str) -> bool:
        if self.query is None:
            if not _QUERY_HEAD.fullmatch(text.strip()):
                return False
            self.query = [item.strip().split(" ")[0] for item in text.split(",")]
            return True
        cells = [item.strip() for item in text.split(",")]
        if len(cells) != len(self.query):
            self.query = None
            return False
        row = dict(zip(self.query, cells, strict=True))
        self.list_kind = "query"
        self._gpu(row.get("name", ""), row.get("compute_cap"))
        self.found.set(driver=system.driver(row.get("driver_version", "")))
        self.found.note("nvidia_smi")
        return True

    def _gpu(self, text: str, capability: str | None = None) -> None:
        """One GPU of a list; the same name again in the same list is one more of it."""
        gpu = look_up(text)
        if capability is not None and re.fullmatch(r"\d{1,2}\.\d", capability):
            gpu = msgspec.structs.replace(gpu, capability=capability)
        counted = self.counts.get((self.list_kind, gpu.name), 0) + gpu.count
        self.counts[self.list_kind, gpu.name] = counted
        self.found.add_gpu(msgspec.structs.replace(gpu, count=counted))

    def _head(self, text: str) -> bool:
        if _CONDA_HEAD.match(text):
            self.table = "conda_list"
            return True
        if _LIST_HEAD.fullmatch(text):
            self.table = "pip_list"
            return True
        if not text.strip():
            self.expects = None
            return False
        return re.fullmatch(r"[\s-]{8,200}", text) is not None

    def _tagged(self, text: str) -> bool:
        match = _TAGGED.match(text.strip())
        if match is None:
            return False
        self._install(match[2], match[3], match[4] if match[1] == "conda" else None, match[5], match[1])
        self.found.note("collect_env")
        return True

    def _install(self, name: str, version: str, build: str | None, channel: str | None, how: str) -> None:
        public, _, label = version.partition("+")
        wording = understood(normalised(name), public)
        is_conda = how == "conda" and not (channel or build or "").startswith("pypi")
        if is_conda and build and not label:
            label = conda_label(build) or ""
        short = normalised(name)
        if short == "onnxruntime" and label == "cuda":
            short, label = "onnxruntime-gpu", ""
        if wording.version is not None:
            installer: Literal["conda", "pip"] = "conda" if is_conda else "pip"
            self.found.add_installed(Distribution(short, wording.version, label or None, installer))

    def _row(self, text: str) -> bool:
        match = _COLUMNS.fullmatch(text)
        if match is None:
            return False
        name = normalised(match[1])
        if self.table is None and not (is_known(name) and not match[3]) and not _looks_like_conda(match):
            return False
        kind = (
            "conda_list"
            if self.table == "conda_list" or (self.table is None and _looks_like_conda(match))
            else "pip_list"
        )
        self._install(match[1], match[2], match[3], match[4], "conda" if kind == "conda_list" else "pip")
        self.found.note("conda_list" if kind == "conda_list" else "pip_list")
        return True

    def _option(self, text: str) -> bool:
        return is_option(text) and read_option(text, self.found)

    def _exact(self, text: str) -> bool:
        match = _EXACT.fullmatch(text)
        if match is None:
            return False
        public, _, label = match[4].partition("+")
        if "*" in public or match[2] or re.search(r"[;\\]", text):
            return read_requirement(text.strip(" -*`,>"), self.found, "requirements")
        wording = understood("", public)
        if wording.version is None:
            self.found.add_worded(
                normalised(match[1]), understood(normalised(match[1]), match[4]), "pip_freeze"
            )
            return True
        name = normalised(match[1])
        self.found.add_installed(Distribution(name, wording.version, label or None, "pip"))
        self.found.note("pip_freeze")
        return True

    def _bounded(self, text: str) -> bool:
        stripped = text.strip().lstrip("-*> ").strip("`")
        if bare := _BARE.fullmatch(stripped):
            is_listed = bool(self.found.lines["requirements"] or self.found.lines["pip_freeze"])
            if bare[2] is None and not is_known(normalised(bare[1])) and not is_listed:
                return False
            return read_requirement(stripped, self.found, "requirements")
        if not _BOUND.match(stripped) and "@ http" not in stripped[:80]:
            return False
        return read_requirement(stripped, self.found, "requirements")

    def _pair(self, text: str) -> bool:
        if text.lstrip().startswith("|") and (cells := _MARKDOWN.fullmatch(text.strip())) is not None:
            text = f"{cells[1]}: {cells[2]}"
        match = _KEY.match(text)
        if match is None:
            return self._expected(text)
        key, value = " ".join(match[1].lower().split()), match[2].strip().rstrip("*_`")
        reader = KEYS.get(key)
        if reader is not None:
            self.expects = key if key in EXPECT_MORE else None
            first, *rest = [value] if reader in (read_gpus, read_cuda) else value.split(", ")
            reader(self.found, first)
            for part in rest[:20]:
                self._loose(part)
            self.found.note("collect_env" if key in OF_COLLECT_ENV else "facts")
            return True
        name = normalised(match[1])
        if not is_known(name):
            return False
        self.found.add_worded(name, understood(name, value), "facts")
        self.found.note("facts")
        return True

    def _expected(self, text: str) -> bool:
        if self.expects is None and not MORE.fullmatch(text.strip().lower()):
            return False
        if match := MORE.fullmatch(text.strip().lower()):
            self.expects = match[1]
            return True
        if self.expects and self.expects.startswith("cudnn"):
            read_cudnn(self.found, text)
            return True
        return False

    def _loose(self, text: str) -> bool:
        from raceline.stack.readers.loose import read_loose

        return read_loose(text, self.found)


def _looks_like_conda(match: re.Match[str]) -> bool:
    """Whether a row of four columns is one of conda's: its third is a build string."""
    return bool(match[3]) and bool(
        re.fullmatch(
            r"(?:py\d(?:\.?\d{1,2})?_|py\d{2,3}|pypi|h[0-9a-f]{6,8}|cuda|cpu|gpu|mkl|blas|\w{1,30}_)[\w.]{0,60}",
            match[3],
        )
    )


def conda_label(build: str) -> str | None:
    """The variant in conda's build string: ``py3.10_cuda11.8_cudnn8.7.0_0`` is cu118, ``cpu_mkl_py311…`` cpu."""
    if found := re.search(r"cuda_?(\d{2})\.?(\d)", build):
        return label_of(f"{found[1]}.{found[2]}")
    if found := re.match(r"cuda(\d{2})(\d)?", build):
        return f"cu{found[1]}{found[2] or ''}"
    return "cpu" if re.match(r"cpu|.*_cpu_|py[\d.]+_cpu", build) else None
