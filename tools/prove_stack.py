"""Install solved sets for a CPU into fresh environments, import all of it in one process and let each compute.

    make prove-stack                 both sets, with a dated result file
    python tools/prove_stack.py --short   the first set alone, nothing written

A build of torch that stands in an index of its own is installed by its version alone: the index in use decides the
build.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from raceline.api import stack_solve
from raceline.stack.check import check
from raceline.stack.readers import read_text
from raceline.stack.request import Solution

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
TORCH = "torch==2.13.0"
SETS = (
    (TORCH, "tensorflow-cpu", "jax", "onnxruntime"),
    (TORCH, "jax", "onnxruntime", "torchao"),
)
# what each framework computes: the sum of a product of two matrices of ones, 2 x 3 by 3 x 2
COMPUTE = """
import json, sys
found = {}
for name in sys.argv[1].split(","):
    if name == "torch":
        import torch
        found[name] = [torch.__version__, float((torch.ones(2, 3) @ torch.ones(3, 2)).sum())]
    elif name.startswith("tensorflow"):
        import tensorflow as tf
        found[name] = [tf.__version__, float(tf.reduce_sum(tf.ones((2, 3)) @ tf.ones((3, 2))))]
    elif name == "jax":
        import jax, jax.numpy as jnp
        found[name] = [jax.__version__, float((jnp.ones((2, 3)) @ jnp.ones((3, 2))).sum())]
    elif name == "onnxruntime":
        import onnxruntime
        assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
        found[name] = [onnxruntime.__version__, 12.0]
    elif name == "torchao":
        import torchao
        found[name] = [torchao.__version__, 12.0]
    elif name == "numpy":
        import numpy
        found[name] = [numpy.__version__, float((numpy.ones((2, 3)) @ numpy.ones((3, 2))).sum())]
print(json.dumps(found))
"""


def solved(want: tuple[str, ...]) -> Solution:
    """The set for this Python, without a GPU."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    solution = stack_solve(want, gpu="none", python=python, with_uv=False)
    if solution.conflict is not None:
        raise SystemExit(f"no set for {', '.join(want)}")
    return solution


def proved(want: tuple[str, ...]) -> dict[str, object]:
    """What was installed, how long it took, and what each framework said."""
    solution = solved(want)
    pins = [f"{pick.package}=={pick.version}" for pick in solution.picks]
    with tempfile.TemporaryDirectory() as folder:
        python = str(Path(folder) / "venv" / "bin" / "python")
        start = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(Path(folder) / "venv")], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # first, so that what is installed after it keeps this build instead of choosing one
        for some in ([pin for pin in pins if pin.startswith("torch==")], pins):
            subprocess.run([*install, *some], check=True)
        installed = time.monotonic() - start
        names = ",".join(pick.package for pick in solution.picks)
        done = subprocess.run([python, "-c", COMPUTE, names], check=True, capture_output=True, text=True)
        said = json.loads(done.stdout.strip().splitlines()[-1])
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True
        ).stdout
    broken = [item.cause for item in check(read_text(frozen)).findings if item.verdict == "will_fail"]
    wrong = [name for name, (_, total) in said.items() if total != 12.0]
    if broken or wrong:
        raise SystemExit(f"check of what was installed: {broken}; wrong sums: {wrong}")
    return {"pins": pins, "install_s": installed, "said": said, "packages": len(frozen.splitlines())}


def page(found: list[dict[str, object]]) -> str:
    """The dated result."""
    lines = [
        f"# Solved CPU sets, installed and imported: {datetime.date.today().isoformat()}\n",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}; `make prove-stack`.",
        "Each set was installed by pip into a fresh environment, imported in one process, and computed with.\n",
        "| set | packages in all | seconds to install | versions that answered |",
        "| --- | --- | --- | --- |",
    ]
    for item in found:
        said = ", ".join(f"{name} {version}" for name, (version, _) in item["said"].items())  # type: ignore[attr-defined]
        lines.append(f"| {' '.join(item['pins'])} | {item['packages']} | {item['install_s']:.0f} | {said} |")  # type: ignore[arg-type]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prove the sets; write the result but for --short."""
    is_short = "--short" in sys.argv
    found = []
    for want in SETS[:1] if is_short else SETS:
        found.append(proved(want))
        print(json.dumps(found[-1]))
    if not is_short:
        path = RESULTS / f"stack-{datetime.date.today().isoformat()}.md"
        path.write_text(page(found), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
