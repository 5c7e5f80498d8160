"""The distiller opens tables of single operations and nothing else of the package it reads."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "tools" / "distil"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("distil_tables", FOLDER / "tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "silicon_sample.csv",
        "support_matrix.csv",
        "h100_sxm.yaml",
        "moe_a2a_perf.parquet",
        "gemm_perf.parquet.txt",
    ],
)
def test_other_files_of_the_package_are_refused(tables: ModuleType, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("measured end to end", encoding="utf-8")
    with pytest.raises(tables.RefusedError, match="not a table of single operations"):
        tables.check(path)
    with pytest.raises(tables.RefusedError):
        tables.read(tables.Source(path, "h100_sxm", "vllm", "1.0"))


def test_a_table_of_one_operation_is_allowed(tables: ModuleType) -> None:
    for name in tables.ALLOWED.values():
        assert tables.check(Path("anywhere") / name).name == name


def test_only_allowed_names_are_found(tables: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "package" / "systems" / "data" / "h100_sxm" / "gemm" / "vllm" / "0.24.0"
    folder.mkdir(parents=True)
    for name in ("gemm_perf.parquet", "silicon_sample.csv"):
        (folder / name).touch()
    found = [source for kind in tables.ALLOWED for source in tables.sources(tmp_path, kind)]
    assert [(source.path.name, source.system, source.engine, source.version) for source in found] == [
        ("gemm_perf.parquet", "h100_sxm", "vllm", "0.24.0")
    ]


def test_only_one_function_opens_tables(tables: ModuleType) -> None:
    readers = [
        path.name
        for path in FOLDER.glob("*.py")
        if "read_parquet" in path.read_text(encoding="utf-8")
        or "read_csv" in path.read_text(encoding="utf-8")
    ]
    assert readers == ["tables.py"]
