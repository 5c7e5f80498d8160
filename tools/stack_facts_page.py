"""Write docs/stack_facts.md: the tables that the stack's verdicts stand on, how new they are and where from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from raceline.stack import facts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "stack_facts.md"
# tables that hold something else than the releases of one package
ROWS = {
    "torch_arch": "a release of torch in one CUDA build on one platform, and the GPUs that it has code for",
    "cuda_driver": "a CUDA toolkit: the driver packaged with it, the lowest driver that starts its programs",
    "driver_branch": "a driver branch that is the last for a GPU family, or has long-term support",
    "cuda_arch": "a compute capability: first and last toolkit",
    "cudnn": "a release of cuDNN, or a row of its support matrix",
    "tensorrt": "a release of TensorRT, or a row of its support matrix",
    "rocm": "a ROCm release and its GPU targets",
    "python_eol": "a Python and when it ends",
    "gpus": "a GPU by name: compute capability or gfx target",
    "distributions": "a Linux distribution and its C library",
    "onnxruntime_tensorrt": "which TensorRT a release of ONNX Runtime was built with",
    "numpy2_builds": "the first release of a package that was built for NumPy 2",
    "flash_attn": "a release of flash-attn that has prebuilt wheels, and for what",
    "bitsandbytes_cuda": "the CUDA versions that a release of bitsandbytes has libraries for, by platform",
    "extension_wheels": "an extension whose wheels name the C++ ABI of torch",
    "numpy_api": "a version of NumPy's C API and the NumPy that brought it",
    "protobuf_names": "a name that generated code uses of protobuf, and the releases that have it",
    "jax_plugins": "a release of one of JAX's CUDA plugins: the part it is bound to, the CUDA libraries it asks for",
}
HEAD = """# Facts of the stack

Written by `python tools/stack_facts_page.py`; a test holds that it is current.

Each row of a table names its source and the day on which that was so. An empty cell is unknown, and what is unknown
gives no verdict. `raceline stack check` says which row each verdict stands on.

`raceline stack refresh` (development) reads the package index for releases that the tables do not know and adds their
rows; `--look` only says what is new, `--all` reads the rows that stand again. It takes the index that pip is set up
with, or `--index`. What only release notes, install guides and support matrices tell stays for a person to fill in:
CUDA builds and capabilities of torch, tested configurations of TensorFlow, CUDA of ONNX Runtime's wheels, drivers.

- A bound under several markers is written as what holds with every Python of the release on Linux, with the lowest of
  the floors; where they have nothing in common it stays empty.
- Where the highest Python of a release's wheels repeats the lowest, a wheel for the stable ABI (or for any Python)
  serves all later ones too.
"""


def page() -> str:
    """The whole page."""
    packages: dict[str, list[str]] = {}
    for package, name in facts.PACKAGE_TABLES.items():
        packages.setdefault(name, []).append(package)
    lines = [
        "| table | one row is | rows | newest release | as of | from |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in sorted(facts.TABLES):
        rows = facts.table(name)
        what = ROWS.get(name) or f"a release of {' and '.join(packages[name])}"
        newest = next((str(next(iter(facts.releases(item)))) for item in packages.get(name, ())), "")
        days = f"{min(row['as_of'] for row in rows)} to {max(row['as_of'] for row in rows)}"
        lines.append(f"| `{name}` | {what} | {len(rows)} | {newest} | {days} | {hosts(rows)} |")
    rules = facts.rules().values()
    days = f"{min(item.as_of for item in rules)} to {max(item.as_of for item in rules)}"
    sources = hosts([{"source_url": item.source_url} for item in rules])
    lines.append(f"| `rules` | a fact that fits no table | {len(rules)} | | {days} | {sources} |")
    return "\n".join([HEAD, *lines, ""])


def hosts(rows: Iterable[Mapping[str, str]]) -> str:
    """The sites that rows come from, the most used first."""
    counted = Counter(urlsplit(address).hostname for row in rows for address in {*row["source_url"].split()})
    named = [str(host) for host in sorted(counted, key=lambda host: (-counted[host], str(host)))]
    rest = len(named) - 4
    return ", ".join(named[:4]) + (f" and {rest} more" if rest > 0 else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
