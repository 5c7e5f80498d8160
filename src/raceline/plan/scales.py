"""The calibration's factors of what a plan searches: devices x runtimes x precisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import Calibration, columns, keys_on, number_word, unscaled
from raceline.estimate.devices import Devices
from raceline.estimate.layout import Floats

Ints = NDArray[np.int64]


def scales(
    calibration: Calibration, devices: Devices, device: Ints, other: Ints,
    keys: Callable[[int], tuple[str, str, bool]], task: str, model_class: str, method: str = "",
) -> Floats:  # fmt: skip
    """Rows x KINDS. `other`: a code of everything beside the device; `keys` gives its runtime, its
    number word and whether its kernels are fused."""
    if not calibration.by_scope:
        return unscaled(len(device))
    span = int(other.max(initial=0)) + 1
    codes, index = np.unique(device * span + other, return_inverse=True)
    rows = []
    for code in codes.tolist():
        accelerator = devices.items[code // span].accelerator
        runtime, numbers, is_fused = keys(code % span)
        rows.append(
            calibration.scale(keys_on(accelerator, runtime, numbers, is_fused, task, model_class, method))
        )
    return columns(rows)[index]


def number_words(formats: Sequence[str], stored: Sequence[float]) -> list[str]:
    """The number word of each precision: its format and the width of its stored weights."""
    return [number_word(name, width) for name, width in zip(formats, stored, strict=True)]
