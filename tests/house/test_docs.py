"""The documents' examples work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from raceline.cli import run
from raceline.estimate.scenario import Hardware, Pool, Setup, Workload
from raceline.present.documents import load_yaml

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_scenario_of_the_page_is_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(blocks("docs/scenario.md", "yaml")[0])
    assert run(["estimate", str(file)]) == 0
    assert "my-run" in capsys.readouterr().out


def test_the_own_hardware_of_the_page_is_planned_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(blocks("docs/scenario.md", "yaml")[-1])
    assert run(["plan", "llama-3.1-8b", "--own", str(file), "--on", "4 x my-card"]) == 0
    assert "RTX 4090 48 GB" in capsys.readouterr().out


@pytest.mark.parametrize("part", [Workload, Hardware, Setup, Pool])
def test_every_field_of_a_scenario_stands_on_the_page(part: type[msgspec.Struct]) -> None:
    page = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z][a-z0-9_]*", page))
    assert {field.name for field in msgspec.structs.fields(part)} <= words


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_commands_of_the_readme_answer(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = re.sub(r"```console\n.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = re.findall(r"^raceline plan .*$", text, re.MULTILINE)
    assert lines
    for line in lines:
        assert run(shlex.split(line.split("  #")[0])[1:]) == 0, line
        capsys.readouterr()


def test_every_question_has_its_place_on_the_page() -> None:
    page = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    for item in load_yaml(ROOT / "docs" / "questions.yaml"):
        assert f'<a id="{item["id"]}">' in page
        assert all(f"$ {command}" in page for command in item["commands"])


def test_links_between_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
