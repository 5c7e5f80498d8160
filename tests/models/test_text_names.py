"""Bundled models by name."""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.present.errors import InputError

LLAMA = "meta-llama/Llama-3.1-8B"
SPELLINGS = {
    "llama-3.1-8b": LLAMA, "meta-llama/Llama-3.1-8B": LLAMA, "Llama 3.1 8B": LLAMA, "LLAMA_3.1_8B": LLAMA,
    "Llama-3.1-8B-Instruct": LLAMA, "llama3.1:8b": LLAMA, "llama3-8b": "meta-llama/Meta-Llama-3-8B",
    "qwen2.5-7b-instruct": "Qwen/Qwen2.5-7B", "mixtral": "mistralai/Mixtral-8x7B-v0.1",
    "gpt2": "openai-community/gpt2", "gemma-2-9b-it": "google/gemma-2-9b", "T5 large": "google-t5/t5-large",
    "mistralai/Mistral-7B-Instruct-v0.2": "mistralai/Mistral-7B-v0.1",
}  # fmt: skip


@pytest.mark.parametrize(("given_name", "name"), SPELLINGS.items())
def test_spellings_find_the_model(given_name: str, name: str) -> None:
    assert names.find(given_name).name == name


def test_sizes_with_a_point_are_not_mixed_up() -> None:
    assert names.find("qwen2.5-1.5b").name == "Qwen/Qwen2.5-1.5B"
    assert names.find("qwen2.5-14b").name == "Qwen/Qwen2.5-14B"


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        names.find("lama-3.1-8b-x")
    assert caught.value.message.id == "models.unknown_name"
    assert LLAMA in caught.value.message.params["nearest"]


@given(st.text(max_size=300))
def test_any_text_is_found_or_refused(text: str) -> None:
    try:
        assert names.find(text).config
    except InputError as error:
        assert error.message.id in ("models.unknown_name", "models.unlike_any_name")


def _text_names() -> list[str]:
    return [name for name in names.all_names() if names.find(name).config.get("model_type") in registry.TEXT]


@pytest.mark.parametrize("name", _text_names())
def test_every_bundled_text_model_builds_and_has_a_source(name: str) -> None:
    bundled = names.find(name)
    model = registry.build_model(Fields(bundled.config))
    assert bundled.source
    assert count.parameters(model) >= count.parameters_active(model) > 0
    assert count.flops(model) > 0


def test_every_bundled_name_finds_itself() -> None:
    assert all(names.find(name).name == name for name in names.all_names())


def test_the_data_stays_small() -> None:
    assert sum(map(len, names._contents())) < 300_000


def test_building_and_counting_a_model_takes_milliseconds() -> None:
    start = time.process_time()
    for _ in range(10):
        count.rows(registry.build_model(Fields(names.find("llama-3.1-8b").config)))
    assert (time.process_time() - start) / 10 < 0.010


EVIDENCE = Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[2].parent / "shared")) / "evidence"
# Shapes and sizes of these rows contradict each other: the size is rounded, that of a name or of more than
# the text part, or the depth is that of one pipeline stage.
ROUGH = {
    "bigscience-gpt-18b-h14336-l10", "bigscience-gpt-20b-h14400-l8", "gemma3-12b", "gpt-1.7b-megatron21",
    "ibm-moe-7b-1b-active", "llama2-1b-torchao", "nemotron-3-nano",
}  # fmt: skip


def _evidence() -> list[tuple[str, float]]:
    if not (EVIDENCE / "models.csv").is_file():
        return []
    rows = csv.DictReader((EVIDENCE / "models.csv").read_text(encoding="utf-8").splitlines())
    return [(row["model"], float(row["params_b"])) for row in rows if row["params_b"] and row["vocab"]]


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="the folder of evidence is missing")
@pytest.mark.parametrize(("name", "size_b"), _evidence())
def test_language_models_of_the_evidence_are_bundled_at_their_size(name: str, size_b: float) -> None:
    model = registry.build_model(Fields(names.find(name).config))
    if name not in ROUGH:
        assert count.parameters(model) / 1e9 == pytest.approx(size_b, rel=0.035)


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="the folder of evidence is missing")
def test_every_model_of_the_evidence_is_bundled_and_has_parameters_and_work() -> None:
    rows = list(csv.DictReader((EVIDENCE / "models.csv").read_text(encoding="utf-8").splitlines()))
    models = {row["model"]: registry.build_model(Fields(names.find(row["model"]).config)) for row in rows}
    assert len(models) > 250
    idle = [name for name, model in models.items() if not (count.parameters(model) and count.flops(model))]
    assert not idle
