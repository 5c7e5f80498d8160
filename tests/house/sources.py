"""The source files of raceline, parsed once for the tests that guard their shape."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/raceline"
SHELLS = ("cli", "web")


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module by its path below src/raceline."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def below_the_shells() -> dict[str, ast.Module]:
    """The modules that hold no sentences and print nothing."""
    return {name: tree for name, tree in modules().items() if name.split("/")[0] not in SHELLS}


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def docstrings(tree: ast.Module) -> set[int]:
    """The identities of the constants that are docstrings or stand alone as a statement."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
