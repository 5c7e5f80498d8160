"""Compiling: the toolkit against torch, the host compiler and the GPU; Triton; AMD targets."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.builds import torch_builds
from raceline.stack.fixes import install, torch_choices
from raceline.stack.result import Action, Basis, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import torch_of
from raceline.stack.told import Told
from raceline.stack.versions import at_least, major, minor, parse

_OVERRIDES = {"gfx1031": "10.3.0", "gfx1032": "10.3.0", "gfx1033": "10.3.0", "gfx1034": "10.3.0", "gfx1035": "10.3.0",
              "gfx1036": "10.3.0", "gfx1103": "11.0.0", "gfx1150": "11.0.0", "gfx1151": "11.0.0"}  # fmt: skip
_BUILDERS = ("deepspeed", "flash-attn", "apex", "transformer-engine")


def toolkit_and_torch(told: Told) -> Iterator[Finding]:
    """Operators that compile at run time need the toolkit's CUDA major to be torch's."""
    said = told.symptom("nvcc_torch_mismatch")
    torch = torch_of(told)
    toolkit = (said.params.get("toolkit") if said else None) or told.environment.toolkit
    cuda = (said.params.get("torch_cuda") if said else None) or (torch.cuda if torch else None)
    if (
        toolkit is None
        or cuda is None
        or (said is None and not any(told.mentions(name) for name in _BUILDERS))
    ):
        return
    same = major(toolkit) == major(cuda)
    if same and said is None:
        return
    whole = major(cuda) or 0
    fixes: list[Fix] = []
    choice = next(iter(torch_choices(told, torch, cuda_major=major(toolkit), is_strict=False)), None)
    if choice is not None and not same:
        fixes.append((install(choice, torch),))
    fixes.append(
        (Action("toolkit", from_=toolkit, to=f"=={minor(cuda)}" if same else f">={whole}.0,<{whole + 1}"),)
    )
    text = message("stack.toolkit_is_not_torchs", toolkit=toolkit, cuda=cuda)
    yield Finding(
        "nvcc_torch_mismatch",
        "will_fail" if said or told.mentions("deepspeed") else "may_fail",
        text,
        "deepspeed-nvcc-major",
        "both" if said and not same else "message" if said else "facts",
        40,
        ("torch",),
        tuple(fixes),
        (facts.rule_fact("deepspeed-nvcc-major"),),
    )


def host_compiler(told: Told) -> Iterator[Finding]:
    """gcc at or below the toolkit's newest."""
    said = told.symptom("nvcc_gcc")
    row = limits.toolkit(told.environment.toolkit) if told.environment.toolkit else None
    stated = row["max_gcc"].split(" ")[0] if row is not None else ""
    newest = (said.params.get("newest") if said else None) or stated
    gcc = told.environment.gcc
    if not newest or (said is None and (gcc is None or _whole(gcc) <= _whole(newest) or not _compiles(told))):
        return
    fixes: tuple[Fix, ...] = (
        (
            Action(
                "compiler",
                package="gcc",
                from_=gcc,
                to=f"<={newest}",
                command=f"export NVCC_PREPEND_FLAGS='-ccbin g++-{newest}'",
            ),
        ),
        (Action("toolkit", from_=told.environment.toolkit, to=_toolkit_for_gcc(gcc)),)
        if gcc and _toolkit_for_gcc(gcc)
        else (),
    )
    text = message(
        "stack.gcc_too_new", gcc=gcc or f">{newest}", newest=newest, toolkit=told.environment.toolkit or "?"
    )
    stands = (facts.rule_fact("nvcc-host-compiler"), *((facts.fact("cuda_driver", row),) if row else ()))
    yield Finding(
        "nvcc_gcc",
        "will_fail" if said else "may_fail",
        text,
        "nvcc-host-compiler",
        "both" if said and stated else "message" if said else "facts",
        42,
        ("gcc",),
        tuple(item for item in fixes if item),
        stands,
    )


def _compiles(told: Told) -> bool:
    return any(told.mentions(name) for name in _BUILDERS) or told.symptom("cuda_home_missing") is not None


def _whole(version: str) -> int:
    return int(version.split(".")[0]) if version.split(".")[0].isdigit() else 0


def _toolkit_for_gcc(gcc: str) -> str | None:
    known = [
        row["cuda"]
        for row in facts.table("cuda_driver")
        if row["max_gcc"] and _whole(row["max_gcc"]) >= _whole(gcc)
    ]
    return f">={known[-1]}" if known else None


def toolkit_and_gpu(told: Told) -> Iterator[Finding]:
    """nvcc must know the GPU's capability."""
    said = told.symptom("nvcc_arch")
    toolkit = told.environment.toolkit
    capability = said.params.get("capability") if said is not None else None
    if said is None and toolkit is not None and _compiles(told):
        capability = next((item.capability for item in told.environment.gpus if item.capability), None)
    row = limits.architecture_row(capability or "")
    if capability is None or row is None or not row["first_cuda"]:
        return
    is_old = at_least(toolkit, row["first_cuda"]) is False
    is_gone = (
        bool(row["last_cuda"]) and toolkit is not None and at_least(row["last_cuda"], minor(toolkit)) is False
    )
    if said is None and not is_old and not is_gone:
        return
    yield Finding(
        "nvcc_arch",
        "will_fail",
        message(
            "stack.toolkit_knows_not",
            toolkit=toolkit or "?",
            capability=capability,
            first=row["first_cuda"],
            last=row["last_cuda"] or "-",
        ),
        "nvcc-arch",
        "both" if said and (is_old or is_gone) else "message" if said else "facts",
        41,
        fixes=_toolkit_fixes(told, capability, row, is_gone),
        facts=(facts.fact("cuda_arch", row), facts.rule_fact("nvcc-arch")),
    )


def _toolkit_fixes(told: Told, capability: str, row: facts.Row, is_gone: bool) -> tuple[Fix, ...]:
    first, toolkit = row["first_cuda"], told.environment.toolkit
    fixes: list[Fix] = []
    newer = [item for item in told.environment.other_toolkits if at_least(item, first)]
    if newer and not is_gone:
        fixes.append(
            (
                Action(
                    "env_var",
                    name="PATH",
                    to=f"/usr/local/cuda-{newer[0]}/bin",
                    command=f"export PATH=/usr/local/cuda-{newer[0]}/bin:$PATH",
                ),
            )
        )
    bound = f"<={row['last_cuda']}" if is_gone else f">={first}"
    fixes.append((Action("toolkit", from_=toolkit, to=bound),))
    lower = _lower_capability(capability, toolkit)
    if lower is not None and not is_gone:
        fixes.append(
            (
                Action(
                    "env_var",
                    name="TORCH_CUDA_ARCH_LIST",
                    to=lower,
                    command=f'export TORCH_CUDA_ARCH_LIST="{lower}"',
                ),
            )
        )
    return tuple(fixes)


def _lower_capability(capability: str, toolkit: str | None) -> str | None:
    """The highest capability of the same major that the toolkit knows: its code runs on the GPU."""
    wanted = parse(capability)
    best = None
    for row in facts.table("cuda_arch"):
        found = parse(row["compute_capability"])
        if (
            found is None
            or wanted is None
            or found.major != wanted.major
            or found >= wanted
            or not row["first_cuda"]
        ):
            continue
        if at_least(toolkit, row["first_cuda"]) and (best is None or found > best):
            best = found
    return f"{best.major}.{best.minor}" if best is not None else None


def triton(told: Told) -> Iterator[Finding]:
    """Triton's own assembler must know the GPU; Windows has no official wheel."""
    torch = torch_of(told)
    assembler = told.symptom("ptxas_arch")
    if assembler is not None:
        sm = assembler.params.get("sm", "")
        cuda = f"CUDA {major(torch.cuda)}" if torch is not None and torch.cuda else "CUDA 13"
        ptxas = Action(
            "env_var",
            name="TRITON_PTXAS_PATH",
            to=f"ptxas of {cuda}",
            command="export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",
        )
        newer = Action(
            "upgrade",
            package="torch",
            from_=torch.shown if torch else None,
            command="pip install --upgrade torch",
        )
        yield Finding(
            "triton",
            "will_fail",
            message("stack.ptxas_knows_not", sm=sm),
            "triton-pin",
            "message",
            43,
            ("triton",),
            ((ptxas,), (newer,)),
            (facts.rule_fact("triton-pin"),),
        )
    missing = told.symptom("triton_missing")
    if missing is not None:
        yield _triton_missing(told, torch.version if torch is not None else None)


def _triton_missing(told: Told, torch: str | None) -> Finding:
    series = _triton_series(torch)
    is_windows = told.environment.os == "windows"
    package = "triton-windows" if is_windows else "triton"
    bounds = f"=={series}.*" if series else None
    line = f'pip install "{package}{bounds or ""}"'
    fixes: list[Fix] = [(Action("install_build", package=package, to=bounds, command=line),)]
    if is_windows:
        fixes.append((Action("os_or_glibc", from_="native Windows", to="Linux"),))
    text = message("stack.triton_missing", package=package, series=series or "?", version=torch or "?")
    return Finding(
        "triton",
        "will_fail",
        text,
        "triton-windows",
        "both" if is_windows else "message",
        43,
        ("triton",),
        tuple(fixes),
        (
            facts.rule_fact("triton-windows" if is_windows else "triton-pin"),
            *facts.package_fact("torch", torch),
        ),
    )


def _triton_series(torch: str | None) -> str | None:
    """The x.y of triton that a torch pins; a development version is taken for its release."""
    wanted = minor(torch)
    for version, row in facts.releases("torch").items():
        if f"{version.major}.{version.minor}" == wanted and row["triton_pin"]:
            return minor(row["triton_pin"].lstrip("~=").strip())
    return None


def rocm_target(told: Told) -> Iterator[Finding]:
    """The GPU's gfx target must be in the ROCm build."""
    torch = torch_of(told)
    said = told.symptom("hip_invalid_device")
    rocm = torch.build.rocm if torch is not None and torch.build is not None else None
    label = torch.label if torch is not None else None
    rocm = rocm or (label.removeprefix("rocm") if label and label.startswith("rocm") else None)
    row = _wheel_row(rocm)
    for gpu in told.environment.gpus:
        gfx = gpu.gfx
        if gfx is None or (said is None and (row is None or told.environment.gfx_override)):
            continue
        targets = row["gfx_targets"].split() if row is not None else []
        if row is not None and gfx in targets:
            yield Finding(
                "rocm_gfx",
                "fine",
                message("stack.gfx_there", gfx=gfx, rocm=rocm or ""),
                "rocm-gfx",
                facts=(facts.fact("rocm", row),),
            )
            if said is None:
                continue
        if said is None and (torch is None or rocm is None):
            continue
        text = message("stack.gfx_missing", gfx=gfx, rocm=rocm or "?", targets=" ".join(targets) or "?")
        stands = (facts.rule_fact("rocm-gfx"), *((facts.fact("rocm", row),) if row is not None else ()))
        basis: Basis = (
            "both" if said and row is not None and gfx not in targets else "message" if said else "facts"
        )
        yield Finding(
            "rocm_gfx",
            "will_fail",
            text,
            "rocm-gfx",
            basis,
            13,
            ("torch",),
            _rocm_fixes(told, gfx, gpu.name),
            stands,
        )


def _wheel_row(rocm: str | None) -> facts.Row | None:
    return next(
        (row for row in facts.table("rocm") if row["kind"] == "torch_wheel_index" and row["rocm"] == rocm),
        None,
    )


def _rocm_fixes(told: Told, gfx: str, name: str | None) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    has = [item for item in torch_builds() if item.rocm and gfx in (item.compiled or "").split()]
    if gfx in _OVERRIDES:
        value = _OVERRIDES[gfx]
        step = Action(
            "env_var",
            name="HSA_OVERRIDE_GFX_VERSION",
            to=value,
            command=f"export HSA_OVERRIDE_GFX_VERSION={value}",
        )
        fixes.append((step,))
    if has:
        fixes.append((install(has[0], torch_of(told)),))
    if not fixes:
        fixes.append((Action("install_build", package="torch", build="source"),))
        targets = _wheel_row(next(row["rocm"] for row in facts.table("rocm")))
        fixes.append(
            (Action("hardware", from_=name, to=targets["gfx_targets"] if targets is not None else None),)
        )
    return tuple(fixes)


RULES: tuple[Rule, ...] = (toolkit_and_torch, host_compiler, toolkit_and_gpu, triton, rocm_target)
