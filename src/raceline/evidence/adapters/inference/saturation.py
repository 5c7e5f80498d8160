"""How many sequences an engine runs at once when more wait than it can take."""

from __future__ import annotations

from raceline.catalog.types import Accelerator
from raceline.models import count
from raceline.models.graph import Attention, Model

# Share of the memory that engines take for weights and cache, as vLLM's and TensorRT-LLM's defaults.
MEMORY_SHARE = 0.9
MOST_IF_UNKNOWN = 256
# Share of a device's memory that weights may take when devices are cut to serve them.
ROOM_FOR_WEIGHTS = 0.75


def sequences(
    model: Model, accelerator: Accelerator, devices: int, weight_bits: float, cache_bytes: float, length: int,
    most: int,
) -> int:  # fmt: skip
    """Sequences of `length` positions whose cache has room beside the weights on `devices` devices, at
    most `most`."""
    memory = (accelerator.memory_gib or 0.0) * 2**30 * MEMORY_SHARE * devices
    room = memory - count.parameters(model) * weight_bits / 8.0
    each = sum(_cached(op, length) * block.repeat for block in model.blocks for op in block.ops
               if isinstance(op, Attention)) * cache_bytes  # fmt: skip
    if room <= 0 or each <= 0:
        return most if each <= 0 else 1
    return max(1, min(most, int(room / each)))


def least_cut(model: Model, accelerator: Accelerator, devices: int, weight_bits: float) -> int:
    """The least tensor parallelism, a power of two that divides the devices, which leaves room beside the weights."""
    weights = count.parameters(model) * weight_bits / 8.0
    room = (accelerator.memory_gib or 0.0) * 2**30 * ROOM_FOR_WEIGHTS
    powers = [tp for tp in range(1, devices + 1) if devices % tp == 0 and not tp & (tp - 1)]
    return next((tp for tp in powers if weights / tp <= room), powers[-1])


def _cached(op: Attention, length: int) -> float:
    return float(min(length, op.window or length) * op.cache_width)
