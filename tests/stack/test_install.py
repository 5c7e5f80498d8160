"""Solved sets for a CPU are installed into a fresh environment and imported together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "prove_stack.py"


@pytest.mark.slow
def test_four_frameworks_are_installed_and_compute_in_one_process() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--short"], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name in ("torch", "tensorflow-cpu", "jax", "onnxruntime"):
        assert f'"{name}"' in done.stdout
