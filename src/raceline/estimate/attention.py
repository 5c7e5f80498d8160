"""Time of attention: measured curves of fused kernels, plain products where scores are written out.

Prefill (and training) computes pairs of many queries with many keys; while decoding, one query of a
sequence reads its whole cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raceline.estimate import kernels
from raceline.estimate.calibration import ATTENTION, CACHE, TRAFFIC
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices
from raceline.estimate.layout import Columns, Floats

if TYPE_CHECKING:
    from raceline.estimate.op_time import Shapes

# Elements of 16 bits that tensor cores load at once (https://docs.nvidia.com/deeplearning/performance/).
TENSOR_CORE_SIDE = 8


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Of each attention op (U x ops): new positions of a sample, the keys that stand before the last of
    them and those that one sees in the mean, heads on a device, pairs and FLOPs of all copies."""

    per_sample: Floats
    keys: Floats
    seen: Floats
    heads: Floats
    pairs: Floats
    flops: Floats


def attention_seconds(
    ops: Columns, shapes: Shapes, devices: Devices, efficiency: Efficiency, work: AttentionWork
) -> Floats:
    """Seconds of a forward pass: by fused kernels, or as plain products, with what is read of scores
    that are written out."""
    decoding, flash = shapes.decoding[:, None] > 0, shapes.flash[:, None] > 0
    if not len(ops):
        return work.flops
    fused = work.flops if decoding.all() else _prefill(ops, shapes, devices, work)
    if decoding.any():
        fused = np.where(decoding, _decode(ops, shapes, devices, work), fused)
    seconds = fused if flash.all() else np.where(flash, fused, _plain(ops, shapes, devices, efficiency, work))
    unfused = np.where(shapes.fused > 0, efficiency.score_passes, efficiency.eager_score_passes)[:, None]
    passes = np.where(flash, efficiency.window_bias * ops["window_bias"], unfused)
    if not passes.any():
        return seconds
    rate = devices.bandwidth_bytes_s[shapes.device][:, None] * efficiency.memory
    per_byte = shapes.scale[:, TRAFFIC, None] / rate
    return seconds + work.pairs * passes * shapes.activation_bytes[:, None] * per_byte


def _plain(
    ops: Columns, shapes: Shapes, devices: Devices, efficiency: Efficiency, work: AttentionWork
) -> Floats:
    """Two products and a softmax."""
    peak = devices.peak_flops[shapes.device, shapes.precision][:, None]
    compute = work.flops * (efficiency.eager_attention * shapes.scale[:, ATTENTION, None] / peak)
    is_unaligned = (ops["backward"] > 0) & (ops["head_dim"] % TENSOR_CORE_SIDE > 0)
    compute *= np.where(is_unaligned, efficiency.unaligned_heads, 1.0)
    reading = _cache_bytes(ops, shapes, work) * shapes.scale[:, CACHE, None]
    return np.maximum(compute, reading / devices.streamed_bytes_s[shapes.device][:, None])


def _prefill(ops: Columns, shapes: Shapes, devices: Devices, work: AttentionWork) -> Floats:
    curve = _either(ops, devices.kernels.prefill, devices.kernels.latent_prefill, shapes)
    rows = shapes.batch[:, None] * work.per_sample * work.heads
    moved = rows * (ops["head_dim"] + ops["value_dim"]) * (1.0 + ops["kv_heads"] / ops["heads"])
    compute, memory = kernels.prefill_bounds(
        curve, work.flops, np.maximum(rows, 1.0), np.maximum(np.minimum(work.keys, work.per_sample), 1.0),
        ops["head_dim"], devices.attention_flops[shapes.device, shapes.precision][:, None],
        moved * ops.count * shapes.activation_bytes[:, None], devices.bandwidth_bytes_s[shapes.device][:, None],
    )  # fmt: skip
    scale = shapes.scale[:, ATTENTION, None]
    return (kernels.together(compute, memory) + curve.floor_s * ops.count) * scale


def _decode(ops: Columns, shapes: Shapes, devices: Devices, work: AttentionWork) -> Floats:
    """A latent cache is multiplied as it stands: keys of its full width, values without their positions."""
    curve = _either(ops, devices.kernels.decode, devices.kernels.latent_decode, shapes)
    depth = 2.0 * ops["cache_width"] - (ops["head_dim"] - ops["value_dim"])
    flops = np.where(_is_latent(ops), 2.0 * work.pairs * depth, work.flops)
    batch = shapes.batch[:, None]
    caches = np.where(_is_latent(ops), 1.0, np.maximum(ops["kv_heads"] / shapes.tp[:, None], 1.0)) * batch
    compute, memory = kernels.decode_bounds(
        curve, flops, caches, np.maximum(work.seen, 1.0),
        devices.attention_flops[shapes.device, shapes.precision][:, None], _cache_bytes(ops, shapes, work),
        devices.bandwidth_bytes_s[shapes.device][:, None],
    )  # fmt: skip
    bounds = kernels.together(
        compute * shapes.scale[:, ATTENTION, None], memory * shapes.scale[:, CACHE, None]
    )
    return bounds + (curve.floor_s + curve.row_s * batch * work.heads) * ops.count


def _either(ops: Columns, plain: kernels.Curve, latent: kernels.Curve, shapes: Shapes) -> kernels.Curve:
    """The constants of plain or of latent attention, for each op."""
    one = kernels.take(plain, shapes.device)
    is_latent = _is_latent(ops)
    if not is_latent.any():
        return one
    other = kernels.take(latent, shapes.device)
    names = type(plain).__slots__
    return type(plain)(
        **{name: np.where(is_latent, getattr(other, name), getattr(one, name)) for name in names}
    )


def _is_latent(ops: Columns) -> NDArray[np.bool_]:
    plain = ops["kv_heads"] * (ops["head_dim"] + ops["value_dim"])
    return (ops["cache_width"] > 0) & (ops["cache_width"] < plain)


def _cache_bytes(ops: Columns, shapes: Shapes, work: AttentionWork) -> Floats:
    """Bytes of cache that one pass reads on one device; tp beyond the key heads copies them."""
    plain = ops["kv_heads"] * (ops["head_dim"] + ops["value_dim"])
    width = np.where(ops["cache_width"] > 0, ops["cache_width"], plain)
    heads = np.where(_is_latent(ops), 1.0, np.maximum(ops["kv_heads"], 1.0))
    shared = np.maximum(np.minimum(shapes.tp[:, None], heads), 1.0)
    cached = shapes.batch[:, None] * work.seen * width / shared
    return cached * ops.count * shapes.cache_bytes[:, None]
