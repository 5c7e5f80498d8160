from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from raceline.cli import run
from readers.fixtures import elements, gguf_bytes, llama_shapes, write_safetensors

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 160, "vocab_size": 100}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path / "config.json")


def describe(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["describe", *arguments, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


def test_json_has_the_totals_at_its_top(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = describe(capsys, config)
    assert found["schema"] == "raceline.describe/1"
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 160 + 2 * 64
    assert found["parameters"] == found["parameters_active"] == 2 * layer + 2 * 100 * 64 + 64
    assert (found["attention"], found["kv_bytes_per_token"]) == ("GQA", 2 * 2 * 2 * 32)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_screen_fits_80_columns(config: str, language: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "deepseek-v3", "--lang", language]) == 0
    assert max(map(columns, capsys.readouterr().out.splitlines())) <= 80


def test_length_and_batch_change_the_totals(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    one = describe(capsys, config, "--seq-len", "128")
    four = describe(capsys, config, "--seq-len", "128", "--batch", "4")
    assert four["flops"] == 4 * one["flops"]  # type: ignore[operator]
    assert four["saved_bytes"] == 4 * one["saved_bytes"]  # type: ignore[operator]


def test_a_folder_is_its_config(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert describe(capsys, str(Path(config).parent))["parameters"] == describe(capsys, config)["parameters"]


def test_headers_of_weights_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_safetensors(tmp_path / "tiny.safetensors", llama_shapes())
    assert describe(capsys, str(path))["parameters"] == elements(llama_shapes())
    file = tmp_path / "tiny.gguf"
    file.write_bytes(
        gguf_bytes({"general.architecture": "new", "general.file_type": 15}, {"a.weight": [4, 8]})
    )
    assert describe(capsys, str(file))["weight_format"] == "q4_k_m"


def test_an_unknown_name_lists_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", "lama-3.1-8b"]) == 2
    assert "Llama-3.1-8B" in capsys.readouterr().err


BAD_CONFIGS = [
    "", "{", '{"a": 1, "a": 2}', "[" * 1000, '{"model_type": "llama", "hidden_size": -1}', '{"model_type": []}', "[]",
    '{"model_type": "llama", "hidden_size": 1e300}',
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_CONFIGS)
def test_a_bad_config_is_one_line_and_exit_2(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert run(["describe", str(tmp_path / "config.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", ["missing.gguf", "missing/config.json", "no_such_module:build", "", "a\0b"])
def test_what_is_not_there_is_one_line_and_exit_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["describe", name]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
