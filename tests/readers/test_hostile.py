"""Hostile files of every kind: one clear line, exit code 2, within a second and 500 MB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from readers import hostile

SECONDS = 1.0
MEMORY_MIB = 500


def read(paths: list[str]) -> dict[str, dict[str, Any]]:
    """What came of each file, read one after the other by one process."""
    done = subprocess.run(
        [sys.executable, hostile.__file__, *paths], capture_output=True, text=True, check=True, timeout=120
    )
    assert not done.stderr
    return {row["path"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came of each file; what was slow is read once more, as the machine may have been busy."""
    paths = [str(path) for path in hostile.write(tmp_path_factory.mktemp("hostile"))]
    found = read(paths)
    slow = [path for path, row in found.items() if row["seconds"] > SECONDS]
    found |= read(slow) if slow else {}
    assert set(found) == set(paths)
    return list(found.values())


def named(rows: list[dict[str, Any]], wrong: Any) -> list[tuple[str, Any]]:
    return [(Path(row["path"]).as_posix()[-40:], row) for row in rows if wrong(row)]


def is_lines(row: dict[str, Any]) -> bool:
    return str(row["path"]).endswith(".jsonl")


def test_each_is_bad_input(rows: list[dict[str, Any]]) -> None:
    # JSON Lines go on behind a bad line and say in the end that some failed
    assert not named(rows, lambda row: row["code"] != (1 if is_lines(row) else 2))


def test_each_is_refused_in_one_line(rows: list[dict[str, Any]]) -> None:
    one = [row for row in rows if not is_lines(row)]
    assert not named(one, lambda row: len(row["said"].splitlines()) != 1 or "Traceback" in row["said"])


def test_each_is_refused_within_a_second(rows: list[dict[str, Any]]) -> None:
    assert not named(rows, lambda row: row["seconds"] > SECONDS)


def test_none_takes_500_mib(rows: list[dict[str, Any]]) -> None:
    assert max(row["memory_mib"] for row in rows) < MEMORY_MIB
