"""Packages that belong to one release of another: torchvision, xformers, vLLM, torch_xla, JAX, Neuron, coremltools."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.fixes import install_command, moved, xformers_for
from raceline.stack.result import Action, ActionKind, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, torch_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, minor, parse

_PAIRS = ("torchvision", "torchaudio")


_PINNED_UP_TO = {"torchvision": "0.29.0", "torchaudio": "2.10.0"}  # rule torch-vision-audio-pins


def torch_pairs(told: Told) -> Iterator[Finding]:
    """torchvision and torchaudio belong to one torch, of the same build."""
    said = told.symptom("torchvision_nms") or _undefined_in_pair(told)
    torch = torch_of(told)
    judged = False
    for name in _PAIRS:
        found = told.installed(name)
        if found is None or found.version is None:
            continue
        owner = _owner(name, found.version)
        if torch is not None and torch.version is not None and owner is not None:
            judged = True
            yield from _pair(told, name, torch, owner, said is not None)
    if said is not None and not judged:
        yield _unpaired(told, torch)


def _undefined_in_pair(told: Told) -> Symptom | None:
    """A symbol that torchvision's or torchaudio's library misses."""
    return next(
        (
            item
            for item in told.symptoms
            if item.id == "undefined_symbol"
            and any(name in item.params.get("library", "") for name in _PAIRS)
        ),
        None,
    )


def _owner(name: str, version: str) -> str | None:
    """The newest torch that this torchvision or torchaudio, or another patch of it, was released for."""
    wanted = parse(version)
    rows = facts.releases("torch").items()
    exact = next((str(known) for known, row in rows if parse(row[name]) == wanted), None)
    return exact or next(
        (str(known) for known, row in rows if row[name] and minor(row[name]) == minor(version)), None
    )


def _pair(told: Told, name: str, torch: Standing, owner: str, is_said: bool) -> Iterator[Finding]:
    found = told.installed(name)
    row = facts.release("torch", torch.version)
    if found is None or row is None or torch.version is None or found.version is None:
        return
    fits_version = parse(row[name]) == parse(found.version) or _same_patch(row[name], found.version)
    is_loose = at_least(found.version, _PINNED_UP_TO[name]) and parse(found.version) != parse(
        _PINNED_UP_TO[name]
    )
    label = found.label
    other_build = (
        label is not None and torch.label is not None and not torch.is_assumed and label != torch.label
    )
    if fits_version and not other_build:
        text = message("stack.pair_fits", package=name, version=found.shown, torch=torch.shown)
        yield Finding(
            "torch_pair_mismatch", "fine", text, "torch-vision-audio-pins", facts=(facts.fact("torch", row),)
        )
        return
    if is_loose and not is_said and not fits_version:
        return
    build = torch.label if torch.label and not torch.is_assumed else None
    if fits_version:
        fixes: tuple[Fix, ...] = (
            (
                Action(
                    "install_build",
                    package=name,
                    from_=found.shown,
                    to=f"=={found.version}",
                    build=build,
                    command=install_command([f"{name}=={found.version}"], build),
                ),
            ),
        )
    else:
        line = install_command([f"torch=={torch.version}", f"{name}=={row[name]}"], build)
        there = moved(name, found.shown, row[name], command=False)
        fixes = (
            (Action(there.action, package=name, from_=found.shown, to=there.to, command=line),),
            _torch_to(told, torch, owner, name),
        )
    text = message("stack.pair_mismatch", package=name, version=found.shown, owner=owner, torch=torch.shown)
    yield Finding(
        "torch_pair_mismatch",
        "will_fail",
        text,
        "torch-vision-audio-pins",
        "both" if is_said else "facts",
        26,
        (name, "torch"),
        fixes,
        (facts.fact("torch", row), facts.rule_fact("torch-vision-audio-pins")),
    )


def _family(label: str) -> str:
    """Builds that load each other: those of one CUDA major, of ROCm, without a GPU."""
    return label[:4]


def _same_patch(stated: str, version: str) -> bool:
    """A patch release of one and the same minor pair (0.15.1 for 2.0.0, 0.15.2 for 2.0.1) loads with the other."""
    return bool(stated) and minor(stated) == minor(version)


def _torch_to(told: Told, torch: Standing, owner: str, name: str) -> Fix:
    steps = [moved("torch", torch.shown, owner)]
    if told.mentions("xformers"):
        releases = [
            version for version, row in facts.releases("xformers").items() if row["torch"] == f"=={owner}"
        ]
        if releases:
            bounds = f">={min(releases)},<={max(releases)}"
            steps.append(
                Action("pin", package="xformers", to=bounds, command=install_command([f"xformers{bounds}"]))
            )
    return tuple(steps)


def _unpaired(told: Told, torch: Standing | None) -> Finding:
    vision = told.installed("torchvision")
    fixes: list[Fix] = []
    if vision is not None and vision.version is not None:
        owner = _owner("torchvision", vision.version)
        fixes.append(
            (
                Action(
                    "pin",
                    package="torchvision",
                    from_=vision.shown,
                    to=f"<{vision.version}",
                    command=f'pip install "torchvision<{vision.version}"',
                ),
            )
        )
        if owner is not None:
            fixes.append(
                (
                    Action(
                        "upgrade",
                        package="torch",
                        to=f"=={owner}",
                        command=install_command([f"torch=={owner}", f"torchvision=={vision.version}"]),
                    ),
                )
            )
    elif (
        torch is not None
        and torch.version is not None
        and (row := facts.release("torch", torch.version)) is not None
    ):
        fixes.append(
            (
                Action(
                    "install_build",
                    package="torchvision",
                    to=f"=={row['torchvision']}",
                    build=torch.label if not torch.is_assumed else None,
                ),
            )
        )
    text = message(
        "stack.pair_said",
        vision=(vision.shown if vision else None) or "?",
        torch=(torch.shown if torch else "") or "?",
    )
    return Finding(
        "torch_pair_mismatch",
        "will_fail",
        text,
        "torch-vision-audio-pins",
        "message",
        26,
        ("torchvision", "torch"),
        tuple(fixes),
        (facts.rule_fact("torch-vision-audio-pins"),),
    )


def xformers_pin(told: Told) -> Iterator[Finding]:
    """Every xformers up to 0.0.34 pins one torch."""
    said = told.symptom("xformers_built_for", "xformers_no_kernels")
    found, torch = told.installed("xformers"), torch_of(told)
    have = said.params.get("have") if said is not None else None
    built = said.params.get("built") if said is not None else None
    if (torch is not None and torch.is_cpu) or (have or "").endswith("+cpu"):
        return
    row = facts.release("xformers", found.version if found is not None else None)
    pinned = (
        row["torch"].removeprefix("==")
        if row is not None and row["torch"].startswith("==")
        else (built or "").split("+")[0] or None
    )
    version = (torch.version if torch is not None else None) or ((have or "").split("+")[0] or None)
    if version is None or (pinned is None and said is None):
        return
    if pinned is not None and parse(pinned) == parse(version):
        if said is None and found is not None:
            yield Finding(
                "xformers_pin",
                "fine",
                message("stack.pin_holds", package="xformers", version=found.shown, torch=version),
                "xformers-pin",
                facts=facts.package_fact("xformers", found.version),
            )
        return
    if found is None and said is None:
        return
    present = found.version if found is not None else None
    fixes = _xformers_fixes(torch, have, present, version, pinned)
    text = message(
        "stack.pin_broken",
        package="xformers",
        version=present or "",
        pin=pinned or "?",
        torch=(torch.shown if torch else have) or "?",
    )
    yield Finding(
        "xformers_pin",
        "will_fail",
        text,
        "xformers-pin",
        "both" if said and row else "message" if said else "facts",
        27,
        ("xformers", "torch"),
        fixes,
        (*facts.package_fact("xformers", present), facts.rule_fact("xformers-pin")),
    )


def _xformers_fixes(
    torch: Standing | None, have: str | None, present: str | None, version: str, pinned: str | None
) -> tuple[Fix, ...]:
    """The xformers of the torch that is there, or the torch of the xformers."""
    fixes: list[Fix] = []
    release = xformers_for(version)
    if release is not None:
        kind: ActionKind = (
            "downgrade" if present is not None and at_least(release, present) is False else "upgrade"
        )
        fixes.append(
            (
                Action(
                    kind,
                    package="xformers",
                    from_=present,
                    to=f"=={release}",
                    command=install_command([f"xformers=={release}"]),
                ),
            )
        )
    if pinned is not None:
        label = torch.label if torch is not None and not torch.is_assumed else None
        step = moved("torch", torch.shown if torch is not None else have, pinned, command=False)
        fixes.append(
            (
                Action(
                    step.action,
                    package="torch",
                    from_=step.from_,
                    to=step.to,
                    build=label,
                    command=install_command([f"torch=={pinned}"], label),
                ),
            )
        )
    return tuple(fixes)


def vllm_pin(told: Told) -> Iterator[Finding]:
    """vLLM and SGLang pin one torch each."""
    for package in ("vllm", "sglang"):
        found = told.installed(package)
        row = facts.release(package, found.version if found is not None else None)
        torch = told.installed("torch")
        if found is None or row is None or torch is None or torch.version is None or not row["torch"]:
            continue
        pin = row["torch"]
        if admits(pin, torch.version) is not False:
            text = message("stack.pin_holds", package=package, version=found.shown, torch=torch.version)
            yield Finding(
                "vllm_pin", "fine", text, "vllm-pin", facts=facts.package_fact(package, found.version)
            )
            continue
        fixes: list[Fix] = []
        if pin.startswith("=="):
            fixes.append((moved("torch", torch.version, pin.removeprefix("==")),))
        fitting = next(
            (
                str(version)
                for version, other in facts.releases(package).items()
                if admits(other["torch"] or "<0", torch.version)
            ),
            None,
        )
        if fitting is not None:
            fixes.append((moved(package, found.version, fitting),))
        text = message(
            "stack.pin_broken",
            package=package,
            version=found.shown,
            pin=pin.removeprefix("=="),
            torch=torch.shown,
        )
        yield Finding(
            "vllm_pin",
            "may_fail",
            text,
            "vllm-pin",
            "facts",
            36,
            (package, "torch"),
            tuple(fixes),
            (*facts.package_fact(package, found.version), facts.rule_fact("vllm-pin")),
        )


RULES: tuple[Rule, ...] = (
    torch_pairs,
    xformers_pin,
    vllm_pin,
)
