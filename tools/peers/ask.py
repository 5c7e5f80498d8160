"""Runs in a peer's own environment: cases as JSON on standard input, its answers on standard output.

.venv-peers/hf-mem/bin/python -m tools.peers.ask hf_mem_weights < cases.json
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import logging
import re
import sys
import time
from typing import Any

from tools.peers.case import Case, Refusal, case_of

_DETAIL = re.compile(r" for | at |['\"{(\d/]")


def asked(peer: Any, cases: list[Case], limit_s: float) -> dict[str, Any]:
    """Answers and refusals by variant and case. What is left at the time limit is counted apart."""
    found: dict[str, Any] = {variant: {"answers": {}, "refusals": {}} for variant in peer.VARIANTS}
    late: list[str] = []
    ends = time.monotonic() + limit_s
    for case in cases:
        if time.monotonic() > ends:
            late.append(_key(case))
            continue
        for variant in peer.VARIANTS:
            _ask(peer, case, variant, found[variant])
    return {"version": importlib.metadata.version(peer.DISTRIBUTION), "variants": found, "late": late}


def _ask(peer: Any, case: Case, variant: str, found: dict[str, dict[str, Any]]) -> None:
    try:
        found["answers"][_key(case)] = float(peer.answer(case, variant))
    except Exception as error:  # another's code: whatever it raises is its refusal
        found["refusals"][_key(case)] = _reason(error)


def _reason(error: Exception) -> str:
    """The start of a message, without what changes from row to row."""
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, Refusal) else f"{type(error).__name__}: {_DETAIL.split(first)[0]}"


def _key(case: Case) -> str:
    return f"{case.id}:{case.metric}"


def main() -> None:
    """Read, ask, write. A peer's own prints go to standard error."""
    logging.disable(logging.WARNING)
    name, limit_s = sys.argv[1], float(sys.argv[2])
    cases = [case_of(values) for values in json.load(sys.stdin)]
    with contextlib.redirect_stdout(sys.stderr):
        found = asked(importlib.import_module(f"tools.peers.{name}"), cases, limit_s)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
