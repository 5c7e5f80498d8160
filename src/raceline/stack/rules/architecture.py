"""The GPU against the code in a build: too old or too new for it, features it lacks, the end of its line."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from raceline.measure.environment import Gpu
from raceline.present.errors import Message, message
from raceline.stack import facts, limits
from raceline.stack.builds import Build, torch_builds
from raceline.stack.fixes import install, raise_driver, runs, torch_choices, with_companions
from raceline.stack.result import Action, Basis, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, newest_admitted, torch_of
from raceline.stack.told import Requirement, Told
from raceline.stack.versions import at_least, parse

_DROPPED = "6.1"  # Pascal: the newest capability that vLLM's wheels leave out (rule vllm-gpu)
_SYMPTOMS = ("no_kernel_image", "sm_not_compatible", "compiled_list")


def kernels_missing(told: Told) -> Iterator[Finding]:
    """A build must hold machine code of the GPU's major, or PTX of an equal or lower capability."""
    torch = torch_of(told)
    said = told.symptom(*_SYMPTOMS)
    for gpu in _gpus(told):
        capability = gpu.capability or ""
        compiled = _compiled(told, torch)
        if compiled is not None:
            yield from _judged(told, torch, gpu, capability, compiled, said is not None)
        elif said is not None or (torch is not None and _toolkit_is_out(torch, capability)):
            yield from _by_toolkit(told, torch, gpu, capability, said is not None)


def _gpus(told: Told) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs, and the one that an error names."""
    found = tuple(item for item in told.environment.gpus if item.capability)
    said = told.symptom("sm_not_compatible")
    if not found and said is not None and said.params.get("sm"):
        return (Gpu(capability=said.params["sm"]),)
    return found


def _compiled(told: Told, torch: Standing | None) -> str | None:
    """The capabilities in the build: as an error lists them, else by the table."""
    listed = told.symptom("compiled_list")
    if listed is not None:
        return listed.params["compiled"].replace(",", " ")
    return torch.build.compiled if torch is not None and torch.build is not None and torch.cuda else None


def _judged(
    told: Told, torch: Standing | None, gpu: Gpu, capability: str, compiled: str, is_said: bool
) -> Iterator[Finding]:
    if limits.kernels_for(capability, compiled) != "none":
        if is_said and _is_dropped_by_vllm(told, capability):
            yield _vllm_finding(told, gpu, capability)
        elif torch is not None and torch.build is not None:
            text = message(
                "stack.kernels_there", version=torch.shown, gpu=gpu.name or capability, capability=capability
            )
            yield Finding("arch_removed", "fine", text, "arch-not-in-wheel", facts=_stands(torch))
        return
    is_newer = _is_above(capability, compiled)
    text = message(
        "stack.kernels_missing",
        version=(torch.shown if torch else "") or "",
        gpu=gpu.name or capability,
        capability=capability,
        compiled=compiled,
    )
    yield _finding(told, torch, text, is_newer, capability, "both" if is_said else "facts")


def _by_toolkit(
    told: Told, torch: Standing | None, gpu: Gpu, capability: str, is_said: bool
) -> Iterator[Finding]:
    """The build's list is not known: the CUDA of the build, or the GPU's own first and last toolkit, decide."""
    if (
        is_said
        and torch is not None
        and torch.version is None
        and torch.label is None
        and _is_dropped_by_vllm(told, capability)
    ):
        yield _vllm_finding(told, gpu, capability)
        return
    row = limits.architecture_row(capability)
    first = limits.first_toolkit(capability)
    cuda = (torch.cuda if torch is not None else None) or told.environment.toolkit
    is_newer = _is_recent(capability)
    if row is not None and cuda is not None:
        is_newer = at_least(cuda, first) is False or (is_newer and not row["last_cuda"])
    text = message(
        "stack.kernels_missing_by_toolkit",
        gpu=gpu.name or capability,
        capability=capability,
        first=first or "?",
        last=(row["last_cuda"] if row else "") or "-",
        cuda=cuda or "?",
    )
    stands = () if row is None else (facts.fact("cuda_arch", row),)
    found = _finding(
        told,
        torch,
        text,
        is_newer,
        capability,
        "both" if is_said and cuda else "message" if is_said else "facts",
    )
    yield msgspec.structs.replace(found, facts=(*stands, *found.facts))


def _is_recent(capability: str) -> bool:
    """Whether new toolkits still compile for it: then a missing kernel means that the build is too old."""
    row = limits.architecture_row(capability)
    return row is not None and not row["last_cuda"]


def _toolkit_is_out(torch: Standing, capability: str) -> bool:
    row = limits.architecture_row(capability)
    if row is None or torch.cuda is None:
        return False
    return at_least(torch.cuda, limits.first_toolkit(capability)) is False or (
        bool(row["last_cuda"]) and at_least(row["last_cuda"], ".".join(torch.cuda.split(".")[:2])) is False
    )


def _is_above(capability: str, compiled: str) -> bool:
    """Whether the GPU is newer than all that was compiled in."""
    wanted = parse(capability)
    known = [version for version, _, _ in limits.compiled_list(compiled)]
    return wanted is not None and bool(known) and wanted > max(known)


def _finding(
    told: Told, torch: Standing | None, text: Message, is_newer: bool, capability: str, basis: Basis
) -> Finding:
    cause = "arch_too_new" if is_newer else "arch_removed"
    fixes = _fixes(told, torch, capability)
    return Finding(
        "installer_choice" if _chosen_by_installer(told) else cause,
        "will_fail" if basis != "facts" or _no_build_has(told, torch, capability) else "may_fail",
        text,
        "arch-not-in-wheel",
        basis,
        13,
        ("torch",),
        fixes,
        (*_stands(torch), *_rule_of(capability)),
    )


def _no_build_has(told: Told, torch: Standing | None, capability: str) -> bool:
    """Whether the failure is sure: the build is known, or no GPU build of the release has code for the GPU."""
    if torch is None or torch.is_sure:
        return True
    machine = told.environment
    builds = [
        item
        for item in torch_builds(machine.os or "linux", machine.arch or "x86_64")
        if item.cuda and parse(item.version) == parse(torch.version)
    ]
    return not any(
        limits.kernels_for(capability, item.compiled) != "none"
        if item.compiled
        else at_least(item.cuda, limits.first_toolkit(capability)) is not False
        for item in builds
    )


def _stands(torch: Standing | None) -> tuple[Fact, ...]:
    found = torch.build.facts[-1:] if torch is not None and torch.build is not None else ()
    return (*found, facts.rule_fact("arch-not-in-wheel"))


def _rule_of(capability: str) -> tuple[Fact, ...]:
    major = int(capability.split(".")[0])
    id = (
        "kepler-last-stack"
        if major == 3
        else "volta-and-older-last-stack"
        if major in (5, 6) or capability in ("7.0", "7.2")
        else None
    )
    id = "blackwell-first-stack" if major >= 10 else "ampere-first-stack" if major == 8 else id
    return (facts.rule_fact(id),) if id else ()


def _chosen_by_installer(told: Told) -> bool:
    """Whether an installer that looks at the driver alone chose the build."""
    return (
        "auto" in told.index_labels
        or told.symptom("torch_backend_auto") is not None
        or "uv" in told.installers
    )


def _fixes(told: Told, torch: Standing | None, capability: str) -> tuple[Fix, ...]:
    choices = list(torch_choices(told, torch))
    if not choices:
        # a driver that is too old may be what is in the way
        free = msgspec.structs.replace(
            told, environment=msgspec.structs.replace(told.environment, driver=None, driver_cuda=None)
        )
        choices = list(torch_choices(free, torch))
        if not choices:
            return (
                (Action("install_build", package="torch", build="source"),),
                (Action("hardware", to=">=7.5"),),
            )
        floor = limits.driver_floor(choices[0].cuda or "", limits.is_windows_driver(told.environment)) or ""
        return ((*with_companions(choices[0], told, torch), raise_driver(told, floor)),)
    fixes = [with_companions(_first(choices, torch), told, torch)]
    fixes.extend(with_companions(item, told, torch) for item in _others(choices, fixes[0]))
    return tuple(fixes[:3])


def _first(choices: list[Build], torch: Standing | None) -> Build:
    """The nearest build; of a release that nobody named, the newest of the CUDA with most releases behind it."""
    return choices[0]


def _others(choices: list[Build], first: Fix) -> Iterator[Build]:
    """The newest that runs, where that is another release; then the nearest of another CUDA."""
    taken = {(first[0].to, first[0].build)}
    newest = max(choices, key=lambda item: (parse(item.version), item.cuda))
    other = [item for item in choices if item.label != first[0].build]
    for item in (*other[:1], newest):
        if (f"=={item.version}", item.label) not in taken:
            taken.add((f"=={item.version}", item.label))
            yield item


def _is_dropped_by_vllm(told: Told, capability: str) -> bool:
    found = told.environment.distribution("vllm")
    if found is not None and found.label == "source":
        return False
    return told.mentions("vllm") and at_least(_DROPPED, capability) is True


def _vllm_finding(told: Told, gpu: Gpu, capability: str) -> Finding:
    fixes: tuple[Fix, ...] = (
        (Action("install_build", package="vllm", build="source"),),
        (Action("hardware", from_=gpu.name, to=">=7.0"),),
    )
    text = message("stack.vllm_has_no_kernels", gpu=gpu.name or capability, capability=capability)
    return Finding(
        "arch_removed",
        "will_fail",
        text,
        "vllm-gpu",
        "both",
        14,
        ("vllm",),
        fixes,
        (facts.rule_fact("vllm-gpu"),),
    )


def vllm_needs_newer(told: Told) -> Iterator[Finding]:
    """vLLM's wheels have no code for Pascal and older."""
    if told.symptom(*_SYMPTOMS) is not None:
        return
    for gpu in told.environment.gpus:
        if gpu.capability and _is_dropped_by_vllm(told, gpu.capability):
            yield msgspec.structs.replace(_vllm_finding(told, gpu, gpu.capability), basis="facts")


def features(told: Told) -> Iterator[Finding]:
    """flash-attn and bf16 need Ampere or newer."""
    said = told.symptom("attention_needs_ampere", "bf16_needs_ampere")
    for gpu in told.environment.gpus:
        if not gpu.capability or at_least(gpu.capability, "8.0") is not False:
            continue
        if told.mentions("flash-attn") and (said is None or said.id == "attention_needs_ampere"):
            fix = (Action("remove", package="flash-attn", command="pip uninstall -y flash-attn"),)
            text = message(
                "stack.flash_attn_needs_ampere", gpu=gpu.name or gpu.capability, capability=gpu.capability
            )
            yield Finding(
                "feature_needs_gpu",
                "will_fail",
                text,
                "flash-attn-gpu",
                "both" if said else "facts",
                30,
                ("flash-attn",),
                (fix, (Action("hardware", to=">=8.0"),)),
                (facts.rule_fact("flash-attn-gpu"),),
            )
        elif said is not None:
            text = message(
                "stack.bf16_needs_ampere", gpu=gpu.name or gpu.capability, capability=gpu.capability
            )
            yield Finding(
                "feature_needs_gpu",
                "will_fail",
                text,
                "flash-attn-gpu",
                "both",
                30,
                fixes=((Action("other", name="fp16"),), (Action("hardware", to=">=8.0"),)),
                facts=(facts.rule_fact("flash-attn-gpu"),),
            )


def installer_choice(told: Told) -> Iterator[Finding]:
    """An automatic backend takes the highest CUDA that the driver allows, not the highest that has the wanted torch."""
    if told.symptom("torch_backend_auto") is None and "auto" not in told.index_labels:
        return
    wanted = told.requirement("torch") or Requirement("torch")
    bounds = wanted.specifier
    version = newest_admitted("torch", bounds, told)
    choices = [
        item
        for item in torch_choices(told, None, bounds=bounds, is_strict=False)
        if version in (None, item.version)
    ]
    if not choices:
        return
    usual = sorted(choices, key=lambda item: (not _is_default_cuda(item), _rank_of(item)))
    fixes = tuple((install(item),) for item in usual[:3])
    text = message(
        "stack.installer_chooses_by_driver",
        bounds=bounds or "torch",
        version=usual[0].version,
        label=usual[0].label or "",
    )
    is_old = any(
        item.capability and not runs_default(told, item.capability) for item in told.environment.gpus
    )
    yield Finding(
        "installer_choice",
        "will_fail" if told.symptoms or is_old else "may_fail",
        text,
        "volta-and-older-last-stack",
        "message",
        15,
        ("torch",),
        fixes,
        usual[0].facts,
    )


def _is_default_cuda(item: Build) -> bool:
    return item.row is not None and item.row["pypi_default_cuda"].startswith(f"{item.cuda}.")


def _rank_of(item: Build) -> tuple[float, ...]:
    return tuple(-float(part) for part in (item.cuda or "0").split("."))


def runs_default(told: Told, capability: str) -> bool:
    """Whether the default build of the newest torch has code for the GPU, so far as that is known."""
    machine = told.environment
    newest = next(
        (item for item in torch_builds(machine.os or "linux", machine.arch or "x86_64") if item.compiled),
        None,
    )
    return newest is None or limits.kernels_for(capability, newest.compiled or "") != "none"


def end_of_line(told: Told) -> Iterator[Finding]:
    """The last torch, toolkit and driver for a GPU that new ones leave out."""
    for gpu in told.environment.gpus:
        row = limits.architecture_row(gpu.capability or "")
        if row is None or not row["last_cuda"] or gpu.capability is None:
            continue
        machine = msgspec.structs.replace(
            told.environment, driver=None, driver_cuda=None, gpus=(gpu,), python=None, glibc=None, is_wsl=None
        )
        last = next(
            (item for item in torch_builds() if item.cuda and item.compiled and runs(item, machine)), None
        )
        branch = limits.last_driver_branch(gpu.capability)
        text = message(
            "stack.last_stack",
            gpu=gpu.name or gpu.capability,
            torch=last.version if last else "?",
            label=(last.label if last else None) or "?",
            driver=branch["branch"] if branch else "?",
            cuda=row["last_cuda"],
        )
        stands = (
            facts.fact("cuda_arch", row),
            *((facts.fact("driver_branch", branch),) if branch else ()),
            *(last.facts if last else ()),
        )
        yield Finding("end_of_line", "fine", text, "volta-and-older-last-stack", facts=stands)


RULES: tuple[Rule, ...] = (kernels_missing, vllm_needs_newer, features, installer_choice, end_of_line)
