"""Toolkits and libraries outside of Python, from trees of files that stand in for machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceline.measure.libraries import libraries, shown
from raceline.measure.root import Root


def read(
    folder: Path, files: dict[str, str], *, is_container: bool = False, **variables: str
) -> dict[str, Any]:
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return libraries(Root(folder, variables), (), is_container=is_container)


TOOLKIT = {
    "/usr/local/cuda/bin/nvcc": "",
    "/usr/local/cuda/version.json": '{"cuda" : {"name" : "CUDA SDK", "version" : "12.8.1"}}',
}


def test_the_default_toolkit_counts_where_no_compiler_is_on_the_path(tmp_path: Path) -> None:
    assert read(tmp_path, TOOLKIT, PATH="/usr/bin")["toolkit"] == "12.8"


def test_a_first_compiler_of_unknown_version_is_not_taken_for_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, {**TOOLKIT, "/usr/bin/nvcc": ""}, PATH="/usr/bin")["toolkit"] is None


def test_a_toolkit_without_a_compiler_is_none(tmp_path: Path) -> None:
    files = {"/usr/local/cuda/version.json": TOOLKIT["/usr/local/cuda/version.json"]}
    assert read(tmp_path, files)["toolkit"] is None


@pytest.mark.parametrize("entry", ["/usr/local/cuda-12.8/compat", "/usr/local/cuda/compat/lib"])
def test_the_compatibility_package_on_the_loader_path_is_seen(tmp_path: Path, entry: str) -> None:
    found = read(tmp_path, {f"{entry}/libcuda.so.1": ""}, LD_LIBRARY_PATH=f"/opt/x:{entry}")
    assert found["has_cuda_compat"] is True


def test_the_compatibility_package_in_the_loaders_files_is_seen(tmp_path: Path) -> None:
    folder = "/usr/local/cuda-13.0/compat"
    files = {"/etc/ld.so.conf.d/00-compat.conf": f"{folder}\n", f"{folder}/libcuda.so.1": ""}
    assert read(tmp_path, files)["has_cuda_compat"] is True


@pytest.mark.parametrize("entry", ["/opt/compat-libs", "/usr/local/cuda/compat/lib"])
def test_another_or_an_empty_folder_is_no_compatibility_package(tmp_path: Path, entry: str) -> None:
    assert read(tmp_path, {"/opt/compat-libs/liba.so": ""}, LD_LIBRARY_PATH=entry)["has_cuda_compat"] is None


@pytest.mark.parametrize(("is_container", "cuda"), [(True, "12.4"), (False, None)])
def test_an_image_tells_its_cuda(tmp_path: Path, is_container: bool, cuda: str | None) -> None:
    said = {"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}
    assert read(tmp_path, {}, is_container=is_container, **said)["image_cuda"] == cuda


def test_versions_of_system_libraries_are_in_their_names(tmp_path: Path) -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    names = ("libcudnn.so.9", "libcudnn.so.9.1.0", "libnccl.so.2.21.5", "libnvinfer.so.10.3.0")
    found = read(tmp_path, {f"{folder}/{name}": "" for name in names})
    assert (found["cudnn"], found["nccl"], found["tensorrt"]) == ("9.1.0", "2.21.5", "10.3.0")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("/home/ann/lib", "~/lib"),
        ("/home/ann", "~"),
        ("/home/anna/lib", "~/lib"),
        ("/scratch/ann/lib", "/scratch/~/lib"),
        ("/usr/local/cuda/lib64", "/usr/local/cuda/lib64"),
    ],
)
def test_no_folder_names_a_user(entry: str, text: str) -> None:
    assert shown(entry, Root("/", {"HOME": "/home/ann", "USER": "ann"})) == text
