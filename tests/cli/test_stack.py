"""`raceline stack`: what people see, what programs read, exit codes, one line for a bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from raceline.cli import run

V100 = "GPU: Tesla V100\ndriver: 535.183\nubuntu 22.04, Python 3.11\ntorch==2.11.0\n"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    told = capsys.readouterr()
    return code, told.out, told.err


def written(folder: Path, text: str, name: str = "told.txt") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_check_says_what_fails_why_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "stack", "check", "--from", written(tmp_path, V100))
    assert code == 1
    assert "✗ will fail" in out
    assert "needs driver 580" in " ".join(out.split())
    assert "$ pip install torch==2.11.0 --index-url" in " ".join(out.split())
    assert "The last stack for Tesla V100: torch 2.14.1 from cu126, driver branch 580" in " ".join(
        out.split()
    )


def test_json_names_cause_verdict_facts_and_structured_fixes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "stack", "check", "--from", written(tmp_path, V100), "--json")
    data = json.loads(out)
    assert code == 1
    assert (data["schema"], data["verdict"]) == ("raceline.stack/1", "will_fail")
    first = data["findings"][0]
    assert first["cause"] == "driver_too_old"
    assert first["fixes"][0][0] == {
        "action": "install_build",
        "package": "torch",
        "from": "2.11.0",
        "to": "==2.11.0",
        "build": "cu126",
        "command": "pip install torch==2.11.0 --index-url https://download.pytorch.org/whl/cu126",
    }
    assert first["facts"][0]["source_url"].startswith("https://")
    assert data["proposals"][0] == first["fixes"][0]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.TextIOWrapper(io.BytesIO(b"torch==1.13.1\nnumpy==2.0.0\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    code, out, _ = answer(capsys, "stack", "check", "--from", "-", "--json")
    assert code == 1
    assert json.loads(out)["findings"][0]["cause"] == "numpy_abi"


def test_a_text_without_facts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "stack", "check", "--from", written(tmp_path, "hello\n"))
    assert code == 0
    assert "Nothing here could be judged" in out


def test_a_version_that_no_table_knows_gets_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "stack", "check", "--from", written(tmp_path, "torch==9.9.9\n"))
    assert code == 0
    assert "torch 9.9.9 is not in the tables (newest:" in " ".join(out.split())


def test_this_machine_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "stack", "check", "--json")
    machine = json.loads(out)["told"]["environment"]
    assert code in (0, 1)
    assert machine["python"].startswith("3.")
    assert "numpy" in {item["name"] for item in machine["distributions"]}


def test_a_set_is_solved_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "stack",
        "solve",
        "--want",
        "torch,vllm,flash-attn",
        "--gpu",
        "RTX 3090",
        "--driver",
        "535.183.01",
    )
    code, out, _ = answer(capsys, *words, "--write", "dockerfile", "--to", str(tmp_path / "image"))
    assert code == 0
    assert "driver 525.60.13 or newer" in out
    assert (tmp_path / "image" / "Dockerfile").read_text().count("FROM ") == 1
    code, _, complaint = answer(capsys, *words, "--write", "dockerfile", "--to", str(tmp_path / "image"))
    assert code == 2
    assert "is there already" in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_no_set_names_the_conflict_and_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = answer(capsys, "stack", "solve", "--want", "torch,flash-attn", "--gpu", "T4")
    told = " ".join(out.split())
    assert code == 1
    assert "These can't all hold: flash-attn is wanted, the GPU is T4 (7.5)" in told
    assert "remove flash-attn" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("solve", "--want", "torch", "--gpu", "fridge"), "is not a GPU known here"),
        (("solve", "--want", "torch>>2"), "is not a package"),
        (("solve", "--want", ","), "no package was named"),
        (("solve", "--want", "torch", "--driver", "new"), "is not a driver's version"),
        (("solve", "--want", "torch", "--python", "two"), "is not a Python version"),
        (("solve", "--want", "torch", "--os", "plan9"), "is not a system known here"),
        (("check", "--from", "nowhere.txt"), "nowhere.txt"),
        (("check", "--for", "nowhere.json"), "nowhere.json"),
    ],
)
def test_a_bad_word_gets_one_line_and_exit_code_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, complaint = answer(capsys, "stack", *words)
    assert code == 2
    assert not out
    assert said in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_a_plan_ends_with_its_software_and_the_machine_is_held_against_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "plan", "llama-3.1-8b", "--on", "h100x8", "--json")
    plan: dict[str, Any] = json.loads(out)
    assert code == 0
    assert "torch" in {pick["package"] for pick in plan["stack"]["picks"]}
    code, out, _ = answer(capsys, "stack", "check", "--for", written(tmp_path, out, "plan.json"), "--json")
    report = json.loads(out)
    assert code == 1
    assert report["findings"][0]["cause"] == "plan_hardware"
    assert report["ready_for"].startswith("torch")


def test_a_plan_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, complaint = answer(capsys, "stack", "check", "--for", written(tmp_path, "[1]", "plan.json"))
    assert code == 2
    assert "is not a plan" in complaint


def test_chinese_readers_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = answer(capsys, "--lang", "zh", "stack", "check", "--from", written(tmp_path, V100))
    assert "会失败" in out
    assert "安装 torch" in out


@pytest.mark.parametrize(
    ("words", "limit_s"),
    [
        (("stack", "check"), 0.5),
        (
            (
                "stack",
                "solve",
                "--want",
                "torch,vllm,xformers,flash-attn,bitsandbytes,tensorrt",
                "--gpu",
                "H100",
            ),
            1.0,
        ),
    ],
)
def test_an_answer_takes_little_cpu_time(words: tuple[str, ...], limit_s: float, tmp_path: Path) -> None:
    """Run up to three times: a busy machine inflates CPU time too."""
    assert any(_cpu_s(words, tmp_path) <= limit_s for _ in range(3))


def _cpu_s(words: tuple[str, ...], folder: Path) -> float:
    code = "import sys,time;from raceline.cli import run;run(sys.argv[1:]);sys.stderr.write(str(time.process_time()))"
    environment = {"PATH": str(folder), "HOME": str(folder), "RACELINE_HOME": str(folder)}
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    assert time.monotonic() - start < 60
    return float(done.stderr.splitlines()[-1])
