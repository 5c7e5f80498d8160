"""`raceline accuracy` on files: what it says, and what it refuses in one line."""

from __future__ import annotations

import csv
import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest

import raceline
from raceline.cli import run


def table(tmp_path: Path, **changed: str) -> Path:
    """Two published rows under ids that nobody published; `changed` cells of the first."""
    packed = files("raceline.evidence").joinpath("data/training.csv.gz").read_bytes()
    records = csv.DictReader(gzip.decompress(packed).decode().splitlines())
    own = [
        {**record, "id": f"my-{record['id']}"}
        for record in records
        if record["id"] in ("bgv-0001", "bgv-0002")
    ]
    own[0].update(changed)
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(own[0]))
        writer.writeheader()
        writer.writerows(own)
    return path


def refused(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["accuracy", str(path), *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    return told.err


def test_rows_of_a_user_are_scored_by_constants_that_never_saw_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["accuracy", str(table(tmp_path))]) == 0
    text = capsys.readouterr().out
    assert text.startswith("2 measured values of 2 runs that the constants were not fitted on")
    assert "my-bgv-0001" in text


def test_json_has_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", str(table(tmp_path)), "--by", "accelerator", "--worst", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "raceline.accuracy/1"
    assert (found["values"], found["unknown_values"], len(found["worst"])) == (2, 2, 1)
    assert [(item["name"], item["errors"]["values"]) for item in found["slices"]] == [("v100-sxm2-16gb", 2)]


def test_the_twin_in_python_gives_the_same(tmp_path: Path) -> None:
    report = raceline.accuracy(table(tmp_path), by="source")  # type: ignore[operator]
    assert report.errors is not None and report.errors.values == 2
    with pytest.raises(raceline.InputError):
        raceline.accuracy(table(tmp_path), by="moon")  # type: ignore[operator]


def test_a_row_that_estimate_refuses_says_why_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path, model="no-such-model")
    path.write_text("\n".join(path.read_text().splitlines()[:2]) + "\n")
    assert run(["accuracy", str(path)]) == 1
    assert "no-such-model" in capsys.readouterr().out


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "can't be read" in refused(tmp_path / "none.csv", capsys)


def test_columns_that_the_nearest_format_needs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "model,accelerator,batch,precision,metric,unit,value\nresnet50,rtx-4090,1,fp16,latency_ms,ms,1\n"
    )
    told = refused(path, capsys)
    assert "training" in told and told.endswith("the nearest is inference, and it lacks: runtime\n")


def test_rows_of_a_user_need_no_id_and_no_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    names = (
        "model,seq_len,accelerator,count,framework,precision,method,micro_batch,global_batch,peak_mem_gib,"
    )
    names += "tokens_per_s_per_gpu,samples_per_s_per_gpu,step_time_s"
    path.write_text(f"{names}\nllama-3.1-8b,4096,h100-sxm,8,fsdp2,bf16,pretrain,1,8,,9800,,\n")
    assert run(["accuracy", str(path)]) == 0
    assert "mine-1: measured 9,800 tokens/s" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"a" * 200_000, b"\n\n"])
def test_what_is_no_table_is_one_line(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    refused(path, capsys)


def test_a_table_without_rows_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert "holds no rows" in refused(path, capsys)


@pytest.mark.parametrize("cell", [{"count": "many"}, {"step_time_s": "nan"}])
def test_a_cell_that_is_no_number_names_its_row(
    cell: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "row 1" in refused(table(tmp_path, **cell), capsys)


@pytest.mark.parametrize("content", ["a: 1\n", "- 5\n", "- id: x\n", "- [\n"])
def test_a_yaml_file_that_holds_no_reports_is_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    refused(path, capsys)


def test_an_error_is_json_where_json_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", str(tmp_path / "none.csv"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["id"] == "evidence.file_unread"


def test_the_screen_is_chinese_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["accuracy", str(table(tmp_path)), "--lang", "zh"]) == 0
    assert "个实测值" in capsys.readouterr().out


def test_the_schema_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "accuracy"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "raceline.accuracy/1"
