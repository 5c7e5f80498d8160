"""Wheels against the system: Python, operating system, C library, builds without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.fixes import install, install_command, torch_choices, with_companions
from raceline.stack.result import Action, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, torch_of, version_of
from raceline.stack.told import Told
from raceline.stack.versions import at_least, parse

_LAST_INTEL_MAC = "2.2.2"  # rule macos-intel


_LAST_TF_WINDOWS_GPU = "2.11"  # rule tensorflow-windows-gpu: the first without


def cpu_only_build(told: Told) -> Iterator[Finding]:
    """A torch without GPU code where a GPU is wanted."""
    torch, said = torch_of(told), told.symptom("cuda_not_compiled", "xformers_built_for", "torch_no_gpu")
    have = said.params.get("have", "") if said is not None else ""
    is_cpu = (torch is not None and torch.is_cpu) or have.endswith("+cpu")
    if said is not None and said.id == "xformers_built_for" and not is_cpu:
        return
    has_gpu = bool(told.environment.driver or any(item.capability for item in told.environment.gpus))
    if not is_cpu and (said is None or said.id != "cuda_not_compiled"):
        return
    if said is None and not has_gpu:
        return
    if said is None and not told.environment.gpus and not told.environment.driver:
        return
    if (
        torch is not None
        and not torch.is_cpu
        and torch.cuda is not None
        and not torch.is_assumed
        and said is None
    ):
        return
    is_windows_default = told.environment.os == "windows" and torch is not None and torch.is_assumed
    rule = (
        "windows-pypi-torch-is-cpu"
        if is_windows_default or told.environment.os == "windows"
        else "torch-vision-audio-pins"
    )
    text = message(
        "stack.torch_is_cpu_build", version=(torch.shown if torch is not None else "") or have or "torch"
    )
    yield Finding(
        "cpu_only_build",
        "will_fail" if said or has_gpu else "may_fail",
        text,
        rule,
        "both" if said and is_cpu else "message" if said else "facts",
        16,
        ("torch",),
        _gpu_builds(told, torch, said),
        (
            facts.rule_fact("windows-pypi-torch-is-cpu"),
            *(torch.build.facts[:1] if torch and torch.build else ()),
        ),
    )


def _gpu_builds(told: Told, torch: Standing | None, said: object) -> tuple[Fix, ...]:
    built = getattr(said, "params", {}).get("built", "")
    wanted = built.partition("+")[2]
    choices = list(torch_choices(told, torch, is_strict=False))
    choices.sort(key=lambda item: item.label != wanted if wanted else 0)
    return tuple(
        (install(item, torch),) if wanted else with_companions(item, told, torch) for item in choices[:2]
    )


def platform_dropped(told: Told) -> Iterator[Finding]:
    """Platforms that a package left: Intel Macs, TensorFlow's and JAX's GPU on native Windows."""
    machine = told.environment
    yield from _intel_mac(told)
    version = version_of("tensorflow", told) if told.mentions("tensorflow") else None
    is_windows = machine.os == "windows" and not machine.is_wsl
    said = told.symptom("tf_no_gpu")
    wants_gpu = (
        said is not None or any(item.capability for item in machine.gpus) or machine.driver is not None
    )
    has_plugin = any(told.mentions(f"tensorflow-directml{item}") for item in ("", "-plugin"))
    if is_windows and wants_gpu and not has_plugin and at_least(version, _LAST_TF_WINDOWS_GPU):
        fixes: tuple[Fix, ...] = (
            (Action("os_or_glibc", from_="native Windows", to="WSL2", command="wsl --install"),),
            _old_tensorflow(told, version or ""),
        )
        text = message("stack.tensorflow_no_windows_gpu", version=version or "")
        yield Finding(
            "platform_dropped",
            "will_fail",
            text,
            "tensorflow-windows-gpu",
            "both" if said else "facts",
            17,
            ("tensorflow",),
            fixes,
            (facts.rule_fact("tensorflow-windows-gpu"), *facts.package_fact("tensorflow", version)),
        )
    if is_windows and any(told.mentions(f"jax-cuda{item}-plugin") for item in ("12", "13")):
        fix = (Action("os_or_glibc", from_="native Windows", to="WSL2", command="wsl --install"),)
        yield Finding(
            "platform_dropped",
            "will_fail",
            message("stack.jax_no_windows_gpu"),
            "jax-windows-gpu",
            "facts",
            17,
            ("jax",),
            (fix,),
            (facts.rule_fact("jax-windows-gpu"),),
        )


def _old_tensorflow(told: Told, version: str) -> Fix:
    """TensorFlow 2.10 with the Python, toolkit and cuDNN of its tested configuration."""
    steps = [
        Action(
            "downgrade",
            package="tensorflow",
            from_=version,
            to=f"<{_LAST_TF_WINDOWS_GPU}",
            command='pip install "tensorflow<2.11"',
        )
    ]
    row = facts.release("tensorflow", "2.10.1") or facts.release("tensorflow", "2.10.0")
    if row is None:
        return tuple(steps)
    machine = told.environment
    if machine.python and limits.python_fits(machine, row) is False:
        steps.append(
            Action("python", from_=machine.python, to=f">={row['python_min']},<={row['python_max']}")
        )
    return tuple(steps)


def _intel_mac(told: Told) -> Iterator[Finding]:
    machine = told.environment
    if machine.os != "macos" or machine.arch != "x86_64":
        return
    torch = torch_of(told)
    said = told.symptom("no_matching_distribution")
    asked = said.params.get("version") if said is not None and said.params.get("package") == "torch" else None
    version = asked or (torch.version if torch is not None else None)
    if version is None or at_least(_LAST_INTEL_MAC, version) is not False:
        return
    fix = (
        Action(
            "pin",
            package="torch",
            from_=version,
            to=f"<={_LAST_INTEL_MAC}",
            command=install_command([f"torch<={_LAST_INTEL_MAC}", "numpy<2"]),
        ),
    )
    yield Finding(
        "platform_dropped",
        "will_fail",
        message("stack.torch_no_intel_mac", version=version, last=_LAST_INTEL_MAC),
        "macos-intel",
        "both" if said else "facts",
        17,
        ("torch",),
        (fix,),
        (facts.rule_fact("macos-intel"), *facts.package_fact("torch", version)),
    )


def mps_macos(told: Told) -> Iterator[Finding]:
    """The Metal backend needs a newer macOS with newer releases; the message may name a lower one."""
    machine = told.environment
    torch = torch_of(told)
    said = told.symptom("mps_macos")
    if machine.os != "macos" or torch is None:
        return
    floor = metal_floor(torch.version)
    if floor is None or machine.os_version is None or at_least(machine.os_version, floor) is not False:
        return
    older = "<2.5" if floor == "13" else "<2.10"
    fixes: tuple[Fix, ...] = (
        (Action("os_or_glibc", from_=f"macOS {machine.os_version}", to=f"macOS>={floor}"),),
        (
            Action(
                "downgrade",
                package="torch",
                from_=torch.version,
                to=older,
                command=install_command([f"torch{older}"]),
            ),
        ),
    )
    text = message(
        "stack.metal_needs_macos", version=torch.version or "", floor=floor, has=machine.os_version
    )
    yield Finding(
        "mps_macos",
        "will_fail",
        text,
        "mps-macos",
        "both" if said else "facts",
        17,
        ("torch",),
        fixes,
        (facts.rule_fact("mps-macos"), *facts.package_fact("torch", torch.version)),
    )


def metal_floor(version: str | None) -> str | None:
    """The macOS that the Metal backend of a torch needs (rule mps-macos): 12.3 at first, 13.0 by 2.5, 14.0 by 2.10."""
    found = parse(version)
    if found is None:
        return None
    if found.release >= (2, 10):
        return "14"
    return "13" if found.release >= (2, 5) else "12.3"


RULES: tuple[Rule, ...] = (
    cpu_only_build,
    platform_dropped,
    mps_macos,
)
