from __future__ import annotations

import pytest

from raceline.catalog.names import hyphened, take_apart


@pytest.mark.parametrize(
    ("text", "core", "form", "memory_gib"),
    [
        ("A100-SXM4-80GB", "a100", "sxm4", 80),
        ("A10G-24GB", "a10g", "", 24),
        ("RTX2080Ti-22GB", "rtx2080ti", "", 22),
        ("H100PCIe", "h100", "pcie", None),
        ("Apple M3 Max 128GB unified", "m3max", "", 128),
        ("24GB card", "", "", 24),
    ],
)
def test_a_name_is_taken_apart(text: str, core: str, form: str, memory_gib: float | None) -> None:
    found = take_apart(text)
    assert (found.core, found.form, found.memory_gib) == (core, form, memory_gib)


def test_a_profile_is_not_a_memory_size() -> None:
    found = take_apart("A100 MIG 1g.10gb")
    assert (found.mig_profile, found.memory_gib) == ("1g.10gb", None)


def test_spellings_share_one_hyphened_form() -> None:
    assert hyphened(" NVIDIA_A100  SXM ") == "nvidia-a100-sxm"
