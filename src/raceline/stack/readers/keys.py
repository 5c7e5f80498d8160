"""What a report says under its keys: ``OS: …``, ``Nvidia driver version: …``, ``cuDNN version: …``."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from raceline.measure.environment import Distribution, Gpu
from raceline.stack.gpus import is_apple, look_up
from raceline.stack.readers import system
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.wording import understood


def is_gpu(text: str) -> bool:
    """Whether a text names a GPU that the tables know."""
    gpu = look_up(text)
    return bool(gpu.capability or gpu.gfx or is_apple(gpu))


def read_gpus(found: Collected, value: str) -> None:
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
    match = re.search(r"\b(\d{1,2}\.\d)\b", value)
    if match is None:
        return
    if found.gpus:
        found.gpus[0] = msgspec.structs.replace(found.gpus[0], capability=match[1])
    else:
        found.add_gpu(Gpu(capability=match[1]))


def read_cuda(found: Collected, value: str) -> None:
    """CUDA of the driver, of a toolkit or of torch, as the words say."""
    found.set(**system.cuda(value, is_image=found.fields.get("container") is not None))


def read_cudnn(found: Collected, value: str) -> None:
    """cuDNN by its number or by the name of its library."""
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


KEYS: dict[str, Callable[[Collected, str], None]] = {
    **_named(
        "os|operating system|system|platform|os platform and distribution|distro|python platform|uname",
        _system,
    ),
    **_named("machine|os version|linux distribution|host os", _system),
    **_named(
        "gpu|gpus|gpu model|gpu models|gpu models and configuration|graphics card|device|device name|card",
        read_gpus,
    ),
    **_named("product name|gpu name|accelerator|gpu type|gpu device|video card|hardware", read_gpus),
    **_named("compute capability|compute_capability|compute cap|cuda capability|sm", _capability),
    **_named("cuda|cuda version|cuda toolkit|cuda driver|cuda/cudnn version|cuda toolkit version", read_cuda),
    **_named("driver|nvidia driver|nvidia driver version|driver version|gpu driver|driver_version", _driver),
    **_named("cuda driver version|nvidia-driver", _driver),
    **_named("python|python version|py|python_version", _python),
    **_named("libc version|glibc|glibc version|libc", _field("glibc", r"(\d\.\d{1,3})")),
    **_named("gcc version|gcc|gcc/compiler version|gcc/compiler version (if compiling from source)", _gcc),
    **_named("c compiler|g++|compiler", _gcc),
    **_named("cuda runtime version|nvcc|nvcc version", _field("toolkit", r"(\d{1,2}\.\d)")),
    **_named("cudnn|cudnn version|system_cudnn|system cudnn", read_cudnn),
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

OF_COLLECT_ENV = frozenset(
    {
        "libc version", "gpu models and configuration", "nvidia driver version", "cuda used to build pytorch",
        "is cuda available", "python platform", "pytorch version",
    }
)  # fmt: skip
EXPECT_MORE = frozenset({"cudnn version"})
MORE = re.compile(
    r"(gpu models and configuration|cudnn version|packages|setup|versions of relevant libraries) ?:(?: probably one of the following:)?"
)
