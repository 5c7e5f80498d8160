"""Written files install as they stand: builds are named, what imports torch comes after it, drivers are not refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from raceline.measure.environment import Environment, Gpu
from raceline.present.documents import load_yaml
from raceline.present.errors import InputError
from raceline.stack.request import Pick, Solution, StackRequest
from raceline.stack.writers import write

NVIDIA = Environment(os="linux", arch="x86_64", gpus=(Gpu("RTX 3090", "8.6"),))
AMD = Environment(os="linux", arch="x86_64", gpus=(Gpu("RX 7900 XTX", gfx="gfx1100"),))
TORCH = Pick("torch", "2.10.0", "cu128")
FLASH = Pick("flash-attn", "2.8.3.post1")
JAX = Pick("jax", "0.8.3", "cuda12", ("cuda12",))


def solution(*picks: Pick, machine: Environment = NVIDIA, cuda: str | None = "12.8") -> Solution:
    floor = "525.60.13" if cuda else None
    return Solution(StackRequest((), machine), python="3.12", picks=picks, cuda=cuda, driver_floor=floor)


def rocm(version: str, label: str) -> Solution:
    pick = Pick("torch", version, label, index_url=f"https://download.pytorch.org/whl/{label}")
    return solution(pick, machine=AMD, cuda=None)


def conda(found: Solution) -> list[str]:
    data = load_yaml(write(found, "conda")["environment.yml"].encode())
    return [item for item in data["dependencies"] if isinstance(item, str)]


def test_conda_gets_a_gpu_build_of_every_framework() -> None:
    listed = conda(solution(TORCH, Pick("tensorflow", "2.19.1", "and-cuda", ("and-cuda",)), JAX))
    assert {"pytorch=2.10.0=cuda*", "tensorflow=2.19.1=cuda*", "jaxlib=*=cuda*"} <= set(listed)


def test_conda_gets_the_cpu_build_of_tensorflow_under_its_own_name() -> None:
    assert "tensorflow=2.19.1=cpu*" in conda(solution(Pick("tensorflow-cpu", "2.19.1"), cuda=None))


def test_conda_is_held_to_a_cuda_major_since_its_minors_are_not_those_of_wheels() -> None:
    assert "cuda-version=12.*" in conda(solution(TORCH))
    data = tomllib.loads(write(solution(TORCH), "pixi")["pixi.toml"])
    assert data["dependencies"]["cuda-version"] == "12.*"


def test_conda_says_what_a_machine_without_a_gpu_must_set() -> None:
    assert "CONDA_OVERRIDE_CUDA=12.0" in write(solution(TORCH), "conda")["environment.yml"]


@pytest.mark.parametrize("kind", ["conda", "pixi"])
def test_amd_is_refused_where_a_cpu_build_would_come_silently(kind: str) -> None:
    with pytest.raises(InputError, match="no_rocm_in_conda"):
        write(rocm("2.10.0", "rocm7.1"), kind)


@pytest.mark.parametrize(
    ("version", "label", "triton"),
    [("2.10.0", "rocm7.1", "triton-rocm"), ("2.9.1", "rocm6.4", "pytorch-triton-rocm")],
)
def test_a_project_for_amd_names_the_triton_that_only_torchs_index_has(
    version: str, label: str, triton: str
) -> None:
    data = tomllib.loads(write(rocm(version, label), "pyproject-uv")["pyproject.toml"])
    assert triton in data["project"]["dependencies"]
    assert data["tool"]["uv"]["sources"] == {
        name: {"index": f"pytorch-{label}"} for name in ("torch", triton)
    }


def test_a_project_for_uv_is_for_the_machines_processor() -> None:
    data = tomllib.loads(write(solution(TORCH), "pyproject-uv")["pyproject.toml"])
    assert data["tool"]["uv"]["environments"] == ["sys_platform == 'linux' and platform_machine == 'x86_64'"]


def test_a_project_for_uv_builds_flash_attn_with_its_own_torch() -> None:
    data = tomllib.loads(write(solution(TORCH, FLASH), "pyproject-uv")["pyproject.toml"])["tool"]["uv"]
    assert {"requirement": "torch", "match-runtime": True} in data["extra-build-dependencies"]["flash-attn"]
    assert data["extra-build-variables"] == {"flash-attn": {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"}}


def test_an_image_installs_flash_attn_after_torch_and_checks_its_kernels() -> None:
    text = write(solution(TORCH, FLASH), "dockerfile")["Dockerfile"]
    steps = [
        text.index(part)
        for part in ("ninja torch==2.10.0", "--no-build-isolation", "import torch, flash_attn")
    ]
    assert steps == sorted(steps)
    assert "FROM python:3.12-slim" in text


def test_requirements_with_flash_attn_say_both_commands() -> None:
    text = write(solution(TORCH, FLASH), "requirements")["requirements.txt"]
    assert "before: setuptools wheel packaging psutil ninja torch==2.10.0\n" in text
    assert "pip install --no-build-isolation -r requirements.txt\n" in text
    assert "isolation" not in write(solution(TORCH), "requirements")["requirements.txt"]


def test_requirements_with_an_index_say_how_uv_takes_them() -> None:
    pick = msgspec.structs.replace(TORCH, index_url="https://download.pytorch.org/whl/cu128")
    text = write(solution(pick), "requirements")["requirements.txt"]
    assert "--index-strategy unsafe-best-match" in text
    assert "torch==2.10.0+cu128" in text


def test_an_image_asks_for_the_floor_of_the_major_and_not_for_its_minor() -> None:
    assert 'NVIDIA_REQUIRE_CUDA="driver>=525"' in write(solution(TORCH), "dockerfile")["Dockerfile"]
    built = write(solution(TORCH, Pick("deepspeed", "")), "dockerfile")["Dockerfile"]
    assert "FROM nvidia/cuda:12.8" in built
    assert 'NVIDIA_REQUIRE_CUDA="driver>=525"' in built
    assert "NVIDIA_DISABLE_REQUIRE" in built


@pytest.mark.network
@pytest.mark.parametrize("picks", [(TORCH, FLASH), (TORCH, JAX)], ids=["flash-attn", "jax"])
def test_uv_locks_a_written_project(picks: tuple[Pick, ...], tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = msgspec.structs.replace(solution(*picks), python=python)
    (tmp_path / "pyproject.toml").write_text(write(found, "pyproject-uv")["pyproject.toml"])
    for command in ([uv, "lock", "--no-python-downloads"], [uv, "lock", "--check", "--no-python-downloads"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
    locked = tomllib.loads((tmp_path / "uv.lock").read_text())["package"]
    assert {item.package: item.version for item in picks}.items() <= {
        item["name"]: item.get("version") for item in locked
    }.items()
