"""The folders of packages of a Python environment, and what stands in them, in the layouts that systems have."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceline.measure.environment import Distribution
from raceline.measure.machine import read_environment
from raceline.measure.sites import prefix_of, site_folders


def write(folder: Path, name: str, text: str = "") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def shown(prefix: Path) -> list[str]:
    return [f"{item.name} {item.shown}" for item in read_environment(prefix=prefix).distributions]


@pytest.mark.parametrize(
    "site",
    [
        "lib/python3.11/site-packages",
        "lib64/python3.9/site-packages",
        "local/lib/python3.12/dist-packages",
        "lib/python3/dist-packages",
        "Lib/site-packages",
    ],
)
def test_packages_are_found_in_every_layout(tmp_path: Path, site: str) -> None:
    write(tmp_path, f"{site}/torch-2.8.0+cu128.dist-info/METADATA")
    assert shown(tmp_path) == ["torch 2.8.0+cu128"]


def test_what_pip_installed_comes_before_the_systems_own(tmp_path: Path) -> None:
    write(tmp_path, "local/lib/python3.12/dist-packages/numpy-2.2.0.dist-info/METADATA")
    write(tmp_path, "lib/python3/dist-packages/numpy-1.26.4.dist-info/METADATA")
    assert shown(tmp_path) == ["numpy 2.2.0"]


def test_one_python_of_several_is_read(tmp_path: Path) -> None:
    for version in ("3.9", "3.11", "3.12"):
        write(tmp_path, f"lib/python{version}/site-packages/numpy-1.{version[2:]}.dist-info/METADATA")
    assert shown(tmp_path) == ["numpy 1.12"]
    write(tmp_path, "pyvenv.cfg", "version = 3.11.7\n")
    assert shown(tmp_path) == ["numpy 1.11"]


def test_a_link_to_the_same_folder_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "lib/python3.11/site-packages/numpy-2.0.dist-info/METADATA")
    (tmp_path / "lib64").symlink_to("lib")
    assert len(site_folders(tmp_path)) == 1


@pytest.mark.parametrize("python", ["bin/python", "Scripts/python.exe", "python.exe"])
def test_an_environment_is_named_by_its_python_too(tmp_path: Path, python: str) -> None:
    write(tmp_path, python)
    assert prefix_of(tmp_path / python) == tmp_path


def test_free_threading_is_told_by_the_folder(tmp_path: Path) -> None:
    write(tmp_path, "lib/python3.13t/site-packages/numpy-2.2.0.dist-info/METADATA")
    found = read_environment(prefix=tmp_path)
    assert (found.python, found.is_free_threaded) == ("3.13", True)


def test_an_egg_and_an_interrupted_install_are_told_apart(tmp_path: Path) -> None:
    site = "lib/python3.10/site-packages"
    write(tmp_path, f"{site}/torch-2.1.0-py3.10.egg-info/PKG-INFO")
    write(tmp_path, f"{site}/PyYAML-6.0.1-py3.10-linux-x86_64.egg-info")
    write(tmp_path, f"{site}/~umpy-1.26.4.dist-info/METADATA")
    write(tmp_path, f"{site}/old-name-1.0.dist-info/METADATA")
    assert sorted(shown(tmp_path)) == ["old-name 1.0", "pyyaml 6.0.1", "torch 2.1.0"]


@pytest.mark.parametrize(
    ("installer", "label", "by"), [("conda", "cu126", "conda"), ("", "cu126", "conda"), ("pip", None, "pip")]
)
def test_the_build_of_a_conda_package_is_its_records(
    tmp_path: Path, installer: str, label: str | None, by: str
) -> None:
    site = "lib/python3.12/site-packages"
    write(tmp_path, f"{site}/torch-2.5.1.dist-info/INSTALLER", installer)
    write(tmp_path, "conda-meta/pytorch-2.5.1-cuda126_py312h1234567_303.json", "{}")
    found = read_environment(prefix=tmp_path)
    assert found.distributions == (Distribution("torch", "2.5.1", label, by),)  # type: ignore[arg-type]
    assert found.conda == tmp_path.name
