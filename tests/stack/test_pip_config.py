"""The index is taken from pip's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceline.stack.pip_config import index_of_pip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a mirror in pip's configuration."""
    folder = tmp_path / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\ntimeout = 5\n")
    return tmp_path


def test_the_index_of_the_users_configuration_is_taken(home: Path) -> None:
    assert index_of_pip({"XDG_CONFIG_DIRS": str(home)}, home) == "https://mirror.example/simple"


def test_the_environment_goes_before_files(home: Path) -> None:
    assert (
        index_of_pip({"PIP_INDEX_URL": "https://other.example/simple"}, home)
        == "https://other.example/simple"
    )


def test_a_named_file_goes_before_the_usual_ones(home: Path, tmp_path: Path) -> None:
    named = tmp_path / "mine.ini"
    named.write_text("[global]\nindex-url: https://named.example/simple\n")
    environ = {"PIP_CONFIG_FILE": str(named), "XDG_CONFIG_DIRS": str(tmp_path)}
    assert index_of_pip(environ, home) == "https://named.example/simple"


def test_a_file_that_is_no_configuration_says_nothing(tmp_path: Path) -> None:
    named = tmp_path / "mine.ini"
    named.write_bytes(b"\xff\xfe index-url = [[[\n=\n")
    environ = {"PIP_CONFIG_FILE": str(named), "XDG_CONFIG_DIRS": str(tmp_path)}
    assert index_of_pip(environ, tmp_path) is None
