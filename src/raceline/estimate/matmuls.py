"""Time and FLOPs of matmuls: arrays over shapes, one column for each distinct one of a model.

A matmul takes the measured curve of its number format, experts those of grouped products, which read
the weights of the experts that tokens reach. What calls it is in `raceline.estimate.op_time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from raceline.estimate import kernels
from raceline.estimate.calibration import MATMUL, WEIGHTS
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import CLASS_COLUMN, Devices
from raceline.estimate.layout import Columns, Floats, ModelTable

if TYPE_CHECKING:
    from raceline.estimate.op_time import Shapes

_NARROW = (kernels.CLASSES.index("8bit"), kernels.CLASSES.index("4bit"))
_CLASS_16BIT, _CLASS_WEIGHT_ONLY = kernels.CLASSES.index("16bit"), kernels.CLASSES.index("weight_only")


@dataclass(frozen=True, slots=True)
class MatmulTimes:
    """Arrays of U x GROUPS: seconds bound by compute and by memory, and FLOPs."""

    forward_compute: Floats
    forward_memory: Floats
    backward_compute: Floats
    backward_memory: Floats
    flops_forward: Floats
    flops_backward: Floats


def time_matmuls(
    table: ModelTable, rows: Floats, shapes: Shapes, devices: Devices, efficiency: Efficiency
) -> MatmulTimes:
    """All matmuls at all shapes. `rows`: U x ops, positions of one micro batch."""
    ops, groups = table.matmul, table.matmul.by_group()
    curve = _curves(table, shapes, devices)
    sides = _sides(ops, rows, shapes, devices, curve)
    m, n, k, copies, scale = sides.m, sides.n, sides.k, sides.copies, shapes.scale
    flop_s = devices.peak_flops[shapes.device, shapes.precision][:, None]
    bandwidth = devices.bandwidth_bytes_s[shapes.device][:, None]
    moved = _bytes(ops, shapes, m, n, k, copies)
    compute, memory = kernels.matmul_bounds(curve.dense, m, sides.wide, k, flop_s, moved, bandwidth)
    compute *= (n / sides.wide) * copies * (scale[:, MATMUL] * shapes.slowdown)[:, None]
    if table.is_trained:
        is_narrow = np.isin(CLASS_COLUMN[shapes.precision], _NARROW)
        compute *= np.where(is_narrow, efficiency.narrow_training, 1.0)[:, None]
    if np.any(shapes.weight_s):
        read = np.where(ops["quantisable"] > 0, n * k * copies, 0.0)
        memory = np.maximum(memory, read * shapes.weight_s[:, None])
    memory *= scale[:, WEIGHTS, None]
    adapter = 2.0 * m * ops["adapter_rank"] * (n + k) * copies
    if table.adapters.any():
        per_flop = curve.dense.compute / flop_s
        compute = compute + adapter * per_flop * efficiency.adapter * scale[:, MATMUL, None]
    total = kernels.together(compute, memory) + sides.floor_s
    is_compute = compute >= memory
    forward_compute, forward_memory = np.where(is_compute, total, 0.0), np.where(is_compute, 0.0, total)
    passes = ops["backward"] + ops["weight_gradient"]
    flops = 2.0 * m * n * k * copies
    adapter_flops = adapter * np.where(ops["adapter_rank"] > 0, 2.0, 0.0)
    return MatmulTimes(
        forward_compute @ groups,
        forward_memory @ groups,
        (forward_compute * passes) @ groups,
        (forward_memory * passes) @ groups,
        (flops + adapter) @ groups,
        (flops * passes + adapter_flops) @ groups,
    )


def _bytes(ops: Columns, shapes: Shapes, m: Floats, n: Floats, k: Floats, copies: Floats) -> Floats:
    """Bytes that a matmul must read and write."""
    quantisable = ops["quantisable"] > 0
    weight_bytes = np.where(quantisable, shapes.weight_bytes[:, None], shapes.plain_weight_bytes[:, None])
    return (n * k * weight_bytes + m * (k + n) * shapes.activation_bytes[:, None]) * copies


@dataclass(frozen=True, slots=True)
class _Curves:
    """Constants of every op (U x ops, or U x 1 where all are alike), and those of experts' routing."""

    dense: kernels.MatmulCurve
    experts: kernels.ExpertCurve


def _curves(table: ModelTable, shapes: Shapes, devices: Devices) -> _Curves:
    """The curves of a shape's number format; where weights alone are narrow, of kernels that widen them.
    Training widens them in a pass of its own, and its experts get so many tokens that their products
    run as others do; those of engines were measured from one token on."""
    column = CLASS_COLUMN[shapes.precision]
    if not table.is_trained:
        only_weights = (column == _CLASS_16BIT) & (shapes.weight_bytes < shapes.activation_bytes)
        column = np.where(only_weights, _CLASS_WEIGHT_ONLY, column)
    at = (shapes.device, column)
    dense, experts = kernels.take(devices.kernels.matmul, at), kernels.take(devices.kernels.experts, at)
    is_expert = table.matmul["experts"] > 1
    if table.is_trained or not is_expert.any():
        return _Curves(dense, experts)
    of_both = {
        name: np.where(is_expert, getattr(experts, name, 0.0), getattr(dense, name))
        for name in kernels.MatmulCurve.__slots__
    }
    return _Curves(kernels.MatmulCurve(**of_both), experts)


@dataclass(frozen=True, slots=True)
class _Sides:
    """M, N and K of one copy of each matmul (U x ops), how many there are, N of the product that they run
    in, and what its launches take."""

    m: Floats
    n: Floats
    k: Floats
    copies: Floats
    wide: Floats
    floor_s: Floats


def _sides(ops: Columns, rows: Floats, shapes: Shapes, devices: Devices, curve: _Curves) -> _Sides:
    is_expert, ep = ops["experts"] > 1, np.minimum(shapes.ep[:, None], ops["experts"])
    tp = np.where(is_expert, shapes.expert_tp[:, None], shapes.tp[:, None])
    visits, active = rows * ops["experts_per_token"] * shapes.expert_share[:, None], np.ones_like(rows)
    if is_expert.any():
        hit = kernels.experts_hit(curve.experts, ops["experts"] / ep, visits)
        active = np.where(is_expert, np.maximum(hit, 1e-9), 1.0)
    n = np.maximum(ops["n"] / np.where(ops["column"] > 0, tp, 1.0), 1.0)
    k = np.maximum(ops["k"] / np.where(ops["row"] > 0, tp, 1.0), 1.0)
    wider = np.where(shapes.fused[:, None] > 0, ops["wider"], 1.0)
    routing = (curve.experts.floor_s + curve.experts.visit_s * visits) * (ops["row"] > 0) * ops.count
    starts = (curve.dense.floor_s + _inputs(ops, rows, k, shapes, devices, curve)) * ops.count / wider
    return _Sides(
        m=np.where(is_expert, visits / active, rows),
        n=n,
        k=k,
        copies=ops.count * active,
        wide=n * wider,
        floor_s=np.where(is_expert, routing, starts),
    )


def _inputs(
    ops: Columns, rows: Floats, k: Floats, shapes: Shapes, devices: Devices, curve: _Curves
) -> Floats:
    """Seconds that an input takes to be brought to a narrow format, unless the kernel before does it."""
    apart = (1.0 - shapes.fused[:, None]) * (ops["quantisable"] > 0)
    bandwidth = devices.bandwidth_bytes_s[shapes.device][:, None]
    return np.asarray(kernels.input_seconds(curve.dense, rows, k, bandwidth) * apart)
