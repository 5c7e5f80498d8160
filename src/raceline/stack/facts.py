"""The fact tables, read when first needed. A version that no table holds has no row: no verdict, never a guess."""

from __future__ import annotations

import csv
import datetime
import functools
import io
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
from packaging.version import Version

from raceline.stack.result import Fact
from raceline.stack.versions import parse

TABLES = (
    "torch", "torch_arch", "tensorflow", "jax", "cuda_driver", "driver_branch", "cuda_arch", "cudnn", "onnxruntime",
    "tensorrt", "rocm", "python_eol", "vllm", "xformers", "bitsandbytes", "triton", "triton_windows", "torchao",
    "sglang", "torch_xla", "coremltools", "numpy", "gpus", "distributions",
    "onnxruntime_tensorrt", "numpy2_builds", "flash_attn",
    "torchvision", "torchaudio", "deepspeed", "jaxlib", "jax_plugins", "tensorflow_cpu", "onnxruntime_cpu", "protobuf",
    "ml_dtypes", "tensorboard", "opencv_python", "pandas", "scipy", "scikit_learn",
    "bitsandbytes_cuda", "extension_wheels", "numpy_api", "protobuf_names",
)  # fmt: skip
# the tables that hold releases of a distribution, by its name
PACKAGE_TABLES: Mapping[str, str] = {
    "torch": "torch", "tensorflow": "tensorflow", "jax": "jax", "onnxruntime-gpu": "onnxruntime", "vllm": "vllm",
    "xformers": "xformers", "bitsandbytes": "bitsandbytes", "triton": "triton", "triton-windows": "triton_windows",
    "torchao": "torchao", "sglang": "sglang", "torch-xla": "torch_xla", "coremltools": "coremltools",
    "numpy": "numpy", "flash-attn": "flash_attn",
    "torchvision": "torchvision", "torchaudio": "torchaudio", "deepspeed": "deepspeed", "jaxlib": "jaxlib",
    "tensorflow-cpu": "tensorflow_cpu", "onnxruntime": "onnxruntime_cpu", "protobuf": "protobuf",
    "ml-dtypes": "ml_dtypes", "tensorboard": "tensorboard", "opencv-python": "opencv_python", "pandas": "pandas",
    "scipy": "scipy", "scikit-learn": "scikit_learn",
}  # fmt: skip
# what a table's row is called by in a Fact
_KEYS: Mapping[str, tuple[str, ...]] = {
    "torch_arch": ("torch", "cuda_build", "platform"), "cuda_driver": ("cuda", "update"), "driver_branch": ("branch",),
    "cuda_arch": ("compute_capability",), "cudnn": ("cudnn", "cuda_package"), "rocm": ("rocm", "kind"),
    "python_eol": ("python",), "tensorrt": ("version", "package"), "gpus": ("name",),
    "distributions": ("name", "version"), "onnxruntime_tensorrt": ("onnxruntime",), "numpy2_builds": ("package",),
    "jax_plugins": ("package", "version"), "bitsandbytes_cuda": ("version", "platform"),
    "extension_wheels": ("package",), "numpy_api": ("api",), "protobuf_names": ("name",),
}  # fmt: skip

Row = Mapping[str, str]


class Rule(msgspec.Struct, frozen=True):
    """A fact that fits no table: what it checks, how it fails, what to do, where it stands."""

    id: str
    check: str
    severity: str
    source_url: str
    as_of: str
    confidence: str
    applies_to: tuple[str, ...] = ()
    fails_as: tuple[str, ...] = ()
    fix: str = ""
    note: str = ""
    providers: dict[str, tuple[str, ...]] = {}


@functools.cache
def table(name: str) -> tuple[Row, ...]:
    """The rows of a table in the order of the file; an empty cell is unknown."""
    path = resources.files("raceline.stack").joinpath("data", f"{name}.csv")
    return tuple(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


@functools.cache
def rules() -> Mapping[str, Rule]:
    """The rules by id."""
    data = resources.files("raceline.stack").joinpath("data", "rules.json").read_bytes()
    return {item.id: item for item in msgspec.json.decode(data, type=list[Rule])}


@functools.cache
def releases(package: str) -> Mapping[Version, Row]:
    """The known releases of a package, the newest first; empty for a package without a table."""
    name = PACKAGE_TABLES.get(package)
    if name is None:
        return {}
    found = {Version(row["version"]): row for row in table(name)}
    return dict(sorted(found.items(), reverse=True))


def release(package: str, version: str | None) -> Row | None:
    """The row of one release, or None where the table does not know it."""
    wanted = parse(version)
    return releases(package).get(wanted) if wanted is not None else None


def is_known(package: str, version: str | None) -> bool:
    """Whether the tables hold this release."""
    return release(package, version) is not None


def fact(name: str, row: Row) -> Fact:
    """What a verdict cites of a table's row."""
    key = " ".join(filter(None, (row[column] for column in _KEYS.get(name, ("version",)))))
    return Fact(name, key, row["source_url"].strip(), row["as_of"], row.get("confidence") or None)


def rule_fact(id: str) -> Fact:
    """What a verdict cites of a rule."""
    found = rules()[id]
    return Fact("rules", id, found.source_url, found.as_of, found.confidence)


def package_fact(package: str, version: str | None) -> tuple[Fact, ...]:
    """What a verdict cites of a release; nothing where it is not known."""
    row = release(package, version)
    return (fact(PACKAGE_TABLES[package], row),) if row is not None else ()


def ages_days(today: datetime.date) -> dict[str, int]:
    """Days since the newest statement of each table: how old the facts are."""
    found: dict[str, int] = {}
    for name in TABLES:
        newest = max((row["as_of"] for row in table(name)), default="")
        found[name] = (today - _day(newest)).days
    found["rules"] = (today - _day(max(item.as_of for item in rules().values()))).days
    return found


def _day(text: str) -> datetime.date:
    """A day, month or year as written in `as_of`; the last day that it can mean."""
    parts = [int(part) for part in text.split("-")]
    if len(parts) == 3:
        return datetime.date(*parts)
    if len(parts) == 1:
        return datetime.date(parts[0], 12, 31)
    after = datetime.date(parts[0] + parts[1] // 12, parts[1] % 12 + 1, 1)
    return after - datetime.timedelta(days=1)


def as_json() -> dict[str, Any]:
    """All tables and rules, for readers of the data."""
    return {name: list(table(name)) for name in TABLES} | {"rules": list(rules().values())}
