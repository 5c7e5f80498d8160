"""Other estimators on the rows that raceline is scored on: writes docs/results/peers.json.

python -m tools.peers                 install what is missing, ask all, write
python -m tools.peers hf_mem_weights  only these; what others gave before stays
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.peers.case import Case
from tools.peers.gather import GROUPS, gather
from tools.peers.score import PeerResult, key, result

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / ".venv-peers"
RESULTS = ROOT / "docs" / "results" / "peers.json"
PEERS = (
    "llm_analysis_training", "accelerate_estimate", "deepspeed_states", "megatron_theory", "hf_mem_weights",
    "aiconfigurator_serving",
)  # fmt: skip
TORCH = "torch==2.13.0"
LIMIT_S = 600.0
GRACE_S = 300.0


def main() -> None:
    """Ask the named peers, or all of them."""
    names = sys.argv[1:] or list(PEERS)
    cases = gather()
    for name in names:
        peer = _peer(name)
        found = compare(name, environment(peer), cases)
        others = [one for one in _before() if one["peer"].partition(" (")[0] != peer.NAME]
        _write(others + [asdict_of(one) for one in found])


def _peer(name: str) -> Any:
    return importlib.import_module(f"tools.peers.{name}")


def _before() -> list[dict[str, Any]]:
    return list(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.is_file() else []


def asdict_of(one: PeerResult) -> dict[str, Any]:
    """A result as a mapping."""
    return {name: getattr(one, name) for name in one.__struct_fields__}


def _write(results: list[dict[str, Any]]) -> None:
    results.sort(key=lambda one: (GROUPS.index(one["group"]), one["peer"]))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def environment(peer: Any) -> Path:
    """The interpreter of the peer's own environment, made where it isn't there."""
    folder = ENVIRONMENTS / peer.NAME.split()[0].lower()
    python: Path = folder / "bin" / "python"
    stamp = folder / ".installed"
    if stamp.is_file():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    settings = {**os.environ, "DS_BUILD_OPS": "0"}
    first = [TORCH] if getattr(peer, "NEEDS_TORCH", False) else []
    if first:
        subprocess.run([*install, *first], check=True, env=settings)
    if hasattr(peer, "UNPACKED_WITH"):
        _unpack(python, folder, [*peer.UNPACKED_WITH, *peer.REQUIREMENTS])
    else:
        subprocess.run([*install, *first, *peer.REQUIREMENTS], check=True, env=settings)
    stamp.touch()
    return python


def _unpack(python: Path, folder: Path, options: Sequence[str]) -> None:
    """A wheel's files without installing it, where only a file of it is wanted."""
    wheels = folder / "wheels"
    download = [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*download, "--dest", str(wheels), *options], check=True)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(next(folder.glob("lib/python*/site-packages")))


def compare(name: str, python: Path, cases: Sequence[Case]) -> list[PeerResult]:
    """The peer's results by variant and group."""
    peer = _peer(name)
    mine = [case for case in cases if case.group in peer.GROUPS]
    refused = {key(case): reason for case in mine if (reason := peer.refusal(case))}
    able = [case for case in mine if key(case) not in refused]
    asked, sample = _sampled(peer, able)
    found = _answers(name, python, asked, getattr(peer, "LIMIT_S", LIMIT_S))
    scored = asked if hasattr(peer, "SAMPLE") else mine
    date, results = datetime.date.today().isoformat(), []
    late = dict.fromkeys(found["late"], "time limit")
    for at, (variant, said) in enumerate(found["variants"].items()):
        refusals = {**refused, **said["refusals"], **late}
        for group in peer.GROUPS:
            if at and group in getattr(peer, "ONE_VARIANT_GROUPS", ()):
                continue
            members = [case for case in scored if case.group == group]
            if members:
                results.append(
                    result(
                        _label(peer, variant, group), found["version"], _note(peer, group, sample), date,
                        group, members, said["answers"], refusals,
                    )
                )  # fmt: skip
    return results


def _label(peer: Any, variant: str, group: str) -> str:
    is_one = not variant or group in getattr(peer, "ONE_VARIANT_GROUPS", ())
    return str(peer.NAME) if is_one else f"{peer.NAME} ({variant})"


def _note(peer: Any, group: str, sample: str) -> str:
    note = getattr(peer, "NOTES", {}).get(group, peer.NOTE)
    return f"{note}; {sample}" if sample else str(note)


def _sampled(peer: Any, able: Sequence[Case]) -> tuple[list[Case], str]:
    """All cases, or those of a fixed stride over the rows where the peer is slow."""
    size = getattr(peer, "SAMPLE", None)
    if size is None:
        return list(able), ""
    ids = list(dict.fromkeys(case.id for case in able))
    stride = max(1, len(ids) // size)
    chosen = set(ids[::stride][:size])
    asked = sorted((case for case in able if case.id in chosen), key=peer.order)
    return asked, f"every {stride}th of {len(ids)} {peer.SAMPLED}"


def _answers(name: str, python: Path, cases: Sequence[Case], limit_s: float) -> dict[str, Any]:
    """What the peer says, asked in a process of its own environment."""
    done = subprocess.run(
        [str(python), "-m", "tools.peers.ask", name, str(limit_s)],
        input=json.dumps([asdict(case) for case in cases]),
        capture_output=True, text=True, cwd=ROOT, timeout=limit_s + GRACE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
