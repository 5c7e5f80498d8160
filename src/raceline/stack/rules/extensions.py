"""Compiled extensions: the torch, the CUDA and the C++ ABI that they were built for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from raceline.measure.environment import Distribution
from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.fixes import COMPILED, moved
from raceline.stack.result import Action, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, torch_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, minor, parse

# parts of a library's name, and the package that it comes with
_LIBRARIES = {
    "flash_attn_2_cuda": "flash-attn", "flash_attn": "flash-attn", "flashattn": "flash-attn", "mmcv": "mmcv-full",
    "_ext": "mmcv-full", "torch_scatter": "torch-scatter", "torch_sparse": "torch-sparse",
    "torch_cluster": "torch-cluster", "torch_spline": "torch-spline-conv", "pyg_lib": "pyg-lib",
    "causal_conv1d": "causal-conv1d", "selective_scan": "mamba-ssm", "apex": "apex", "amp_c": "apex",
    "detectron2": "detectron2", "xformers": "xformers", "vllm": "vllm", "torchaudio": "torchaudio",
    "torchvision": "torchvision", "torchtext": "torchtext", "_c.": "vllm", "exllamav2": "exllamav2",
    "transformer_engine": "transformer-engine", "awq": "autoawq", "gptq": "auto-gptq", "spconv": "spconv",
    "deepspeed": "deepspeed", "sgl_kernel": "sglang", "pytorch3d": "pytorch3d", "torch_tensorrt": "torch-tensorrt",
}  # fmt: skip
_OF_TORCH = (
    "_ZN3c10", "_ZN2at", "_ZNK3c10", "_ZNK2at", "_ZN5torch", "_ZNK5torch", "_ZTIN5torch", "_ZTVN5torch", "_ZTIN3c10",
    "_ZN8c10_cuda", "_ZN6caffe2", "THP", "c10_", "aoti_torch",
)  # fmt: skip
# packages whose own rule names the cause
_PAIRS = ("torchvision", "torchaudio")


class Built(msgspec.Struct, frozen=True):
    """What a wheel's label says that it was built for: ``cu12torch2.6cxx11abiFALSE``, ``pt21cu121``."""

    torch: str | None = None
    cuda_major: int | None = None
    has_cxx11_abi: bool | None = None


def built_for(label: str | None) -> Built:
    """What a label says; what it leaves out is None."""
    text = (label or "").lower()
    torch = re.search(r"torch(\d)\.?(\d{1,2})(?:\.\d+)?", text)
    pyg = re.search(r"(?:^|[._])pt(\d)\.?(\d{1,2})", text)
    named = torch or pyg
    cuda = re.search(r"cu(\d{2})", text)
    abi = re.search(r"cxx11abi(true|false)", text)
    return Built(
        f"{named[1]}.{named[2]}" if named else None,
        int(cuda[1]) if cuda else None,
        abi[1] == "true" if abi else None,
    )


def extension_abi(told: Told) -> Iterator[Finding]:
    """A compiled extension must be built for the torch that loads it."""
    said = _of_torch(told)
    if said is None:
        yield from _by_label(told)
        return
    torch = torch_of(told)
    name = _extension_of(told, said)
    if name in _PAIRS or "xlac" in said.params.get("library", "").lower():
        return
    if name is None and _pair_is_off(told, torch):
        return  # the symbol is torchvision's or torchaudio's
    found = told.installed(name) if name else None
    abi = _wanted_abi(said, torch.build.has_cxx11_abi if torch is not None and torch.build else None)
    text = message(
        "stack.extension_built_for_other",
        package=name or "extension",
        version=(found.version if found is not None else None) or "",
        torch=(torch.shown if torch else "") or "?",
        symbol=said.params.get("symbol") or said.params.get("library", ""),
    )
    yield Finding(
        "extension_abi",
        "will_fail",
        text,
        "torch-cxx11-abi",
        "both" if abi is not None and torch is not None else "message",
        31,
        (name or "extension",),
        _fixes(told, name, found, torch, abi),
        _stands(name),
    )


def _pair_is_off(told: Told, torch: Standing | None) -> bool:
    """Whether torchvision or torchaudio belongs to another torch than the one that is there."""
    for name in _PAIRS:
        found = told.installed(name)
        row = facts.release(name, found.version if found is not None else None)
        if row is not None and torch is not None and admits(row["torch"], torch.version) is False:
            return True
    return False


def _stands(name: str | None) -> tuple[Fact, ...]:
    own = (facts.rule_fact("flash-attn-build"),) if name == "flash-attn" else ()
    return (facts.rule_fact("torch-cxx11-abi"), *own)


def _of_torch(told: Told) -> Symptom | None:
    """The error that names a symbol or a library of torch, or the CUDA runtime of an extension."""
    symbol = next(
        (item for item in told.symptoms if item.id == "undefined_symbol" and _is_torch_symbol(item)), None
    )
    return symbol or next(
        (item for item in told.symptoms if item.id == "missing_library" and _is_missed_by_extension(item, told)),
        None,
    )  # fmt: skip


def _is_torch_symbol(item: Symptom) -> bool:
    symbol, library = item.params.get("symbol", ""), item.params.get("library", "").lower()
    if symbol.startswith(_OF_TORCH):
        return "xlac" not in library
    return not symbol and any(part in library for part in _LIBRARIES)


def _is_missed_by_extension(item: Symptom, told: Told) -> bool:
    library = item.params.get("library", "").lower()
    if library.startswith(("libtorch", "libc10")):
        return True
    others = ("onnxruntime-gpu", "tensorflow", "jax", "tensorrt")
    return (
        library.startswith("libcudart")
        and any(map(told.mentions, COMPILED))
        and not any(map(told.mentions, others))
    )


def _extension_of(told: Told, said: Symptom) -> str | None:
    library = said.params.get("library", "").lower()
    named = next((package for part, package in _LIBRARIES.items() if part in library), None)
    if named is not None and (named != "mmcv-full" or told.mentions("mmcv-full") or "mmcv" in library):
        return "mmcv" if named == "mmcv-full" and told.mentions("mmcv") else named
    others = tuple(name for name in _LIBRARIES.values() if name not in _PAIRS)
    return next((name for name in (*COMPILED, *others) if told.mentions(name)), None)


def _wanted_abi(said: Symptom, of_torch: bool | None) -> bool | None:
    """The ABI that the extension must have: torch's own; where that is not known, the one that it doesn't have."""
    if of_torch is not None:
        return of_torch
    symbol = said.params.get("symbol", "")
    if "cxx11" in symbol:
        return False
    return True if symbol.endswith("ESs") or "SsE" in symbol else None


def _fixes(
    told: Told, name: str | None, found: Distribution | None, torch: Standing | None, abi: bool | None
) -> tuple[Fix, ...]:
    """The release that belongs to the torch, the wheel that was built for it, or a build from source."""
    if name is None or found is None:
        return (_source(name or "extension", None),)
    if pinned := _by_pin(name, found, torch):
        return pinned
    wheel = _wheel(name, torch, abi)
    fitting = _prebuilt_for(told, name, torch)
    version = found.version
    if fitting is not None and parse(fitting) != parse(version):
        first: Fix = (
            (Action("install_build", package=name, from_=found.shown, to=f"=={fitting}", build=wheel),)
            if wheel is not None
            else (moved(name, found.shown, fitting),)
        )
    elif wheel is not None:
        first = (
            Action(
                "install_build", package=name, from_=found.shown, to=f"=={version}" if version else None, build=wheel
            ),
        )  # fmt: skip
    else:
        return (_source(name, version),)
    return first, _source(name, version)


def _source(name: str, version: str | None) -> Fix:
    line = f"pip install --no-build-isolation --no-binary {name} {name}" + (f"=={version}" if version else "")
    return (Action("install_build", package=name, build="source", command=line),)


def _wheel(name: str, torch: Standing | None, abi: bool | None) -> str | None:
    """What the fitting wheel is called: after the ABI where its name tells that, else after the build of torch."""
    if any(row["package"] == name for row in facts.table("extension_wheels")):
        return None if abi is None else f"cxx11abi{'TRUE' if abi else 'FALSE'}"
    return torch.label if torch is not None else None


def _by_pin(name: str, found: Distribution, torch: Standing | None) -> tuple[Fix, ...]:
    """For packages that pin one torch: that torch, or their release for the torch that is there."""
    row = facts.release(name, found.version)
    version = torch.version if torch is not None else None
    if row is None or version is None or not row.get("torch") or admits(row["torch"], version) is not False:
        return ()
    shown = torch.shown if torch is not None else version
    fixes: list[Fix] = []
    if row["torch"].startswith("=="):
        fixes.append((moved("torch", shown, row["torch"].removeprefix("==")),))
    fitting = next(
        (
            str(item)
            for item, other in facts.releases(name).items()
            if admits(other["torch"] or "<0", version)
        ),
        None,
    )
    if fitting is not None:
        fixes.append((moved(name, found.version, fitting),))
    return tuple(fixes)


def _prebuilt_for(told: Told, name: str, torch: Standing | None) -> str | None:
    """The release with a prebuilt wheel for the torch; None where the one that is there has one, or none is known."""
    if torch is None or torch.version is None:
        return None
    found = told.installed(name)
    present = facts.release(name, found.version) if found is not None else None
    if present is None or _is_prebuilt(told, present, torch):
        return None
    return next(
        (str(version) for version, row in facts.releases(name).items() if _is_prebuilt(told, row, torch)),
        None,
    )


def _is_prebuilt(told: Told, row: facts.Row, torch: Standing) -> bool:
    minors = (row.get("torch_minors") or "").split()
    return (
        minor(torch.version) in minors
        and limits.python_fits(told.environment, row) is not False
        and limits.glibc_fits(told.environment, row).holds is not False
        and (torch.cuda_major is None or str(torch.cuda_major) in row["cuda_majors"].split())
    )


def _by_label(told: Told) -> Iterator[Finding]:
    """Extensions whose label tells what they were built for, beside a torch that is something else."""
    torch = torch_of(told)
    if torch is None or torch.version is None:
        return
    for found in told.environment.distributions:
        built = built_for(found.label)
        if found.name not in _labelled() or (built.torch is None and built.has_cxx11_abi is None):
            continue
        yield from _judged(told, found, built, torch)


def _labelled() -> frozenset[str]:
    return frozenset((*COMPILED, *_LIBRARIES.values())) - {*_PAIRS, "vllm", "xformers", "sglang"}


def _judged(told: Told, found: Distribution, built: Built, torch: Standing) -> Iterator[Finding]:
    abi = torch.build.has_cxx11_abi if torch.build is not None else None
    is_other_abi = built.has_cxx11_abi is not None and abi is not None and built.has_cxx11_abi != abi
    is_other = (built.torch is not None and built.torch != minor(torch.version)) or (
        built.cuda_major is not None and torch.cuda_major is not None and built.cuda_major != torch.cuda_major
    )
    if not is_other and not is_other_abi:
        text = message("stack.extension_fits", package=found.name, version=found.shown, torch=torch.shown)
        yield Finding("extension_abi", "fine", text, "torch-cxx11-abi", facts=_stands(found.name))
        return
    text = message(
        "stack.extension_built_for_other", package=found.name, version=found.shown, torch=torch.shown,
        symbol="C++11 ABI" if is_other_abi and not is_other else found.label or "",
    )  # fmt: skip
    yield Finding(
        "extension_abi",
        "will_fail" if is_other_abi else "may_fail",
        text,
        "torch-cxx11-abi",
        "facts",
        31,
        (found.name,),
        _fixes(told, found.name, found, torch, abi),
        _stands(found.name),
    )


RULES: tuple[Rule, ...] = (extension_abi,)
