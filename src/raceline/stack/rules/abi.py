"""Binary interfaces: the C++ ABI of extensions, NumPy's, protobuf's."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.measure.environment import Distribution
from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.fixes import COMPILED, install_command, moved
from raceline.stack.result import Action, ActionKind, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import torch_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, parse

_EXTENSION_LIBRARIES = {
    "flash_attn_2_cuda": "flash-attn",
    "flash_attn": "flash-attn",
    "flashattn": "flash-attn",
    "mmcv": "mmcv-full",
    "_ext": "mmcv-full",
    "torch_scatter": "torch-scatter",
    "torch_sparse": "torch-sparse",
    "causal_conv1d": "causal-conv1d",
    "selective_scan": "mamba-ssm",
    "apex": "apex",
    "amp_c": "apex",
    "detectron2": "detectron2",
    "xformers": "xformers",
    "vllm": "vllm",
    "torchaudio": "torchaudio",
    "torchvision": "torchvision",
    "torchtext": "torchtext",
    "_c.": "vllm",
    "exllamav2": "exllamav2",
    "transformer_engine": "transformer-engine",
    "awq": "autoawq",
    "gptq": "auto-gptq",
    "spconv": "spconv",
    "deepspeed": "deepspeed",
    "sgl_kernel": "sglang",
}


_TORCH_LIBRARIES = frozenset(
    {"libc10", "libc10_cuda", "libtorch", "libtorch_cuda", "libtorch_cpu", "libtorch_python"}
)


def extension_abi(told: Told) -> Iterator[Finding]:
    """A compiled extension must be built for the torch that loads it."""
    said = _of_torch(told)
    torch = torch_of(told)
    name = _extension_of(told, said)
    found = told.installed(name) if name else None
    if said is None:
        yield from _wrong_abi(told)
        return
    if name in ("torchvision", "torchaudio") or "xlac" in said.params.get("library", "").lower():
        return
    abi = _wanted_abi(
        said, torch.build.has_cxx11_abi if torch is not None and torch.build is not None else None
    )
    version = found.version if found is not None else None
    wheel = None if abi is None else f"cxx11abi{'TRUE' if abi else 'FALSE'}"
    package = name or "extension"
    fixes = _rebuilt(package, found, wheel if name is not None else None)
    text = message(
        "stack.extension_built_for_other",
        package=package,
        version=version or "",
        torch=(torch.shown if torch else "") or "?",
        symbol=said.params.get("symbol") or said.params.get("library", ""),
    )
    stands: tuple[Fact, ...] = (
        facts.rule_fact("torch-cxx11-abi"),
        *((facts.rule_fact("flash-attn-build"),) if name == "flash-attn" else ()),
    )
    yield Finding(
        "extension_abi",
        "will_fail",
        text,
        "torch-cxx11-abi",
        "both" if abi is not None and torch is not None else "message",
        31,
        (package,),
        fixes,
        stands,
    )


def _of_torch(told: Told) -> Symptom | None:
    """The error that names a symbol or a library of torch."""
    symbol = next(
        (item for item in told.symptoms if item.id == "undefined_symbol" and _is_torch_symbol(item)), None
    )
    missing = told.symptom("missing_library")
    if symbol is None and missing is not None and missing.params.get("library") in _TORCH_LIBRARIES:
        return missing
    return symbol


def _rebuilt(package: str, found: Distribution | None, wheel: str | None) -> tuple[Fix, ...]:
    """The wheel of the right ABI in the version that is there, or one built from source."""
    version = found.version if found is not None else None
    pin = f"=={version}" if version else ""
    fixes: list[Fix] = []
    if wheel is not None:
        present = found.shown if found is not None else None
        fixes.append((Action("install_build", package=package, from_=present, to=pin or None, build=wheel),))
    line = f"pip install --no-build-isolation --no-binary {package} {package}{pin}"
    fixes.append((Action("install_build", package=package, build="source", command=line),))
    return tuple(fixes)


def _is_torch_symbol(item: Symptom) -> bool:
    symbol, library = item.params.get("symbol", ""), item.params.get("library", "").lower()
    if symbol.startswith(
        (
            "_ZN3c10",
            "_ZN2at",
            "_ZNK3c10",
            "_ZNK2at",
            "_ZN5torch",
            "_ZNK5torch",
            "_ZN8c10_cuda",
            "_ZN6caffe2",
            "THP",
            "c10_",
            "aoti_torch",
        )
    ):
        return "xlac" not in library
    return not symbol and any(part in library for part in _EXTENSION_LIBRARIES)


def _extension_of(told: Told, said: Symptom | None) -> str | None:
    library = said.params.get("library", "").lower() if said is not None else ""
    named = next((package for part, package in _EXTENSION_LIBRARIES.items() if part in library), None)
    if named is not None and (named != "mmcv-full" or told.mentions("mmcv-full") or "mmcv" in library):
        return named
    return next((name for name in COMPILED if told.mentions(name)), None)


def _wanted_abi(said: Symptom, of_torch: bool | None) -> bool | None:
    """The ABI that the extension must have: torch's own; where that is not known, the one that it doesn't have."""
    if of_torch is not None:
        return of_torch
    symbol = said.params.get("symbol", "")
    if "cxx11" in symbol or "__cxx1112basic_string" in symbol:
        return False
    return True if symbol.endswith("ESs") or "SsE" in symbol else None


def _wrong_abi(told: Told) -> Iterator[Finding]:
    """A flash-attn wheel whose name tells its ABI, beside a torch of the other."""
    torch, found = torch_of(told), told.installed("flash-attn")
    if (
        found is None
        or torch is None
        or torch.build is None
        or not found.label
        or "cxx11abi" not in found.label
    ):
        return
    is_new = "cxx11abitrue" in found.label.lower()
    if torch.build.has_cxx11_abi is None or is_new == torch.build.has_cxx11_abi:
        return
    wheel = f"cxx11abi{'TRUE' if torch.build.has_cxx11_abi else 'FALSE'}"
    fix = (
        Action(
            "install_build",
            package="flash-attn",
            from_=found.shown,
            to=f"=={found.version}" if found.version else None,
            build=wheel,
        ),
    )
    text = message(
        "stack.extension_built_for_other",
        package="flash-attn",
        version=found.shown,
        torch=torch.shown,
        symbol="C++11 ABI",
    )
    yield Finding(
        "extension_abi",
        "will_fail",
        text,
        "torch-cxx11-abi",
        "facts",
        31,
        ("flash-attn",),
        (fix,),
        (facts.rule_fact("torch-cxx11-abi"), facts.rule_fact("flash-attn-build")),
    )


def numpy_abi(told: Told) -> Iterator[Finding]:
    """What was built against NumPy 1 does not load under NumPy 2."""
    said = told.symptom("numpy_abi")
    numpy = told.installed("numpy")
    version = (numpy.version if numpy is not None else None) or (said.params.get("numpy") if said else None)
    is_two = at_least(version, "2") is True
    old = [name for name, first in _first_for_two().items() if _is_before(told, name, first)]
    if said is None and not (is_two and old):
        wanted = told.requirement("numpy")
        torch = torch_of(told)
        if (
            numpy is None
            and wanted is None
            and torch is not None
            and at_least(torch.version, "2.3") is False
            and _is_requirement(told, "torch")
        ):
            yield _unpinned_numpy(torch.version or "")
        return
    down = Action("downgrade", package="numpy", from_=version, to="<2", command='pip install "numpy<2"')
    fixes: list[Fix] = [(down,)]
    name = old[0] if old else next((item for item in ("opencv-python", "torch") if told.mentions(item)), None)
    if name is not None:
        found = told.installed(name)
        first = _first_for_two().get(name, "2.3.0")
        fixes.append(
            (
                Action(
                    "upgrade",
                    package=name,
                    from_=found.version if found else None,
                    to=f">={'2.4' if name == 'torch' else first}",
                    command=install_command([f"{name}>={first}"]),
                ),
            )
        )
    text = message("stack.numpy_too_new", numpy=version or "2", packages=", ".join(old) or name or "?")
    stands = (facts.rule_fact("numpy2-abi-torch"), *(fact for item in old for fact in _two_fact(item)))
    yield Finding(
        "numpy_abi",
        "will_fail",
        text,
        "numpy2-abi-torch",
        "both" if said and old and is_two else "message" if said else "facts",
        32,
        tuple(old) or ("numpy",),
        tuple(fixes),
        stands,
    )


def _is_requirement(told: Told, name: str) -> bool:
    return told.environment.distribution(name) is None and told.requirement(name) is not None


def _unpinned_numpy(torch: str) -> Finding:
    fix = (Action("pin", package="numpy", to="<2", command='pip install "numpy<2"'),)
    text = message("stack.numpy_unpinned", torch=torch)
    return Finding(
        "numpy_abi",
        "may_fail",
        text,
        "numpy2-abi-torch",
        "facts",
        45,
        ("torch", "numpy"),
        (fix,),
        (facts.rule_fact("numpy2-abi-torch"),),
    )


def _first_for_two() -> dict[str, str]:
    return {row["package"]: row["first_version"] for row in facts.table("numpy2_builds")}


def _two_fact(name: str) -> tuple[Fact, ...]:
    return tuple(
        facts.fact("numpy2_builds", row) for row in facts.table("numpy2_builds") if row["package"] == name
    )


def _is_before(told: Told, name: str, first: str) -> bool:
    found = told.installed(name)
    return found is not None and at_least(found.version, first) is False


def tensorflow_numpy(told: Told) -> Iterator[Finding]:
    """TensorFlow's range of NumPy."""
    tensorflow, numpy = (
        told.installed("tensorflow") or told.installed("tensorflow-cpu"),
        told.installed("numpy"),
    )
    row = facts.release("tensorflow", tensorflow.version if tensorflow else None)
    if (
        row is None
        or numpy is None
        or tensorflow is None
        or not row["numpy"]
        or admits(row["numpy"], numpy.version) is not False
    ):
        return
    fix = (
        Action(
            "pin",
            package="numpy",
            from_=numpy.version,
            to=row["numpy"],
            command=f'pip install "numpy{row["numpy"]}"',
        ),
    )
    text = message(
        "stack.outside_bounds",
        package="tensorflow",
        version=tensorflow.version or "",
        other="numpy",
        bounds=row["numpy"],
        has=numpy.version or "",
    )
    yield Finding(
        "tensorflow_numpy",
        "may_fail",
        text,
        "numpy-range-tensorflow",
        "facts",
        46,
        ("tensorflow", "numpy"),
        (fix,),
        (facts.fact("tensorflow", row), facts.rule_fact("numpy-range-tensorflow")),
    )


def protobuf_major(told: Told) -> Iterator[Finding]:
    """Generated code and protobuf's runtime must fit."""
    said = told.symptom("protobuf_descriptors")
    tensorflow, protobuf = (
        told.installed("tensorflow") or told.installed("tensorflow-cpu"),
        told.installed("protobuf"),
    )
    row = facts.release("tensorflow", tensorflow.version if tensorflow else None)
    version = protobuf.version if protobuf is not None else None
    bounds = row["protobuf"] if row is not None else None
    outside = bool(bounds) and version is not None and admits(bounds, version) is False
    is_uncapped = (
        row is not None
        and "<" not in (bounds or "")
        and version is not None
        and at_least(version, "4") is True
        and at_least(tensorflow.version if tensorflow else None, "2.10") is False
    )
    if said is None and not outside and not is_uncapped:
        return
    to = bounds if outside and bounds and not is_uncapped else "<4"
    fixes = _protobuf_fixes(tensorflow, version, to, said is not None)
    text = message(
        "stack.protobuf_outside",
        protobuf=version or "?",
        package=f"tensorflow {tensorflow.version or ''}" if tensorflow else "?",
        bounds=to,
    )
    yield Finding(
        "protobuf_major",
        "will_fail" if said or is_uncapped else "may_fail",
        text,
        "protobuf-major",
        "both" if said and (outside or is_uncapped) else "message" if said else "facts",
        33,
        ("protobuf",),
        fixes,
        (
            facts.rule_fact("protobuf-major"),
            *facts.package_fact("tensorflow", tensorflow.version if tensorflow else None),
        ),
    )


def _protobuf_fixes(
    tensorflow: Distribution | None, version: str | None, to: str, is_said: bool
) -> tuple[Fix, ...]:
    """The patch release of TensorFlow that caps protobuf, or the protobuf that fits."""
    fixes: list[Fix] = []
    later = _capped_tensorflow(tensorflow.version) if tensorflow is not None else None
    if tensorflow is not None and later is not None:
        fixes.append((moved("tensorflow", tensorflow.version, later),))
    kind: ActionKind = "downgrade" if is_said or at_least(version, "4") else "pin"
    fixes.append(
        (Action(kind, package="protobuf", from_=version, to=to, command=f'pip install "protobuf{to}"'),)
    )
    return tuple(fixes)


def _capped_tensorflow(version: str | None) -> str | None:
    """The next patch release of the same minor that caps protobuf."""
    now = parse(version)
    if now is None:
        return None
    found = [
        known
        for known, row in facts.releases("tensorflow").items()
        if known.release[:2] == now.release[:2] and known > now and "<" in row["protobuf"]
    ]
    return str(min(found)) if found else None


RULES: tuple[Rule, ...] = (
    extension_abi,
    numpy_abi,
    tensorflow_numpy,
    protobuf_major,
)
