"""GPU × driver × wanted set: what is chosen, or which conflict is told, and the fact that it stands on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raceline.measure.environment import Environment, Gpu
from raceline.stack.asked import requirement
from raceline.stack.check import check
from raceline.stack.request import Solution, StackRequest
from raceline.stack.solver import solve
from raceline.stack.solver.fill import platform_of, requirement_lines, solution_told
from raceline.stack.versions import admits


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row: `gpu` a capability, a gfx target, ``cpu`` or ``apple``; `expected` package -> (bounds, label or None
    for any); `conflict`: the ids of parts that the told conflict must hold; `fact` is what the outcome stands on."""

    name: str
    gpu: str
    want: str
    driver: str | None = None
    python: str | None = None
    machine: dict[str, Any] = {}
    expected: dict[str, tuple[str, str | None]] = {}
    conflict: tuple[str, ...] = ()
    prefer: str = "stable"
    fact: str


CASES = (
    Case(name="K80 on 470", gpu="3.7", driver="470.82.01", want="torch", expected={"torch": ("<=2.5.1", "cu118")}, fact="kepler-last-stack: sm_37 in no CUDA 12 build; 470 is of CUDA 11"),
    Case(name="K80 wants torch 2.6", gpu="3.7", driver="470.82.01", want="torch>=2.6", conflict=("wish", "gpu"), fact="torch_arch: 3.7 last in 2.5.1 cu118"),
    Case(name="GTX 750 on 535", gpu="5.0", driver="535.183.01", want="torch", expected={"torch": ("<2.15", "cu126")}, fact="torch_arch: cu126 lists 5.0"),
    Case(name="GTX 980 newest", gpu="5.2", driver="580.95.05", want="torch", prefer="newest", expected={"torch": ("==2.14.1", "cu126")}, fact="volta-and-older-last-stack"),
    Case(name="P100 on 450", gpu="6.0", driver="450.80.02", want="torch", expected={"torch": ("<=2.7.1", "cu118")}, fact="driver floor of 11.x is 450.80.02"),
    Case(name="P100 wants vllm", gpu="6.0", driver="535.183.01", want="vllm", conflict=("wish", "gpu"), fact="vllm-gpu: no Pascal kernels"),
    Case(name="1080 Ti on 550", gpu="6.1", driver="550.54.14", want="torch,torchvision", expected={"torch": ("<2.15", "cu126")}, fact="torch_arch cu126 has 6.0; 2.8 cu128 has not"),
    Case(name="1080 Ti wants 2.8", gpu="6.1", driver="550.54.14", want="torch==2.8.0", expected={"torch": ("==2.8.0", "cu126")}, fact="torch_arch 2.8.0 12.6"),
    Case(name="V100 on 535", gpu="7.0", driver="535.183.01", want="torch", expected={"torch": (">=2.8", "cu126")}, fact="driver 535 starts CUDA 12; cu126 lists 7.0"),
    Case(name="V100 wants torch 2.11", gpu="7.0", driver="535.183.01", want="torch==2.11.0", expected={"torch": ("==2.11.0", "cu126")}, fact="torch_arch 2.11.0 12.6"),
    Case(name="V100 wants 2.15", gpu="7.0", want="torch>=2.15", conflict=("wish", "gpu"), fact="torch 2.15 default is CUDA 13.2, whose toolkit ended 7.0"),
    Case(name="V100 torch and jax", gpu="7.0", driver="535.183.01", want="torch,jax", expected={"jax": (">=0.4", "cuda12")}, fact="jax cuda13 needs 7.5, cuda12 needs 5.2"),
    Case(name="V100 wants jax cuda13", gpu="7.0", driver="580.65.06", want="jax[cuda13]", conflict=("wish", "gpu"), fact="jax min_cc_cuda13 7.5"),
    Case(name="T4 on 450", gpu="7.5", driver="450.119.03", want="torch", expected={"torch": ("<=2.7.1", "cu118")}, fact="minor-version compatibility within CUDA 11"),
    Case(name="T4 wants flash-attn", gpu="7.5", want="torch,flash-attn", conflict=("wish", "gpu"), fact="flash-attn-gpu: 8.0 and newer"),
    Case(name="T4 free driver", gpu="7.5", want="torch,vllm", expected={"vllm": (">=0.10", None)}, fact="vLLM has kernels from 7.0 on"),
    Case(name="RTX 2080 on 525", gpu="7.5", driver="525.60.13", want="torch", expected={"torch": (">=2.8", "cu126")}, fact="525.60.13 is the floor of CUDA 12"),
    Case(name="A100 on 510", gpu="8.0", driver="510.108.03", want="torch", expected={"torch": ("<=2.7.1", "cu118")}, fact="driver 510 prints 11.6 and runs cu118"),
    Case(name="A100 on 510 wants 2.0", gpu="8.0", driver="510.47.03", want="torch==2.0.1", expected={"torch": ("==2.0.1", "cu117")}, fact="the headline: 11.7 wheels run on 11.6 drivers"),
    Case(name="A100 on 510 wants 2.8", gpu="8.0", driver="510.47.03", want="torch==2.8.0", conflict=("wish", "driver"), fact="2.8 has CUDA 12 builds only"),
    Case(name="A100 three frameworks", gpu="8.0", driver="535.183.01", want="torch,tensorflow,jax", expected={"torch": (">=2.6", "cu126"), "jax": (">=0.4", "cuda12"), "tensorflow": (">=2.18", "and-cuda")}, fact="one CUDA major; torch pins cuDNN, the others range"),
    Case(name="A100 torch 2.13 with tf", gpu="8.0", want="torch==2.13.0,tensorflow", expected={"torch": ("==2.13.0", "cu126")}, fact="cu12-cu13-wheels-share-files: the default of 2.13 is CUDA 13"),
    Case(name="A100 torch cu130 with tf", gpu="8.0", want="torch==2.13.0+cu130,tensorflow", conflict=("wish", "wish"), fact="cu12-cu13-wheels-share-files"),
    Case(name="RTX 3090 on 470", gpu="8.6", driver="470.161.03", want="torch", expected={"torch": ("<=2.7.1", "cu118")}, fact="470 is of CUDA 11.4"),
    Case(name="RTX 3090 vllm and flash-attn", gpu="8.6", driver="535.183.01", want="torch,vllm,flash-attn", expected={"vllm": ("<0.20", None), "flash-attn": (">=2.8", None), "torch": ("==2.10.0", "cu128")}, fact="vllm 0.20 is CUDA 13; prebuilt flash-attn ends at torch 2.10"),
    Case(name="RTX 3090 xformers", gpu="8.6", driver="550.54.14", want="torch,xformers==0.0.30", expected={"torch": ("==2.7.0", "cu126")}, fact="xformers 0.0.30 pins torch 2.7.0"),
    Case(name="RTX 4090 on 520", gpu="8.9", driver="520.61.05", want="torch", expected={"torch": ("<=2.7.1", "cu118")}, fact="520 is of CUDA 11.8"),
    Case(name="RTX 4090 on CentOS 7", gpu="8.9", driver="535.54.03", want="torch", machine={"glibc": "2.17"}, expected={"torch": ("<=2.6.0", None)}, fact="manylinux-glibc: 2.28 from torch 2.7 on"),
    Case(name="RTX 4090 CentOS 7 wants 2.7", gpu="8.9", driver="535.54.03", want="torch>=2.7", machine={"glibc": "2.17"}, conflict=("wish", "glibc"), fact="manylinux-glibc"),
    Case(name="L4 onnxruntime", gpu="8.9", driver="535.183.01", want="onnxruntime-gpu", expected={"onnxruntime-gpu": (">=1.19,<1.27", "cu12")}, fact="onnxruntime-gpu-cuda-major"),
    Case(name="L4 onnxruntime on 580", gpu="8.9", driver="580.95.05", want="onnxruntime-gpu", prefer="newest", expected={"onnxruntime-gpu": (">=1.27", "cu13")}, fact="PyPI wheels are CUDA 13 from 1.27 on"),
    Case(name="L4 onnxruntime and tensorrt", gpu="8.9", driver="550.54.14", want="onnxruntime-gpu,tensorrt", expected={"tensorrt": (">=8", "cu12")}, fact="one CUDA major"),
    Case(name="H100 on 535", gpu="9.0", driver="535.183.01", want="torch", expected={"torch": (">=2.8", None)}, fact="9.0 in every CUDA 12 build"),
    Case(name="H100 free", gpu="9.0", want="torch", prefer="newest", expected={"torch": (">=2.14", None)}, fact="the driver is free: 580 is stated"),
    Case(name="H100 sglang", gpu="9.0", want="sglang", expected={"sglang": (">=0.4", None)}, fact="sglang pins torch"),
    Case(name="H100 vllm 0.33", gpu="9.0", driver="570.86.10", want="vllm==0.33.0", conflict=("wish", "driver"), fact="vllm-pin: 0.20 and newer are CUDA 13, driver 580"),
    Case(name="B200 on 570", gpu="10.0", driver="570.124.06", want="torch", expected={"torch": (">=2.7", "cu128")}, fact="blackwell-first-stack"),
    Case(name="B200 on 550", gpu="10.0", driver="550.54.14", want="torch", conflict=("wish", "driver", "gpu"), fact="blackwell-first-stack: driver 570 or newer"),
    Case(name="RTX 5090 on 570", gpu="12.0", driver="570.124.06", want="torch,torchvision", expected={"torch": (">=2.7", "cu128")}, fact="first with 12.0: 2.7 cu128"),
    Case(name="RTX 5090 wants 2.6", gpu="12.0", want="torch==2.6.0", conflict=("wish", "gpu"), fact="blackwell-first-stack"),
    Case(name="RTX 5090 on 580", gpu="12.0", driver="580.95.05", want="torch", expected={"torch": (">=2.9", None)}, fact="cu130 lists 12.0"),
    Case(name="GB10 on aarch64", gpu="12.1", driver="580.95.05", want="torch", machine={"arch": "aarch64"}, expected={"torch": (">=2.12", "cu130")}, fact="torch_arch linux_aarch64 13.0 has 12.0+PTX"),
    Case(name="gfx1100", gpu="gfx1100", want="torch", expected={"torch": (">=2.0", None)}, fact="rocm wheel index"),
    Case(name="gfx1151", gpu="gfx1151", want="torch", expected={"torch": (">=2.11,<2.14", "rocm7.2")}, fact="rocm 7.2 is the first index with gfx1151"),
    Case(name="gfx1010", gpu="gfx1010", want="torch", conflict=("wish", "gpu"), fact="no index lists gfx1010"),
    Case(name="CPU four frameworks", gpu="cpu", want="torch,tensorflow,jax,onnxruntime", expected={"torch": (">=2.8", "cpu"), "tensorflow": (">=2.18", "cpu"), "jax": (">=0.4", "cpu")}, fact="no CUDA, one NumPy"),
    Case(name="CPU old torch and new jax", gpu="cpu", want="torch<2.3,jax>=0.7.2", conflict=("wish", "wish"), fact="numpy-floor-jax: torch before 2.3 needs NumPy 1"),
    Case(name="CPU Python 3.8", gpu="cpu", want="torch", python="3.8", expected={"torch": ("<=2.4.1", "cpu")}, fact="torch 2.4 is the last for Python 3.8"),
    Case(name="CPU torch-xla", gpu="cpu", want="torch-xla", expected={"torch-xla": ("<=2.9.0", None), "torch": ("<2.10", None)}, fact="torch-xla-lockstep"),
    Case(name="M1 on macOS 13", gpu="apple", want="torch", machine={"os": "macos", "arch": "arm64", "os_version": "13.5"}, expected={"torch": ("<2.10", "cpu")}, fact="mps-macos: 14 from 2.10 on"),
    Case(name="Intel Mac", gpu="cpu", want="torch", machine={"os": "macos", "arch": "x86_64"}, expected={"torch": ("<=2.2.2", None)}, fact="macos-intel"),
    Case(name="Windows RTX 3060", gpu="8.6", driver="572.83", want="torch", machine={"os": "windows"}, expected={"torch": (">=2.7", "cu126")}, fact="windows-pypi-torch-is-cpu: the CUDA build is in an index"),
    Case(name="Windows vllm", gpu="8.9", driver="572.83", want="vllm", machine={"os": "windows"}, conflict=("wish", "system"), fact="vLLM has Linux wheels only"),
    Case(name="coremltools on 3.13", gpu="apple", want="coremltools", python="3.13", machine={"os": "macos", "arch": "arm64"}, expected={"coremltools": (">=9.0", None)}, fact="coremltools-range"),
)  # fmt: skip


def _request(case: Case) -> StackRequest:
    gpus: tuple[Gpu, ...] = ()
    if case.gpu.startswith("gfx"):
        gpus = (Gpu(gfx=case.gpu),)
    elif case.gpu == "apple":
        gpus = (Gpu(name="M1"),)
    elif case.gpu != "cpu":
        gpus = (Gpu(name=f"a GPU of {case.gpu}", capability=case.gpu),)
    machine = Environment(**{"os": "linux", "arch": "x86_64", **case.machine}, gpus=gpus, driver=case.driver)
    return StackRequest(
        want=tuple(requirement(item) for item in case.want.split(",")),
        machine=machine,
        pythons=(case.python,) if case.python else (),
        prefer=case.prefer,  # type: ignore[arg-type]
        has_gpu=case.gpu != "cpu",
    )


_SOLVED: dict[str, Solution] = {}


def _solution(case: Case) -> Solution:
    if case.name not in _SOLVED:
        _SOLVED[case.name] = solve(_request(case))
    return _SOLVED[case.name]


def test_there_are_forty_combinations_and_each_names_its_fact() -> None:
    assert len(CASES) >= 40
    assert all(case.fact for case in CASES)
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_set_is_as_expected(case: Case) -> None:
    solution = _solution(case)
    if case.conflict:
        assert solution.conflict is not None, [
            (pick.package, pick.version, pick.label) for pick in solution.picks
        ]
        parts = [
            part.id.removeprefix("stack.part_").removeprefix("stack.")
            for part in solution.conflict.params["parts"]
        ]
        assert sorted(parts) == sorted(case.conflict)
        return
    assert solution.conflict is None, solution.conflict
    picks = {pick.package: pick for pick in solution.picks}
    for package, (bounds, label) in case.expected.items():
        assert admits(bounds, picks[package].version), (package, picks[package].version)
        assert label in (None, picks[package].label), (package, picks[package].version, picks[package].label)


@pytest.mark.parametrize("case", [case for case in CASES if not case.conflict], ids=lambda case: case.name)
def test_a_set_passes_the_check(case: Case) -> None:
    broken = [item for item in check(solution_told(_solution(case))).findings if item.verdict == "will_fail"]
    assert not broken


@pytest.mark.parametrize("case", [case for case in CASES if case.conflict], ids=lambda case: case.name)
def test_a_conflict_is_minimal_and_its_nearest_sets_work(case: Case) -> None:
    from raceline.stack.solver.explain import parts_of

    solution = _solution(case)
    assert solution.conflict is not None
    told = solution.conflict.params["parts"]
    for part in parts_of(_request(case)):
        if part.text in told and part.without.want:
            others = [item for item in parts_of(part.without) if item.text not in told and item.without.want]
            assert solve(part.without).conflict is None or others
    for near in solution.nearest:
        assert near.picks
        assert near.changes


@pytest.mark.network
@pytest.mark.parametrize("case", [case for case in CASES if not case.conflict], ids=lambda case: case.name)
def test_uv_accepts_the_set(case: Case, tmp_path: Path) -> None:
    uv = shutil.which("uv")
    solution = _solution(case)
    if uv is None:
        pytest.skip("uv is not installed")
    if any(pick.index_url for pick in solution.picks):
        pytest.skip("a build of another index")
    (tmp_path / "in.txt").write_text("\n".join(requirement_lines(solution)) + "\n")
    command = [uv, "pip", "compile", "in.txt", "--python-version", solution.python or "3.12", "--quiet"]
    platform = platform_of(solution)
    command += ["--python-platform", platform] if platform else []
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
