"""The commands plan and estimate as a shell sees them: output, exit codes, errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raceline.cli import run
from scenarios import DESIGN_EXAMPLE


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_plan_exits_with_zero_and_prints_the_picks(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = answer(capsys, "plan", "llama-3.1-8b")
    assert (code, err) == (0, "")
    assert "balanced" in out and "cheapest" in out and "Why" not in err


def test_a_plan_in_chinese_has_no_english_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "--lang", "zh", "plan", "llama-3.1-8b")
    assert "均衡" in out and "Bound by" not in out and "Searched" not in out


def test_nothing_fits_exits_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "plan", "llama-3.1-70b", "--method", "full", "--on", "4090")
    assert code == 1
    assert "GiB" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "no-such-model-at-all"),
        ("plan", "llama-3.1-8b", "--tokens", "minus"),
        ("plan", "llama-3.1-8b", "--tokens", "-5"),
        ("plan", "llama-3.1-8b", "--deadline", "3 fortnights"),
        ("plan", "llama-3.1-8b", "--on", "H1000"),
        ("plan", "llama-3.1-8b", "--on", "4090x2", "--interconnect", "nvlink"),
        ("plan", "llama-3.1-8b", "--on", "t4", "--precision", "bf16"),
        ("plan", "llama-3.1-8b", "--region", "atlantis"),
        ("plan", "llama-3.1-8b", "--own", "no-such-file.yaml"),
        ("plan", "llama-3.1-8b", "--users", "0"),
        ("plan",),
        ("estimate", "no-such-file.yaml"),
        ("describe", "no-such-file.json"),
        ("catalog", "accelerators", "H1000"),
        ("schema", "nothing"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1 and "Traceback" not in err


def test_the_example_of_the_design_as_yaml_and_as_json_give_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    as_json = tmp_path / "scenario.json"
    as_json.write_text(json.dumps(DESIGN_EXAMPLE))
    as_yaml = tmp_path / "scenario.yaml"
    lines = [f"{name}: {json.dumps(value)}" for name, value in DESIGN_EXAMPLE.items()]
    as_yaml.write_text("\n".join(lines))
    answers = [json.loads(answer(capsys, "estimate", str(path), "--json")[1]) for path in (as_json, as_yaml)]
    assert answers[0] == answers[1]
    assert answers[0]["id"] == "any-string"


def many(path: Path, scenarios: list[Any]) -> Path:
    path.write_text("".join(item if isinstance(item, str) else json.dumps(item) + "\n" for item in scenarios))
    return path


def test_json_lines_keep_their_order_and_errors_stand_in_their_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = {**DESIGN_EXAMPLE, "id": "bad", "hardware": {"accelerator": "h1000"}}
    file = many(tmp_path / "many.jsonl", [DESIGN_EXAMPLE, bad, "{broken\n", {**DESIGN_EXAMPLE, "id": "last"}])
    code, out, _ = answer(capsys, "estimate", str(file), "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [row["id"] for row in rows] == ["any-string", "bad", "", "last"]
    assert rows[1]["error"]["field"] == "hardware.accelerator"
    assert rows[1]["error"]["message"] and rows[2]["error"]["message"]


def test_json_lines_without_an_error_exit_with_zero(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = many(tmp_path / "many.jsonl", [DESIGN_EXAMPLE, DESIGN_EXAMPLE])
    assert answer(capsys, "estimate", str(file), "--json")[0] == 0


def test_a_scenario_comes_from_standard_input() -> None:
    command = [sys.executable, "-m", "raceline", "estimate", "-", "--json"]
    done = subprocess.run(
        command, input=json.dumps(DESIGN_EXAMPLE), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["fits"] == "yes"


def test_json_of_a_plan_carries_ids_parameters_and_english(capsys: pytest.CaptureFixture[str]) -> None:
    plan = json.loads(answer(capsys, "--lang", "zh", "plan", "llama-3.1-8b", "--json")[1])
    reason = plan["picks"][0]["reasons"][0]
    assert set(reason) == {"id", "params", "text"}
    assert reason["text"].isascii() or "×" in reason["text"]
    assert plan["schema"] == "raceline.plan/1"


def test_an_own_card_with_an_own_price_is_planned_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "accelerators: [{id: my-card, like: rtx-4090, name: My card, memory_gib: 48}]\n"
        "offers: [{provider: home, instance: box, accelerator: my-card, count: 1, region: here, region_family: eu,\n"
        "  tier: on-demand, price_hour_usd: 0.30, as_of: '2026-11-30', source_url: 'https://example.org'}]\n"
    )
    code, out, _ = answer(capsys, "plan", "llama-3.1-8b", "--own", str(own), "--on", "my-card", "--json")
    picks = json.loads(out)["picks"]
    assert code == 0
    assert {pick["accelerator"] for pick in picks} == {"my-card"}
    assert picks[0]["price_hour_usd"] == pytest.approx(0.30 * picks[0]["count"])


def test_explain_shows_the_parts_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "plan", "llama-3.1-8b", "--on", "l40s", "--explain")
    assert "optimizer" in out and "activations" in out and "%" in out
