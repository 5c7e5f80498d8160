"""CUDA libraries: cuDNN and NCCL that collide, copies on the loader path, files that two distributions own."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.builds import Build
from raceline.stack.fixes import install, torch_choices
from raceline.stack.result import Action, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import cuda_users, torch_of, version_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, major

_FAMILIES = {"nccl": "nccl_conflict", "cudnn": "cudnn_conflict"}
_PATH = Action("env_var", name="LD_LIBRARY_PATH", command="unset LD_LIBRARY_PATH")


def both_majors(told: Told) -> Iterator[Finding]:
    """The cu12 and cu13 wheels of cuDNN and of NCCL own the same files; no installer says so."""
    said = _nccl_symbol(told)
    found = False
    for family, cause in _FAMILIES.items():
        pair = [
            f"nvidia-{family}-cu{whole}"
            for whole in ("11", "12", "13")
            if told.mentions(f"nvidia-{family}-cu{whole}")
        ]
        if len(pair) > 1 and not _own_different_files(told, family, pair):
            is_said = said is not None and family == "nccl"
            yield _both(told, family, cause, pair, is_said or told.symptom("cudnn_status") is not None)
            found = True
    if not found:
        yield from _will_bring_both(told)


def _own_different_files(told: Told, family: str, pair: list[str]) -> bool:
    """Whether they are cuDNN of different majors, whose files have different names."""
    majors = {major(found.version) for name in pair if (found := told.installed(name)) is not None}
    return family == "cudnn" and None not in majors and len(majors) == len(pair)


def _both(told: Told, family: str, cause: str, pair: list[str], is_said: bool) -> Finding:
    torch = torch_of(told)
    whole = torch.cuda_major if torch is not None else None
    keep = f"nvidia-{family}-cu{whole}" if whole and f"nvidia-{family}-cu{whole}" in pair else pair[-1]
    drop = next(item for item in pair if item != keep)
    dropped, kept = told.installed(drop), told.installed(keep)
    remove = Action(
        "remove", package=drop, from_=dropped.version if dropped else None, command=f"pip uninstall -y {drop}"
    )
    again = f"=={kept.version}" if kept is not None and kept.version else None
    back = Action(
        "install_build",
        package=keep,
        to=again,
        command=f"pip install --force-reinstall --no-deps {keep}{again or ''}",
    )
    text = message("stack.both_majors", first=pair[0], second=pair[-1], keep=keep)
    return Finding(
        cause,
        "will_fail",
        text,
        "cu12-cu13-wheels-share-files",
        "both" if is_said else "facts",
        20,
        tuple(pair),
        ((remove, back), (remove,)),
        (facts.rule_fact("cu12-cu13-wheels-share-files"),),
    )


def _will_bring_both(told: Told) -> Iterator[Finding]:
    """Packages that bring wheels of two CUDA majors into one environment."""
    users = [item for item in cuda_users(told) if item.package not in ("vllm", "onnxruntime-gpu")]
    majors = {major(item.cuda): item for item in users}
    if len(majors) < 2:
        return
    first, second = (majors[key] for key in sorted(key for key in majors if key is not None)[-2:])
    text = message(
        "stack.two_cuda_majors",
        first=f"{first.package} {first.shown}",
        first_cuda=major(first.cuda) or 0,
        second=f"{second.package} {second.shown}",
        second_cuda=major(second.cuda) or 0,
    )
    yield Finding(
        "cudnn_conflict",
        "may_fail"
        if 11 in majors
        else "will_fail",  # cuDNN of CUDA 11 may be of another major, or inside torch's wheel
        text,
        "cu12-cu13-wheels-share-files",
        "facts",
        20,
        (first.package, second.package),
        _one_major(told),
        (facts.rule_fact("cu12-cu13-wheels-share-files"), *first.facts, *second.facts),
    )


def _one_major(told: Told) -> tuple[Fix, ...]:
    torch = torch_of(told)
    fixes: list[Fix] = []
    choice: Build | None = next(iter(torch_choices(told, torch, cuda_major=12, is_strict=False)), None)
    if choice is not None and told.mentions("torch"):
        fixes.append((install(choice, torch),))
    if any(item.package == "jax" and item.cuda.startswith("12") for item in cuda_users(told)):
        newer = Action("install_build", package="jax", build="cuda13", command='pip install "jax[cuda13]"')
        plugins = [name for name in ("jax-cuda12-plugin", "jax-cuda12-pjrt") if told.mentions(name)]
        gone = (Action("remove", package=name, command=f"pip uninstall -y {name}") for name in plugins)
        fixes.append((newer, *gone))
    fixes.append((Action("other", name="one environment per framework"),))
    return tuple(fixes)


def _nccl_symbol(told: Told) -> Symptom | None:
    return next((item for item in told.symptoms if "nccl" in item.params.get("symbol", "").lower()), None)


def nccl_conflict(told: Told) -> Iterator[Finding]:
    """An NCCL symbol is missing: an older copy than torch was built with is loaded."""
    said = _nccl_symbol(told)
    pair = [
        item for item in ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13") if told.mentions(item)
    ]
    if said is None or len(pair) > 1:
        return
    torch = torch_of(told)
    pin = torch.build.nccl if torch is not None and torch.build is not None else None
    fixes: list[Fix] = []
    if (
        pin is not None
        and pair
        and (found := told.installed(pair[0])) is not None
        and at_least(found.version, pin) is False
    ):
        fixes.append(
            (
                Action(
                    "upgrade",
                    package=pair[0],
                    from_=found.version,
                    to=f"=={pin}",
                    command=f"pip install {pair[0]}=={pin}",
                ),
            )
        )
    fixes += [(Action("remove", package="nccl"),), (_PATH,)]
    text = message("stack.nccl_symbol", symbol=said.params["symbol"], pin=pin or "?")
    yield Finding(
        "nccl_conflict",
        "will_fail",
        text,
        "system-library-shadow",
        "message",
        21,
        ("torch",),
        tuple(fixes),
        (facts.rule_fact("system-library-shadow"), *(torch.build.facts[:1] if torch and torch.build else ())),
    )


def cudnn_conflict(told: Told) -> Iterator[Finding]:
    """A cuDNN is loaded that is older than the framework was built with, or another one overwrote it."""
    loaded = told.symptom("cudnn_loaded_older")
    if loaded is not None and "loaded" in loaded.params:
        has, needed = _dotted(loaded.params["loaded"]), _dotted(loaded.params["compiled"])
        whole = major(needed) or 0
        rise = Action(
            "upgrade",
            package="cudnn",
            from_=has,
            to=f">={needed},<{whole + 1}",
            command=_cudnn_command(told, needed, whole),
        )
        text = message("stack.cudnn_loaded", has=has, needed=needed)
        yield Finding(
            "cudnn_conflict",
            "will_fail",
            text,
            "one-cudnn-per-environment",
            "message",
            22,
            ("cudnn",),
            ((rise,), (Action("remove", package="cudnn", from_=has),), (_PATH,)),
            (facts.rule_fact("one-cudnn-per-environment"),),
        )
        return
    status = told.symptom("cudnn_status", "cudnn_loaded_older")
    frameworks = [name for name in ("torch", "jax", "tensorflow", "onnxruntime-gpu") if told.mentions(name)]
    if (
        status is not None
        and len([item for item in told.environment.distributions if item.name.startswith("nvidia-cudnn")]) < 2
    ):
        fixes: tuple[Fix, ...] = (
            (Action("other", name="one environment per framework"),),
            (Action("other", name="one resolver run over all requirements"),),
        )
        if len(frameworks) < 2:
            fixes = ((_PATH,), (Action("remove", package="cudnn", from_=told.environment.cudnn),))
        text = message(
            "stack.cudnn_handle",
            status=status.params.get("status", "cuDNN"),
            packages=", ".join(frameworks) or "cuDNN",
        )
        yield Finding(
            "cudnn_conflict",
            "will_fail",
            text,
            "one-cudnn-per-environment",
            "message",
            22,
            tuple(frameworks),
            fixes,
            (facts.rule_fact("one-cudnn-per-environment"),),
        )
    elif status is None:
        yield from _pins_disagree(told)


def _dotted(text: str) -> str:
    """``8, 5, 0`` as 8.5.0; a number as cudnn_version.h counts: 8907 is 8.9.7, from cuDNN 9 on 90101 is 9.1.1."""
    if text.isdigit() and 4 <= len(text) <= 6:
        number = int(text)
        whole, rest = divmod(number, 10000) if number >= 10000 else divmod(number, 1000)
        return f"{whole}.{rest // 100}.{rest % 100}"
    return ".".join(part.strip() for part in text.replace(",", ".").split(".") if part.strip())


def _cudnn_command(told: Told, needed: str, whole: int) -> str:
    torch = torch_of(told)
    cuda = torch.cuda_major if torch is not None and torch.cuda_major else 12 if whole >= 9 else 11
    return f'pip install "nvidia-cudnn-cu{cuda}>={needed},<{whole + 1}"'


def _pins_disagree(told: Told) -> Iterator[Finding]:
    """The cuDNN wheel that is installed against the exact pin of torch and the floors of JAX and TensorFlow."""
    torch = torch_of(told)
    for whole in ("11", "12", "13"):
        wheel = told.environment.distribution(f"nvidia-cudnn-cu{whole}")
        if wheel is None or wheel.version is None:
            continue
        pin = (
            torch.build.cudnn
            if torch is not None and torch.build is not None and str(torch.cuda_major) == whole
            else None
        )
        for name, bounds, stands in _cudnn_bounds(told, whole):
            if admits(bounds, wheel.version) is False:
                text = message(
                    "stack.cudnn_outside", package=name, bounds=bounds, has=wheel.version, pin=pin or "-"
                )
                fix = (
                    Action(
                        "upgrade",
                        package=wheel.name,
                        from_=wheel.version,
                        to=bounds,
                        command=f'pip install "{wheel.name}{bounds}"',
                    ),
                )
                yield Finding(
                    "cudnn_conflict",
                    "may_fail",
                    text,
                    "one-cudnn-per-environment",
                    "facts",
                    35,
                    (name, wheel.name),
                    (fix, (Action("other", name="one environment per framework"),)),
                    stands,
                )


def _cudnn_bounds(told: Told, whole: str) -> Iterator[tuple[str, str, tuple[Fact, ...]]]:
    torch = torch_of(told)
    if torch is not None and torch.build is not None and torch.build.cudnn and str(torch.cuda_major) == whole:
        series = ".".join(torch.build.cudnn.split(".")[:2])
        yield "torch", f">={series}", torch.build.facts[:1]
    row = facts.release("jax", version_of("jax", told) if told.mentions("jax") else None)
    if row is not None and row.get(f"cuda{whole}_cudnn"):
        yield "jax", row[f"cuda{whole}_cudnn"], (facts.fact("jax", row),)


def library_shadow(told: Told) -> Iterator[Finding]:
    """A library on the loader path is loaded instead of the one that came with the package."""
    said = told.symptom("cudnn_sublibrary")
    symbol = next(
        (item for item in told.symptoms if "nvjitlink" in item.params.get("symbol", "").lower()), None
    )
    symbol = symbol or next((item for item in told.symptoms if _is_cuda_symbol(item)), None)
    has_shadow = bool(told.environment.shadows)
    if said is None and symbol is None and not has_shadow:
        return
    path = ":".join(told.environment.library_path) or None
    fixes: list[Fix] = [
        (Action("env_var", name="LD_LIBRARY_PATH", from_=path, command="unset LD_LIBRARY_PATH"),)
    ]
    if said is not None or (
        symbol is None and any("cudnn" in item.library for item in told.environment.shadows)
    ):
        fixes.append((Action("remove", package="cudnn", from_=told.environment.cudnn),))
    elif symbol is not None and "jitlink" in symbol.params.get("symbol", "").lower():
        fixes.append((Action("remove", package="libnvJitLink"),))
    shown = told.environment.shadows[0] if has_shadow else None
    text = message(
        "stack.library_shadowed",
        library=shown.library if shown else (symbol.params.get("library", "?") if symbol else "libcudnn"),
        found_in=shown.found_in if shown else path or "?",
    )
    is_error = said is not None or symbol is not None
    yield Finding(
        "library_shadow",
        "will_fail" if is_error else "may_fail",
        text,
        "system-library-shadow",
        "both"
        if is_error and (has_shadow or path or told.environment.cudnn)
        else "message"
        if is_error
        else "facts",
        23,
        fixes=tuple(fixes),
        facts=(facts.rule_fact("system-library-shadow"),),
    )


def _is_cuda_symbol(item: Symptom) -> bool:
    if item.id != "undefined_symbol":
        return False
    symbol, library = item.params.get("symbol", "").lower(), item.params.get("library", "").lower()
    return symbol.startswith(("cublas", "cusparse", "cusolver", "cufft", "cudnn")) or (
        "libcu" in library and not symbol.startswith(("_zn3c10", "_zn2at"))
    )


def shared_files(told: Told) -> Iterator[Finding]:
    """Files that two installed distributions both own: the one installed last wins."""
    for item in told.environment.shared_files:
        if any(family in item.first and family in item.second for family in _FAMILIES):
            continue
        text = message(
            "stack.files_shared", first=item.first, second=item.second, count=item.count, example=item.example
        )
        yield Finding(
            "shared_files",
            "may_fail",
            text,
            "cu12-cu13-wheels-share-files",
            "facts",
            60,
            (item.first, item.second),
        )


def conda_mkl(told: Told) -> Iterator[Finding]:
    """mkl 2024.1 dropped a symbol that conda's torch builds need."""
    said = next((item for item in told.symptoms if "iJIT" in item.params.get("symbol", "")), None)
    mkl, torch = told.installed("mkl"), told.environment.distribution("torch")
    is_old_conda = (
        torch is not None and torch.installer == "conda" and at_least(torch.version, "2.3.1") is False
    )
    is_bad = is_old_conda and mkl is not None and at_least(mkl.version, "2024.1") is True
    if said is None and not is_bad:
        return
    down = Action(
        "downgrade",
        package="mkl",
        from_=mkl.version if mkl else None,
        to="<2024.1",
        command='conda install "mkl<2024.1"',
    )
    wheel = Action("install_build", package="torch", build="pip wheel", command="pip install torch")
    yield Finding(
        "conda_mkl",
        "will_fail" if said else "may_fail",
        message("stack.mkl_lost_symbol", has=(mkl.version if mkl else None) or "?"),
        "conda-mkl-2024-1",
        "both" if said and is_bad else "message" if said else "facts",
        25,
        ("mkl", "torch"),
        ((down,), (wheel,)),
        (facts.rule_fact("conda-mkl-2024-1"),),
    )


RULES: tuple[Rule, ...] = (
    both_majors, nccl_conflict, cudnn_conflict, library_shadow, shared_files, conda_mkl,
)  # fmt: skip
