"""Weights that quantisers packed: the shapes of what they stand for.

Layouts: GPTQ (github.com/AutoGPTQ/AutoGPTQ, nn_modules/qlinear), AWQ (github.com/mit-han-lab/llm-awq,
quantize/qmodule.py), bitsandbytes (QuantState), compressed-tensors (compressors/), gpt-oss (its weights.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from raceline.models.readers.tensors import Shape

_WORD_BITS = 32
_NF4 = ".quant_state.bitsandbytes__nf4"
_SCALES = re.compile(
    r"\.(weight_scale(_inv|_2)?|input_scale|activation_scale|[kv]_scale|SCB|weight_format"
    r"|weight_(global_scale|zero_point|shape|g_idx)"
    r"|weight\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.bitsandbytes__(nf4|fp4)))$"
)
_MARKS = (".qweight", "_packed", "_blocks", _NF4, "_scale", "_scale_inv", ".SCB", "_scale_2")
_BESIDE = {".qzeros": ".qweight", ".g_idx": ".qweight", ".scales": ".qweight", "_scales": "_blocks"}


def unpacked(shapes: Mapping[str, Shape], types: Mapping[str, str]) -> tuple[dict[str, Shape], str | None]:
    """The shapes of the weights that packed ones hold, and how they are packed (None: they aren't)."""
    if not any(name.endswith(_MARKS) for name in shapes):
        return dict(shapes), None
    packing: str | None = None
    found: dict[str, Shape] = {}
    for name, shape in shapes.items():
        if name.endswith(".qweight") and len(shape) == 2:
            layer = name.removesuffix(".qweight")
            found[f"{layer}.weight"], packing = _integers(layer, shape, shapes)
        elif name.endswith(".weight_packed") and len(shape) == 2:
            per_item, packing = (8, "int4") if types[name] == "int32" else (2, "nvfp4")
            found[name.removesuffix("_packed")] = (shape[0], shape[1] * per_item)
        elif (
            name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in shapes and len(shape) > 2
        ):
            found[name.removesuffix("_blocks")] = (*shape[:-2], shape[-2] * shape[-1] * 2)
            packing = "mxfp4"
        elif f"{name}{_NF4}" in shapes:
            # two weights a byte; the shape of the matrix stands in the weights' part of the file
            found[name], packing = (2 * math.prod(shape), 1), "nf4"
        elif not _SCALES.search(name) and not _is_beside(name, shapes):
            found[name] = shape
    return found, packing


def _is_beside(name: str, shapes: Mapping[str, Shape]) -> bool:
    """Whether a tensor belongs to packed weights of the same layer."""
    return any(
        name.endswith(end) and f"{name.removesuffix(end)}{packed}" in shapes
        for end, packed in _BESIDE.items()
    )


def _integers(layer: str, packed: Shape, shapes: Mapping[str, Shape]) -> tuple[Shape, str]:
    """Shape (out, in) and format of a matrix whose integers share words: GPTQ's along the input, with
    the group of each input in `g_idx`; AWQ's along the output, whose length the scales have."""
    inputs, outputs = packed
    groups = shapes.get(f"{layer}.g_idx", ())
    if len(groups) == 1 and groups[0]:
        bits = max(round(_WORD_BITS * inputs / groups[0]), 1)
        return (outputs, groups[0]), f"gptq-int{bits}"
    scales = shapes.get(f"{layer}.scales", ())
    width = scales[-1] if scales else 0
    if not width or width == outputs:
        # GPTQ without the order of groups: 4 bits, as nearly all such files have
        return (outputs, inputs * _WORD_BITS // 4), "gptq-int4"
    bits = max(round(_WORD_BITS * outputs / width), 1)
    return (width, inputs), f"awq-int{bits}"
