"""TensorFlow and the CUDA libraries that it loads at run time: where they are and of which version."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.fixes import moved
from raceline.stack.result import Action, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import version_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import major, minor

_LOADED = (
    "libcudart",
    "libcublas",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcudnn",
    "libnccl",
)
_OTHERS = ("onnxruntime-gpu", "tensorrt")


def tensorflow_libraries(told: Told) -> Iterator[Finding]:
    """TensorFlow does not find its libraries: they are of another CUDA, or not where it looks."""
    if told.environment.os in ("windows", "macos"):
        return
    is_there = told.mentions("tensorflow")
    missing = _missing(told) if is_there else None
    blind = told.symptom("tf_no_gpu") if is_there else None
    said = told.symptom("tf_cannot_dlopen") or blind or missing
    if said is None:
        return
    version = version_of("tensorflow", told) if is_there else None
    row = facts.release("tensorflow", version)
    differs = _tested_differs(told, row)
    text = (
        message(
            "stack.tensorflow_other_cuda",
            version=version or "",
            tested=row["tested_cuda"],
            has=_toolkit(told) or "",
        )
        if differs and row is not None
        else message("stack.tensorflow_finds_no_libraries", version=version or "")
    )
    yield Finding(
        "tensorflow_cuda_libs",
        "will_fail",
        text,
        "system-library-shadow",
        "both" if missing is not None and differs else "message",
        24,
        ("tensorflow",),
        _fixes(told, version, row, missing),
        facts.package_fact("tensorflow", version) or (facts.rule_fact("system-library-shadow"),),
    )


def _missing(told: Told) -> Symptom | None:
    """A CUDA library that was not found; TensorRT's, which TensorFlow does without, does not count."""
    if any(map(told.mentions, _OTHERS)):
        return None
    return next(
        (
            item
            for item in told.symptoms
            if item.id == "missing_library" and item.params.get("library", "").lower().startswith(_LOADED)
        ),
        None,
    )


def _toolkit(told: Told) -> str | None:
    return told.environment.toolkit or told.environment.image_cuda


def _tested_differs(told: Told, row: facts.Row | None) -> bool:
    """Whether the toolkit is of another major than the release was tested with."""
    has = major(_toolkit(told))
    return (
        row is not None and has is not None and bool(row["tested_cuda"]) and major(row["tested_cuda"]) != has
    )


def _fixes(
    told: Told, version: str | None, row: facts.Row | None, missing: Symptom | None
) -> tuple[Fix, ...]:
    """The CUDA or cuDNN that the release was tested with, the extra that brings the libraries, or the path to them."""
    folders = 'glob.glob(os.path.join(list(nvidia.__path__)[0], "*", "lib"))'
    command = f"export LD_LIBRARY_PATH=$(python -c 'import nvidia, glob, os; print(\":\".join({folders}))')"
    path = (Action("env_var", name="LD_LIBRARY_PATH", command=command),)
    has_extra = row is not None and bool(row["and_cuda_cudnn"])
    fixes: list[Fix] = []
    if row is not None and missing is not None and not told.mentions("nvidia-cudnn-cu12"):
        fixes = [*_tested(told, row, missing)]
        if has_extra:
            fixes.append((_with_extra(version),))
    fixes.append(path)
    if has_extra or row is None:
        fixes.append((Action("other", name="link the nvidia/*/lib files next to the package"),))
    if has_extra and missing is None and not told.mentions("nvidia-cudnn-cu12"):
        fixes.append((_with_extra(version),))
    return tuple(fixes)


def _tested(told: Told, row: facts.Row, missing: Symptom) -> Iterator[Fix]:
    is_cudnn = "cudnn" in missing.params.get("library", "").lower()
    is_other_minor = (
        not is_cudnn
        and str(major(_toolkit(told))) != missing.params.get("version")
        and bool(row["tested_cuda"])
        and minor(_toolkit(told)) not in (None, minor(row["tested_cuda"]))
    )
    if _tested_differs(told, row) or is_other_minor:
        yield (Action("toolkit", from_=_toolkit(told), to=f"=={row['tested_cuda']}"),)
    has = told.environment.cudnn
    if is_cudnn and row["tested_cudnn"] and has is not None and major(has) != major(row["tested_cudnn"]):
        step = moved("cudnn", has, row["tested_cudnn"], command=False)
        yield (Action(step.action, package="cudnn", from_=has, to=f"=={row['tested_cudnn']}.*"),)


def _with_extra(version: str | None) -> Action:
    line = f'pip install "tensorflow[and-cuda]=={version}"'
    return Action("install_build", package="tensorflow", to=f"=={version}", build="and-cuda", command=line)


RULES: tuple[Rule, ...] = (tensorflow_libraries,)
