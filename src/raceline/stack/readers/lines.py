"""One line of a text at a time: reports, tables of packages, requirements and loose words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from raceline.measure.environment import Distribution
from raceline.stack.gpus import is_apple, look_up
from raceline.stack.readers import system
from raceline.stack.readers.collected import Collected
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
        reader = _KEYS.get(key) if key in _WORDY_KEYS else None
        if reader is not None and (key != "gpu" or _is_gpu(value)):
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
        reader = _KEYS.get(key)
        if reader is not None:
            self.expects = key if key in _EXPECT_MORE else None
            first, *rest = [value] if reader in (_gpus, _cuda) else value.split(", ")
            reader(self.found, first)
            for part in rest[:20]:
                self._loose(part)
            self.found.note("collect_env" if key in _OF_COLLECT_ENV else "facts")
            return True
        name = normalised(match[1])
        if not is_known(name):
            return False
        self.found.add_worded(name, understood(name, value), "facts")
        self.found.note("facts")
        return True

    def _expected(self, text: str) -> bool:
        if self.expects is None and not _MORE.fullmatch(text.strip().lower()):
            return False
        if match := _MORE.fullmatch(text.strip().lower()):
            self.expects = match[1]
            return True
        if self.expects and self.expects.startswith("cudnn"):
            _cudnn(self.found, text)
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


def _is_gpu(text: str) -> bool:
    """Whether a text names a GPU that the tables know."""
    gpu = look_up(text)
    return bool(gpu.capability or gpu.gfx or is_apple(gpu))


def _gpus(found: Collected, value: str) -> None:
    """GPUs of a value; parts that are none (``CUDA 11.8``, ``torch 2.0.1``) are read as free words."""
    from raceline.stack.readers.loose import read_loose

    for item in re.split(r"\s{0,2}(?:;|,|\band\b|\+)\s{0,2}", value):
        text = re.sub(r"^gpu ?\d{1,3}\s?:\s?", "", item.strip(), flags=re.IGNORECASE)
        if not text or re.fullmatch(r"(?i)n/a|none|no gpu|could not collect|unknown", text):
            continue
        gpu = look_up(text)
        if (
            gpu.capability
            or gpu.gfx
            or is_apple(gpu)
            or (not read_loose(text, found) and len(text) <= 60 and not re.search(r"@|\.\w+\.|[\\/]", text))
        ):
            found.add_gpu(gpu)


def _capability(found: Collected, value: str) -> None:
    from raceline.measure.environment import Gpu

    match = re.search(r"\b(\d{1,2}\.\d)\b", value)
    if match is None:
        return
    if found.gpus:
        found.gpus[0] = msgspec.structs.replace(found.gpus[0], capability=match[1])
    else:
        found.add_gpu(Gpu(capability=match[1]))


def _cuda(found: Collected, value: str) -> None:
    found.set(**system.cuda(value, is_image=found.fields.get("container") is not None))


def _cudnn(found: Collected, value: str) -> None:
    if match := re.search(r"libcudnn\.so\.(\d[\d.]*)", value) or re.search(
        r"\b(\d{1,2}(?:\.\d{1,3}){0,3})\b", value
    ):
        number = match[1]
        found.set(cudnn=_spread(number))


def _spread(number: str) -> str:
    """``8902`` and ``90100`` are how cuDNN counts 8.9.2 and 9.1.0."""
    if "." in number or len(number) < 4:
        return number
    code = int(number)
    return (
        f"{code // 10000}.{code % 10000 // 100}.{code % 100}"
        if code >= 90000
        else f"{code // 1000}.{code % 1000 // 100}.{code % 100}"
    )


def _system(found: Collected, value: str) -> None:
    found.set(**system.system(value))


def _torch(found: Collected, value: str) -> None:
    found.add_worded("torch", understood("torch", value), "facts")


def _torch_cuda(found: Collected, value: str) -> None:
    if match := re.search(r"\b(\d{1,2}\.\d)\b", value):
        found.set(torch_cuda=match[1])
    elif re.match(r"(?i)none|could not", value):
        found.add_installed(Distribution("torch", None, "cpu"))


def _torch_rocm(found: Collected, value: str) -> None:
    if match := re.search(r"\b(\d\.\d{1,2})", value):
        found.add_installed(Distribution("torch", None, f"rocm{match[1]}"))


def _available(found: Collected, value: str) -> None:
    found.set(has_cuda_device=value.strip().lower().startswith("true"))


def _field(name: str, pattern: str) -> Callable[[Collected, str], None]:
    def read(found: Collected, value: str) -> None:
        if match := re.search(pattern, value):
            found.set(**{name: match[1]})

    return read


def _driver(found: Collected, value: str) -> None:
    found.set(driver=system.driver(value))


def _library_path(found: Collected, value: str) -> None:
    from raceline.stack.readers.private import redacted

    found.set(library_path=tuple(redacted(item) for item in value.split(":")[:50] if item))


def _uv(found: Collected, value: str) -> None:
    found.installers.setdefault("uv", value[:40])


def _gcc(found: Collected, value: str) -> None:
    match = re.search(r"(?:^|[\s)(>])(\d{1,2}(?:\.\d{1,2}){0,2})(?:\s|$)", value)
    if match is None:
        return
    is_above = re.search(r"(?i)newer than|later than|^>", value) is not None
    found.set(gcc=str(int(match[1].split(".")[0]) + 1) if is_above else match[1])


def _named(
    names: str, reader: Callable[[Collected, str], None]
) -> dict[str, Callable[[Collected, str], None]]:
    """The reader under each of the names, which stand between bars."""
    return dict.fromkeys((name.strip() for name in names.split("|")), reader)


def _python(found: Collected, value: str) -> None:
    is_free = re.search(r"\d\.\d{1,2}t\b|free-threading", value) is not None
    found.set(python=system.python(value), is_free_threaded=True if is_free else None)


def _nccl(found: Collected, value: str) -> None:
    found.add_worded("nccl", understood("nccl", value), "facts")


def _macos(found: Collected, value: str) -> None:
    _system(found, f"macOS {value}")


def _architecture(found: Collected, value: str) -> None:
    found.set(arch=system.system(value).get("arch"))


_KEYS: dict[str, Callable[[Collected, str], None]] = {
    **_named(
        "os|operating system|system|platform|os platform and distribution|distro|python platform|uname",
        _system,
    ),
    **_named("machine|os version|linux distribution|host os", _system),
    **_named(
        "gpu|gpus|gpu model|gpu models|gpu models and configuration|graphics card|device|device name|card",
        _gpus,
    ),
    **_named("product name|gpu name|accelerator|gpu type|gpu device|video card|hardware", _gpus),
    **_named("compute capability|compute_capability|compute cap|cuda capability|sm", _capability),
    **_named("cuda|cuda version|cuda toolkit|cuda driver|cuda/cudnn version|cuda toolkit version", _cuda),
    **_named("driver|nvidia driver|nvidia driver version|driver version|gpu driver|driver_version", _driver),
    **_named("cuda driver version|nvidia-driver", _driver),
    **_named("python|python version|py|python_version", _python),
    **_named("libc version|glibc|glibc version|libc", _field("glibc", r"(\d\.\d{1,3})")),
    **_named("gcc version|gcc|gcc/compiler version|gcc/compiler version (if compiling from source)", _gcc),
    **_named("c compiler|g++|compiler", _gcc),
    **_named("cuda runtime version|nvcc|nvcc version", _field("toolkit", r"(\d{1,2}\.\d)")),
    **_named("cudnn|cudnn version|system_cudnn|system cudnn", _cudnn),
    **_named("pytorch version|torch version|pytorch", _torch),
    **_named("is cuda available|cuda available", _available),
    **_named("rocm|rocm version|hip runtime version", _field("rocm", r"(\d\.\d{1,2})")),
    **_named("macos|macos version", _macos),
    "nccl": _nccl,
    "cuda used to build pytorch": _torch_cuda,
    "rocm used to build pytorch": _torch_rocm,
    "ld_library_path": _library_path,
    "hsa_override_gfx_version": _field("gfx_override", r"(\d{1,2}\.\d\.\d)"),
    "uv": _uv,
    "architecture": _architecture,
}

_OF_COLLECT_ENV = frozenset(
    {
        "libc version", "gpu models and configuration", "nvidia driver version", "cuda used to build pytorch",
        "is cuda available", "python platform", "pytorch version",
    }
)  # fmt: skip
_EXPECT_MORE = frozenset({"cudnn version"})
_MORE = re.compile(
    r"(gpu models and configuration|cudnn version|packages|setup|versions of relevant libraries) ?:(?: probably one of the following:)?"
)
