"""Time and FLOPs of convolutions: arrays over shapes, one column for each distinct one of a model.

A convolution is a matmul of output positions, output channels and taps x input channels, slower where
channels are few, that reads its input once. In 16 bits, tensor cores want channels last: in plain
PyTorch, whose layout is channels first, input and output are rearranged around each of them
(https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional). A depthwise one runs on the
vector units.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import CONVOLUTION
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import FORMATS, Devices
from raceline.estimate.layout import BATCH_NORM, GROUPS, PLANE_NORM, Columns, Floats, ModelTable

if TYPE_CHECKING:
    from raceline.estimate.op_time import Shapes

# Below about this many channels, kernels take narrower tiles and pad less.
SMALL_SIDE = 64.0
# Kernels of the backward pass with channels last take groups by the 32: others run on slow ones.
GROUPS_OF_KERNELS = 32.0
# Vector units of a device whose fp32 rate is not stated, as a share of its matmul rate.
VECTOR_SHARE = 1.0 / 16.0


@dataclass(frozen=True, slots=True)
class ConvolutionTimes:
    """Arrays of U x GROUPS: seconds bound by compute and by memory, and FLOPs."""

    forward_compute: Floats
    forward_memory: Floats
    backward_compute: Floats
    backward_memory: Floats
    flops_forward: Floats
    flops_backward: Floats


def time_convolutions(
    ops: Columns, rows: Floats, shapes: Shapes, devices: Devices, efficiency: Efficiency, is_trained: bool
) -> ConvolutionTimes:
    """All convolutions at all shapes. `rows`: U x ops, output positions of one micro batch. A training step
    slows all compute by what was found for matmuls; convolutions have a figure of their own."""
    if not len(ops):
        return ConvolutionTimes(*(np.zeros((len(shapes), GROUPS)) for _ in fields(ConvolutionTimes)))
    groups, passes = ops.by_group(), ops["backward"] + ops["weight_gradient"]
    flops = 2.0 * rows * ops["k"] * ops["n"] * ops.count
    is_deep = (ops["groups"] > 1) & (ops["groups"] == ops["n"])
    compute = np.where(
        is_deep,
        flops * _depthwise(shapes, devices, efficiency),
        flops * _dense(ops, shapes, devices, efficiency),
    )
    moved = _moved(ops, rows, is_deep, shapes, devices, efficiency)
    own = efficiency.convolution_training / efficiency.training if is_trained else 1.0
    scale = shapes.scale[:, CONVOLUTION, None]
    total = np.sqrt(compute * compute + moved * moved)
    copies = efficiency.rearranging_training if is_trained else efficiency.rearranging
    total = (total + copies * _rearranged(ops, rows, is_deep, shapes, devices, efficiency)) * scale
    forward_compute, forward_memory = (
        np.where(compute >= moved, total * own, 0.0),
        np.where(compute >= moved, 0.0, total),
    )
    slower = passes * np.where(is_deep, efficiency.depthwise_backward, 1.0)
    is_odd = (ops["groups"] > 1) & (ops["groups"] % GROUPS_OF_KERNELS > 0) & ~is_deep
    slower = slower * np.where(
        is_odd & (shapes.channels_last[:, None] > 0), efficiency.grouped_channels_last_backward, 1.0
    )
    return ConvolutionTimes(
        forward_compute @ groups,
        forward_memory @ groups,
        (forward_compute * slower) @ groups,
        (forward_memory * slower) @ groups,
        flops @ groups,
        (flops * passes) @ groups,
    )


def _dense(ops: Columns, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> Floats:
    """Seconds a FLOP of convolutions that mix channels: few channels in a group use tiles badly; on vector
    units, kernels of several taps save multiplications (Winograd, https://arxiv.org/abs/1509.09308)."""
    at = (shapes.device, shapes.precision)
    slow = efficiency.convolution * (
        1.0 + efficiency.convolution_n0 / (ops["n"] / ops["groups"] + SMALL_SIDE)
    )
    slow = slow * (1.0 + efficiency.convolution_k0 / (ops["k"] + SMALL_SIDE))
    slow = slow * np.where(ops["groups"] > 1, efficiency.grouped_convolution, 1.0)
    is_wide = ops["k"] * ops["groups"] > ops["input_elements"]
    slow = slow * np.where(is_wide & ~_has_units(shapes, devices)[:, None], efficiency.winograd, 1.0)
    own = np.where(devices.is_cpu[shapes.device], efficiency.cpu_convolution, devices.throttled[at])
    return np.asarray(slow * (own / devices.peak_flops[at])[:, None])


def _has_units(shapes: Shapes, devices: Devices) -> NDArray[np.bool_]:
    """Whether matrix units compute (U): a rate above that of the vector units."""
    peak = devices.peak_flops
    return np.asarray(
        peak[shapes.device, shapes.precision] > 1.5 * peak[shapes.device, FORMATS.index("fp32")]
    )


def _depthwise(shapes: Shapes, devices: Devices, efficiency: Efficiency) -> Floats:
    """Seconds a FLOP of depthwise convolutions, on the vector units."""
    vector = devices.peak_flops[shapes.device, FORMATS.index("fp32")]
    matrix = devices.peak_flops[shapes.device, shapes.precision]
    rate = np.where(vector > 0, vector, matrix * VECTOR_SHARE)
    is_cpu = devices.is_cpu[shapes.device]
    slow = np.where(is_cpu, efficiency.cpu_depthwise_convolution, efficiency.depthwise_convolution)
    return np.asarray((slow / rate)[:, None])


def _moved(
    ops: Columns, rows: Floats, is_deep: Floats, shapes: Shapes, devices: Devices, efficiency: Efficiency
) -> Floats:
    """Seconds to move weights, input and output; kernels of groups read their input more than once."""
    elements = (
        rows
        * (ops["input_elements"] + ops["n"])
        * np.where(
            is_deep,
            efficiency.depthwise_traffic,
            np.where(ops["groups"] > 1, efficiency.grouped_traffic, 1.0),
        )
    )
    again = np.where(devices.is_cpu[shapes.device], efficiency.cpu_convolution_weights, 1.0)
    weight_bytes = again * shapes.plain_weight_bytes
    moved = elements * shapes.activation_bytes[:, None] + ops["weights"] * weight_bytes[:, None]
    rate = devices.bandwidth_bytes_s[shapes.device] * efficiency.memory
    return moved * ops.count / rate[:, None]


def _rearranged(
    ops: Columns, rows: Floats, is_deep: Floats, shapes: Shapes, devices: Devices, efficiency: Efficiency
) -> Floats:
    """Seconds to bring input and output into the order that matrix units want."""
    has_units = _has_units(shapes, devices)
    rate = devices.bandwidth_bytes_s[shapes.device] * efficiency.memory
    per_element = shapes.activation_bytes * (shapes.channels_last <= 0) * has_units / rate
    return np.where(
        is_deep, 0.0, rows * (ops["input_elements"] + ops["n"]) * ops.count * per_element[:, None]
    )


def plane_traffic(ops: Columns, shapes: Shapes, efficiency: Efficiency) -> Floats:
    """What memory-bound ops over an image's positions move, over their inputs and outputs: simple kernels,
    and norms. Autocast keeps layer norms and what is added to them in 32 bits, with copies between
    (https://docs.pytorch.org/docs/stable/amp.html)."""
    is_fused, is_mixed = shapes.fused[:, None] > 0, shapes.mixed[:, None] > 0
    plain = np.where(is_fused, efficiency.plane_fused, efficiency.plane_eager)
    layer = np.where(
        is_fused,
        np.where(is_mixed, efficiency.plane_norm_fused_mixed, efficiency.plane_norm_fused),
        np.where(is_mixed, efficiency.plane_norm_mixed, efficiency.plane_norm),
    )
    batch = np.where(is_fused, 1.0, efficiency.batch_norm)
    kind = ops["plane"]
    return np.asarray(plain * np.where(kind == BATCH_NORM, batch, np.where(kind == PLANE_NORM, layer, 1.0)))


def starts(table: ModelTable, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> Floats:
    """Seconds (U x GROUPS) that a processor's threads take to start with each op of one forward pass over an
    image (devices with queues of kernels hide it; batch norms are part of what is around them), and to
    bring the weights of matmuls into the order that its kernels want, which PyTorch does in each pass."""
    is_cpu = devices.is_cpu[shapes.device]
    if not is_cpu.any():
        return np.zeros((1, GROUPS))
    traffic, convolved = table.traffic, table.convolution
    seconds = (convolved.count * efficiency.cpu_convolution_s) @ convolved.by_group()
    is_plane = (traffic["plane"] > 0) & (traffic["plane"] != BATCH_NORM)
    seconds = seconds + (traffic.count * is_plane * efficiency.cpu_op_s) @ traffic.by_group()
    matmul = table.matmul
    is_image = matmul.extents[:, 1] + matmul.extents[:, 2] <= 0
    weights = (matmul["weights"] * matmul.count * is_image) @ matmul.by_group()
    again = (efficiency.cpu_convolution_weights - 1.0) * shapes.plain_weight_bytes
    per_weight = again / (devices.bandwidth_bytes_s[shapes.device] * efficiency.memory)
    return np.asarray(is_cpu[:, None] * (seconds[None, :] + per_weight[:, None] * weights[None, :]))
