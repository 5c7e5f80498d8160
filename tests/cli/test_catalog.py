from __future__ import annotations

import json

import pytest

from raceline.cli import run


def test_catalog_alone_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog"]) == 0
    assert "accelerators" in capsys.readouterr().out


def test_catalog_finds_an_accelerator_without_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "RTX", "4090"]) == 0
    assert "GeForce RTX 4090" in capsys.readouterr().out


def test_catalog_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "accelerators", "4090", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "rtx-4090"


def test_catalog_speaks_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "runtimes", "vllm", "--lang", "zh"]) == 0
    assert "许可证" in capsys.readouterr().out


def test_an_unknown_name_is_bad_input_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["catalog", "links", "ib-ndx"]) == 2
    assert "ib-ndr" in capsys.readouterr().err
