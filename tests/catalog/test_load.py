from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest

from raceline.catalog import load
from raceline.catalog.types import Accelerator


def test_an_empty_cell_is_unknown_and_not_zero() -> None:
    item = load.from_cells(
        {"id": "x", "vendor": "v", "name": "n", "kind": "gpu", "memory_gib": "", "source_url": "s"},
        Accelerator,
    )
    assert item.memory_gib is None


def test_numbers_are_read_from_text() -> None:
    item = load.from_cells(
        {"id": "x", "vendor": "v", "name": "n", "kind": "gpu", "memory_gib": "24", "source_url": "s"},
        Accelerator,
    )
    assert item.memory_gib == 24.0


def test_a_word_where_a_number_belongs_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        load.from_cells(
            {"id": "x", "vendor": "v", "name": "n", "kind": "gpu", "memory_gib": "much", "source_url": "s"},
            Accelerator,
        )


def test_profiles_and_frameworks_are_lists() -> None:
    card = load.accelerators()["a100-sxm-80gb"]
    assert "1g.10gb" in card.mig_profiles
    assert "pytorch" in card.frameworks_supported


def test_rows_are_frozen() -> None:
    with pytest.raises(AttributeError):
        load.accelerators()["t4"].memory_gib = 17  # type: ignore[misc]


def test_a_file_is_read_once() -> None:
    assert load.offers() is load.offers()


def test_importing_the_loader_reads_no_file() -> None:
    code = "import sys; from raceline.catalog import load; sys.exit(load.accelerators.cache_info().currsize)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_large_files_load_within_their_budget() -> None:
    for read in (load.accelerators, load.offers, load.links):
        read.cache_clear()
    start = time.process_time()
    load.accelerators(), load.offers(), load.links()
    # 30 ms is the budget on a quiet machine; the test leaves room for a busy one
    assert time.process_time() - start < 0.15
