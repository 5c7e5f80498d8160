"""Write the list of causes and the score of the reported conflicts into docs/stack.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from raceline.present.text import render  # noqa: E402
from raceline.stack import facts  # noqa: E402
from raceline.stack.causes import KINDS, title  # noqa: E402
from raceline.stack.result import Action  # noqa: E402
from stack_scoring import FORMS, Score, load_cases, score  # noqa: E402

PAGE = ROOT / "docs" / "stack.md"


def kinds() -> str:
    """The table of causes."""
    rows = [f"| `{kind}` | {render(title(kind))} |" for kind in KINDS]
    return "\n".join(["| cause | what it means |", "| --- | --- |", *rows])


def tables() -> str:
    """The tables with their rows and the newest day of each."""
    lines = ["| table | rows | newest statement |", "| --- | --- | --- |"]
    for name in facts.TABLES:
        rows = facts.table(name)
        lines.append(f"| `{name}.csv` | {len(rows)} | {max(row['as_of'] for row in rows)} |")
    rules = facts.rules().values()
    lines.append(f"| `rules.json` | {len(rules)} | {max(rule.as_of for rule in rules)} |")
    return "\n".join(lines)


def scores() -> str:
    """The score in each form in which the reports were told, and what was missed."""
    lines = []
    for form in FORMS:
        found = [score(case, form) for case in load_cases()]
        named, first, fixed = (
            sum(getattr(item, name) for item in found) for name in ("is_named", "is_first", "is_fixed")
        )
        lines.append(
            f"- told as {form}: of {len(found)} reports the cause is the first finding in {first}"
            f" ({first / len(found):.0%}) and among the findings in {named}; an accepted fix is one of the first two"
            f" proposals in {fixed} ({fixed / len(found):.0%})."
        )
        lines.extend(missed(item) for item in found if not (item.is_first and item.is_fixed))
    return "\n".join(lines)


def missed(item: Score) -> str:
    """One line on a report that was judged otherwise."""
    if not item.is_first:
        return f"  - {item.id}, `{item.kind}`: named {', '.join(item.causes[:3]) or 'nothing'}"
    proposals = "; or ".join(" and ".join(map(step, fix)) for fix in item.proposals) or "nothing"
    return f"  - {item.id}, `{item.kind}`: proposed {proposals}"


def step(action: Action) -> str:
    """A step of a fix in few words."""
    parts = (action.action, action.package or action.name, action.to, action.build)
    return " ".join(part for part in parts if part)


def replaced(text: str, name: str, body: str) -> str:
    """The page with the part of that name written anew."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{body}\n{found[2]}", text)


def page() -> str:
    """The whole page; the score stays as it is where the reports are not handed."""
    text = replaced(PAGE.read_text(encoding="utf-8"), "kinds", kinds())
    text = replaced(text, "tables", tables())
    return replaced(text, "score", scores()) if load_cases() else text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
