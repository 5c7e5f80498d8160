"""The page on the stack says what the code and the tables say now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "stack_page.py"


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("stack_page", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run: make stack"
