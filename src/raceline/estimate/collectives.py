"""Time of collectives by topology and message size: measured curves inside a node, a model between.

Inside a node `raceline.estimate.kernels` has the curves. Where a group spans nodes, the cards of one
node add up their network rates, the slower of the two levels counts, and each doubling of the nodes
adds a latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.estimate import kernels
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Group:
    """Communicating groups of `size` devices, `inside` of them in one node: the rates of their links
    there and of a node's network (bytes/s a device), and what the network adds to each start."""

    size: Floats
    inside: Floats
    nodes: Floats
    link_bytes_s: Floats
    network_bytes_s: Floats
    network_start_s: Floats
    device: Ints
    curves: kernels.CollectiveCurve

    def all_gather(self, payload: Floats, times: Floats | float = 1.0) -> Floats:
        """Seconds to gather `payload` bytes (the whole) on every device, in `times` messages."""
        return self._seconds("all_gather", payload, times)

    def reduce_scatter(self, payload: Floats, times: Floats | float = 1.0) -> Floats:
        """Seconds to sum `payload` bytes and leave each device its part."""
        return self._seconds("reduce_scatter", payload, times)

    def all_reduce(self, payload: Floats, times: Floats | float = 1.0) -> Floats:
        """Seconds to sum `payload` bytes over all devices."""
        return self._seconds("all_reduce", payload, times)

    def engine_all_reduce(self, payload: Floats, times: Floats | float = 1.0) -> Floats:
        """The same as inference engines do it: by kernels of their own inside a captured graph."""
        return self._seconds("engine_all_reduce", payload, times)

    def all_to_all(self, payload: Floats, times: Floats | float = 1.0) -> Floats:
        """Seconds to exchange `payload` bytes that each device sends in all."""
        return self._seconds("all_to_all", payload, times)

    def seconds_per_byte(self, operation: str) -> Floats:
        """What one more byte of a long message takes."""
        share = kernels.moved_share(operation, self.size)
        return np.where(self.size > 1, share / self._rate(self._curve(operation)), 0.0)

    def start_s(self, operation: str) -> Floats:
        """What a long message takes beside its bytes."""
        curve = self._curve(operation)
        return np.where(self.size > 1, self._start(curve) + curve.ramp_s, 0.0)

    @property
    def bytes_s(self) -> Floats:
        """The rate of a device's own traffic."""
        return self._rate(self._curve("all_gather"))

    def _seconds(self, operation: str, payload: Floats, times: Floats | float) -> Floats:
        curve = self._curve(operation)
        moved = kernels.moved_share(operation, self.size) * payload / self._rate(curve)
        each = self._start(curve) + kernels.ramp_seconds(curve, payload / times)
        return np.where(self.size > 1, moved + times * each, 0.0)

    def _curve(self, operation: str) -> kernels.CollectiveCurve:
        return kernels.row_of(self.curves, (self.device, kernels.COLLECTIVES.index(operation)))

    def _start(self, curve: kernels.CollectiveCurve) -> Floats:
        inside = np.where(self.inside > 1, kernels.start_seconds(curve, self.inside), 0.0)
        return inside + self.network_start_s

    def _rate(self, curve: kernels.CollectiveCurve) -> Floats:
        inside = self.link_bytes_s * kernels.link_rate(curve, self.inside)
        crossing = np.where(self.inside > 1, np.minimum(inside, self.network_bytes_s), self.network_bytes_s)
        return np.where(self.nodes > 1, crossing, inside)


def group(devices: Devices, device: Ints, size: Floats, stride: Floats, efficiency: Efficiency) -> Group:
    """The group of `size` devices whose ranks lie `stride` apart (tensor parallel: 1)."""
    per_node = devices.per_node[device]
    inside = np.maximum(np.minimum(size, np.floor(per_node / np.maximum(stride, 1.0))), 1.0)
    nodes = np.where(size * stride > per_node, np.ceil(size / inside), 1.0)
    network = np.maximum(devices.inter_bytes_s[device], 1.0) * efficiency.collective_between
    return Group(
        size=size,
        inside=inside,
        nodes=nodes,
        link_bytes_s=_links(devices, device, inside) * devices.link_scale[device],
        network_bytes_s=network * inside,
        network_start_s=efficiency.collective_latency_s * np.log2(np.maximum(nodes, 1.0)),
        device=device,
        curves=devices.kernels.collective,
    )


def _links(devices: Devices, device: Ints, size: Floats) -> Floats:
    """Rate of a device's links inside a node: a pair may share only part of a mesh's."""
    full, pair = devices.intra_bytes_s[device], devices.pair_bytes_s[device]
    return np.where(pair < full, np.minimum(full, pair * np.maximum(size - 1.0, 1.0)), full)
