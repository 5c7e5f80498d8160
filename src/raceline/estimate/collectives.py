"""Time of collectives by topology and message size: ring and tree terms over the slowest link.

A ring all-reduce of B bytes over n devices moves 2 (n - 1) / n x B over each link, an all-gather
or reduce-scatter half of that, an all-to-all (n - 1) / n x B. Where a group spans nodes, the
cards of one node add up their network rates, and the slower of the two levels counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """The bandwidth (bytes/s a device) and latency (s a step) of one communicating group."""

    size: Floats
    bytes_s: Floats
    latency_s: Floats

    def all_gather(self, payload: Floats) -> Floats:
        """Seconds to gather `payload` bytes (the whole) on every device; reduce-scatter is alike."""
        moved = (self.size - 1.0) / self.size * payload
        return np.where(self.size > 1, moved / self.bytes_s + self.latency_s, 0.0)

    def all_reduce(self, payload: Floats) -> Floats:
        """Seconds to sum `payload` bytes over all devices."""
        return 2.0 * self.all_gather(payload)

    def all_to_all(self, payload: Floats) -> Floats:
        """Seconds to exchange `payload` bytes that each device sends in all."""
        return self.all_gather(payload)


def group(devices: Devices, device: Ints, size: Floats, stride: Floats, efficiency: Efficiency) -> Group:
    """The group of `size` devices whose ranks lie `stride` apart (tensor parallel: 1)."""
    per_node = devices.per_node[device]
    span = size * stride
    inside = np.maximum(np.minimum(size, np.floor(per_node / np.maximum(stride, 1.0))), 1.0)
    nodes = np.where(span > per_node, np.ceil(size / inside), 1.0)
    intra = _intra(devices, device, inside, efficiency)
    network = np.maximum(devices.inter_bytes_s[device], 1.0) * efficiency.collective_between
    shared = network * np.where(nodes > 1, inside, 1.0)
    bytes_s = np.where(nodes > 1, np.minimum(intra, shared), intra)
    only_network = (nodes > 1) & (inside <= 1.0)
    bytes_s = np.where(only_network, network, bytes_s)
    steps = np.log2(np.maximum(size, 1.0)) + np.where(nodes > 1, np.log2(np.maximum(nodes, 1.0)), 0.0)
    return Group(size, bytes_s, efficiency.collective_latency_s * np.maximum(steps, 1.0))


def _intra(devices: Devices, device: Ints, size: Floats, efficiency: Efficiency) -> Floats:
    """Rate inside a node: a pair may share only part of a mesh's links, and PCIe is shared by all."""
    full, pair = devices.intra_bytes_s[device], devices.pair_bytes_s[device]
    fraction = np.where(size <= 2.0, efficiency.collective_two, devices.intra_fraction[device])
    mesh = np.where(pair < full, np.minimum(full, pair * np.maximum(size - 1.0, 1.0)), full)
    is_pcie = devices.node_scale[device] < 1.0
    crowded = np.where(is_pcie, 2.0 / np.maximum(size, 2.0), 1.0)
    return mesh * fraction * crowded
