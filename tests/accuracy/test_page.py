"""docs/accuracy.md as a function of scores."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from raceline.accuracy.floors import Floor
from scores_by_hand import scored, scores, unscored, verdict

ROOT = Path(__file__).resolve().parents[2]
MADE = scores(
    scored(100, 110),
    scored(100, 300, group="prefill", model="a|b", reason="two\nlines"),
    verdicts=(verdict(True, "no", id="known"), verdict(True, "yes")),
    unscored=(unscored("a", "no_batch"),), rows=5,
)  # fmt: skip

LOWEST = (
    Floor(
        group="train-moe", scenarios=3, values=7, spread=0.05, error=0.012, across=1, spread_across=0.07,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accuracy_page", ROOT / "tools" / "accuracy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def docs(tmp_path: Path, reasons: str = "known: The recipe doesn't say.\n") -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "fit_misses.yaml").write_text(reasons)
    peer = {"peer": "other-tool", "version": "1.0", "group": "train-moe", "rows": 1, "median": 0.5, "p90": 0.9,
            "note": "as shipped"}  # fmt: skip
    (tmp_path / "results" / "peers.json").write_text(json.dumps([peer]))
    return tmp_path


def line_with(page: str, text: str) -> str:
    return next(line for line in page.splitlines() if text in line)


def test_every_part_of_the_report_stands_on_the_page(tool: ModuleType, tmp_path: Path) -> None:
    page, _ = tool.written(MADE, LOWEST, docs(tmp_path))
    assert (
        "train experts | 1 | 1 | 1 | one source of 1 | 10 % | 10 % | 10 % | 0.0 %, 0.0 % | 25 / 50 % ✓"
        in page
    )
    assert line_with(page, "other-tool 1.0").endswith("| 50 % | 90 % | – | 10 % | 10 % | – | as shipped |")
    assert "| no_batch | 1 | 20 % | because of no_batch |" in page
    assert "| train experts | 3 | 7 | 5.0 % | 1 | 7.0 % | 1.2 % | 10 % |" in page
    assert "The recipe doesn't say." in line_with(page, "[known]")


def test_the_columns_of_every_format_are_listed(tool: ModuleType, tmp_path: Path) -> None:
    page, _ = tool.written(MADE, LOWEST, docs(tmp_path))
    assert "`tokens_per_s_per_gpu`" in line_with(page, "| `training` |")


def test_a_cell_can_t_break_its_table(tool: ModuleType, tmp_path: Path) -> None:
    page, _ = tool.written(MADE, LOWEST, docs(tmp_path))
    assert "a\\|b" in page and "two lines" in page


def test_the_page_does_without_peers(tool: ModuleType, tmp_path: Path) -> None:
    (docs(tmp_path) / "results" / "peers.json").unlink()
    page, _ = tool.written(MADE, LOWEST, tmp_path)
    assert "Other tools" not in page


def test_a_miss_of_fit_without_a_reason_is_named(tool: ModuleType, tmp_path: Path) -> None:
    folder = docs(tmp_path, "other: because\n")
    _, found = tool.written(MADE, LOWEST, folder)
    assert tool.silent(found, folder) == ["known"]
