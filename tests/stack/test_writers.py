"""A written file is read back by its format's own reader and says the same set, with a reason at each pin."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from raceline.measure.environment import Environment, Gpu
from raceline.present.documents import load_yaml
from raceline.present.errors import InputError
from raceline.stack.asked import requirement
from raceline.stack.readers import read_text
from raceline.stack.request import Solution, StackRequest
from raceline.stack.solver import solve
from raceline.stack.writers import WRITERS, write, write_files

MACHINES = {
    "pascal": Environment(os="linux", arch="x86_64", gpus=(Gpu("GTX 1080 Ti", "6.1"),), driver="550.54.14"),
    "ampere": Environment(os="linux", arch="x86_64", gpus=(Gpu("RTX 3090", "8.6"),), driver="535.183.01"),
    "cpu": Environment(os="linux", arch="x86_64"),
    "amd": Environment(os="linux", arch="x86_64", gpus=(Gpu("RX 7900 XTX", gfx="gfx1100"),)),
    "apple": Environment(os="macos", arch="arm64", os_version="14.5", gpus=(Gpu("M3"),)),
    "windows": Environment(os="windows", arch="x86_64", gpus=(Gpu("RTX 4090", "8.9"),), driver="572.83"),
}
WANTS = {
    "pascal": "torch,torchvision", "ampere": "torch,vllm,flash-attn", "cpu": "torch,tensorflow,jax", "amd": "torch",
    "apple": "torch,numpy", "windows": "torch,torchvision,bitsandbytes",
}  # fmt: skip


def solved(machine: str, want: str | None = None) -> Solution:
    wishes = tuple(requirement(item) for item in (want or WANTS[machine]).split(","))
    found = solve(StackRequest(wishes, MACHINES[machine], has_gpu=machine != "cpu"))
    assert found.conflict is None
    return found


def pins(solution: Solution) -> dict[str, str]:
    """What a file says of each pick: its version, or of one that nobody asked for the bounds of the others."""
    return {pick.package: str(SpecifierSet(pick.bounds)) or pick.version for pick in solution.picks}


@pytest.mark.parametrize("machine", MACHINES)
def test_requirements_say_the_set(machine: str) -> None:
    solution = solved(machine)
    text = write(solution, "requirements")["requirements.txt"]
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "--"))]
    found = {
        item.name: str(item.specifier).removeprefix("==").split("+")[0] for item in map(Requirement, lines)
    }
    assert found == pins(solution)
    assert {item.name: item.specifier.removeprefix("==") for item in read_text(text).requirements} | {
        item.name: item.version for item in read_text(text).environment.distributions
    } == pins(solution)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_project_for_uv_says_the_set_and_its_index(machine: str) -> None:
    solution = solved(machine)
    data = tomllib.loads(write(solution, "pyproject-uv")["pyproject.toml"])
    found = {
        item.name: str(item.specifier).removeprefix("==")
        for item in map(Requirement, data["project"]["dependencies"])
    }
    # the Triton of a ROCm build stands there without a version, for its index alone
    assert {name: version for name, version in found.items() if "triton-rocm" not in name} == pins(solution)
    assert data["project"]["requires-python"].startswith(f">={solution.python}")
    torch = next(pick for pick in solution.picks if pick.package == "torch")
    indexes = data["tool"]["uv"].get("index", [])
    assert [(item["url"], item["explicit"]) for item in indexes] == (
        [(torch.index_url, True)] if torch.index_url else []
    )


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "amd"])
def test_a_conda_environment_says_the_set(machine: str) -> None:
    solution = solved(machine)
    data = load_yaml(write(solution, "conda")["environment.yml"].encode())
    listed = [item for item in data["dependencies"] if isinstance(item, str)]
    names = {item.split("=")[0] for item in listed}
    assert data["channels"] == ["conda-forge"]
    assert f"python={solution.python}.*" in listed
    assert ("cuda-version" in names) == bool(solution.cuda)
    assert "pytorch" in names


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "amd"])
def test_a_pixi_workspace_says_the_set(machine: str) -> None:
    solution = solved(machine)
    data = tomllib.loads(write(solution, "pixi")["pixi.toml"])
    assert data["dependencies"]["python"] == f"{solution.python}.*"
    assert ("cuda" in data.get("system-requirements", {})) == bool(solution.cuda)
    listed = {**data["dependencies"], **data.get("pypi-dependencies", {})}
    for name, version in ((pick.package, pick.version) for pick in solution.picks):
        entry = listed["pytorch" if name == "torch" else name]
        assert (entry if isinstance(entry, str) else entry["version"]) == f"=={version}"


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "apple"])
def test_an_image_has_no_cuda_of_its_own_where_wheels_bring_it(machine: str) -> None:
    solution = solved(machine)
    files = write(solution, "dockerfile")
    told = read_text(files["Dockerfile"])
    assert told.base_image == f"python:{solution.python}-slim-bookworm"
    assert "USER app" in files["Dockerfile"]
    assert ("NVIDIA_DRIVER_CAPABILITIES" in files["Dockerfile"]) == bool(solution.cuda)
    assert set(files) == {"Dockerfile", "requirements.txt"}


def test_an_image_that_compiles_has_the_toolkit_and_no_forward_compatibility() -> None:
    solution = solved("pascal", "torch,deepspeed")
    text = write(solution, "dockerfile")["Dockerfile"]
    assert "FROM nvidia/cuda:12.6.3-devel-ubuntu22.04" in text
    assert "apt-get purge -y 'cuda-compat-*'" in text
    assert "rm -rf /usr/local/cuda*/compat" in text
    assert text.index("compat") < text.index("USER app")


def test_no_container_is_written_for_a_mac() -> None:
    with pytest.raises(InputError, match="no_container_for_macos"):
        write(solved("apple"), "dockerfile")


def test_a_development_container_asks_for_a_gpu_where_there_is_one() -> None:
    files = write(solved("pascal"), "devcontainer")
    data = json.loads(files[".devcontainer/devcontainer.json"])
    assert data["hostRequirements"] == {"gpu": "optional"}
    assert data["runArgs"] == ["--gpus", "all"]
    assert ".devcontainer/Dockerfile" in files
    assert "runArgs" not in json.loads(
        write(solved("cpu"), "devcontainer")[".devcontainer/devcontainer.json"]
    )


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind not in ("pylock", "devcontainer")])
def test_every_pin_says_why(kind: str) -> None:
    solution = solved("pascal")
    text = "\n".join(write(solution, kind).values())
    for pick in solution.picks:
        name = "pytorch" if kind in ("conda", "pixi") and pick.package == "torch" else pick.package
        lines = text.splitlines()
        place = next(
            index
            for index, line in enumerate(lines)
            if re.search(rf"\b{name}\b.*{re.escape(pick.version)}", line) and "#" not in line
        )
        assert lines[place - 1].lstrip().startswith("# "), lines[place - 1]
        assert "https://" in lines[place - 1]


def test_reasons_are_written_in_chinese_too() -> None:
    assert "为 Python" in write(solved("cpu"), "requirements", "zh")["requirements.txt"]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="unknown_writer"):
        write(solved("cpu"), "napkin")


def test_a_lock_without_uv_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="pylock_needs_uv"):
        write(solved("cpu"), "pylock")


def test_files_are_written_all_or_none(tmp_path: Path) -> None:
    files = {"a.txt": "one", "b/c.txt": "two"}
    assert [path.read_text() for path in write_files(tmp_path, files)] == ["one", "two"]
    with pytest.raises(InputError, match="file_exists"):
        write_files(tmp_path, {"new.txt": "three", "a.txt": "four"})
    assert not (tmp_path / "new.txt").exists()
    assert (tmp_path / "a.txt").read_text() == "one"
    write_files(tmp_path, {"a.txt": "four"}, force=True)
    assert (tmp_path / "a.txt").read_text() == "four"


def test_nothing_is_left_where_a_file_cant_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot_write"):
        write_files(tmp_path, {"a.txt": "one", "file/b.txt": "two"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.network
def test_a_lock_is_one_that_uv_reads(tmp_path: Path) -> None:
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wishes = tuple(requirement(item) for item in ("numpy", "jax"))
    solution = solve(StackRequest(wishes, MACHINES["cpu"], pythons=(python,), has_gpu=False))
    (tmp_path / "pylock.toml").write_text(write(solution, "pylock")["pylock.toml"])
    data = tomllib.loads((tmp_path / "pylock.toml").read_text())
    assert data["lock-version"] == "1.0"
    assert pins(solution).items() <= {item["name"]: item["version"] for item in data["packages"]}.items()
    command = ["uv", "pip", "install", "--dry-run", "--target", "there", "-r", "pylock.toml"]
    assert (
        subprocess.run(command, cwd=tmp_path, timeout=300, check=False, capture_output=True).returncode == 0
    )
