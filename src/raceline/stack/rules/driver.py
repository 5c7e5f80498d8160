"""Driver against CUDA: the floor of a major, PTX, forward compatibility, the fabric manager, WSL."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.fixes import driver_can_rise, install, raise_driver, torch_choices
from raceline.stack.result import Action, Basis, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import CudaUser, cuda_users, torch_of
from raceline.stack.told import Told
from raceline.stack.versions import at_least, driver_from_code, major, minor


def driver_too_old(told: Told) -> Iterator[Finding]:
    """The driver must reach the floor of the CUDA major of every package; within a major any minor runs."""
    symptom = told.symptom("driver_too_old", "driver_insufficient")
    told = _with_driver_of(told)
    judged = [(user, limits.driver_starts(told.environment, user.cuda)) for user in _users(told)]
    broken = [(user, starts) for user, starts in judged if starts.holds is False]
    if broken:
        user, starts = max(broken, key=lambda item: major(item[0].cuda) or 0)
        text = message(
            "stack.driver_below_floor",
            package=user.package,
            version=user.shown,
            cuda=minor(user.cuda) or user.cuda,
            floor=starts.needed or "?",
            has=_driver_words(told),
        )
        torch = torch_of(told)
        is_sure = user.package != "torch" or torch is None or torch.is_sure or symptom is not None
        yield Finding(
            "driver_too_old",
            "will_fail" if is_sure else "may_fail",
            text,
            "driver-cuda-major",
            "both" if symptom else "facts",
            10,
            packages=tuple(item.package for item, _ in broken),
            fixes=_fixes(told, user, starts.needed or ""),
            facts=(*starts.facts, *user.facts),
        )
    elif symptom is not None:
        yield _only_said(told)
    for user, starts in judged:
        if starts.holds:
            text = message(
                "stack.driver_reaches_floor",
                package=user.package,
                cuda=minor(user.cuda) or user.cuda,
                floor=starts.needed or "?",
                has=_driver_words(told),
            )
            yield Finding("driver_too_old", "fine", text, "driver-cuda-major", facts=starts.facts)


def _users(told: Told) -> list[CudaUser]:
    found = list(cuda_users(told))
    image = told.environment.image_cuda
    if image is not None and not found:
        found.append(CudaUser("container image", image, image))
    return found


def _with_driver_of(told: Told) -> Told:
    """With the CUDA that an error says the driver is of, where nothing else tells the driver."""
    code = next((item.params["found"] for item in told.symptoms if item.params.get("found")), None)
    environment = told.environment
    if code is None or environment.driver is not None or environment.driver_cuda is not None:
        return told
    environment = msgspec.structs.replace(environment, driver_cuda=driver_from_code(code))
    return msgspec.structs.replace(told, environment=environment)


def _driver_words(told: Told) -> str:
    environment = told.environment
    return environment.driver or (f"CUDA {environment.driver_cuda}" if environment.driver_cuda else "?")


def _only_said(told: Told) -> Finding:
    """The message alone says that the driver is too old: the CUDA of the build is above the driver's major."""
    carried = major(told.environment.driver_cuda) or 0
    floor = (
        limits.driver_floor(f"{max(carried + 1, 12)}.0", limits.is_windows_driver(told.environment)) or "580"
    )
    fixes: list[Fix] = [(raise_driver(told, floor),)]
    is_known = bool(told.environment.driver or carried)
    below = list(torch_choices(told, torch_of(told), is_strict=False)) if is_known else []
    if below:
        newest = max(below, key=lambda item: (major(item.cuda) or 0, *map(int, item.version.split("."))))
        fixes.append((install(newest, torch_of(told)),))
    text = message("stack.driver_said_old", has=_driver_words(told), floor=floor)
    return Finding(
        "driver_too_old",
        "will_fail",
        text,
        "driver-cuda-major",
        "message",
        10,
        ("torch",),
        tuple(fixes),
        (facts.rule_fact("driver-cuda-major"),),
    )


def _fixes(told: Told, user: CudaUser, floor: str) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    older = _older_build(told, user)
    can_rise = driver_can_rise(told, floor)
    if can_rise:
        fixes.append((raise_driver(told, floor),))
    if older:
        fixes.append(older)
    if not can_rise and not older:
        fixes.append((Action("hardware", to=">=7.5"),))
    return tuple(fixes)


def _older_build(told: Told, user: CudaUser) -> Fix:
    """Builds of an older CUDA major for the package, and for what pins it."""
    torch = torch_of(told)
    if user.package == "onnxruntime-gpu":
        return _older_onnxruntime(told)
    if user.package == "jax":
        return (
            (Action("install_build", package="jax", build="cuda12", command='pip install "jax[cuda12]"'),)
            if user.cuda.startswith("13")
            else ()
        )
    if torch is None or user.package not in ("torch", "vllm"):
        return ()
    choice = next(iter(torch_choices(told, torch)), None)
    if choice is None:
        return ()
    steps = [install(choice, torch)]
    installed = told.environment.distribution("torchaudio")
    if installed is not None and choice.row is not None:
        steps.append(
            Action(
                "install_build", package="torchaudio", to=f"=={choice.row['torchaudio']}", build=choice.label
            )
        )
    if told.mentions("vllm"):
        vllm = told.environment.distribution("vllm")
        if vllm is None:
            return _vllm_below(told)
        steps.insert(
            0,
            Action(
                "install_build", package="vllm", from_=vllm.shown, to=f"=={vllm.version}", build=choice.label
            ),
        )
    return tuple(steps)


def _vllm_below(told: Told) -> Fix:
    """The newest vLLM whose torch starts on the driver by its default build."""
    from raceline.stack.builds import torch_build

    for version, row in facts.releases("vllm").items():
        build = torch_build(row["torch"].removeprefix("=="), None, told.environment)
        if build is None or build.cuda is None:
            continue
        if limits.driver_starts(told.environment, build.cuda).holds is not False:
            return (
                Action("pin", package="vllm", to=f"=={version}", command=f"pip install vllm=={version}"),
                Action("pin", package="torch", to=f"=={build.version}"),
            )
    return ()


def _older_onnxruntime(told: Told) -> Fix:
    for version, row in facts.releases("onnxruntime-gpu").items():
        if row["pypi_cuda"] and limits.driver_starts(told.environment, row["pypi_cuda"]).holds is not False:
            return (Action("downgrade", package="onnxruntime-gpu", to=f"=={version}"),)
    return ()


def driver_and_gpu(told: Told) -> Iterator[Finding]:
    """A driver must know the GPU: new ones need a branch, old ones have a last one."""
    driver = told.environment.driver
    has_packages = bool(told.environment.distributions or told.requirements)
    if has_packages and next(cuda_users(told), None) is None:
        return
    for gpu in told.environment.gpus:
        if gpu.capability is None or driver is None:
            continue
        name = gpu.name or gpu.capability
        knows = limits.driver_knows(told.environment, gpu.capability)
        if knows.holds is False and not told.environment.is_wsl and told.environment.os != "windows":
            text = message("stack.driver_knows_not", gpu=name, floor=knows.needed or "?", has=driver)
            fix = (raise_driver(told, knows.needed or ""),)
            yield Finding(
                "driver_too_old",
                "will_fail",
                text,
                "blackwell-first-stack",
                blocks=9,
                fixes=(fix,),
                facts=knows.facts,
            )
        last = limits.last_driver_branch(gpu.capability)
        if last is not None and at_least(driver.split(".")[0], str(int(last["branch"]) + 1)):
            text = message("stack.driver_left_gpu", gpu=name, last=last["branch"], has=driver)
            fix = (Action("driver", from_=driver, to=f"<{int(last['branch']) + 1}"),)
            yield Finding(
                "driver_too_new", "will_fail", text, "volta-and-older-last-stack", blocks=9, fixes=(fix,),
                facts=(facts.fact("driver_branch", last),),
            )  # fmt: skip


def ptx_newer_than_driver(told: Told) -> Iterator[Finding]:
    """PTX needs the driver that came with the toolkit that made it; minor-version compatibility does not cover it."""
    if told.symptom("ptx_toolchain") is None:
        yield from _ptx_fallback(told)
        return
    environment = told.environment
    made_by = (
        environment.image_cuda or environment.toolkit or next((item.cuda for item in cuda_users(told)), None)
    )
    is_windows = limits.is_windows_driver(environment)
    fixes: list[Fix] = []
    stands = [facts.rule_fact("driver-minor-ptx")]
    floor = limits.packaged_driver(made_by, is_windows) if made_by else None
    if floor is not None and limits.driver_takes_ptx(environment, made_by or "").holds is not True:
        fixes.append((raise_driver(told, floor),))
    carried = environment.driver_cuda
    if carried is not None:
        fixes.append((Action("toolkit", from_=made_by, to=_toolkits(told, carried)),))
        newer = _next_toolkit(carried)
        if floor is None and newer is not None and (packaged := limits.packaged_driver(newer, is_windows)):
            fixes.append((raise_driver(told, packaged),))
    text = message("stack.ptx_too_new", cuda=made_by or "?", floor=floor or "?", has=_driver_words(told))
    yield Finding(
        "ptx_newer_than_driver",
        "will_fail",
        text,
        "driver-minor-ptx",
        "both" if floor else "message",
        12,
        fixes=tuple(fixes),
        facts=tuple(stands),
    )


def _toolkits(told: Told, newest: str) -> str:
    """Toolkits that know the GPU and whose PTX the driver takes: ``>=11.1,<=11.4``."""
    firsts = [
        row["first_cuda"]
        for item in told.environment.gpus
        if (row := limits.architecture_row(item.capability or ""))
    ]
    return f">={max(firsts)},<={newest}" if firsts else f"<={newest}"


def _next_toolkit(cuda: str) -> str | None:
    known = [row["cuda"] for row in facts.table("cuda_driver") if row["driver_packaged_linux"]]
    later = [
        item
        for item in dict.fromkeys(known)
        if tuple(map(int, item.split("."))) > tuple(map(int, cuda.split(".")))
    ]
    return later[-1] if later else None


def _ptx_fallback(told: Told) -> Iterator[Finding]:
    torch = torch_of(told)
    if torch is None or torch.build is None or not torch.build.compiled or torch.cuda is None:
        return
    for gpu in told.environment.gpus:
        if not gpu.capability or limits.kernels_for(gpu.capability, torch.build.compiled) != "ptx":
            continue
        takes = limits.driver_takes_ptx(told.environment, torch.cuda)
        if takes.holds is False:
            text = message(
                "stack.ptx_too_new", cuda=torch.cuda, floor=takes.needed or "?", has=_driver_words(told)
            )
            fix = (raise_driver(told, takes.needed or ""),)
            yield Finding(
                "ptx_newer_than_driver",
                "will_fail",
                text,
                "driver-minor-ptx",
                "facts",
                12,
                ("torch",),
                (fix,),
                takes.facts,
            )


def forward_compatibility(told: Told) -> Iterator[Finding]:
    """The cuda-compat package works on data-center GPUs alone."""
    environment = told.environment
    said = told.symptom("error_804")
    image = environment.image_cuda or environment.toolkit
    starts = limits.driver_takes_ptx(environment, image) if image else None
    is_consumer = any(_is_consumer(item.name or "") for item in environment.gpus)
    is_trap = (
        bool(environment.has_cuda_compat) and is_consumer and starts is not None and starts.holds is False
    )
    if said is None and not is_trap:
        return
    fixes: list[Fix] = []
    if starts is not None and starts.needed:
        fixes.append((raise_driver(told, starts.needed),))
    compat = Action("remove", package="cuda-compat", command="apt-get remove -y 'cuda-compat-*'")
    fixes.append((compat,))
    if image is not None:
        fixes.append((Action("toolkit", from_=image, to=f"<{image}"),))
    elif environment.driver_cuda:
        fixes.append((Action("toolkit", to=f"<={environment.driver_cuda}"),))
    text = message(
        "stack.forward_compat",
        cuda=image or "?",
        has=_driver_words(told),
        floor=(starts.needed if starts else None) or "?",
    )
    basis: Basis = "message" if not is_consumer else "both"
    yield Finding(
        "forward_compat_unsupported",
        "will_fail" if said else "may_fail",
        text,
        "forward-compat-hardware",
        basis if said else "facts",
        11,
        fixes=tuple(fixes),
        facts=(facts.rule_fact("forward-compat-hardware"),),
    )


def _is_consumer(name: str) -> bool:
    low = name.lower()
    return any(word in low for word in ("geforce", "gtx", "titan")) or (
        "rtx" in low and "rtx pro" not in low and " a" not in low
    )


def fabric_manager(told: Told) -> Iterator[Finding]:
    """On NVSwitch machines the fabric manager must run in the driver's version."""
    if told.symptom("error_802") is None:
        return
    driver = told.environment.driver
    branch = (driver or "").split(".")[0]
    package = f"nvidia-fabricmanager-{branch}" if branch else "nvidia-fabricmanager"
    command = f"apt-get install -y {package} && systemctl enable --now nvidia-fabricmanager"
    step = Action(
        "install_build", package="nvidia-fabricmanager", to=f"=={driver}" if driver else None, command=command
    )
    text = message("stack.fabric_manager_down", has=driver or "?")
    yield Finding(
        "fabric_manager",
        "will_fail",
        text,
        "fabric-manager",
        "message",
        11,
        fixes=((step,),),
        facts=(facts.rule_fact("fabric-manager"),),
    )


def wsl_driver(told: Told) -> Iterator[Finding]:
    """In WSL the driver is the one of Windows; its library is under /usr/lib/wsl/lib."""
    if not told.environment.is_wsl or told.symptom("libcuda_missing") is None:
        return
    fixes: tuple[Fix, ...] = (
        (
            Action(
                "env_var",
                name="LD_LIBRARY_PATH",
                to="/usr/lib/wsl/lib",
                command="export LD_LIBRARY_PATH=/usr/lib/wsl/lib",
            ),
        ),
        (Action("driver", to=">=528.33"),),
    )
    yield Finding(
        "wsl_driver",
        "will_fail",
        message("stack.wsl_libcuda"),
        "wsl-driver",
        "both",
        10,
        fixes=fixes,
        facts=(facts.rule_fact("wsl-driver"),),
    )


RULES: tuple[Rule, ...] = (
    driver_and_gpu,
    driver_too_old,
    ptx_newer_than_driver,
    forward_compatibility,
    fabric_manager,
    wsl_driver,
)
