"""Run the commands of docs/questions.yaml and of the READMEs, and write what they print where they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from raceline.present.documents import load_yaml

DOCS = Path(__file__).resolve().parent.parent / "docs"
LONGEST_S = 60


def run(command: str) -> str:
    """What a command prints, as a person sees it at 80 columns."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "RACELINE_LANG": "en", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        env=environment,
        check=False,
    )
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr:
        raise SystemExit(f"{command}\n{done.stderr}")
    return (done.stdout + done.stderr).strip()


def page(questions: list[dict[str, Any]]) -> str:
    """The questions, their commands and the output."""
    parts = [
        "# Questions, and the command that answers each\n",
        "Written by `make questions`: every output below was printed by its command. Prices are those of the",
        "catalogue; ranges hold about 80 % of runs that they have not seen (see accuracy.md).\n",
    ]
    parts += [f"- [{item['question']}](#{item['id']})" for item in questions]
    for item in questions:
        parts.append(f'\n<a id="{item["id"]}"></a>\n## {item["question"]}\n\n{item["read"]}\n')
        for command in item["commands"]:
            parts.append(f"```console\n$ {command}\n{run(command)}\n```\n")
    return "\n".join(parts) + "\n"


def refreshed(text: str) -> str:
    """A page whose console blocks show what their command prints now; a block that ends with an
    ellipsis keeps its length."""

    def again(found: re.Match[str]) -> str:
        command, *old = found.group(1).rstrip("\n").split("\n")
        lines = run(command.removeprefix("$ ")).split("\n")
        if old and old[-1].strip() == "…":
            lines = [*lines[: len(old) - 1], old[-1]]
        return "```console\n" + "\n".join([command, *lines]) + "\n```"

    return re.sub(r"```console\n(\$ .*?)```", again, text, flags=re.DOTALL)


def main() -> None:
    """Write the page and refresh the READMEs."""
    for name in ("README.md", "README.zh-CN.md"):
        page_ = DOCS.parent / name
        page_.write_text(refreshed(page_.read_text(encoding="utf-8")), encoding="utf-8")
    questions = load_yaml(DOCS / "questions.yaml")
    (DOCS / "questions.md").write_text(page(questions), encoding="utf-8")
    print(f"docs/questions.md: {len(questions)} questions")


if __name__ == "__main__":
    main()
