"""Reports of what fitted, as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceline.evidence.adapters import fit
from raceline.evidence.rows import Measured
from raceline.present.documents import load_yaml

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "evidence" / "fit.yaml"


def report(framework: str = "litgpt", **outcome: Any) -> dict[str, Any]:
    return {
        "id": "one", "source_url": "https://example.org", "as_of": "2023-10-20", "evidence": "table",
        "confidence": "high",
        "workload": {"kind": "train", "task": "lora", "model": "llama-2-7b", "framework": framework,
                     "precision": "bf16-true"},
        "hardware": {"gpu": "A100-40GB", "gpus": 2}, "outcome": {"fits": True, **outcome},
    }  # fmt: skip


def test_a_report_says_whether_it_fitted_and_its_peak() -> None:
    row = fit.adapt(report(peak_mem_gib=19.84, peak_is="per GPU"))
    assert row.measured == (Measured("fits", 1.0), Measured("memory_allocated_gib", 19.84))
    assert row.year == 2023 and row.scenario is not None and row.scenario["setup"]["micro_batch"] == 1


def test_a_sum_over_devices_is_divided() -> None:
    row = fit.adapt(report("transformers+peft", peak_mem_gib=148.0, peak_is="sum over GPUs"))
    assert row.measured[1] == Measured("memory_device_gib", 74.0)


def test_a_run_that_failed_has_no_peak() -> None:
    assert fit.adapt(report(fits=False, peak_mem_gib=83.5)).measured == (Measured("fits", 0.0),)


def test_every_report_becomes_a_row() -> None:
    cases: Any = load_yaml(CASES.read_bytes())
    assert all(cases[0].keys() >= fit.COLUMNS for _ in cases)
    rows = [fit.adapt(case) for case in cases]
    assert sum(row.unscored is not None for row in rows) <= 0.1 * len(rows)


@pytest.mark.parametrize(
    "url,name",
    [
        ("https://github.com/huggingface/peft/blob/main/README.md", "huggingface/peft"),
        ("https://github.com/QwenLM/Qwen/issues/12", "QwenLM/Qwen"),
        ("https://huggingface.co/datasets/diffusers/benchmarks", "huggingface.co/datasets/diffusers"),
        ("https://example.org/a/b", "example.org"),
    ],
)
def test_a_report_belongs_to_who_published_it(url: str, name: str) -> None:
    assert fit.adapt({**report(), "source_url": url}).source == name
