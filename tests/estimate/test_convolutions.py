"""Convolutions and what is around them: layouts, depthwise ones, processors, one process for all devices."""

from __future__ import annotations

from typing import Any

import pytest

from raceline.estimate import constants
from raceline.estimate.layout import tabulate
from raceline.estimate.op_time import time_ops
from scenarios import devices, estimate, read, shapes


def seconds(model: str, accelerator: str, method: str | None = None, **other: float) -> float:
    """Seconds of one forward pass over 64 images."""
    table = tabulate(read(model), method)
    times = time_ops(table, shapes(0.0, **{"batch": 64.0, **other}), devices(accelerator), constants.load())
    return float(times.forward_compute_s.sum() + times.forward_memory_s.sum())


def trained(runtime: str, count: int, **setup: Any) -> float:
    """Seconds of a training step of ResNet-50 with 8 images a device."""
    found = estimate({
        "id": "a",
        "model": "resnet50",
        "workload": {"task": "train", "method": "pretrain", "image_size": 224},
        "hardware": {"accelerator": "a100-sxm-80gb", "count": count},
        "setup": {"runtime": runtime, "precision": "fp16-mixed", "micro_batch": 8, "global_batch": 8 * count,
                  "zero_stage": 0, "recompute": "none", **setup},
    })  # fmt: skip
    assert found.step_time_s is not None
    return float(found.step_time_s.mid)


def test_channels_last_saves_rearranging() -> None:
    assert seconds("resnet50", "rtx-3090", channels_last=1.0) < 0.9 * seconds("resnet50", "rtx-3090")


def test_fused_kernels_move_less() -> None:
    plain = seconds("resnet50", "rtx-3090", channels_last=1.0)
    assert seconds("resnet50", "rtx-3090", channels_last=1.0, fused=1.0) < plain


def test_depthwise_convolutions_are_far_from_the_peak() -> None:
    """MobileNetV2 has a thirteenth of ResNet-50's FLOPs and takes more than a sixth of its time."""
    assert seconds("mobilenetv2_100", "rtx-3090") > seconds("resnet50", "rtx-3090") / 6.0


@pytest.mark.parametrize("model", ["resnet50", "mobilenetv2_100"])
def test_a_pass_of_twice_the_images_takes_longer(model: str) -> None:
    assert seconds(model, "a100-sxm-80gb", batch=128.0) > seconds(model, "a100-sxm-80gb")


def test_dataparallel_starts_the_kernels_of_all_devices() -> None:
    assert trained("pytorch-dp", 4) > 2.0 * trained("pytorch-ddp", 4)


def test_early_versions_take_longer_to_start_kernels() -> None:
    assert trained("pytorch", 1, runtime_version="1.4") > 1.3 * trained("pytorch", 1)
