"""Packages that must fit each other: causes, the direction of their fixes, and that a fix leaves nothing of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceline.measure.environment import Distribution, Environment
from raceline.stack import facts
from raceline.stack.apply import apply
from raceline.stack.check import check
from raceline.stack.readers import read_text
from raceline.stack.result import Fix
from raceline.stack.rules.extensions import Built, built_for
from raceline.stack.told import Told

MISSING = "cannot open shared object file: No such file or directory"

# the text, the cause, and a step of one of the first two proposals: what is done, to what, to which version or build
CASES = (
    (
        "torch==2.2.0\ntorchaudio==2.1.2\nundefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE\n",
        "torch_pair_mismatch",
        ("upgrade", "torchaudio", "==2.2.0"),
    ),
    (
        "jax==0.6.0\ntorch==2.6.0\nOutdated cuDNN installation found.\nVersion JAX was built against: 90800\n"
        "Minimum supported: 90800\nInstalled version: 90101\n",
        "cudnn_conflict",
        ("upgrade", "cudnn", ">=9.8.0,<10"),
    ),
    (
        "jax==0.4.23\nFound cuDNN version 8700, but JAX was built against version 8800, which is newer.\n",
        "cudnn_conflict",
        ("upgrade", "cudnn", ">=8.8.0,<9"),
    ),
    (
        f"cuda: 13.0\nonnxruntime-gpu==1.23.2\nlibcublasLt.so.12: {MISSING}\n",
        "onnxruntime_cuda_major",
        ("upgrade", "onnxruntime-gpu", ">=1.27"),
    ),
    (
        f"cuda: 11.8\nonnxruntime-gpu==1.19.2\nlibcublasLt.so.12: {MISSING}\n",
        "onnxruntime_cuda_major",
        ("toolkit", None, ">=12,<13"),
    ),
    (
        f"cuda: 12.4\ncudnn: 8.9.7\nonnxruntime-gpu==1.23.0\nlibcudnn.so.9: {MISSING}\n",
        "onnxruntime_cuda_major",
        ("upgrade", "cudnn", ">=9,<10"),
    ),
    (
        f"torch==2.4.0\nonnxruntime-gpu==1.16.3\nlibcudart.so.11.0: {MISSING}\n",
        "onnxruntime_cuda_major",
        ("upgrade", "onnxruntime-gpu", ">=1.19,<1.27"),
    ),
    (
        f"onnxruntime-gpu==1.20.0\ntensorrt==8.6.1\nlibnvinfer.so.10: {MISSING}\n",
        "tensorrt_mismatch",
        ("upgrade", "tensorrt", "==10.4.*"),
    ),
    (
        f"onnxruntime-gpu==1.16.0\ntensorrt==10.0.1\nlibnvinfer.so.8: {MISSING}\n",
        "tensorrt_mismatch",
        ("downgrade", "tensorrt", "==8.6.*"),
    ),
    (
        f"torch==2.0.0\ntorch-sparse==0.6.16+pt113cu117\nlibtorch_cuda_cu.so: {MISSING}\n",
        "extension_abi",
        ("install_build", "torch-sparse", "==0.6.16"),
    ),
    (
        f"torch==2.4.0+cu121\nflash-attn==2.5.8+cu118torch2.2cxx11abiFALSE\nlibcudart.so.11.0: {MISSING}\n",
        "extension_abi",
        ("install_build", "flash-attn", "==2.5.8"),
    ),
    (
        "torch==2.8.0\nflash-attn==2.7.4.post1\nImportError: flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: "
        "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs\n",
        "extension_abi",
        ("install_build", "flash-attn", "==2.8.3.post1"),
    ),
    (
        "torch==2.5.0\nvllm==0.6.0\n/x/vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSs\n",
        "extension_abi",
        ("downgrade", "torch", "==2.4.0"),
    ),
    (
        "torch==2.7.0+cu128\nflash-attn==2.6.3+cu118torch2.4cxx11abiTRUE\n",
        "extension_abi",
        ("install_build", "flash-attn", None),
    ),
    (
        f"os: ubuntu 20.04\ncuda: 12.0\ntensorflow==2.11.0\nlibcudart.so.11.0: {MISSING}\n",
        "tensorflow_cuda_libs",
        ("toolkit", None, "==11.2"),
    ),
    (
        "torch==1.13.1\nnumpy==1.21.6\nRuntimeError: module compiled against API version 0xf but this version of "
        "numpy is 0xe\n",
        "numpy_abi",
        ("upgrade", "numpy", ">=1.22"),
    ),
    ("numpy==1.26.4\nModuleNotFoundError: No module named 'numpy._core'\n", "numpy_abi", ("upgrade", "numpy", ">=2")),
    (
        "numpy==2.0.0\nAttributeError: `np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.\n",
        "numpy_abi",
        ("downgrade", "numpy", "<2"),
    ),
    (
        "protobuf==4.25.3\nonnx==1.17.0\nImportError: cannot import name 'runtime_version' from 'google.protobuf'\n",
        "protobuf_major",
        ("upgrade", "protobuf", ">=5.27.0"),
    ),
    (
        "protobuf==5.29.3\nDetected incompatible Protobuf Gencode/Runtime versions when loading x.proto: gencode "
        "6.31.1 runtime 5.29.3.\n",
        "protobuf_major",
        ("upgrade", "protobuf", ">=6.31.1,<7"),
    ),
    (
        "protobuf==3.19.6\nImportError: cannot import name 'builder' from 'google.protobuf.internal'\n",
        "protobuf_major",
        ("upgrade", "protobuf", ">=3.20.0"),
    ),
    (
        "protobuf==6.30.0\nAttributeError: 'MessageFactory' object has no attribute 'GetPrototype'\n",
        "protobuf_major",
        ("downgrade", "protobuf", "<6.30.0"),
    ),
    (
        "os: linux\ntorch==2.9.0+cu130\nbitsandbytes==0.46.0\n",
        "bitsandbytes_binary",
        ("upgrade", "bitsandbytes", ">=0.48.0"),
    ),
    (
        "os: linux\ntorch==2.7.0+cu128\nbitsandbytes==0.45.0\nConfigured CUDA binary not found at "
        "/x/libbitsandbytes_cuda128.so\n",
        "bitsandbytes_binary",
        ("env_var", None, "126"),
    ),
    (
        "jax==0.4.16\njaxlib==0.4.10\njaxlib is version 0.4.10, but this version of jax requires version >=0.4.14.\n",
        "jax_lockstep",
        ("upgrade", "jaxlib", ">=0.4.14,<=0.4.16"),
    ),
    (
        "vllm 0.6.3 requires torch==2.4.0, but you have torch 2.5.1 which is incompatible.\n",
        "vllm_pin",
        ("downgrade", "torch", "==2.4.0"),
    ),
    (
        "somepackage 1.2 requires numpy<2.0,>=1.20, but you have numpy 2.1.0 which is incompatible.\n",
        "requirement_conflict",
        ("downgrade", "numpy", "<2.0,>=1.20"),
    ),
)  # fmt: skip

# set-ups of which nothing may be called broken
HEALTHY = (
    "torch==2.6.0+cu124\nflash-attn==2.7.4.post1+cu12torch2.6cxx11abiFALSE\nPython: 3.11\nOS: Ubuntu 22.04\n",
    "torch==2.1.0+cu121\ntorch-scatter==2.1.2+pt21cu121\nnumpy==1.26.4\nPython: 3.10\n",
    "os: linux\ntorch==2.8.0+cu129\nbitsandbytes==0.50.0\nPython: 3.12\n",
    "os: linux\ncuda: 12.4\nonnxruntime-gpu==1.20.0\ncudnn: 9.1\nPython: 3.11\n",
    "onnxruntime-gpu==1.22.0\ntensorrt==10.4.0\nPython: 3.11\n",
    "nvidia-cudnn-cu11==8.9.6.50\nnvidia-cudnn-cu12==9.1.0.70\n",
)


def _does(fix: Fix, step: tuple[str, str | None, str | None]) -> bool:
    kind, package, to = step
    return any(
        item.action == kind and (package is None or item.package == package) and (to is None or item.to == to)
        for item in fix
    )


@pytest.mark.parametrize(
    ("text", "cause", "step"), CASES, ids=[f"{case[1]}-{n}" for n, case in enumerate(CASES)]
)
def test_the_first_cause_and_one_of_two_proposals_are_as_expected(
    text: str, cause: str, step: tuple[str, str | None, str | None]
) -> None:
    report = check(read_text(text))
    assert report.findings[0].cause == cause
    assert any(_does(fix, step) for fix in report.proposals[:2]), report.proposals[:3]


@pytest.mark.parametrize("text", HEALTHY)
def test_packages_that_fit_are_not_called_broken(text: str) -> None:
    found = [item for item in check(read_text(text)).findings if item.verdict != "fine"]
    assert [item for item in found if item.cause != "python_end_of_life"] == []


def test_wheels_of_two_cuda_majors_that_requirements_will_bring_are_predicted() -> None:
    report = check(read_text("torch==2.13.0\ntensorflow[and-cuda]==2.21.0\njax[cuda12]\n"))
    found = next(item for item in report.findings if item.cause == "cudnn_conflict")
    assert found.verdict == "will_fail"
    assert {item.row for item in found.facts} >= {"cu12-cu13-wheels-share-files"}


@pytest.mark.parametrize(
    ("label", "built"),
    [
        ("cu12torch2.6cxx11abiFALSE", Built("2.6", 12, False)),
        ("cu122torch2.3.1cxx11abiTRUE", Built("2.3", 12, True)),
        ("pt113cu117", Built("1.13", 11, None)),
        ("pt21cpu", Built("2.1", None, None)),
        ("cu121", Built(None, 12, None)),
        (None, Built()),
    ],
)
def test_a_label_tells_what_a_wheel_was_built_for(label: str | None, built: Built) -> None:
    assert built_for(label) == built


def test_an_extension_that_fits_its_torch_is_told_so() -> None:
    report = check(read_text("torch==2.6.0+cu124\nflash-attn==2.7.4.post1+cu12torch2.6cxx11abiFALSE\n"))
    assert ("extension_abi", "fine") in {(item.cause, item.verdict) for item in report.findings}


@pytest.mark.parametrize(("cuda", "is_broken"), [("cu126", False), ("cu128", True)])
def test_bitsandbytes_needs_the_library_of_the_cuda_minor_before_0_50(cuda: str, is_broken: bool) -> None:
    told = read_text(f"os: linux\ntorch==2.7.0+{cuda}\nbitsandbytes==0.45.0\nPython: 3.11\n")
    broken = [
        item
        for item in check(told).findings
        if item.cause == "bitsandbytes_binary" and item.verdict != "fine"
    ]
    assert bool(broken) is is_broken


def test_every_release_with_libraries_is_a_known_release() -> None:
    rows = facts.table("bitsandbytes_cuda")
    assert all(facts.is_known("bitsandbytes", row["version"]) for row in rows)
    assert {row["takes_nearest"] for row in rows} == {"yes", "no"}
    for row in rows:
        release = facts.release("bitsandbytes", row["version"])
        assert release is not None
        assert {row["platform"], "any"} & set(release["platforms"].split())


# kinds whose first fix must leave nothing of the finding, on whatever set it is found
FITTING = frozenset({
    "torch_pair_mismatch", "xformers_pin", "vllm_pin", "torch_xla_lockstep", "jax_lockstep", "numpy_abi",
    "tensorflow_numpy", "protobuf_major", "bitsandbytes_binary", "extension_abi", "cudnn_conflict", "nccl_conflict",
    "onnxruntime_flavours", "conda_mkl", "coremltools_python", "tensorrt_mismatch",
})  # fmt: skip
PACKAGES = (
    "torch", "torchvision", "torchaudio", "numpy", "tensorflow", "protobuf", "jax", "jaxlib", "onnxruntime-gpu",
    "onnxruntime", "bitsandbytes", "xformers", "vllm", "torch-xla", "coremltools", "pandas", "scipy",
)  # fmt: skip
OTHERS = {
    "tensorrt": ("8.4.1", "8.6.1", "10.0.1", "10.4.0"), "mkl": ("2023.1", "2024.1"),
    "nvidia-cudnn-cu12": ("8.9.2.26", "9.10.2.21"), "nvidia-cudnn-cu13": ("9.13.0.50",),
    "nvidia-nccl-cu12": ("2.20.5", "2.27.5"), "nvidia-nccl-cu13": ("2.28.9",),
    "jax-cuda12-plugin": ("0.4.30", "0.6.2", "0.9.0"), "jax-cuda12-pjrt": ("0.4.30", "0.6.2", "0.9.0"),
    "flash-attn": ("2.6.3", "2.7.4.post1", "2.8.3.post1"), "torch-scatter": ("2.1.2",),
}  # fmt: skip
LABELS = {
    "torch": (None, None, "cu118", "cu121", "cu124", "cu128", "cu130", "cpu"),
    "torchvision": (None, "cu118", "cu124", "cpu"),
    "flash-attn": (None, "cu12torch2.6cxx11abiFALSE", "cu12torch2.8cxx11abiTRUE"),
    "torch-scatter": (None, "pt21cu121", "pt26cu124"),
}


def _known(name: str) -> list[str]:
    return [str(item) for item in facts.releases(name) if not item.is_prerelease] or list(OTHERS[name])


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    names = draw(st.lists(st.sampled_from((*PACKAGES, *OTHERS)), min_size=1, max_size=5, unique=True))
    installed = tuple(
        Distribution(
            name,
            draw(st.sampled_from(_known(name) if name not in OTHERS else OTHERS[name])),
            draw(st.sampled_from(LABELS.get(name, (None,)))),
            draw(st.sampled_from((None, "pip", "conda"))),
        )
        for name in names
    )
    return Environment(
        os=draw(st.sampled_from(("linux", "windows", None))),
        python=draw(st.sampled_from((None, "3.10", "3.12"))),
        toolkit=draw(st.sampled_from((None, "11.8", "12.4", "13.0"))),
        distributions=installed,
    )


@settings(max_examples=150, deadline=None)
@given(environments())
def test_a_first_fix_leaves_nothing_of_its_finding(environment: Environment) -> None:
    told = Told(environment=environment)
    for item in check(told).findings:
        if item.verdict != "will_fail" or item.cause not in FITTING:
            continue
        assert item.fixes, item
        if any(step.action == "other" for step in item.fixes[0]):
            continue  # another way of working
        left = [
            other
            for other in check(apply(told, item.fixes[0])).findings
            if (other.cause, other.packages, other.verdict) == (item.cause, item.packages, "will_fail")
        ]
        assert not left, (item, left)
