"""A table is only read: no model word in it makes us run a function, open a file or fetch anything."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raceline import api
from raceline.evidence import published
from raceline.models import names
from raceline.models.read import PREFIXES, SUFFIXES, listed_name, read_listed
from raceline.present.documents import load_yaml
from raceline.present.errors import InputError

EVIDENCE = Path(__file__).parents[2] / "evidence"
EVIL = (
    "evil_module:build",
    "/etc/hostname",
    "../x",
    "hf:someone/something",
    "config.json",
    "evil_module.onnx",
)


def first_scored(table: str) -> dict[str, Any]:
    """A record of a published table that can be scored."""
    scored = {row.id for row in published.rows(table) if row.scenario is not None}
    if table == "fit":
        records: Any = load_yaml((EVIDENCE / "fit.yaml").read_bytes())
    else:
        text = (EVIDENCE / f"{table}.csv").read_text(encoding="utf-8")
        records = list(csv.DictReader(text.splitlines()))
    return next(record for record in records if record["id"] in scored)


def written(table: str, record: dict[str, Any], folder: Path) -> Path:
    """A file of one record."""
    if table == "fit":
        path = folder / "own.yaml"
        path.write_text(json.dumps([record]), encoding="utf-8")
        return path
    path = folder / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(record))
        writer.writeheader()
        writer.writerow(record)
    return path


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a mark when it is imported, and a folder of such files to stand in."""
    mark = tmp_path / "was_run"
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("evil_module", None)


@pytest.mark.parametrize("word", EVIL)
@pytest.mark.parametrize("table", [name for name in published.tables() if name != "megatron_ci"])
def test_a_word_for_something_else_than_a_bundled_model_is_not_followed(
    table: str, word: str, tmp_path: Path, marker: Path
) -> None:
    record = first_scored(table)
    record["id"] = "mine-1"
    if table == "fit":
        record["workload"] = {
            **record["workload"],
            **{name: word for name in ("model", "arch_as") if name in record["workload"]},
        }
    else:
        record.update({name: word for name in ("model", "base_model") if name in record})
        record.update({name: "" for name in ("params_m", "gmacs", "mactivations_m") if name in record})
    path = written(table, record, tmp_path)
    report = api.accuracy(path)
    assert (report.rows, report.values) == (1, 0)
    if table != "fit":
        with pytest.raises(InputError):
            api.learn(path)
    assert not marker.exists()


def test_only_names_and_descriptions_are_listed(marker: Path) -> None:
    for word in EVIL:
        assert listed_name(word) is None
        with pytest.raises(InputError):
            read_listed(word)
    assert not marker.exists()
    assert read_listed("llama-3.1-8b").name == "meta-llama/Llama-3.1-8B"


def test_a_folder_with_a_bundled_name_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "llama-3.1-8b"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert read_listed("llama-3.1-8b").layers == 32


# Words that forgiving spelling takes for a bundled model, and a reader for a function, a hub or a file.
DISGUISED = {
    "evil:_50": None,
    "resnet:_50": "resnet50",
    "hf:meta-llama/Llama-3.1-8B": "Llama-3.1-8B",
    "../llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.1-8b.gguf": "Llama-3.1-8B",
    "llama-3.1-8b": "Llama-3.1-8B",
}


@pytest.mark.parametrize("word", DISGUISED)
def test_a_table_that_is_learned_from_keeps_own_names_only(
    word: str, tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACELINE_HOME", str(tmp_path / "home"))
    (tmp_path / "resnet.py").write_text((tmp_path / "evil_module.py").read_text(), encoding="utf-8")
    (tmp_path / "llama-3.1-8b").mkdir()
    (tmp_path / "llama-3.1-8b" / "config.json").write_text("{}", encoding="utf-8")
    path = written("training", {**first_scored("training"), "id": "mine-1", "model": word}, tmp_path)
    name = DISGUISED[word]
    if name is None:
        with pytest.raises(InputError):
            api.learn(path)
    else:
        assert [str(entry.scenario["model"]).rpartition("/")[2] for entry in api.learn(path)] == [name]
        api.estimate({"model": "gpt2", "hardware": {"accelerator": "h100-sxm"}})
    sys.modules.pop("resnet", None)
    assert not marker.exists()


def test_no_own_name_is_taken_for_a_function_a_hub_or_a_file() -> None:
    for name in names.all_names():
        assert listed_name(name) == name
        module, colon, function = name.partition(":")
        assert not (colon and module.isidentifier() and function.isidentifier())
        assert not name.startswith((*PREFIXES, "/", ".")) and Path(name).suffix.lower() not in SUFFIXES
