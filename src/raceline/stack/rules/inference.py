"""ONNX Runtime, TensorRT and bitsandbytes against CUDA and each other."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.result import Action, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import torch_of
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, major, parse


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
        and major(row["pypi_cuda"]) != cuda
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
    wanted = major(row["pypi_cuda"]) if row is not None else None
    return any(
        told.mentions(name) for name in (f"nvidia-cudnn-cu{wanted}", f"nvidia-cuda-runtime-cu{wanted}")
    )


def _onnxruntime_finding(
    told: Told, row: facts.Row | None, cuda: int | None, said: Symptom | None
) -> Finding:
    found = told.installed("onnxruntime-gpu")
    version = found.version if found is not None else None
    fixes = _onnxruntime_fixes(told, version, cuda)
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


def _onnxruntime_fixes(told: Told, version: str | None, cuda: int | None) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    whole = cuda or 12
    cudnn = major(told.environment.cudnn)
    if whole == 12 and cudnn in (None, 8):
        # rule onnxruntime-gpu-cuda-major: 1.18.0 is the last for cuDNN 8 and has a CUDA 12 build in a feed of its own
        line = "pip install onnxruntime-gpu==1.18.0 --extra-index-url https://aiinfra.pkgs.visualstudio.com/PublicPackages/_packaging/onnxruntime-cuda-12/pypi/simple/"
        if version is None or at_least("1.18.0", version):
            fixes.append(
                (
                    Action(
                        "install_build",
                        package="onnxruntime-gpu",
                        from_=version,
                        to="==1.18.0",
                        build="cu12",
                        command=line,
                    ),
                )
            )
    window = {11: "<=1.18.0", 12: ">=1.19,<1.27", 13: ">=1.27"}.get(whole)
    if window is not None:
        kind = "upgrade" if whole > 11 and at_least("1.18.1", version or "1") else "downgrade"
        bounds = f'pip install "onnxruntime-gpu{window}"'
        step = Action(kind, package="onnxruntime-gpu", from_=version, to=window, command=bounds)  # type: ignore[arg-type]
        needs_nine = whole >= 12 and cudnn != 9
        fixes.append(
            (
                step,
                Action(
                    "pin",
                    package="cudnn",
                    to=">=9,<10",
                    command=f'pip install "nvidia-cudnn-cu{whole}>=9,<10"',
                ),
            )
            if needs_nine
            else (step,)
        )
    return tuple(fixes)


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
    differs = row is not None and version is not None and not _is_of_series(version, row["tensorrt"])
    if said is None and not (differs and found is not None and has is not None):
        return
    series = (row["tensorrt"] if row is not None else None) or (
        library.params.get("version") if library is not None else None
    )
    to = f"=={series}.*" if series else None
    step = Action(
        "pin", package="tensorrt", from_=version, to=to, command=f'pip install "tensorrt{to or ""}"'
    )
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
        ((step,),),
        ((facts.fact("onnxruntime_tensorrt", row),) if row is not None else ())
        + (facts.rule_fact("tensorrt-ort-pairing"),),
    )


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


def _is_of_series(version: str, series: str) -> bool:
    return version == series or version.startswith(f"{series}.")


def bitsandbytes(told: Told) -> Iterator[Finding]:
    """bitsandbytes ships a library for each CUDA minor, and for platforms that its wheels name."""
    said = told.symptom("bnb_setup")
    found = told.installed("bitsandbytes")
    version = found.version if found is not None else None
    row = facts.release("bitsandbytes", version)
    is_windows = told.environment.os == "windows"
    lacks_windows = (
        is_windows
        and (row is None or "win_amd64" not in row["platforms"])
        and (said is not None or row is not None)
    )
    torch = torch_of(told)
    if row is not None and row["platforms"] == "any" and said is None and is_windows is False:
        lacks_windows = False
    if said is None and not lacks_windows:
        return
    fixes = _windows_fixes(version) if lacks_windows else _other_binary(told, version)
    text = message(
        "stack.bitsandbytes_no_library",
        version=version or "",
        os=told.environment.os or "?",
        cuda=(torch.cuda if torch else None) or "?",
    )
    yield Finding(
        "bitsandbytes_binary",
        "will_fail",
        text,
        "bitsandbytes-cuda",
        "both" if said and lacks_windows else "message" if said else "facts",
        34,
        ("bitsandbytes",),
        fixes,
        (*facts.package_fact("bitsandbytes", version), facts.rule_fact("bitsandbytes-cuda")),
    )


def _raised(version: str | None, to: str) -> Action:
    line = f'pip install "bitsandbytes>={to}"'
    return Action("upgrade", package="bitsandbytes", from_=version, to=f">={to}", command=line)


def _windows_fixes(version: str | None) -> tuple[Fix, ...]:
    """The first release with a wheel for Windows, or Linux."""
    known = sorted(facts.releases("bitsandbytes").items())
    first = next((str(item) for item, row in known if "win_amd64" in row["platforms"]), "0.43.0")
    return (_raised(version, first),), (Action("os_or_glibc", from_="native Windows", to="Linux"),)


def _other_binary(told: Told, version: str | None) -> tuple[Fix, ...]:
    """The newest release for the torch, or another library of the same release."""
    fixes: list[Fix] = [(_raised(version, str(_newest_for(told))),)]
    torch = torch_of(told)
    if torch is not None and torch.cuda:
        code = torch.cuda.replace(".", "")
        line = f"export BNB_CUDA_VERSION={code}"
        fixes.append((Action("env_var", name="BNB_CUDA_VERSION", to=code, command=line),))
    return tuple(fixes)


def _newest_for(told: Told) -> Version:
    torch = torch_of(told)
    for known, row in facts.releases("bitsandbytes").items():
        if torch is None or torch.version is None or not row["torch"] or admits(row["torch"], torch.version):
            return known
    return next(iter(facts.releases("bitsandbytes")))


RULES: tuple[Rule, ...] = (
    onnxruntime_cuda,
    onnxruntime_flavours,
    tensorrt_mismatch,
    bitsandbytes,
)
