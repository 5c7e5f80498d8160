"""ONNX Runtime and TensorRT against CUDA and each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from raceline.measure.environment import Distribution
from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.fixes import moved
from raceline.stack.result import Action, ActionKind, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import torch_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import at_least, major, minor, parse


def onnxruntime_cuda(told: Told) -> Iterator[Finding]:
    """onnxruntime-gpu is built for one CUDA major and one cuDNN major; another falls back to the CPU with a warning."""
    found = told.installed("onnxruntime-gpu")
    missing = [
        item
        for item in told.symptoms
        if item.id == "missing_library"
        and item.params.get("library", "").startswith(
            ("libcublas", "libcudnn", "libcudart", "libcufft", "libcurand", "cublas", "cudnn", "cudart")
        )
    ]
    said = missing[0] if missing else told.symptom("ort_provider_failed")
    row = facts.release("onnxruntime-gpu", found.version if found is not None else None)
    if found is None:
        if (
            said is not None
            and not told.mentions("torch")
            and not told.mentions("tensorflow")
            and not told.mentions("jax")
        ):
            yield _onnxruntime_finding(told, None, None, said)
        return
    toolkit = told.environment.toolkit or told.environment.image_cuda
    torch = torch_of(told)
    cuda = major(toolkit) or (torch.cuda_major if torch is not None else None)
    is_off = (
        row is not None
        and not found.label
        and cuda is not None
        and bool(row["pypi_cuda"])
        and _major_in(row["pypi_cuda"]) != cuda
    )
    if said is None and not is_off:
        if row is not None and cuda is not None:
            text = message("stack.onnxruntime_fits", version=found.shown, cuda=row["pypi_cuda"])
            yield Finding(
                "onnxruntime_cuda_major",
                "fine",
                text,
                "onnxruntime-gpu-cuda-major",
                facts=(facts.fact("onnxruntime", row),),
            )
        return
    if said is None and _brings_its_own(told, row):
        return
    yield _onnxruntime_finding(told, row, cuda, said)


def _brings_its_own(told: Told, row: facts.Row | None) -> bool:
    """Whether the CUDA libraries of the wheel's own major are installed beside it."""
    wanted = _major_in(row["pypi_cuda"]) if row is not None else None
    return any(
        told.mentions(name) for name in (f"nvidia-cudnn-cu{wanted}", f"nvidia-cuda-runtime-cu{wanted}")
    )


def _onnxruntime_finding(
    told: Told, row: facts.Row | None, cuda: int | None, said: Symptom | None
) -> Finding:
    found = told.installed("onnxruntime-gpu")
    version = found.version if found is not None else None
    fixes = _onnxruntime_fixes(told, version, cuda, said)
    text = message(
        "stack.onnxruntime_other_cuda",
        version=version or "",
        built=(row["pypi_cuda"] if row is not None else "") or "?",
        cuda=cuda or "?",
        library=f"{said.params.get('library')}.so.{said.params.get('version')}"
        if said is not None and said.params.get("library")
        else "-",
    )
    stands = ((facts.fact("onnxruntime", row),) if row is not None else ()) + (
        facts.rule_fact("onnxruntime-gpu-cuda-major"),
    )
    return Finding(
        "onnxruntime_cuda_major",
        "will_fail" if said else "may_fail",
        text,
        "onnxruntime-gpu-cuda-major",
        "both" if said and row is not None and cuda is not None else "message" if said else "facts",
        34,
        ("onnxruntime-gpu",),
        fixes,
        stands,
    )


def _onnxruntime_fixes(
    told: Told, version: str | None, cuda: int | None, said: Symptom | None
) -> tuple[Fix, ...]:
    """The release or the build for the CUDA that is there, or the CUDA (and cuDNN) of the release."""
    row = facts.release("onnxruntime-gpu", version) or _of_minor(version)
    built = _built_major(told, row)
    built = _major_of(said) if built is None else built
    if cuda is not None and built is not None and cuda == built:
        return _same_major_fixes(told, version, cuda, row)
    fixes: list[Fix] = []
    whole = cuda or (12 if built is None else built)
    cudnn = _cudnn_major(told)
    if whole == 12 and cudnn in (None, 8) and (version is None or at_least("1.18.0", version)):
        fixes.append(_from_feed(version))
    window = _window(whole)
    if window is not None and (built is None or whole != built):
        step = _release_in(window, version)
        fixes.append((step, _nine(whole)) if _needs_nine(whole, cudnn, row) else (step,))
    if built is not None and driver_starts_major(told, built):
        fixes.append((_toolkit_of(told, built),))
        if cuda is None:
            fixes.append((_path(told),))
    return tuple(fixes)


def _path(told: Told) -> Action:
    return Action("env_var", name="PATH" if told.environment.os == "windows" else "LD_LIBRARY_PATH")


def _of_minor(version: str | None) -> facts.Row | None:
    """A release of the same minor, for a patch release that the table does not hold: they are built alike."""
    rows = facts.releases("onnxruntime-gpu").items()
    return next(
        (row for known, row in rows if version is not None and minor(str(known)) == minor(version)), None
    )


def _major_in(text: str) -> int | None:
    """The major of a version that a table may give as ``12.x`` or with words behind it."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None


def _built_major(told: Told, row: facts.Row | None) -> int | None:
    """The CUDA major of the build that is there: as its label says, else of the wheel on PyPI."""
    found = told.installed("onnxruntime-gpu")
    named = re.match(r"cu(\d{2})", found.label or "") if found is not None else None
    return int(named[1]) if named else _major_in(row["pypi_cuda"]) if row is not None else None


def _major_of(said: Symptom | None) -> int | None:
    """The CUDA major of a library that was looked for; cuDNN's number says nothing of it."""
    if said is None or "cudnn" in said.params.get("library", "").lower():
        return None
    found = said.params.get("version", "")
    return int(found) if found.isdigit() else None


def _same_major_fixes(told: Told, version: str | None, cuda: int, row: facts.Row | None) -> tuple[Fix, ...]:
    """CUDA is of the release's major: cuDNN is of another one, or nothing leads the loader to the libraries."""
    wanted = _major_in(row["pypi_cudnn"]) if row is not None else None
    has = _cudnn_major(told)
    path = (_path(told),)
    if wanted is None or has == wanted:
        return (path,)
    present = told.environment.cudnn
    bounds = f">={wanted},<{wanted + 1}"
    kind: ActionKind = "pin" if has is None else "upgrade" if has < wanted else "downgrade"
    line = f'pip install "nvidia-cudnn-cu{cuda}{bounds}"'
    fixes: list[Fix] = [(Action(kind, package="cudnn", from_=present, to=bounds, command=line),)]
    if has == 8 and cuda == 12:
        fixes.append(_from_feed(version))
    elif has == 9 and cuda == 11 and (window := _window(12)) is not None:
        fixes.append((_release_in(window, version), _toolkit_of(told, 12)))
    if has is None:
        fixes.append(path)
    return tuple(fixes)


def _from_feed(version: str | None) -> Fix:
    """Rule onnxruntime-gpu-cuda-major: 1.18.0 is the last for cuDNN 8 and has a CUDA 12 build in a feed of its own."""
    line = (
        "pip install onnxruntime-gpu==1.18.0 --extra-index-url "
        "https://aiinfra.pkgs.visualstudio.com/PublicPackages/_packaging/onnxruntime-cuda-12/pypi/simple/"
    )
    return (
        Action("install_build", package="onnxruntime-gpu", from_=version, to="==1.18.0", build="cu12", command=line),
    )  # fmt: skip


def _window(cuda: int) -> str | None:
    """The releases whose wheels on PyPI are of a CUDA major; of CUDA 11 those up to the last one with cuDNN 8 alone."""
    known = sorted(facts.releases("onnxruntime-gpu").items())
    inside = [version for version, row in known if _major_in(row["pypi_cuda"]) == cuda]
    if not inside:
        return None
    if cuda == 11:
        return "<=1.18.0"  # rule onnxruntime-gpu-cuda-major
    after = next((version for version, _ in known if version > inside[-1]), None)
    low = f">={inside[0].major}.{inside[0].minor}"
    return low if after is None else f"{low},<{after.major}.{after.minor}"


def _release_in(window: str, version: str | None) -> Action:
    low = re.match(r">=([\d.]+)", window)
    is_later = low is not None and (version is None or at_least(version, low[1]) is False)
    return Action(
        "upgrade" if is_later else "downgrade", package="onnxruntime-gpu", from_=version, to=window,
        command=f'pip install "onnxruntime-gpu{window}"',
    )  # fmt: skip


def _needs_nine(whole: int, cudnn: int | None, row: facts.Row | None) -> bool:
    """Whether cuDNN 9 must come too: not where it is there, nor where the present release asks for it already."""
    return whole >= 12 and cudnn != 9 and not (row is not None and row["pypi_cudnn"].startswith("9"))


def _nine(whole: int) -> Action:
    return Action(
        "pin", package="cudnn", to=">=9,<10", command=f'pip install "nvidia-cudnn-cu{whole}>=9,<10"'
    )


def _toolkit_of(told: Told, cuda: int) -> Action:
    present = told.environment.toolkit or told.environment.image_cuda
    # the last toolkit of CUDA 11 is the one that the wheels were built with
    return Action("toolkit", from_=present, to="==11.8" if cuda == 11 else f">={cuda},<{cuda + 1}")


def driver_starts_major(told: Told, cuda: int) -> bool:
    """Whether the driver, as far as it is known, starts programs of a CUDA major."""
    return limits.driver_starts(told.environment, f"{cuda}.0").holds is not False


def _cudnn_major(told: Told) -> int | None:
    """cuDNN of the system, of a wheel, or of torch's build."""
    wheels = [told.installed(f"nvidia-cudnn-cu{item}") for item in (11, 12, 13)]
    torch = torch_of(told)
    of_torch = torch.build.cudnn if torch is not None and torch.build is not None else None
    known = (told.environment.cudnn, *(item.version for item in wheels if item is not None), of_torch)
    return next((found for item in known if (found := major(item)) is not None), None)


def onnxruntime_flavours(told: Told) -> Iterator[Finding]:
    """The flavours of ONNX Runtime share one import package."""
    names = facts.rules()["onnxruntime-one-flavour"].providers
    there = [name for name in names if told.environment.distribution(name) is not None]
    if len(there) < 2:
        return
    keep = "onnxruntime-gpu" if "onnxruntime-gpu" in there else there[-1]
    remove = tuple(
        Action("remove", package=name, command=f"pip uninstall -y {name}") for name in there if name != keep
    )
    again = Action("install_build", package=keep, command=f"pip install --force-reinstall --no-deps {keep}")
    yield Finding(
        "onnxruntime_flavours",
        "will_fail",
        message("stack.two_flavours", packages=", ".join(there)),
        "onnxruntime-one-flavour",
        "facts",
        34,
        tuple(there),
        ((*remove, again),),
        (facts.rule_fact("onnxruntime-one-flavour"),),
    )


_TENSORRT_SYMBOLS = ("getbuilderplugin", "createinfer", "_zn8nvinfer", "getpluginregistry")
_TENSORRT_LIBRARIES = ("libnvinfer", "nvinfer", "libnvonnx")


def _starts(item: Symptom, param: str, starts: tuple[str, ...]) -> bool:
    return item.params.get(param, "").lower().startswith(starts)


def _engine() -> Finding:
    """An engine that was built for another GPU or TensorRT."""
    fix = (Action("other", name="rebuild the engine"),)
    return Finding(
        "tensorrt_mismatch",
        "will_fail",
        message("stack.engine_elsewhere"),
        "tensorrt-engine-portability",
        "message",
        34,
        ("tensorrt",),
        (fix,),
        (facts.rule_fact("tensorrt-engine-portability"),),
    )


def tensorrt_mismatch(told: Told) -> Iterator[Finding]:
    """ONNX Runtime's provider is built for one TensorRT series; an engine runs where it was built."""
    if told.symptom("tensorrt_engine") is not None:
        yield _engine()
        return
    symbol = next((item for item in told.symptoms if _starts(item, "symbol", _TENSORRT_SYMBOLS)), None)
    library = next((item for item in told.symptoms if _starts(item, "library", _TENSORRT_LIBRARIES)), None)
    found = told.installed("onnxruntime-gpu") or told.installed("onnxruntime")
    row = _series_row(found.version if found is not None else None)
    has = told.installed("tensorrt")
    version = (has.version if has is not None else None) or told.environment.tensorrt
    said = symbol or library
    series = row["tensorrt"] if row is not None else None
    differs = series is not None and version is not None and major(version) != major(series)
    if said is None and not (differs and found is not None and has is not None):
        return
    series = series or (library.params.get("version") if library is not None else None)
    text = message(
        "stack.tensorrt_series",
        version=(found.version if found else None) or "?",
        series=series or "?",
        has=version or "?",
    )
    yield Finding(
        "tensorrt_mismatch",
        "will_fail" if said else "may_fail",
        text,
        "tensorrt-ort-pairing",
        "both" if said and row is not None else "message" if said else "facts",
        34,
        ("tensorrt",),
        _tensorrt_fixes(version, series, found),
        ((facts.fact("onnxruntime_tensorrt", row),) if row is not None else ())
        + (facts.rule_fact("tensorrt-ort-pairing"),),
    )


def _tensorrt_fixes(version: str | None, series: str | None, found: Distribution | None) -> tuple[Fix, ...]:
    """The TensorRT of the release, or the newest release for the TensorRT that is there."""
    to = f"=={series}.*" if series else None
    now, then = parse(version), parse(series)
    kind: ActionKind = "pin"
    if now is not None and then is not None and now.release[: len(then.release)] != then.release:
        kind = "upgrade" if then > now else "downgrade"
    line = f'pip install "tensorrt{to or ""}"'
    fixes: list[Fix] = [(Action(kind, package="tensorrt", from_=version, to=to, command=line),)]
    rows = [
        row
        for row in facts.table("onnxruntime_tensorrt")
        if now is not None and _takes(row["tensorrt"], version)
    ]
    if rows and found is not None and minor(found.version) not in [row["onnxruntime"] for row in rows]:
        release = max((row["onnxruntime"] for row in rows), key=lambda item: parse(item) or 0)
        step = moved(found.name, found.version, release, command=False)
        bounds = f"=={release}.*"
        line = f'pip install "{found.name}{bounds}"'
        fixes.append((Action(step.action, package=found.name, from_=found.version, to=bounds, command=line),))
    return tuple(fixes)


def _takes(series: str, version: str | None) -> bool:
    """Whether a build for that series loads the TensorRT: from 10 on the libraries are named by the major alone."""
    return minor(series) == minor(version) or (major(series) == major(version) and (major(series) or 0) >= 10)


def _series_row(version: str | None) -> facts.Row | None:
    found = parse(version)
    if found is None:
        return None
    return next(
        (
            row
            for row in facts.table("onnxruntime_tensorrt")
            if row["onnxruntime"] == f"{found.major}.{found.minor}"
        ),
        None,
    )


RULES: tuple[Rule, ...] = (
    onnxruntime_cuda,
    onnxruntime_flavours,
    tensorrt_mismatch,
)
