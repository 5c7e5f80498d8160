"""Bounds that releases declare on each other, cuDNN's majors, labels of builds, ROCm's user space, GPUs on a Mac."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.facts import Row
from raceline.stack.fixes import install_command
from raceline.stack.result import Action, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, torch_of, version_of
from raceline.stack.told import Told
from raceline.stack.versions import admits, at_least, major, parse, rocm_of

# columns of the tables that hold bounds on the package of that name
_BOUNDS = (
    "torch", "numpy", "protobuf", "torchvision", "torchaudio", "transformers", "triton", "keras", "scipy", "xformers",
    "flashinfer-python", "pydantic", "ml-dtypes", "tensorboard",
)  # fmt: skip
# bounds that a rule of their own judges
_ELSEWHERE = frozenset({
    ("vllm", "torch"), ("sglang", "torch"), ("xformers", "torch"), ("tensorflow", "numpy"), ("tensorflow", "protobuf"),
    ("torchvision", "torch"), ("torchaudio", "torch"), ("torch", "torchvision"), ("torch", "torchaudio"),
})  # fmt: skip
_RULES = {("bitsandbytes", "torch"): "bitsandbytes-torch", ("jax", "numpy"): "numpy-floor-jax"}
_LEFT_OUT = 2  # minors that a ROCm user space may be away from the kernel driver's (rule rocm-kernel-driver)


def declared_bounds(told: Told) -> Iterator[Finding]:
    """What a release declares of another package, against what is there."""
    for package, table in facts.PACKAGE_TABLES.items():
        found = told.installed(package)
        row = facts.release(package, found.version if found is not None else None)
        if found is None or row is None:
            continue
        for other in _BOUNDS:
            if other != package and (package, other) not in _ELSEWHERE and row.get(other):
                yield from _bound(told, package, table, row, other)


def _bound(told: Told, package: str, table: str, row: Row, other: str) -> Iterator[Finding]:
    bounds, there = row[other], told.installed(other)
    if there is None or there.version is None or admits(bounds, there.version) is not False:
        return
    known = facts.releases(other)
    fitting = next(
        (str(version) for version in known if not version.is_prerelease and admits(bounds, str(version))),
        None,
    )
    to = f"=={fitting}" if fitting else bounds
    line = install_command([f"{other}{to}"])
    text = message(
        "stack.outside_bounds",
        package=package,
        version=row["version"],
        other=other,
        bounds=bounds,
        has=there.version,
    )
    id = _RULES.get((package, other))
    stands: tuple[Fact, ...] = (facts.fact(table, row), *((facts.rule_fact(id),) if id else ()))
    fix: Fix = (Action("pin", package=other, from_=there.version, to=to, command=line),)
    yield Finding(
        "requirement_conflict",
        "may_fail",
        text,
        id or "declared-bounds",
        blocks=50,
        packages=(package, other),
        fixes=(fix,),
        facts=stands,
    )


def cudnn_majors(told: Told) -> Iterator[Finding]:
    """cuDNN 8 and 9 are not interchangeable: torch and ONNX Runtime in one environment must want the same."""
    torch, version = (
        torch_of(told),
        version_of("onnxruntime-gpu", told) if told.mentions("onnxruntime-gpu") else None,
    )
    row = facts.release("onnxruntime-gpu", version)
    ours = major(torch.build.cudnn) if torch is not None and torch.build is not None else None
    theirs = major(row["pypi_cudnn"].replace("x", "0").split(" ")[0]) if row is not None else None
    if ours is None or theirs is None or ours == theirs or torch is None or row is None:
        return
    window = ">=1.19" if ours == 9 else "<1.18.1"
    kind = "upgrade" if ours == 9 else "downgrade"
    line = install_command([f"onnxruntime-gpu{window}"])
    step = Action(kind, package="onnxruntime-gpu", from_=version, to=window, command=line)  # type: ignore[arg-type]
    text = message("stack.cudnn_majors", torch=torch.shown, ours=ours, version=version or "", theirs=theirs)
    yield Finding(
        "cudnn_conflict",
        "may_fail",
        text,
        "cudnn-8-vs-9",
        blocks=36,
        packages=("torch", "onnxruntime-gpu"),
        fixes=((step,),),
        facts=(facts.rule_fact("cudnn-8-vs-9"), facts.fact("onnxruntime", row), *_built(torch)),
    )


def _built(torch: Standing) -> tuple[Fact, ...]:
    return torch.build.facts[:1] if torch.build is not None else ()


def mixed_labels(told: Told) -> Iterator[Finding]:
    """torch, torchvision, torchaudio and xformers of several CUDA builds: one index belongs to all."""
    family = ("torch", "torchvision", "torchaudio", "xformers")
    named = {
        name: found.label for name in family if (found := told.installed(name)) is not None and found.label
    }
    labels = {label for label in named.values() if label.startswith("cu")}
    if len(labels) < 2 or len({label[:4] for label in labels}) > 1 or "torch" not in named:
        return
    wanted = named["torch"]
    steps = tuple(
        Action(
            "install_build", package=name, to=f"=={found.version}" if found.version else None, build=wanted
        )
        for name, label in named.items()
        if label != wanted and (found := told.installed(name)) is not None
    )
    text = message("stack.labels_mixed", labels=", ".join(f"{name}+{label}" for name, label in named.items()))
    yield Finding(
        "torch_pair_mismatch",
        "may_fail",
        text,
        "local-version-labels",
        blocks=55,
        packages=tuple(named),
        fixes=(steps,),
        facts=(facts.rule_fact("local-version-labels"),),
    )


def rocm_user_space(told: Told) -> Iterator[Finding]:
    """A ROCm build of torch far from the ROCm of the system."""
    torch, system = torch_of(told), parse(told.environment.rocm)
    built = parse(rocm_of(torch.label)) if torch is not None else None
    if built is None or system is None or torch is None:
        return
    if built.major == system.major and abs(built.minor - system.minor) <= _LEFT_OUT:
        return
    text = message("stack.rocm_far", built=str(built), has=str(system))
    step = Action("toolkit", from_=str(system), to=f">={built.major}.{built.minor}", name="ROCm")
    yield Finding(
        "rocm_version",
        "may_fail",
        text,
        "rocm-kernel-driver",
        blocks=37,
        packages=("torch",),
        fixes=((step,),),
        facts=(facts.rule_fact("rocm-kernel-driver"),),
    )


def mac_gpus(told: Told) -> Iterator[Finding]:
    """TensorFlow and JAX have no official GPU build for macOS."""
    if told.environment.os != "macos":
        return
    if told.symptom("tf_no_gpu") is not None and told.mentions("tensorflow"):
        step = Action(
            "install_build", package="tensorflow-metal", command=install_command(["tensorflow-metal"])
        )
        text = message("stack.tensorflow_mac_gpu")
        yield Finding(
            "platform_dropped",
            "may_fail",
            text,
            "tensorflow-macos-gpu",
            "both",
            38,
            ("tensorflow",),
            ((step,),),
            (facts.rule_fact("tensorflow-macos-gpu"),),
        )
    if told.mentions("jax-metal") and at_least(version_of("jax", told), "0.4.34") is False:
        step = Action("upgrade", package="jax", from_=version_of("jax", told), to=">=0.4.34")
        yield Finding(
            "platform_dropped",
            "may_fail",
            message("stack.jax_mac_gpu"),
            "jax-mac-gpu",
            blocks=38,
            packages=("jax", "jax-metal"),
            fixes=((step,),),
            facts=(facts.rule_fact("jax-mac-gpu"),),
        )


def libtpu(told: Told) -> Iterator[Finding]:
    """Each jax pins a series of libtpu."""
    there, version = told.installed("libtpu"), version_of("jax", told) if told.mentions("jax") else None
    row = facts.release("jax", version)
    if there is None or row is None or not row["libtpu"] or admits(row["libtpu"], there.version) is not False:
        return
    text = message(
        "stack.outside_bounds",
        package="jax",
        version=version or "",
        other="libtpu",
        bounds=row["libtpu"],
        has=there.version or "",
    )
    line = install_command([f"jax[tpu]=={version}"])
    step = Action("pin", package="libtpu", from_=there.version, to=row["libtpu"], command=line)
    yield Finding(
        "requirement_conflict",
        "will_fail",
        text,
        "jax-libtpu",
        blocks=36,
        packages=("jax", "libtpu"),
        fixes=((step,),),
        facts=(facts.fact("jax", row), facts.rule_fact("jax-libtpu")),
    )


RULES: tuple[Rule, ...] = (declared_bounds, cudnn_majors, mixed_labels, rocm_user_space, mac_gpus, libtpu)
