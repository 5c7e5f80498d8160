"""The calibration's factors in a search are those of the estimate of the same run."""

from __future__ import annotations

import numpy as np
import pytest

from raceline.estimate import constants
from raceline.estimate.calibration import Calibration, area_of, keys_on
from raceline.estimate.devices import Device, arrange
from raceline.plan.scales import scales
from scenarios import catalogue


@pytest.mark.parametrize("name", ["jetson-agx-orin-64gb", "h100-sxm", "rtx-4090"])
def test_a_device_at_the_edge_takes_the_factors_of_the_edge(name: str) -> None:
    accelerator = catalogue().accelerators[name]
    keys = keys_on(accelerator, "llama.cpp", "16bit", True, "infer", "dense", "")
    factors = np.arange(1.0, 1.0 + len(Calibration().scale(keys))) / 100.0
    calibration = Calibration({f"area={area_of(keys)}": factors})
    devices = arrange([Device(accelerator=accelerator)], constants.physics())
    at = np.zeros(1, dtype=np.int64)
    found = scales(calibration, devices, at, at, lambda _: ("llama.cpp", "16bit", True), "infer", "dense")
    assert found[0] == pytest.approx(np.exp(factors))
    assert keys.is_edge == (name == "jetson-agx-orin-64gb")
