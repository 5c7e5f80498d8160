"""Fitness tests: sizes, names, sentences, printing, docstrings and imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from sources import ROOT, SOURCE, below_the_shells, docstrings, functions, modules

LONGEST_MODULE = 500
LONGEST_FUNCTION = 60
FORBIDDEN = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers", "v2"}
# function -> why it is long
LONG_FUNCTIONS: dict[str, str] = {}
# text that looks like a sentence and is data of a file format, by module
_WAYS = {"rebuild the engine", "one environment per framework", "one resolver run over all requirements"}
DATA_STRINGS: dict[str, set[str]] = {
    # keys of reports as their programs print them
    "stack/readers/keys.py": {
        "cuda used to build pytorch", "rocm used to build pytorch", "is cuda available", "hip runtime version",
        "gpu models and configuration", "nvidia driver version", "os platform and distribution", "cuda toolkit version",
        "cuda driver version", "cuda runtime version",
    },
    # names of ways in the structure of a fix, and a command
    "stack/rules/inference.py": _WAYS,
    "stack/rules/libraries.py": _WAYS | {"pip install torch"},
    "stack/view.py": _WAYS | {"link the nvidia/*/lib files next to the package"},
}  # fmt: skip

# modules that exist only beside an extra, and why; they are imported inside the function that needs them
WITH_AN_EXTRA = {"models/readers/torch_trace.py": "subclasses PyTorch's dispatch mode"}

# modules that read the environment beside the shells, and why
READS_ENVIRONMENT = {
    "api.py": "the commands' Python twin finds the user's own runs as the commands do",
    "measure/root.py": "the boundary to the machine: loader path, active environment",
}

# markup and styles are what these modules write
_MARKUP = {"present/html.py", "present/svg.py"}
_WORD = re.compile(r"[A-Za-z][a-z'’]+")
_TOKEN = re.compile(r"[A-Za-z][A-Za-z'’-]*[,;:.!?)]*|\{\}[,;:.!?%)]*|\d[\d.,]*%?")


@pytest.mark.parametrize("name", modules())
def test_a_module_stays_below_500_lines(name):
    assert len((SOURCE / name).read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


def test_functions_stay_below_60_lines():
    long = {
        f"{name}:{node.name}": node.end_lineno - node.lineno + 1
        for name, tree in modules().items()
        for node in functions(tree)
        if node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert set(long) == set(LONG_FUNCTIONS), long


def test_modules_are_named_by_what_they_are_about():
    words = {name: set(re.split(r"[/_.]", name)) & FORBIDDEN for name in modules()}
    assert not {name: found for name, found in words.items() if found}


def looks_like_a_sentence(text: str) -> bool:
    """Three words of prose or more, set apart by blanks, and nothing but prose.

    Tokens are words, numbers and filled-in values. Ids, paths, patterns, markup and lists of names
    have other signs in them, or fewer words in small letters.
    """
    tokens = text.split()
    words = [word for word in _WORD.findall(text) if word[1:].islower()]
    return len(tokens) >= 3 and len(words) >= 3 and all(map(_TOKEN.fullmatch, tokens))


def _word_lists(tree: ast.Module) -> set[int]:
    """Constants that are split into words at once: ``"nvidia amd intel".split()``."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "split"
    }


def _texts(tree: ast.Module) -> list[tuple[int, str]]:
    skipped = docstrings(tree) | _word_lists(tree)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped | parts:
            found.append((node.lineno, node.value))
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            found.append((node.lineno, text))
    return found


def test_there_are_no_sentences_below_the_shells():
    found = [
        f"{name}:{line}: {text}"
        for name, tree in below_the_shells().items()
        if name not in _MARKUP
        for line, text in _texts(tree)
        if looks_like_a_sentence(text) and text not in DATA_STRINGS.get(name, ())
    ]
    assert not found


@pytest.mark.parametrize("text", ["does not fit", "needs {} GiB, but has {}", "The card is too small."])
def test_a_sentence_is_recognised(text):
    assert looks_like_a_sentence(text)


@pytest.mark.parametrize(
    "text", ["kv_cache", "rtx 4090", "a.b.c d.e.f g_h", r"(\d+) of (\d+)", "Expected `", "RTX 4090 24 GB"]
)
def test_data_is_no_sentence(text):
    assert not looks_like_a_sentence(text)


def test_nothing_below_the_shells_prints_or_reads_the_environment():
    found = []
    for name, tree in below_the_shells().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("print", "input")
            ):
                found.append(f"{name}:{node.lineno}: {node.func.id}")
            names = {"environ", "getenv", "stdout", "stderr"}
            if name in READS_ENVIRONMENT:
                names -= {"environ", "getenv"}
            if isinstance(node, ast.Attribute) and node.attr in names:
                found.append(f"{name}:{node.lineno}: {node.attr}")
    assert not found


def _public(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def test_modules_and_their_public_names_have_docstrings():
    bare = [name for name, tree in modules().items() if tree.body and not ast.get_docstring(tree)]
    bare += [
        f"{name}:{node.name}"
        for name, tree in modules().items()
        for node in _public(tree)
        if not ast.get_docstring(node)
    ]
    assert not bare


def test_nothing_unpickles_or_evaluates():
    found = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                found += [
                    f"{name}: {item}"
                    for item in names
                    if item.split(".")[0] in ("pickle", "marshal", "shelve")
                ]
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("eval", "exec")
            ):
                found.append(f"{name}:{node.lineno}: {node.func.id}")
    assert not found


def test_heavy_packages_are_imported_inside_functions():
    heavy = {
        "torch",
        "jax",
        "onnx",
        "keras",
        "timm",
        "h5py",
        "huggingface_hub",
        "rich",
        "transformers",
        "diffusers",
    }
    found = [
        f"{name}: {imported}"
        for name, tree in modules().items()
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for imported in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
        if imported.split(".")[0] in heavy and name not in WITH_AN_EXTRA
    ]
    assert not found


def test_modules_beside_an_extra_are_imported_inside_functions():
    names = {name.removesuffix(".py").replace("/", ".") for name in WITH_AN_EXTRA}
    found = [
        f"{name} imports {node.module}"
        for name, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("raceline.") in names
    ]
    assert not found


LAYERS = [
    {"cli", "web"}, {"api"}, {"project", "launch"}, {"tune", "compress", "serve"}, {"diagnose", "bench"},
    {"plan"}, {"accuracy"}, {"stack"}, {"estimate"}, {"measure"}, {"evidence"}, {"models", "catalog"}, {"present"},
]  # fmt: skip


def _layer(package: str) -> int | None:
    return next((index for index, names in enumerate(LAYERS) if package in names), None)


def _imports(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name.split(".")[1] for name in found if name.startswith("raceline.")]


def test_imports_go_down():
    wrong = []
    for name, tree in modules().items():
        own = name.split("/")[0].removesuffix(".py")
        for other in _imports(tree):
            mine, theirs = _layer(own), _layer(other)
            if mine is not None and theirs is not None and own != other and theirs <= mine:
                wrong.append(f"{name} imports {other}")
    assert not wrong


def test_importing_raceline_imports_nothing_heavy():
    code = "import sys, raceline; print(sorted({'numpy', 'click', 'rich', 'msgspec'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_public_names_are_callable_even_where_a_package_has_the_name():
    code = (
        "import raceline, raceline.estimate.result as r\n"
        "assert all(map(callable, (raceline.estimate, raceline.plan, raceline.catalog)))\n"
        "assert r.Estimate and raceline.InputError\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_the_ci_script_can_be_executed_and_stops_at_errors():
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
