from __future__ import annotations

import pytest

from raceline.catalog import constraints, load
from raceline.present.errors import Message
from raceline.present.text import has_text


def check(name: str, runtime: str | None = None, precision: str | None = None, link: str | None = None,
          count: int = 1, **more: str) -> list[Message]:  # fmt: skip
    runtimes = load.runtimes()
    return constraints.check(
        load.accelerators()[name], runtimes[runtime] if runtime else None, precision, link, count, **more
    )


REFUSED = {
    "TensorRT is NVIDIA's alone": ({"name": "mi300x", "runtime": "tensorrt"}, "runtime_not_for_vendor"),
    "a 4090 has no NVLink": ({"name": "rtx-4090", "link": "nvlink", "count": 2}, "no_such_link"),
    "AMD has no NVLink": ({"name": "mi300x", "link": "nvlink4"}, "no_such_link"),
    "no bf16 on a T4": ({"name": "t4", "precision": "bf16"}, "precision_needs_capability"),
    "no bf16 on a V100": ({"name": "v100-sxm2-16gb", "precision": "bf16"}, "precision_needs_capability"),
    "no fp8 on an A100": ({"name": "a100-sxm-80gb", "precision": "fp8"}, "precision_needs_capability"),
    "no fp4 on an H100": ({"name": "h100-sxm", "precision": "fp4"}, "precision_needs_capability"),
    "no fp16 on a TPU": ({"name": "tpu-v5e", "precision": "fp16"}, "precision_not_on_device"),
    "no fp8 on an MI250X": ({"name": "mi250x", "precision": "fp8"}, "precision_not_on_device"),
    "a TPU needs JAX or XLA": ({"name": "tpu-v5e", "runtime": "pytorch-fsdp2"}, "runtime_not_for_vendor"),
    "no vLLM on Pascal": ({"name": "p40", "runtime": "vllm"}, "runtime_needs_capability"),
    "no TensorRT-LLM on Volta": (
        {"name": "v100-sxm2-16gb", "runtime": "tensorrt-llm"},
        "runtime_needs_capability",
    ),
    "vLLM does not train": ({"name": "h100-sxm", "runtime": "vllm", "task": "train"}, "runtime_cannot_train"),
    "Inferentia does not train": ({"name": "inferentia2", "task": "train"}, "cannot_train"),
    "MLX needs macOS": (
        {"name": "apple-m3-max", "runtime": "mlx", "operating_system": "linux"},
        "runtime_not_on_system",
    ),
    "a bridge joins two": ({"name": "rtx-3090", "link": "nvlink", "count": 4}, "link_joins_fewer"),
    "a 4090 has no MIG": ({"name": "rtx-4090", "mig_profile": "1g.10gb"}, "no_mig"),
    "an A100 40 GB has no 1g.20gb": (
        {"name": "a100-sxm-40gb", "mig_profile": "1g.20gb"},
        "unknown_mig_profile",
    ),
    "MIG slices are alone": (
        {"name": "a100-sxm-80gb", "mig_profile": "1g.10gb", "count": 2},
        "mig_has_no_peers",
    ),
}


@pytest.mark.parametrize("fact", REFUSED)
def test_an_impossible_wish_is_refused_with_its_source(fact: str) -> None:
    wish, reason = REFUSED[fact]
    found = check(**wish)  # type: ignore[arg-type]
    assert f"catalog.{reason}" in [item.id for item in found]
    assert all(item.params["source_url"] for item in found)


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "h100-sxm", "runtime": "vllm", "precision": "fp8", "link": "nvlink4", "count": 8},
        {"name": "l4", "precision": "fp8"},
        {"name": "rtx-4090", "runtime": "tensorrt", "precision": "bf16"},
        {"name": "rtx-3090", "link": "nvlink", "count": 2},
        {"name": "tpu-v6e", "runtime": "maxtext", "precision": "bf16"},
        {"name": "mi300x", "runtime": "vllm", "precision": "fp8"},
        {"name": "a100-sxm-80gb", "mig_profile": "1g.10gb"},
        {"name": "rtx-4090", "link": "eth-10g", "count": 16},
    ],
)
def test_what_works_is_not_refused(wish: dict[str, str]) -> None:
    assert check(**wish) == []  # type: ignore[arg-type]


def test_one_fact_is_told_once() -> None:
    assert len(check("t4", "vllm", "bf16")) == 1


def test_several_4090_are_warned_of_their_missing_peer_access() -> None:
    found = constraints.cautions(load.accelerators()["rtx-4090"], count=2, precision="bf16")
    assert [item.id for item in found] == ["catalog.no_peer_access", "catalog.half_rate"]
    assert constraints.cautions(load.accelerators()["h100-sxm"], count=2, precision="bf16") == []


@pytest.mark.parametrize("fact", REFUSED)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_refusal_has_a_text(fact: str, language: str) -> None:
    assert has_text(f"catalog.{REFUSED[fact][1]}", language)
