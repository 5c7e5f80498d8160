"""The package data stays small enough for the wheel: 5 MB, which CI measures on the wheel itself."""

import tomllib
import zlib

from sources import ROOT, SOURCE

LARGEST_WHEEL_BYTES = 5 * 1024 * 1024


def test_the_wheel_stays_below_5_mb():
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) <= LARGEST_WHEEL_BYTES


def test_the_version_stands_once_for_people_and_once_for_tools():
    import raceline

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == raceline.__version__


def test_core_dependencies_are_the_documented_ones():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    documented = (ROOT / "docs/dependencies.md").read_text()
    names = [item.split(">")[0] for item in project["dependencies"]]
    assert all(f"| {name} |" in documented for name in names)
    assert all(f"`{extra}`" in documented for extra in project["optional-dependencies"])
